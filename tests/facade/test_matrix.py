"""Every datatype, shape and form of request through a real engine, and back in every form of result: bit-equal or 422.

Owns the table of values and who may say which of them in which form; every cell is one job.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import httpx
import msgpack
import numpy as np
import pytest

from tests.support.models import CONFIG_TYPES, identity_name

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.server, pytest.mark.process, pytest.mark.slow]

NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": "<u2",
}  # fmt: skip
FLOATS = ("FP16", "FP32", "FP64", "BF16")
JSON, MSGPACK, BINARY, NPY = "application/json", "application/msgpack", "application/octet-stream", "application/x-npy"
FORMS_OUT = (JSON, MSGPACK, BINARY, NPY)
SHAPES = ((5,), (1,), (0,), (3, 4), (1, 0))
"""One item, and the client's own batch of rows where there are two dimensions."""

AT_ONCE = 64


class Case(NamedTuple):
    """A tensor as raw elements; `special` ones have values that JSON has no word for."""

    datatype: str
    batching: bool
    shape: tuple[int, ...]
    data: bytes
    is_special: bool = False

    @property
    def model(self) -> str:
        return identity_name(self.datatype, batching=self.batching)


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    for datatype in CONFIG_TYPES:
        for batching in (True, False):
            for shape in SHAPES:
                if len(shape) == 1 or batching:
                    yield Case(datatype, batching, shape, elements(rng, datatype, math.prod(shape)))
        if datatype in FLOATS:
            yield Case(datatype, True, (6,), specials(datatype), is_special=True)
        elif datatype == "BYTES":
            yield Case(datatype, True, (4,), framed([b"\xff\xfe", b"\0", b"a\0", b""]), is_special=True)
        elif datatype != "BOOL":
            limits = np.iinfo(NUMPY[datatype])
            yield Case(datatype, True, (2,), np.array([limits.min, limits.max], NUMPY[datatype]).tobytes())


