"""How the engine's failures reach a job: each status, each kind of senseless response, and the words for the owner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.datatypes import Datatype
from jobs.errors import (
    EngineFailed,
    EngineLost,
    EngineTimeout,
    EngineUnavailable,
    JobFailure,
    ModelNotFound,
    ModelRejected,
    OutputTooLarge,
)
from jobs.tensors import Tensor
from tests.support.scripted_answers import FAULTS
from tests.support.scripted_triton import ScriptedTriton, scripted_model
from workers.triton.client import TritonClient
from workers.triton.errors import MAX_DETAIL_LENGTH, failure_of, sentence, stream_failure_of
from workers.triton.messages import InferCall, RequestedOutput
from workers.triton.options import EngineOptions

pytestmark = pytest.mark.anyio

SECONDS = 5.0

FAILURES: dict[str, type[JobFailure]] = {
    "unavailable": EngineUnavailable,
    "busy": EngineUnavailable,
    "exhausted": EngineUnavailable,
    "reloading": EngineUnavailable,
    "cut": EngineUnavailable,
    "queue_timeout": EngineTimeout,
    "deadline": EngineTimeout,
    "reject": ModelRejected,
    "precondition": ModelRejected,
    "out_of_range": ModelRejected,
    "not_found": ModelNotFound,
    "unimplemented": ModelNotFound,
    "internal": EngineFailed,
    "raising": EngineFailed,
    "unknown": EngineFailed,
    "data_loss": EngineFailed,
    "cancelled": EngineFailed,
    "unauthenticated": EngineFailed,
}


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedTriton]:
    """An engine with a model of two outputs, and a decoupled one."""
    outputs = [("y", "FP32", (-1,)), ("z", "INT64", (2,))]
    models = [scripted_model("echo", outputs=outputs), scripted_model("many", decoupled=True)]
    async with ScriptedTriton(models) as engine:
        yield engine


@pytest.fixture
async def client(scripted: ScriptedTriton) -> AsyncIterator[TritonClient]:
    """A client of that engine."""
    async with TritonClient(EngineOptions(addresses=(scripted.address,))) as client:
        yield client


def call(model: str = "echo", *outputs: str) -> InferCall:
    """A call with one row of two numbers."""
    row = Tensor("x", Datatype.FP32, (1, 2), bytes(8))
    return InferCall(model, "", "1", (row,), tuple(RequestedOutput(name) for name in outputs))


def test_every_scripted_fault_has_an_expected_failure() -> None:
    assert FAILURES.keys() == FAULTS.keys()


@pytest.mark.parametrize("word", FAULTS)
async def test_a_status_becomes_the_failure_that_it_means(
    scripted: ScriptedTriton, client: TritonClient, word: str
) -> None:
    scripted.say("echo", word)
    scripted.say("many", word)
    with pytest.raises(FAILURES[word]) as unary:
        await client.infer(call(), SECONDS)
    with pytest.raises(FAILURES[word]) as streamed:
        await client.infer_stream(call("many"), SECONDS)
    assert unary.value.detail == streamed.value.detail
    assert isinstance(unary.value.__cause__, grpc.aio.AioRpcError)
    assert unary.value.__cause__.details() == FAULTS[word][1]


@pytest.mark.parametrize(
    ("word", "detail"),
    [
        ("unavailable", "The engine can't be reached, or has no room for the request."),
        ("deadline", "The engine did not answer in time."),
        ("reject", "the input is not to the model's liking"),
        ("raising", "ValueError: no such class"),
        ("not_found", "Request for unknown model: 'm' is not found"),
    ],
)
async def test_the_owner_reads_one_sentence_and_the_log_everything(
    scripted: ScriptedTriton, client: TritonClient, word: str, detail: str
) -> None:
    """T: Triton link, error text leak."""
    scripted.say("echo", word)
    with pytest.raises(JobFailure) as caught:
        await client.infer(call(), SECONDS)
    assert caught.value.detail == detail


@pytest.mark.parametrize(
    ("word", "detail"),
    [
        ("garbage", "The engine answered with bytes that are no inference response."),
        ("missing_data", "The engine's response has 2 outputs, but data for 3."),
        ("wrong_size", "The engine's output 'y' makes no sense: expected 8 bytes for FP32 [1, 2], got 9."),
        ("wrong_datatype", "The engine's output 'y' makes no sense: 'FP7' is not a valid Datatype."),
        ("negative_shape", "The engine's output 'y' makes no sense: shape [-1, 2] has a negative dimension."),
        ("output_twice", "The engine's response has output 'y' twice."),
    ],
)
async def test_a_response_that_makes_no_sense_is_the_engines_failure(
    scripted: ScriptedTriton, client: TritonClient, word: str, detail: str
) -> None:
    scripted.say("echo", word)
    with pytest.raises(EngineFailed) as caught:
        await client.infer(call("echo", "y", "z"), SECONDS)
    assert caught.value.detail == detail
    await client.infer(call(), SECONDS)


async def test_an_output_that_the_model_left_out_is_left_out(scripted: ScriptedTriton, client: TritonClient) -> None:
    scripted.say("echo", "missing_output")
    reply = await client.infer(call("echo", "y", "z"), SECONDS)
    assert [output.name for output in reply.outputs] == ["y"]


async def test_typed_contents_are_read_from_engines_that_send_no_raw_bytes(
    scripted: ScriptedTriton, client: TritonClient
) -> None:
    scripted.say("many", "typed")
    (reply,) = await client.infer_stream(call("many"), SECONDS)
    assert reply.outputs == (Tensor("y", Datatype.FP32, (1, 2), bytes(8)),)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("[request id: 1] inference input 'x' data-type is 'FP32', but model expects 'INT32'", ModelRejected),
        ("Request for unknown model: 'm' is not found", ModelNotFound),
        ("Request for unknown model: 'm' has no available versions", EngineUnavailable),
        ("[request id: 1] Exceeds maximum queue size", EngineUnavailable),
        ("Server exiting", EngineUnavailable),
    ],
)
async def test_a_request_that_a_stream_does_not_let_through_fails_by_its_message(
    scripted: ScriptedTriton, client: TritonClient, text: str, failure: type[JobFailure]
) -> None:
    scripted.say("many", f"message:{text}")
    with pytest.raises(failure):
        await client.infer_stream(call("many"), SECONDS)


async def test_a_stream_that_ends_before_its_last_response_is_the_engines_failure(
    scripted: ScriptedTriton, client: TritonClient
) -> None:
    scripted.say("many", "unfinished")
    with pytest.raises(EngineFailed, match="before its last response"):
        await client.infer_stream(call("many"), SECONDS)


async def test_a_stream_is_not_cut_off_after_an_error(scripted: ScriptedTriton, client: TritonClient) -> None:
    """Triton may die of that, when the model ends it just then."""
    scripted.always("many", "then:message:it broke")
    for _ in range(20):
        with pytest.raises(JobFailure, match="it broke"):
            await client.infer_stream(call("many"), SECONDS)
    assert scripted.cancellations == 0


async def test_a_stream_whose_time_ends_while_it_begins_fails_as_one_that_is_late(
    scripted: ScriptedTriton, client: TritonClient
) -> None:
    for microseconds in range(0, 3000, 50):
        with contextlib.suppress(EngineTimeout, EngineUnavailable):
            await client.infer_stream(call("many"), microseconds / 1e6)
    assert client.in_flight == 0
    assert len(await client.infer_stream(call("many"), SECONDS)) == 1


def test_a_message_after_the_model_ran_is_the_engines_failure() -> None:
    for text in ("it broke", "the printer is not ready", "Server exiting"):
        assert type(stream_failure_of(text, has_run=True)) is EngineFailed


async def test_an_engine_recovers_after_it_was_flaky(scripted: ScriptedTriton, client: TritonClient) -> None:
    scripted.always("echo", "flaky_for:0.05")
    with pytest.raises(EngineUnavailable):
        await client.infer(call(), SECONDS)
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await client.infer(call(), SECONDS)
            except EngineUnavailable:
                continue
            break


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("Stream removed (Socket closed)", True),
        ("Socket closed", True),
        ("recvmsg:Connection reset by peer", True),
        ("Stream removed (Socket closed (GOAWAY received; Error code: 0; Debug Text: ))", False),
        ("GOAWAY received; Error code: 2; Debug Text: Cancelling all calls", False),
        ("failed to connect to all addresses; last error: UNKNOWN: connection refused", False),
        ("keepalive watchdog timeout", False),
        ("", False),
    ],
)
def test_a_connection_that_ends_under_a_call_without_a_farewell_is_an_engine_that_died(
    text: str, is_lost: bool
) -> None:
    """The words are those of grpcio 1.85 with Triton 2.51 killed, and told to stop, in the middle of a call."""
    failure = failure_of(grpc.StatusCode.UNAVAILABLE, text)
    assert isinstance(failure, EngineUnavailable)
    assert isinstance(failure, EngineLost) == is_lost
    assert (failure.detail == "The engine went away in the middle of the call.") == is_lost


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("Stream removed (CLIENT: Received message larger than max (2400040 vs. 1048576))", OutputTooLarge),
        ("CLIENT: Sent message larger than max (2400037 vs. 1048576)", ModelRejected),
        ("SERVER: Received message larger than max (2400037 vs. 1048576)", ModelRejected),
        ("Received message larger than max (2400037 vs. 1048576)", ModelRejected),
        ("SERVER: Sent message larger than max (2400037 vs. 1048576)", OutputTooLarge),
        ("the pool is exhausted", EngineUnavailable),
    ],
)
def test_a_message_above_a_limit_is_not_a_busy_engine(text: str, failure: type[JobFailure]) -> None:
    """B030."""
    assert type(failure_of(grpc.StatusCode.RESOURCE_EXHAUSTED, text)) is failure


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "[request id: 7] unexpected shape for input 'x' for model 'm'. Expected [-1,1], got [1,2]. NOTE: Setting a "
            "non-zero max_batch_size in the model config requires a batch dimension",
            "unexpected shape for input 'x' for model 'm'. Expected [-1,1], got [1,2].",
        ),
        ("failed to load /opt/models/secret/1/model.onnx: no file", "failed to load …: no file"),
        ("could not open file:///opt/models/x.bin", "could not open …"),
        ("no route to ipv4:10.0.0.7:8001", "no route to …"),
        ("a ratio of 3/4 and km/h stay", "a ratio of 3/4 and km/h stay"),
        ("bell\x07 and\ttab", "bell and tab"),
        ("x" * 1000, "x" * (MAX_DETAIL_LENGTH - 1) + "…"),
        ("first\nsecond", "first"),
        ("", ""),
    ],
)
def test_an_engines_text_loses_what_concerns_only_its_operator(text: str, kept: str) -> None:
    assert sentence(text) == kept


@given(
    status=st.sampled_from([status for status in grpc.StatusCode if status is not grpc.StatusCode.OK]), text=st.text()
)
def test_any_status_with_any_text_is_a_failure_with_a_short_printable_detail(
    status: grpc.StatusCode, text: str
) -> None:
    detail = failure_of(status, text).detail
    assert 0 < len(detail) <= MAX_DETAIL_LENGTH
    assert "\n" not in detail
