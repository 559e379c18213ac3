"""A job's outputs as Triton's clients read them: JSON, and raw bytes behind it for the outputs that are wanted so.

It owns the order of members and bytes; how elements look in JSON is `jobs.outputs`' business.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from api.facade.request import Wanted
from jobs.outputs import Output, dumps, tensor_to_json
from jobs.record import Job
from jobs.tensors import Buffer, Tensor


class Answer(NamedTuple):
    """The body in parts; `header_length` is that of its JSON part where raw bytes follow, else None."""

    parts: Sequence[Buffer]
    header_length: int | None


def infer_answer(job: Job, outputs: Sequence[Output], wanted: Wanted) -> Answer:
    """The response to an inference request."""
    version = job.outcome.model_version if job.outcome else ""
    head: dict[str, Any] = {"id": job.request.request_id} if job.request.request_id else {}
    head |= {"model_name": job.request.model, "model_version": version}
    raw: list[Buffer] = []
    shown: list[dict[str, Any]] = []
    is_binary = False
    for output in outputs:
        if wanted.is_raw(output.tensor.name):
            is_binary = True
            shown.append(_raw_entry(output.tensor))
            raw.append(output.tensor.data)
        else:
            shown.append(tensor_to_json(output.tensor))
    document = dumps({**head, "outputs": shown})
    return Answer([document, *raw], len(document) if is_binary else None)


def _raw_entry(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "datatype": tensor.datatype.value,
        "shape": list(tensor.shape),
        "parameters": {"binary_data_size": tensor.nbytes},
    }
