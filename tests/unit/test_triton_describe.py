"""What the engine says of a model, as a spec: tensors, kinds, layouts, and every way in which a parameter is wrong."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.datatypes import Datatype
from jobs.spec import ImageOptions, InputKind, ModelSpec, OutputKind
from tests.support.scripted_answers import scripted_model
from workers.triton.describe import model_spec
from workers.triton.parameter import ParameterError, parse
from workers.triton.pb import inference_pb2 as pb

IMAGENET = (0.485, 0.456, 0.406)


def described(config: pb.ModelConfig, *versions: str) -> ModelSpec:
    """The spec of a configuration."""
    return model_spec(pb.ModelMetadataResponse(name=config.name, versions=versions, platform="p"), config)


def classifier(
    parameter: object,
    *,
    dims: tuple[int, ...] = (224, 224, 3),
    datatype: str = "UINT8",
    tensor_format: Any = pb.ModelInput.FORMAT_NONE,
) -> ModelSpec:
    """The spec of a model from `x` (by default a picture) to `p` (1000 numbers), a text `t` and a flag `f`."""
    config = scripted_model(
        "cats",
        inputs=[("x", datatype, dims), ("t", "BYTES", (1,)), ("w", "BYTES", (2,))],
        outputs=[("p", "FP32", (1000,)), ("f", "BOOL", (1,))],
        parameter=parameter if isinstance(parameter, str) else json.dumps(parameter),
    ).config
    config.input[0].format = tensor_format
    return described(config, "1")


def image(x: dict[str, Any], **shown: Any) -> ImageOptions:
    """The options of input `x` of the classifier."""
    spec = classifier({"inputs": {"x": {"kind": "image"} | x}}, **shown)
    assert spec.refusal is None
    assert spec.inputs[0].kind is InputKind.IMAGE
    assert spec.inputs[0].image is not None
    return spec.inputs[0].image


def refusal(parameter: object, **shown: Any) -> str:
    """Why the classifier with this parameter is refused."""
    spec = classifier(parameter, **shown)
    assert spec.refusal is not None
    assert all(each.kind is InputKind.TENSOR for each in spec.inputs)
    return spec.refusal.removeprefix("The model's 'inferq' parameter is wrong: ")


def test_a_model_without_the_parameter_takes_and_gives_tensors() -> None:
    config = scripted_model(
        "m",
        inputs=[("a", "FP32", (-1, 4)), ("b", "BYTES", (1,))],
        outputs=[("c", "BF16", (2,))],
        max_batch_size=16,
    ).config
    config.input[1].optional = True
    config.input[0].reshape.shape.extend([4, -1])
    spec = described(config, "2", "10", "1")
    assert spec.refusal is None
    assert spec.notes == ()
    assert spec.platform == "p"
    assert spec.versions == ("1", "2", "10")
    assert spec.max_batch_size == 16
    assert [(each.name, each.datatype, each.dims, each.optional) for each in spec.inputs] == [
        ("a", Datatype.FP32, (-1, 4), False),
        ("b", Datatype.BYTES, (1,), True),
    ]
    assert [(each.name, each.datatype, each.dims) for each in spec.outputs] == [("c", Datatype.BF16, (2,))]
    assert ModelSpec.from_plain(spec.to_plain()) == spec


def a_version(width: int, **options: Any) -> pb.ModelConfig:
    """The configuration of a version whose input `x` has so many elements."""
    return scripted_model("m", inputs=[("x", "FP32", (width,))], **options).config


def of_versions(*configs: pb.ModelConfig) -> ModelSpec:
    """The spec of a model whose versions 1, 2 … have these configurations."""
    older = {str(number): config for number, config in enumerate(configs[:-1], 1)}
    names = [str(number) for number in range(1, len(configs) + 1)]
    return model_spec(pb.ModelMetadataResponse(name="m", versions=names, platform="p"), configs[-1], older)


def test_versions_that_take_the_same_are_one_spec() -> None:
    spec = of_versions(a_version(2), a_version(2), a_version(2))
    assert spec == described(a_version(2), "1", "2", "3") == spec.of_version("1")
    assert (spec.versions, spec.variants) == (("1", "2", "3"), ())
    assert "variants" not in spec.to_plain()


def test_versions_that_differ_from_the_newest_have_specs_of_their_own() -> None:
    spec = of_versions(a_version(2), a_version(3), a_version(2, max_batch_size=0), a_version(2), a_version(3))
    assert (spec.versions, spec.inputs[0].dims) == (("1", "2", "3", "4", "5"), (3,))
    assert [each.versions for each in spec.variants] == [("1", "4"), ("3",)]
    shapes = {version: spec.of_version(version).inputs[0].dims for version in ("", *spec.versions)}
    assert shapes == {"": (3,), "1": (2,), "2": (3,), "3": (2,), "4": (2,), "5": (3,)}
    assert [spec.of_version(version).max_batch_size for version in spec.versions] == [8, 8, 0, 8, 8]
    assert ModelSpec.from_plain(spec.to_plain()) == spec


def test_an_older_process_reads_of_versions_that_differ_what_the_newest_one_is() -> None:
    spec = of_versions(a_version(2), a_version(3))
    plain = spec.to_plain()
    del plain["variants"]
    assert ModelSpec.from_plain(plain) == described(a_version(3), "1", "2")


def test_a_variant_of_a_variant_is_passed_over() -> None:
    """V05: what nobody writes can't be nested so deep that it stops whoever reads it."""
    spec = of_versions(a_version(2), a_version(3))
    plain = spec.to_plain()
    plain["variants"][0]["variants"] = [plain["variants"][0]]
    assert ModelSpec.from_plain(plain) == spec


