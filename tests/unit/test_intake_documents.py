"""Requests in Open Inference Protocol words: JSON, msgpack and the binary form, and what is wrong with hostile ones."""

import json
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from api.intake.options import OPTION_NAMES
from api.problems import Problem
from jobs.datatypes import Datatype
from jobs.record import InputSource, RequestedOutput
from jobs.spec import InputSpec
from tests.support.intake import PAIR, Gateway, document

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}
A = {"name": "a", "datatype": "FP32", "shape": [2], "data": [1.5, -2]}
B = {"name": "b", "datatype": "INT64", "shape": [3], "data": [1, -(2**63), 2**63 - 1]}
A_DATA = np.array([1.5, -2], "<f4").tobytes()
B_DATA = np.array([1, -(2**63), 2**63 - 1], "<i8").tobytes()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def binary(header: Any, *data: bytes, length: int | str | None = None) -> dict[str, Any]:
    """A request in the protocol's binary form."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return {
        "content": b"".join([text, *data]),
        "headers": {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(text) if length is None else length),
        },
    }


def sized(tensor: dict[str, Any], size: int) -> dict[str, Any]:
    """A tensor whose data stands behind the header."""
    plain = {key: value for key, value in tensor.items() if key != "data"}
    return {**plain, "parameters": {"binary_data_size": size}}


async def test_json_msgpack_and_binary_are_the_same_job(gateway: Gateway) -> None:
    rest = {"model": "pair", "priority": "low", "parameters": {"beam": 4}, "id": "mine", "metadata": {"k": [1]}}
    as_json = await gateway.accepted(json={"inputs": [B, A], **rest})
    as_msgpack = await gateway.accepted(content=msgpack.packb({"inputs": [A, B], **rest}), headers=MSGPACK)
    raw = [{**A, "data": A_DATA}, {**B, "data": B_DATA}]
    as_raw = await gateway.accepted(content=msgpack.packb({"inputs": raw, **rest}), headers=MSGPACK)
    header = {"inputs": [sized(A, 8), sized(B, 24)], **rest}
    as_binary = await gateway.accepted(**binary(header, A_DATA, B_DATA))
    mixed = await gateway.accepted(**binary({"inputs": [A, sized(B, 24)], **rest}, B_DATA))
    jobs = [as_json, as_msgpack, as_raw, as_binary, mixed]
    assert all(job.request == as_json.request for job in jobs)
    assert all(bytes(job.payload) == A_DATA + B_DATA for job in jobs)
    assert [part.name for part in as_json.request.inputs] == ["a", "b"]
    assert all(part.source is InputSource.TENSOR for part in as_json.request.inputs)
    assert as_json.request.parameters == {"beam": 4}
    assert as_json.request.request_id == "mine"


async def test_the_query_adds_to_a_document_and_must_not_contradict_it(gateway: Gateway) -> None:
    body = document("fixed", "FP32", [3], [1, 2, 3])
    del body["model"]
    submission = await gateway.accepted(params={"model": "fixed", "priority": "high", "outputs": "y"}, json=body)
    assert submission.request.priority == "high"
    assert submission.request.outputs == (RequestedOutput("y"),)
    for query, twice in (({"model": "fixed"}, {"model": "fixed"}), ({"outputs": "y"}, {"outputs": ["y"]})):
        problem = await gateway.refused(params={"model": "fixed"} | query, json=body | twice)
        assert problem["code"] == "invalid_option"
        assert "given twice" in problem["detail"]


@pytest.mark.parametrize(
    "text",
    [
        b'{"model":"a","model":"fixed"}',
        b'{"model":"fixed","inputs":[{"name":"x","name":"x","datatype":"FP32","shape":[3],"data":[1,2,3]}]}',
        b'{"model":"fixed","metadata":{"a":":","a":1}}',
        b'{"model":"fixed","metadata":{"a":"\\":","\\u0061":1}}',
        b'{"model":"fixed","metadata":{"\\\\\\":":1,"\\\\\\":" :2}}',
        b'{"model":"any_bytes","inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":[{"b64":"","b64":""}]}]}',
        b'{"model":"fixed","metadata":{"a":{"b":1},"a":{"c":{"d":":"}}}}',
    ],
)
async def test_a_key_given_twice_makes_json_ambiguous(gateway: Gateway, text: bytes) -> None:
    """V09"""
    problem = await gateway.refused(content=text, headers=JSON)
    assert (problem["status"], problem["code"]) == (400, "malformed_body")
    assert "same key twice" in problem["detail"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"url": "http://a:b@c:8080/?q=:", "t": "12:30:00"},
        {'":': '":"', "\\": '\\":', ":": {"::": [":", {":": ":"}]}},
        {"\\\\": "\\\\\\", '\\"': '\\\\":', "data": {"a": {"b": ":"}}},
    ],
)
async def test_colons_and_quotes_in_texts_make_nothing_ambiguous(gateway: Gateway, metadata: dict[str, Any]) -> None:
    """V09"""
    submission = await gateway.tensor("fixed", "FP32", [3], [1, 2, 3], metadata=metadata)
    assert submission.request.metadata == metadata


async def test_a_key_given_twice_makes_msgpack_ambiguous(gateway: Gateway) -> None:
    """V09"""
    text = b"\x82" + (msgpack.packb("model") + msgpack.packb("fixed")) * 2
    problem = await gateway.refused(content=text, headers=MSGPACK)
    assert (problem["status"], problem["code"]) == (400, "malformed_body")


@pytest.mark.parametrize("depth", [1_000, 20_000, 1_000_000])
@pytest.mark.parametrize("close", [True, False])
async def test_deep_documents_are_refused_and_crash_nothing(gateway: Gateway, depth: int, close: bool) -> None:
    """B066"""
    texts = (b"[" * depth + b"]" * depth * close, b'{"model":' * depth + b"1" + b"}" * depth * close)
    for text in texts:
        assert (await gateway.refused(content=text, headers=JSON))["status"] in (400, 413, 422)
    for byte in (b"\x91", b"\x81\xa1a"):
        assert (await gateway.refused(content=byte * depth + b"\xc0" * close, headers=MSGPACK))["status"] in (400, 422)


async def test_metadata_deeper_than_64_levels_is_refused(gateway: Gateway) -> None:
    """B066"""
    nested: Any = 1
    for _ in range(63):
        nested = [nested]
    await gateway.tensor("fixed", "FP32", [3], [1, 2, 3], metadata={"a": nested})
    problem = await gateway.bad_tensor("fixed", "FP32", [3], [1, 2, 3], metadata={"a": [nested]})
    assert (problem["code"], problem["option"]) == ("invalid_option", "metadata")


async def test_data_nested_deeper_than_its_shape_is_refused(gateway: Gateway) -> None:
    """B066"""
    nested: Any = 1
    for _ in range(200):
        nested = [nested]
    problem = await gateway.bad_tensor("any_fp32", "FP32", [1], nested)
    assert (problem["status"], problem["code"]) == (422, "invalid_tensor")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"model"',
        b'{"model":"fixed","inputs":{}}',
        b'{"model":"fixed","inputs":[1]}',
        b'{"model":"fixed","inputs":[{}]}',
        b'{"model":"fixed","inputs":[{"name":1}]}',
        b'{"model":"fixed","inputs":[{"name":"x"}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":3,"data":[1]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":["3"],"data":[1]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[true],"data":[1]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3.0],"data":[1]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":1}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":"AAAA"}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1,2,3],"dtype":1}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1,2,NaN]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1,2,Infinity]}]}',
        b'{"model":"fixed","inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1,2,1e999]}]}',
        b'{"model":"fixed","id":1}',
        b'{"model":"fixed","outputs":{}}',
        b'{"model":"fixed","outputs":[1]}',
        b'{"model":"fixed","outputs":[{}]}',
        b'{"model":"fixed","outputs":[{"name":"y","classes":5}]}',
        b'{"model":"fixed","parameters":[]}',
        b'{"model":"\\ud800"}',
        b'{"model":"\xff"}',
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
    ],
)
async def test_what_is_no_document_is_malformed(gateway: Gateway, text: bytes) -> None:
    problem = await gateway.refused(content=text, headers=JSON)
    assert (problem["status"], problem["code"]) == (400, "malformed_body")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x80\x80",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        msgpack.packb({b"model": "fixed"}),
        msgpack.packb({1: "fixed"}),
        msgpack.packb({"model": "fixed", "metadata": msgpack.ExtType(5, b"x")}),
        b"\x81\xa1a\xd6\xff\0\0\0\0",
        b"\x81\xa5model\xa1\xff",
        msgpack.packb([{}] * 100_001),
    ],
    ids=range(12),
)
async def test_what_is_no_msgpack_document_is_malformed(gateway: Gateway, body: bytes) -> None:
    problem = await gateway.refused(content=body, headers=MSGPACK)
    assert problem["status"] in (400, 422)
    assert problem["code"] in ("malformed_body", "invalid_option")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x91" * 2000, "nested too deeply"),
        (b"\xc1", "a byte that begins nothing"),
        (b"\x80\x80", "goes on behind the end"),
        (b"\xa1\xff", "a text in it is not UTF-8"),
        (b"\x81", "not valid msgpack: Unpack failed: incomplete input"),
    ],
)
async def test_broken_msgpack_is_told_what_is_wrong_in_plain_words(gateway: Gateway, body: bytes, words: str) -> None:
    problem = await gateway.refused(content=body, headers=MSGPACK)
    assert words in problem["detail"]
    assert "Error" not in problem["detail"]


async def test_more_brackets_than_memory_is_worth_are_refused_before_parsing(gateway: Gateway) -> None:
    body = b'{"model":"fixed","inputs":[' + b"{}," * 1_000_000 + b"{}]}"
    problem = await gateway.refused(content=body, headers=JSON)
    assert (problem["status"], problem["code"]) == (400, "malformed_body")
    assert "1000000" in problem["detail"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (binary({"model": "pair", "inputs": [sized(A, 8), sized(B, 24)]}, A_DATA, B_DATA[:-1]), 422),
        (binary({"model": "pair", "inputs": [sized(A, 8), sized(B, 24)]}, A_DATA, B_DATA, b"x"), 422),
        (binary({"model": "pair", "inputs": [sized(A, 7), sized(B, 25)]}, A_DATA, B_DATA), 422),
        (binary({"model": "pair", "inputs": [sized(A, -8), B]}, A_DATA), 400),
        (binary({"model": "pair", "inputs": [{**A, "parameters": {"binary_data_size": True}}, B]}), 400),
        (binary({"model": "pair", "inputs": [{**A, "parameters": {"binary_data_size": 0}}, B]}), 400),
        (binary({"model": "pair", "inputs": [A, B]}, length=10_000), 400),
        (binary({"model": "pair", "inputs": [A, B]}, length=-1), 400),
        (binary({"model": "pair", "inputs": [A, B]}, length="1e3"), 400),
        (binary({"model": "pair", "inputs": [A, B]}, length="9" * 40), 400),
        (binary({"model": "pair", "inputs": [A, B]}, length=0), 400),
        (binary({"model": "pair", "inputs": [A, B]}, length=5), 400),
        (binary(b"\xff\xfe", A_DATA), 400),
    ],
)
async def test_a_binary_body_whose_sizes_do_not_add_up_is_refused(
    gateway: Gateway, request_: dict[str, Any], status: int
) -> None:
    """B040"""
    assert (await gateway.refused(**request_))["status"] == status


async def test_a_binary_size_needs_the_binary_form(gateway: Gateway) -> None:
    problem = await gateway.refused(json={"model": "pair", "inputs": [sized(A, 8), B]})
    assert (problem["status"], problem["code"]) == (400, "malformed_body")
    assert "Inference-Header-Content-Length" in problem["detail"]


async def test_all_outputs_are_computed_unless_some_are_asked_for(gateway: Gateway) -> None:
    every = await gateway.accepted(json={"model": "pair", "inputs": [A, B]})
    assert [output.name for output in every.request.outputs] == [output.name for output in PAIR.outputs]
    one = await gateway.accepted(json={"model": "pair", "inputs": [A, B], "outputs": [{"name": "difference"}]})
    assert one.request.outputs == (RequestedOutput("difference"),)


async def test_a_classification_follows_the_model_unless_the_request_says_otherwise(gateway: Gateway) -> None:
    inputs = [{"name": "image", "datatype": "UINT8", "shape": [32, 32, 3], "data": [0] * 3072}]
    by_default = await gateway.accepted(json={"model": "photo", "inputs": inputs})
    assert by_default.request.outputs == (RequestedOutput("scores", 5), RequestedOutput("embedding", 0))
    for classes in (0, 3):
        outputs = [{"name": "scores", "parameters": {"classification": classes, "binary_data": True}}]
        asked = await gateway.accepted(json={"model": "photo", "inputs": inputs, "outputs": outputs})
        assert asked.request.outputs == (RequestedOutput("scores", classes),)


@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        (["nope"], "unknown_output"),
        (["sum", "sum"], "invalid_output"),
        ([{"name": "sum", "parameters": {"classification": -1}}], "invalid_parameter"),
        ([{"name": "sum", "parameters": {"classification": True}}], "invalid_parameter"),
        ([{"name": "sum", "parameters": {"classification": 2**40}}], "invalid_parameter"),
        ([{"name": "sum", "parameters": {"shared_memory_region": "r"}}], "invalid_parameter"),
        ([{"name": "sum", "parameters": 1}], "invalid_parameter"),
        ([{"name": "words", "parameters": {"classification": 1}}], "invalid_output"),
    ],
)
async def test_outputs_that_can_not_be_computed_are_refused(gateway: Gateway, outputs: list[Any], code: str) -> None:
    """B050"""
    problem = await gateway.refused(json={"model": "pair", "inputs": [A, B], "outputs": outputs})
    assert (problem["status"], problem["code"]) == (422, code)


@pytest.mark.parametrize(
    "parameters",
    [
        {"sequence_id": 1},
        {"sequence_start": True},
        {"priority": 1},
        {"timeout": 5},
        {"shared_memory_region": "r"},
        {"binary_data_size": 4},
        {"triton_enable_empty_final_response": True},
        {"": 1},
        {"x" * 256: 1},
        {"a": None},
        {"a": [1]},
        {"a": {"b": 1}},
        {"a": 2**63},
        {"a": "x" * 5000},
    ],
)
async def test_parameters_are_scalars_with_no_meaning_to_the_engine(
    gateway: Gateway, parameters: dict[str, Any]
) -> None:
    problem = await gateway.refused(json={"model": "pair", "inputs": [A, B], "parameters": parameters})
    assert (problem["status"], problem["code"]) == (422, "invalid_parameter")


@pytest.mark.parametrize("name", OPTION_NAMES)
async def test_an_option_among_the_parameters_is_refused_with_its_place(gateway: Gateway, name: str) -> None:
    """It would be without effect there: a webhook that nobody hears of, a bound that does not hold."""
    whole = {"model": "pair", "inputs": [A, B], "parameters": {name: "1"}}
    query = {"model": "fixed", "parameters": json.dumps({name: "1"})}
    for asked in (
        {"json": whole},
        {"content": msgpack.packb(whole), "headers": {"Content-Type": "application/msgpack"}},
        {"params": query, "content": b"\0" * 12},
    ):
        problem = await gateway.refused(**asked)
        assert (problem["status"], problem["code"], problem["parameter"]) == (422, "invalid_parameter", name)
        assert problem["detail"].startswith(f"`{name}` is an option of the job")


async def test_parameters_and_outputs_can_be_given_in_a_query(gateway: Gateway) -> None:
    query = {"model": "fixed", "outputs": '[{"name":"y","parameters":{"classification":2}}]', "parameters": '{"t":0.5}'}
    submission = await gateway.accepted(params=query, content=b"\0" * 12)
    assert submission.request.outputs == (RequestedOutput("y", 2),)
    assert submission.request.parameters == {"t": 0.5}
    for wrong in ({"outputs": "["}, {"parameters": "x"}):
        problem = await gateway.refused(params=query | wrong, content=b"\0" * 12)
        assert problem["code"] == "invalid_option"


async def test_what_protocol_clients_say_about_the_response_is_accepted(gateway: Gateway) -> None:
    body = {"model": "pair", "inputs": [A, B], "parameters": {"binary_data_output": True, "t": 1}}
    submission = await gateway.accepted(json=body)
    assert submission.request.parameters == {"t": 1}


async def test_an_unknown_member_is_refused_with_those_that_there_are(gateway: Gateway) -> None:
    problem = await gateway.refused(json={"model": "pair", "inputs": [A, B], "time_out": 3})
    assert (problem["status"], problem["code"], problem["option"]) == (422, "invalid_option", "time_out")
    assert "timeout_seconds" in problem["detail"]


async def test_a_request_without_a_model_says_so(gateway: Gateway) -> None:
    problem = await gateway.refused(json={"inputs": [A, B]})
    assert (problem["status"], problem["code"], problem["option"]) == (422, "invalid_option", "model")


@pytest.mark.parametrize("model", [1, None, ["fixed"], {"a": 1}, ""])
async def test_a_model_that_is_no_name_is_refused(gateway: Gateway, model: Any) -> None:
    assert (await gateway.refused(json={"model": model, "inputs": [A, B]}))["code"] == "invalid_option"


async def test_an_unknown_model_is_404_in_every_form(gateway: Gateway) -> None:
    for request in (
        {"json": {"model": "nope", "inputs": [A]}},
        {"params": {"model": "nope"}, "content": b"x"},
        {"data": {"model": "nope"}, "files": {"file": b"x"}},
    ):
        problem = await gateway.refused(**request)
        assert (problem["status"], problem["code"]) == (404, "unknown_model")
        assert "photo" in problem["known_models"]


async def test_a_model_that_takes_no_jobs_says_why(gateway: Gateway) -> None:
    """B049"""
    problem = await gateway.refused(json={"model": "refused", "inputs": [A, B]})
    assert (problem["status"], problem["code"]) == (422, "model_not_served")
    assert problem["detail"] == "Sequence models keep state between requests."


async def test_names_of_inputs_are_checked_one_by_one(gateway: Gateway) -> None:
    """B050"""
    unknown = await gateway.refused(json={"model": "pair", "inputs": [A, B, {**A, "name": "z"}]})
    assert (unknown["status"], unknown["code"], unknown["input"]) == (422, "unknown_input", "z")
    twice = await gateway.refused(json={"model": "pair", "inputs": [A, B, A]})
    assert (twice["status"], twice["code"]) == (422, "duplicate_input")
    missing = await gateway.refused(json={"model": "pair", "inputs": [B]})
    assert (missing["status"], missing["code"], missing["missing"]) == (422, "missing_input", ["a"])
    many = await gateway.refused(json={"model": "pair", "inputs": [{**A, "data": []}] * 257})
    assert many["code"] == "malformed_body"


async def test_an_optional_input_may_be_given_or_left_out(gateway: Gateway) -> None:
    c = {"name": "c", "datatype": "BOOL", "shape": [1], "data": [True]}
    submission = await gateway.accepted(json={"model": "pair", "inputs": [c, A, B]})
    assert [part.name for part in submission.request.inputs] == ["a", "b", "c"]
    assert bytes(submission.payload)[-1:] == b"\x01"


@pytest.mark.parametrize("form", ["json", "msgpack"])
async def test_a_member_that_is_null_is_one_that_is_not_given(gateway: Gateway, form: str) -> None:
    """Clients that know every option write out those that nobody set."""
    unset: dict[str, Any] = dict.fromkeys((*OPTION_NAMES, "id", "outputs", "parameters"))
    asked = {**unset, "model": "pair", "inputs": [{**A, "parameters": None}, B]}
    plain = {"model": "pair", "inputs": [A, B]}
    found = [
        await gateway.accepted(json=body)
        if form == "json"
        else await gateway.accepted(content=msgpack.packb(body), headers=MSGPACK)
        for body in (asked, plain)
    ]
    assert found[0].request == found[1].request
    for missing in ("model", "inputs"):
        problem = await gateway.refused(json={**plain, missing: None})
        assert problem["code"] == {"model": "invalid_option", "inputs": "missing_input"}[missing]


async def test_outputs_and_raw_inputs_may_have_members_that_are_null(gateway: Gateway) -> None:
    output = {"name": "sum", "parameters": None}
    header = {"model": "pair", "inputs": [{**sized(A, 8), "data": None}, B], "outputs": [output]}
    submission = await gateway.accepted(**binary(header, A_DATA))
    assert submission.request.outputs == (RequestedOutput("sum", 0),)
    (first, _) = await gateway.batch(json=[{**header, "inputs": [A, B], "priority": None}] * 2)
    assert not isinstance(first, Problem), first


@pytest.mark.parametrize(("name", "words"), [("", "got 0"), ("n" * 256, "1 to 255 characters, got 256")])
async def test_a_parameters_name_of_no_sane_length_is_refused_for_that(gateway: Gateway, name: str, words: str) -> None:
    problem = await gateway.refused(json={"model": "pair", "inputs": [A, B], "parameters": {name: 1}})
    assert (problem["status"], problem["code"]) == (422, "invalid_parameter")
    assert words in problem["detail"]
    assert "reserved" not in problem["detail"]


@pytest.mark.parametrize(
    ("model", "tensor"),
    [
        ("photo", {"name": "image", "datatype": "BYTES", "shape": [1], "data": [{"b64": "/9j/4AAQ"}]}),
        ("photo", {"name": "image", "datatype": "BYTES", "shape": [1, 1], "data": ["/9j/4AAQ"]}),
        ("photo", {"name": "image", "datatype": "UINT8", "shape": [32, 32, 3], "data": ["/9j/4AAQ" * 384]}),
        ("photo", {"name": "image", "datatype": "UINT8", "shape": [32, 32, 3], "data": [{"b64": "/9j/4AAQ"}] * 3072}),
        ("photo", {"name": "image", "datatype": "BYTES", "shape": [1], "data": "/9j/4AAQ"}),
        ("photo", {"name": "image", "datatype": "UINT8", "shape": [32, 32, 3], "data": {"b64": "/9j/4AAQ"}}),
    ],
    ids=range(6),
)
async def test_a_picture_in_a_document_is_told_to_come_as_a_file(
    gateway: Gateway, model: str, tensor: dict[str, Any]
) -> None:
    problem = await gateway.refused(json={"model": model, "inputs": [tensor]})
    assert "uploaded by itself, to POST /jobs" in problem["detail"]


async def test_a_byte_order_mark_before_a_document_is_passed_over(gateway: Gateway) -> None:
    plain = {"model": "pair", "inputs": [A, B]}
    marked = await gateway.accepted(content=b"\xef\xbb\xbf" + json.dumps(plain).encode(), headers=JSON)
    assert marked.request == (await gateway.accepted(json=plain)).request


async def test_many_documents_at_once_are_told_where_they_go(gateway: Gateway) -> None:
    problem = await gateway.refused(json=[{"model": "pair", "inputs": [A, B]}])
    assert (problem["status"], problem["code"]) == (400, "malformed_body")
    assert "POST /jobs/batch" in problem["detail"]


@pytest.mark.parametrize("max_batch_size", [0, 8])
async def test_no_inputs_at_all_are_taken_where_none_is_needed_and_no_batch_is_made(max_batch_size: int) -> None:
    """Triton can't tell the batch size of a request that has no inputs."""
    spare = InputSpec("spare", Datatype.FP32, (1,), optional=True)
    model = replace(PAIR, name="spare", max_batch_size=max_batch_size, inputs=(spare,))
    gateway = Gateway(models=[model])
    if max_batch_size == 0:
        submission = await gateway.accepted(json={"model": "spare", "inputs": []})
        assert (submission.request.inputs, bytes(submission.payload)) == ((), b"")
    else:
        problem = await gateway.refused(json={"model": "spare", "inputs": []})
        assert (problem["status"], problem["code"]) == (422, "missing_input")
        assert "`spare` (FP32 [1]) optional" in problem["detail"]
