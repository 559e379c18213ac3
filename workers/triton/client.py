"""The engine's client: one persistent channel per address, a deadline on every call, failures as JobFailure.

It must not know jobs, batches or retries: whoever calls decides what a failure means for the job.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from jobs.errors import EngineFailed, EngineUnavailable, JobFailure, ModelRejected, OutputTooLarge
from jobs.spec import ModelSpec
from workers.triton import decode
from workers.triton.describe import model_spec, versions
from workers.triton.encode import request_bytes
from workers.triton.endpoint import Endpoint
from workers.triton.messages import IndexEntry, InferCall, InferReply, ModelStatistics
from workers.triton.options import EngineOptions
from workers.triton.pb import inference_pb2 as pb
from workers.triton.shared import SharedInputs

_Method = Callable[[Endpoint], Any]


class TritonClient:
    """Calls the engine; lives as long as the process, as `async with TritonClient(options) as engine`.

    Every call takes the seconds that it may last, waiting for a connection included, and raises a JobFailure (see
    `workers.triton.errors`). Cancelling the awaiting task cancels the call in the engine. Of several addresses the
    one with the fewest calls in flight is taken; one that can't be reached, or just was unavailable, comes last.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._endpoints: tuple[Endpoint, ...] = ()
        self._picks = 0
        self._shared = SharedInputs(options.shared_bytes)

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def open(self) -> None:
        """Open the channels, inside a running event loop; each connects when it is first needed. Twice is legal.

        Raises OSError where a TLS file can't be read.
        """
        if not self._endpoints:
            self._endpoints = tuple(Endpoint(address, self._options) for address in self._options.addresses)

    async def close(self) -> None:
        """Close the channels; calls in flight fail as EngineUnavailable. Before `open`, or twice, is legal."""
        endpoints, self._endpoints = self._endpoints, ()
        await self._shared.close()
        for endpoint in endpoints:
            await endpoint.close()

    @property
    def in_flight(self) -> int:
        """Calls that have begun and not ended."""
        return sum(endpoint.in_flight for endpoint in self._endpoints)

    async def infer(self, call: InferCall, timeout_seconds: float) -> InferReply:
        """The model's one response.

        Raises ModelRejected for a message above `message_bytes` too, and OutputTooLarge for such a response.
        """
        data: bytes = await self._with_best(lambda endpoint, left: self._infer(endpoint, call, left), timeout_seconds)
        return decode.reply(call, data)

    async def _infer(self, endpoint: Endpoint, call: InferCall, timeout_seconds: float) -> Any:
        """The response of one address, whose inputs it reads from shared memory where it can."""
        deadline = _deadline(timeout_seconds)
        if self._shared.wants(call) and self._shared.is_known_to(endpoint, self._endpoints):
            with self._shared.placed(call) as placed:
                try:
                    if placed is not None:
                        request = request_bytes(call, int(_left(deadline) * 1e6), placed=placed)
                        return await endpoint.ask(endpoint.model_infer, request, _left(deadline))
                except JobFailure as failure:
                    if placed is None or placed.region not in str(failure):
                        raise
                    self._shared.forget(endpoint)
        request = self._request(call, _left(deadline))
        return await endpoint.ask(endpoint.model_infer, request, _left(deadline))

    async def infer_stream(self, call: InferCall, timeout_seconds: float) -> list[InferReply]:
        """All responses of a decoupled model, in order, once it said that there are no more.

        Raises OutputTooLarge when the responses together exceed `message_bytes`. What follows an error is read all the
        same: Triton 2.51 may die (SIGSEGV) when a stream is cut off in the moment in which the model ends it.
        """
        request = self._request(call, timeout_seconds, is_stream=True)
        replies: list[InferReply] = []
        room = self._options.message_bytes
        failure: JobFailure | None = None
        is_complete = False

        def take(response: pb.ModelStreamInferResponse) -> None:
            nonlocal room, failure, is_complete
            room -= response.ByteSize()
            if room < 0:
                raise OutputTooLarge("The model's answers are together larger than the engine's link allows.")
            try:
                reply, is_final = decode.stream_reply(response)
            except JobFailure as exc:
                failure = failure or exc
                return
            replies.extend([reply] if reply else [])
            is_complete |= is_final

        try:
            await self._with_best(
                lambda endpoint, left: endpoint.ask_stream(endpoint.model_stream_infer, request, left, take),
                timeout_seconds,
            )
        except JobFailure:
            if failure is None:
                raise
        if failure is not None:
            raise failure
        if not is_complete:
            raise EngineFailed("The engine ended the stream before its last response.")
        return replies

    def _request(self, call: InferCall, timeout_seconds: float, *, is_stream: bool = False) -> bytes:
        request = request_bytes(call, int(timeout_seconds * 1e6), is_stream=is_stream)
        limit = self._options.message_bytes
        if len(request) > limit:
            raise ModelRejected(f"The request has {len(request)} bytes; the engine's link allows {limit}.")
        return request

    async def is_live(self, timeout_seconds: float) -> bool:
        """Whether at least one address says that it is live; raises no JobFailure."""
        return await self._any(
            lambda endpoint: endpoint.stub.ServerLive, pb.ServerLiveRequest(), timeout_seconds, "live"
        )

    async def is_ready(self, timeout_seconds: float) -> bool:
        """Whether at least one address would take requests now; raises no JobFailure."""
        request = pb.ServerReadyRequest()
        return await self._any(lambda endpoint: endpoint.stub.ServerReady, request, timeout_seconds, "ready")

    async def is_model_ready(self, name: str, version: str, timeout_seconds: float) -> bool:
        """Whether at least one address would take requests for this model now; raises no JobFailure."""
        request = pb.ModelReadyRequest(name=name, version=version)
        return await self._any(lambda endpoint: endpoint.stub.ModelReady, request, timeout_seconds, "ready")

    async def index(self, timeout_seconds: float) -> tuple[IndexEntry, ...]:
        """Every model version in the repositories of one address, ready or not."""
        request = pb.RepositoryIndexRequest()
        return decode.index(await self._ask(lambda endpoint: endpoint.stub.RepositoryIndex, request, timeout_seconds))

    async def describe(self, name: str, version: str, timeout_seconds: float) -> ModelSpec:
        """What the model takes and gives, from its metadata and configurations; an empty version: all of them.

        Raises ModelNotFound where the engine doesn't serve it.
        """
        spec: ModelSpec = await self._with_best(
            lambda endpoint, left: _described(endpoint, name, version, left), timeout_seconds
        )
        return spec

    async def statistics(self, model: str, version: str, timeout_seconds: float) -> ModelStatistics:
        """The counters of a model, summed over all addresses that answer; an empty version sums over all versions."""
        return decode.statistics(await self._counters(model, version, timeout_seconds))

    async def statistics_by_model(self, timeout_seconds: float) -> dict[str, list[dict[str, Any]]]:
        """The counters of every model's versions in the engine's own words, summed over all addresses that answer."""
        return decode.statistics_by_model(await self._counters("", "", timeout_seconds))

    async def _counters(self, model: str, version: str, timeout_seconds: float) -> list[pb.ModelStatistics]:
        request = pb.ModelStatisticsRequest(name=model, version=version)
        results = await self._ask_all(lambda endpoint: endpoint.stub.ModelStatistics, request, timeout_seconds)
        answers = [result for result in results if not isinstance(result, JobFailure)]
        if not answers:
            raise results[0]
        return [entry for answer in answers for entry in answer.model_stats]

    async def _any(self, method: _Method, request: object, timeout_seconds: float, field: str) -> bool:
        results = await self._ask_all(method, request, timeout_seconds)
        return any(not isinstance(result, JobFailure) and getattr(result, field) for result in results)

    async def _ask(self, method: _Method, request: object, timeout_seconds: float) -> Any:
        """The best address's response."""
        return await self._with_best(
            lambda endpoint, left: endpoint.ask(method(endpoint), request, left), timeout_seconds
        )

    async def _with_best(self, ask: Callable[[Endpoint, float], Awaitable[Any]], timeout_seconds: float) -> Any:
        """What `ask` gives for the best connected address and the seconds left.

        Raises EngineUnavailable where none can be reached.
        """
        deadline = _deadline(timeout_seconds)
        candidates = sorted(self._opened(), key=lambda each: (each.is_doubtful(), each.in_flight, each.last_used))
        for endpoint in candidates:
            self._picks += 1
            endpoint.last_used = self._picks
            with endpoint.engaged():
                if await endpoint.connected(self._patience(deadline), is_last=endpoint is candidates[-1]):
                    return await ask(endpoint, _left(deadline))
        raise _unreachable()

    async def _ask_all(self, method: _Method, request: object, timeout_seconds: float) -> list[Any]:
        """Each address's response, or the JobFailure that it raised."""

        async def ask(endpoint: Endpoint) -> Any:
            deadline = _deadline(timeout_seconds)
            try:
                with endpoint.engaged():
                    if not await endpoint.connected(self._patience(deadline), is_last=True):
                        return _unreachable()
                    return await endpoint.ask(method(endpoint), request, _left(deadline))
            except JobFailure as failure:
                return failure

        return await asyncio.gather(*(ask(endpoint) for endpoint in self._opened()))

    def _opened(self) -> tuple[Endpoint, ...]:
        if not self._endpoints:
            raise EngineUnavailable("The engine's client is not open.")
        return self._endpoints

    def _patience(self, deadline: float) -> float:
        return min(self._options.connect_seconds, _left(deadline))


async def _described(endpoint: Endpoint, name: str, version: str, timeout_seconds: float) -> ModelSpec:
    """A model as one address has it: others may have other versions while engines are updated.

    The configuration of a version before the newest is one more call, so a model with one version has none of them.
    """
    deadline = _deadline(timeout_seconds)
    request = pb.ModelMetadataRequest(name=name, version=version)
    metadata = await endpoint.ask(endpoint.stub.ModelMetadata, request, _left(deadline))
    config = await _config(endpoint, name, version, _left(deadline))
    older = {each: await _config(endpoint, name, each, _left(deadline)) for each in versions(metadata)[:-1]}
    return model_spec(metadata, config, older)


async def _config(endpoint: Endpoint, name: str, version: str, timeout_seconds: float) -> pb.ModelConfig:
    request = pb.ModelConfigRequest(name=name, version=version)
    response: pb.ModelConfigResponse = await endpoint.ask(endpoint.stub.ModelConfig, request, timeout_seconds)
    return response.config


def _deadline(timeout_seconds: float) -> float:
    return time.monotonic() + timeout_seconds


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _unreachable() -> EngineUnavailable:
    return EngineUnavailable("The engine can't be reached.")
