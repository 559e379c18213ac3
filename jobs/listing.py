"""A tenant's jobs, newest first, page by page.

It reads the index and the records; it never scans the key space and looks at a bounded number of records a call.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from jobs import codec, keys
from jobs.connection import Call, Connection
from jobs.record import Job
from jobs.state import State

MOST_LOOKED_AT: Final = 5_000
"""Jobs that one page looks at for those that match, so that it costs a bounded time."""

_BLOCK: Final = 500
"""Jobs that are looked at in one round trip where there is a filter; only those that match are read whole."""

_SMALLEST_BLOCK: Final = 20


class CursorError(ValueError):
    """The cursor is not one that a page gave."""


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, and the cursor of the next page (None: there is none)."""

    jobs: list[Job]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class _Cursor:
    created_ms: int
    job_id: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(f"{self.created_ms}:{self.job_id}".encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "_Cursor":
        try:
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
            created, _, job_id = plain.partition(":")
            if not keys.is_job_id(job_id) or len(created) > 15:
                raise CursorError("not a cursor that a page gave")
            return cls(int(created), job_id)
        except (binascii.Error, ValueError) as exc:
            raise CursorError("not a cursor that a page gave") from exc


async def list_jobs(
    connection: Connection,
    tenant: str,
    *,
    limit: int,
    cursor: str | None = None,
    state: State | None = None,
    model: str | None = None,
    most_looked_at: int = MOST_LOOKED_AT,
) -> Page:
    """Up to `limit` jobs, newest first; with a filter a page may be short, or empty, and still have a next one.

    That is where `most_looked_at` jobs (or a few more) hold too few that match. Raises CursorError, and what
    `Connection.run` raises.
    """
    after = _Cursor.decode(cursor) if cursor else None
    found: list[Job] = []
    looked_at = 0
    has_filter = state is not None or model is not None
    while looked_at < most_looked_at:
        entries = await _entries(connection, tenant, after, count=_BLOCK if has_filter else max(limit, _SMALLEST_BLOCK))
        if not entries:
            return Page(found, None)
        matching = await _matching(connection, tenant, entries, state, model) if has_filter else entries
        taken = matching[: limit - len(found)]
        looked_at += len(entries)
        after = taken[-1] if len(taken) < len(matching) else entries[-1]
        jobs = await _records(connection, tenant, [entry.job_id for entry in taken])
        found += [job for job in jobs if job and state in (None, job.state)]
        if len(found) == limit:
            break
    return Page(found, after.encode() if after else None)


async def _matching(
    connection: Connection, tenant: str, entries: list[_Cursor], state: State | None, model: str | None
) -> list[_Cursor]:
    """Those whose records are of this state and model now, or gone; the fields that tell it are all that is read."""
    reads = (Call("HMGET", keys.job_key(entry.job_id), "state", "model") for entry in entries)
    wanted = (None if state is None else state.encode(), None if model is None else model.encode())
    return [
        entry
        for entry, has in zip(entries, await connection.run(*reads), strict=True)
        if all(want in (None, value) for want, value in zip(wanted, has, strict=True)) or has == [None, None]
    ]


async def _entries(connection: Connection, tenant: str, after: _Cursor | None, count: int) -> list[_Cursor]:
    """The next entries of the index. Those of one millisecond are in descending order of id, as Redis keeps them."""
    index = keys.index_key(tenant)
    top = str(after.created_ms) if after else "+inf"
    offset = 0
    while True:
        window = ("ZRANGE", index, top, "-inf", "BYSCORE", "REV", "LIMIT", offset, count, "WITHSCORES")
        (flat,) = await connection.run(Call(*window))
        entries = [
            _Cursor(int(float(score)), job_id)
            for raw, score in zip(flat[::2], flat[1::2], strict=True)
            if keys.is_job_id(job_id := raw.decode("ascii", "replace"))
        ]
        fresh = [e for e in entries if after is None or (e.created_ms, e.job_id) < (after.created_ms, after.job_id)]
        if fresh or not flat:
            return fresh
        offset += count


async def _records(connection: Connection, tenant: str, ids: list[str]) -> list[Job | None]:
    """The tenant's records, None where one is gone or unreadable; index entries of those that are gone are dropped."""
    if not ids:
        return []
    hashes = await connection.run(*(Call("HGETALL", keys.job_key(job_id)) for job_id in ids))
    gone = [job_id for job_id, fields in zip(ids, hashes, strict=True) if not fields]
    if gone:
        await connection.run(Call("ZREM", keys.index_key(tenant), *gone))
    jobs: list[Job | None] = []
    for job_id, fields in zip(ids, hashes, strict=True):
        try:
            is_theirs = fields.get(b"tenant") == tenant.encode()
            jobs.append(Job.from_hash(job_id, fields) if is_theirs else None)
        except codec.CodecError:
            jobs.append(None)
    return jobs
