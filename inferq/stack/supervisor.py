"""Keeps a list of servers alive: started in order, restarted when they die, stopped in reverse order.

Owns order, backoff and the report of what happens. Must not know what a server does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from signal import SIGKILL, SIGTERM

from inferq.stack.errors import StackError
from inferq.stack.readiness import POLL_SECONDS, Report, Server, Start, ending, raise_if_ended, raise_if_late

WATCH_SECONDS = 0.2
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A server that has run for so long has recovered: its next death counts as its first."""
TOLD_LINES = 5
"""Of so many lines of its log are a server's last words, where it died of itself."""
FROM_OUTSIDE = (-SIGKILL, -SIGTERM)


def restart_delay_seconds(deaths: int) -> float:
    """How long to wait before the restart after the n-th death in a row, counted from 1: doubled each time, bounded."""
    return float(min(FIRST_BACKOFF_SECONDS * 2 ** min(deaths - 1, 16), LONGEST_BACKOFF_SECONDS))


@dataclass
class Watched:
    """A server and its recent history; instants are of the monotonic clock."""

    server: Server
    started_at: float
    deaths: int = 0
    restart_at: float | None = None
    restart: Start | None = None


class Supervisor:
    """Starts servers stage by stage, keeps them running, stops them in reverse; reports one line per event.

    `launch` and `wait_ready` make a stage; `run` watches all stages until it is cancelled; `stop` ends everything, is
    legal at any time and twice. All run on one event loop in the main thread (see `Process.start`).
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._stages: list[list[Watched]] = []

    def launch(self, *servers: Server) -> None:
        """Start the servers of the next stage without waiting for them."""
        stage: list[Watched] = []
        self._stages.append(stage)
        for server in servers:
            server.launch()
            stage.append(Watched(server, started_at=time.monotonic()))

    async def wait_ready(self, *servers: Server, timeout_seconds: float) -> None:
        """Return once all are ready, one line each.

        StackError when any server of the stack ends, or about the one that is not ready when time is up.
        """
        started_at = time.monotonic()
        waiting = list(servers)
        starts = {server.name: Start(server, started_at, self._report) for server in servers}
        while waiting:
            if await asyncio.to_thread(waiting[0].is_ready) and waiting[0].process.is_running:
                self._report(f"{waiting.pop(0).name} ready")
                continue
            for watched in self._watched():
                raise_if_ended(watched.server)
            await asyncio.to_thread(starts[waiting[0].name].look, time.monotonic())
            raise_if_late(waiting[0], started_at + timeout_seconds, timeout_seconds)
            await asyncio.sleep(POLL_SECONDS)

    async def run(self) -> None:
        """Watch all servers until cancelled."""
        while True:
            self.run_once(time.monotonic())
            await asyncio.sleep(WATCH_SECONDS)

    def run_once(self, now: float) -> None:
        """Notice deaths, and restart what is due."""
        for watched in self._watched():
            process = watched.server.process
            if process.is_running:
                self._look(watched, now)
            elif watched.restart_at is None:
                last_words = [] if process.exit_status in FROM_OUTSIDE else process.last_log_lines(TOLD_LINES)
                self._died(watched, now, f"ended with {ending(process)}", last_words)
            elif now >= watched.restart_at:
                self._restart(watched, now)

    def _look(self, watched: Watched, now: float) -> None:
        """End a server that hangs in its restart; another try may find what it misses."""
        if watched.restart is None:
            return
        try:
            watched.restart.look(now)
        except StackError as error:
            watched.server.process.kill()
            self._died(watched, now, "can't start", error.log_lines[:TOLD_LINES])
            return
        if watched.restart.is_over:
            watched.restart = None

    def _died(self, watched: Watched, now: float, reason: str, last_words: Sequence[str]) -> None:
        watched.deaths = 1 if now - watched.started_at >= STEADY_SECONDS else watched.deaths + 1
        self._schedule(watched, now, reason)
        for line in last_words:
            self._report(f"  | {line}")

    def _schedule(self, watched: Watched, now: float, reason: str) -> None:
        delay = restart_delay_seconds(watched.deaths)
        watched.restart_at, watched.restart = now + delay, None
        self._report(f"{watched.server.name} {reason}, restarting in {delay:g} s")

    def _restart(self, watched: Watched, now: float) -> None:
        try:
            watched.server.launch()
        except (OSError, StackError) as error:  # a full disk, say: the others go on, and this one is tried again
            watched.deaths += 1
            self._schedule(watched, now, f"can't be started ({error})")
            return
        watched.started_at, watched.restart_at = now, None
        watched.restart = Start(watched.server, now, self._report, is_restart=True)
        self._report(f"{watched.server.name} restarted")

    async def stop(self) -> None:
        """Stop stage after stage, last one first; the servers of a stage stop together."""
        while self._stages:
            await asyncio.gather(*(asyncio.to_thread(watched.server.stop) for watched in self._stages[-1]))
            self._stages.pop()

    def running(self) -> list[str]:
        """The names of the servers that run now."""
        return [watched.server.name for watched in self._watched() if watched.server.process.is_running]

    def kill_one(self, name: str) -> None:
        """End one server as a crash would; `run` brings it back. KeyError for a name that nothing here has."""
        {watched.server.name: watched.server for watched in self._watched()}[name].process.kill()

    def kill(self) -> None:
        """End everything at once, for a person who asks a second time; a running `stop` then returns soon."""
        for watched in self._watched():
            watched.server.process.kill()

    def _watched(self) -> list[Watched]:
        return [watched for stage in self._stages for watched in stage]
