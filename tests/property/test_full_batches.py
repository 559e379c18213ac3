"""Models that take only full batches: rows of zeros go behind the items' own, and what answers them is dropped."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from jobs.datatypes import Datatype, pack_bytes
from jobs.record import InputPart, InputSource, JobRequest, RequestedOutput
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from jobs.store import Claimed, Lease
from jobs.tensors import Tensor
from tests.support.scripted_answers import scripted_model
from workers.collate import Batch, collate, split, to_call
from workers.items import Item, make_item
from workers.triton.describe import model_spec
from workers.triton.messages import BatchTensor
from workers.triton.pb import inference_pb2 as pb

ROWS = 8


def spec_of(datatype: Datatype) -> ModelSpec:
    """A model that takes exactly 8 rows of two elements."""
    dims = (2,)
    inputs, outputs = (InputSpec("x", datatype, dims),), (OutputSpec("y", datatype, dims),)
    return ModelSpec("m", ("1",), ROWS, inputs, outputs, has_fixed_batch=True)


def item_of(number: int, spec: ModelSpec, payload: bytes, rows: int | None = None) -> Item:
    shape = (2,) if rows is None else (rows, 2)
    part = InputPart("x", InputSource.TENSOR, len(payload), spec.inputs[0].datatype, shape)
    request = JobRequest("m", (part,), (RequestedOutput("y"),), rows=rows)
    return make_item(Claimed(Lease(f"{number:032x}", 1), request, 0, 0, 0, 0), payload, spec, 1)


def echoed(batch: Batch, spec: ModelSpec) -> Tensor:
    """What a model that takes 8 rows and gives them back would answer."""
    (sent,) = to_call(batch, spec, "r").inputs
    assert sent.shape == (ROWS, 2)
    data = b"".join(sent.parts) if isinstance(sent, BatchTensor) else bytes(sent.data)
    tensor = Tensor("y", sent.datatype, sent.shape, data)
    tensor.check()
    return tensor


@given(st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=20))
def test_every_call_is_full_and_every_job_gets_its_own_row_back(payloads: list[bytes]) -> None:
    """B051."""
    spec = spec_of(Datatype.FP32)
    batches = collate([item_of(n, spec, payload) for n, payload in enumerate(payloads)], spec, ROWS)
    shares = [share for batch in batches for share in split([echoed(batch, spec)], batch, spec)]
    assert [bytes(share.payload()) for share in shares] == payloads


@given(st.lists(st.lists(st.binary(max_size=5), min_size=2, max_size=2), min_size=1, max_size=ROWS))
def test_texts_are_filled_up_with_empty_ones(rows: list[list[bytes]]) -> None:
    """B051."""
    spec = spec_of(Datatype.BYTES)
    items = [item_of(n, spec, pack_bytes(texts)) for n, texts in enumerate(rows)]
    (batch,) = collate(items, spec, ROWS)
    answer = echoed(batch, spec)
    assert answer.array()[len(rows) :].ravel().tolist() == [b""] * (2 * (ROWS - len(rows)))
    shares = split([answer], batch, spec)
    assert [bytes(share.payload()) for share in shares] == [pack_bytes(texts) for texts in rows]


def test_a_clients_own_batch_keeps_its_rows() -> None:
    spec = spec_of(Datatype.FP32)
    batch = Batch((item_of(0, spec, bytes(range(24)), rows=3),))
    (share,) = split([echoed(batch, spec)], batch, spec)
    assert (share.parts[0].shape, bytes(share.payload())) == ((3, 2), bytes(range(24)))


def test_a_model_without_the_word_gets_only_the_rows_that_there_are() -> None:
    spec = dataclasses.replace(spec_of(Datatype.FP32), has_fixed_batch=False)
    (sent,) = to_call(Batch((item_of(0, spec, bytes(8)),)), spec, "r").inputs
    assert sent.shape == (1, 2)


def test_the_model_says_so_itself_and_only_where_it_makes_sense() -> None:
    config = scripted_model(
        "m", inputs=[("x", "FP32", (2,))], outputs=[("y", "FP32", (2,))], parameter='{"batch": "full"}'
    ).config
    metadata = pb.ModelMetadataResponse(name="m", versions=["1"])
    config.max_batch_size = ROWS
    assert model_spec(metadata, config).has_fixed_batch
    config.max_batch_size = 0
    refused = model_spec(metadata, config)
    assert not refused.has_fixed_batch
    assert refused.refusal is not None
    assert "max_batch_size" in refused.refusal
