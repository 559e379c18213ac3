"""What the rest of the worker says to the engine and hears from it, in plain frozen dataclasses.

It must not know protobuf or gRPC: `wire` converts, `client` sends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobs.datatypes import Datatype
from jobs.tensors import Buffer, Tensor

ParameterValue = bool | int | float | str

READY: Final = "READY"
"""The state of an `IndexEntry` that takes requests."""

UNAVAILABLE: Final = "UNAVAILABLE"
"""The state of one that was unloaded, or that could not be loaded."""


@dataclass(frozen=True, slots=True)
class BatchTensor:
    """A tensor whose row-major bytes lie in several buffers, in order: rows of a batch that nobody has joined.

    The buffers are copied once, straight into the request; joining them before only adds a copy.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parts: tuple[Buffer, ...]

    @property
    def nbytes(self) -> int:
        """Size of the raw data in bytes."""
        return sum(memoryview(part).nbytes for part in self.parts)


def parts_of(tensor: Tensor | BatchTensor) -> tuple[Buffer, ...]:
    """The buffers that hold a tensor's bytes, in order."""
    return tensor.parts if isinstance(tensor, BatchTensor) else (tensor.data,)


class Placed(NamedTuple):
    """A call's inputs in shared memory: the region's name at the engine, and each input's offset and size in bytes."""

    region: str
    inputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output to return: as it is, or as its `classification` best classes where that is above 0.

    Classes come as BYTES `score:index` or `score:index:label`, the best first.
    """

    name: str
    classification: int = 0


@dataclass(frozen=True, slots=True)
class InferCall:
    """One inference request, batch dimension included.

    Shapes are the model's own: with the batch dimension first where `max_batch_size` is above 0. An empty `version`
    leaves the choice to the model's policy; no `outputs` asks for all. `priority` 0 is the model's default level.
    `timeout_us` is how long the engine may keep the request in its queue; None: as long as the call may take.
    """

    model: str
    version: str
    request_id: str
    inputs: tuple[Tensor | BatchTensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    priority: int = 0
    timeout_us: int | None = None


@dataclass(frozen=True, slots=True)
class InferReply:
    """One response: the version that answered, and outputs in the order asked for; every tensor's size is checked."""

    model_version: str
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One model version in the engine's repositories; `reason` says why it is not ready."""

    name: str
    version: str
    state: str
    reason: str

    @property
    def is_ready(self) -> bool:
        """The engine takes requests for it."""
        return self.state == READY

    @property
    def has_failed(self) -> bool:
        """The engine tried to load it and could not; one that somebody unloaded has not failed."""
        return self.state == UNAVAILABLE and self.reason not in ("", "unloaded")


@dataclass(frozen=True, slots=True)
class Spent:
    """How often something happened and how long it took in all."""

    count: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.count + other.count, self.seconds + other.seconds)


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """What the engine counted since it loaded the model, summed over versions and addresses.

    `inferences` counts items, `executions` runs of the model: batches formed where there are fewer runs than items.
    `executions_by_size` says how many runs had which batch size. The times are per request.
    """

    inferences: int = 0
    executions: int = 0
    success: Spent = Spent()
    fail: Spent = Spent()
    queue: Spent = Spent()
    compute_input: Spent = Spent()
    compute_infer: Spent = Spent()
    compute_output: Spent = Spent()
    executions_by_size: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: "ModelStatistics") -> "ModelStatistics":
        sizes = sorted({*self.executions_by_size, *other.executions_by_size})
        return ModelStatistics(
            inferences=self.inferences + other.inferences,
            executions=self.executions + other.executions,
            success=self.success + other.success,
            fail=self.fail + other.fail,
            queue=self.queue + other.queue,
            compute_input=self.compute_input + other.compute_input,
            compute_infer=self.compute_infer + other.compute_infer,
            compute_output=self.compute_output + other.compute_output,
            executions_by_size={
                size: self.executions_by_size.get(size, 0) + other.executions_by_size.get(size, 0) for size in sizes
            },
        )
