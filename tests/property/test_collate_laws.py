"""Collating and splitting: every row comes back to its job, whatever the mix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.datatypes import Datatype, pack_bytes
from jobs.errors import EngineFailed
from jobs.record import InputPart, InputSource, JobRequest, RequestedOutput
from jobs.spec import InputSpec, ModelSpec, OutputSpec
from jobs.store import Claimed, Lease
from jobs.tensors import Tensor
from workers.collate import Batch, collate, split, to_call
from workers.items import Item, make_item
from workers.stream import merge
from workers.triton.messages import BatchTensor, InferReply

MAX_ROWS = 8


def spec_of(max_batch_size: int = MAX_ROWS, datatype: Datatype = Datatype.FP32) -> ModelSpec:
    return ModelSpec(
        "m", ("1",), max_batch_size, (InputSpec("x", datatype, (-1,)),), (OutputSpec("y", datatype, (-1,)),)
    )


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[Claimed, bytes]]:
    """Claimed jobs of one model, in item and rows form, of few widths, with few versions and past failures."""
    made: list[tuple[Claimed, bytes]] = []
    for number in range(draw(st.integers(0, 12))):
        rows = draw(st.sampled_from([None, None, 1, 2, 5]))
        width = draw(st.integers(0, 2))
        shape = (width,) if rows is None else (rows, width)
        payload = (np.arange((rows or 1) * width, dtype="<f4") + 1000 * number).tobytes()
        request = JobRequest(
            "m",
            (InputPart("x", InputSource.TENSOR, len(payload), Datatype.FP32, shape),),
            (RequestedOutput("y"),),
            model_version=draw(st.sampled_from(["", "", "2"])),
            rows=rows,
            timeout_ms=draw(st.sampled_from([60_000, 60_000, 1_000])),
        )
        failures = draw(st.sampled_from([0, 0, 0, 1]))
        made.append((Claimed(Lease(f"{number:032x}", 1), request, failures, 0, 0, 0), payload))
    return made


def echoed(batch: Batch, spec: ModelSpec) -> Tensor:
    """What an identity model answers: the joined input under the output's name."""
    (sent,) = to_call(batch, spec, "id").inputs
    data = b"".join(sent.parts) if isinstance(sent, BatchTensor) else bytes(sent.data)
    answer = Tensor("y", sent.datatype, sent.shape, data)
    answer.check()
    return answer


@given(jobs(), st.sampled_from([0, MAX_ROWS]), st.sampled_from([None, 0, 3]), st.booleans())
def test_every_job_gets_its_own_rows_back(
    made: list[tuple[Claimed, bytes]], max_batch_size: int, others_max: int | None, is_full: bool
) -> None:
    """Also where version 2 takes other batches than the newest one: smaller ones, only full ones, or none."""
    spec = spec_of(max_batch_size)
    if others_max is not None:
        other = replace(spec_of(others_max), versions=("2",), has_fixed_batch=is_full and others_max > 0)
        spec = replace(spec, variants=(other,))
    items = [
        make_item(job, payload, own, 1)
        for job, payload in made
        if (own := spec.of_version(job.request.model_version)).max_batch_size >= (job.request.rows or 0)
    ]
    batches = collate(items, spec, MAX_ROWS)
    assert sorted(item.job.lease for batch in batches for item in batch.items) == sorted(i.job.lease for i in items)
    payloads = {job.lease: payload for job, payload in made}
    for batch in batches:
        own = spec.of_version(batch.model_version)
        check_batch(batch, own)
        for item, share in zip(batch.items, split([echoed(batch, own)], batch, own), strict=True):
            assert bytes(share.payload()) == payloads[item.job.lease]
            assert share.parts[0].shape == item.job.request.inputs[0].shape


def check_batch(batch: Batch, spec: ModelSpec) -> None:
    """What jobs that share a call must have in common."""
    assert batch.rows <= spec.max_batch_size or len(batch.items) == 1
    assert len({item.job.request.model_version for item in batch.items}) == 1
    assert len({item.job.request.timeout_ms for item in batch.items}) == 1
    assert len({item.tensors[0].shape[1:] for item in batch.items}) == 1
    if spec.max_batch_size == 0 or any(item.job.failures for item in batch.items):
        assert len(batch.items) == 1


@given(st.lists(st.lists(st.binary(max_size=8), min_size=2, max_size=2), min_size=1, max_size=6))
def test_text_rows_are_cut_at_their_own_lengths(rows: list[list[bytes]]) -> None:
    """B036"""
    spec = spec_of(datatype=Datatype.BYTES)
    items = []
    for number, elements in enumerate(rows):
        payload = pack_bytes(elements)
        part = InputPart("x", InputSource.TENSOR, len(payload), Datatype.BYTES, (2,))
        request = JobRequest("m", (part,), (RequestedOutput("y"),))
        items.append(make_item(Claimed(Lease(f"{number:032x}", 1), request, 0, 0, 0, 0), payload, spec, 1))
    (batch,) = collate(items, spec, MAX_ROWS)
    shares = split([echoed(batch, spec)], batch, spec)
    assert [bytes(share.payload()) for share in shares] == [pack_bytes(elements) for elements in rows]


@pytest.mark.parametrize("shape", [(), (2, 1), (4, 1)])
def test_an_answer_with_another_number_of_rows_is_the_engines_fault(shape: tuple[int, ...]) -> None:
    spec = spec_of()
    batch = Batch(tuple(an_item(number, spec) for number in range(3)))
    answer = Tensor("y", Datatype.FP32, shape, bytes(4 * int(np.prod(shape))))
    with pytest.raises(EngineFailed, match="3 rows"):
        split([answer], batch, spec)


def test_a_batch_is_of_one_version_and_no_larger_than_that_takes() -> None:
    other = replace(spec_of(2), versions=("2",))
    spec = replace(spec_of(), versions=("2", "3"), variants=(other,))
    items = [an_item(number, spec.of_version(version), version) for number, version in enumerate(["2", ""] * 4)]
    batches = collate(items, spec, MAX_ROWS)
    assert sorted((batch.model_version, batch.rows) for batch in batches) == [("", 4), ("2", 2), ("2", 2)]


def an_item(number: int, spec: ModelSpec, version: str = "") -> Item:
    part = InputPart("x", InputSource.TENSOR, 4, Datatype.FP32, (1,))
    request = JobRequest("m", (part,), (RequestedOutput("y"),), model_version=version)
    return make_item(Claimed(Lease(f"{number:032x}", 1), request, 0, 0, 0, 0), bytes(4), spec, 1)


def test_a_batch_is_halved_until_one_item_is_left() -> None:
    spec = spec_of()
    batch = Batch(tuple(an_item(number, spec) for number in range(5)))
    first, second = batch.halves()
    assert [len(first.items), len(second.items)] == [2, 3]
    assert first.items + second.items == batch.items


def test_streamed_answers_that_differ_in_form_are_the_engines_fault() -> None:
    def reply(*shape: int) -> InferReply:
        return InferReply("1", (Tensor("y", Datatype.UINT8, shape, bytes(int(np.prod(shape)))),))

    spec = spec_of(0)
    assert merge([reply(2, 3), reply(1, 3)], spec).outputs[0].shape == (3, 3)
    with pytest.raises(EngineFailed):
        merge([reply(2, 3), reply(1, 4)], spec)
