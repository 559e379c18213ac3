"""Uploads: which input one is for, and whether it is what that input takes.

It owns the media types that each kind of input accepts; it must not decode a picture beyond its header.
"""

from typing import Final

from api.formats import FormatError, json
from api.formats.npy import is_npy, read_npy
from api.formats.values import shape_of_nested
from api.intake.describe import dims, input_words, model_words
from api.intake.draft import DraftTensor, DraftUpload
from api.intake.limits import IntakeLimits
from api.intake.media import JSON, NPY, OCTETS
from api.intake.options import FIELD_NAMES, no_option
from api.problems import Problem, ProblemCode
from jobs.datatypes import FRAME_BYTES, Datatype, DatatypeError, check_size
from jobs.images import InvalidImage, TooManyPixels, is_picture, probe
from jobs.spec import InputKind, InputSpec, ModelSpec

FILE: Final = "file"
"""The part of a form that is for whichever input takes uploads, unless an input has that very name."""

_UPLOAD_KINDS: Final = (InputKind.IMAGE, InputKind.TEXT, InputKind.BYTES)
_ACCEPTED: Final = {
    InputKind.IMAGE: ("image/*", OCTETS, NPY),
    InputKind.TEXT: ("text/*", OCTETS, NPY),
    InputKind.BYTES: ("any type",),
    InputKind.TENSOR: (NPY, JSON, OCTETS),
}
_OF_PICTURES: Final = (Datatype.UINT8, Datatype.FP16, Datatype.FP32, Datatype.FP64)
_RANK_OF_PICTURES: Final = 3
_AT_SIGN: Final = "; with curl, a file is `-F file=@NAME`, and without the @ it is the name that is sent"
_CONFIG: Final = 'config.pbtxt (README, "Your own model")'
_UTF8: Final = ("", "utf-8", "utf8", "us-ascii")


def target_of(model: ModelSpec, upload: DraftUpload) -> InputSpec:
    """The input that an upload is for: the named one, else the only one that it can be for. Raises Problem."""
    named = model.input(upload.name)
    if named is not None:
        return named
    if upload.name not in ("", FILE):
        hint = f" {no_option(upload.name, FIELD_NAMES)}" if upload.is_bare_field else ""
        raise Problem(
            ProblemCode.UNKNOWN_INPUT,
            f"Model `{model.name}` has no input `{upload.name[:100]}`; it takes {model_words(model)}.{hint}",
            input=upload.name[:100],
        )
    takers = [spec for spec in model.inputs if spec.kind in _UPLOAD_KINDS]
    candidates = takers or [spec for spec in model.inputs if not spec.optional] or list(model.inputs)
    if len(candidates) != 1:
        raise Problem(
            ProblemCode.MISSING_INPUT,
            f"The upload could be for several inputs. Model `{model.name}` takes {model_words(model)}: name the one "
            "with `input`, or send a multipart body with one part per input.",
        )
    return candidates[0]


def resolve(spec: InputSpec, upload: DraftUpload, limits: IntakeLimits) -> DraftTensor | DraftUpload:
    """The upload, checked and named after its input; or the tensor that it holds. Raises Problem."""
    if _is_npy_tensor(spec, upload):
        return _npy_tensor(spec, upload)
    _check_media_type(spec, upload)
    if not upload.data:
        raise Problem(
            ProblemCode.EMPTY_UPLOAD, f"The upload for input `{spec.name}` has no bytes at all.", input=spec.name
        )
    if spec.kind is InputKind.TENSOR:
        return _plain_tensor(spec, upload, limits)
    if spec.kind is InputKind.IMAGE:
        _check_image(spec, upload, limits.max_pixels)
    if spec.kind is InputKind.TEXT:
        _check_text(spec, upload)
    return DraftUpload(spec.name, upload.media_type, upload.data)


def _is_npy_tensor(spec: InputSpec, upload: DraftUpload) -> bool:
    """By what it says it is, or by magic where the input takes no files that could begin like this."""
    return upload.media_type == NPY or (spec.kind is not InputKind.BYTES and is_npy(upload.data))


def _check_media_type(spec: InputSpec, upload: DraftUpload) -> None:
    if _is_accepted(spec.kind, upload):
        return
    if upload.is_bare_field and spec.kind is InputKind.IMAGE:
        raise Problem(
            ProblemCode.INVALID_IMAGE,
            f"Input {input_words(spec)} takes a file, and the form has a text field{_AT_SIGN}.",
            input=spec.name,
        )
    given = upload.media_type[:100] + (f" in {upload.charset[:100]}" if upload.charset else "")
    raise Problem(
        ProblemCode.UNSUPPORTED_MEDIA_TYPE,
        f"Input {input_words(spec)} takes {', '.join(_ACCEPTED[spec.kind])}, got {given}.{_kind_hint(spec, upload)}",
        input=spec.name,
        accepted=list(_ACCEPTED[spec.kind]),
    )


