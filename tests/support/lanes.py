"""A lane of the real worker on a real Valkey and a scripted engine, with a test holding the reins.

Owns opening and closing; tests submit, tell the engine what to say, and look at what became of the jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from jobs.datatypes import Datatype
from jobs.record import LOCAL_TENANT, InputPart, InputSource, Job, JobRequest, RequestedOutput
from jobs.registry import Registry
from jobs.store import JobStore, Submission, new_job_id
from tests.support.databases import Database
from tests.support.eventually import eventually
from tests.support.scripted_triton import ScriptedModel, ScriptedTriton, scripted_model
from workers.batch import BatchRunner
from workers.budget import ByteBudget, DecodeRoom
from workers.heartbeat import Heartbeat
from workers.lane import Lane
from workers.settings import WorkerSettings
from workers.sizer import BatchSizer
from workers.tools import Tools
from workers.triton.client import TritonClient
from workers.triton.options import EngineOptions
from workers.watch import EngineWatch

MODEL = "echo"


class QuickRandom(Random):
    """Backoff without the waiting: every delay is the shortest possible."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


@dataclass
class Rig:
    """One lane and what surrounds it."""

    engine: ScriptedTriton
    store: JobStore
    registry: Registry
    tools: Tools
    lane: Lane
    heartbeat: Heartbeat

    def runner(self) -> BatchRunner:
        """A batch runner like the lane's."""
        watch = EngineWatch(BatchSizer(self.lane.spec.max_batch_size), 20, time.monotonic())
        return BatchRunner(self.tools, self.lane.spec, watch, asyncio.Semaphore(2))

    async def submit(self, *values: float, **options: Any) -> str:
        """The id of a new job whose one FP32 input holds these values."""
        data = np.asarray(values, "<f4").tobytes()
        part = InputPart("x", InputSource.TENSOR, len(data), Datatype.FP32, (len(values),))
        return await self.submit_request(JobRequest(MODEL, (part,), (RequestedOutput("y"),), **options), data)

    async def submit_request(self, request: JobRequest, payload: bytes) -> str:
        """The id of a new job."""
        return (await self.store.submit(Submission(new_job_id(), LOCAL_TENANT, request, payload))).job_id

    async def job(self, job_id: str) -> Job:
        """The record of a job that must exist."""
        inspection = await self.store.get(job_id, LOCAL_TENANT)
        assert inspection is not None
        return inspection.job

    async def ended(self, *job_ids: str, timeout_seconds: float = 20) -> list[Job]:
        """The records, once all are terminal."""
        return await self.until(job_ids, lambda job: job.state.is_terminal, timeout_seconds)

    async def until(
        self, job_ids: Sequence[str], condition: Callable[[Job], bool], timeout_seconds: float = 20
    ) -> list[Job]:
        """The records, once the condition holds for all."""
        jobs: list[Job] = []

        async def holds() -> bool:
            jobs[:] = [await self.job(job_id) for job_id in job_ids]
            return all(condition(job) for job in jobs)

        await eventually(holds, timeout_seconds)
        return jobs

    async def values(self, job: Job) -> list[float]:
        """The numbers of a job's one FP32 output."""
        output = await self.store.output(job)
        assert output is not None
        return [float(value) for value in np.frombuffer(output, "<f4")]


@asynccontextmanager
async def lane_rig(
    valkey_url: str, model: ScriptedModel | None = None, *, runs: bool = True, **settings: Any
) -> AsyncIterator[Rig]:
    """A rig in an empty database; with `runs` the lane works and leases are renewed in the background."""
    url = Database.LANES.at(valkey_url)
    async with ScriptedTriton([model or scripted_model(MODEL)]) as engine:
        options = WorkerSettings(redis_url=url, engine=(engine.address,), **settings)
        store, _ = await JobStore.open(options)
        await store.connection.client.flushdb()
        threads = ThreadPoolExecutor(2)
        async with TritonClient(EngineOptions(addresses=options.engine)) as client:
            tools = Tools(
                worker_id="w-1",
                settings=options,
                store=store,
                engine=client,
                threads=threads,
                budget=ByteBudget(options.inflight_bytes),
                decoders=DecodeRoom(options.decode_bytes),
                rng=QuickRandom(),
            )
            registry = Registry(store.connection)
            lane = Lane(tools, await client.describe(MODEL, "", 5))
            heartbeat = Heartbeat(tools, registry, "test", lambda: {MODEL: lane.beat()})
            rig = Rig(engine, store, registry, tools, lane, heartbeat)
            loops = (lane.run(), heartbeat.run(), heartbeat.listen()) if runs else ()
            tasks = [asyncio.create_task(loop) for loop in loops]
            try:
                yield rig
            finally:
                await lane.stop(time.monotonic())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                threads.shutdown()
                await store.close()
