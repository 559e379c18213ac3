"""`inferq demo`: the product's smallest proof, a real photo through the real queue and engine.

Owns the photo, the model and what counts as the right answer; it uses the product as any client does, over HTTP.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from inferq.client import AsyncClient, InferqError, Job
from inferq.commands.exit import CommandFailed
from inferq.commands.screen import class_words
from inferq.commands.up import report
from inferq.stack import EmbeddedStack, StackError, StackOptions
from inferq.stack.environment import PROJECT_ROOT

PHOTO: Final = PROJECT_ROOT / "examples" / "images" / "coffee.jpg"
MODEL: Final = "efficientnet_lite0"
OUTPUT: Final = "probabilities"
EXPECTED: Final = "espresso"
LEAST_SCORE: Final = 0.9
TIMEOUT_SECONDS: Final = 120.0


def demo() -> None:
    """Start everything, classify the photo, print the labels, stop everything; CommandFailed on a wrong answer."""
    if not PHOTO.is_file():
        raise CommandFailed(f"the demo's photo {PHOTO} is missing", "Run it from a clone of the repository.")
    with tempfile.TemporaryDirectory(prefix="inferq-demo-") as folder:
        try:
            classes = asyncio.run(_classify(Path(folder)))
        except (StackError, InferqError) as exc:
            raise CommandFailed(str(exc)) from exc
    best = classes[0]
    if best["label"] != EXPECTED or best["score"] <= LEAST_SCORE:
        raise CommandFailed(f"expected {EXPECTED} above {LEAST_SCORE}, got {class_words(best)}")


async def _classify(folder: Path) -> list[dict[str, Any]]:
    started_at = time.monotonic()
    async with EmbeddedStack(StackOptions(port=0, data=folder), report=report) as stack:
        report(f"started in {time.monotonic() - started_at:.1f} s")
        async with AsyncClient(stack.url) as client:
            submitted_at = time.monotonic()
            job = await client.submit(MODEL, PHOTO)
            done = await client.wait(job, TIMEOUT_SECONDS)
            took_seconds = time.monotonic() - submitted_at
        return _shown(done, took_seconds)


def _shown(job: Job, took_seconds: float) -> list[dict[str, Any]]:
    if job.error is not None or job.output is None:
        detail = job.error.detail if job.error else "it has no output"
        raise CommandFailed(f"the demo's job ended as {job.status}: {detail}")
    classes: list[dict[str, Any]] = job.output[OUTPUT]
    report(f"{PHOTO.name} → {MODEL}, {took_seconds * 1000:.0f} ms from upload to answer:")
    for item in classes:
        report(f"  {class_words(item)}")
    return classes
