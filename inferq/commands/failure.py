"""Why a command could not do what it was asked, in words for a person.

Owns the exception that ends a command, and what to do next for each error of the client. Must not print.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inferq.client import (
    Client,
    InferqError,
    JobFailed,
    JobNotDone,
    ProblemError,
    ResultExpired,
    ServerFailed,
    ServerUnavailable,
    ServerUnreachable,
    WaitTimeout,
)
from inferq.commands.exit import CommandFailed

WRONG_USE: Final = 2


@contextmanager
def connected(url: str) -> Iterator[Client]:
    """A client of the server at `url`, whose errors become CommandFailed; a server that isn't there is told at once."""
    try:
        client = Client(url, first_contact_seconds=0)
    except ValueError as exc:
        raise CommandFailed(str(exc), "Correct --url or INFERQ_URL.", status=WRONG_USE) from exc
    with client:
        try:
            yield client
        except InferqError as exc:
            raise CommandFailed(str(exc), next_step(exc)) from exc


def next_step(exc: InferqError) -> str:
    """What a person can do about it; '' where the sentence itself says all there is."""
    match exc:
        case ServerUnreachable():
            return "Start a server with `inferq up`, or name a running one with --url or INFERQ_URL."
        case WaitTimeout():
            return f"It goes on; wait longer with `inferq get {exc.job_id} --wait --timeout SECONDS`."
        case JobNotDone():
            return f"Wait for it with `inferq get {exc.job.id} --wait`."
        case JobFailed():
            return f"`inferq get {exc.job_id}` shows the whole job; its code is {exc.code}."
        case ResultExpired():
            return "Submit it again; --option result_ttl_seconds=SECONDS keeps a result longer."
        case ServerUnavailable():
            return "Try again later."
        case ServerFailed():
            return f"The server's log says more under the request id {exc.request_id or '(it gave none)'}."
        case ProblemError(code="unknown_model"):
            return f"There are: {', '.join(exc.members.get('models', ())) or 'none'}."
        case ProblemError(code="unauthenticated"):
            return "Set INFERQ_API_KEY to a key that `inferq keys create NAME` printed where the server's Redis is."
        case ProblemError(code="unknown_job"):
            return "`inferq list` shows the jobs that there are."
        case ProblemError(code="not_done"):
            return "Here that is --force."
        case _:
            return ""
