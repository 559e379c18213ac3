"""How costs grow: with jobs queued, with processes, with models.

It measures the store itself by the CPU that Redis spends on each operation; a machine that is busy elsewhere disturbs
that far less than a clock.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop
from redis import Redis

from bench import plots
from bench.measure import sustained, warm_up
from bench.models import ACCELERATOR, TINY, Shape, write_copies, write_models
from bench.processes import free_port
from bench.report import machine, table
from bench.session import Stand, say, servers
from bench.systems import PRODUCT, start
from bench.workloads import OCTETS, Workload, _tensors
from inferq.stack.listening import open_listening_socket
from jobs import keys
from jobs.datatypes import Datatype
from jobs.listing import list_jobs
from jobs.record import LOCAL_TENANT, InputPart, InputSource, JobRequest, RequestedOutput
from jobs.settings import StoreSettings
from jobs.store import JobStore, Release, Submission, Submitted, new_job_id

MODEL: Final = "growth"
QUEUED: Final = (1_000, 10_000, 100_000, 1_000_000)
BLOCK: Final = 500
CALLS: Final = 300
CLAIM: Final = 16
COPIES: Final = (1, 5, 20)
PROCESSES: Final = (1, 2, 4)


@dataclass
class Growth:
    """µs of Redis' CPU by operation, as (jobs queued, cost); bytes a job; rates by title and label."""

    costs: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    bytes_per_job: dict[int, float] = field(default_factory=dict)
    scaling: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(
    results: Path,
    sizes: Sequence[int] = QUEUED,
    processes: Sequence[int] = PROCESSES,
    models: Sequence[int] = COPIES,
    seconds: float = 2.0,
) -> None:
    """Measure, and write a page and a picture."""
    with tempfile.TemporaryDirectory(prefix="inferq-bench-") as folder:
        found = uvloop.run(_measure(Path(folder), sizes, processes, models, seconds))
    results.mkdir(parents=True, exist_ok=True)
    (results / "GROWTH.md").write_text(page(found))
    plots.growth(found.costs, found.scaling, results / "growth.png")
    print(page(found))


async def _measure(
    folder: Path, sizes: Sequence[int], processes: Sequence[int], models: Sequence[int], seconds: float
) -> Growth:
    found = Growth()
    repository = write_models(folder / "models")
    copies = write_copies(folder / "copies", max(models))
    with servers(folder / "queue", [repository]) as stand:
        await _by_queue(stand, sizes, found)
    # Servers of their own: it takes Redis a while to get over a million jobs.
    with servers(folder / "rates", [repository, folder / "copies"]) as stand:
        for title, workers, apis in (("workers", processes, (1,)), ("apis", (2,), processes)):
            await _by_processes(stand, title, workers, apis, seconds, found)
        await _by_models(stand, copies, models, seconds, found)
    return found


def _submission(model: str = MODEL) -> Submission:
    part = InputPart("input", InputSource.TENSOR, TINY.nbytes, Datatype.FP32, TINY.dims)
    request = JobRequest(model, (part,), (RequestedOutput("output"),))
    return Submission(new_job_id(), LOCAL_TENANT, request, bytes(TINY.nbytes))


async def _by_queue(stand: Stand, sizes: Sequence[int], found: Growth) -> None:
    """Fill one queue step by step, and measure each operation at each step."""
    redis: Any = Redis.from_url(stand.servers.redis_url)
    redis.flushall()
    empty_bytes = redis.info("memory")["used_memory"]
    most = max(sizes) * 2
    settings = StoreSettings(redis_url=stand.servers.redis_url, max_queued=most, max_open=most, tenant_max_open=most)
    store, _ = await JobStore.open(settings)
    queued = 0
    try:
        for size in sizes:
            while queued < size:
                block = [_submission() for _ in range(min(BLOCK, size - queued))]
                refused = {reply.word for reply in await store.submit_many(block)} - {Submitted.OK}
                if refused:
                    raise RuntimeError(f"at {queued} queued jobs more are refused: {', '.join(refused)}")
                queued += len(block)
            found.bytes_per_job[size] = (redis.info("memory")["used_memory"] - empty_bytes) / size - TINY.nbytes
            for name, operation, per_call in await _operations(store):
                before = _main_thread_seconds(redis)
                for _ in range(CALLS):
                    await operation()
                used = _main_thread_seconds(redis) - before
                found.costs.setdefault(name, []).append((size, used / CALLS / per_call * 1e6))
            say(
                f"  {size} queued: "
                + ", ".join(f"{name} {points[-1][1]:.0f} µs" for name, points in found.costs.items())
            )
            queued = redis.zcard(keys.ready_key(MODEL))
    finally:
        await store.close()
        redis.flushall()


