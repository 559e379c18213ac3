"""Reads one `POST /jobs/batch` request: many jobs in one body, each accepted or refused by itself.

It owns how a body is cut into jobs; what one job is, is the business of `api.intake.submission`.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from starlette.requests import Request

from api.body import RequestHeaders, body_unread, read_body
from api.formats import FormatError, json, msgpack
from api.intake.assemble import build, fingerprint_of
from api.intake.describe import FILES_ARE_UPLOADED
from api.intake.draft import Draft
from api.intake.envelope import draft_from_document
from api.intake.fields import query_options
from api.intake.forms import with_query
from api.intake.limits import MAX_BATCH_JOBS, IntakeLimits
from api.intake.media import JSON, MSGPACK, MULTIPART, NDJSON, SAYS_JSON, media_type
from api.intake.options import model_name
from api.intake.submission import INLINE_DOCUMENT_BYTES, FindModel, idempotency_key_of, work
from api.problems import Problem, ProblemCode
from jobs.spec import ModelSpec
from jobs.store import Submission, new_job_id

T = TypeVar("T")

_MAX_LINES: Final = 2 * MAX_BATCH_JOBS  # empty ones are passed over
_ACCEPTED: Final = (JSON, *NDJSON[:1], *MSGPACK[:1])


async def read_batch(
    request: Request, *, models: FindModel, limits: IntakeLimits, tenant: str, now_ms: int
) -> list[Submission | Problem]:
    """The jobs of a batch in their order, a Problem in the place of each that is refused.

    The body is a JSON or msgpack array of documents as for `POST /jobs`, or NDJSON with one on each line. Options in
    the query hold for all of them. With an Idempotency-Key each job has one of its own, made of it and the job's
    place. Raises Problem where the body as a whole can't be used.
    """
    headers = RequestHeaders(request.scope)
    with body_unread():
        media = media_type(headers.one(b"content-type")).type
        if media not in (JSON, *NDJSON, *MSGPACK):
            raise Problem(
                ProblemCode.UNSUPPORTED_MEDIA_TYPE,
                f"A batch is one of {', '.join(_ACCEPTED)}, got {media[:100] or 'no type'}. {_hint(media)}",
                accepted=list(_ACCEPTED),
            )
        key = idempotency_key_of(headers)
        query = query_options(request.scope["query_string"])
    max_bytes = min(limits.max_body_bytes, limits.max_json_bytes) if media == JSON else limits.max_body_bytes
    body = await read_body(request, headers, max_bytes=max_bytes, grace_seconds=limits.body_grace_seconds)
    is_inline = len(body) <= INLINE_DOCUMENT_BYTES
    drafts = await work(is_inline, drafts_of, body, media, query)
    known = await _find_models(drafts, models)
    return await work(is_inline, _submissions, drafts, known, limits, tenant, now_ms, key)


def _hint(media: str) -> str:
    if media == MULTIPART or media.startswith("image/"):
        return f"It takes no files. {FILES_ARE_UPLOADED}"
    return f"Say what the body is, with curl by {SAYS_JSON}."


def drafts_of(body: bytes, media: str, query: Mapping[str, str]) -> list[Draft | Problem]:
    """What the body says about each job, or why that can't be used; raises Problem where it is no batch at all."""
    items = _split(body, media)
    if not 0 < len(items) <= MAX_BATCH_JOBS:
        raise Problem(
            ProblemCode.MALFORMED_BODY,
            f"A batch has 1 to {MAX_BATCH_JOBS} jobs, got {len(items)}.",
            max_jobs=MAX_BATCH_JOBS,
        )
    return [_draft(item, query) for item in items]


def _split(body: bytes, media: str) -> list[Any]:
    """The documents; a line that is none is a Problem by itself."""
    if media in NDJSON:
        if body.count(b"\n") > _MAX_LINES:
            raise Problem(ProblemCode.MALFORMED_BODY, f"The batch has more than {_MAX_LINES} lines.")
        lines = [line for line in body.split(b"\n") if line.strip()]
        return lines if len(lines) > MAX_BATCH_JOBS else list(map(_line, lines))
    try:
        items = json.loads(body) if media == JSON else msgpack.loads(body)
    except FormatError as exc:
        raise Problem(ProblemCode.MALFORMED_BODY, f"The batch can't be used: {exc}.") from None
    if not isinstance(items, list):
        raise Problem(ProblemCode.MALFORMED_BODY, "The batch is not an array.")
    return items


def _line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except FormatError as exc:
        return Problem(ProblemCode.MALFORMED_BODY, f"The line can't be used as JSON: {exc}.")


def _draft(item: Any, query: Mapping[str, str]) -> Draft | Problem:
    if isinstance(item, Problem):
        return item
    try:
        return with_query(draft_from_document(item), query)
    except Problem as problem:
        return problem


def _usable(item: T | Problem) -> T:
    if isinstance(item, Problem):
        raise item
    return item


async def _find_models(drafts: list[Draft | Problem], models: FindModel) -> dict[str, ModelSpec | Problem]:
    """Each model that is asked for, once, or why it can't be."""
    found: dict[str, ModelSpec | Problem] = {}
    for draft in drafts:
        name = draft.options.get("model") if isinstance(draft, Draft) else None
        if isinstance(name, str) and name not in found:
            try:
                found[name] = await models(name)
            except Problem as problem:
                found[name] = problem
    return found


def _submissions(
    drafts: list[Draft | Problem],
    known: Mapping[str, ModelSpec | Problem],
    limits: IntakeLimits,
    tenant: str,
    now_ms: int,
    key: str,
) -> list[Submission | Problem]:
    submissions: list[Submission | Problem] = []
    for place, draft in enumerate(drafts):
        try:
            submissions.append(
                _submission(_usable(draft), known, limits, tenant, now_ms, f"{key}#{place}" if key else "")
            )
        except Problem as problem:
            submissions.append(problem)
    return submissions


def _submission(
    draft: Draft, known: Mapping[str, ModelSpec | Problem], limits: IntakeLimits, tenant: str, now_ms: int, key: str
) -> Submission:
    model = _usable(known[model_name(draft.options)])
    job, payload = build(draft, model, limits, now_ms)
    return Submission(new_job_id(), tenant, job, payload, key, fingerprint_of(job, draft, payload) if key else "")