def test_one_version_may_be_refused_and_pictures_have_each_versions_size() -> None:
    config = scripted_model(
        "m", inputs=[("x", "UINT8", (32, 32, 3))], parameter='{"inputs": {"x": {"kind": "image", "resize": 40}}}'
    ).config
    flat, small = pb.ModelConfig(), pb.ModelConfig()
    flat.CopyFrom(config)
    flat.input[0].dims[:] = [3072]
    small.CopyFrom(config)
    small.input[0].dims[:] = [16, 16, 3]
    spec = of_versions(flat, small, config)
    assert spec.refusal is None
    assert "three dims" in (spec.of_version("1").refusal or "")
    images = [spec.of_version(version).inputs[0].image for version in ("2", "3")]
    assert [image.crop for image in images if image] == [(16, 16), (32, 32)]


@pytest.mark.parametrize("datatype", Datatype)
def test_every_datatype_of_a_configuration_is_known(datatype: Datatype) -> None:
    config = scripted_model("m", inputs=[("x", datatype.value, (1,))]).config
    assert described(config).inputs[0].datatype is datatype


def test_a_datatype_from_the_future_is_refused() -> None:
    config = scripted_model("m").config
    config.input[0].data_type = 77  # type: ignore[assignment]  # protobuf keeps numbers that an enum doesn't name
    assert described(config).refusal == "Input 'x' has a datatype that is not known here."


@pytest.mark.parametrize(
    ("groups", "instances"),
    [
        ([], 1),
        ([{"count": 3}], 3),
        ([{"count": 2, "gpus": [0, 1]}, {"count": 1}], 5),
        ([{"count": 2, "passive": True}], 1),
        ([{"count": 2, "passive": True}, {"count": 4, "gpus": [0]}], 4),
    ],
)
def test_instances_are_counted_over_groups_and_devices(groups: list[dict[str, Any]], instances: int) -> None:
    config = pb.ModelConfig(name="m", instance_group=[pb.ModelInstanceGroup(**group) for group in groups])
    assert described(config).instances == instances


def test_a_sequence_model_is_refused() -> None:
    """B049."""
    config = scripted_model("m", parameter="not even JSON").config
    config.sequence_batching.max_sequence_idle_microseconds = 1
    assert described(config).refusal == (
        "The model keeps state between the requests of a sequence, and queued jobs may run in any order."
    )


def test_a_decoupled_model_is_noted() -> None:
    """B043: seen in the configuration, before a call fails."""
    spec = described(scripted_model("m", decoupled=True).config)
    assert spec.decoupled
    assert spec.refusal is None
    assert len(spec.notes) == 1


def test_an_ensemble_is_a_model_like_others() -> None:
    config = pb.ModelConfig(name="m", platform="ensemble")
    config.input.add(name="x", data_type="TYPE_STRING", dims=[1])
    config.ensemble_scheduling.step.add(model_name="a")
    spec = described(config)
    assert (spec.refusal, spec.max_batch_size, spec.instances) == (None, 0, 1)


def test_the_parameter_gives_kinds() -> None:
    spec = classifier(
        {
            "inputs": {
                "x": {"kind": "image", "resize": 256, "crop": 224, "interpolation": "bicubic", "orientation": False},
                "t": {"kind": "text"},
            },
            "outputs": {"p": {"kind": "classification", "top": 3}},
        }
    )
    assert spec.refusal is None
    assert [each.kind for each in spec.inputs] == [InputKind.IMAGE, InputKind.TEXT, InputKind.TENSOR]
    assert spec.inputs[0].image == ImageOptions("HWC", 256, (224, 224), "bicubic", orientation=False)
    assert (spec.outputs[0].kind, spec.outputs[0].top) == (OutputKind.CLASSIFICATION, 3)
    assert spec.outputs[1].kind is OutputKind.TENSOR


