"""Deliveries in Redis: one message about one job each, what was tried, and when it is tried again.

It owns how they are handed out, recorded and asked for again. It must not send anything or decide when to give up; that
a message exists at all is the doing of the scripts that change a job.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from jobs import codec, keys, outbox
from jobs.connection import Call, Connection
from jobs.record import Job
from jobs.webhook import DeliveryStatus, WebhookEvent

MOST_KEPT_ATTEMPTS: Final = 100
_BLOCK: Final = 200
MOST_AT_ONCE: Final = 1_000
"""Deliveries that one step of a range replay looks at."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One send: when (Unix ms), how long it took, the HTTP status (0: none came) and why it failed ('': it did not)."""

    at_ms: int
    duration_ms: int
    status: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message and how far it is.

    `attempts` counts all sends, `tried` those since `since_ms`, when the message was made or last asked for again.
    """

    id: str
    job_id: str
    tenant: str
    event: WebhookEvent
    status: DeliveryStatus
    attempts: int
    tried: int
    created_ms: int
    since_ms: int
    next_ms: int
    log: tuple[Attempt, ...] = ()

    @classmethod
    def from_hash(
        cls, delivery: str, job_id: str, fields: Mapping[bytes, bytes], log: Sequence[bytes] = ()
    ) -> "Delivery":
        """From its Redis hash and what was recorded of its attempts; raises CodecError where that is damaged."""
        with codec.reading("delivery"):
            return cls(
                id=delivery,
                job_id=job_id,
                tenant=fields[b"tenant"].decode(),
                event=WebhookEvent(f"job.{delivery.rpartition('_')[2]}"),
                status=DeliveryStatus(fields[b"status"].decode()),
                log=tuple(Attempt(**codec.decode(item)) for item in log),
                **{name: int(fields[name.encode()]) for name in _NUMBERS},
            )


_NUMBERS: Final = ("attempts", "tried", "created_ms", "since_ms", "next_ms")


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery in hand until `until_ms`, for a host that has room, with what Redis holds of it and of its job."""

    id: str
    host: str
    taken_ms: int
    until_ms: int
    fields: Mapping[bytes, bytes]
    record: Mapping[bytes, bytes]

    def delivery(self) -> Delivery:
        """The delivery; raises CodecError where it can't be read."""
        return Delivery.from_hash(self.id, self._job_id, self.fields)

    def job(self) -> Job | None:
        """The job that it tells of, None where that is gone for good; raises CodecError where it can't be read."""
        return Job.from_hash(self._job_id, self.record) if self.record else None

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.fields.get(b"tenant", b"").decode()

    @property
    def _job_id(self) -> str:
        return outbox.job_of(self.id) or ""


class Shares(NamedTuple):
    """What tenants hold of a worker's places, and how many times what is left free each may hold.

    That is `of_any`, or `of_good` and `of_slow` for what goes to one of the `good` hosts and of the `slow` ones.
    """

    held: Mapping[str, int] = MappingProxyType({})
    of_any: int = 1_000_000
    of_good: int = 1_000_000
    of_slow: int = 1_000_000
    good: Sequence[str] = ()
    slow: Sequence[str] = ()


UNSHARED: Final = Shares()
"""One tenant may hold everything."""


class Hand(NamedTuple):
    """What a worker was given; `dropped` entries were no deliveries; `next_due_ms` 0: nothing waits."""

    taken: list[Taken]
    now_ms: int
    next_due_ms: int
    dropped: int


class Redelivered(StrEnum):
    """What asking for a delivery again found."""

    OK = "OK"
    RUNNING = "RUNNING"
    NOT_FOUND = "NOT_FOUND"


class Record(NamedTuple):
    """What an attempt came to: the delivery's status after it, and when it is tried again (Unix ms, 0: never)."""

    delivery: Delivery
    attempt: Attempt
    status: DeliveryStatus
    next_ms: int = 0


class Replayed(NamedTuple):
    """How many deliveries a range replay set going; `next_since_ms` is where the next one begins, None at the end."""

    redelivered: int
    next_since_ms: int | None


