"""A job's outputs as JSON: for clients that ask and for messages that are sent.

It owns how elements look in JSON: numbers in full, non-finite ones as null, BYTES as text where they are UTF-8. It must
not judge what clients send.
"""

import base64
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from jobs.datatypes import Datatype, element_count, unpack_bytes
from jobs.record import OutputPart
from jobs.spec import OutputKind
from jobs.store import Inspection, JobStore
from jobs.tensors import Tensor
from jobs.view import has_result

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY


class Output(NamedTuple):
    """One output's values and how they are meant to be shown."""

    tensor: Tensor
    kind: OutputKind


def split(parts: Sequence[OutputPart], payload: bytes) -> list[Output]:
    """The outputs in a result payload, without copying; raises ValueError where it has another size than they say."""
    view = memoryview(payload)
    outputs: list[Output] = []
    start = 0
    for part in parts:
        end = start + part.nbytes
        outputs.append(Output(Tensor(part.name, part.datatype, part.shape, view[start:end]), part.kind))
        start = end
    if start != len(view):
        raise ValueError(f"a result of {len(view)} bytes is said to have {start}")
    return outputs


async def inline_output(store: JobStore, found: Inspection, limit_bytes: int) -> tuple[bytes | None, bool]:
    """The `output` member of a job object as JSON, and whether it is left out for its size.

    What can't fit is not even read, so that a poll costs the same whatever the size of the result.
    """
    job = found.job
    if not has_result(job, found.now_ms) or job.outcome is None:
        return None, False
    if sum(map(least_json_bytes, job.outcome.outputs)) > limit_bytes:
        return None, True
    payload = await store.output(job)
    if payload is None:
        return None, False
    document = dumps(json_document(split(job.outcome.outputs, payload)))
    return (document, False) if len(document) <= limit_bytes else (None, True)


def least_json_bytes(part: OutputPart) -> int:
    """A size that its JSON has at least: two characters an element, or a text's own bytes, quotes and comma."""
    count = math.prod(part.shape)
    return part.nbytes - count if part.datatype is Datatype.BYTES else 2 * count


def json_document(outputs: Sequence[Output]) -> dict[str, Any]:
    """Outputs by name, for `dumps`: best classes as a list of them, anything else as datatype, shape and flat data."""
    return {output.tensor.name: shown(output) for output in outputs}


def shown(output: Output) -> Any:
    """One output, for `dumps`."""
    if output.kind is OutputKind.CLASSIFICATION:
        return classification_to_json(output.tensor)["data"]
    plain = tensor_to_json(output.tensor)
    del plain["name"]
    return plain


def dumps(document: Any) -> bytes:
    """A document that may hold the dicts of this module, as UTF-8 JSON."""
    return orjson.dumps(document, option=_OPTIONS)


def tensor_to_json(tensor: Tensor) -> dict[str, Any]:
    """`{name, datatype, shape, data}` for `dumps`, data flat in row-major order.

    Non-finite numbers become null; BYTES elements that are not UTF-8 become `{"b64": …}`.
    """
    return {
        "name": tensor.name,
        "datatype": tensor.datatype.value,
        "shape": list(tensor.shape),
        "data": _elements(tensor),
    }


def _elements(tensor: Tensor) -> Any:
    if tensor.datatype is Datatype.BYTES:
        return list(map(_text_or_base64, unpack_bytes(memoryview(tensor.data), element_count(tensor.shape))))
    flat = tensor.array().reshape(-1)
    if tensor.datatype is Datatype.BF16:
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if tensor.datatype is Datatype.FP16:
        return flat.astype(np.float32)
    return flat


def _text_or_base64(element: bytes) -> str | dict[str, str]:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(element).decode("ascii")}


def classification_to_json(tensor: Tensor) -> dict[str, Any]:
    """`{name, datatype, shape, data}` with the best classes, best first, as `{label, index, score}` in place of texts.

    The engine writes each class as `score:index` or `score:index:label`. One item's classes are a list, and rows of
    them a list of lists. Raises ValueError where the engine wrote something else.
    """
    elements = unpack_bytes(memoryview(tensor.data), element_count(tensor.shape))
    classes = list(map(_class, elements))
    data: list[Any] = classes
    if len(tensor.shape) > 1:
        width = tensor.shape[-1]
        data = [classes[start : start + width] for start in range(0, len(classes), width)] if width else []
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": list(tensor.shape), "data": data}


def _class(element: bytes) -> dict[str, Any]:
    score_text, _, rest = element.decode("utf-8", "replace").partition(":")
    index_text, has_label, label = rest.partition(":")
    score = float(score_text)
    return {
        "label": label if has_label else None,
        "index": int(index_text),
        "score": score if math.isfinite(score) else None,
    }
