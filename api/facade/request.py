"""Reads what Triton's clients post to `/infer` into a draft, and what form they want the answer in.

It owns what of that protocol has a meaning here. Shapes are the client's own, batch dimension included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from api.formats import FormatError, json
from api.formats.binary import BinarySection, split
from api.intake.describe import dims, names
from api.intake.draft import Draft, DraftOutput, DraftTensor
from api.intake.envelope import draft_from_document, parameters_of
from api.intake.limits import MAX_TIMEOUT_SECONDS, IntakeLimits
from api.problems import Problem, ProblemCode
from jobs.datatypes import Datatype, pack_bytes
from jobs.spec import InputKind, ModelSpec
from jobs.tensors import Buffer

_INPUT_MEMBERS: Final = ("name", "datatype", "shape", "data")
_SHARED_MEMORY: Final = "shared_memory_"
_SEQUENCE_TRUTHS: Final = ("sequence_start", "sequence_end")
_SEQUENCE_ID: Final = "sequence_id"
_HANDLED_PARAMETERS: Final = frozenset({"binary_data_output", "priority", "timeout", _SEQUENCE_ID, *_SEQUENCE_TRUTHS})
_MICROSECONDS: Final = 1_000_000


def version_name(text: str) -> str:
    """A version as the path spells it, by the name that it has: Triton reads a number, so 01 is 1."""
    return text.lstrip("0") or "0" if text.isascii() and text.isdigit() else text


class Wanted(NamedTuple):
    """Which form the answer has: `binary` says by name, `is_binary` for the outputs that it does not name."""

    binary: Mapping[str, bool]
    is_binary: bool

    def is_raw(self, output: str) -> bool:
        """Whether the output comes as raw bytes behind the JSON."""
        return self.binary.get(output, self.is_binary)


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One request: what it asks of the model, and how it wants the answer. `queue_seconds` None leaves that to us."""

    draft: Draft
    wanted: Wanted
    queue_seconds: float | None


def read_infer(body: bytes, header_length: str, model: ModelSpec, limits: IntakeLimits) -> InferRequest:
    """What a body says; `header_length` is '' where all of it is JSON. Raises Problem."""
    if not header_length:
        return _read(_parsed(body, limits), None, model)
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) <= 18):
        raise Problem(ProblemCode.INVALID_REQUEST, "Inference-Header-Content-Length is not a number of bytes.")
    if int(header_length) == 0:
        return _raw(body, model)
    try:
        header, section = split(body, int(header_length))
    except FormatError as exc:
        raise Problem(
            ProblemCode.MALFORMED_BODY, f"The body does not fit Inference-Header-Content-Length: {exc}."
        ) from None
    request = _read(_parsed(bytes(header), limits), section, model)
    try:
        section.finish()
    except FormatError as exc:
        raise Problem(ProblemCode.INVALID_TENSOR, f"The sizes don't add up: {exc}.") from None
    return request


def _parsed(text: bytes, limits: IntakeLimits) -> dict[str, Any]:
    if len(text) > limits.max_json_bytes:
        raise Problem(
            ProblemCode.PAYLOAD_TOO_LARGE,
            f"The JSON is larger than {limits.max_json_bytes} bytes; send large tensors as raw bytes.",
        )
    try:
        document = json.loads(text)
    except FormatError as exc:
        raise Problem(ProblemCode.MALFORMED_BODY, f"failed to parse the request JSON buffer: {exc}") from None
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise Problem(ProblemCode.MALFORMED_BODY, "The request is not an object with an array `inputs`.")
    return document


def _read(document: Mapping[str, Any], section: BinarySection | None, model: ModelSpec) -> InferRequest:
    parameters = document.get("parameters")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise Problem(ProblemCode.MALFORMED_BODY, "`parameters` is not an object.")
    _check_sequence(parameters)
    outputs, wanted = _outputs(document.get("outputs"), parameters)
    draft = draft_from_document(
        {
            "id": document.get("id", ""),
            "inputs": [_input(item) for item in document["inputs"]],
            "outputs": outputs,
        },
        section,
    )
    given = parameters_of({name: value for name, value in parameters.items() if name not in _HANDLED_PARAMETERS})
    check_shapes(draft.tensors, model)
    _unsigned(parameters, "priority")  # as a model without priority levels has it: read, and without effect
    return InferRequest(_as_numbers(replace(draft, parameters=given), model), wanted, _queue_seconds(parameters))


def _input(item: Any) -> dict[str, Any]:
    """One input's known members; Triton passes over those that it does not know."""
    if not isinstance(item, dict):
        raise Problem(ProblemCode.MALFORMED_BODY, "An input is not an object.")
    parameters = _parameters_of(item, "input")
    known = {name: item[name] for name in _INPUT_MEMBERS if name in item}
    if "binary_data_size" in parameters:
        known["parameters"] = {"binary_data_size": parameters["binary_data_size"]}
    return known


def _outputs(items: Any, parameters: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Wanted]:
    """The outputs that are asked for, and their form. As with Triton, the first of two of one name counts, and
    `binary_data_output` where no output is named."""
    is_binary = _truth(parameters.get("binary_data_output", False), "binary_data_output")
    if items is None or items == []:
        return [], Wanted({}, is_binary)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Problem(ProblemCode.MALFORMED_BODY, "`outputs` is not an array of objects.")
    asked: list[dict[str, Any]] = []
    binary: dict[str, bool] = {}
    for item in items:
        given = _parameters_of(item, "output")
        is_raw = _truth(given.get("binary_data", False), "binary_data")
        name = item.get("name")
        if isinstance(name, str) and name in binary:
            continue
        if isinstance(name, str):
            binary[name] = is_raw
        classes = {"classification": given["classification"]} if "classification" in given else {}
        asked.append({"name": name, "parameters": classes})
    return asked, Wanted(binary, is_binary=False)


