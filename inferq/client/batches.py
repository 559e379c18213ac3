"""Many jobs in few requests: what `POST /jobs/batch` is asked, as values, block by block.

Owns how jobs are cut into blocks and under which keys. Pure, like `inferq.client.requests`; it must not send anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inferq.client.requests import JSON, Call, is_array, said

if TYPE_CHECKING:
    from inferq.client.tensors import Array

    Arrays = Mapping[str, Array]

MAX_BLOCK_JOBS: Final = 1000
"""As many as the server takes at once."""
MAX_BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Larger blocks save nothing; a job that is larger goes by itself."""


class Block(NamedTuple):
    """One request, and how many jobs it has."""

    call: Call
    jobs: int


def blocks_of(model: str, items: Iterable["Arrays"], options: Mapping[str, Any], idempotency_key: str) -> list[Block]:
    """The jobs of a model in their order; the same jobs and key make the same blocks under the same keys.

    ValueError where an option is unknown or an array has no datatype, TypeError where an item is no mapping of input
    names to arrays. `options` hold for every job.
    """
    shared = said(model, options)
    documents = [_document(place, item, shared) for place, item in enumerate(items)]
    headers = {"Content-Type": "application/msgpack", "Accept": JSON}
    return [
        Block(
            Call("POST", "/jobs/batch", {}, {**headers, "Idempotency-Key": f"{idempotency_key}.{number}"}, content),
            jobs,
        )
        for number, (content, jobs) in enumerate(_cut(documents))
    ]


def _document(place: int, item: Any, shared: Mapping[str, Any]) -> bytes:
    """One job as msgpack, in which arrays are their raw bytes."""
    import msgpack

    from inferq.client.tensors import to_document  # numpy, which uploads do without

    if not isinstance(item, Mapping) or not item or not all(map(is_array, item.values())):
        raise TypeError(
            f"job {place} of the batch is no mapping of input names to numpy arrays, which is all that travels in "
            "one; pictures, files and texts are submitted one by one, with submit"
        )
    packed: bytes = msgpack.packb({**shared, "inputs": to_document(item)})
    return packed


def _cut(documents: list[bytes]) -> Iterator[tuple[bytes, int]]:
    """Arrays of as many documents as fit, and how many that are."""
    block: list[bytes] = []
    nbytes = 0
    for document in documents:
        if block and (len(block) == MAX_BLOCK_JOBS or nbytes + len(document) > MAX_BLOCK_BYTES):
            yield _joined(block), len(block)
            block, nbytes = [], 0
        block.append(document)
        nbytes += len(document)
    if block:
        yield _joined(block), len(block)


def _joined(documents: list[bytes]) -> bytes:
    import msgpack

    return b"".join([msgpack.Packer().pack_array_header(len(documents)), *documents])
