"""`inferq models`.

Owns how a model is shown in a line.
"""

from collections.abc import Iterable, Iterator, Mapping
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
    screen.table(columns, [row for model in models for row in _rows(model)])


def _rows(model: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line for the model, and one for each of its older versions that take or give something else."""
    yield (model["name"], *_form(model), str(model["queued"]), str(model["workers"]))
    for variant in model.get("variants", ()):
        yield (f"{model['name']} version {', '.join(variant['versions'])}", *_form(variant), "", "")


def _form(form: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "yes" if form["ready"] else form["refusal"] or "no",
        _tensors(form["inputs"]),
        _tensors(form["outputs"]),
        str(form["max_batch_size"] or "none"),
    )


def _tensors(specs: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{spec['name']}: {_kind(spec)}" for spec in specs)


def _kind(spec: Mapping[str, Any]) -> str:
    shape = f"{spec['datatype']} {spec['shape']}"
    kind = shape if spec["kind"] == "tensor" else f"{spec['kind']} ({shape})"
    return f"{kind} optional" if spec.get("optional") else kind
