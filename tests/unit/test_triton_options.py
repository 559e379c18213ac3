"""How the engine is reached: gRPC's arguments, refused options, and TLS from one side and from both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from jobs.errors import EngineUnavailable
from tests.support.scripted_triton import ScriptedTriton
from workers.triton.client import TritonClient
from workers.triton.options import GIB, EngineOptions, channel_arguments

pytestmark = pytest.mark.anyio

SECONDS = 5.0
TLS = Path(__file__).parents[1] / "support" / "scripted_tls"


def arguments(**changes: Any) -> dict[str, int | str]:
    """The channel arguments for these options."""
    return dict(channel_arguments(EngineOptions(addresses=("engine:8001",), **changes)))


def test_messages_may_have_a_gibibyte_both_ways() -> None:
    """B030."""
    shown = arguments()
    assert shown["grpc.max_send_message_length"] == shown["grpc.max_receive_message_length"] == GIB


def test_pings_are_rare_enough_for_an_engine_with_default_options() -> None:
    shown = arguments()
    assert int(shown["grpc.keepalive_time_ms"]) > 300_000
    assert shown["grpc.keepalive_permit_without_calls"] == 0


def test_pings_are_as_frequent_as_the_deployment_allows() -> None:
    shown = arguments(keepalive_seconds=10.0)
    assert shown["grpc.keepalive_time_ms"] == 10_000
    assert shown["grpc.keepalive_permit_without_calls"] == 1


def test_a_reconnect_never_waits_longer_than_a_call_does() -> None:
    """B052."""
    assert int(arguments()["grpc.max_reconnect_backoff_ms"]) / 1000 < EngineOptions(addresses=("a:1",)).connect_seconds


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"addresses": ()}, "at least one engine address"),
        ({"addresses": (" ",)}, "at least one engine address"),
        ({"addresses": ("a:1", "b:1", "a:1")}, "given twice"),
        ({"message_bytes": 2 * GIB}, "message_bytes"),
        ({"message_bytes": 0}, "message_bytes"),
        ({"keepalive_seconds": 0.1}, "keepalive_seconds"),
        ({"connect_seconds": 0.0}, "connect_seconds"),
        ({"tls_key": Path("k")}, "tls is off"),
        ({"tls": True, "tls_key": Path("k")}, "belong together"),
    ],
)
def test_options_that_can_not_work_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EngineOptions(**({"addresses": ("a:1",)} | changes))


def server_credentials(*, is_mutual: bool) -> grpc.ServerCredentials:
    """The engine's own certificate; with `is_mutual` it asks for one of the authority's in return."""
    pair = ((TLS / "engine.key").read_bytes(), (TLS / "engine.pem").read_bytes())
    authority = (TLS / "authority.pem").read_bytes() if is_mutual else None
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=is_mutual)


def tls_options(engine: ScriptedTriton) -> EngineOptions:
    """Options that trust the test's authority."""
    return EngineOptions(
        addresses=(engine.address,),
        connect_seconds=0.5,
        tls=True,
        tls_root_certificates=TLS / "authority.pem",
        tls_server_name="engine.test",
    )


async def test_an_engine_with_a_trusted_certificate_is_reached_over_tls() -> None:
    """B055: the credentials belong to the channel."""
    async with (
        ScriptedTriton(credentials=server_credentials(is_mutual=False)) as engine,
        TritonClient(tls_options(engine)) as client,
    ):
        assert await client.is_ready(SECONDS)


@pytest.mark.parametrize(
    "changes",
    [{"tls_server_name": "other.test"}, {"tls_root_certificates": None}, {"tls_root_certificates": None, "tls": False}],
)
async def test_an_engine_that_is_not_the_expected_one_gets_no_request(changes: dict[str, Any]) -> None:
    """T: Triton link, spoofed server."""
    async with ScriptedTriton(credentials=server_credentials(is_mutual=False)) as engine:
        options = tls_options(engine)
        changes = changes if changes.get("tls", True) else changes | {"tls_server_name": None}
        async with TritonClient(replace(options, **changes)) as client:
            with pytest.raises(EngineUnavailable):
                await client.index(SECONDS)


async def test_an_engine_may_ask_who_calls() -> None:
    """T: Triton link, mTLS; B055."""
    async with ScriptedTriton(credentials=server_credentials(is_mutual=True)) as engine:
        anonymous = tls_options(engine)
        known = replace(anonymous, tls_certificate=TLS / "worker.pem", tls_key=TLS / "worker.key")
        async with TritonClient(known) as client:
            assert await client.is_ready(SECONDS)
        async with TritonClient(anonymous) as client:
            assert not await client.is_ready(SECONDS)


async def test_a_missing_certificate_file_is_said_at_once() -> None:
    options = EngineOptions(addresses=("127.0.0.1:1",), tls=True, tls_root_certificates=TLS / "missing.pem")
    client = TritonClient(options)
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        client.open()
    await client.close()
