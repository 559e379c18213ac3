"""What is stored comes back as it was, and what we did not store is refused as one kind of error."""

from __future__ import annotations

import pickle
import string
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs import codec
from jobs.codec import CodecError, UnknownVersion
from jobs.datatypes import Datatype
from jobs.errors import ERROR_KINDS, ErrorCode, JobError
from jobs.record import (
    JOB_FIELDS,
    InputPart,
    InputSource,
    Job,
    JobRequest,
    Outcome,
    OutputPart,
    Priority,
    RequestedOutput,
    Timings,
)
from jobs.spec import ImageOptions, InputKind, InputSpec, ModelSpec, OutputKind, OutputSpec
from jobs.state import State

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.text(string.ascii_letters + "ü' {\n", min_size=1, max_size=6)
sizes = st.integers(0, 2**40)
dims = st.tuples() | st.tuples(st.integers(-1, 2**31)) | st.just((3, -1, 224))
floats = st.floats(allow_nan=False)
scalars = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), floats, st.text(max_size=8))
documents = st.recursive(
    st.one_of(st.none(), scalars),
    lambda children: st.one_of(
        st.lists(children, max_size=2), st.dictionaries(st.text(max_size=4), children, max_size=2)
    ),
    max_leaves=8,
)

input_parts = st.builds(
    InputPart, names, st.sampled_from(InputSource), sizes, st.none() | st.sampled_from(Datatype), dims
)
requests = st.builds(
    JobRequest,
    model=names,
    inputs=st.lists(input_parts, max_size=2).map(tuple),
    outputs=st.lists(st.builds(RequestedOutput, names, st.integers(0, 1000)), max_size=2).map(tuple),
    model_version=st.text(string.digits, max_size=2),
    rows=st.none() | st.integers(0, 64),
    parameters=st.dictionaries(names, scalars, max_size=2),
    request_id=st.text(max_size=10),
    priority=st.sampled_from(Priority),
    queue_ttl_ms=sizes,
    timeout_ms=sizes,
    max_failures=st.integers(0, 100),
    result_ttl_ms=sizes,
    run_at_ms=sizes,
    metadata=st.dictionaries(st.text(max_size=4), documents, max_size=2),
)
outcomes = st.builds(
    Outcome,
    error=st.none() | st.builds(JobError, st.sampled_from(ErrorCode), st.text(max_size=20)),
    outputs=st.lists(
        st.builds(OutputPart, names, st.sampled_from(Datatype), dims, sizes, st.sampled_from(OutputKind)), max_size=2
    ).map(tuple),
    inline=st.none() | st.binary(max_size=50),
    model_version=st.text(max_size=2),
    timings=st.builds(Timings, floats, floats, floats),
    batch_size=st.integers(0, 1000),
    batch_id=st.text(max_size=16),
)
image_options = st.builds(
    ImageOptions,
    layout=st.sampled_from(["HWC", "CHW"]),
    resize=st.none() | st.integers(1, 4096),
    crop=st.none() | st.tuples(st.integers(1, 4096), st.integers(1, 4096)),
    interpolation=st.sampled_from(["nearest", "bilinear", "bicubic", "area", "lanczos"]),
    color=st.sampled_from(["RGB", "BGR", "GRAY"]),
    scale=floats,
    mean=st.lists(floats, max_size=2).map(tuple),
    std=st.lists(floats, max_size=2).map(tuple),
)
specs = st.builds(
    ModelSpec,
    name=names,
    versions=st.lists(st.text(string.digits, min_size=1), max_size=2).map(tuple),
    max_batch_size=st.integers(0, 1024),
    inputs=st.lists(
        st.builds(
            InputSpec,
            names,
            st.sampled_from(Datatype),
            dims,
            st.booleans(),
            st.sampled_from(InputKind),
            st.none() | image_options,
        ),
        max_size=2,
    ).map(tuple),
    outputs=st.lists(
        st.builds(
            OutputSpec, names, st.sampled_from(Datatype), dims, st.sampled_from(OutputKind), st.integers(0, 1000)
        ),
        max_size=2,
    ).map(tuple),
    instances=st.integers(1, 64),
    platform=st.text(max_size=10),
    decoupled=st.booleans(),
    refusal=st.none() | st.text(max_size=10),
    notes=st.lists(st.text(max_size=10), max_size=2).map(tuple),
)


@relaxed
@given(documents)
def test_plain_data_comes_back(plain: Any) -> None:
    assert codec.decode(codec.encode(plain)) == plain


@relaxed
@given(requests)
def test_a_request_comes_back(request: JobRequest) -> None:
    assert JobRequest.decode(request.encode()) == request


@relaxed
@given(outcomes)
def test_an_outcome_comes_back(outcome: Outcome) -> None:
    assert Outcome.decode(outcome.encode()) == outcome


@relaxed
@given(specs)
def test_a_model_spec_comes_back(spec: ModelSpec) -> None:
    assert ModelSpec.from_plain(codec.decode(codec.encode(spec.to_plain()))) == spec


def test_a_spec_with_fields_of_a_newer_version_is_read_without_them() -> None:
    spec = ModelSpec("m", ("1",), 8, (InputSpec("x", Datatype.FP32, (-1,)),), (OutputSpec("y", Datatype.FP32, (2,)),))
    assert ModelSpec.from_plain(spec.to_plain() | {"something_new": [1]}) == spec


