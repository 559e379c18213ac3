"""T: Results: what results cost a process while they are sent, however slowly they are read."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from starlette.types import Message

from api.budget import Budget, too_many_results
from api.problems import Problem
from api.sending import LARGE_BYTES, LargeResponse, holding, sent
from jobs.datatypes import Datatype
from jobs.record import Outcome, OutputPart
from jobs.tensors import Tensor
from tests.api.conftest import emptied
from tests.api.harness import MODEL, Api, Backend, Hand, fp32_input, identity_spec, open_hand, running_api, until
from tests.api.processes import ApiProcess, api_process
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

OCTETS = {"Accept": "application/octet-stream"}
INFER = f"/v2/models/{MODEL}/infer"
ELEMENTS = 1_000_000
DATA = np.random.default_rng(7).random(ELEMENTS, "f4").tobytes()
LARGE = Tensor("y", Datatype.FP32, (1, ELEMENTS), DATA)
READERS = 6
SIZE = 24 * 1024 * 1024  # six at once would take nearly nine times as much
BIG = np.random.default_rng(8).bytes(SIZE)


def outcome(nbytes: int) -> Outcome:
    return Outcome(outputs=(OutputPart("y", Datatype.UINT8, (nbytes,), nbytes),))


async def _nowhere() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def send_to_nobody(message: Message) -> None:
    raise ConnectionResetError


async def test_a_large_body_goes_out_in_pieces_under_its_length() -> None:
    body = bytes(range(256)) * 8192
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    response = sent([b"head", memoryview(body)], {}, "a/b")
    assert response.headers["content-length"] == str(4 + len(body))
    await response({"type": "http"}, _nowhere, send)
    pieces = [message["body"] for message in messages[1:]]
    assert b"".join(pieces) == b"head" + body
    assert max(map(len, pieces)) <= 256 * 1024
    assert sent([b"head", b"small"], {}, "a/b").body == b"headsmall"


async def test_a_share_is_given_back_when_the_answer_ends_and_when_it_can_not_be_sent() -> None:
    budget = Budget(3 * LARGE_BYTES, too_many_results)
    with holding(budget, outcome(2 * LARGE_BYTES)) as hold:
        response = sent([bytes(2 * LARGE_BYTES)], {}, "a/b")
        hold.hand_over(response)
    assert budget.used_bytes == 2 * LARGE_BYTES
    with pytest.raises(Problem, match="too_many_results"), holding(budget, outcome(2 * LARGE_BYTES)):
        raise AssertionError("it is read all the same")
    with holding(budget, outcome(LARGE_BYTES)) as small:
        small.hand_over(sent([b"small"], {}, "a/b"))
    assert budget.used_bytes == 2 * LARGE_BYTES
    with pytest.raises(ConnectionResetError):
        await response({"type": "http"}, _nowhere, send_to_nobody)
    assert budget.used_bytes == 0


def test_one_that_is_alone_may_be_larger_than_the_budget_and_counts_with_what_it_became() -> None:
    budget = Budget(LARGE_BYTES, too_many_results)
    with holding(budget, outcome(2 * LARGE_BYTES)) as hold:
        response = sent([bytes(5 * LARGE_BYTES)], {}, "a/b")
        hold.hand_over(response)
    assert budget.used_bytes == 5 * LARGE_BYTES
    assert isinstance(response, LargeResponse)
    response.held.close()
    assert budget.used_bytes == 0


@pytest.fixture
async def tight(backend: Backend) -> AsyncIterator[Api]:
    """An application that sends one large result at a time."""
    async with running_api(backend, models=[identity_spec()], result_bytes=LARGE.nbytes) as api:
        yield api


async def large_result(api: Api) -> str:
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), LARGE)
    return f"/jobs/{job_id}/result"


@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream", "application/x-npy"])
async def test_every_form_of_a_large_result_is_exact_and_given_back(tight: Api, accept: str) -> None:
    response = await tight.get(await large_result(tight), headers={"Accept": accept})
    assert response.status_code == 200
    if accept == "application/json":
        data = np.array(orjson.loads(response.content)["y"]["data"], "<f4").tobytes()
    elif accept == "application/x-npy":
        data = np.load(io.BytesIO(response.content), allow_pickle=False).tobytes()
    else:
        data = response.content[-len(DATA) :]
    assert data == DATA
    assert tight.services.results.used_bytes == 0


async def test_beyond_the_budget_a_result_is_503_and_there_to_be_asked_for_again(tight: Api) -> None:
    path = await large_result(tight)
    with tight.services.results.open() as other:
        other.add(1)
        refused = await tight.get(path, headers=OCTETS)
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_results")
        assert int(refused.headers["retry-after"]) > 0
    assert (await tight.get(path, headers=OCTETS)).content.endswith(DATA)
    assert tight.services.results.used_bytes == 0


async def test_a_call_beyond_the_budget_is_503_in_tritons_form(tight: Api) -> None:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]
    with tight.services.results.open() as other:
        other.add(1)
        call = asyncio.create_task(tight.client.post(INFER, json={"inputs": inputs}))
        found: list[Any] = []

        async def has_come() -> bool:
            found.extend(await tight.hand.claim())
            return bool(found)

        await until(has_come)
        await tight.hand.succeed(found[0], LARGE)
        refused = await call
    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_results")
    assert set(refused.json()) == {"error", "code"}
    assert int(refused.headers["retry-after"]) > 0
    path = f"/jobs/{refused.headers['x-job-id']}/result"
    assert path in refused.json()["error"]
    assert (await tight.get(path, headers=OCTETS)).content.endswith(DATA)
    assert tight.services.results.used_bytes == 0


@pytest.fixture
async def large_backend(valkey_url: str) -> Backend:
    return await emptied(valkey_url)


@pytest.fixture
async def hand(large_backend: Backend) -> AsyncIterator[Hand]:
    async with open_hand(large_backend) as opened:
        yield opened


async def slow_reader(process: ApiProcess, path: str, readers: ExitStack) -> int:
    """The status that a connection gets which then reads nothing more."""
    host, _, port = process.url.removeprefix("http://").rpartition(":")
    loop = asyncio.get_running_loop()
    client = readers.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await loop.sock_connect(client, (host, int(port)))
    await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {OCTETS['Accept']}\r\n\r\n".encode())
    async with asyncio.timeout(20):
        line = await loop.sock_recv(client, 64)
    return int(line.split()[1])


def peak_bytes(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.process
@pytest.mark.server
async def test_slow_readers_take_a_process_no_more_than_its_budget(
    large_backend: Backend, hand: Hand, tmp_path: Path
) -> None:
    budget = 2 * (SIZE + 1024)  # each has a header too
    with api_process(tmp_path / "api.log", redis_url=large_backend.url, result_bytes=budget) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=60, trust_env=False) as client:
            posted = await client.post("/jobs", json={"model": MODEL, "inputs": [fp32_input([1.0])]})
            await hand.succeed(await hand.take(), Tensor("y", Datatype.UINT8, (SIZE,), BIG))
            path = f"{posted.headers['location']}/result"
            before = peak_bytes(process.popen.pid)
            with ExitStack() as readers:
                statuses = [await slow_reader(process, path, readers) for _ in range(READERS)]
                assert statuses == [200, 200, *[503] * (READERS - 2)]
                refused = await client.get(path, headers=OCTETS)
                assert (refused.status_code, refused.json()["code"]) == (503, "too_many_results")
                taken = peak_bytes(process.popen.pid) - before
                assert taken < 5 * SIZE, f"{taken / SIZE:.1f} times a result"

            async def is_all_given_back() -> bool:
                both = await asyncio.gather(*(client.get(path, headers=OCTETS) for _ in range(2)))
                assert all(answer.content.endswith(BIG) for answer in both if answer.status_code == 200)
                return all(answer.status_code == 200 for answer in both)

            await eventually(is_all_given_back)
        process.terminate()
        assert process.ended(20) == 0
    assert not [line for line in process.lines() if line["level"] in ("error", "critical")]