def _kind_hint(spec: InputSpec, upload: DraftUpload) -> str:
    """What the model's owner can do so that an input of tensors takes the file that somebody sent it."""
    if spec.kind is not InputKind.TENSOR:
        return ""
    if spec.datatype is Datatype.BYTES:
        what, kinds = "a file or text", '"kind": "bytes"` or `"kind": "text"'
        is_possible = all(dim in (1, -1) for dim in spec.dims)
    else:
        what, kinds = "a picture", '"kind": "image"'
        is_sent = upload.media_type.startswith("image/") or is_picture(upload.data)
        is_possible = is_sent and spec.datatype in _OF_PICTURES and len(spec.dims) == _RANK_OF_PICTURES
    if not is_possible:
        return ""
    return f" To take {what}, the input needs `{kinds}` in the `inferq` parameter of the model's {_CONFIG}."


def _is_accepted(kind: InputKind, upload: DraftUpload) -> bool:
    media = upload.media_type
    if kind is InputKind.BYTES or media == OCTETS:
        return True
    if kind is InputKind.IMAGE:
        return media.startswith("image/")
    if kind is InputKind.TEXT:
        return media.startswith("text/") and upload.charset.lower() in _UTF8
    return _is_json(upload)


def _is_json(upload: DraftUpload) -> bool:
    """A form's text fields for tensors are JSON."""
    return upload.media_type == JSON or upload.is_bare_field


def _npy_tensor(spec: InputSpec, upload: DraftUpload) -> DraftTensor:
    try:
        datatype, shape, data = read_npy(memoryview(upload.data))
    except FormatError as exc:
        raise _invalid_tensor(spec, f"the .npy file can't be used: {exc}") from None
    if spec.datatype is Datatype.BF16 and datatype is Datatype.UINT16:
        datatype = Datatype.BF16  # numpy has no such type, so its raw words are what most people have
    return DraftTensor(spec.name, datatype, shape, data=data)


def _plain_tensor(spec: InputSpec, upload: DraftUpload, limits: IntakeLimits) -> DraftTensor:
    if _is_json(upload):
        return _json_tensor(spec, upload, limits)
    if any(dim < 0 for dim in spec.dims):
        raise _invalid_tensor(
            spec,
            f"its shape {dims(spec.dims)} is variable, so raw bytes don't say it; send .npy or JSON",
            _kind_hint(spec, upload),
        )
    try:
        check_size(spec.datatype, spec.dims, upload.data)
    except DatatypeError as exc:
        framed = f"; raw, each element stands behind its length in {FRAME_BYTES} little-endian bytes"
        raise _invalid_tensor(
            spec, f"{exc}{framed if spec.datatype is Datatype.BYTES else ''}", _kind_hint(spec, upload)
        ) from None
    return DraftTensor(spec.name, spec.datatype, spec.dims, data=upload.data)


def _json_tensor(spec: InputSpec, upload: DraftUpload, limits: IntakeLimits) -> DraftTensor:
    """Nested arrays of numbers or texts, whose nesting says the shape; one by itself is all of a tensor of one."""
    if memoryview(upload.data).nbytes > limits.max_json_bytes:
        raise _invalid_tensor(spec, f"the JSON is larger than {limits.max_json_bytes} bytes; send .npy")
    try:
        values = json.loads(bytes(upload.data))
    except FormatError as exc:
        hint = _AT_SIGN if upload.is_bare_field else ""
        raise _invalid_tensor(spec, f"the part can't be used as JSON: {exc}{hint}") from None
    if not isinstance(values, list):
        is_one_element = all(dim in (1, -1) for dim in spec.dims)
        return DraftTensor(spec.name, spec.datatype, (1,) * len(spec.dims) if is_one_element else (), values=[values])
    return DraftTensor(spec.name, spec.datatype, shape_of_nested(values), values=values)


def _check_image(spec: InputSpec, upload: DraftUpload, max_pixels: int) -> None:
    try:
        probe(memoryview(upload.data), max_pixels)
    except TooManyPixels as exc:
        raise Problem(ProblemCode.TOO_MANY_PIXELS, _sentence(spec, exc), input=spec.name) from None
    except InvalidImage as exc:
        raise Problem(ProblemCode.INVALID_IMAGE, _sentence(spec, exc), input=spec.name) from None


def _check_text(spec: InputSpec, upload: DraftUpload) -> None:
    try:
        str(upload.data, "utf-8")
    except UnicodeDecodeError as exc:
        raise Problem(
            ProblemCode.INVALID_TEXT,
            f"The text for input `{spec.name}` is not UTF-8: byte {exc.start} is {exc.reason}.",
            input=spec.name,
        ) from None


def _sentence(spec: InputSpec, exc: Exception) -> str:
    return f"Input `{spec.name}`: {str(exc).rstrip('.')}."


def _invalid_tensor(spec: InputSpec, why: str, hint: str = "") -> Problem:
    return Problem(ProblemCode.INVALID_TENSOR, f"Input `{spec.name}`: {why}.{hint}", input=spec.name)
