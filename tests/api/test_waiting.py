"""Long-polls: told at once, missing nothing, costing little, and never longer than asked for."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.api.harness import Api, Backend, floats, identity_spec, running_api, until

pytestmark = pytest.mark.anyio

LONG = "30"
"""Seconds; a test that really waited for so long would fail."""


def wait(api: Api, job_id: str, seconds: str = LONG, etag: str | None = None) -> asyncio.Task[httpx.Response]:
    """A long-poll under way."""
    headers = {"If-None-Match": etag} if etag else {}
    return asyncio.create_task(api.get(f"/jobs/{job_id}?wait={seconds}", headers=headers))


async def test_a_wait_ends_when_the_job_does(api: Api) -> None:
    job_id = await api.submit()
    waiting = wait(api, job_id)
    await until(lambda: len(api.services.waiters) == 1)
    await api.hand.succeed(await api.hand.take(), floats(1))
    response = await asyncio.wait_for(waiting, 10)
    assert response.json()["status"] == "succeeded"
    assert response.json()["output"]["y"]["data"] == [1.0]
    assert len(api.services.waiters) == 0


async def test_a_wait_for_the_end_is_not_ended_by_a_start(api: Api) -> None:
    job_id = await api.submit()
    waiting = wait(api, job_id)
    await until(lambda: len(api.services.waiters) == 1)
    claimed = await api.hand.take()
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await api.hand.succeed(claimed, floats(1))
    assert (await asyncio.wait_for(waiting, 10)).json()["done"] is True


async def test_with_an_etag_any_change_of_state_ends_the_wait(api: Api) -> None:
    job_id = await api.submit()
    etag = (await api.get(f"/jobs/{job_id}")).headers["etag"]
    waiting = wait(api, job_id, etag=etag)
    await until(lambda: len(api.services.waiters) == 1)
    claimed = await api.hand.take()
    response = await asyncio.wait_for(waiting, 10)
    assert response.json()["status"] == "in_progress"
    waiting = wait(api, job_id, etag=response.headers["etag"])
    await until(lambda: len(api.services.waiters) == 1)
    await api.hand.succeed(claimed, floats(1))
    assert (await asyncio.wait_for(waiting, 10)).json()["status"] == "succeeded"


async def test_an_etag_of_another_state_is_answered_at_once(api: Api) -> None:
    job_id = await api.submit()
    response = await asyncio.wait_for(wait(api, job_id, etag='W/"in_progress.1.0"'), 5)
    assert response.json()["status"] == "queued"


async def test_the_etag_of_the_end_is_answered_at_once_since_nothing_can_change(api: Api) -> None:
    job_id = await api.submit()
    await api.hand.succeed(await api.hand.take(), floats(1))
    etag = (await api.get(f"/jobs/{job_id}")).headers["etag"]
    assert (await asyncio.wait_for(wait(api, job_id, etag=etag), 5)).status_code == 304


async def test_a_wait_that_sees_nothing_ends_with_the_job_as_it_is(api: Api) -> None:
    job_id = await api.submit()
    started_at = time.monotonic()
    response = await api.get(f"/jobs/{job_id}?wait=0.2")
    assert 0.2 <= time.monotonic() - started_at < 5
    assert (response.status_code, response.json()["status"]) == (200, "queued")
    assert response.headers["retry-after"] == "1"
    unchanged = await wait(api, job_id, "0.01", etag=response.headers["etag"])
    assert unchanged.status_code == 304


async def test_a_job_that_is_done_is_not_waited_for(api: Api) -> None:
    job_id = await api.submit()
    await api.client.post(f"/jobs/{job_id}/cancel")
    assert (await asyncio.wait_for(wait(api, job_id), 5)).json()["status"] == "canceled"


@pytest.mark.parametrize("seconds", ["0", "0.0"])
async def test_a_wait_of_nothing_is_none(api: Api, seconds: str) -> None:
    response = await api.get(f"/jobs/{await api.submit()}?wait={seconds}")
    assert (response.status_code, response.json()["status"]) == (200, "queued")
    response = await api.post(headers={"Prefer": "wait=0"})
    assert (response.status_code, "preference-applied" in response.headers) == (202, False)


@pytest.mark.parametrize("seconds", ["-1", "61", "nan", "inf", "1e1", "", "x", "1&wait=1", "+1", " 1"])
async def test_a_wait_is_a_number_of_seconds_up_to_sixty(api: Api, seconds: str) -> None:
    job_id = await api.submit()
    response = await api.get(f"/jobs/{job_id}?wait={seconds}")
    assert response.status_code == 422
    assert response.json()["parameter"] == "wait"


async def test_waiting_for_a_job_that_nobody_has_is_a_404_at_once(api: Api) -> None:
    assert (await asyncio.wait_for(wait(api, "0" * 32), 5)).status_code == 404


async def test_a_job_that_is_deleted_while_it_is_waited_for_is_a_404(api: Api) -> None:
    job_id = await api.submit()
    waiting = wait(api, job_id)
    await until(lambda: len(api.services.waiters) == 1)
    await api.client.delete(f"/jobs/{job_id}?force=true")
    assert (await asyncio.wait_for(waiting, 10)).status_code == 404


async def test_what_ends_through_another_process_is_seen_here(backend: Backend, api: Api) -> None:
    """Two api processes: a job that is posted to one is waited for and canceled through the other."""
    async with running_api(backend, models=[identity_spec()]) as other:
        job_id = await other.submit()
        waiting = wait(api, job_id)
        await until(lambda: len(api.services.waiters) == 1)
        await other.client.post(f"/jobs/{job_id}/cancel")
        assert (await asyncio.wait_for(waiting, 10)).json()["status"] == "canceled"


async def test_a_queued_job_that_expires_unseen_by_any_sweeper_ends_its_wait(backend: Backend) -> None:
    async with running_api(backend, models=[identity_spec()]) as api:
        job_id = await api.submit(queue_ttl_seconds=1)
        response = await asyncio.wait_for(wait(api, job_id), 10)
    assert response.json()["status"] == "expired"


async def test_a_thousand_waiters_share_one_subscription_and_are_all_told(real_backend: Backend) -> None:
    """B027: more waiters than connections wait their turn and nobody is refused."""
    async with running_api(real_backend, models=[identity_spec()], redis_pool_size=4) as api:
        job_ids = [await api.submit() for _ in range(100)]
        waiting = [wait(api, job_id) for job_id in job_ids for _ in range(10)]
        await until(lambda: len(api.services.waiters) == 1000)
        listening = await api.store.connection.client.client_list(_type="pubsub")
        for claimed in await api.hand.claim(100):
            await api.hand.succeed(claimed, floats(1))
        responses = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert {response.json()["status"] for response in responses} == {"succeeded"}
    assert len(listening) == 1


async def test_two_thousand_polls_at_once_are_all_answered(real_backend: Backend) -> None:
    """B027."""
    async with running_api(real_backend, models=[identity_spec()], redis_pool_size=4) as api:
        job_id = await api.submit()
        responses = await asyncio.gather(*(api.get(f"/jobs/{job_id}") for _ in range(2000)))
    assert {response.status_code for response in responses} == {200}


async def test_a_message_that_was_lost_with_its_connection_is_made_up_for(real_backend: Backend) -> None:
    async with running_api(real_backend, models=[identity_spec()]) as api:
        job_id = await api.submit()
        waiting = wait(api, job_id)
        await until(lambda: len(api.services.waiters) == 1)
        client = api.store.connection.client
        claimed = await api.hand.take()
        # The subscription dies and the end is announced before it is back: only looking again can tell.
        await asyncio.gather(
            client.client_kill_filter(_type="pubsub"),
            api.hand.succeed(claimed, floats(1)),
        )
        assert (await asyncio.wait_for(waiting, 10)).json()["status"] == "succeeded"


async def test_a_client_that_hangs_up_frees_its_waiter(real_backend: Backend) -> None:
    async with running_api(real_backend, models=[identity_spec()]) as api:
        job_id = await api.submit()
        waiting = wait(api, job_id)
        await until(lambda: len(api.services.waiters) == 1)
        waiting.cancel()
        await until(lambda: len(api.services.waiters) == 0)


async def test_a_process_that_stops_answers_its_waiters_with_what_is_known(api: Api) -> None:
    """B064."""
    job_id = await api.submit()
    waiting = wait(api, job_id)
    await until(lambda: len(api.services.waiters) == 1)
    api.services.waiters.quiet()
    response = await asyncio.wait_for(waiting, 5)
    assert (response.status_code, response.json()["status"]) == (200, "queued")
    late = await asyncio.wait_for(wait(api, job_id), 5)
    assert (late.status_code, late.json()["status"]) == (200, "queued")
