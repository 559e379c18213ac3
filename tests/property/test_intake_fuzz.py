"""Whatever bytes arrive, a request is accepted whole or refused with a Problem; no parser ends in anything else."""

from collections.abc import Callable
from typing import Any

import msgpack
import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.body import RequestHeaders
from api.intake.assemble import build, fingerprint_of
from api.intake.batch import drafts_of
from api.intake.fields import query_options
from api.intake.forms import form_of, parse
from api.intake.limits import IntakeLimits
from api.intake.options import model_name
from api.problems import Problem, response
from jobs.record import JobRequest
from tests.support.intake import MODELS, NOW_MS, document

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

LIMITS = IntakeLimits(max_body_bytes=1_000_000, max_pixels=1_000_000)
BY_NAME = {model.name: model for model in MODELS}

texts = st.text(max_size=20)
names = st.sampled_from([*BY_NAME, "", "nope"])
model_queries = names.map(lambda name: f"model={name}".encode())
content_types = st.sampled_from(
    [
        "application/json",
        "application/msgpack",
        "application/octet-stream",
        "application/x-npy",
        "image/jpeg",
        "text/plain; charset=utf-8",
        "multipart/form-data; boundary=frontier",
        "multipart/form-data",
        "audio/wav",
        "",
    ]
)


def judged(problem: Problem) -> Problem:
    """The problem, if it can be answered and blames the client."""
    assert response(problem, "r").status_code in (400, 404, 413, 415, 422)
    return problem


def submit(body: bytes, query: bytes = b"", **headers: str) -> tuple[JobRequest, bytes] | Problem:
    """What a request becomes, without the network; checks that what is accepted is consistent."""
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    try:
        form = form_of(RequestHeaders({"type": "http", "headers": raw}))
        draft = parse(body, form, query_options(query), LIMITS)
        model = BY_NAME.get(model_name(draft.options), MODELS[0])
        job, payload = build(draft, model, LIMITS, NOW_MS)
    except Problem as problem:
        return judged(problem)
    assert sum(part.nbytes for part in job.inputs) == memoryview(payload).nbytes
    assert JobRequest.decode(job.encode()) == job
    assert len(fingerprint_of(job, draft, payload)) == 64
    return job, bytes(payload)


@given(st.binary(max_size=300), content_types, model_queries)
@settings(PATIENT)
def test_any_bytes_of_any_type(body: bytes, content_type: str, query: bytes) -> None:
    submit(body, query, content_type=content_type)


@given(texts, st.binary(max_size=50))
@settings(PATIENT)
def test_any_content_type(content_type: str, body: bytes) -> None:
    submit(body, b"model=blob", content_type=content_type.encode("ascii", "ignore").decode())


@given(st.binary(max_size=100))
@settings(PATIENT)
def test_any_query(query: bytes) -> None:
    submit(b"\0" * 12, query)


pieces = st.sampled_from(
    [
        b"--frontier",
        b"--frontier--",
        b"\r\n",
        b"\r",
        b"\n",
        b": ",
        b";",
        b"Content-Disposition: form-data; name=",
        b'"model"',
        b'"x"',
        b'"file"; filename="f"',
        b"Content-Type: application/json",
        b"Content-Transfer-Encoding: base64",
        b"fixed",
        b"[1,2,3]",
        b"\0" * 12,
    ]
) | st.binary(max_size=6)


@given(st.lists(pieces, max_size=30).map(b"".join), st.sampled_from([b"", b"model=fixed"]))
@settings(PATIENT, max_examples=500)
def test_any_shuffled_form(body: bytes, query: bytes) -> None:
    submit(body, query, content_type="multipart/form-data; boundary=frontier")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | texts
    | st.binary(max_size=10)
    | st.sampled_from(["FP32", "BYTES", "BOOL", "x", "a", "image", "high", "2025-01-01T00:00:00Z"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts | st.sampled_from(["name", "b64"]), inner, max_size=4)
    ),
    max_leaves=12,
)
members = st.sampled_from(
    [
        "model_version",
        "priority",
        "queue_ttl_seconds",
        "timeout_seconds",
        "max_failures",
        "run_at",
        "result_ttl_seconds",
        "metadata",
        "outputs",
        "parameters",
        "id",
        "inputs",
        "webhook",
        "other",
    ]
)
inputs = st.dictionaries(st.sampled_from(["name", "datatype", "shape", "data", "parameters"]), plain, max_size=5)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A good request with some members replaced by anything."""
    name = draw(names)
    good = document(name, "FP32", [3], [1, 2, 3])
    if draw(st.booleans()):
        good["inputs"][0] |= draw(inputs)
    return good | draw(st.dictionaries(members, plain, max_size=2))


def as_json(value: Any) -> bytes:
    """JSON, bytes as text."""
    return orjson.dumps(value, default=lambda raw: raw.decode("latin-1"))


@given(documents())
@settings(PATIENT, max_examples=500)
def test_any_document(body: dict[str, Any]) -> None:
    submit(as_json(body), content_type="application/json")
    submit(msgpack.packb(body), content_type="application/msgpack")


@given(documents(), st.binary(max_size=40), st.integers(-40, 40), st.integers(-3, 40) | texts)
@settings(PATIENT)
def test_any_binary_request(body: dict[str, Any], data: bytes, slip: int, size: Any) -> None:
    for item in body["inputs"] if isinstance(body["inputs"], list) else []:
        if isinstance(item, dict):
            item.pop("data", None)
            item["parameters"] = {"binary_data_size": size}
    header = as_json(body)
    length = str(len(header) + slip)
    submit(header + data, content_type="application/octet-stream", inference_header_content_length=length)


def mutated(make: Callable[[], bytes]) -> st.SearchStrategy[bytes]:
    """A good body with some bytes replaced and its end cut off."""
    good = make()
    edits = st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)), max_size=4)

    def apply(changes: list[tuple[int, int]], length: int) -> bytes:
        body = bytearray(good)
        for index, byte in changes:
            body[index] = byte
        return bytes(body[:length])

    return st.builds(apply, edits, st.integers(0, len(good)))


@given(
    st.lists(documents().map(as_json) | st.binary(max_size=20), max_size=5).map(b"\n".join)
    | st.lists(documents(), max_size=4).map(as_json)
    | st.lists(documents(), max_size=4).map(msgpack.packb),
    st.sampled_from(["application/json", "application/x-ndjson", "application/msgpack"]),
)
@settings(PATIENT)
def test_any_batch(body: bytes, media: str) -> None:
    try:
        drafts = drafts_of(body, media, {})
    except Problem as problem:
        judged(problem)
        return
    for draft in drafts:
        if isinstance(draft, Problem):
            judged(draft)


GOOD = document("fixed", "FP32", [2, 3], [[1, 2.5, -3], [4e3, 0.5, 6]], metadata={"a": [":", {}]})


@given(mutated(lambda: orjson.dumps(GOOD)))
@settings(PATIENT)
def test_damaged_json(body: bytes) -> None:
    submit(body, content_type="application/json")


@given(mutated(lambda: bytes(msgpack.packb(GOOD))))
@settings(PATIENT)
def test_damaged_msgpack(body: bytes) -> None:
    submit(body, content_type="application/msgpack")


@given(
    mutated(
        lambda: (
            b"\x93NUMPY\x01\x00\x76\x00"
            + b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }".ljust(117)
            + b"\n"
            + b"\0" * 12
        )
    )
)
@settings(PATIENT, max_examples=300)
def test_damaged_npy(body: bytes) -> None:
    submit(body, b"model=fixed", content_type="application/x-npy")
