"""The HTTP contract of the peers with a queue, as a FastAPI application.

`POST /jobs?model=` with the raw body answers 202 and `{"id": …}`; `GET /jobs/{id}/result` answers 202 until the output
is there, then 200 and its bytes. It must not know which queue is behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse


class Queue(Protocol):
    """What a peer must do: take a job, and say what came of it."""

    async def submit(self, model: str, data: bytes, content_type: str) -> str:
        """Enqueue; returns the id once the job is stored."""

    async def result(self, job_id: str) -> bytes | None:
        """The output, None while there is none."""


class OpenQueue(Protocol):
    """Opens a peer's queue for the life of the application."""

    def __call__(self) -> AbstractAsyncContextManager[Queue]:
        """The queue, inside `async with`."""


def make_app(open_queue: OpenQueue) -> FastAPI:
    """The application over one queue."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_queue() as queue:
            app.state.queue = queue
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/jobs", status_code=202)
    async def submit(request: Request, model: str) -> Response:
        content_type = request.headers.get("content-type", "")
        job_id = await request.app.state.queue.submit(model, await request.body(), content_type)
        return JSONResponse({"id": job_id}, 202)

    @app.get("/jobs/{job_id}/result")
    async def result(request: Request, job_id: str) -> Response:
        output = await request.app.state.queue.result(job_id)
        return Response(status_code=202) if output is None else Response(output, 200)

    @app.get("/health/ready")
    async def ready() -> Response:
        return Response(status_code=200)

    return app
