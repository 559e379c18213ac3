"""Lists are newest first, page by page, and survive whatever happens to jobs between two pages."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import codec, keys
from jobs.listing import CursorError, Page, list_jobs
from jobs.record import LOCAL_TENANT
from jobs.state import State
from jobs.store import Fail
from tests.support.stores import Rig, a_submission, an_error

pytestmark = pytest.mark.anyio


async def _page(rig: Rig, limit: int = 3, cursor: str | None = None, tenant: str = LOCAL_TENANT, **wanted: Any) -> Page:
    return await list_jobs(rig.connection, tenant, limit=limit, cursor=cursor, **wanted)


async def _all_pages(rig: Rig, limit: int, **wanted: Any) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await _page(rig, limit, cursor, **wanted)
        found += [job.id for job in page.jobs]
        assert len(page.jobs) <= limit
        cursor = page.next_cursor
        if cursor is None:
            return found


async def _submit(rig: Rig, count: int, step_ms: int = 1, **options: Any) -> list[str]:
    ids = []
    for _ in range(count):
        ids.append(await rig.submit(**options))
        rig.clock.advance(step_ms)
    return ids


@pytest.mark.parametrize("limit", [1, 2, 5, 7, 100])
@pytest.mark.parametrize("step_ms", [1, 0])
async def test_pages_together_are_the_whole_list_newest_first(rig: Rig, limit: int, step_ms: int) -> None:
    """Also where many jobs share one millisecond."""
    ids = await _submit(rig, 7, step_ms)
    assert await _all_pages(rig, limit) == (ids[::-1] if step_ms else sorted(ids, reverse=True))


async def test_an_empty_list_is_one_empty_page(rig: Rig) -> None:
    assert await _page(rig) == Page([], None)


async def test_many_jobs_of_one_millisecond_are_paged_without_loss(rig: Rig) -> None:
    ids = await _submit(rig, 65, step_ms=0)
    assert await _all_pages(rig, 3) == sorted(ids, reverse=True)


async def test_jobs_that_come_and_go_between_pages_disturb_no_other(rig: Rig) -> None:
    """A cursor is a place in time, not an offset."""
    ids = await _submit(rig, 6)
    first = await _page(rig, 2)
    await _submit(rig, 2)
    await rig.store.delete(ids[4], LOCAL_TENANT, force=True)  # the one that the cursor names
    await rig.store.delete(ids[2], LOCAL_TENANT, force=True)
    second = await _page(rig, 10, first.next_cursor)
    assert [job.id for job in first.jobs] == [ids[5], ids[4]]
    assert [job.id for job in second.jobs] == [ids[3], ids[1], ids[0]]


async def test_filters_look_past_what_does_not_match(rig: Rig) -> None:
    failed = []
    for _ in range(30):
        await rig.submit("other")
        rig.clock.advance(1)
    for _ in range(4):
        failed.append(await rig.submit())
        await rig.store.settle([Fail(await rig.lease(), an_error())])
        rig.clock.advance(1)
        await rig.submit()
        await rig.store.cancel((await rig.claim())[0].lease.job_id, LOCAL_TENANT)
        rig.clock.advance(1)
    assert await _all_pages(rig, 2, state=State.FAILED) == failed[::-1]
    assert len(await _all_pages(rig, 7, model="other")) == 30
    assert await _all_pages(rig, 7, model="other", state=State.FAILED) == []


async def test_records_that_are_gone_are_left_out_and_leave_the_index(rig: Rig) -> None:
    """B019."""
    ids = await _submit(rig, 5)
    await rig.redis.delete(keys.job_key(ids[1]), keys.job_key(ids[3]))
    assert await _all_pages(rig, 2) == [ids[4], ids[2], ids[0]]
    assert await rig.redis.zcard(keys.index_key(LOCAL_TENANT)) == 3


async def test_records_that_can_not_be_read_are_left_out_and_kept(rig: Rig) -> None:
    """B021."""
    ids = await _submit(rig, 3)
    newer = codec.encode({}).replace(bytes([codec.VERSION]), bytes([codec.VERSION + 1]), 1)
    await rig.redis.hset(keys.job_key(ids[1]), mapping={"request": newer})
    await rig.redis.hset(keys.job_key(ids[0]), mapping={"state": "no such state"})
    assert await _all_pages(rig, 10) == [ids[2]]
    assert await rig.redis.zcard(keys.index_key(LOCAL_TENANT)) == 3


async def test_foreign_members_of_the_index_are_left_out(rig: Rig) -> None:
    """V05."""
    ids = await _submit(rig, 2)
    members = {b"\xff\xfe": rig.clock(), b"x": 5.5, b"0" * 32: rig.clock(), b"k" * 32: 1e300}
    await rig.redis.zadd(keys.index_key(LOCAL_TENANT), members)
    assert await _all_pages(rig, 2) == ids[::-1]


async def test_a_tenants_list_holds_its_own_jobs(rig: Rig) -> None:
    """T: List/cancel/replay."""
    mine, theirs = await rig.submit(tenant="a"), await rig.submit(tenant="b")
    await rig.redis.zadd(keys.index_key("a"), {theirs: 1})  # even if the index were wrong
    assert [job.id for job in (await _page(rig, tenant="a")).jobs] == [mine]
    assert [job.id for job in (await _page(rig, tenant="b")).jobs] == [theirs]
    assert (await _page(rig, tenant="")).jobs == []


@pytest.mark.parametrize(
    "cursor", ["x", "é", "====", "OjE", "MTox", "LTE6" + "MDAw" * 11, "A" * 10_000, "\x00", "MTo" + "ZZZZ" * 11, " "]
)
async def test_a_made_up_cursor_is_refused(rig: Rig, cursor: str) -> None:
    with pytest.raises(CursorError):
        await _page(rig, cursor=cursor)


async def test_a_page_that_had_to_look_far_is_short_and_goes_on(rig: Rig) -> None:
    oldest = await rig.submit()
    rig.clock.advance(1)
    for _ in range(60):
        await rig.store.submit_many([a_submission("other") for _ in range(10)])
    page = await _page(rig, 5, model="resnet", most_looked_at=400)
    assert page.jobs == []
    assert page.next_cursor is not None
    assert await _all_pages(rig, 5, model="resnet", most_looked_at=400) == [oldest]
    assert [job.id for job in (await _page(rig, 5, model="resnet")).jobs] == [oldest], "more was not looked at"


async def test_jobs_that_match_are_all_found_where_a_block_holds_more_than_a_page(rig: Rig) -> None:
    wanted = []
    for place in range(30):
        wanted += await _submit(rig, 1)
        if place % 3 == 0:
            await _submit(rig, 1, model="other")
    assert await _all_pages(rig, 7, model="resnet") == wanted[::-1]
    await rig.redis.delete(keys.job_key(wanted[3]))
    await rig.redis.hset(keys.job_key(wanted[5]), mapping={"request": b"\xc1"})
    del wanted[5], wanted[3]
    assert await _all_pages(rig, 7, model="resnet", state=State.QUEUED) == wanted[::-1]
