"""Requests in Open Inference Protocol words: JSON, msgpack, and the protocol's binary form.

It owns the words, what may stand where and what is ambiguous; it must not know any model.
"""

import re
from collections.abc import Container
from typing import Any, Final

from api.formats import FormatError, json, msgpack
from api.formats.binary import BinarySection, split
from api.intake.describe import FILES_ARE_UPLOADED
from api.intake.draft import Draft, DraftOutput, DraftTensor
from api.intake.limits import MAX_PARAMETER_BYTES, MAX_PARAMETERS, MAX_PARTS, MAX_REQUEST_ID_LENGTH, IntakeLimits
from api.intake.options import OPTION_NAMES, check_names
from api.problems import Problem, ProblemCode

_WORDS: Final = ("id", "inputs", "outputs", "parameters")
_FILE: Final = "file"
_MEMBERS: Final = (*OPTION_NAMES, *_WORDS)
_INPUT_MEMBERS: Final = frozenset({"name", "datatype", "shape", "data", "parameters"})
_OUTPUT_MEMBERS: Final = frozenset({"name", "parameters"})
_RESERVED: Final = re.compile(r"sequence_|shared_memory_|triton_|binary_data|priority$|timeout$|classification$")
_BINARY_OUTPUT: Final = "binary_data_output"
_MAX_SHAPE_RANK: Final = 64
_MAX_PARAMETER_NAME_LENGTH: Final = 255


def draft_from_json(body: bytes, limits: IntakeLimits) -> Draft:
    """What a JSON document says; raises Problem."""
    return draft_from_document(_parse_json(body, limits))


def draft_from_msgpack(body: bytes) -> Draft:
    """What a msgpack document says; a tensor's `data` may be its raw bytes. Raises Problem."""
    try:
        document = msgpack.loads(body)
    except FormatError as exc:
        raise _malformed(f"The body can't be used as msgpack: {exc}.") from None
    return draft_from_document(document)


def draft_from_binary(body: bytes, header_length: str, limits: IntakeLimits) -> Draft:
    """What a JSON header with raw tensors behind it says; raises Problem."""
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) <= 18):
        raise Problem(ProblemCode.INVALID_REQUEST, "Inference-Header-Content-Length is not a number of bytes.")
    try:
        header, section = split(body, int(header_length))
    except FormatError as exc:
        raise _malformed(f"The body does not fit Inference-Header-Content-Length: {exc}.") from None
    draft = draft_from_document(_parse_json(bytes(header), limits), section)
    try:
        section.finish()
    except FormatError as exc:
        raise Problem(ProblemCode.INVALID_TENSOR, f"The sizes don't add up: {exc}.") from None
    return draft


def draft_from_document(document: Any, section: BinarySection | None = None) -> Draft:
    """What a parsed document says; `section` holds the raw bytes of the inputs that have a `binary_data_size`.

    A member that is null is one that is not given: some clients write out all that they know of.
    """
    if not isinstance(document, dict):
        many = " An array of them goes to POST /jobs/batch." if isinstance(document, list) else ""
        raise _malformed(f"The document is not an object with `model` and `inputs`.{many}")
    if _FILE in document:
        raise Problem(ProblemCode.INVALID_OPTION, f"A document has no `{_FILE}`. {FILES_ARE_UPLOADED}", option=_FILE)
    check_names(document, _MEMBERS)
    document = _given(document)
    inputs = document.get("inputs", [])
    if not isinstance(inputs, list) or len(inputs) > MAX_PARTS or not all(isinstance(item, dict) for item in inputs):
        raise _malformed(f"`inputs` is not an array of at most {MAX_PARTS} objects.")
    request_id = document.get("id", "")
    if not isinstance(request_id, str) or len(request_id) > MAX_REQUEST_ID_LENGTH:
        raise _malformed(f"`id` is not a text of at most {MAX_REQUEST_ID_LENGTH} characters.")
    outputs = document.get("outputs")
    return Draft(
        options={name: value for name, value in document.items() if name not in _WORDS},
        tensors=tuple(_tensor(item, section) for item in inputs),
        outputs=None if outputs is None else outputs_of(outputs),
        parameters=parameters_of(document.get("parameters", {}), OPTION_NAMES),
        request_id=request_id,
    )


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _tensor(item: dict[str, Any], section: BinarySection | None) -> DraftTensor:
    item = _given(item)
    name = item.get("name")
    if not isinstance(name, str):
        raise _malformed("An input has no `name`.")
    unknown = item.keys() - _INPUT_MEMBERS
    if unknown:
        raise _malformed(f"Input `{name[:100]}` has an unknown member `{min(unknown)[:100]}`.")
    datatype, shape = item.get("datatype"), item.get("shape")
    if not isinstance(datatype, str):
        raise _malformed(f"Input `{name[:100]}` has no `datatype`.")
    if not isinstance(shape, list) or not all(type(dim) is int for dim in shape) or len(shape) > _MAX_SHAPE_RANK:
        raise _malformed(f"Input `{name[:100]}` has no `shape`, or one that is not an array of integers.")
    data = _data(name, item, section)
    if isinstance(data, list):
        return DraftTensor(name, datatype, tuple(shape), values=data)
    return DraftTensor(name, datatype, tuple(shape), data=data)