def elements(rng: np.random.Generator, datatype: str, count: int) -> bytes:
    if datatype == "BYTES":
        return framed([f"{rng.integers(9999)} grüße\0 ∞".encode()[: int(rng.integers(0, 12))] for _ in range(count)])
    if datatype == "BOOL":
        return rng.integers(0, 2, count, dtype=np.uint8).tobytes()
    if datatype == "BF16":
        return (rng.normal(size=count).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if datatype in FLOATS:
        return rng.normal(size=count).astype(NUMPY[datatype]).tobytes()
    return rng.bytes(count * np.dtype(NUMPY[datatype]).itemsize)


def specials(datatype: str) -> bytes:
    """Infinities, NaNs with a payload, a negative zero, a subnormal."""
    if datatype == "BF16":
        return np.array([0x7F80, 0xFF80, 0x7FC1, 0x8000, 0x0001, 0x3F80], "<u2").tobytes()
    kind = np.dtype(NUMPY[datatype])
    array = np.array([np.inf, -np.inf, np.nan, -0.0, 0, 1], kind)
    words = array.view(f"<u{kind.itemsize}")
    words[2] |= 1
    words[4] = 1
    return array.tobytes()


def framed(texts: list[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def unframed(data: bytes) -> list[bytes]:
    texts, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        texts.append(data[at + 4 : end])
        at = end
    return texts


def numbers(case: Case) -> list[Any]:
    """The values as JSON says them."""
    if case.datatype == "BYTES":
        return [text_or_base64(text) for text in unframed(case.data)]
    array = np.frombuffer(case.data, NUMPY[case.datatype])
    if case.datatype == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    values: list[Any] = array.tolist()
    return values


def text_or_base64(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(text).decode()}


Sent = tuple[bytes, dict[str, str]]


def as_json(case: Case) -> Sent:
    return json.dumps(document(case, data=numbers(case))).encode(), {"Content-Type": JSON}


def as_msgpack_numbers(case: Case) -> Sent:
    return msgpack.packb(document(case, data=numbers(case))), {"Content-Type": MSGPACK}


def as_msgpack(case: Case) -> Sent:
    return msgpack.packb(document(case, data=case.data)), {"Content-Type": MSGPACK}


def as_binary(case: Case) -> Sent:
    head = json.dumps(document(case, parameters={"binary_data_size": len(case.data)})).encode()
    return head + case.data, {"Content-Type": BINARY, "Inference-Header-Content-Length": str(len(head))}


def as_npy(case: Case, order: Literal["<", ">"] = "<", fortran: bool = False) -> Sent:
    return npy_bytes(case, order, fortran), {"Content-Type": NPY}


def as_big_endian_npy(case: Case) -> Sent:
    return as_npy(case, ">", fortran=True)


def document(case: Case, **data: Any) -> dict[str, Any]:
    entry = {"name": "input", "datatype": case.datatype, "shape": list(case.shape), **data}
    return {"model": case.model, "inputs": [entry]}


def npy_bytes(case: Case, order: Literal["<", ">"], fortran: bool) -> bytes:
    if case.datatype == "BYTES":
        array = np.array(unframed(case.data), dtype="S16").reshape(case.shape)
    else:
        kind = np.dtype(NUMPY[case.datatype])
        array = np.frombuffer(case.data, kind).reshape(case.shape)
        if case.datatype != "BF16":
            array = array.astype(kind.newbyteorder(order))
    file = io.BytesIO()
    np.save(file, np.asfortranarray(array) if fortran else array)
    return file.getvalue()


def loses(case: Case) -> bool:
    """Fixed-width bytes of numpy end at the last byte that is not NUL."""
    return any(text.endswith(b"\0") for text in unframed(case.data))


FORMS_IN: Mapping[str, Callable[[Case], Sent]] = {
    "JSON": as_json,
    "msgpack of numbers": as_msgpack_numbers,
    "msgpack of bytes": as_msgpack,
    "binary": as_binary,
    "npy": as_npy,
    "big-endian Fortran npy": as_big_endian_npy,
}
OF_NUMBERS = ("JSON", "msgpack of numbers")


def can_say(form: str, case: Case) -> bool:
    """Whether a form of request has words for the case's values; where not, a client can't write it to begin with."""
    if form == "JSON" and case.is_special and case.datatype != "BYTES":
        return False
    if form in OF_NUMBERS and case.is_special and case.datatype != "BYTES":
        return False  # a NaN's payload has no spelling as a number
    return "npy" not in form or case.datatype != "BYTES" or not loses(case)


def data_of(case: Case, media_type: str, response: httpx.Response) -> tuple[tuple[int, ...], Any]:
    """Shape and elements of a result: raw, or for JSON the values as they stand there."""
    if media_type == JSON:
        output = response.json()["output"]
        return tuple(output["shape"]), parsed(case, output["data"])
    if media_type == MSGPACK:
        (output,) = msgpack.unpackb(response.content)["outputs"]
        return tuple(output["shape"]), output["data"]
    if media_type == BINARY:
        length = int(response.headers["inference-header-content-length"])
        (output,) = json.loads(response.content[:length])["outputs"]
        return tuple(output["shape"]), response.content[length:]
    array = np.load(io.BytesIO(response.content))
    if case.datatype == "BYTES":
        return array.shape, framed(array.ravel().tolist())
    return array.shape, array.tobytes()


def parsed(case: Case, values: list[Any]) -> list[Any]:
    """The numbers that JSON's texts are read as: the shortest text of a float is another double, but the same float."""
    if case.datatype not in FLOATS:
        return values
    kind = np.float64 if case.datatype == "FP64" else np.float32
    return [None if value is None else kind(value) for value in values]


def expected(case: Case, media_type: str) -> Any:
    if media_type != JSON:
        return case.data
    if case.datatype in FLOATS:
        return parsed(case, [value if math.isfinite(value) else None for value in numbers(case)])
    return numbers(case)


async def run(client: httpx.AsyncClient, case: Case, form: str) -> None:
    """One cell of the way in, and all of the way out."""
    body, headers = FORMS_IN[form](case)
    where = f"{form}: {case.model} {list(case.shape)}"
    query = {"model": case.model} if "npy" in form else {}
    response = await client.post("/jobs", params=query, content=body, headers=headers | {"Prefer": "wait=60"})
    assert response.status_code == 201, f"{where}: {response.text[:300]}"
    job = response.json()
    assert job["status"] == "succeeded", f"{where}: {job['error']}"
    for media_type in FORMS_OUT:
        result = await client.get(f"/jobs/{job['id']}/result", headers={"Accept": media_type})
        if media_type == NPY and case.datatype == "BYTES" and result.status_code == 406:
            assert loses(case), f"{where} → {media_type}: {result.text}"
            continue
        assert result.status_code == 200, f"{where} → {media_type}: {result.text[:300]}"
        shape, data = data_of(case, media_type, result)
        assert shape == case.shape, f"{where} → {media_type}"
        assert data == expected(case, media_type), f"{where} → {media_type}"


@pytest.mark.timeout(300)
async def test_every_cell_is_bit_equal(product_url: str) -> None:
    """B033, B034, B036, B037, B039: datatype × shape × form in × form out."""
    cells = [(case, form) for case in cases() for form in FORMS_IN if can_say(form, case)]
    assert len(cells) > 600
    limits = httpx.Limits(max_connections=AT_ONCE)
    places = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=product_url, timeout=90, limits=limits, trust_env=False) as client:

        async def one(case: Case, form: str) -> None:
            async with places:
                await run(client, case, form)

        async with asyncio.TaskGroup() as group:
            for case, form in cells:
                group.create_task(one(case, form))


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("UINT8", [256]), ("UINT8", [-1]), ("INT8", [128]), ("UINT64", [2**64]), ("INT64", [-(2**63) - 1]),
        ("INT32", [1.5]), ("INT32", ["1"]), ("BOOL", [1]), ("FP16", [65520]), ("FP32", [1e39]), ("BF16", [3.4e38]),
        ("BYTES", [1]), ("BYTES", [{"b64": "?"}]), ("FP32", [None]), ("FP32", [True]),
    ],
)  # fmt: skip
async def test_a_value_that_the_datatype_does_not_have_is_422(
    product_url: str, datatype: str, values: list[Any]
) -> None:
    """B037, B040."""
    entry = {"name": "input", "datatype": datatype, "shape": [len(values)], "data": values}
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        sends: tuple[dict[str, Any], ...] = (
            {"json": {"model": identity_name(datatype), "inputs": [entry]}},
            {"content": packed({"model": identity_name(datatype), "inputs": [entry]}), "headers": MSGPACK_HEADERS},
        )
        for send in sends:
            response = await client.post("/jobs", **send)
            assert response.status_code in (400, 422), response.text
            assert response.json()["code"] in ("invalid_tensor", "malformed_body")


