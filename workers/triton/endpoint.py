"""One engine address: its channel, its calls in flight, and whether it is worth a try.

It must not know what the calls mean, nor that there are other addresses.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from jobs.errors import EngineUnavailable, JobFailure
from workers.triton.errors import failure_of
from workers.triton.options import EngineOptions, open_channel
from workers.triton.pb import inference_pb2 as pb
from workers.triton.pb import inference_pb2_grpc

_SERVICE: Final = "/inference.GRPCInferenceService"

_REST_SECONDS: Final = 1.0
"""How long an address that answered "unavailable" is tried last."""

_FAREWELL_SECONDS: Final = 1.0
"""How long `close` waits at most for the last operations to end."""

_LENIENCE_SECONDS: Final = 0.1
"""How long a call that was left may go on before it is cancelled; most have ended by then."""

_READY: Final = grpc.ChannelConnectivity.READY
_BROKEN: Final = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Endpoint:
    """A persistent channel to one address, opened by the constructor inside a running event loop.

    `model_infer` takes and gives serialized messages and `model_stream_infer` takes them: their copies cost something.
    """

    def __init__(self, address: str, options: EngineOptions) -> None:
        self.address = address
        self.in_flight = 0
        self.last_used = 0
        self._resting_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._watch: asyncio.Task[None] | None = None
        self._channel = open_channel(address, options)
        self.stub: Any = inference_pb2_grpc.GRPCInferenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.model_infer: Any = self._channel.unary_unary(f"{_SERVICE}/ModelInfer")
        self.model_stream_infer: Any = self._channel.stream_stream(
            f"{_SERVICE}/ModelStreamInfer", response_deserializer=pb.ModelStreamInferResponse.FromString
        )

    def is_doubtful(self) -> bool:
        """The last attempt to connect failed, or the engine said a moment ago that it is unavailable."""
        return self._channel.get_state() is _BROKEN or self._loop.time() < self._resting_until

    @contextlib.contextmanager
    def engaged(self) -> Iterator[None]:
        """Count a call as in flight, from the choice of this address to the call's end."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def connected(self, timeout_seconds: float, *, is_last: bool) -> bool:
        """Whether the channel is connected, waiting for it up to `timeout_seconds`.

        With `is_last` it waits through failed attempts, as there is no better address; else the first failure ends it.
        A call is made only when this is true. So an engine that restarted while nobody called costs a reconnect and no
        failed call; and a call that fails although it was made may have run, so that nothing here repeats it.
        """
        deadline = self._loop.time() + timeout_seconds
        while (state := self._channel.get_state(try_to_connect=True)) is not _READY:
            if state is _BROKEN and not is_last:
                return False
            if not await self._leaves(state, deadline - self._loop.time()) or self._is_closed:
                return False
        return True

    async def _leaves(self, state: grpc.ChannelConnectivity, timeout_seconds: float) -> bool:
        """Whether the channel's state changes in time; all waiters share one watch."""
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watched(state))
        done, _ = await asyncio.wait({self._watch}, timeout=max(timeout_seconds, 0))
        return bool(done)

    async def _watched(self, state: grpc.ChannelConnectivity) -> None:
        if not self._is_closed:  # it may have been closed before this task's first step
            await self._channel.wait_for_state_change(state)

    async def ask(self, method: Any, request: Any, timeout_seconds: float) -> Any:
        """The response to a unary call. Raises the JobFailure that its status means; cancelled on every way out."""
        call = method(request, timeout=timeout_seconds)
        with self._over(call):
            # Waiting for the status alone, not for `call`: a cancellation must not reach the task that gRPC runs the
            # call in. A batch of operations whose task is cancelled is never freed, the whole request included
            # (github.com/grpc/grpc/issues/43360).
            await call.code()
            return await call

    async def ask_stream(self, method: Any, request: Any, timeout_seconds: float, take: Callable[[Any], None]) -> None:
        """Give each response to one streamed request to `take`, until the engine ends the stream.

        Fails and cleans up as `ask` does, also when `take` raises. (A generator would be nicer to read, but one that is
        left while it waits is not closed before it is collected.)
        """
        # Not with the metadata `triton_grpc_error`, which would give failures of a running model a status: Triton 2.51
        # then ends the stream at the first one, and dies (SIGSEGV) when the model sends its last response after that.
        call = method(timeout=timeout_seconds)
        with self._over(call):
            with contextlib.suppress(grpc.aio.InternalError):  # it has ended already; reading tells how
                await call.write(request)
                await call.done_writing()
            while (response := await call.read()) is not grpc.aio.EOF:
                take(response)

    @contextlib.contextmanager
    def _over(self, call: Any) -> Iterator[None]:
        """See a call to its end: translate its failure, and cancel it whatever happened."""
        try:
            yield
        except grpc.aio.AioRpcError as exc:
            raise self._failure(exc) from exc
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancels this task: a channel that is being closed cancels its calls, which looks the same.
            raise EngineUnavailable("The connection to the engine was closed.") from exc
        finally:
            if not call.done():
                self._see_off(call)

    def _see_off(self, call: Any) -> None:
        """Have a call that was left ended, and keep hold of it until gRPC has let go of it: `close` waits for that."""
        if self._is_closed or self._loop.is_closed():
            _cancel(call)
            return
        task = self._loop.create_task(_ended(call))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _failure(self, exc: grpc.aio.AioRpcError) -> JobFailure:
        failure = failure_of(exc.code(), exc.details())
        if isinstance(failure, EngineUnavailable):
            self._resting_until = self._loop.time() + _REST_SECONDS
        return failure

    async def close(self) -> None:
        """Close the channel; calls in flight fail as EngineUnavailable. Twice is legal."""
        self._is_closed = True
        await self._channel.close()
        last = self._leaving | ({self._watch} if self._watch else set())
        if last:
            # gRPC's threads report the end of each operation to this loop; it must not be gone by then.
            await asyncio.wait(last, timeout=_FAREWELL_SECONDS)


async def _ended(call: Any) -> None:
    """Return once a call is over; it is cancelled when it does not end by itself.

    Not at once: Triton 2.51 may die (SIGSEGV) of a cancellation that meets the end of its call, and most calls are
    short. Measured with calls of 0 to 4 ms: one death in about 6,000.
    """
    end = asyncio.ensure_future(_end_of(call))
    await asyncio.wait({end}, timeout=_LENIENCE_SECONDS)
    if not call.done():
        _cancel(call)
    await end


async def _end_of(call: Any) -> None:
    with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
        await (call if isinstance(call, grpc.aio.UnaryUnaryCall) else call.code())


def _cancel(call: Any) -> None:
    """A call that is only dropped lives on in the engine. The public cancel() would also cancel gRPC's task."""
    call._cancel("the caller left")