def _data(name: str, item: dict[str, Any], section: BinarySection | None) -> list[Any] | bytes | memoryview:
    parameters = item.get("parameters", {})
    if not isinstance(parameters, dict) or parameters.keys() - {"binary_data_size"}:
        raise Problem(
            ProblemCode.INVALID_PARAMETER,
            f"Input `{name[:100]}` has parameters, of which only `binary_data_size` is supported.",
        )
    size = parameters.get("binary_data_size")
    data = item.get("data")
    if size is None:
        if not isinstance(data, list | bytes):
            hint = f" {FILES_ARE_UPLOADED}" if isinstance(data, str | dict) else ""
            raise _malformed(f"Input `{name[:100]}` has no `data`, or `data` that is not an array.{hint}")
        return data
    if section is None:
        raise _malformed(
            f"Input `{name[:100]}` has a `binary_data_size`, which needs the header Inference-Header-Content-Length."
        )
    if data is not None or type(size) is not int or size < 0:
        raise _malformed(f"Input `{name[:100]}` has both kinds of data, or a size that is not one.")
    try:
        return section.take(size)
    except FormatError as exc:
        raise Problem(ProblemCode.INVALID_TENSOR, f"Input `{name[:100]}`: {exc}.", input=name[:100]) from None


def outputs_of(value: Any) -> tuple[DraftOutput, ...]:
    """The outputs that are asked for: objects as in the protocol, or just names."""
    if not isinstance(value, list):
        raise _malformed("`outputs` is not an array.")
    return tuple(map(_output, value))


def _output(item: Any) -> DraftOutput:
    if isinstance(item, str):
        return DraftOutput(item)
    item = _given(item) if isinstance(item, dict) else item
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or item.keys() - _OUTPUT_MEMBERS:
        raise _malformed("An output is not an object of `name` and `parameters`.")
    parameters = item.get("parameters", {})
    if not isinstance(parameters, dict) or parameters.keys() - {"classification", "binary_data"}:
        raise Problem(
            ProblemCode.INVALID_PARAMETER,
            f"Output `{item['name'][:100]}` has parameters, of which only `classification` is supported.",
        )
    classes = parameters.get("classification")
    if classes is not None and (type(classes) is not int or not 0 <= classes < 2**31):
        raise Problem(ProblemCode.INVALID_PARAMETER, "`classification` is not a number of classes.")
    return DraftOutput(item["name"], classes)


def parameters_of(value: Any, options: Container[str] = ()) -> dict[str, Any]:
    """Request parameters for the model: names to booleans, numbers or texts; raises Problem for any other.

    Those with a meaning to the engine are refused: what they do is the queue's business. So are those that are called
    like one of these `options`, which would be without effect here. Clients of the protocol say with
    `binary_data_output` how they want the response; a job's result is asked for later, so it is left out.
    """
    if not isinstance(value, dict) or len(value) > MAX_PARAMETERS:
        raise _malformed(f"`parameters` is not an object of at most {MAX_PARAMETERS} members.")
    parameters = {name: given for name, given in value.items() if name != _BINARY_OUTPUT}
    for name, given in parameters.items():
        if name in options:
            raise Problem(
                ProblemCode.INVALID_PARAMETER,
                f"`{name}` is an option of the job and no parameter of the model: "
                "it stands beside `parameters`, not in it.",
                parameter=name,
            )
        if not 0 < len(name) <= _MAX_PARAMETER_NAME_LENGTH:
            raise Problem(
                ProblemCode.INVALID_PARAMETER,
                f"A parameter's name has 1 to {_MAX_PARAMETER_NAME_LENGTH} characters, got {len(name)}.",
                parameter=name[:100],
            )
        if _RESERVED.match(name):
            raise Problem(
                ProblemCode.INVALID_PARAMETER, f"The parameter `{name[:100]}` is reserved.", parameter=name[:100]
            )
        if not _is_scalar(given):
            raise Problem(
                ProblemCode.INVALID_PARAMETER,
                f"The parameter `{name}` is not a boolean, a 64-bit integer, a number or a short text.",
                parameter=name,
            )
    return parameters


def _is_scalar(value: Any) -> bool:
    if type(value) is int:
        return bool(-(2**63) <= value < 2**63)
    if type(value) is str:
        return len(value.encode()) <= MAX_PARAMETER_BYTES
    return type(value) in (bool, float)


def _parse_json(text: bytes, limits: IntakeLimits) -> Any:
    if len(text) > limits.max_json_bytes:
        raise Problem(
            ProblemCode.PAYLOAD_TOO_LARGE,
            f"The JSON is larger than {limits.max_json_bytes} bytes; send large tensors as raw bytes.",
        )
    try:
        return json.loads(text)
    except FormatError as exc:
        raise _malformed(f"The body can't be used as JSON: {exc}.") from None


def _malformed(detail: str) -> Problem:
    return Problem(ProblemCode.MALFORMED_BODY, detail)
