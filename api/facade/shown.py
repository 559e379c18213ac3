"""Models as Triton's clients read of them: metadata, configuration, the repository's index.

Pure: it says what a spec says in the words of that protocol, batch dimension included.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from jobs.spec import InputSpec, ModelSpec, OutputSpec

SERVER_NAME: Final = "inferq"
EXTENSIONS: Final = ("classification", "model_configuration", "binary_tensor_data", "parameters", "statistics")
"""What of Triton's extensions is answered; the others are refused."""


def server_metadata(version: str) -> dict[str, Any]:
    """Who answers."""
    return {"name": SERVER_NAME, "version": version, "extensions": EXTENSIONS}


def one_version(spec: ModelSpec, version: str) -> ModelSpec:
    """A model as it looks to who asks for one of its versions: as if it had no other."""
    return replace(spec.of_version(version), versions=(version,), variants=())


def model_metadata(spec: ModelSpec) -> dict[str, Any]:
    """What a model takes and gives; -1 is variable, and so is the batch dimension."""
    batch = (-1,) if spec.max_batch_size else ()
    return {
        "name": spec.name,
        "versions": spec.versions,
        "platform": spec.platform,
        "inputs": _tensors(spec.inputs, batch),
        "outputs": _tensors(spec.outputs, batch),
    }


def _tensors(specs: Sequence[InputSpec] | Sequence[OutputSpec], batch: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{"name": spec.name, "datatype": spec.datatype.value, "shape": (*batch, *spec.dims)} for spec in specs]


def index_entry(spec: ModelSpec, *, is_ready: bool) -> dict[str, Any]:
    """One version of a model in the repository's index."""
    state = (
        {"state": "READY"} if is_ready else {"state": "UNAVAILABLE", "reason": spec.refusal or "no worker serves it"}
    )
    return {"name": spec.name, "version": spec.versions[0], **state}
