"""What the client tries again, how long, and when it gives up, with scripted answers and a clock that we move."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import pytest

from inferq.client import (
    Job,
    JobFailed,
    JobNotDone,
    NotFound,
    RequestRefused,
    ResultExpired,
    ServerFailed,
    ServerUnavailable,
    ServerUnreachable,
    WaitTimeout,
    requests,
)
from inferq.client.batches import Block
from inferq.client.flows import GRACE_SECONDS, Flow, Flows, Patience, Pause, Send
from inferq.client.tensors import to_binary

T = TypeVar("T")
ID = "0123456789abcdef" * 2


def job(status: str, **members: Any) -> dict[str, Any]:
    done = status not in ("queued", "in_progress")
    return {"id": ID, "status": status, "done": done, "model": "m", "error": None, **members}


def answer(status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, content=content, headers=headers, request=httpx.Request("GET", "http://server/jobs"))


def problem(status: int, code: str, headers: Mapping[str, str] | None = None, **members: Any) -> httpx.Response:
    return answer(status, {"code": code, "title": "No", "detail": "Because.", "status": status, **members}, headers)


REFUSED = httpx.ConnectError("Connection refused")
AWAY = problem(503, "store_unavailable", {"Retry-After": "2"})


@dataclass
class World:
    """A clock that moves with pauses and slow answers, and the steps that a flow took."""

    now: float = 1000.0
    sent: list[Send] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def flows(self, retry: float = 30.0, first: float = 30.0, timeout: float = 10.0) -> Flows:
        return Flows("http://server", Patience(timeout, retry, first), lambda: self.now, lambda low, high: high)

    def play(self, flow: Flow[T], *answers: httpx.Response | Exception | Callable[[Send], httpx.Response]) -> T:
        """Run a flow to its end; once the answers are used up the last one repeats."""
        script = list(answers)
        response: httpx.Response | None = None
        error: Exception | None = None
        while True:
            try:
                step = flow.throw(error) if error else flow.send(response)
            except StopIteration as end:
                result: T = end.value
                return result
            response = error = None
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
                continue
            self.sent.append(step)
            given = script.pop(0) if len(script) > 1 else script[0]
            if isinstance(given, Exception):
                error = given
            else:
                response = given if isinstance(given, httpx.Response) else given(step)

    def slowly(self, seconds: float, response: httpx.Response) -> Callable[[Send], httpx.Response]:
        def later(step: Send) -> httpx.Response:
            self.now += seconds
            return response

        return later


@pytest.fixture
def world() -> World:
    return World()


def submission() -> requests.Call:
    return requests.submit("m", b"x", {}, "the-key")


def test_a_submit_is_repeated_with_the_same_key_and_bytes_until_the_server_answers(world: World) -> None:
    done = world.play(
        world.flows().submit(submission()),
        REFUSED,
        AWAY,
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        answer(202, job("queued")),
    )
    assert done.status == "queued"
    assert len(world.sent) == 5
    assert len({(step.call.headers["Idempotency-Key"], step.call.content) for step in world.sent}) == 1


def entry(status: int, code: str = "") -> dict[str, Any]:
    if code:
        return {"status": status, "problem": {"code": code, "title": "No", "detail": "Because.", "status": status}}
    return {"status": status, "replayed": False, "job": job("queued")}


def batch(*entries: dict[str, Any], headers: Mapping[str, str] | None = None) -> httpx.Response:
    return answer(207, {"jobs": list(entries)}, headers)


def blocks(*sizes: int) -> list[Block]:
    return [
        Block(requests.Call("POST", "/jobs/batch", headers={"Idempotency-Key": f"k.{at}"}), size)
        for at, size in enumerate(sizes)
    ]


def test_many_jobs_come_back_in_order_each_with_its_own_refusal(world: World) -> None:
    first = batch(entry(202), entry(404, "unknown_model"))
    found = world.play(world.flows().submit_many(blocks(2, 1)), first, batch(entry(202)))
    assert [type(one) for one in found] == [Job, NotFound, Job]
    refused = found[1]
    assert isinstance(refused, NotFound)
    assert (refused.code, str(refused)) == ("unknown_model", "Because.")
    assert len(world.sent) == 2


def test_a_block_is_repeated_as_it_is_until_there_is_room_for_all_of_it(world: World) -> None:
    """B007: what the lost or earlier answers stored is found by the same key, not stored again."""
    full = batch(entry(202), entry(503, "queue_full"), headers={"Retry-After": "3"})
    stored = batch(entry(202), entry(202))
    found = world.play(world.flows().submit_many(blocks(2)), REFUSED, AWAY, httpx.ReadTimeout("slow"), full, stored)
    assert [type(one) for one in found] == [Job, Job]
    assert len({id(step.call) for step in world.sent}) == 1
    assert world.pauses[-1] == pytest.approx(3.1)


def test_what_there_is_no_room_for_is_told_when_patience_ends(world: World) -> None:
    full = batch(entry(202), entry(429, "quota_exceeded"), headers={"Retry-After": "6"})
    found = world.play(world.flows(retry=14).submit_many(blocks(2)), full)
    assert [type(one) for one in found] == [Job, ServerUnavailable]
    assert len(world.sent) == 3


def test_a_job_that_is_too_large_by_itself_is_refused_by_itself(world: World) -> None:
    large = problem(413, "payload_too_large")
    (refused,) = world.play(world.flows().submit_many(blocks(1)), large)
    assert isinstance(refused, RequestRefused)
    with pytest.raises(RequestRefused):
        world.play(world.flows().submit_many(blocks(2)), large)


@pytest.mark.parametrize("body", [{"jobs": []}, {"jobs": [{}]}, {"jobs": [5]}, {}, [1]])
def test_an_answer_to_a_batch_that_no_inferq_gives_is_told_apart(world: World, body: Any) -> None:
    with pytest.raises(ServerFailed, match="not inferq"):
        world.play(world.flows().submit_many(blocks(1)), answer(202, body))


def test_waits_that_share_a_timeout_end_together(world: World) -> None:
    begun_at = world.flows().now()
    world.now += 30
    with pytest.raises(WaitTimeout):
        world.play(world.flows().wait(ID, 40, begun_at), world.slowly(10, answer(200, job("queued"))))
    assert world.sent[0].call.params["wait"] == "10.000"


def test_a_text_that_was_meant_as_a_files_name_is_explained(world: World) -> None:
    refusal = problem(415, "unsupported_media_type")
    with pytest.raises(RequestRefused, match=r"^Because\. A str is sent as text: pass a Path to send a file\.$"):
        world.play(world.flows().submit(requests.submit("m", "coffee.jpg", {}, "k")), refusal)
    with pytest.raises(RequestRefused, match=r"^Because\.$"):
        world.play(world.flows().submit(requests.submit("m", b"bytes", {}, "k")), refusal)


def test_a_busy_server_is_asked_again_no_earlier_than_it_says(world: World) -> None:
    world.play(world.flows().get(ID, 0), AWAY, answer(200, job("queued")))
    assert world.pauses == [pytest.approx(2.1)]


def test_pauses_grow_while_nothing_answers_and_stay_bounded(world: World) -> None:
    world.play(world.flows().get(ID, 0), *[REFUSED] * 7, answer(200, job("queued")))
    assert world.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_the_client_gives_up_after_its_patience_and_says_who_did_not_answer(world: World) -> None:
    with pytest.raises(ServerUnreachable, match="nothing answers at http://server: Connection refused"):
        world.play(world.flows(retry=5, first=5).get(ID, 0), REFUSED)
    assert 3 <= world.now - 1000 <= 5


def test_a_pause_longer_than_the_patience_is_not_begun(world: World) -> None:
    with pytest.raises(ServerUnavailable, match=r"Because\.") as caught:
        world.play(world.flows(retry=5).get(ID, 0), problem(503, "queue_full", {"Retry-After": "6"}))
    assert (caught.value.code, caught.value.status) == ("queue_full", 503)
    assert world.pauses == []


def test_a_server_that_never_answered_gets_the_patience_of_a_first_contact(world: World) -> None:
    flows = world.flows(first=0)
    with pytest.raises(ServerUnreachable):
        world.play(flows.get(ID, 0), REFUSED)
    assert world.pauses == []
    world.play(flows.get(ID, 0), answer(200, job("queued")))
    world.play(flows.get(ID, 0), REFUSED, answer(200, job("queued")))
    assert len(world.pauses) == 1


@pytest.mark.parametrize(
    ("status", "code", "raised"),
    [
        (404, "unknown_model", NotFound),
        (410, "result_expired", ResultExpired),
        (413, "payload_too_large", RequestRefused),
        (422, "invalid_tensor", RequestRefused),
        (500, "internal_error", ServerFailed),
    ],
)
def test_a_refusal_is_raised_at_once_with_its_code_and_sentence(
    world: World, status: int, code: str, raised: type[Exception]
) -> None:
    refusal = problem(status, code, {"X-Request-Id": "r1"}, models=["a"])
    with pytest.raises(raised, match=r"Because\.") as caught:
        world.play(world.flows().submit(submission()), refusal)
    assert type(caught.value) is raised
    assert len(world.sent) == 1
    assert isinstance(caught.value, RequestRefused | ServerFailed)
    assert (caught.value.code, caught.value.request_id) == (code, "r1")
    assert caught.value.members == {"models": ["a"]}


def test_an_answer_that_no_inferq_gives_is_told_apart(world: World) -> None:
    with pytest.raises(ServerFailed, match="not inferq"):
        world.play(world.flows().get(ID, 0), answer(200, b"<html>It works!</html>"))
    with pytest.raises(ServerFailed, match="server answered 500"):
        world.play(world.flows().get(ID, 0), answer(500, b"oops"))


def test_a_wait_polls_until_the_job_is_done(world: World) -> None:
    running = world.slowly(30, answer(200, job("in_progress")))
    done = world.play(world.flows().wait(ID, None), running, running, answer(200, job("succeeded")))
    assert done.succeeded
    assert [step.call.params["wait"] for step in world.sent] == ["30.000"] * 3
    assert world.pauses == []


def test_a_wait_asks_for_no_more_than_the_time_that_is_left(world: World) -> None:
    running = answer(200, job("in_progress"))
    with pytest.raises(WaitTimeout, match="not done after 40 s; it is in_progress") as caught:
        world.play(world.flows().wait(ID, 40), world.slowly(30, running), world.slowly(10, running))
    assert [step.call.params["wait"] for step in world.sent] == ["30.000", "10.000"]
    assert caught.value.job is not None
    assert world.now == 1040


def test_every_step_of_a_wait_ends_by_its_timeout_and_a_grace(world: World) -> None:
    with pytest.raises(WaitTimeout, match="could not be looked at"):
        world.play(world.flows(timeout=60).wait(ID, 5), REFUSED)
    assert world.now <= 1005
    assert all(step.timeout_seconds <= 5 + GRACE_SECONDS for step in world.sent)
    assert world.sent[-1].timeout_seconds < 5


def test_a_wait_of_no_time_looks_once(world: World) -> None:
    with pytest.raises(WaitTimeout):
        world.play(world.flows().wait(ID, 0), answer(200, job("queued")))
    assert len(world.sent) == 1


def test_a_wait_outlives_a_server_that_is_away_for_less_than_the_patience(world: World) -> None:
    done = world.play(world.flows().wait(ID, None), *[AWAY] * 10, answer(200, job("failed")))
    assert done.status == "failed"
    with pytest.raises(ServerUnavailable):
        world.play(world.flows().wait(ID, None), AWAY)


def test_a_server_that_answers_polls_early_is_not_asked_in_a_tight_loop(world: World) -> None:
    early = answer(200, job("queued"))
    world.play(world.flows().wait(ID, None), early, early, early, answer(200, job("canceled")))
    assert world.pauses == [1.0, 1.0, 1.0]


def binary_result(classes: tuple[str, ...] = (), **arrays: Any) -> httpx.Response:
    length, body = to_binary(arrays, {})
    header = json.loads(body[:length])
    for entry in header["inputs"]:
        entry["parameters"] |= {"classification": 1} if entry["name"] in classes else {}
    text = json.dumps({"outputs": header["inputs"]}).encode()
    return answer(200, text + body[length:], {"Inference-Header-Content-Length": str(len(text))})


def test_a_result_of_numbers_takes_one_call(world: World) -> None:
    import numpy as np

    array = np.array([0.1, np.nan, -0.0], dtype=np.float32)
    values = world.play(world.flows().result(ID), binary_result(y=array))
    assert values["y"].tobytes() == array.tobytes()
    assert len(world.sent) == 1


def test_classes_come_as_the_json_shows_them_and_texts_as_bytes(world: World) -> None:
    import numpy as np

    classes = [{"label": "espresso", "index": 967, "score": 0.95}]
    shown = {"best": classes, "text": {"datatype": "BYTES", "shape": [1], "data": ["hi"]}}
    binary = binary_result(("best",), best=np.array([b"0.95:967:espresso"]), text=np.array([b"hi"]))
    values = world.play(world.flows().result(ID), binary, answer(200, shown))
    assert values["best"] == classes
    assert values["text"].tolist() == [b"hi"]


def test_a_result_of_texts_takes_one_call(world: World) -> None:
    import numpy as np

    values = world.play(world.flows().result(ID), binary_result(text=np.array([b"0.95:967:not a class"])))
    assert values["text"].tolist() == [b"0.95:967:not a class"]
    assert len(world.sent) == 1


def test_the_result_of_a_job_that_is_not_done_or_has_failed_says_so(world: World) -> None:
    with pytest.raises(JobNotDone, match="in_progress"):
        world.play(world.flows().result(ID), answer(202, job("in_progress")))
    error = {"code": "model_rejected", "title": "t", "detail": "Negative values.", "retryable": False}
    with pytest.raises(JobFailed, match="Negative values") as caught:
        world.play(world.flows().result(ID), problem(409, "no_result", error=error))
    assert (caught.value.code, caught.value.job_id) == ("model_rejected", ID)


def test_a_job_that_an_unanswered_delete_removed_counts_as_deleted(world: World) -> None:
    gone = problem(404, "unknown_job")
    world.play(world.flows().delete(ID, force=False), httpx.ReadTimeout("lost"), gone)
    with pytest.raises(NotFound):
        world.play(world.flows().delete(ID, force=False), gone)


def test_an_error_of_the_job_is_readable_without_its_raw_form(world: World) -> None:
    error = {"code": "engine_error", "title": "The engine failed", "detail": "x", "retryable": True}
    found = world.play(world.flows().get(ID, 0), answer(200, job("failed", error=error)))
    assert found.error is not None
    assert (found.error.code, found.error.retryable, found.succeeded) == ("engine_error", True, False)
