"""A request as the client wrote it, before anything is known about the model.

Every form of `POST /jobs` is parsed into one of these, so that everything after it exists once. It must not judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.intake.media import TEXT
from jobs.tensors import Buffer


@dataclass(frozen=True, slots=True)
class DraftTensor:
    """An input in Open Inference Protocol words: `values` to convert, or the raw `data`."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: list[Any] | None = None
    data: Buffer = b""


@dataclass(frozen=True, slots=True)
class DraftUpload:
    """Bytes for an input; `name` '' means the one that takes uploads. `is_file` is False for a form's text field."""

    name: str
    media_type: str
    data: Buffer
    charset: str = ""
    is_file: bool = True

    @property
    def is_bare_field(self) -> bool:
        """Whether it is a form's field of which nothing says that it is a file."""
        return self.media_type == TEXT and not self.is_file


@dataclass(frozen=True, slots=True)
class DraftOutput:
    """An output that is asked for; `classes` None leaves its form to the model's spec, 0 asks for the numbers."""

    name: str
    classes: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """What one request says; `outputs` None means all of them."""

    options: Mapping[str, Any] = field(default_factory=dict)
    tensors: tuple[DraftTensor, ...] = ()
    uploads: tuple[DraftUpload, ...] = ()
    outputs: tuple[DraftOutput, ...] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    request_id: str = ""
