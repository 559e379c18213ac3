"""What the client raises: one class per thing that a caller may want to handle differently.

Owns the classes and what they carry; which answer of the server means which is in `inferq.client.responses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferq.client.job import Job


class InferqError(Exception):
    """Base of everything that the client raises on purpose."""


class ServerUnreachable(InferqError):
    """Nothing answered at the server's address, or the connection broke, for as long as the client tried."""


class ProblemError(InferqError):
    """The server said no. `detail` is its sentence for this request, `code` the stable word to branch on.

    `members` holds what else the problem document says, such as `models` of `unknown_model`.
    """

    def __init__(
        self, status: int, code: str, title: str, detail: str, *, request_id: str = "", members: Mapping[str, Any]
    ) -> None:
        super().__init__(detail or title)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.request_id = request_id
        self.members = dict(members)


class RequestRefused(ProblemError):
    """The request is to blame (4xx): sending it again changes nothing."""


class NotFound(RequestRefused):
    """There is no such job, model or version (404)."""


class ResultExpired(RequestRefused):
    """The result's time is up (410)."""


class ServerUnavailable(ProblemError):
    """The server had no room or no Redis for as long as the client tried again (429, 502, 503, 504)."""


class ServerFailed(ProblemError):
    """The server has a fault (5xx) or answered what no inferq answers; its log says more under `request_id`."""


class JobNotDone(InferqError):
    """The job has no result yet."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job.id} is {job.status}: it has no result yet")
        self.job = job


class JobFailed(InferqError):
    """The job ended without a result; `code` says why: a code of its error, `canceled` and `expired` included."""

    def __init__(self, job_id: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self.job_id = job_id
        self.code = code
        self.detail = detail


class WaitTimeout(InferqError):
    """The job was not done in time. It goes on: `job`, where the server answered at all, is how it stood last."""

    def __init__(self, job_id: str, seconds: float, job: Job | None) -> None:
        state = f"is {job.status}" if job else "could not be looked at"
        super().__init__(f"job {job_id} was not done after {seconds:g} s; it {state}")
        self.job_id = job_id
        self.job = job
