"""Which ports the stack's processes show their metrics on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from inferq.stack import StackError, StackOptions
from inferq.stack.metrics import MetricsPorts, metrics_ports
from inferq.stack.ports import free_port


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        yield listener.getsockname()[1]


def test_nobody_has_a_port_unless_one_is_given() -> None:
    for environment in ({}, {"INFERQ_METRICS_PORT": "0"}, {"INFERQ_METRICS_PORT": ""}, {"INFERQ_METRICS_PORT": "x"}):
        ports = metrics_ports(environment, ["api-1"])
        assert (ports.lines(), ports.environment("api-1")) == ([], {})


def test_processes_get_one_port_after_another_and_an_engine_of_our_own_the_last() -> None:
    names = StackOptions(api=2, workers=1, webhook_workers=1).names
    assert names == ["api-1", "api-2", "worker-1", "webhook-worker-1", "triton"]
    assert StackOptions(workers=0, webhook_workers=0, engine="127.0.0.1:8001").names == ["api-1"]
    ports = MetricsPorts("::1", "::1", {"api-1": 9400, "triton": 9401})
    assert ports.environment("api-1") == {"INFERQ_METRICS_PORT": "9400"}
    assert ports.lines() == [
        "metrics of api-1: http://[::1]:9400/metrics",
        "metrics of triton: http://[::1]:9401/metrics",
    ]


def test_the_address_of_a_named_host_is_found() -> None:
    port = free_port()
    ports = metrics_ports({"INFERQ_METRICS_PORT": str(port), "INFERQ_METRICS_HOST": "localhost"}, ["api-1"])
    assert (ports.host, ports.ports) == ("localhost", {"api-1": port})
    assert ports.address in ("127.0.0.1", "::1")


def test_a_port_that_is_taken_is_told_with_whose_it_would_be(taken_port: int) -> None:
    with pytest.raises(StackError, match=rf"PORT gives port {taken_port} to worker-1, and can't listen on"):
        metrics_ports({"INFERQ_METRICS_PORT": str(taken_port)}, ["worker-1"])


def test_ports_end_somewhere() -> None:
    with pytest.raises(StackError, match="begin lower"):
        metrics_ports({"INFERQ_METRICS_PORT": "65536"}, ["api-1"])
