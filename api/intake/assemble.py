"""A draft and a model become a job's request and its payload.

It owns the order of the checks and of the payload's parts; it is pure, and it must not know HTTP.
"""

import hashlib
from dataclasses import asdict, replace
from typing import Final

import msgpack

from api.intake.draft import Draft, DraftTensor, DraftUpload
from api.intake.limits import IntakeLimits
from api.intake.options import request_fields
from api.intake.uploads import resolve, target_of
from api.intake.validate import check_names, check_rows, check_served, other_versions, requested_outputs, tensor_data
from api.intake.webhooks import webhook_of
from api.problems import Problem
from jobs.datatypes import Datatype
from jobs.record import InputPart, InputSource, JobRequest
from jobs.spec import ModelSpec
from jobs.tensors import Buffer

_DEFAULTS: Final = asdict(JobRequest(model="", inputs=(), outputs=()))


def build(draft: Draft, model: ModelSpec, limits: IntakeLimits, now_ms: int) -> tuple[JobRequest, Buffer]:
    """The request and its payload, in the order of the model's inputs; raises Problem where the draft does not fit."""
    fields = request_fields(draft.options, now_ms)
    version = fields.get("model_version", "")
    check_served(model, version)
    whole, model = model, model.of_version(version)
    uploads = [(target_of(model, upload), upload) for upload in draft.uploads]
    check_names(model, [*(tensor.name for tensor in draft.tensors), *(spec.name for spec, _ in uploads)])
    inputs: dict[str, DraftTensor | DraftUpload] = {tensor.name: tensor for tensor in draft.tensors}
    inputs |= {spec.name: resolve(spec, upload, limits) for spec, upload in uploads}
    ordered = [inputs[spec.name] for spec in model.inputs if spec.name in inputs]
    try:
        rows = check_rows(model, ordered)
    except Problem as exc:
        hint = "" if uploads else other_versions(whole, model, draft.tensors)
        raise Problem(exc.code, exc.detail + hint, **exc.members) from None
    outputs = requested_outputs(model, draft.outputs)
    pieces = [item.data if isinstance(item, DraftUpload) else tensor_data(item) for item in ordered]
    job = JobRequest(
        model=model.name,
        inputs=tuple(_part(item, piece) for item, piece in zip(ordered, pieces, strict=True)),
        outputs=outputs,
        rows=rows,
        parameters=draft.parameters,
        request_id=draft.request_id,
        webhook=webhook_of(draft.options, limits.webhooks),
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
    digest = hashlib.sha256(msgpack.packb({key: value for key, value in plain.items() if value != _DEFAULTS[key]}))
    digest.update(payload)
    return digest.hexdigest()
