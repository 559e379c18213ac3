"""The engines that are measured on: their shapes, as every system is told them, and the repository that is written.

Owns names, shapes and costs. Must not start anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferq.stack.triton import MODELS as DEPLOYED

PHOTO_MODEL: Final = "efficientnet_lite0"
PHOTO_SIDE: Final = 224
PHOTO_REPOSITORY: Final = DEPLOYED


@dataclass(frozen=True)
class Shape:
    """One model as a caller must know it: one input, one output, dims without the batch dimension."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    input: str = "input"
    output: str = "output"
    classes: int = 0
    """Above 0: the engine is asked for that many best classes."""

    @property
    def nbytes(self) -> int:
        """Size of one item in bytes."""
        return math.prod(self.dims) * {"FP32": 4, "UINT8": 1}[self.datatype]


@dataclass(frozen=True)
class Cost:
    """How long a sleeping engine takes for `rows` rows: `fixed_ms`, and `item_ms` for each row.

    Rows are computed in tiles of `tile` (what is left of one costs as much), and each row beyond `knee` costs
    `extra_ms` more for every row that it is beyond, as where a cache is too small.
    """

    fixed_ms: float
    item_ms: float
    tile: int = 1
    knee: int = 1_000_000
    extra_ms: float = 0.0

    def seconds(self, rows: int) -> float:
        """The duration of a call."""
        tiled = math.ceil(rows / self.tile) * self.tile
        over = max(0, rows - self.knee)
        return (self.fixed_ms + self.item_ms * tiled + self.extra_ms * over * over) / 1000


@dataclass(frozen=True)
class Sleeper:
    """An engine that costs time and no CPU: it sleeps as `cost` says and gives back what it got."""

    shape: Shape
    max_batch_size: int
    cost: Cost
    dynamic_batching: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The divisors of `max_batch_size`."""
        return tuple(size for size in range(1, self.max_batch_size + 1) if self.max_batch_size % size == 0)


TINY: Final = Shape("bench_tiny", "FP32", (16,))
MEGABYTE: Final = Shape("bench_megabyte", "FP32", (262_144,))
PHOTO: Final = Shape(PHOTO_MODEL, "UINT8", (PHOTO_SIDE, PHOTO_SIDE, 3), "image", "probabilities", classes=5)
ACCELERATOR: Final = Sleeper(Shape("bench_accelerator", "FP32", (16,)), 64, Cost(4.0, 0.5), dynamic_batching=True)

SIZER_ENGINES: Final = (
    # The more the better: a GPU. Best at 64.
    Sleeper(Shape("bench_steep", "FP32", (16,)), 64, Cost(12.0, 0.25)),
    # A few at a time: CPU cores whose cache holds four items. Best at 4 of 32.
    Sleeper(Shape("bench_valley", "FP32", (16,)), 32, Cost(3.0, 2.0, knee=4, extra_ms=0.5)),
    # Tiles of eight, and a penalty for many: best at 8 of 24, with a worse size on either side.
    Sleeper(Shape("bench_tiles", "FP32", (16,)), 24, Cost(1.0, 0.75, tile=8, knee=8, extra_ms=0.1)),
)
SHAPES: Final = {
    shape.name: shape for shape in (TINY, MEGABYTE, PHOTO, *(s.shape for s in (ACCELERATOR, *SIZER_ENGINES)))
}

_SOURCE: Final = '''\
"""Gives back what it gets, after the sleep that its parameters ask for."""

import json
import math
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.cost = json.loads(parameters["cost"]["string_value"]) if "cost" in parameters else None

    def execute(self, requests):
        tensors = [request.inputs()[0].as_numpy() for request in requests]
        if self.cost is not None:
            time.sleep(self.seconds(sum(len(tensor) for tensor in tensors)))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("output", tensor)]) for tensor in tensors]

    def seconds(self, rows):
        cost = self.cost
        tiled = math.ceil(rows / cost["tile"]) * cost["tile"]
        over = max(0, rows - cost["knee"])
        return (cost["fixed_ms"] + cost["item_ms"] * tiled + cost["extra_ms"] * over * over) / 1000
'''


def write_models(repository: Path) -> Path:
    """Write every generated model; returns the repository. The photo model is the deployed one."""
    _write(repository, TINY, 64, None, dynamic_batching=True)
    _write(repository, MEGABYTE, 16, None, dynamic_batching=True)
    for sleeper in (ACCELERATOR, *SIZER_ENGINES):
        _write(repository, sleeper.shape, sleeper.max_batch_size, sleeper.cost, sleeper.dynamic_batching)
    return repository


def write_copies(repository: Path, count: int) -> list[Shape]:
    """Write `count` tiny models, for one worker to serve them all; returns their shapes."""
    shapes = [Shape(f"bench_copy_{number}", "FP32", TINY.dims) for number in range(count)]
    for shape in shapes:
        _write(repository, shape, 64, None, dynamic_batching=True)
    return shapes


def _write(repository: Path, shape: Shape, max_batch_size: int, cost: Cost | None, dynamic_batching: bool) -> None:
    """Dynamic batching is on where peers are measured: they send single items, and anybody would switch it on."""
    lines = [
        'backend: "python"',
        f"max_batch_size: {max_batch_size}",
        f'input [ {{ name: "input" data_type: TYPE_{shape.datatype} dims: {list(shape.dims)} }} ]',
        f'output [ {{ name: "output" data_type: TYPE_{shape.datatype} dims: {list(shape.dims)} }} ]',
        "instance_group [ { kind: KIND_CPU count: 1 } ]",
    ]
    if dynamic_batching:
        lines.append("dynamic_batching { }")
    if cost is not None:
        words = ", ".join(f'"{name}": {value}' for name, value in vars(cost).items())
        lines.append(f"parameters {{ key: \"cost\" value {{ string_value: '{{{words}}}' }} }}")
    folder = repository / shape.name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("\n".join(lines) + "\n")
    (folder / "1" / "model.py").write_text(_SOURCE)
