"""Problems: one table, one wire form, nothing of our insides in it."""

import json

import pytest

from api.problems import MEDIA_TYPE, PROBLEMS, Problem, ProblemCode, from_store, response
from jobs.connection import StoreError, StoreFull, StoreMisconfigured, StoreUnavailable


def test_every_code_has_a_row_and_an_error_status() -> None:
    assert set(PROBLEMS) == set(ProblemCode)
    assert all(400 <= kind.status < 600 and kind.title for kind in PROBLEMS.values())
    assert all(kind.retry_after_seconds > 0 for kind in PROBLEMS.values() if kind.status == 503)


def test_a_problem_is_an_rfc_9457_object_with_its_code() -> None:
    problem = Problem(ProblemCode.UNKNOWN_MODEL, "There is no model `x`.", known_models=["a"])
    answer = response(problem, "r1")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert json.loads(bytes(answer.body)) == {
        "type": "urn:inferq:problem:unknown_model",
        "title": "There is no such model",
        "status": 404,
        "code": "unknown_model",
        "detail": "There is no model `x`.",
        "known_models": ["a"],
        "request_id": "r1",
    }
    assert "connection" not in answer.headers


def test_a_problem_before_the_end_of_the_body_closes_the_connection() -> None:
    answer = response(Problem(ProblemCode.PAYLOAD_TOO_LARGE, "Too large.", close=True), "r1")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("Error 111 connecting to 10.0.0.7:6379"), ProblemCode.STORE_UNAVAILABLE),
        (StoreFull("OOM"), ProblemCode.STORE_FULL),
        (StoreMisconfigured("WRONGPASS for user x"), ProblemCode.STORE_UNAVAILABLE),
        (StoreError("ERR secret"), ProblemCode.STORE_UNAVAILABLE),
    ],
)
def test_a_fault_of_the_store_is_503_with_retry_after_and_without_its_words(
    error: StoreError, code: ProblemCode
) -> None:
    problem = from_store(error)
    answer = response(problem, "r1")
    assert problem.code is code
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert str(error).encode() not in bytes(answer.body)