def test_five_classes_are_shown_unless_the_model_says_otherwise() -> None:
    assert classifier({"outputs": {"p": {"kind": "classification"}}}).outputs[0].top == 5


@pytest.mark.parametrize(
    ("dims", "shown", "layout"),
    [
        ((224, 224, 3), {}, "HWC"),
        ((3, 224, 224), {}, "CHW"),
        ((-1, -1, 3), {}, "HWC"),
        ((3, -1, -1), {}, "CHW"),
        ((3, 224, 3), {"layout": "HWC"}, "HWC"),
        ((-1, -1, -1), {"layout": "CHW"}, "CHW"),
        ((1, 28, 28), {"color": "GRAY"}, "CHW"),
        ((28, 28, 1), {"color": "GRAY"}, "HWC"),
        ((224, 224, 3), {"color": "BGR"}, "HWC"),
    ],
)
def test_the_layout_is_where_the_channels_are(dims: tuple[int, ...], shown: dict[str, Any], layout: str) -> None:
    assert image(shown, dims=dims).layout == layout


@pytest.mark.parametrize(
    ("tensor_format", "dims", "layout"),
    [(pb.ModelInput.FORMAT_NHWC, (3, 3, 3), "HWC"), (pb.ModelInput.FORMAT_NCHW, (3, 3, 3), "CHW")],
)
def test_the_configurations_format_says_the_layout(tensor_format: Any, dims: tuple[int, ...], layout: str) -> None:
    assert image({}, tensor_format=tensor_format, dims=dims).layout == layout


@pytest.mark.parametrize(
    ("wanted", "dims", "crop"),
    [
        ({}, (224, 224, 3), None),
        ({"crop": 224}, (224, 224, 3), (224, 224)),
        ({"crop": [200, 100]}, (200, 100, 3), (200, 100)),
        ({"resize": 256}, (224, 192, 3), (224, 192)),
        ({"resize": 256}, (-1, -1, 3), None),
        ({"resize": 256, "crop": [256, 100]}, (-1, -1, 3), (256, 100)),
        ({"crop": [200, 100]}, (200, -1, 3), (200, 100)),
    ],
)
def test_the_crop_gives_the_models_height_and_width(
    wanted: dict[str, Any], dims: tuple[int, ...], crop: tuple[int, int] | None
) -> None:
    assert image(wanted, dims=dims).crop == crop


def test_one_number_normalises_every_channel() -> None:
    options = image({"scale": 0.5, "mean": 1, "std": list(IMAGENET)}, datatype="FP32")
    assert (options.scale, options.mean, options.std) == (0.5, (1.0, 1.0, 1.0), IMAGENET)


@pytest.mark.parametrize(
    ("parameter", "problem"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "input should be a valid dictionary"),
        ("null", "input should be a valid dictionary"),
        ('{"inputs": {"x": {}, "x": {}}}', "'x' is given twice in one object"),
        ('{"inputs": {"x": {"scale": NaN}}}', "NaN is not a number of JSON"),
        ({"input": {}}, "input: there is no such option, got {}"),
        ({"inputs": []}, "inputs: input should be a valid dictionary"),
        ({"inputs": {"y": {}}}, "inputs.y: the model has no such tensor, only x, t, w"),
        ({"outputs": {"x": {}}}, "outputs.x: the model has no such tensor, only p, f"),
        ({"inputs": {"x": {"kind": "img"}}}, "inputs.x.kind: input should be 'tensor', 'image', 'text' or 'bytes'"),
        ({"inputs": {"x": {"kind": "tensor", "crop": 3}}}, "inputs.x: 'crop' concerns only inputs of kind 'image'"),
        (
            {"inputs": {"x": {"kind": "image", "crop": 0}}},
            "inputs.x.crop.0: input should be greater than or equal to 1",
        ),
        ({"inputs": {"x": {"kind": "image", "crop": True}}}, "inputs.x.crop.0: input should be a valid integer"),
        ({"inputs": {"x": {"kind": "image", "crop": [1, 2, 3]}}}, "inputs.x.crop: "),
        ({"inputs": {"x": {"kind": "image", "crop": "224"}}}, "inputs.x.crop: input should be a valid tuple"),
        ({"inputs": {"x": {"kind": "image", "resize": 1.5}}}, "inputs.x.resize: input should be a valid integer"),
        (
            {"inputs": {"x": {"kind": "image", "crop": 220}}},
            "inputs.x: crop [220, 220] doesn't give the model's height",
        ),
        (
            {"inputs": {"x": {"kind": "image", "resize": 200}}},
            "inputs.x: crop [224, 224] is larger than the shorter side",
        ),
        ({"inputs": {"x": {"kind": "image", "mean": 1}}}, "inputs.x: 'mean' needs a float input, and it is UINT8"),
        ({"inputs": {"x": {"kind": "image", "color": "GRAY"}}}, "inputs.x: dims [224, 224, 3] don't tell where the 1"),
        ({"inputs": {"x": {"kind": "image", "layout": "CHW"}}}, "inputs.x: RGB has 3 channels, and dims [224, 224, 3]"),
        ({"inputs": {"x": {"kind": "image", "orientation": "no"}}}, "inputs.x.orientation: input should be"),
        ({"inputs": {"x": {"kind": "image", "interpolation": "magic"}}}, "inputs.x.interpolation: input should be"),
        ({"inputs": {"x": {"kind": "text"}}}, "inputs.x: kind 'text' needs a BYTES tensor, and it is UINT8"),
        ({"inputs": {"w": {"kind": "bytes"}}}, "inputs.w: kind 'bytes' fills one element, and dims are [2]"),
        ({"inputs": {"t": {"kind": "image"}}}, "inputs.t: an image needs UINT8, FP16, FP32 or FP64, and it is BYTES"),
        ({"outputs": {"p": {"top": 3}}}, "outputs.p: 'top' concerns only outputs of kind 'classification'"),
        ({"outputs": {"p": {"kind": "classification", "top": 0}}}, "outputs.p.top: input should be greater than"),
        (
            {"outputs": {"f": {"kind": "classification"}}},
            "outputs.f: the engine can't rank the classes of a BOOL output",
        ),
    ],
)
def test_a_wrong_parameter_is_a_refusal_that_says_what_and_where(parameter: object, problem: str) -> None:
    assert refusal(parameter).startswith(problem)


