"""The answers of a decoupled model, which come one by one, as the one answer that a job has.

Pure: it joins what the engine's client collected.
"""

from collections.abc import Sequence

from jobs.errors import EngineFailed
from jobs.spec import ModelSpec
from jobs.tensors import Tensor
from workers.triton.messages import InferReply


def merge(replies: Sequence[InferReply], spec: ModelSpec) -> InferReply:
    """All responses as one: each output joined along its first dimension, the batch dimension left out.

    No response at all gives empty outputs. Raises EngineFailed when responses differ in more than that dimension.
    """
    if not replies:
        return InferReply("", tuple(Tensor(o.name, o.datatype, (0, *map(abs, o.dims[1:])), b"") for o in spec.outputs))
    forms = {tuple((o.name, o.datatype, _item_shape(o, spec)[1:]) for o in reply.outputs) for reply in replies}
    if len(forms) > 1:
        raise EngineFailed("The model's responses differ in the form of their outputs.")
    columns = zip(*(reply.outputs for reply in replies), strict=True)
    return InferReply(replies[0].model_version, tuple(_joined(column, spec) for column in columns))


def _joined(tensors: Sequence[Tensor], spec: ModelSpec) -> Tensor:
    shapes = [_item_shape(tensor, spec) for tensor in tensors]
    shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    return Tensor(tensors[0].name, tensors[0].datatype, shape, b"".join(tensor.data for tensor in tensors))


def _item_shape(tensor: Tensor, spec: ModelSpec) -> tuple[int, ...]:
    """The shape without the batch dimension; a scalar counts as one element."""
    shape = tensor.shape[1:] if spec.max_batch_size else tensor.shape
    return shape or (1,)
