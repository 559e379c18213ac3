"""Many jobs in one request: each is accepted or refused by itself."""

import json
from typing import Any

import msgpack
import pytest

from api.problems import Problem
from jobs.store import Submission
from tests.support.intake import Gateway, document

pytestmark = pytest.mark.anyio

NDJSON = {"Content-Type": "application/x-ndjson"}
GOOD = document("fixed", "FP32", [3], [1, 2, 3])


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def codes(results: list[Submission | Problem]) -> list[str]:
    """The problems' codes, 'ok' where there is none."""
    return [item.code.value if isinstance(item, Problem) else "ok" for item in results]


def lines(*items: Any) -> bytes:
    """Documents as NDJSON."""
    return b"\n".join(item if isinstance(item, bytes) else json.dumps(item).encode() for item in items)


async def test_json_msgpack_and_ndjson_are_the_same_batch(gateway: Gateway) -> None:
    items = [GOOD, {**GOOD, "priority": "high"}, document("any_int8", "INT8", [2], [1, 2])]
    batches = [
        await gateway.batch(json=items),
        await gateway.batch(content=msgpack.packb(items), headers={"Content-Type": "application/msgpack"}),
        await gateway.batch(content=lines(*items), headers=NDJSON),
        await gateway.batch(content=lines(b"", *items, b"\r\n \n"), headers={"Content-Type": "application/jsonl"}),
    ]
    for batch in batches:
        assert codes(batch) == ["ok"] * 3
        for item, first in zip(batch, batches[0], strict=True):
            assert isinstance(item, Submission)
            assert isinstance(first, Submission)
            assert (item.request, bytes(item.payload)) == (first.request, bytes(first.payload))


async def test_bad_jobs_are_refused_one_by_one_in_their_places(gateway: Gateway) -> None:
    items = [
        GOOD,
        {**GOOD, "model": "nope"},
        {**GOOD, "priorty": "high"},
        {**GOOD, "inputs": []},
        document("fixed", "FP64", [3], [1, 2, 3]),
        1,
        {"inputs": GOOD["inputs"]},
        {**GOOD, "model": 7},
        GOOD,
    ]
    expected = ["ok", "unknown_model", "invalid_option", "missing_input", "invalid_tensor", "malformed_body"]
    expected += ["invalid_option", "invalid_option", "ok"]
    assert codes(await gateway.batch(json=items)) == expected
    assert codes(await gateway.batch(content=lines(*items), headers=NDJSON)) == expected


async def test_a_broken_line_is_refused_by_itself(gateway: Gateway) -> None:
    body = lines(GOOD, b'{"model":', b'{"model":"a","model":"b"}', b"[" * 5000, GOOD)
    results = await gateway.batch(content=body, headers=NDJSON)
    assert codes(results) == ["ok", "malformed_body", "malformed_body", "malformed_body", "ok"]


async def test_of_a_thousand_jobs_the_ten_bad_ones_are_refused(gateway: Gateway) -> None:
    items = [{**GOOD, "max_failures": 0} if place % 100 == 7 else GOOD for place in range(1000)]
    results = await gateway.batch(json=items)
    assert codes(results).count("ok") == 990
    assert [place for place, code in enumerate(codes(results)) if code == "invalid_option"] == list(range(7, 1000, 100))
    assert len({item.id for item in results if isinstance(item, Submission)}) == 990


async def test_options_in_the_query_hold_for_every_job(gateway: Gateway) -> None:
    item = {key: value for key, value in GOOD.items() if key != "model"}
    results = await gateway.batch(
        params={"model": "fixed", "priority": "low"}, json=[item, {**item, "priority": "high"}]
    )
    assert codes(results) == ["ok", "invalid_option"]
    assert isinstance(results[0], Submission)
    assert results[0].request.priority == "low"


async def test_an_idempotency_key_becomes_one_key_for_each_place(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "k"}
    first = await gateway.batch(json=[GOOD, GOOD], headers=headers)
    again = await gateway.batch(json=[GOOD, {**GOOD, "priority": "low"}], headers=headers)
    keys = [[item.idempotency_key for item in batch if isinstance(item, Submission)] for batch in (first, again)]
    prints = [[item.fingerprint for item in batch if isinstance(item, Submission)] for batch in (first, again)]
    assert keys == [["k#0", "k#1"]] * 2
    assert prints[0][0] == prints[1][0] == prints[0][1]
    assert prints[0][1] != prints[1][1]


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        ({"content": b"[]"}, "-H 'Content-Type: application/json'"),
        ({"data": {"a": "b"}}, "-H 'Content-Type: application/json'"),
        ({"data": {"model": "photo"}, "files": {"file": b"x"}}, "POST /jobs: with curl, `-F model=NAME -F file=@FILE`"),
        ({"content": b"x", "headers": {"Content-Type": "image/jpeg"}}, "POST /jobs: with curl"),
    ],
)
async def test_what_a_batch_can_not_be_is_refused_with_the_way_to_go(
    gateway: Gateway, request_: dict[str, Any], hint: str
) -> None:
    problem = await gateway.refused_batch(**request_)
    assert (problem["status"], problem["accepted"][0]) == (415, "application/json")
    assert hint in problem["detail"]


async def test_a_picture_in_a_document_is_refused_with_the_way_to_upload_it(gateway: Gateway) -> None:
    picture = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [{"b64": "/9j/4AAQ"}]}
    items = [{"model": "photo", "inputs": [picture]}, {"model": "photo", "file": "/9j/4AAQ"}]
    for problem in await gateway.batch(json=items):
        assert isinstance(problem, Problem)
        assert "uploaded by itself, to POST /jobs" in problem.detail
    (other,) = await gateway.batch(json=[document("fixed", "BYTES", [1], ["x"])])
    assert isinstance(other, Problem)
    assert "upload" not in other.detail


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"json": []}, 400),
        ({"json": {}}, 400),
        ({"json": [GOOD] * 1001}, 400),
        ({"content": b"[1,", "headers": {"Content-Type": "application/json"}}, 400),
        ({"content": b"", "headers": NDJSON}, 400),
        ({"content": lines(*[b"{}"] * 1001), "headers": NDJSON}, 400),
        ({"content": b"\n" * 100_000 + lines(*[b"{}"] * 5000), "headers": NDJSON}, 400),
        ({"content": b"\xc1", "headers": {"Content-Type": "application/msgpack"}}, 400),
        ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"content": b"x"}, 415),
        ({"json": [GOOD], "params": {"nope": "1"}}, 422),
        ({"json": [GOOD], "headers": {"Idempotency-Key": "k" * 256}}, 400),
    ],
    ids=range(12),
)
async def test_a_batch_that_is_none_is_refused_as_a_whole(
    gateway: Gateway, request_: dict[str, Any], status: int
) -> None:
    assert (await gateway.refused_batch(**request_))["status"] == status
    assert gateway.batches == []
