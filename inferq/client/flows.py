"""How the client behaves: which calls an operation makes, what is tried again and when it gives up.

Every operation is a generator that yields what is to be done (send a call, pause) and returns its result, so that it
exists once for both clients. It must not do I/O; clock and randomness are handed in.
"""

import itertools
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from inferq.client import requests, responses
from inferq.client.batches import Block
from inferq.client.errors import (
    InferqError,
    JobFailed,
    JobNotDone,
    ProblemError,
    ServerUnavailable,
    ServerUnreachable,
    WaitTimeout,
)
from inferq.client.job import Job
from inferq.client.requests import Call

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 2.0
"""How much longer than asked a long-poll's answer may be on its way: the most by which a wait overruns its timeout."""

_BROKEN: Final = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class Send:
    """To do: send this call; the answer, or the exception that httpx raised, goes back into the generator."""

    call: Call
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """To do: wait for so long."""

    seconds: float


T = TypeVar("T")
Flow = Generator[Send | Pause, httpx.Response | None, T]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an answer may take, and how long a server that is away is tried again: for the first time, and later."""

    timeout_seconds: float
    retry_seconds: float
    first_contact_seconds: float


class Page(NamedTuple):
    """Some jobs, newest first, and where the next ones begin."""

    jobs: list[Job]
    next_cursor: str | None


class _Answer(NamedTuple):
    response: httpx.Response
    is_repeat: bool
    """Whether an earlier attempt may have had its effect without the client having learnt of it."""


class _TimeIsUp(InferqError):
    """The caller's deadline came before an answer; its cause is what went wrong last."""


