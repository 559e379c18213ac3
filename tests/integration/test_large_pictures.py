"""T: Image/audio/archive, decode bounded in memory: large pictures take turns, however many threads there are."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
from PIL import Image

from jobs.record import InputPart, InputSource, JobRequest, RequestedOutput
from jobs.state import State
from tests.support.lanes import MODEL, lane_rig
from tests.support.scripted_triton import scripted_model

pytestmark = [pytest.mark.anyio, pytest.mark.server]

SIDE = 6_000
BYTES = 16 * SIDE * SIDE
"""What decoding one takes: 576 MB; its file has a few KB."""
PARAMETER = '{"inputs": {"x": {"kind": "image", "resize": 32, "crop": 32}}}'


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_hostile_pictures_are_decoded_one_after_the_other(valkey_url: str) -> None:
    file = io.BytesIO()
    Image.new("RGBA", (SIDE, SIDE), (1, 2, 3, 100)).save(file, "WEBP")
    upload = file.getvalue()
    assert len(upload) < 100_000
    model = scripted_model(MODEL, inputs=[("x", "UINT8", (32, 32, 3))], parameter=PARAMETER)
    async with lane_rig(valkey_url, model, decode_bytes=512 << 20) as rig:
        before, resident, held = _resident_bytes(), 0, 0

        async def watch() -> None:
            nonlocal resident, held
            while True:
                resident, held = max(resident, _resident_bytes() - before), max(held, rig.tools.decoders.held_bytes)
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        request = JobRequest(MODEL, (InputPart("x", InputSource.UPLOAD, len(upload)),), (RequestedOutput("y"),))
        ended = await rig.ended(*[await rig.submit_request(request, upload) for _ in range(4)], timeout_seconds=60)
        watching.cancel()
        assert [job.state for job in ended] == [State.SUCCEEDED] * 4, [job.outcome for job in ended]
        assert held == BYTES
        assert resident < 1.5 * BYTES, "two at once would take twice as much"
        assert rig.tools.decoders.held_bytes == 0
