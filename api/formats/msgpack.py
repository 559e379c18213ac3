"""Documents as msgpack, tensors with their raw bytes.

It owns what of msgpack is accepted: the types that JSON has, and raw bytes; no extension types, no duplicate keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgpack

from api.formats import MAX_ELEMENTS, FormatError
from jobs.tensors import Tensor

_MAX_CONTAINERS: Final = 100_000  # an empty one takes one byte there, and 64 and a call here


def loads(data: bytes | memoryview) -> Any:
    """The document; raises FormatError on anything that JSON could not say either, raw bytes aside."""
    watch = _Watch()
    try:
        return msgpack.unpackb(
            data,
            object_pairs_hook=watch.map,
            list_hook=watch.list,
            ext_hook=_refuse_extension,
            max_array_len=MAX_ELEMENTS,
            max_map_len=MAX_ELEMENTS,
        )
    except FormatError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise FormatError(_why(exc)) from None


def _why(exc: Exception) -> str:
    if isinstance(exc, msgpack.StackError | RecursionError):
        return "its arrays and maps are nested too deeply"
    if isinstance(exc, msgpack.ExtraData):
        return "it goes on behind the end of its document"
    if isinstance(exc, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    return f"it is not valid msgpack: {str(exc) or 'it has a byte that begins nothing'}"


class _Watch:
    """Judges each container as soon as it is built, which bounds how much memory a few bytes can ask for."""

    def __init__(self) -> None:
        self._containers = 0
        self._elements = 0

    def map(self, pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        members = list(pairs)
        self._count(len(members))
        document = dict(members)
        if len(document) != len(members):
            raise FormatError("it is ambiguous: a map has the same key twice")
        if not all(type(key) is str for key in document):
            raise FormatError("a map has a key that is not a text")
        return document

    def list(self, items: list[Any]) -> list[Any]:
        self._count(len(items))
        return items

    def _count(self, elements: int) -> None:
        self._containers += 1
        self._elements += elements
        if self._containers > _MAX_CONTAINERS or self._elements > MAX_ELEMENTS:
            raise FormatError(
                f"it has more than {_MAX_CONTAINERS} arrays and maps, or {MAX_ELEMENTS} elements; send raw bytes"
            )


def _refuse_extension(code: int, data: bytes) -> Any:
    raise FormatError(f"it has an extension type ({code}), which nothing here takes")


def tensors_to_msgpack(tensors: Sequence[Tensor], envelope: Mapping[str, Any]) -> bytes:
    """`{**envelope, outputs: [{name, datatype, shape, data}]}` with `data` as raw little-endian bytes, BYTES framed."""
    outputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.value,
            "shape": list(tensor.shape),
            "data": memoryview(tensor.data).cast("B"),
        }
        for tensor in tensors
    ]
    packed: bytes = msgpack.packb({**envelope, "outputs": outputs})
    return packed