class Flows:
    """The operations. `clock` gives seconds that never go back, `uniform(a, b)` a number between."""

    def __init__(
        self, server: str, patience: Patience, clock: Callable[[], float], uniform: Callable[[float, float], float]
    ) -> None:
        self._server = server
        self._patience = patience
        self._clock = clock
        self._uniform = uniform
        self._has_answered = False

    def submit(self, call: Call) -> Flow[Job]:
        """Store a job; the call's idempotency key makes any number of attempts one job."""
        response = (yield from self._exchange(call)).response
        if response.status_code == 415 and call.has_text:
            raise responses.problem(response, "A str is sent as text: pass a Path to send a file.")
        _check(response)
        return responses.job(response)

    def submit_many(self, blocks: Sequence[Block]) -> Flow[list[Job | ProblemError]]:
        """Store the jobs of all blocks, one block after the other: each job, or why it was refused, in order."""
        entries: list[Job | ProblemError] = []
        for block in blocks:
            entries += yield from self._submit_block(block)
        return entries

    def _submit_block(self, block: Block) -> Flow[list[Job | ProblemError]]:
        """The whole block is sent again for jobs that there was no room for: its keys leave the others as they are."""
        gives_up_at: float | None = None
        for attempt in itertools.count():
            response = (yield from self._exchange(block.call)).response
            if response.status_code == 413 and block.jobs == 1:
                return [responses.problem(response)]
            _check(response)
            entries = responses.entries(response, block.jobs)
            if not any(isinstance(entry, ServerUnavailable) for entry in entries):
                return entries
            now = self._clock()
            gives_up_at = gives_up_at or now + self._patience.retry_seconds
            pause = self._pause_seconds(attempt, response)
            if now + pause > gives_up_at:
                return entries
            yield Pause(pause)
        raise AssertionError("count() never ends")

    def get(self, job_id: str, wait_seconds: float) -> Flow[Job]:
        """The job now, or once it is done within `wait_seconds`, of which the server allows 60."""
        return responses.job((yield from self._success(requests.get_job(job_id, wait_seconds))))

    def now(self) -> float:
        """The clock that timeouts are measured with."""
        return self._clock()

    def wait(self, job_id: str, timeout_seconds: float | None, begun_at: float | None = None) -> Flow[Job]:
        """The job once it is done; raises WaitTimeout otherwise, at most GRACE_SECONDS late.

        The time began `begun_at` by `now` where several waits share it.
        """
        begun_at = self._clock() if begun_at is None else begun_at
        ends_at = None if timeout_seconds is None else begun_at + timeout_seconds
        job: Job | None = None
        while True:
            asked_at = self._clock()
            left = requests.MAX_POLL_SECONDS if ends_at is None else max(0.0, ends_at - asked_at)
            poll = min(left, requests.MAX_POLL_SECONDS)
            try:
                job = responses.job((yield from self._success(requests.get_job(job_id, poll), ends_at)))
            except _TimeIsUp as exc:
                raise WaitTimeout(job_id, timeout_seconds or 0.0, job) from exc.__cause__
            if job.done:
                return job
            now = self._clock()
            if ends_at is not None and now >= ends_at:
                raise WaitTimeout(job_id, timeout_seconds or 0.0, job)
            if now - asked_at < poll / 2:  # it answers early when it shuts down; its successor may take a moment
                yield Pause(self._uniform(0.5, 1.0) * min(1.0, poll))

    def result(self, job_id: str) -> Flow[dict[str, Any]]:
        """Outputs by name: arrays, and lists of classes; raises JobNotDone, JobFailed and ResultExpired."""
        from inferq.client.tensors import from_binary  # numpy, which most operations do without

        response = (yield from self._exchange(requests.get_result(job_id))).response
        _check_result(job_id, response)
        try:
            outputs = from_binary(response.content, int(response.headers[requests.HEADER_LENGTH]))
        except (KeyError, TypeError, ValueError) as exc:
            raise responses.not_inferq(response) from exc
        values: dict[str, Any] = {entry["name"]: array for entry, array in outputs}
        if any("classification" in entry["parameters"] for entry, _ in outputs):
            # In the binary form classes are the engine's texts; the JSON has them taken apart.
            shown = yield from self._document(requests.get_result(job_id, requests.JSON))
            values.update({name: value for name, value in shown.items() if isinstance(value, list)})
        return values

    def result_json(self, job_id: str) -> Flow[Mapping[str, Any]]:
        """Outputs by name as the server's JSON shows them; raises as `result` does."""
        response = (yield from self._exchange(requests.get_result(job_id, requests.JSON))).response
        _check_result(job_id, response)
        return responses.document(response)

    def cancel(self, job_id: str) -> Flow[Job]:
        """The job after the request to cancel it."""
        return responses.job((yield from self._success(requests.cancel(job_id))))

    def delete(self, job_id: str, *, force: bool) -> Flow[None]:
        """Forget the job; that it is gone already is a success where an earlier attempt may have done it."""
        answer = yield from self._exchange(requests.delete(job_id, force=force))
        if not (answer.is_repeat and answer.response.status_code == 404):
            _check(answer.response)

    def page(self, *, status: str | None, model: str | None, limit: int, cursor: str | None) -> Flow[Page]:
        """Some jobs, newest first."""
        call = requests.list_page(status=status, model=model, limit=limit, cursor=cursor)
        plain = yield from self._document(call)
        return Page([Job.from_plain(item) for item in plain["jobs"]], plain["next_cursor"])

    def models(self) -> Flow[list[dict[str, Any]]]:
        """Every model."""
        models: list[dict[str, Any]] = (yield from self._document(requests.list_models()))["models"]
        return models

    def model(self, name: str) -> Flow[dict[str, Any]]:
        """One model."""
        return dict((yield from self._document(requests.get_model(name))))

    def _document(self, call: Call) -> Flow[Mapping[str, Any]]:
        return responses.document((yield from self._success(call)))

    def _success(self, call: Call, ends_at: float | None = None) -> Flow[httpx.Response]:
        response = (yield from self._exchange(call, ends_at)).response
        _check(response)
        return response

    def _exchange(self, call: Call, ends_at: float | None = None) -> Flow[_Answer]:
        """The first answer that trying again would not better.

        Raises what went wrong last when patience ends, and _TimeIsUp when `ends_at` comes before that.
        """
        gives_up_at: float | None = None
        for attempt in itertools.count():
            response: httpx.Response | None = None
            try:
                response = yield Send(call, self._timeout_seconds(call, ends_at))
            except _BROKEN as exc:
                failure: InferqError = self._unreachable(exc)
            else:
                assert response is not None
                self._has_answered = True
                if response.status_code not in responses.TRY_AGAIN:
                    return _Answer(response, attempt > 0)
                failure = responses.problem(response)
            now = self._clock()
            if gives_up_at is None:
                gives_up_at = now + self._retry_seconds()
            resumes_at = now + self._pause_seconds(attempt, response)
            if ends_at is not None and ends_at < min(resumes_at, gives_up_at):
                raise _TimeIsUp from failure
            if resumes_at > gives_up_at:
                raise failure from None
            yield Pause(resumes_at - now)
        raise AssertionError("count() never ends")

    def _timeout_seconds(self, call: Call, ends_at: float | None) -> float:
        allowed = call.patience_seconds + self._patience.timeout_seconds
        return allowed if ends_at is None else min(allowed, max(0.0, ends_at - self._clock()) + GRACE_SECONDS)

    def _retry_seconds(self) -> float:
        patience = self._patience
        return patience.retry_seconds if self._has_answered else patience.first_contact_seconds

    def _pause_seconds(self, attempt: int, response: httpx.Response | None) -> float:
        """What the server asks for and a little more, so that not all clients are back in the same instant."""
        asked = responses.retry_after_seconds(response) if response is not None else None
        most = min(FIRST_PAUSE_SECONDS * 2 ** min(attempt, 10), LONGEST_PAUSE_SECONDS)
        return self._uniform(0.0, most) if asked is None else asked + self._uniform(0.0, FIRST_PAUSE_SECONDS)

    def _unreachable(self, exc: httpx.TransportError) -> ServerUnreachable:
        reason = re.sub(r"^\[Errno \d+\] ", "", str(exc)) or type(exc).__name__
        return ServerUnreachable(f"nothing answers at {self._server}: {reason}")


def _check(response: httpx.Response) -> None:
    if not response.is_success:
        raise responses.problem(response)


def _check_result(job_id: str, response: httpx.Response) -> None:
    if response.status_code == 202:
        raise JobNotDone(responses.job(response))
    if not response.is_success:
        problem = responses.problem(response)
        if (error := problem.members.get("error")) is not None:
            raise JobFailed(job_id, error["code"], error["detail"])
        raise problem
