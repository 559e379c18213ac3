"""The façade's parsers on arbitrary bytes: a request, or a Problem that says why not, and nothing else."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api import compression
from api.facade.request import read_infer
from api.intake.assemble import build
from api.intake.limits import IntakeLimits
from api.problems import Problem
from jobs.datatypes import Datatype
from jobs.spec import InputSpec, ModelSpec, OutputSpec

LIMITS = IntakeLimits(max_body_bytes=1 << 20, max_pixels=100)
MODELS = [
    ModelSpec(
        "m", ("1",), size, (InputSpec("x", datatype, (-1,)),), (OutputSpec("y", datatype, (-1,)),)
    )
    for datatype in (Datatype.FP32, Datatype.BYTES)
    for size in (0, 8)
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        ["binary_data_size", "binary_data", "binary_data_output", "classification", "timeout", "priority", "a"]
    ),
    JUNK,
    max_size=3,
)
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "z"]) | JUNK,
        "datatype": st.sampled_from(["FP32", "BYTES", "INT8"]) | JUNK,
        "shape": st.lists(st.integers(-2, 4), max_size=3) | JUNK,
        "data": st.lists(SCALARS, max_size=4) | JUNK,
        "parameters": PARAMETERS | JUNK,
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=5) | JUNK,
        "inputs": st.lists(TENSORS, max_size=3) | JUNK,
        "outputs": st.lists(st.fixed_dictionaries({}, optional={"name": st.just("y"), "parameters": PARAMETERS}))
        | JUNK,
        "parameters": PARAMETERS | JUNK,
        "other": JUNK,
    },
)


def ask(body: bytes, header_length: str, model: ModelSpec) -> None:
    """Read a body and, where it can be read, make it a job."""
    with suppress(Problem):
        asked = read_infer(body, header_length, model, LIMITS)
        job, payload = build(asked.draft, model, LIMITS, 0)
        assert sum(part.nbytes for part in job.inputs) == memoryview(payload).nbytes


@pytest.mark.parametrize("model", MODELS, ids=str)
@given(document=DOCUMENTS | JUNK, tail=st.binary(max_size=40))
def test_any_document_is_a_job_or_a_problem(model: ModelSpec, document: Any, tail: bytes) -> None:
    with suppress(TypeError):  # what JSON can't say can't be sent
        text = orjson.dumps(document)
        ask(text, "", model)
        ask(text + tail, str(len(text)), model)


@given(body=st.binary(max_size=200), header_length=st.sampled_from(["", "0", "5", "-1", "٣", "9" * 30]))
@example(body=b"", header_length="0")
def test_any_bytes_are_a_job_or_a_problem(body: bytes, header_length: str) -> None:
    for model in MODELS:
        ask(body, header_length, model)


@given(data=st.binary(max_size=4000), coding=st.sampled_from(sorted(compression.CODINGS)))
def test_what_is_compressed_expands_to_itself(data: bytes, coding: str) -> None:
    assert compression.expanded(compression.compressed(data, coding), coding, 1 << 20) == data
    peer = gzip.compress(data) if coding == "gzip" else zlib.compress(data)
    assert compression.expanded(peer, coding, 1 << 20) == data


@given(data=st.binary(max_size=400), cut=st.integers(0, 400), coding=st.sampled_from(sorted(compression.CODINGS)))
def test_any_bytes_expand_or_are_a_problem(data: bytes, cut: int, coding: str) -> None:
    for body in (data, compression.compressed(data, coding)[:cut], compression.compressed(data, coding) + data):
        with suppress(Problem):
            compression.expanded(body, coding, 1 << 20)
