"""Many jobs in few requests: how they are cut into blocks, as values."""

from datetime import UTC, datetime
from typing import Any

import msgpack
import numpy as np
import pytest

from inferq.client.batches import MAX_BLOCK_BYTES, MAX_BLOCK_JOBS, blocks_of
from inferq.client.tensors import Array


def arrays(count: int, nbytes: int = 4) -> list[dict[str, Array]]:
    return [{"x": np.full(nbytes // 4, number, np.float32)} for number in range(count)]


def test_a_job_is_a_document_with_its_options_and_the_raw_bytes_of_its_arrays() -> None:
    array = np.array([[1.5, np.nan]], dtype=">f4")
    options = {"priority": "low", "run_at": datetime(2030, 1, 2, tzinfo=UTC), "webhook": None}
    (block,) = blocks_of("m", [{"x": array, "t": np.array([b"a\0"])}], options, "key")
    assert (block.jobs, block.call.method, block.call.path) == (1, "POST", "/jobs/batch")
    assert block.call.headers["Content-Type"] == "application/msgpack"
    assert msgpack.unpackb(block.call.content) == [
        {
            "model": "m",
            "priority": "low",
            "run_at": "2030-01-02T00:00:00+00:00",
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": array.astype("<f4").tobytes()},
                {"name": "t", "datatype": "BYTES", "shape": [1], "data": b"\1\0\0\0a"},
            ],
        }
    ]


def test_blocks_hold_a_thousand_jobs_in_their_order_under_keys_of_their_own() -> None:
    blocks = blocks_of("m", arrays(2 * MAX_BLOCK_JOBS + 1), {}, "key")
    assert [block.jobs for block in blocks] == [MAX_BLOCK_JOBS, MAX_BLOCK_JOBS, 1]
    assert [block.call.headers["Idempotency-Key"] for block in blocks] == ["key.0", "key.1", "key.2"]
    documents = [document for block in blocks for document in msgpack.unpackb(block.call.content)]
    sent = [np.frombuffer(document["inputs"][0]["data"], "<f4")[0] for document in documents]
    assert sent == list(range(2 * MAX_BLOCK_JOBS + 1))


def test_the_same_jobs_and_key_make_the_same_blocks() -> None:
    assert blocks_of("m", arrays(1500), {"priority": "low"}, "k") == blocks_of(
        "m", arrays(1500), {"priority": "low"}, "k"
    )


def test_a_block_is_not_too_large_unless_one_job_is() -> None:
    third = MAX_BLOCK_BYTES // 3
    blocks = blocks_of("m", [*arrays(4, third), *arrays(1, 2 * MAX_BLOCK_BYTES), *arrays(1)], {}, "k")
    assert [block.jobs for block in blocks] == [2, 2, 1, 1]


def test_no_jobs_make_no_request() -> None:
    assert blocks_of("m", [], {}, "k") == []


@pytest.mark.parametrize("item", [b"pixels", "text", np.zeros(1), {"image": b"pixels"}, {"x": [1.0]}, {}, 5])
def test_what_does_not_travel_in_a_batch_is_named_before_anything_is_sent(item: Any) -> None:
    with pytest.raises(TypeError, match=r"job 1 of the batch .* one by one, with submit"):
        blocks_of("m", [{"x": np.zeros(1)}, item], {}, "k")
    with pytest.raises(ValueError, match="complex64"):
        blocks_of("m", [{"x": np.zeros(1, np.complex64)}], {}, "k")
    with pytest.raises(ValueError, match="there is no option prio"):
        blocks_of("m", [{"x": np.zeros(1)}], {"prio": "high"}, "k")
