"""The work: which model, which uploads, how many, and what must come back.

It owns bytes and counts; it must not know who does the work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.models import ACCELERATOR, MEGABYTE, PHOTO, TINY, Shape
from bench.peers.engine import prepared

PHOTOS: Final = Path(__file__).parents[1] / "examples" / "images"
OCTETS: Final = "application/octet-stream"


@dataclass(frozen=True)
class Workload:
    """Uploads for one model, sent in turn; `jobs` of them over `connections` make one measurement of a fast system."""

    key: str
    title: str
    shape: Shape
    content_type: str
    uploads: tuple[bytes, ...]
    jobs: int
    connections: int
    is_identity: bool = True
    """Whether the output must be the upload."""


def _tensors(shape: Shape, count: int) -> tuple[bytes, ...]:
    rng = np.random.default_rng(7)
    return tuple(rng.standard_normal(shape.nbytes // 4, dtype=np.float32).tobytes() for _ in range(count))


def workloads() -> tuple[Workload, ...]:
    """All of them; reads the photos."""
    photos = tuple(path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg")))
    pixels = tuple(prepared(photo, "image/jpeg") for photo in photos)
    return (
        Workload("tiny", "64-byte tensors", TINY, OCTETS, _tensors(TINY, 16), 5000, 64),
        Workload("megabyte", "1 MB tensors", MEGABYTE, OCTETS, _tensors(MEGABYTE, 4), 250, 16),
        Workload("photos", "JPEG photos, EfficientNet-Lite0", PHOTO, "image/jpeg", photos, 1000, 32, False),
        Workload("prepared", "prepared tensors, EfficientNet-Lite0", PHOTO, OCTETS, pixels, 1000, 32, False),
        Workload(
            "accelerator",
            "simulated accelerator",
            ACCELERATOR.shape,
            OCTETS,
            _tensors(ACCELERATOR.shape, 16),
            3000,
            160,
        ),
    )


def check(workload: Workload, number: int, output: bytes) -> None:
    """Raises AssertionError where `output` is not what upload `number` must give."""
    if workload.is_identity:
        wanted = workload.uploads[number % len(workload.uploads)]
        assert output.endswith(wanted), f"{workload.key}: {len(output)} bytes came back, and not those that were sent"
    else:
        assert output, f"{workload.key}: nothing came back"


def protocol_binary(shape: Shape, data: bytes) -> tuple[bytes, int]:
    """A tensor in the Open Inference Protocol's binary form, and the length of its header."""
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": shape.input,
                    "datatype": shape.datatype,
                    "shape": list(shape.dims),
                    "parameters": {"binary_data_size": len(data)},
                }
            ]
        }
    ).encode()
    return header + data, len(header)


def chosen(keys: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads of these keys, all if none is given."""
    return tuple(workload for workload in workloads() if not keys or workload.key in keys)
