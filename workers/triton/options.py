"""How the engine is reached: addresses, limits, keepalive, TLS, and what they mean as gRPC channel arguments.

It must not read the environment; the worker's settings do, and fill this in.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

GIB: Final = 1 << 30

_STOCK_KEEPALIVE_SECONDS: Final = 310.0
_KEEPALIVE_TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Where the engine is and how to talk to it. Raises ValueError for what can't work.

    - `addresses`: `host:port` each; they serve the same models.
    - `message_bytes`: the largest request and the largest response; protobuf ends below 2 GiB.
    - `keepalive_seconds`: how often to ping a connection, busy or idle. None: every 310 s and only while calls run,
      which is all that a Triton with default options allows (it answers pings closer than 300 s, or without calls,
      with GOAWAY `too_many_pings`). Give a number only where the engine runs with
      `--grpc-keepalive-permit-without-calls=1` and `--grpc-http2-min-recv-ping-interval-without-data` below it.
    - `connect_seconds`: how long a call waits for a connection before the engine counts as unavailable.
    - `shared_bytes`: memory for inputs that an engine on the same host reads without a copy; 0: all go by gRPC.
    - `tls`: encrypt and verify the engine's certificate, against `tls_root_certificates` (PEM) or the system's roots;
      `tls_certificate` and `tls_key` (PEM) prove who we are; `tls_server_name` is expected instead of the host's name.
    """

    addresses: tuple[str, ...]
    message_bytes: int = GIB
    keepalive_seconds: float | None = None
    connect_seconds: float = 2.0
    shared_bytes: int = 0
    tls: bool = False
    tls_root_certificates: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_server_name: str | None = None

    def __post_init__(self) -> None:
        if not self.addresses or not all(address.strip() for address in self.addresses):
            raise ValueError("at least one engine address is needed, as host:port")
        if len(set(self.addresses)) != len(self.addresses):
            raise ValueError("an engine address is given twice")
        if not 0 < self.message_bytes < 2 * GIB:
            raise ValueError("message_bytes must be above 0 and below 2 GiB")
        if self.keepalive_seconds is not None and self.keepalive_seconds < 1:
            raise ValueError("keepalive_seconds must be at least 1")
        if self.connect_seconds <= 0:
            raise ValueError("connect_seconds must be above 0")
        files = (self.tls_root_certificates, self.tls_certificate, self.tls_key, self.tls_server_name)
        if not self.tls and any(files):
            raise ValueError("TLS files or names are given, but tls is off")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together")


def channel_arguments(options: EngineOptions) -> list[tuple[str, int | str]]:
    """The gRPC channel arguments that the options ask for."""
    is_tuned = options.keepalive_seconds is not None
    arguments: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", options.message_bytes),
        ("grpc.max_receive_message_length", options.message_bytes),
        ("grpc.keepalive_time_ms", int((options.keepalive_seconds or _STOCK_KEEPALIVE_SECONDS) * 1000)),
        ("grpc.keepalive_timeout_ms", int(_KEEPALIVE_TIMEOUT_SECONDS * 1000)),
        ("grpc.keepalive_permit_without_calls", int(is_tuned)),
        ("grpc.http2.max_pings_without_data", 0),
        # An engine that comes back is found within about a second, not after gRPC's usual two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 2000),  # in truth the time that one attempt to connect may take
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        # One connection per channel and address, whoever else in the process talks to the same engine.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy in the environment is meant for the outside world, not for the engine.
        ("grpc.enable_http_proxy", 0),
    ]
    if options.tls_server_name:
        arguments.append(("grpc.ssl_target_name_override", options.tls_server_name))
    return arguments


def open_channel(address: str, options: EngineOptions) -> grpc.aio.Channel:
    """A channel to one address; it connects when it is first needed.

    Raises OSError where a TLS file can't be read. Credentials belong to the channel: made once, not for each call.
    """
    arguments = channel_arguments(options)
    if not options.tls:
        return grpc.aio.insecure_channel(address, options=arguments)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(options.tls_root_certificates),
        private_key=_read(options.tls_key),
        certificate_chain=_read(options.tls_certificate),
    )
    return grpc.aio.secure_channel(address, credentials, options=arguments)


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
