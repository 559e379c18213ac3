"""Pure: fits what a model's author asked for (the `inferq` parameter) to the model's own tensors.

It raises ParameterError where the two contradict each other; it must not guess where both readings make sense.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from jobs.datatypes import Datatype
from jobs.spec import ImageOptions, InputKind, InputSpec, Layout, OutputKind, OutputSpec
from workers.triton.parameter import InputParameter, OutputParameter, ParameterError
from workers.triton.pb import inference_pb2 as pb

_FLOATS: Final = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64})
_PICTURES: Final = _FLOATS | {Datatype.UINT8}

_RANKABLE: Final = frozenset(Datatype) - {Datatype.BOOL, Datatype.BYTES, Datatype.FP16, Datatype.BF16}
"""The datatypes that Triton's classification extension can order."""

_FORMATS: Final[Mapping[int, Layout]] = MappingProxyType(
    {pb.ModelInput.FORMAT_NHWC: "HWC", pb.ModelInput.FORMAT_NCHW: "CHW"}
)

_DEFAULT_TOP: Final = 5


def input_spec(spec: InputSpec, wanted: InputParameter, tensor_format: int) -> InputSpec:
    """The input's spec with its kind; `tensor_format` is the configuration's `format` of this input."""
    if wanted.kind is not InputKind.IMAGE:
        strays = sorted(wanted.model_fields_set - {"kind"})
        if strays:
            raise ParameterError(f"inputs.{spec.name}: '{strays[0]}' concerns only inputs of kind 'image'")
    image = None
    match wanted.kind:
        case InputKind.IMAGE:
            image = _image(spec, wanted, tensor_format)
        case InputKind.TEXT | InputKind.BYTES:
            _check_single_element(spec, wanted.kind)
        case InputKind.TENSOR:
            pass
    return InputSpec(spec.name, spec.datatype, spec.dims, spec.optional, wanted.kind, image)


def output_spec(spec: OutputSpec, wanted: OutputParameter) -> OutputSpec:
    """The output's spec with its kind; labels are the engine's business, and may be missing."""
    if wanted.kind is OutputKind.TENSOR:
        if wanted.top is not None:
            raise ParameterError(f"outputs.{spec.name}: 'top' concerns only outputs of kind 'classification'")
        return spec
    if spec.datatype not in _RANKABLE:
        raise ParameterError(f"outputs.{spec.name}: the engine can't rank the classes of a {spec.datatype} output")
    top = _DEFAULT_TOP if wanted.top is None else wanted.top
    return OutputSpec(spec.name, spec.datatype, spec.dims, OutputKind.CLASSIFICATION, top)


def _check_single_element(spec: InputSpec, kind: InputKind) -> None:
    if spec.datatype is not Datatype.BYTES:
        raise ParameterError(f"inputs.{spec.name}: kind '{kind}' needs a BYTES tensor, and it is {spec.datatype}")
    if any(dim not in (1, -1) for dim in spec.dims):
        raise ParameterError(f"inputs.{spec.name}: kind '{kind}' fills one element, and dims are {list(spec.dims)}")


def _image(spec: InputSpec, wanted: InputParameter, tensor_format: int) -> ImageOptions:
    where = f"inputs.{spec.name}"
    if spec.datatype not in _PICTURES:
        raise ParameterError(f"{where}: an image needs UINT8, FP16, FP32 or FP64, and it is {spec.datatype}")
    if len(spec.dims) != 3:
        raise ParameterError(
            f"{where}: an image needs three dims (height, width and channels in some order), and they are "
            f"{list(spec.dims)}; where the model itself wants another shape, 'reshape' in its configuration does that"
        )
    channels = 1 if wanted.color == "GRAY" else 3
    layout = _layout(where, spec.dims, channels, wanted, _FORMATS.get(tensor_format))
    sides = spec.dims[:2] if layout == "HWC" else spec.dims[1:]
    return ImageOptions(
        layout=layout,
        resize=wanted.resize,
        crop=_crop(where, sides, wanted),
        interpolation=wanted.interpolation,
        color=wanted.color,
        scale=_only_for_floats(where, spec, wanted).scale,
        mean=_per_channel(where, "mean", wanted.mean, channels),
        std=_per_channel(where, "std", wanted.std, channels),
        orientation=wanted.orientation,
    )


def _layout(
    where: str, dims: tuple[int, ...], channels: int, wanted: InputParameter, declared: Layout | None
) -> Layout:
    """The order of the dims: as the author says, as `format` says, or as only one place for the channels allows."""
    if wanted.layout and declared and wanted.layout != declared:
        raise ParameterError(f"{where}: layout {wanted.layout} contradicts the configuration's format, {declared}")
    places: dict[Layout, int] = {"HWC": dims[2], "CHW": dims[0]}
    said = wanted.layout or declared
    if said:
        if places[said] not in (channels, -1):
            raise ParameterError(
                f"{where}: {wanted.color} has {channels} channels, and dims {list(dims)} as {said} have {places[said]}"
            )
        return said
    fitting: list[Layout] = [layout for layout, dim in places.items() if dim == channels]
    if len(fitting) != 1:
        raise ParameterError(
            f"{where}: dims {list(dims)} don't tell where the {channels} channels of {wanted.color} are; "
            "'layout' can say it (HWC or CHW)"
        )
    return fitting[0]


def _crop(where: str, sides: tuple[int, ...], wanted: InputParameter) -> tuple[int, int] | None:
    """The crop that gives the model's own height and width; None: the picture is stretched or keeps its shape."""
    height, width = sides
    crop = wanted.crop
    if crop is None and wanted.resize is not None and height > 0 and width > 0:
        crop = (height, width)
    if crop is None:
        if (height > 0) != (width > 0) or (wanted.resize is not None and height > 0):
            raise ParameterError(f"{where}: only one side is fixed in {list(sides)}, so 'crop' must say both")
        return None
    if any(dim not in (side, -1) for dim, side in zip(sides, crop, strict=True)):
        raise ParameterError(f"{where}: crop {list(crop)} doesn't give the model's height and width, {list(sides)}")
    if wanted.resize is not None and wanted.resize < max(crop):
        raise ParameterError(
            f"{where}: crop {list(crop)} is larger than the shorter side after resize, {wanted.resize}"
        )
    return crop


def _only_for_floats(where: str, spec: InputSpec, wanted: InputParameter) -> InputParameter:
    if spec.datatype not in _FLOATS:
        strays = sorted(wanted.model_fields_set & {"scale", "mean", "std"})
        if strays:
            raise ParameterError(f"{where}: '{strays[0]}' needs a float input, and it is {spec.datatype}")
    return wanted


def _per_channel(where: str, name: str, values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(values) == 1:
        return values * channels
    if values and len(values) != channels:
        raise ParameterError(f"{where}: '{name}' has {len(values)} numbers for {channels} channels")
    return values
