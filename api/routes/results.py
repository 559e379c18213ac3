"""The result alone, in the form that the client accepts."""

import hashlib
from collections.abc import Sequence
from typing import Final

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api import query, results
from api.formats import FormatError, npy
from api.intake.media import MSGPACK
from api.negotiation import choose
from api.problems import Problem, ProblemCode
from api.routes.access import job_reference, services, unknown_job
from api.routes.answers import is_unchanged, job_response, not_modified
from api.sending import LargeResponse, holding, sent
from jobs import view
from jobs.outputs import Output, dumps, json_document, split
from jobs.record import Job
from jobs.state import State

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
EXTENSIONS: Final = {JSON: "json", BINARY: "bin", MSGPACK[0]: "msgpack", npy.MEDIA_TYPE: "npy"}
"""The media types of results, best first for a client that takes any, and their file extensions."""

_ALL_EXTENSIONS: Final = {**EXTENSIONS, **dict.fromkeys(MSGPACK[1:], "msgpack")}
"""The same with the other names that msgpack goes by."""

_AT_ONCE_BYTES: Final = 128 * 1024


async def read_result(request: Request) -> Response:
    """The outputs as JSON, msgpack, npy or the Open Inference Protocol's binary form; before the end, the job."""
    job_id, owner = job_reference(request)
    media_type = choose(", ".join(request.headers.getlist("accept")), tuple(_ALL_EXTENSIONS))
    if media_type is None:
        raise Problem(
            ProblemCode.NOT_ACCEPTABLE, f"A result is one of {', '.join(EXTENSIONS)}.", types=list(EXTENSIONS)
        )
    name = query.text(request, "output")
    shared = services(request)
    found = await shared.look(job_id, owner)
    if found is None:
        raise unknown_job()
    job = found.job
    if not job.state.is_terminal:
        return await job_response(request, found, 202)
    if job.state is not State.SUCCEEDED:
        raise _no_result(job)
    if not view.has_result(job, found.now_ms):
        raise _expired()
    etag = _etag(job, media_type, name)
    if is_unchanged(request, etag):
        return not_modified(etag)
    with holding(shared.results, job.outcome) as hold:
        payload = await shared.store.output(job)
        if payload is None or job.outcome is None:
            raise _expired()
        outputs = _wanted(split(job.outcome.outputs, payload), name)
        response = _encoded(job, outputs, media_type)
        hold.hand_over(response)
    response.headers["ETag"] = etag
    response.headers["Vary"] = "Accept"
    response.headers["Content-Disposition"] = f'attachment; filename="{job.id}.{_ALL_EXTENSIONS[media_type]}"'
    return response


def _etag(job: Job, media_type: str, name: str | None) -> str:
    """Strong: what one attempt made never changes, so its number, the form and the choice say it all."""
    chosen = "" if name is None else f".{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return f'"{job.attempt}.{_ALL_EXTENSIONS[media_type]}{chosen}"'


def _wanted(outputs: Sequence[Output], name: str | None) -> Sequence[Output]:
    if name is None:
        return outputs
    wanted = [output for output in outputs if output.tensor.name == name]
    if not wanted:
        raise Problem(ProblemCode.UNKNOWN_OUTPUT, f"This job has no output {name[:255]!r}; it has {_names(outputs)}.")
    return wanted


def _encoded(job: Job, outputs: Sequence[Output], media_type: str) -> Response:
    if media_type == BINARY:
        header_length, parts = results.protocol_binary(job, outputs)
        return sent(parts, {"Inference-Header-Content-Length": str(header_length)}, BINARY)
    if media_type in MSGPACK:
        return sent([results.protocol_msgpack(job, outputs)], {}, media_type)
    if media_type == npy.MEDIA_TYPE:
        return _npy(outputs)
    if sum(output.tensor.nbytes for output in outputs) <= _AT_ONCE_BYTES:
        return Response(dumps(json_document(outputs)), media_type=JSON)
    return LargeResponse(iterate_in_threadpool(results.json_pieces(outputs)), None, JSON)


def _npy(outputs: Sequence[Output]) -> Response:
    if len(outputs) != 1:
        raise query.invalid("output", f"must choose one of {_names(outputs)}, since an .npy file holds one array")
    try:
        return sent(npy.tensor_to_npy(outputs[0].tensor), {}, npy.MEDIA_TYPE)
    except FormatError as exc:
        raise Problem(
            ProblemCode.NOT_ACCEPTABLE, f"Output {outputs[0].tensor.name!r} can't be an .npy file: {exc}."
        ) from None


def _names(outputs: Sequence[Output]) -> str:
    return ", ".join(repr(output.tensor.name) for output in outputs)


def _no_result(job: Job) -> Problem:
    error = view.job_error(job)
    assert error is not None, "a job that ended otherwise than by success says why"
    return Problem(
        ProblemCode.NO_RESULT,
        f"The job ended as {job.state}: {error.detail}",
        job_status=job.state.value,
        error=view.error_object(error),
    )


def _expired() -> Problem:
    return Problem(ProblemCode.RESULT_EXPIRED, "The result was kept for its result_ttl_seconds and is gone.")
