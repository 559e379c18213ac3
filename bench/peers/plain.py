"""No queue at all: the request waits for its ModelInfer, and the answer is the output.

Nothing is kept: a crash loses what is running, and a burst is the engine's to bear.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from bench.peers.engine import Engine


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One channel for the life of the application."""
    async with Engine() as engine:
        app.state.engine = engine
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/jobs")
async def infer(request: Request, model: str) -> Response:
    """The output of one job."""
    content_type = request.headers.get("content-type", "")
    return Response(await request.app.state.engine.infer(model, await request.body(), content_type))


@app.get("/health/ready")
async def ready() -> Response:
    """The process answers."""
    return Response(status_code=200)
