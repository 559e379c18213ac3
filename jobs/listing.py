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

_MOST_LOOKED_AT: Final = 1_000


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
) -> Page:
    """Up to `limit` jobs, newest first; with a filter a page may be short and still have a next one.

    Raises CursorError, and what `Connection.run` raises.
    """
    after = _Cursor.decode(cursor) if cursor else None
    found: list[Job] = []
    looked_at = 0
    while looked_at < _MOST_LOOKED_AT:
        entries = await _entries(connection, tenant, after, count=max(limit, 20))
        if not entries:
            return Page(found, None)
        records = await _records(connection, tenant, [entry.job_id for entry in entries])
        for entry, job in zip(entries, records, strict=True):
            after = entry
            looked_at += 1
            if job and state in (None, job.state) and model in (None, job.request.model):
                found.append(job)
                if len(found) == limit:
                    return Page(found, after.encode())
    return Page(found, after.encode() if after else None)


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
