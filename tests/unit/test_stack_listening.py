"""Which addresses the stack listens on, and what it says about those it refuses."""

from __future__ import annotations

import socket

import pytest

from inferq.stack.errors import StackError
from inferq.stack.listening import is_for_strangers, open_listening_socket, reachable_address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_loopback_is_for_this_machine(host: str) -> None:
    with open_listening_socket(host, 0) as listener:
        assert not is_for_strangers(listener)
        address = reachable_address(listener)
        with socket.create_connection(address, timeout=5):
            pass


def test_a_socket_for_strangers_is_told_apart_and_reached_on_loopback() -> None:
    with open_listening_socket("0.0.0.0", 0) as listener:
        assert is_for_strangers(listener)
        host, port = reachable_address(listener)
        assert host == "127.0.0.1"
        with socket.create_connection((host, port), timeout=5):
            pass


def test_a_taken_port_is_named_with_what_may_have_it_and_what_to_do() -> None:
    with open_listening_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        said = f"can't listen on 127.0.0.1:{port}: Address already in use; another `inferq up` may .* another --port"
        with pytest.raises(StackError, match=said):
            open_listening_socket("127.0.0.1", port)


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(StackError, match=r"host 'no\.such\.host\.invalid' can't be resolved"):
        open_listening_socket("no.such.host.invalid", 0)
