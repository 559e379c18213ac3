"""Does a request fit a model? Names, datatypes, shapes and rows, outputs; the bytes come last.

It owns the rules and what is said about a breach; it is pure, and it must not change what it judges.
"""

import math
from collections.abc import Sequence

from api.formats import FormatError
from api.formats.values import check_bytes_count, data_from_values
from api.intake.describe import FILES_ARE_UPLOADED, dims, model_words, names
from api.intake.draft import DraftOutput, DraftTensor, DraftUpload
from api.problems import Problem, ProblemCode
from jobs.datatypes import MAX_ELEMENTS, Datatype, DatatypeError, check_size, element_count
from jobs.record import RequestedOutput
from jobs.spec import InputKind, InputSpec, ModelSpec, OutputKind
from jobs.tensors import Buffer

_LONGEST_NUMBER = 64
_UNCLASSIFIABLE = (Datatype.BYTES, Datatype.BOOL, Datatype.FP16, Datatype.BF16)


def check_served(model: ModelSpec, version: str) -> None:
    """Raise Problem unless jobs are accepted for this model and version ('' is the engine's choice)."""
    refusal = model.of_version(version).refusal
    if refusal is not None:
        raise Problem(ProblemCode.MODEL_NOT_SERVED, refusal, model=model.name)
    if version and version not in model.versions:
        raise Problem(
            ProblemCode.UNKNOWN_VERSION,
            f"Model `{model.name}` has no version {version[:100]}; it has {', '.join(model.versions)}.",
            model=model.name,
            known_versions=list(model.versions),
        )


def check_names(model: ModelSpec, given: Sequence[str]) -> None:
    """Raise Problem unless each input is given once, unless it is optional, and nothing else is."""
    seen: set[str] = set()
    for name in given:
        if model.input(name) is None:
            raise Problem(
                ProblemCode.UNKNOWN_INPUT,
                f"Model `{model.name}` has no input `{name[:100]}`; it takes {model_words(model)}.",
                input=name[:100],
            )
        if name in seen:
            raise Problem(
                ProblemCode.DUPLICATE_INPUT, f"The input {names([name])} is given more than once.", input=name
            )
        seen.add(name)
    missing = [spec.name for spec in model.inputs if not spec.optional and spec.name not in seen]
    if missing:
        raise Problem(
            ProblemCode.MISSING_INPUT,
            f"The input {names(missing)} is missing; model `{model.name}` takes {model_words(model)}.",
            missing=missing,
        )
    if not given and model.max_batch_size > 0:
        raise Problem(
            ProblemCode.MISSING_INPUT,
            f"Model `{model.name}` runs in batches, whose size the engine tells by the inputs, so one at least is "
            f"needed; it takes {model_words(model)}.",
            missing=[],
        )


def check_rows(model: ModelSpec, inputs: Sequence[DraftTensor | DraftUpload]) -> int | None:
    """The number of rows that every tensor has, or None where all are single items; raises Problem.

    A tensor with one dimension more than its spec is the client's own batch of rows. Uploads are single items.
    """
    rows = {item.name: _rows(model, item) for item in inputs}
    if len(set(rows.values())) > 1:
        words = ", ".join(
            f"`{name}` is one item" if count is None else f"`{name}` has {count} rows" for name, count in rows.items()
        )
        raise Problem(
            ProblemCode.INVALID_TENSOR, f"All inputs must be one item, or have the same number of rows: {words}."
        )
    return next(iter(rows.values()), None)


def _rows(model: ModelSpec, item: DraftTensor | DraftUpload) -> int | None:
    if isinstance(item, DraftUpload):
        return None
    spec = model.input(item.name)
    assert spec is not None
    if item.datatype != spec.datatype:
        raise _mismatch(model, spec, item)
    rank = len(spec.dims)
    has_rows = model.max_batch_size > 0 and len(item.shape) == rank + 1
    row_shape = item.shape[1:] if has_rows else item.shape
    if len(row_shape) != rank or not all(
        dim >= 0 and wanted in (dim, -1) for dim, wanted in zip(row_shape, spec.dims, strict=True)
    ):
        raise _mismatch(model, spec, item)
    if math.prod(filter(None, item.shape)) > MAX_ELEMENTS:
        raise Problem(
            ProblemCode.INVALID_TENSOR,
            f"Input `{spec.name}`: {dims(item.shape[:40])} has more than {MAX_ELEMENTS} elements.",
            input=spec.name,
        )
    if not has_rows:
        return None
    rows = item.shape[0]
    if not 1 <= rows <= model.max_batch_size:
        raise Problem(
            ProblemCode.INVALID_TENSOR,
            f"Input `{spec.name}` has {rows} rows; model `{model.name}` takes 1 to {model.max_batch_size} at a time.",
            input=spec.name,
        )
    return rows


