"""Counters, gauges and histograms in Prometheus' text form, and the port of their own that they are read from.

It owns the form and the bounds on labels; what is measured is each process' business. Nothing else is served there.
"""

import asyncio
import bisect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Final

from jobs.settings import StoreSettings

MAX_SERIES: Final = 500
"""Of one family. What comes after is counted under OTHER: names that others choose must not fill any memory."""

OTHER: Final = "(other)"
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

_READ_SECONDS: Final = 5.0
_MAX_HEAD_BYTES: Final = 8192
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

log = logging.getLogger(__name__)

Labels = tuple[str, ...]


class Family:
    """One metric with its labels: a counter (`add`) or a gauge (`put`)."""

    def __init__(self, kind: str, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.help = help_text
        self.labels = tuple(labels)
        self._values: dict[Labels, float] = {}

    def _bounded(self, values: Labels) -> Labels:
        if values in self._values or len(self._values) < MAX_SERIES:
            return values
        return (OTHER,) * len(values)

    def add(self, amount: float, *values: str) -> None:
        """Count."""
        labels = self._bounded(values)
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def put(self, value: float, *values: str) -> None:
        """Say how it stands."""
        self._values[self._bounded(values)] = value

    def clear(self) -> None:
        """Forget all series, of things that may be gone."""
        self._values.clear()

    def lines(self) -> list[str]:
        """As Prometheus reads it."""
        head = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        return head + [f"{self.name}{_braces(self.labels, values)} {_number(n)}" for values, n in self._values.items()]


class Histogram:
    """How often a value lay below each of the bounds."""

    kind: Final = "histogram"

    def __init__(self, name: str, help_text: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_text
        self.labels = tuple(labels)
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, *values: str) -> None:
        """Count a value."""
        labels = values
        if labels not in self._counts and len(self._counts) >= MAX_SERIES:
            labels = (OTHER,) * len(values)
        counts = self._counts.setdefault(labels, [0] * (len(self._bounds) + 1))
        counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + value

    def lines(self) -> list[str]:
        """As Prometheus reads it: each count includes those below."""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        for values, counts in self._counts.items():
            total = 0
            for bound, count in zip([*map(_number, self._bounds), "+Inf"], counts, strict=True):
                total += count
                lines.append(f"{self.name}_bucket{_braces((*self.labels, 'le'), (*values, bound))} {total}")
            lines.append(f"{self.name}_sum{_braces(self.labels, values)} {_number(self._sums[values])}")
            lines.append(f"{self.name}_count{_braces(self.labels, values)} {total}")
        return lines


def _braces(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    text = value[:200].encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def text_of(families: Sequence[Family | Histogram]) -> str:
    """All families as one page."""
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def measured(settings: StoreSettings, page: Callable[[], Awaitable[str]]) -> AbstractAsyncContextManager[object]:
    """The page on the port that the settings name, if they do."""
    return served(settings.metrics_host, settings.metrics_port, page) if settings.metrics_port else nullcontext()


@asynccontextmanager
async def served(host: str, port: int, page: Callable[[], Awaitable[str]]) -> AsyncIterator[int]:
    """Answer `GET /metrics` with the page while the context lasts; gives the port, 0 where it could not be had.

    A port that is taken (by a second process on this machine) costs a warning and not the service.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                is_ours = head.startswith((b"GET /metrics ", b"GET /metrics?"))
                body = (await page()).encode() if is_ours else b"There is only /metrics here.\n"
                status = b"200 OK" if is_ours else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                    % (status, _TEXT.encode(), len(body), body)
                )
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_MAX_HEAD_BYTES)
    except OSError as exc:
        log.warning("no metrics: %s:%s can't be listened on: %s", host, port, exc.strerror)
        yield 0
        return
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
