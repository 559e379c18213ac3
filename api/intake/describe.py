"""What a model takes, in words for the people whose request did not fit."""

from collections.abc import Iterable, Sequence
from typing import Final

from jobs.spec import InputKind, InputSpec, ModelSpec

FILES_ARE_UPLOADED: Final = (
    "A picture or file is uploaded by itself, to POST /jobs: with curl, `-F model=NAME -F file=@FILE`."
)
_UPLOADS: Final = {InputKind.IMAGE: "an image", InputKind.TEXT: "a UTF-8 text", InputKind.BYTES: "a file"}


def names(items: Iterable[str]) -> str:
    """Names in a row, each cut to a sane length."""
    return ", ".join(f"`{item[:100]}`" for item in items) or "none"


def dims(shape: Sequence[int]) -> str:
    """A shape as the engine's configuration writes it; -1 is variable."""
    return f"[{', '.join(map(str, shape))}]"


def input_words(spec: InputSpec) -> str:
    """What one input takes."""
    tensor = f"{spec.datatype} {dims(spec.dims)}"
    upload = _UPLOADS.get(spec.kind)
    return f"`{spec.name}` ({upload}, or {tensor})" if upload else f"`{spec.name}` ({tensor})"


def model_words(model: ModelSpec) -> str:
    """What all inputs of a model take."""
    return ", ".join(input_words(spec) + (" optional" if spec.optional else "") for spec in model.inputs)
