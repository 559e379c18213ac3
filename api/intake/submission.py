"""Reads one `POST /jobs` request and makes it a submission.

It owns the order of the steps; each step is a pure function elsewhere. It must not store anything.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Final, ParamSpec, TypeVar

from starlette.requests import Request

from api.body import RequestHeaders, body_unread, read_body
from api.intake.draft import Draft, DraftTensor, DraftUpload
from api.intake.fields import query_options
from api.intake.forms import form_of, parse
from api.intake.limits import MAX_IDEMPOTENCY_KEY_LENGTH, IntakeLimits
from api.intake.options import model_name, request_fields
from api.intake.uploads import resolve, target_of
from api.intake.validate import check_names, check_rows, check_served, requested_outputs, tensor_data
from api.problems import Problem, ProblemCode
from jobs import codec
from jobs.datatypes import Datatype
from jobs.record import InputPart, InputSource, JobRequest
from jobs.spec import ModelSpec
from jobs.store import Submission, new_job_id
from jobs.tensors import Buffer

P = ParamSpec("P")
T = TypeVar("T")

FindModel = Callable[[str], Awaitable[ModelSpec]]

_INLINE_DOCUMENT_BYTES: Final = 128 * 1024
_INLINE_UPLOAD_BYTES: Final = 4 * 1024 * 1024
"""Larger bodies are worked on in a thread, so that other requests get their turns in between."""


async def read_submission(
    request: Request, *, models: FindModel, limits: IntakeLimits, tenant: str, now_ms: int
) -> Submission:
    """The request as a job to store: complete, and valid for the model as it is known now.

    `models` gives a model's spec or raises Problem. `now_ms` is Unix time. Raises Problem for everything that is
    wrong with the request; what `models` raises passes through.
    """
    headers = RequestHeaders(request.scope)
    with body_unread():
        form = form_of(headers)
        idempotency_key = _idempotency_key(headers)
        query = query_options(request.scope["query_string"])
        model = await models(model_name(query)) if "model" in query else None
    max_bytes = min(limits.max_body_bytes, limits.max_json_bytes) if form.is_json else limits.max_body_bytes
    body = await read_body(request, headers, max_bytes=max_bytes, grace_seconds=limits.body_grace_seconds)
    is_inline = len(body) <= (_INLINE_DOCUMENT_BYTES if form.is_document else _INLINE_UPLOAD_BYTES)
    draft = await _work(is_inline, parse, body, form, query, limits)
    if model is None:
        model = await models(model_name(draft.options))
    job, payload = await _work(is_inline, build, draft, model, limits, now_ms)
    fingerprint = await _work(is_inline, fingerprint_of, job, draft, payload) if idempotency_key else ""
    return Submission(new_job_id(), tenant, job, payload, idempotency_key, fingerprint)


def build(draft: Draft, model: ModelSpec, limits: IntakeLimits, now_ms: int) -> tuple[JobRequest, Buffer]:
    """The request and its payload, in the order of the model's inputs; raises Problem where the draft does not fit."""
    fields = request_fields(draft.options, now_ms)
    check_served(model, fields.get("model_version", ""))
    uploads = [(target_of(model, upload), upload) for upload in draft.uploads]
    check_names(model, [*(tensor.name for tensor in draft.tensors), *(spec.name for spec, _ in uploads)])
    inputs: dict[str, DraftTensor | DraftUpload] = {tensor.name: tensor for tensor in draft.tensors}
    inputs |= {spec.name: resolve(spec, upload, limits) for spec, upload in uploads}
    ordered = [inputs[spec.name] for spec in model.inputs if spec.name in inputs]
    rows = check_rows(model, ordered)
    outputs = requested_outputs(model, draft.outputs)
    pieces = [item.data if isinstance(item, DraftUpload) else tensor_data(item) for item in ordered]
    job = JobRequest(
        model=model.name,
        inputs=tuple(_part(item, piece) for item, piece in zip(ordered, pieces, strict=True)),
        outputs=outputs,
        rows=rows,
        parameters=draft.parameters,
        request_id=draft.request_id,
        **fields,
    )
    return job, pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _part(item: DraftTensor | DraftUpload, data: Buffer) -> InputPart:
    nbytes = memoryview(data).nbytes
    if isinstance(item, DraftUpload):
        return InputPart(item.name, InputSource.UPLOAD, nbytes)
    return InputPart(item.name, InputSource.TENSOR, nbytes, Datatype(item.datatype), item.shape)


def fingerprint_of(job: JobRequest, draft: Draft, payload: Buffer) -> str:
    """SHA-256 over what the client asked for, in hex: the same for the same request, however it was cut into parts.

    Only what differs from the defaults counts, and outputs only where the client named them, so that neither a
    newer version of the product nor a model's new outputs make a repeated request look like another one.
    """
    plain = asdict(job if draft.outputs else replace(job, outputs=()))
    defaults = asdict(JobRequest(model="", inputs=(), outputs=()))
    digest = hashlib.sha256(codec.encode({key: value for key, value in plain.items() if value != defaults[key]}))
    digest.update(payload)
    return digest.hexdigest()


def _idempotency_key(headers: RequestHeaders) -> str:
    key = headers.one(b"idempotency-key")
    if len(key) > MAX_IDEMPOTENCY_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"Idempotency-Key must be at most {MAX_IDEMPOTENCY_KEY_LENGTH} printable ASCII characters.",
        )
    return key


async def _work(is_inline: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    if is_inline:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