def _parameters_of(item: Mapping[str, Any], what: str) -> dict[str, Any]:
    parameters = item.get("parameters")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise Problem(ProblemCode.MALFORMED_BODY, f"An {what}'s `parameters` is not an object.")
    if any(name.startswith(_SHARED_MEMORY) for name in parameters):
        raise Problem(
            ProblemCode.NOT_SUPPORTED,
            f"The {what} is in shared memory, which a queue can't reach; send its bytes in the request.",
        )
    return parameters


def _check_sequence(parameters: Mapping[str, Any]) -> None:
    """Raise Problem unless they are what they must be. A model that is served keeps no state, so they mean nothing."""
    for name in _SEQUENCE_TRUTHS:
        _truth(parameters.get(name, False), name)
    given = parameters.get(_SEQUENCE_ID, 0)
    if not isinstance(given, str) and not (type(given) is int and given >= 0):
        raise Problem(
            ProblemCode.INVALID_PARAMETER, f"The parameter `{_SEQUENCE_ID}` is no number of one, and no text."
        )


def _truth(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise Problem(ProblemCode.INVALID_PARAMETER, f"The parameter `{name}` is not true or false.")
    return value


def _queue_seconds(parameters: Mapping[str, Any]) -> float | None:
    """How long the call may wait in the queue, None where it does not say so: 0 is Triton's word for that, too."""
    microseconds = _unsigned(parameters, "timeout")
    if microseconds > MAX_TIMEOUT_SECONDS * _MICROSECONDS:
        raise Problem(
            ProblemCode.INVALID_PARAMETER,
            f"The parameter `timeout` is more than {MAX_TIMEOUT_SECONDS * _MICROSECONDS} microseconds.",
        )
    return max(microseconds / _MICROSECONDS, 0.001) if microseconds else None


def _unsigned(parameters: Mapping[str, Any], name: str) -> int:
    """A parameter that Triton reads as an unsigned integer; 0 where it is not given."""
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**64:
        raise Problem(ProblemCode.INVALID_PARAMETER, f"The parameter `{name}` is not an unsigned integer.")
    return value


def _as_numbers(draft: Draft, model: ModelSpec) -> Draft:
    """Here an output is classified only where the request says so, whatever the model's own parameter prefers.

    They come in the order of the model's configuration, as with Triton.
    """
    places = {spec.name: place for place, spec in enumerate(model.outputs)}
    asked = draft.outputs or tuple(DraftOutput(spec.name) for spec in model.outputs)
    asked = tuple(sorted(asked, key=lambda output: places.get(output.name, len(places))))
    outputs = tuple(DraftOutput(output.name, output.classes or 0) for output in asked)
    return Draft(draft.options, draft.tensors, (), outputs, draft.parameters, draft.request_id)


def check_shapes(tensors: tuple[DraftTensor, ...], model: ModelSpec) -> None:
    """Raise Problem for a tensor of a batching model that comes without the batch dimension."""
    if model.max_batch_size == 0:
        return
    for tensor in tensors:
        spec = model.input(tensor.name)
        if spec is not None and spec.kind is InputKind.IMAGE and tensor.datatype == Datatype.BYTES:
            continue  # a picture that comes as bytes hears of more than its shape
        if spec is not None and len(tensor.shape) != len(spec.dims) + 1:
            raise Problem(
                ProblemCode.INVALID_TENSOR,
                f"unexpected shape for input '{spec.name}' for model '{model.name}'. Expected "
                f"{dims((-1, *spec.dims))}, got {dims(tensor.shape[:40])}: the first dimension is the batch.",
            )


def _raw(body: bytes, model: ModelSpec) -> InferRequest:
    """The whole body is the one input's element or elements, in a batch of one."""
    if len(model.inputs) != 1:
        raise Problem(
            ProblemCode.MISSING_INPUT,
            f"A raw request is for a model with one input; model `{model.name}` has "
            f"{names(spec.name for spec in model.inputs)}.",
        )
    (spec,) = model.inputs
    data: Buffer = pack_bytes([body]) if spec.datatype is Datatype.BYTES else body
    shape = _raw_shape(spec.dims, len(body), spec.datatype.itemsize)
    batch = (1,) if model.max_batch_size else ()
    draft = Draft(tensors=(DraftTensor(spec.name, spec.datatype, (*batch, *shape), data=data),))
    return InferRequest(_as_numbers(draft, model), Wanted({}, is_binary=True), None)


def _raw_shape(wanted: tuple[int, ...], nbytes: int, itemsize: int | None) -> tuple[int, ...]:
    """The dims, with what the number of bytes says in the place of the variable one. Raises Problem."""
    if sum(dim < 0 for dim in wanted) > 1:
        raise Problem(ProblemCode.INVALID_TENSOR, f"The shape {dims(wanted)} can't be told from raw bytes.")
    if itemsize is None:
        return tuple(abs(dim) for dim in wanted)
    fixed = itemsize
    for dim in wanted:
        fixed *= abs(dim)
    return tuple(nbytes // fixed if dim < 0 and fixed else dim for dim in wanted)
