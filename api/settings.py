"""The settings of the api process.

It owns their names, units and limits; it opens nothing, and who may reach the socket is judged where it is opened.
"""

import ipaddress
import re
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from jobs.settings import Seconds, WebhookSettings

MEBIBYTE = 1024 * 1024
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", re.ASCII)


class ApiSettings(WebhookSettings):
    """Everything that `INFERQ_*` can say to `python -m api`."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8080, ge=0, le=65_535, description="port to listen on; 0 takes a free one")
    listen_fd: int | None = Field(
        None, ge=3, description="inherited listening socket, in place of host and port; several processes may share one"
    )
    allow_unauthenticated: bool = Field(
        False, description="listen beyond loopback although there is no API key; once there is one, it is needed"
    )
    allow_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="web origins whose pages may call the api, separated by commas; * for all"
    )
    max_body_bytes: int = Field(
        64 * MEBIBYTE, ge=1024, le=1024 * MEBIBYTE, description="largest request body; larger ones are refused with 413"
    )
    max_json_bytes: int = Field(
        32 * MEBIBYTE,
        ge=1024,
        le=1024 * MEBIBYTE,
        description="largest JSON document in a body; parsed it takes far more",
    )
    upload_bytes: int = Field(
        512 * MEBIBYTE, ge=1024, description="request bodies that one process holds at once; else 503"
    )
    result_bytes: int = Field(
        512 * MEBIBYTE, ge=1024, description="large results that one process holds at once to send them; else 503"
    )
    max_connections: int = Field(10_000, ge=1, description="connections that one process keeps at once; else 503")
    max_connections_per_address: int = Field(
        1000, ge=1, description="connections from one address; trusted proxies are not counted"
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="addresses and networks, by commas, whose X-Forwarded-For and -Proto are believed"
    )
    max_pixels: int = Field(100_000_000, ge=1, description="largest picture that is accepted, in pixels")
    max_wait_seconds: Seconds = Field(60.0, description="longest long-poll")
    call_queue_seconds: Seconds = Field(
        60.0, description="how long a synchronous call of /v2 may wait in the queue, unless it says so itself"
    )
    heartbeat_seconds: Seconds = Field(15.0, description="how often a silent stream of events shows that it lives")
    inline_output_bytes: int = Field(
        256 * 1024, ge=0, le=16 * MEBIBYTE, description="largest output, as JSON, that is part of the job object"
    )
    head_seconds: Seconds = Field(10.0, description="how long the head of a request may take to arrive")
    keep_alive_seconds: Seconds = Field(75.0, description="how long an idle connection is kept open")
    drain_seconds: Seconds = Field(30.0, description="how long requests may take to finish after SIGTERM")
    access_log: bool = Field(True, description="log one line per request")
    docs: bool = Field(True, description="serve /docs and /openapi.json")

    @field_validator("allow_origins", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("allow_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin: scheme://host, with :port where it is not the usual one, or *"
                )
        return tuple(origin.lower() for origin in value)

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network)
        return value


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; a name other than localhost counts as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
