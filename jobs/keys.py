"""Every key and channel in Redis; nothing else in the product spells one.

| pattern | type | lifetime | meaning |
|---|---|---|---|
| `inferq:job:{id}` | hash | result and record time after the end; a generous bound before | the record |
| `inferq:in:{id}` | string | short until submitted, then as the record; gone at the end | request payload |
| `inferq:out:{id}:{attempt}` | string | `result_ttl_seconds` | result payload, where not inline in the record |
| `inferq:ready:{model}` | zset | while not empty | queued ids that are due; score = due ms less the head start |
| `inferq:scheduled:{model}` | zset | while not empty | queued ids that are not due yet; score = due ms |
| `inferq:leased:{model}` | zset | while not empty | ids in progress; score = lease expiry ms |
| `inferq:wake:{model}` | list | an hour, one token | the doorbell on which idle workers block |
| `inferq:open` | zset | while not empty | all ids that are not terminal; score = when the sweeper looks |
| `inferq:index:{tenant}` | zset | entries as their records | ids by creation ms |
| `inferq:forget` | zset | while not empty | terminal ids, each with its tenant; score = when the record is gone |
| `inferq:idem:{tenant}:{key}` | string | as the job's record | idempotency: id and fingerprint |
| `inferq:models` | hash | for ever, one field a model | what workers have registered |
| `inferq:statistics` | hash | as `inferq:models` | what the engine counted for each model, as last read |
| `inferq:workers` | hash | fields removed when stale | heartbeats of live workers |
| `inferq:keys` | hash | for ever, one field an API key | by name: hash of the key, tenant, scopes, models |
| `inferq:held` | hash | a field for each id that is not terminal | what it takes up: bytes, tenant, model |
| `inferq:load` | hash | for ever, a few fields a model and tenant | sums of that, and how many jobs have ended |
| `inferq:rate:{tenant}` | string | until the tenant is within its rate again | when its next job would be due by that |
| `inferq:share:{model}:{tenant}` | zset | while not empty | a tenant's part of the ready ids, same scores |
| `inferq:turns:{model}` | zset | while any are ready | tenants that have ready ids; score = what they were given |
| `inferq:weights` | hash | for ever, one field a tenant | shares of a busy model, where they are not 1 |
| `inferq:done`, `inferq:started`, `inferq:cancel` | channel | | ids, 32 characters each, back to back |
| `inferq:delivery:{delivery}` | hash | 7 days while it is tried, then as the record | one message and how far it is |
| `inferq:attempts:{delivery}` | list, capped | as the delivery | what became of each attempt |
| `inferq:undelivered:{tenant}` | zset | entries 60 days | deliveries not delivered, by creation ms |
| `inferq:gone:{id}` | hash | until its messages are delivered or given up | the record of a deleted job |
| `inferq:webhooks` | zset | while not empty | arq's queue of deliveries; score = due ms, or lease expiry ms |
| `inferq:waiting:{host} {tenant}` | zset | while not empty | deliveries for which either has no room; score = due ms |
| `inferq:waiting` | zset | while not empty | those lines; score = when they were last served, ms |
| `arq:job:{delivery}` | string | 7 days, at most until the delivery ends | arq's job, in arq's own form |
| `arq:in-progress:{delivery}`, `arq:retry:{delivery}` | string | a lease; a day | what arq notes of a running job |
| `inferq:announced` | channel | | that there are new deliveries |
| `inferq:key` | channel | | that an API key was made or revoked |
"""

import re
from typing import Final

PREFIX: Final = "inferq:"
OPEN_KEY: Final = f"{PREFIX}open"
FORGET_KEY: Final = f"{PREFIX}forget"
NOTHING_KEY: Final = f"{PREFIX}nothing"
"""Never exists: a script that must run although Redis is at its memory limit begins by deleting it."""
MODELS_KEY: Final = f"{PREFIX}models"
STATISTICS_KEY: Final = f"{PREFIX}statistics"
WORKERS_KEY: Final = f"{PREFIX}workers"
API_KEYS_KEY: Final = f"{PREFIX}keys"
WEIGHTS_KEY: Final = f"{PREFIX}weights"
HELD_KEY: Final = f"{PREFIX}held"
LOAD_KEY: Final = f"{PREFIX}load"
DONE_CHANNEL: Final = f"{PREFIX}done"
STARTED_CHANNEL: Final = f"{PREFIX}started"
CANCEL_CHANNEL: Final = f"{PREFIX}cancel"
DELIVERIES_QUEUE: Final = f"{PREFIX}webhooks"
WAITING_HOSTS_KEY: Final = f"{PREFIX}waiting"
ANNOUNCED_CHANNEL: Final = f"{PREFIX}announced"
API_KEYS_CHANNEL: Final = f"{PREFIX}key"

ID_LENGTH: Final = 32
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
NAME_FORM: Final = "1 to 63 letters, digits, '.', '_' and '-'"

_JOB, _INPUT, _OUTPUT = f"{PREFIX}job:", f"{PREFIX}in:", f"{PREFIX}out:"
_READY, _SCHEDULED, _LEASED, _WAKE = (f"{PREFIX}{name}:" for name in ("ready", "scheduled", "leased", "wake"))
_INDEX, _IDEMPOTENCY = f"{PREFIX}index:", f"{PREFIX}idem:"
_SHARE, _TURNS, _RATE = f"{PREFIX}share:", f"{PREFIX}turns:", f"{PREFIX}rate:"
_DELIVERY, _ATTEMPTS, _UNDELIVERED, _GONE, _WAITING = (
    f"{PREFIX}{name}:" for name in ("delivery", "attempts", "undelivered", "gone", "waiting")
)
_ARQ_JOB, _ARQ_IN_PROGRESS, _ARQ_RETRY = "arq:job:", "arq:in-progress:", "arq:retry:"
_DELIVERY_ID: Final = "msg_"