def other_versions(model: ModelSpec, tried: ModelSpec, tensors: Sequence[DraftTensor]) -> str:
    """A sentence that names the versions of `model`, beside the `tried` one, that these tensors fit; '' for none."""
    fitting = [
        version
        for version in model.versions
        if (spec := model.of_version(version)) is not tried and spec.refusal is None and _fits(spec, tensors)
    ]
    if not fitting:
        return ""
    return f" {'Version' if len(fitting) == 1 else 'Versions'} {', '.join(fitting)} of it would take this."


def _fits(model: ModelSpec, tensors: Sequence[DraftTensor]) -> bool:
    try:
        check_names(model, [tensor.name for tensor in tensors])
        check_rows(model, tensors)
    except Problem:
        return False
    return True


def _mismatch(model: ModelSpec, spec: InputSpec, item: DraftTensor) -> Problem:
    rows = f", or up to {model.max_batch_size} rows of it" if model.max_batch_size > 0 else ""
    is_file = spec.kind is InputKind.IMAGE and item.datatype == Datatype.BYTES
    hint = f" {FILES_ARE_UPLOADED}" if is_file else ""
    return Problem(
        ProblemCode.INVALID_TENSOR,
        f"Input `{spec.name}` of model `{model.name}` takes {spec.datatype} {dims(spec.dims)}{rows}; "
        f"got {item.datatype[:40]} {dims(item.shape[:40])}.{hint}",
        input=spec.name,
        expected={"datatype": spec.datatype.value, "shape": list(spec.dims)},
        got={"datatype": item.datatype[:40], "shape": list(item.shape[:40])},
    )


def _has_file(tensor: DraftTensor) -> bool:
    """Whether a text stands where numbers belong, so long that it can only be a file in base64."""
    first = tensor.values[0] if tensor.values and tensor.datatype != Datatype.BYTES else None
    return isinstance(first, dict) or (isinstance(first, str) and len(first) > _LONGEST_NUMBER)


def tensor_data(tensor: DraftTensor) -> Buffer:
    """The raw bytes of a tensor whose shape has been checked; raises Problem where bytes or values don't fit it."""
    datatype = Datatype(tensor.datatype)
    try:
        if tensor.values is not None:
            return data_from_values(datatype, tensor.shape, tensor.values)
        if datatype is Datatype.BYTES:
            check_bytes_count(element_count(tensor.shape))
        check_size(datatype, tensor.shape, memoryview(tensor.data))
    except (FormatError, DatatypeError) as exc:
        hint = f" {FILES_ARE_UPLOADED}" if _has_file(tensor) else ""
        raise Problem(
            ProblemCode.INVALID_TENSOR, f"Input `{tensor.name}`: {str(exc).rstrip('.')}.{hint}", input=tensor.name
        ) from None
    return tensor.data


def requested_outputs(model: ModelSpec, asked: tuple[DraftOutput, ...] | None) -> tuple[RequestedOutput, ...]:
    """The outputs to compute; all of them where none are asked for. Raises Problem."""
    if not asked:
        asked = tuple(DraftOutput(spec.name) for spec in model.outputs)
    if len({output.name for output in asked}) != len(asked):
        raise Problem(ProblemCode.INVALID_OUTPUT, "An output is asked for twice.")
    return tuple(_requested(model, output) for output in asked)


def _requested(model: ModelSpec, asked: DraftOutput) -> RequestedOutput:
    spec = model.output(asked.name)
    if spec is None:
        raise Problem(
            ProblemCode.UNKNOWN_OUTPUT,
            f"Model `{model.name}` has no output `{asked.name[:100]}`; "
            f"it has {names(output.name for output in model.outputs)}.",
            output=asked.name[:100],
        )
    if asked.classes is None:
        return RequestedOutput(spec.name, spec.top if spec.kind is OutputKind.CLASSIFICATION else 0)
    if asked.classes and spec.datatype in _UNCLASSIFIABLE:
        raise Problem(
            ProblemCode.INVALID_OUTPUT,
            f"Output `{spec.name}` is {spec.datatype}, which has no classes.",
            output=spec.name,
        )
    return RequestedOutput(spec.name, asked.classes)