def test_a_spec_finds_its_inputs_and_outputs_by_name() -> None:
    one, two = InputSpec("a", Datatype.FP32, (1,)), OutputSpec("b", Datatype.FP32, (1,))
    spec = ModelSpec("m", ("1",), 0, (one,), (two,))
    assert (spec.input("a"), spec.output("b"), spec.input("b"), spec.output("a")) == (one, two, None, None)


@pytest.mark.parametrize("version", [0, 2, 255, -1, 2**40])
def test_another_version_is_told_apart_from_damage(version: int) -> None:
    """B021."""
    with pytest.raises(UnknownVersion, match=str(version)):
        codec.decode(msgpack.packb([version, {}]))


HOSTILE = [
    b"",
    b"\xc1",
    b"\x92\x01",
    b"\x93\x01\x01\x01",
    b"\x01",
    b"\x80",
    b"\x92\xc3\x80",
    b"\x92\xcb?\xf0\x00\x00\x00\x00\x00\x00\x80",
    b"\x92\xa11\x80",
    b"\xdd\xff\xff\xff\xff",
    b"\x92\x01\xdf\xff\xff\xff\xff",
    b"\x92\x01\xc6\xff\xff\xff\xff",
    b"\x92\x01\x81\x01\x01",
    b"\x91" * 5000,
    b"\x92\x01\x80 and more",
    pickle.dumps([1, {}]),
    b"\x92\x01\xa1\xff",
]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    """B066, B021: depth, claimed lengths, other serialisers."""
    with pytest.raises(CodecError) as caught:
        codec.decode(data)
    assert type(caught.value) is CodecError


@relaxed
@given(st.one_of(st.binary(max_size=60), documents.map(codec.encode)))
def test_nothing_but_a_codec_error_comes_out_of_foreign_bytes(data: bytes) -> None:
    for read in (JobRequest.decode, Outcome.decode):
        try:
            read(data)
        except CodecError:
            continue
    fields = {b"tenant": data, b"state": data, b"request": data, b"outcome": data, b"attempt": data}
    with pytest.raises(CodecError):
        Job.from_hash("0" * 32, fields)


@pytest.mark.parametrize("name", ["model", "inputs", "outputs", "priority"])
def test_a_request_that_lost_a_field_is_refused(name: str) -> None:
    plain = codec.decode(JobRequest("m", (), ()).encode())
    del plain[name]
    with pytest.raises(CodecError, match="damaged request"):
        JobRequest.decode(codec.encode(plain))


@pytest.mark.parametrize("plain", [2**64, -(2**63) - 1, "\ud800", {"a": object()}, {1, 2}, [[]] * 3 + [1j]])
def test_what_has_no_stored_form_is_refused(plain: Any) -> None:
    with pytest.raises(CodecError, match="can't be stored"):
        codec.encode(plain)
    with pytest.raises(CodecError, match="can't be stored"):
        JobRequest("m", (), (), metadata={"x": plain}).encode()


def _fields(**changed: bytes) -> dict[bytes, bytes]:
    fields = {"tenant": b"local", "state": b"queued", "request": JobRequest("m", (), ()).encode(), "attempt": b"3"}
    return {name.encode(): value for name, value in (fields | changed).items()}


def test_a_job_is_read_from_its_hash() -> None:
    outcome = Outcome(error=JobError(ErrorCode.LOST, "x"))
    job = Job.from_hash("0" * 32, _fields(outcome=outcome.encode(), finished_ms=b"5", worker=b"w"))
    assert (job.id, job.state, job.attempt, job.failures, job.outcome) == ("0" * 32, State.QUEUED, 3, 0, outcome)
    assert job.result_expires_ms == 5 + job.request.result_ttl_ms
    assert replace(job, finished_ms=0).result_expires_ms == 0


class _Watched(dict[bytes, bytes]):
    """A hash that notes what is looked for in it."""

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        super().__init__(fields)
        self.read: set[bytes] = set()

    def get(self, key: bytes, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: bytes) -> bytes:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, bytes)
        self.read.add(key)
        return super().__contains__(key)


def test_the_list_of_fields_names_each_that_a_job_is_read_from() -> None:
    fields = _Watched(_fields())
    Job.from_hash("0" * 32, fields)
    assert {name.decode() for name in fields.read} == set(JOB_FIELDS)


@pytest.mark.parametrize("changed", [{"state": b"odd"}, {"attempt": b"x"}, {"tenant": b"\xff"}, {"request": b""}])
def test_a_damaged_hash_is_refused(changed: dict[str, bytes]) -> None:
    with pytest.raises(CodecError):
        Job.from_hash("0" * 32, _fields(**changed))


def test_priority_is_a_head_start_of_one_step() -> None:
    assert [priority.head_start_ms(600) for priority in Priority] == [600, 0, -600]


@pytest.mark.parametrize("code", ErrorCode)
def test_each_error_code_has_its_row_and_comes_back_from_plain_data(code: ErrorCode) -> None:
    """B014: a failure is data that any process can read."""
    error = JobError(code, "détail")
    assert error.kind is ERROR_KINDS[code]
    assert JobError.from_plain(error.to_plain()) == error
    assert 400 <= error.kind.status < 600
