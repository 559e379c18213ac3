"""Reads one `POST /jobs` request and makes it a submission.

It owns the order of the steps; each step is a pure function elsewhere. It must not store anything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, TypeVar

from starlette.requests import Request

from api.body import RequestHeaders, body_unread, read_body
from api.intake.assemble import build, fingerprint_of
from api.intake.fields import query_options
from api.intake.forms import form_of, parse
from api.intake.limits import MAX_IDEMPOTENCY_KEY_LENGTH, IntakeLimits
from api.intake.options import model_name
from api.problems import Problem, ProblemCode
from jobs.spec import ModelSpec
from jobs.store import Submission, new_job_id

P = ParamSpec("P")
T = TypeVar("T")

FindModel = Callable[[str], Awaitable[ModelSpec]]

_IDEMPOTENCY_KEY: Final = b"idempotency-key"

INLINE_DOCUMENT_BYTES: Final = 128 * 1024
INLINE_UPLOAD_BYTES: Final = 4 * 1024 * 1024
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
        idempotency_key = idempotency_key_of(headers)
        query = query_options(request.scope["query_string"])
        model = await models(model_name(query)) if "model" in query else None
    max_bytes = min(limits.max_body_bytes, limits.max_json_bytes) if form.is_json else limits.max_body_bytes
    body = await read_body(request, headers, max_bytes=max_bytes, grace_seconds=limits.body_grace_seconds)
    is_inline = len(body) <= (INLINE_DOCUMENT_BYTES if form.is_document else INLINE_UPLOAD_BYTES)
    draft = await work(is_inline, parse, body, form, query, limits)
    if model is None:
        model = await models(model_name(draft.options))
    job, payload = await work(is_inline, build, draft, model, limits, now_ms)
    fingerprint = await work(is_inline, fingerprint_of, job, draft, payload) if idempotency_key else ""
    return Submission(new_job_id(), tenant, job, payload, idempotency_key, fingerprint)


def idempotency_key_of(headers: RequestHeaders) -> str:
    """The Idempotency-Key, '' where there is none; raises Problem where it is empty, too long or not printable."""
    key = headers.one(_IDEMPOTENCY_KEY)
    if not key and headers.has(_IDEMPOTENCY_KEY):
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            "Idempotency-Key is empty and would protect nothing. Give each job its own key, or leave the header out.",
        )
    if len(key) > MAX_IDEMPOTENCY_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise Problem(
            ProblemCode.INVALID_REQUEST,
            f"Idempotency-Key must be at most {MAX_IDEMPOTENCY_KEY_LENGTH} printable ASCII characters.",
        )
    return key


async def work(is_inline: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result; from a thread unless it is quick."""
    if is_inline:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
