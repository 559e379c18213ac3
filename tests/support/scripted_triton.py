"""An engine that fails on command: a real `grpc.aio` server for the protocol, driven by words.

It owns answers, faults and a record of what arrived. It must not judge the client: tests read the record and do that.

    async with ScriptedTriton([scripted_model("echo")]) as engine:
        engine.say("echo", "unavailable", "ok")    # the next calls, one word each; then the usual word again
        engine.always("echo", "slow:0.05")         # the usual word, "ok" at first
        ...
        await engine.until(lambda: engine.cancellations == 1)
        await engine.stop()                        # and start() on the same port

Words: `ok` answers each output with the input of the same position where it fits, else with zeros; `slow:SECONDS` does
so later; `hang` never answers; `picky:TEXT` rejects a batch where any input's bytes hold TEXT; `flaky_for:SECONDS` is
unavailable for so long from its first use; `garbage` sends bytes that are no response; `huge:BYTES` answers with so
much; `typed` answers with protobuf numbers. `FAULTS` and `TWISTS` of `scripted_answers` hold the rest. A word may also
be a function from request to response. A stream answers `times:N` with N responses, `ok` with one, `then:WORD` with
one and then the word, `message:TEXT` with an error message, and `unfinished` with one that isn't the last, and ends.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import grpc

from tests.support.scripted_answers import (
    FAULTS,
    TWISTS,
    ScriptedModel,
    SeenCall,
    Word,
    answered,
    datatype_name,
    scripted_model,
    type_contents,
)
from workers.triton.pb import inference_pb2 as pb

__all__ = ["ScriptedModel", "ScriptedTriton", "SeenCall", "scripted_model"]

SERVICE: Final = "inference.GRPCInferenceService"
_GIB: Final = 1 << 30

_KEPT_INPUT_BYTES: Final = 65536
"""Inputs of larger requests are forgotten once answered, so that a test may send thousands of them."""


@dataclass
class _Script:
    model: ScriptedModel
    usual: Word = "ok"
    queue: deque[Word] = field(default_factory=deque)
    flaky_until: float | None = None
    is_ready: bool = True
    inferences: int = 0
    executions: int = 0
    sizes: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class ScriptedTriton:
    """The server; an asynchronous context manager. `credentials` makes it speak TLS."""

    def __init__(
        self,
        models: Iterable[ScriptedModel] | None = None,
        *,
        credentials: grpc.ServerCredentials | None = None,
        message_bytes: int = _GIB,
    ) -> None:
        models = [scripted_model("echo")] if models is None else models
        self._scripts = {model.config.name: _Script(model) for model in models}
        self._credentials = credentials
        self._message_bytes = message_bytes
        self._server: grpc.aio.Server | None = None
        self._changed = asyncio.Condition()
        self.port = 0
        self.is_ready = True
        self.calls: list[SeenCall] = []
        self.peers: set[str] = set()
        self.in_flight = 0
        self.cancellations = 0
        self.configurations: list[tuple[str, str]] = []
        """Which models' configurations were asked for, by name and version."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """Where it listens, also while stopped."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen: on a free port the first time, on the same one again later."""
        options = [
            ("grpc.max_send_message_length", self._message_bytes),
            ("grpc.max_receive_message_length", self._message_bytes),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    async def stop(self) -> None:
        """Stop at once, as a killed engine does; calls in flight are cut."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    def say(self, model: str, *words: Word) -> None:
        """Answer the model's next calls with these words, one each."""
        self._scripts[model].queue.extend(words)

    def always(self, model: str, word: Word) -> None:
        """Answer with this word whenever nothing else was said."""
        self._scripts[model].usual = word

    def ready(self, model: str, is_ready: bool) -> None:
        """Show the model as ready, or as one that is being loaded; its answers don't change by that."""
        self._scripts[model].is_ready = is_ready

    async def until(self, condition: Callable[[], bool], timeout_seconds: float = 5.0) -> None:
        """Wait until the condition holds; it is looked at whenever a call arrives or ends."""
        async with asyncio.timeout(timeout_seconds), self._changed:
            await self._changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        unary: dict[str, tuple[Any, Any]] = {
            "ServerLive": (pb.ServerLiveRequest, self._server_live),
            "ServerReady": (pb.ServerReadyRequest, self._server_ready),
            "ServerMetadata": (pb.ServerMetadataRequest, self._server_metadata),
            "ModelReady": (pb.ModelReadyRequest, self._model_ready),
            "ModelMetadata": (pb.ModelMetadataRequest, self._model_metadata),
            "ModelConfig": (pb.ModelConfigRequest, self._model_config),
            "RepositoryIndex": (pb.RepositoryIndexRequest, self._index),
            "ModelStatistics": (pb.ModelStatisticsRequest, self._statistics),
            "ModelInfer": (pb.ModelInferRequest, self._infer),
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                method, request_deserializer=request.FromString, response_serializer=_serialized
            )
            for name, (request, method) in unary.items()
        }
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream_infer,
            request_deserializer=pb.ModelInferRequest.FromString,
            response_serializer=_serialized,
        )
        return handlers

    async def _server_live(self, request: pb.ServerLiveRequest, context: Any) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def _server_ready(self, request: pb.ServerReadyRequest, context: Any) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self.is_ready)

    async def _server_metadata(self, request: pb.ServerMetadataRequest, context: Any) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name="scripted", version="0")

    async def _model_ready(self, request: pb.ModelReadyRequest, context: Any) -> pb.ModelReadyResponse:
        script = self._scripts.get(request.name)
        return pb.ModelReadyResponse(ready=script is not None and script.is_ready)

    async def _model_metadata(self, request: pb.ModelMetadataRequest, context: Any) -> pb.ModelMetadataResponse:
        model = (await self._script(request.name, context)).model
        response = pb.ModelMetadataResponse(name=request.name, versions=model.versions, platform=model.config.platform)
        batch = [-1] if model.config.max_batch_size else []
        for source, target in ((model.config.input, response.inputs), (model.config.output, response.outputs)):
            for each in source:
                target.add(name=each.name, datatype=datatype_name(each.data_type), shape=[*batch, *each.dims])
        return response

    async def _model_config(self, request: pb.ModelConfigRequest, context: Any) -> pb.ModelConfigResponse:
        self.configurations.append((request.name, request.version))
        model = (await self._script(request.name, context)).model
        if request.version and request.version not in model.versions:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' version")
        return pb.ModelConfigResponse(config=model.config_of(request.version))

    async def _index(self, request: pb.RepositoryIndexRequest, context: Any) -> pb.RepositoryIndexResponse:
        response = pb.RepositoryIndexResponse()
        for name, script in self._scripts.items():
            for version in script.model.versions:
                response.models.add(name=name, version=version, state="READY" if script.is_ready else "LOADING")
        return response

    async def _statistics(self, request: pb.ModelStatisticsRequest, context: Any) -> pb.ModelStatisticsResponse:
        response = pb.ModelStatisticsResponse()
        for name in [request.name] if request.name else list(self._scripts):
            script = await self._script(name, context)
            entry = response.model_stats.add(
                name=name, version="1", inference_count=script.inferences, execution_count=script.executions
            )
            entry.inference_stats.success.count = script.executions
            for size, count in sorted(script.sizes.items()):
                entry.batch_stats.add(batch_size=size).compute_infer.count = count
        return response

    async def _infer(self, request: pb.ModelInferRequest, context: Any) -> pb.ModelInferResponse | bytes:
        script, seen = await self._arrived(request, context)
        try:
            return await self._answer(script, _next(script), seen, context)
        except asyncio.CancelledError:
            self._cut()
            raise
        finally:
            await self._ended(seen)

    async def _stream_infer(
        self, requests: AsyncIterator[pb.ModelInferRequest], context: Any
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        async for request in requests:
            script, seen = await self._arrived(request, context)
            try:
                word = _next(script)
                times, after = 1, None
                if isinstance(word, str) and word.startswith("times:"):
                    times, word = int(word.partition(":")[2]), "ok"
                elif word == "unfinished":
                    yield await self._stream_answer(script, "ok", seen, context)
                    return
                elif isinstance(word, str) and word.startswith("then:"):
                    after, word = word.partition(":")[2], "ok"
                for _ in range(times):
                    yield await self._stream_answer(script, word, seen, context)
                if after is not None:
                    yield await self._stream_answer(script, after, seen, context)
                last = pb.ModelInferResponse(model_name=request.model_name, id=request.id)
                last.parameters["triton_final_response"].bool_param = True
                yield pb.ModelStreamInferResponse(infer_response=last)
            except asyncio.CancelledError:
                self._cut()
                raise
            finally:
                await self._ended(seen)

    async def _stream_answer(
        self, script: _Script, word: Word, seen: SeenCall, context: Any
    ) -> pb.ModelStreamInferResponse:
        if isinstance(word, str) and word.startswith("message:"):
            broken = pb.ModelStreamInferResponse(error_message=word.partition(":")[2])
            broken.infer_response.id = seen.request.id
            return broken
        response = await self._answer(script, word, seen, context)
        assert isinstance(response, pb.ModelInferResponse)
        return pb.ModelStreamInferResponse(infer_response=response)

    async def _arrived(self, request: pb.ModelInferRequest, context: Any) -> tuple[_Script, SeenCall]:
        script = await self._script(request.model_name, context)
        config = script.model.config_of(request.model_version)
        has_batch = config.max_batch_size > 0 and request.inputs and request.inputs[0].shape
        size = request.inputs[0].shape[0] if has_batch else 1
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        left = context.time_remaining()
        seen = SeenCall(request, context.peer(), math.inf if left is None else left, metadata, size)
        self.calls.append(seen)
        self.peers.add(context.peer())
        self.in_flight += 1
        await self._notify()
        return script, seen

    def _cut(self) -> None:
        """Count a call that the client gave up, as against those that `stop` cuts."""
        self.cancellations += self._server is not None

    async def _ended(self, seen: SeenCall) -> None:
        self.in_flight -= 1
        if sum(map(len, seen.request.raw_input_contents)) > _KEPT_INPUT_BYTES:
            # Only a copy frees them: a message's memory is its arena's, which never shrinks.
            del seen.request.raw_input_contents[:]
            seen.request = pb.ModelInferRequest.FromString(seen.request.SerializeToString())
        await asyncio.shield(self._notify())

    async def _script(self, name: str, context: Any) -> _Script:
        if name not in self._scripts:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        return self._scripts[name]

    async def _answer(self, script: _Script, word: Word, seen: SeenCall, context: Any) -> pb.ModelInferResponse | bytes:
        request = seen.request
        if not isinstance(word, str):
            return word(request)
        name, _, detail = word.partition(":")
        if name == "flaky_for":
            now = asyncio.get_running_loop().time()
            script.flaky_until = now + float(detail) if script.flaky_until is None else script.flaky_until
            name = "unavailable" if now < script.flaky_until else "ok"
        if name == "picky":
            name = "reject" if any(detail.encode() in raw for raw in request.raw_input_contents) else "ok"
        if name == "hang":
            await asyncio.Event().wait()
        if name in FAULTS:
            await context.abort(*FAULTS[name])
        if name == "slow":
            await asyncio.sleep(float(detail))  # stands for the engine's work
        if name == "garbage":
            return b"\xff\xff garbage"
        response = answered(script.model.config_of(request.model_version), request)
        self._count(script, seen.batch_size)
        if name == "huge":
            response.raw_output_contents[0] = bytes(int(detail))
        elif name == "typed":
            type_contents(response)
        elif name in TWISTS:
            TWISTS[name](response)
        else:
            assert name in ("ok", "slow"), f"no such word: {word}"
        return response

    def _count(self, script: _Script, size: int) -> None:
        script.inferences += size
        script.executions += 1
        script.sizes[size] += 1


def _serialized(response: Any) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()


def _next(script: _Script) -> Word:
    return script.queue.popleft() if script.queue else script.usual
