"""Settings of an inference worker, read once at start.

It owns their names, defaults and dangers; nothing else in the package reads the environment.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, FilePath, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from jobs.settings import Seconds, StoreSettings

_MIB = 1 << 20


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class WorkerSettings(StoreSettings):
    """How a worker reaches the engine, how much it holds at once, and how it leaves."""

    engine: Annotated[tuple[str, ...], NoDecode] = Field(
        ("127.0.0.1:8001",), min_length=1, description="gRPC addresses of the engine: host:port, separated by commas"
    )
    engine_message_bytes: int = Field(1024 * _MIB, ge=_MIB, le=(1 << 31) - 1, description="largest gRPC message")
    engine_shared_bytes: int = Field(
        64 * _MIB, ge=0, description="memory shared with an engine on the same host, for large inputs; 0 = none"
    )
    engine_keepalive_seconds: float = Field(
        0.0, ge=0, description="interval of gRPC pings; 0 = only what a stock Triton accepts (300)"
    )
    engine_tls: bool = Field(False, description="encrypt the connection to the engine and verify its certificate")
    engine_ca_file: FilePath | None = Field(
        None, description="certificates, PEM, that the engine's own must come from, in place of the system's"
    )
    engine_cert_file: FilePath | None = Field(None, description="our certificate for the engine, PEM, for mutual TLS")
    engine_key_file: FilePath | None = Field(None, description="its key, PEM")
    engine_server_name: str = Field("", description="name in the engine's certificate, where it is not the host's")
    models: Annotated[tuple[str, ...], NoDecode] = Field((), description="models to serve, by commas; all if empty")
    registry_seconds: Seconds = Field(5.0, description="how often the engine is asked for its models")
    reload_grace_seconds: float = Field(20.0, ge=0, description="how long a model may be gone before its jobs fail")
    lease_seconds: float = Field(12.0, ge=1, le=60, description="a worker that is silent for so long loses its jobs")
    drain_seconds: float = Field(30.0, ge=0, description="how long running batches may take to end after SIGTERM")
    prepare_threads: int = Field(default_factory=_cores, ge=1, le=256, description="threads that decode uploads")
    max_pixels: int = Field(100_000_000, ge=1, description="largest picture that is decoded, in pixels")
    decode_bytes: int = Field(
        1024 * _MIB,
        ge=_MIB,
        description="memory that decoders of pictures may take at once, by the pictures' headers: 4 bytes a pixel of "
        "JPEG, 16 of others; a picture that takes more is decoded alone",
    )
    inflight_bytes: int = Field(256 * _MIB, ge=_MIB, description="request payloads that a worker holds at once")
    max_output_bytes: int = Field(256 * _MIB, ge=1024, le=512 * _MIB, description="largest result of one job")
    target_latency_ms: float = Field(0.0, ge=0, description="longest engine call that batching may cause; 0 = any")

    @field_validator("engine_ca_file", "engine_cert_file", "engine_key_file", "engine_server_name")
    @classmethod
    def _check_engine_tls(cls, value: Path | str | None, info: ValidationInfo) -> Path | str | None:
        if value and not info.data.get("engine_tls"):
            raise ValueError("this has no meaning unless INFERQ_ENGINE_TLS is on")
        if info.field_name == "engine_key_file" and (value is None) != (info.data.get("engine_cert_file") is None):
            raise ValueError("a certificate and its key belong together")
        return value

    @field_validator("engine", "models", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value
