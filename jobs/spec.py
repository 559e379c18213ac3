"""What a model takes and gives, as the engine's own configuration says it.

Workers read specs from the engine and publish them; the api validates against them. It must not talk to either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeVar

from jobs.datatypes import Datatype

Interpolation = Literal["nearest", "bilinear", "bicubic", "area", "lanczos"]
ColorOrder = Literal["RGB", "BGR", "GRAY"]
Layout = Literal["HWC", "CHW"]

MAX_NAME_LENGTH: Final = 255


class InputKind(StrEnum):
    """What a client may upload for an input; a tensor is always accepted too."""

    TENSOR = "tensor"
    IMAGE = "image"
    TEXT = "text"
    BYTES = "bytes"


class OutputKind(StrEnum):
    """How an output is shown: the numbers, or the best classes with their labels."""

    TENSOR = "tensor"
    CLASSIFICATION = "classification"


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How an uploaded picture becomes the model's input.

    `resize` is the length of the shorter side in pixels, `crop` the (height, width) of the centre crop. With
    neither, the picture is stretched to the model's fixed height and width, or kept as it is where they are variable.
    For float inputs, each channel becomes `(pixel * scale - mean) / std`.
    """

    layout: Layout
    resize: int | None = None
    crop: tuple[int, int] | None = None
    interpolation: Interpolation = "bilinear"
    color: ColorOrder = "RGB"
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    orientation: bool = True
    """Whether a picture is turned as its EXIF data says; else it is taken as it is stored."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: `dims` are one item's, without the batch dimension; -1 is variable."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    optional: bool = False
    kind: InputKind = InputKind.TENSOR
    image: ImageOptions | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output: `dims` are one item's, without the batch dimension; `top` classes where it is a classification."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    kind: OutputKind = OutputKind.TENSOR
    top: int = 0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as the product serves it; `max_batch_size` 0 means that it has no batch dimension.

    It is what the newest of `versions` takes and gives; those that take or give something else are in `variants`.
    `refusal` is one sentence that says why no job is accepted for it, and None where jobs are. `config` is the engine's
    own configuration of it as JSON, for clients that ask for it; '' where a worker that does not know it wrote this.
    """

    name: str
    versions: tuple[str, ...]
    max_batch_size: int
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    instances: int = 1
    platform: str = ""
    decoupled: bool = False
    refusal: str | None = None
    notes: tuple[str, ...] = field(default=())
    config: str = ""
    has_fixed_batch: bool = False
    """Whether the model takes exactly `max_batch_size` rows: smaller batches are filled up with zeros."""
    variants: "tuple[ModelSpec, ...]" = ()
    """Specs of the versions that differ from the newest one, each with the versions that it is of and no variants."""

    @classmethod
    def unloaded(cls, name: str, reason: str) -> "ModelSpec":
        """What is known of a model that its engine could not load."""
        return cls(name, (), 0, (), (), refusal=f"The engine could not load it: {reason}")

    def of_version(self, version: str) -> "ModelSpec":
        """What this version takes and gives; '' is the engine's choice, which is the newest one."""
        for variant in self.variants:
            if version in variant.versions:
                return variant
        return self

    def input(self, name: str) -> InputSpec | None:
        """The input of this name."""
        return _named(self.inputs, name)

    def output(self, name: str) -> OutputSpec | None:
        """The output of this name."""
        return _named(self.outputs, name)

    def to_plain(self) -> dict[str, Any]:
        """As plain dicts, lists, strings and numbers. Who does not know `variants` reads what the newest version is."""
        plain = asdict(self)
        if not self.variants:
            del plain["variants"]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "ModelSpec":
        """The inverse of `to_plain`; unknown fields of a newer version are left out, and variants of variants."""
        known = {name: plain[name] for name in cls.__dataclass_fields__ if name in plain}
        known["versions"] = tuple(known["versions"])
        known["notes"] = tuple(known.get("notes", ()))
        known["inputs"] = tuple(_input_from_plain(item) for item in known["inputs"])
        known["outputs"] = tuple(_output_from_plain(item) for item in known["outputs"])
        known["variants"] = tuple(cls.from_plain({**item, "variants": ()}) for item in known.get("variants", ()))
        return cls(**known)


_Spec = TypeVar("_Spec", InputSpec, OutputSpec)


def _named(specs: tuple[_Spec, ...], name: str) -> _Spec | None:
    for spec in specs:  # a generator would cost more than the few comparisons
        if spec.name == name:
            return spec
    return None


def _input_from_plain(plain: Mapping[str, Any]) -> InputSpec:
    return InputSpec(
        name=plain["name"],
        datatype=Datatype(plain["datatype"]),
        dims=tuple(plain["dims"]),
        optional=plain["optional"],
        kind=InputKind(plain["kind"]),
        image=_image_from_plain(plain["image"]) if plain["image"] else None,
    )


def _image_from_plain(plain: Mapping[str, Any]) -> ImageOptions:
    crop: Sequence[int] | None = plain["crop"]
    return ImageOptions(
        layout=plain["layout"],
        resize=plain["resize"],
        crop=(crop[0], crop[1]) if crop else None,
        interpolation=plain["interpolation"],
        color=plain["color"],
        scale=plain["scale"],
        mean=tuple(plain["mean"]),
        std=tuple(plain["std"]),
        orientation=plain.get("orientation", True),  # an older worker does not say
    )


def _output_from_plain(plain: Mapping[str, Any]) -> OutputSpec:
    return OutputSpec(
        name=plain["name"],
        datatype=Datatype(plain["datatype"]),
        dims=tuple(plain["dims"]),
        kind=OutputKind(plain["kind"]),
        top=plain["top"],
    )
