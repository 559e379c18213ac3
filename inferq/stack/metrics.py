"""Where each process of the stack shows its metrics: on one port after another, from the one that was given.

Owns the order of the ports and the look whether they are free. Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferq.stack.errors import StackError
from inferq.stack.listening import open_listening_socket

PORT_VARIABLE = "INFERQ_METRICS_PORT"
HOST_VARIABLE = "INFERQ_METRICS_HOST"
DEFAULT_HOST = "127.0.0.1"
LARGEST_PORT = 65_535


@dataclass(frozen=True)
class MetricsPorts:
    """`ports` by the name of the process, none where nobody asked for metrics; `address` is what `host` resolves to."""

    host: str = DEFAULT_HOST
    address: str = DEFAULT_HOST
    ports: Mapping[str, int] = field(default_factory=dict)

    def environment(self, name: str) -> dict[str, str]:
        """What this process must be told, in place of what all inherit."""
        return {PORT_VARIABLE: str(self.ports[name])} if name in self.ports else {}

    def lines(self) -> list[str]:
        """Where to read them, a line a process."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return [f"metrics of {name}: http://{host}:{port}/metrics" for name, port in self.ports.items()]


def metrics_ports(environment: Mapping[str, str], names: Sequence[str]) -> MetricsPorts:
    """Ports for these processes in this order, if the environment names the first one.

    StackError where one of them is no port, or taken. A value that is no number is left to the processes to judge.
    """
    text, host = environment.get(PORT_VARIABLE, "").strip(), environment.get(HOST_VARIABLE) or DEFAULT_HOST
    first = int(text) if text.isascii() and text.isdigit() else 0
    if first == 0:
        return MetricsPorts()
    ports = dict(zip(names, range(first, first + len(names)), strict=True))
    addresses = [_probed(name, host, port) for name, port in ports.items()]
    return MetricsPorts(host, addresses[0], ports)


def _probed(name: str, host: str, port: int) -> str:
    """The address that the host resolves to; StackError unless the process could listen there."""
    told = f"{PORT_VARIABLE} gives port {port} to {name}"
    if port > LARGEST_PORT:
        raise StackError(f"{told}, and {LARGEST_PORT} is the largest there is: begin lower")
    try:
        with open_listening_socket(host, port) as probe:
            return str(probe.getsockname()[0])
    except StackError as error:
        raise StackError(f"{told}, and {error.reason}: name the first of as many free ports as processes") from error
