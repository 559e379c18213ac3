"""Uploads that become the one element of a BYTES tensor: texts and whole files.

It must not look into a file that the model decodes itself.
"""

from jobs.errors import InvalidInput
from jobs.spec import InputSpec
from jobs.tensors import Tensor, tensor_of_bytes

_SIGNATURE = b"\xef\xbb\xbf"


def prepare_text(upload: bytes | memoryview, spec: InputSpec) -> Tensor:
    """A UTF-8 text as one BYTES element; a byte order mark in front is no part of the text and is left out.

    Raises InvalidInput if the upload is not UTF-8.
    """
    text = bytes(upload)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            f"Input `{spec.name}`: expected UTF-8 text, got byte 0x{text[exc.start]:02x} at offset {exc.start}."
        ) from exc
    return tensor_of_bytes(spec.name, _one_element(spec), [text.removeprefix(_SIGNATURE)])


def prepare_bytes(upload: bytes | memoryview, spec: InputSpec) -> Tensor:
    """The file as it is, as one BYTES element."""
    return tensor_of_bytes(spec.name, _one_element(spec), [bytes(upload)])


def _one_element(spec: InputSpec) -> tuple[int, ...]:
    """The shape of the item: the input's dims with 1 for each variable one."""
    if any(dim not in (1, -1) for dim in spec.dims):
        raise ValueError(f"input {spec.name} of kind {spec.kind} must hold one element, its dims are {spec.dims}")
    return (1,) * len(spec.dims)