def is_job_id(text: str) -> bool:
    """Whether `text` has the form of an id; nothing else may become part of a key."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether `text` may be a tenant's name, or that of an API key."""
    return _NAME.fullmatch(text) is not None


def job_key(job_id: str) -> str:
    """The record of a job."""
    return _JOB + job_id


def input_key(job_id: str) -> str:
    """The request payload of a job."""
    return _INPUT + job_id


def output_key(job_id: str, attempt: int) -> str:
    """The result payload that one attempt of a job wrote."""
    return f"{_OUTPUT}{job_id}:{attempt}"


def ready_key(model: str) -> str:
    """Queued jobs of a model that are due."""
    return _READY + model


def scheduled_key(model: str) -> str:
    """Queued jobs of a model that are not due yet."""
    return _SCHEDULED + model


def leased_key(model: str) -> str:
    """Jobs of a model that are in progress."""
    return _LEASED + model


def wake_key(model: str) -> str:
    """The doorbell of a model."""
    return _WAKE + model


def model_of_wake_key(key: str) -> str:
    """The inverse of `wake_key`."""
    return key.removeprefix(_WAKE)


def share_key(model: str, tenant: str) -> str:
    """A tenant's part of the queued jobs of a model that are due."""
    return f"{_SHARE}{model}:{tenant}"


def turns_key(model: str) -> str:
    """The tenants that have queued jobs of a model that are due."""
    return _TURNS + model


def rate_key(tenant: str) -> str:
    """How far a tenant is ahead of its rate."""
    return _RATE + tenant


def index_key(tenant: str) -> str:
    """The ids of a tenant's jobs by time."""
    return _INDEX + tenant


def idempotency_key(tenant: str, key: str) -> str:
    """What a tenant's idempotency key stands for; ValueError for a tenant that could pass for another's key."""
    if ":" in tenant:
        raise ValueError(f"a tenant's name has no colon: {tenant!r}")
    return f"{_IDEMPOTENCY}{tenant}:{key}"


def delivery_prefix(job_id: str) -> str:
    """What the ids of all deliveries of a job begin with; the event's word follows."""
    return f"{_DELIVERY_ID}{job_id}_"


def delivery_key(delivery: str) -> str:
    """One message about a job."""
    return _DELIVERY + delivery


def attempts_key(delivery: str) -> str:
    """What became of the attempts to deliver a message."""
    return _ATTEMPTS + delivery


def undelivered_key(tenant: str) -> str:
    """A tenant's deliveries that are being tried or were given up, by time."""
    return _UNDELIVERED + tenant


def gone_key(job_id: str) -> str:
    """What is left of a deleted job's record while its messages are still being tried."""
    return _GONE + job_id


def waiting_key(line: str) -> str:
    """Deliveries of a tenant to a host, one of which has no room at present; the line's name is both."""
    return _WAITING + line


def lua_prelude() -> str:
    """The same names as Lua locals, so that scripts spell no key either."""
    functions = {
        "job_key": _JOB,
        "input_key": _INPUT,
        "ready_key": _READY,
        "scheduled_key": _SCHEDULED,
        "leased_key": _LEASED,
        "wake_key": _WAKE,
        "turns_key": _TURNS,
        "rate_key": _RATE,
        "index_key": _INDEX,
        "delivery_key": _DELIVERY,
        "attempts_key": _ATTEMPTS,
        "undelivered_key": _UNDELIVERED,
        "gone_key": _GONE,
        "waiting_key": _WAITING,
        "arq_job_key": _ARQ_JOB,
        "arq_in_progress_key": _ARQ_IN_PROGRESS,
        "arq_retry_key": _ARQ_RETRY,
    }
    constants = {
        "OPEN": OPEN_KEY,
        "FORGET": FORGET_KEY,
        "NOTHING": NOTHING_KEY,
        "WORKERS": WORKERS_KEY,
        "WEIGHTS": WEIGHTS_KEY,
        "HELD": HELD_KEY,
        "LOAD": LOAD_KEY,
        "DONE": DONE_CHANNEL,
        "STARTED": STARTED_CHANNEL,
        "CANCEL": CANCEL_CHANNEL,
        "DELIVERIES": DELIVERIES_QUEUE,
        "WAITING_HOSTS": WAITING_HOSTS_KEY,
        "ANNOUNCED": ANNOUNCED_CHANNEL,
    }
    lines = [f"local function {name}(x) return '{prefix}' .. x end" for name, prefix in functions.items()]
    lines.append(f"local function output_key(id, attempt) return '{_OUTPUT}' .. id .. ':' .. attempt end")
    lines.append(f"local function share_key(model, tenant) return '{_SHARE}' .. model .. ':' .. tenant end")
    lines.append(f"local function delivery_of(id, event) return '{_DELIVERY_ID}' .. id .. '_' .. event end")
    start = len(_DELIVERY_ID) + 1
    lines.append(f"local function job_of(delivery) return string.sub(delivery, {start}, {start + ID_LENGTH - 1}) end")
    lines += [f"local {name} = '{value}'" for name, value in constants.items()]
    return "\n".join(lines) + "\n"
