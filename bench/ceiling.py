"""What the bare engine gives: ModelInfer calls of fixed size, so many at a time, with nothing in between.

It owns the calls; which model and which sizes is the caller's choice.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from bench.models import Shape
from bench.peers.engine import MESSAGE_BYTES, infer_request

_METHOD: Final = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True, slots=True)
class Bare:
    """Rows a second for calls of `rows` rows, `concurrency` at a time."""

    rows: int
    concurrency: int
    rate: float


class BareEngine:
    """Calls with bytes that were made before, on one channel: `async with BareEngine(address) as engine`."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def __aenter__(self) -> BareEngine:
        limits = [("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.max_receive_message_length", MESSAGE_BYTES)]
        self._channel = grpc.aio.insecure_channel(self._address, options=limits)
        self._call: Any = self._channel.unary_unary(_METHOD)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._channel.close()

    async def rate(self, shape: Shape, item: bytes, rows: int, concurrency: int, seconds: float) -> Bare:
        """Measured over calls that ended within `seconds`."""
        request = infer_request(shape, item * rows, rows).SerializeToString()
        await self._call(request)
        started = time.perf_counter()
        ends_at, done, last = started + seconds, 0, started

        async def loop() -> None:
            nonlocal done, last
            while time.perf_counter() < ends_at:
                await self._call(request)
                done += rows
                last = time.perf_counter()

        await asyncio.gather(*(loop() for _ in range(concurrency)))
        return Bare(rows, concurrency, done / (last - started))

    async def latency(self, shape: Shape, item: bytes, calls: int) -> list[float]:
        """Seconds of single calls with one row, one after another."""
        request = infer_request(shape, item).SerializeToString()
        seconds = []
        for _ in range(calls + 3):
            started = time.perf_counter()
            await self._call(request)
            seconds.append(time.perf_counter() - started)
        return seconds[3:]
