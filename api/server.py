"""The listening socket, and uvicorn on it: how the process starts, drains and stops.

It owns sockets and signals; it must not know routes.
"""

import asyncio
import math
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn

from api.app import create_app
from api.protocol import Doorman, patient_protocol
from api.services import Services
from api.settings import ApiSettings, is_loopback
from jobs.connection import Connection, StoreUnavailable
from jobs.settings import SettingsError
from jobs.store import JobStore

_BACKLOG = 4096

log = structlog.get_logger(__name__)


def open_socket(settings: ApiSettings) -> socket.socket:
    """The socket to serve on: the inherited one, or one that is bound to host and port.

    Raises SettingsError where it can't be had.
    """
    if settings.listen_fd is not None:
        try:
            listening = socket.socket(fileno=settings.listen_fd)
        except OSError as exc:
            raise SettingsError(f"INFERQ_LISTEN_FD={settings.listen_fd} is no open socket: {exc.strerror}") from exc
    else:
        listening = _bound(settings.host, settings.port)
    return listening


def _is_for_strangers(listening: socket.socket) -> bool:
    """Whether others than this machine's users can connect."""
    is_network = listening.family in (socket.AF_INET, socket.AF_INET6)
    return is_network and not is_loopback(listening.getsockname()[0])


async def _close_gate(services: Services, listening: socket.socket) -> None:
    """Let nobody in without a key; raises SettingsError where there is no key, so that nobody could come in at all.

    While Redis is away nobody can tell, and nobody comes in.
    """
    services.gate.is_needed = True
    try:
        await services.gate.refresh()
    except StoreUnavailable:
        return
    if not services.gate.has_keys:
        raise SettingsError(
            f"others reach {listening.getsockname()[0]}, so this service asks for API keys there, and there is none "
            "that lets anybody in; make one first (inferq keys create NAME), set INFERQ_HOST=127.0.0.1, or "
            "INFERQ_ALLOW_UNAUTHENTICATED=1 if the network keeps strangers out"
        )


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda info: info[0] is not socket.AF_INET)
        listening = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise SettingsError(f"INFERQ_HOST={host!r} is no address: {exc.strerror}") from exc
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as exc:
        listening.close()
        raise SettingsError(f"INFERQ_HOST={host!r}, INFERQ_PORT={port}: {exc.strerror}") from exc
    return listening


def address(host: str, port: int) -> str:
    """The base URL of a listening address, as somebody on this machine reaches it."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


async def open_store(settings: ApiSettings) -> JobStore:
    """The store, proven where Redis answers; where it does not, the api starts and waits for it.

    Raises StoreMisconfigured for a server that can't be used, and SettingsError for a URL that is none.
    """
    try:
        store, _ = await JobStore.open(settings)  # the probe logs the warnings
    except StoreUnavailable as exc:
        log.warning("starting without Redis", error=str(exc))
        return JobStore(Connection.from_settings(settings), settings)
    except ValueError as exc:
        raise SettingsError(f"INFERQ_REDIS_URL can't be used: {exc}") from exc
    return store


async def serve(settings: ApiSettings, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then finish what was begun, within `drain_seconds`."""
    store = await open_store(settings)
    app = create_app(settings, store)
    services: Services = app.state.services
    if _is_for_strangers(listening) and not settings.allow_unauthenticated:
        try:
            await _close_gate(services, listening)
        except SettingsError:
            await store.close()
            listening.close()
            raise
    config = uvicorn.Config(
        app,
        http=patient_protocol(
            settings.head_seconds,
            Doorman(settings.max_connections, settings.max_connections_per_address, settings.trusted_proxies),
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=math.ceil(settings.keep_alive_seconds),
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
    )
    await _Server(config, services).serve(sockets=[listening])
    log.info("stopped")


class _Server(uvicorn.Server):
    """uvicorn, except that long-polls end when it stops, and that a stop on request is a success."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals; uvicorn's own raises them again at the end, so that the process would die by them."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and say so."""
        await super().startup(sockets)
        for listening in sockets or ():
            name = listening.getsockname()
            log.info("listening", url=address(*name[:2]) if isinstance(name, tuple) else name)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let waiting requests answer with what is known, and then finish."""
        log.info("stopping", waiting=len(self._services.waiters))
        self._services.waiters.quiet()
        await super().shutdown(sockets)
