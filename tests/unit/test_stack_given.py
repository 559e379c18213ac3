"""What is handed to the stack is looked at first: what isn't there is named, and a password never is."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferq.stack import StackEnvironment, StackError
from inferq.stack.asking import ask
from inferq.stack.given import check_engine, check_redis, unknown_variables
from inferq.stack.ports import free_port
from tests.failure.sentinels import SERVICE, start_sentinel
from tests.support.eventually import eventually
from tests.support.processes import command_line, descendants, is_alive
from tests.support.servers import StartValkey

pytestmark = pytest.mark.anyio


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that is taken and refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def live_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_an_engine_that_is_not_there_is_named(dead_port: int) -> None:
    with pytest.raises(StackError, match=f"^no engine answers at 127.0.0.1:{dead_port}$"):
        await check_engine(f"127.0.0.1:{dead_port}", 0)


async def test_one_engine_of_several_is_enough(dead_port: int, live_port: int) -> None:
    await check_engine(f"127.0.0.1:{dead_port}, 127.0.0.1:{live_port}", 0)


@pytest.mark.parametrize("user", ["", "me"])
async def test_a_redis_that_is_not_there_is_waited_for_and_named_without_its_password(
    dead_port: int, user: str
) -> None:
    told: list[str] = []
    with pytest.raises(
        StackError, match=rf"^no Redis at redis://\*\*\*@127.0.0.1:{dead_port}/0 within 0\.1 s: .* 111 "
    ):
        await check_redis(
            f"redis://{user}:s3cret@127.0.0.1:{dead_port}/0?password=s3cret", os.environ, told.append, 0.1
        )
    assert all(line.startswith(f"waiting for Redis at redis://***@127.0.0.1:{dead_port}/0: ") for line in told)


async def test_what_is_waited_for_is_told_once_with_the_reason(dead_port: int) -> None:
    url, told = f"redis+sentinel://127.0.0.1:{dead_port}/main", list[str]()
    with pytest.raises(StackError, match="a primary for the service 'main', and not all of them answer"):
        await check_redis(url, os.environ, told.append, 3)
    (line,) = told
    assert line.startswith(f"waiting for Redis at {url}: no Sentinel names a primary")


@pytest.mark.server
async def test_what_only_a_person_can_mend_is_not_waited_for(start_valkey: StartValkey) -> None:
    told: list[str] = []
    valkey = start_valkey(password="right")
    await check_redis(valkey.url, os.environ, told.append)
    wrong = {
        f"redis://:s3cret@127.0.0.1:{valkey.port}/0": "Redis refuses our credentials: invalid username-password pair",
        f"{valkey.url.removesuffix('0')}99": "Redis refused a call: DB index is out of range",
        "http://127.0.0.1:1": "INFERQ_REDIS_URL is no address of Redis: it begins with redis://, rediss://, unix://, "
        r"redis\+sentinel://, rediss\+sentinel://$",
        "redis://[broken": "INFERQ_REDIS_URL is no address of Redis: Invalid IPv6 URL",
    }
    for url, why in wrong.items():
        with pytest.raises(StackError, match=rf"^Redis at .* can't be used: {why}") as caught:
            await check_redis(url, os.environ, told.append)
        assert "s3cret" not in str(caught.value)
    assert told == []


@pytest.mark.server
async def test_a_service_that_no_sentinel_knows_and_a_sentinel_taken_for_redis_are_told(
    start_valkey: StartValkey, stack_environment: StackEnvironment, tmp_path: Path
) -> None:
    primary, port = start_valkey(), free_port()
    sentinel = start_sentinel(stack_environment, tmp_path / "sentinel", port, primary.port)
    try:
        told: list[str] = []
        await check_redis(f"redis+sentinel://127.0.0.1:{port}/{SERVICE}/0", os.environ, told.append)
        with pytest.raises(StackError, match=r"within 0 s: no Sentinel names a primary for the service 'nobody'$"):
            await check_redis(f"redis+sentinel://127.0.0.1:{port}/nobody/0", os.environ, told.append, 0)
        with pytest.raises(StackError, match="can't be used: This is a Sentinel"):
            await check_redis(f"redis://127.0.0.1:{port}/0", os.environ, told.append)
    finally:
        sentinel.kill()


async def test_a_question_that_nobody_waits_for_any_more_is_not_asked_on() -> None:
    def asked() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if "time.sleep(600)" in command_line(pid)]

    async def is_asked() -> bool:
        return bool(asked())

    asking = asyncio.create_task(ask(os.environ, "timeit", "-n1", "-r1", "import time; time.sleep(600)"))
    try:
        await eventually(is_asked)
        (pid,) = asked()
    finally:
        asking.cancel()
        await asyncio.wait([asking])
    assert not is_alive(pid)


async def test_a_variable_that_nothing_reads_is_named() -> None:
    assert await unknown_variables({"PATH": os.defpath}) == []
    (sentence,) = await unknown_variables({"INFERQ_MAX_QUEUE": "7", "INFERQ_PORT": "0"})
    assert sentence == "INFERQ_MAX_QUEUE is set, and nothing reads it; INFERQ_MAX_QUEUED may be meant."
