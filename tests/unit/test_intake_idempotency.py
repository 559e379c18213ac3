"""Idempotency keys, and the fingerprint that tells a repetition from another request."""

import json
from typing import Any

import pytest

from jobs.spec import ModelSpec
from tests.support.intake import MODELS, PHOTO, Gateway, document, field, multipart

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "order-17"}
BODY = document("fixed", "FP32", [3], [1, 2, 3], priority="high", metadata={"a": 1})


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def fingerprint(gateway: Gateway, **request: Any) -> str:
    """The fingerprint of a request."""
    request["headers"] = {**request.get("headers", {}), **KEY}
    submission = await gateway.accepted(**request)
    assert submission.idempotency_key == "order-17"
    assert len(submission.fingerprint) == 64
    return submission.fingerprint


async def test_the_same_request_has_the_same_fingerprint(gateway: Gateway) -> None:
    assert await fingerprint(gateway, json=BODY) == await fingerprint(gateway, json=BODY)
    one = multipart(field("model", b"text"), field("text", b"hello"), boundary="one")
    other = multipart(field("text", b"hello", "another name", "text/plain"), field("model", b"text"), boundary="two")
    assert await fingerprint(gateway, **one) == await fingerprint(gateway, **other)


@pytest.mark.parametrize(
    "change",
    [
        {"priority": "low"},
        {"priority": "normal"},
        {"metadata": {"a": 2}},
        {"metadata": {}},
        {"model_version": "1"},
        {"outputs": ["y"]},
        {"id": "other"},
        {"parameters": {"p": 1}},
        {"run_at": 1_760_000_001},
        {"max_failures": 4},
        {"model": "any_fp32"},
        {"inputs": document("fixed", "FP32", [3], [1, 2, 4])["inputs"]},
        {"inputs": document("fixed", "FP32", [1, 3], [1, 2, 3])["inputs"]},
    ],
)
async def test_another_request_has_another_fingerprint(gateway: Gateway, change: dict[str, Any]) -> None:
    """B007"""
    assert await fingerprint(gateway, json=BODY) != await fingerprint(gateway, json=BODY | change)


async def test_pieces_can_not_be_moved_between_inputs(gateway: Gateway) -> None:
    a = {"name": "a", "datatype": "FP32", "shape": [2], "data": [0, 0]}
    b = [{"name": "b", "datatype": "INT64", "shape": [count], "data": [0] * count} for count in (1, 2)]
    one, two = [await fingerprint(gateway, json={"model": "pair", "inputs": [a, item]}) for item in b]
    assert one != two


async def test_a_model_that_gains_an_output_leaves_fingerprints_as_they_were() -> None:
    """A retry after a reload of the model is still a retry."""
    file = multipart(field("model", b"blob"), field("file", b"x", "f"))
    before = Gateway()
    after = Gateway(models=[_with_more_outputs(model) for model in MODELS])
    assert await fingerprint(before, **file) == await fingerprint(after, **file)


def _with_more_outputs(model: ModelSpec) -> ModelSpec:
    plain = model.to_plain()
    plain["outputs"] = [*plain["outputs"], PHOTO.to_plain()["outputs"][0]]
    return ModelSpec.from_plain(plain)


async def test_without_a_key_nothing_is_hashed(gateway: Gateway) -> None:
    submission = await gateway.accepted(json=BODY)
    assert (submission.idempotency_key, submission.fingerprint) == ("", "")


@pytest.mark.parametrize("key", ["k" * 256, "naïve", "tab\there", "x" * 1_000_000])
async def test_a_key_is_at_most_255_printable_ascii_characters(gateway: Gateway, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1"), "Content-Type": "application/json"}
    problem = await gateway.refused(content=json.dumps(BODY), headers=headers)
    assert (problem["status"], problem["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("key", ["", "  "])
async def test_an_empty_key_is_refused_since_it_would_protect_nothing(gateway: Gateway, key: str) -> None:
    problem = await gateway.refused(json=BODY, headers={"Idempotency-Key": key})
    assert (problem["status"], problem["code"]) == (400, "invalid_request")
    assert "empty" in problem["detail"]
    assert (await gateway.refused_batch(json=[BODY], headers={"Idempotency-Key": key}))["code"] == "invalid_request"


async def test_the_longest_key_is_accepted(gateway: Gateway) -> None:
    key = "".join(chr(33 + n % 94) for n in range(255))
    submission = await gateway.accepted(json=BODY, headers={"Idempotency-Key": key})
    assert submission.idempotency_key == key


async def test_two_keys_in_one_request_are_refused(gateway: Gateway) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Type", "application/json")]
    problem = await gateway.refused(content=json.dumps(BODY), headers=headers)
    assert (problem["status"], problem["code"]) == (400, "invalid_request")


async def test_every_submission_has_an_id_of_its_own(gateway: Gateway) -> None:
    ids = {(await gateway.accepted(json=BODY, headers=KEY)).id for _ in range(20)}
    assert len(ids) == 20
    assert all(len(job_id) == 32 and int(job_id, 16) >= 0 for job_id in ids)
