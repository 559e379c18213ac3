"""`inferq models`.

Owns how a model is shown in a line.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from inferq.commands import screen
from inferq.commands.failure import connected


def show_models(url: str, *, as_json: bool) -> None:
    """Every model that the server knows."""
    with connected(url) as client:
        models = client.models()
    if as_json:
        for model in models:
            screen.json_line(model)
        return
    columns = ("MODEL", "READY", "INPUTS", "OUTPUTS", "BATCH", "QUEUED", "WORKERS")
    screen.table(columns, [_row(model) for model in models])


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        model["name"],
        "yes" if model["ready"] else model["refusal"] or "no",
        _tensors(model["inputs"]),
        _tensors(model["outputs"]),
        str(model["max_batch_size"] or "none"),
        str(model["queued"]),
        str(model["workers"]),
    )


def _tensors(specs: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{spec['name']}: {_kind(spec)}" for spec in specs)


def _kind(spec: Mapping[str, Any]) -> str:
    shape = f"{spec['datatype']} {spec['shape']}"
    kind = shape if spec["kind"] == "tensor" else f"{spec['kind']} ({shape})"
    return f"{kind} optional" if spec.get("optional") else kind
