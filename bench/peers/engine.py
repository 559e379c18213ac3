"""The engine as every peer calls it: one `grpc.aio` channel, one ModelInfer for one job, pictures prepared in threads.

It must not know queues or HTTP.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio

from bench.models import PHOTO, SHAPES, Shape
from jobs.datatypes import Datatype
from jobs.spec import ImageOptions, InputKind, InputSpec
from workers.prepare import prepare
from workers.triton.pb import inference_pb2 as pb
from workers.triton.pb import inference_pb2_grpc

ADDRESS = os.environ.get("BENCH_ENGINE", "127.0.0.1:8001")
TIMEOUT_SECONDS = 60.0
MESSAGE_BYTES = 64 * 1024 * 1024
OPTIONS = [("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.max_receive_message_length", MESSAGE_BYTES)]

PHOTO_SPEC = InputSpec(
    PHOTO.input,
    Datatype.UINT8,
    PHOTO.dims,
    kind=InputKind.IMAGE,
    image=ImageOptions("HWC", resize=256, crop=(224, 224), interpolation="bicubic"),
)


def infer_request(shape: Shape, data: bytes, rows: int = 1) -> pb.ModelInferRequest:
    """`rows` items as one request."""
    request = pb.ModelInferRequest(model_name=shape.name, raw_input_contents=[data])
    request.inputs.add(name=shape.input, datatype=shape.datatype, shape=(rows, *shape.dims))
    output = request.outputs.add(name=shape.output)
    if shape.classes:
        output.parameters["classification"].int64_param = shape.classes
    return request


def prepared(data: bytes, content_type: str) -> bytes:
    """The tensor of an upload: itself, unless it is a picture."""
    if not content_type.startswith("image/"):
        return data
    return bytes(prepare(data, PHOTO_SPEC, 100_000_000).data)


class Engine:
    """For asyncio: `async with Engine() as engine`."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(os.cpu_count())

    async def __aenter__(self) -> Engine:
        self._channel = grpc.aio.insecure_channel(ADDRESS, options=OPTIONS)
        self._stub: Any = inference_pb2_grpc.GRPCInferenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._channel.close()
        self._threads.shutdown()

    async def infer(self, model: str, data: bytes, content_type: str) -> bytes:
        """The output's bytes for one job."""
        if content_type.startswith("image/"):
            data = await asyncio.get_running_loop().run_in_executor(self._threads, prepared, data, content_type)
        response = await self._stub.ModelInfer(infer_request(SHAPES[model], data), timeout=TIMEOUT_SECONDS)
        return bytes(response.raw_output_contents[0])


class BlockingEngine:
    """For threads and forked processes: the channel opens with the first call, after the fork."""

    def __init__(self) -> None:
        self._stub: Any = None

    def infer(self, model: str, data: bytes, content_type: str) -> bytes:
        """The output's bytes for one job."""
        if self._stub is None:
            channel = grpc.insecure_channel(ADDRESS, options=OPTIONS)
            self._stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)  # type: ignore[no-untyped-call]
        request = infer_request(SHAPES[model], prepared(data, content_type))
        return bytes(self._stub.ModelInfer(request, timeout=TIMEOUT_SECONDS).raw_output_contents[0])
