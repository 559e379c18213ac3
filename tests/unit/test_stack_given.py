"""What is handed to the stack is looked at first: what isn't there is named, and a password never is."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from inferq.stack.errors import StackError
from inferq.stack.given import check_engine, check_redis

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
async def test_a_redis_that_is_not_there_is_named_without_its_password(dead_port: int, user: str) -> None:
    with pytest.raises(StackError, match=rf"^no Redis answers at redis://\*\*\*@127.0.0.1:{dead_port}/0$"):
        await check_redis(f"redis://{user}:s3cret@127.0.0.1:{dead_port}/0?password=s3cret", 0)


@pytest.mark.parametrize("form", ["redis://:p@127.0.0.1:{}/0", "redis+sentinel://127.0.0.1:{},127.0.0.1:1/main/0"])
async def test_a_redis_or_a_sentinel_that_is_there_is_enough(live_port: int, form: str) -> None:
    await check_redis(form.format(live_port), 0)


async def test_a_url_of_another_kind_is_left_to_the_api_to_judge() -> None:
    await check_redis("http://127.0.0.1:1", 0)
    await check_redis("redis://[broken", 0)