class Deliveries:
    """Deliveries in one Redis. Every method raises what `Connection.run` raises, and is bounded by its deadline."""

    def __init__(self, connection: Connection, clock_ms: Callable[[], int] = lambda: 0) -> None:
        """`clock_ms` overrides Redis' clock in tests; 0 means that Redis' own is used."""
        self._connection = connection
        self._clock_ms = clock_ms

    async def take(
        self,
        limit: int,
        *,
        lease_ms: int,
        room: int,
        rooms: Mapping[str, int] = MappingProxyType({}),
        shares: Shares = UNSHARED,
    ) -> Hand:
        """Lease due deliveries, some or all of the `limit` that are free.

        To a host go no more than `rooms` says, or `room` where it is not listed, for a tenant no more than its share.
        """
        held, of_any, of_good, of_slow, good, slow = shares
        lists = (len(good), *good, len(slow), *slow, len(held), *_flat(held), *_flat(rooms))
        arguments = (self._clock_ms(), limit, lease_ms, room, of_any, of_good, of_slow, *lists)
        (reply,) = await self._connection.run(Call(*arguments, script="take"))
        now_ms, dropped, next_due_ms, *taken = reply
        return Hand([_taken(int(now_ms), *item) for item in taken], int(now_ms), int(float(next_due_ms)), dropped)

    async def record(self, records: Sequence[Record]) -> list[bool]:
        """Record attempts in one round trip, and with each that the delivery is tried again or has come to an end.

        False where a delivery is gone or had ended before: another worker may have been faster. Bears repetition.
        """
        replies = await self._connection.run(
            *(Call(self._clock_ms(), *_record_arguments(record), script="attempt") for record in records)
        )
        return [word in (b"OK", b"ALREADY") for word in replies]

    async def depth(self) -> tuple[int, int]:
        """How many messages are in the queue, and how many in the first 1,000 lines for a host or tenant."""
        queued, lines = await self._connection.run(
            Call("ZCARD", keys.DELIVERIES_QUEUE), Call("ZRANGE", keys.WAITING_HOSTS_KEY, 0, MOST_AT_ONCE - 1)
        )
        lengths = (
            await self._connection.run(*(Call("ZCARD", keys.waiting_key(line.decode())) for line in lines))
            if lines
            else []
        )
        return queued, sum(lengths)

    async def of_job(self, job_id: str) -> list[Delivery]:
        """All deliveries of a job with their logs, oldest first; whose job it is must be known before."""
        names = {event: outbox.delivery_id(job_id, event) for event in WebhookEvent}
        calls = [
            call
            for name in names.values()
            for call in (Call("HGETALL", keys.delivery_key(name)), Call("LRANGE", keys.attempts_key(name), 0, -1))
        ]
        replies: list[Any] = await self._connection.run(*calls)
        found: list[Delivery] = []
        for name, fields, log in zip(names.values(), replies[::2], replies[1::2], strict=True):
            if fields:
                found.append(Delivery.from_hash(name, job_id, fields, log))
        return sorted(found, key=lambda delivery: delivery.created_ms)

    async def redeliver(self, tenant: str, deliveries: Sequence[str]) -> list[Redelivered]:
        """Have deliveries of this tenant sent again, at once and from the start of the schedule."""
        words: list[Redelivered] = []
        for at in range(0, len(deliveries), _BLOCK):
            block = deliveries[at : at + _BLOCK]
            parts = (part for delivery in block for part in _parts(delivery))
            (replies,) = await self._connection.run(Call(self._clock_ms(), tenant, *parts, script="redeliver"))
            words += [Redelivered(word.decode()) for word in replies]
        return words

    async def redeliver_since(self, tenant: str, since_ms: int, status: DeliveryStatus) -> Replayed:
        """Have all deliveries in this status sent again whose message was made at `since_ms` or later.

        Looks at `MOST_AT_ONCE` of those that are not delivered; what is left begins at the reply's `next_since_ms`.
        """
        undelivered = keys.undelivered_key(tenant)
        (flat,) = await self._connection.run(
            Call("ZRANGEBYSCORE", undelivered, since_ms, "+inf", "WITHSCORES", "LIMIT", 0, MOST_AT_ONCE)
        )
        ids = [raw.decode("ascii", "replace") for raw in flat[::2]]
        statuses: list[bytes | None] = await self._connection.run(
            *(Call("HGET", keys.delivery_key(delivery), "status") for delivery in ids)
        )
        stale = [delivery for delivery, found in zip(ids, statuses, strict=True) if found is None]
        if stale:
            await self._connection.run(Call("ZREM", undelivered, *stale))
        wanted = [
            delivery for delivery, found in zip(ids, statuses, strict=True) if found and found.decode() == status.value
        ]
        count = (await self.redeliver(tenant, wanted)).count(Redelivered.OK)
        if len(ids) < MOST_AT_ONCE:
            return Replayed(count, None)
        newest_ms = int(float(flat[-1]))
        return Replayed(count, max(newest_ms, since_ms + 1))


def _taken(now_ms: int, delivery: bytes, until_ms: bytes, fields: Sequence[bytes], record: Sequence[bytes]) -> Taken:
    named = _pairs(fields)
    return Taken(delivery.decode(), named[b"host"].decode(), now_ms, int(until_ms), named, _pairs(record))


def _flat(mapping: Mapping[str, int]) -> Iterable[str | int]:
    return (part for pair in mapping.items() for part in pair)


def _pairs(flat: Sequence[bytes]) -> Mapping[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _record_arguments(record: Record) -> tuple[Any, ...]:
    delivery, attempt, status, next_ms = record
    plain = codec.encode(asdict(attempt))
    word, began_ms = delivery.event.word, attempt.at_ms
    return (delivery.id, delivery.job_id, word, plain, status.value, next_ms, MOST_KEPT_ATTEMPTS, began_ms)


def _parts(delivery: str) -> tuple[str, str, str]:
    return delivery, outbox.job_of(delivery) or "", delivery.rpartition("_")[2]
