"""Which addresses the stack listens on, and what it says about those it refuses."""

from __future__ import annotations

import socket

import pytest

from inferq.stack.errors import StackError
from inferq.stack.listening import open_listening_socket, reachable_address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_loopback_needs_no_permission(host: str) -> None:
    with open_listening_socket(host, 0, {}) as listener:
        address = reachable_address(listener)
        with socket.create_connection(address, timeout=5):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
@pytest.mark.parametrize("environment", [{}, {"INFERQ_ALLOW_UNAUTHENTICATED": "0"}], ids=["unset", "0"])
def test_listening_beyond_loopback_is_refused_with_the_way_out(host: str, environment: dict[str, str]) -> None:
    """T: Config: a default must not be open to everybody."""
    with pytest.raises(StackError, match="INFERQ_ALLOW_UNAUTHENTICATED=1"):
        open_listening_socket(host, 0, environment)


def test_whoever_allows_it_listens_everywhere_and_is_reached_on_loopback() -> None:
    with open_listening_socket("0.0.0.0", 0, {"INFERQ_ALLOW_UNAUTHENTICATED": "1"}) as listener:
        host, port = reachable_address(listener)
        assert host == "127.0.0.1"
        with socket.create_connection((host, port), timeout=5):
            pass


def test_a_taken_port_is_named() -> None:
    with open_listening_socket("127.0.0.1", 0, {}) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StackError, match=f"can't listen on 127.0.0.1:{port}: Address already in use"):
            open_listening_socket("127.0.0.1", port, {})


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(StackError, match=r"host 'no\.such\.host\.invalid' can't be resolved"):
        open_listening_socket("no.such.host.invalid", 0, {})