@pytest.mark.parametrize(
    ("wanted", "shown", "problem"),
    [
        ({}, {"dims": (1, 3, 224, 224)}, "inputs.x: an image needs three dims"),
        ({}, {"dims": (-1, 224, 3)}, "inputs.x: only one side is fixed in [-1, 224]"),
        ({"resize": 256}, {"dims": (224, -1, 3)}, "inputs.x: only one side is fixed in [224, -1]"),
        ({"layout": "CHW"}, {"tensor_format": pb.ModelInput.FORMAT_NHWC}, "inputs.x: layout CHW contradicts"),
        ({"std": 0}, {"datatype": "FP32"}, "inputs.x.std.0: input should be greater than 0"),
        ({"mean": [1, 2]}, {"datatype": "FP32"}, "inputs.x: 'mean' has 2 numbers for 3 channels"),
        ({"mean": []}, {"datatype": "FP32"}, "inputs.x.mean: value should have at least 1 item"),
        ({"scale": 1e999}, {"datatype": "FP32"}, "Infinity is not a number of JSON"),
    ],
)
def test_options_that_contradict_the_tensor_are_a_refusal(
    wanted: dict[str, Any], shown: dict[str, Any], problem: str
) -> None:
    assert refusal({"inputs": {"x": {"kind": "image"} | wanted}}, **shown).startswith(problem)


def test_a_number_that_overflows_is_refused() -> None:
    text = '{"inputs": {"x": {"kind": "image", "scale": 1e999}}}'
    assert refusal(text, datatype="FP32").startswith("inputs.x.scale: input should be a finite number")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
options = st.dictionaries(
    st.sampled_from(["kind", "resize", "crop", "interpolation", "color", "layout", "scale", "mean", "std", "top", "z"]),
    st.sampled_from(["image", "text", "classification", "HWC", "CHW", "GRAY", "bicubic", 1, 224, 256, [1, 2, 3]])
    | plain,
    max_size=4,
)
likely = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.dictionaries(st.sampled_from(["x", "t", "w", "a\nb"]), options, max_size=3),
        "outputs": st.dictionaries(st.sampled_from(["p", "f"]), options, max_size=2),
    },
)


@given(
    text=st.text() | (plain | likely).map(json.dumps),
    dims=st.lists(st.integers(-1, 300), max_size=4).map(tuple),
    datatype=st.sampled_from([each.value for each in Datatype]),
)
@example(text='{"inputs": {"x": {"kind": "image", "mean": 1' + "0" * 5000 + "}}}", dims=(3, 3, 3), datatype="FP32")
def test_any_parameter_gives_a_spec_or_a_refusal_in_one_line(text: str, dims: tuple[int, ...], datatype: str) -> None:
    spec = classifier(text, dims=dims, datatype=datatype)
    assert ModelSpec.from_plain(spec.to_plain()) == spec
    if spec.refusal is not None:
        assert spec.refusal.startswith("The model's 'inferq' parameter is wrong: ")
        assert "\n" not in spec.refusal
        assert len(spec.refusal) < 400


@given(text=st.text())
def test_parsing_raises_nothing_but_its_own_error(text: str) -> None:
    try:
        parse(text)
    except ParameterError as exc:
        assert str(exc)  # noqa: PT017 - most texts are wrong, some may be right