def _main_thread_seconds(redis: Any) -> float:
    """What Redis' main thread has used, in microseconds' resolution; children that rewrite its file are not in it."""
    used = redis.info("cpu")
    return float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"])


Operation = tuple[str, Callable[[], Awaitable[object]], int]


async def _operations(store: JobStore) -> list[Operation]:
    """Name, one call, and how many jobs it is about. What an operation takes out of the queue another puts back."""
    known = [_submission() for _ in range(BLOCK)]
    await store.submit_many(known)
    ids = iter([item.id for item in known] * 2)
    cancelable = iter([item.id for item in known])

    async def submit() -> None:
        await store.submit(_submission())

    async def claim() -> None:
        claimed = await store.claim(MODEL, CLAIM, worker="w", lease_ms=60_000)
        await store.settle([Release(job.lease) for job in claimed.jobs])

    async def status() -> None:
        await store.get(next(ids), LOCAL_TENANT)

    async def cancel() -> None:
        await store.cancel(next(cancelable), LOCAL_TENANT)

    async def page_of_jobs() -> None:
        await list_jobs(store.connection, LOCAL_TENANT, limit=50)

    return [
        ("submit", submit, 1),
        ("claim and release", claim, CLAIM),
        ("status", status, 1),
        ("list (of 50)", page_of_jobs, 50),
        ("cancel", cancel, 1),
    ]


async def _by_processes(
    stand: Stand, title: str, workers: Sequence[int], apis: Sequence[int], seconds: float, found: Growth
) -> None:
    """Rates on the simulated accelerator (its calls queue in the engine: more workers can't beat its one instance)."""
    shape = ACCELERATOR.shape
    workload = Workload("accelerator", "", shape, OCTETS, _tensors(shape, 16), int(1500 * seconds), 160)
    rates = found.scaling.setdefault(f"simulated accelerator, by {title}", {})
    for worker_count in workers:
        for api_count in apis:
            rates[str(worker_count if title == "workers" else api_count)] = await _rate(
                stand, [workload], workers=worker_count, apis=api_count
            )


async def _by_models(
    stand: Stand, copies: Sequence[Shape], models: Sequence[int], seconds: float, found: Growth
) -> None:
    """The rate of one worker whose jobs are spread over so many models."""
    rates = found.scaling.setdefault("64-byte tensors, one worker, by models", {})
    for count in models:
        shapes = copies[:count]
        uploads = _tensors(TINY, 16)
        jobs = int(1500 * seconds / count)
        workloads = [Workload(shape.name, "", shape, OCTETS, uploads, jobs, max(2, 64 // count)) for shape in shapes]
        rates[str(count)] = await _rate(stand, workloads)


async def _rate(stand: Stand, workloads: Sequence[Workload], *, workers: int = 1, apis: int = 1) -> float:
    port = free_port()
    listener = open_listening_socket("127.0.0.1", port)
    try:
        running = start(PRODUCT, stand.servers, workers=workers, apis=apis, listen_fd=listener.fileno(), port=port)
        try:
            for workload in workloads:
                await warm_up(running, workload, max(16, workload.jobs // 10))
            if len(workloads) == 1:
                return (await sustained(running, workloads[0], workloads[0].jobs, stand.groups)).rate
            started = time.perf_counter()
            await asyncio.gather(*(warm_up(running, workload, workload.jobs) for workload in workloads))
            return sum(workload.jobs for workload in workloads) / (time.perf_counter() - started)
        finally:
            running.stop()
    finally:
        listener.close()


def page(found: Growth) -> str:
    """What was found, as Markdown."""
    sizes = list(found.bytes_per_job)
    costs = [(name, *(f"{cost:.0f}" for _, cost in points)) for name, points in found.costs.items()]
    memory = (
        "memory of a queued job over its payload, bytes",
        *(f"{size:.0f}" for size in found.bytes_per_job.values()),
    )
    scaling = [
        (title, ", ".join(f"{label}: {rate:.0f}" for label, rate in points.items()))
        for title, points in found.scaling.items()
    ]
    parts = [
        "# Growth",
        machine(),
        "µs of Redis' CPU for a job, by how many are queued:",
        table(("operation", *(f"{size:,}" for size in sizes)), [*costs, memory]),
        "jobs/s:",
        table(("of what", "rates"), scaling),
    ]
    return "\n\n".join(parts) + "\n"