MSGPACK_HEADERS = {"Content-Type": MSGPACK}


def packed(document: Any) -> bytes:
    """As msgpack; what it can't say is said as a text, which is as wrong."""
    body: bytes = msgpack.packb({"inputs": "?"} if _is_huge(document) else document)
    return body


def _is_huge(document: Any) -> bool:
    return any(isinstance(value, int) and not -(2**63) <= value < 2**64 for value in document["inputs"][0]["data"])


@pytest.mark.parametrize("datatype", sorted(NUMPY))
async def test_one_byte_too_many_or_too_few_is_422_in_every_raw_form(product_url: str, datatype: str) -> None:
    """B034, B040."""
    data = elements(np.random.default_rng(4), datatype, 5)
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        for wrong in (data[:-1], data + b"\0"):
            for form in (as_msgpack, as_binary):
                body, headers = form(Case(datatype, True, (5,), wrong))
                response = await client.post("/jobs", content=body, headers=headers)
                assert (response.status_code, response.json()["code"]) == (422, "invalid_tensor")


@pytest.mark.parametrize(
    "data", [b"\x03\x03\x03\x03abc", framed([b"abc"]) + b"x", framed([b"abc"])[:-1], framed([b"a", b"b"]), b""]
)
async def test_bytes_that_are_not_framed_are_422(product_url: str, data: bytes) -> None:
    """B034."""
    body, headers = as_binary(Case("BYTES", True, (1,), data))
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        response = await client.post("/jobs", content=body, headers=headers)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_tensor")
