"""Model repositories for tests: the committed `tests/models`, and the identity function written for each datatype.

Owns the names and shapes of generated models. Must not start an engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

TEST_MODELS = Path(__file__).parents[1] / "models"

MAX_BATCH_SIZE = 16

CONFIG_TYPES = {
    **{name: f"TYPE_{name}" for name in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64")},
    **{name: f"TYPE_{name}" for name in ("INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16")},
    "BYTES": "TYPE_STRING",
}
"""All 14 datatypes of the Open Inference Protocol, and what `config.pbtxt` calls them."""

IDENTITY_SOURCE = '''\
"""The identity function for one datatype; BF16, which numpy lacks, goes through DLPack."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.is_bf16 = json.loads(args["model_config"])["input"][0]["data_type"] == "TYPE_BF16"

    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.renamed(request.inputs()[0])]) for request in requests]

    def renamed(self, tensor):
        if self.is_bf16:
            return pb_utils.Tensor.from_dlpack("output", tensor.to_dlpack())
        return pb_utils.Tensor("output", tensor.as_numpy())
'''

IMAGE_MODELS = {
    "image_uint8_nhwc": ("UINT8", "FORMAT_NHWC", [32, 32, 3], {"kind": "image", "resize": 36, "crop": 32}),
    "image_fp32_nchw": (
        "FP32",
        "FORMAT_NCHW",
        [3, 32, 32],
        {
            "kind": "image",
            "resize": 36,
            "crop": 32,
            "scale": 1 / 255,
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
        },
    ),
}
"""Identity models whose input is a photo, so that a test sees exactly what preparation made of it."""

VERSIONED = "versioned"
VERSIONS = {"1": ("x", "FP32", [2], 4), "2": ("a", "INT64", [1], 0), "3": ("x", "FP32", [3], 8)}
"""Input, datatype, dims and largest batch of each version of the model `versioned`; its output is called `times`."""

VERSIONED_SOURCE = f'''\
"""Multiplies by the number of its version; each version says itself what it takes, so that they differ."""

from pathlib import Path

import triton_python_backend_utils as pb_utils

VERSION = Path(__file__).parent.name
NAME, DATATYPE, DIMS, MAX_BATCH_SIZE = {VERSIONS}[VERSION]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({{"name": NAME, "data_type": "TYPE_" + DATATYPE, "dims": DIMS}})
        config.add_output({{"name": "times", "data_type": "TYPE_" + DATATYPE, "dims": DIMS}})
        config.set_max_batch_size(MAX_BATCH_SIZE)
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.times(request.inputs()[0].as_numpy())]) for request in requests]

    def times(self, values):
        return pb_utils.Tensor("times", values * values.dtype.type(VERSION))
'''

PICTURES = "versioned_pictures"
PICTURES_SOURCE = """\
from pathlib import Path

import triton_python_backend_utils as pb_utils

SIDE = 4 * int(Path(__file__).parent.name)


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "picture", "data_type": "TYPE_UINT8", "dims": [SIDE, SIDE, 3]})
        config.add_output({"name": "pixels", "data_type": "TYPE_UINT8", "dims": [SIDE, SIDE, 3]})
        config.set_max_batch_size(4)
        return config

    def execute(self, requests):
        pixels = [request.inputs()[0].as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("pixels", each)]) for each in pixels]
"""
"""Gives back pictures of 4x4, 8x8 or 12x12 pixels, by its version."""


def identity_name(datatype: str, *, batching: bool = True) -> str:
    """Name of the identity model for a datatype: `identity_fp32`, `identity_fp32_nobatch`."""
    return f"identity_{datatype.lower()}" + ("" if batching else "_nobatch")


def write_generated_models(repository: Path) -> Path:
    """Write the 28 identity models (`input` [-1] to `output` [-1]) and the image models; returns the repository."""
    for datatype in CONFIG_TYPES:
        for batching in (True, False):
            max_batch_size = MAX_BATCH_SIZE if batching else 0
            config = _config(datatype, [-1], max_batch_size)
            _write_model(repository / identity_name(datatype, batching=batching), config, IDENTITY_SOURCE)
    for name, (datatype, layout, dims, options) in IMAGE_MODELS.items():
        config = _config(datatype, dims, MAX_BATCH_SIZE, layout) + inferq_parameter({"inputs": {"input": options}})
        _write_model(repository / name, config, IDENTITY_SOURCE)
    return repository


def write_versioned_models(repository: Path) -> Path:
    """Write models of three versions: two whose versions differ, and the identity, whose versions don't.

    The engine must be allowed to complete configurations.
    """
    all_versions = 'backend: "python"\nversion_policy: { all {} }\n'
    picture = inferq_parameter({"inputs": {"picture": {"kind": "image"}}})
    _write_model(repository / VERSIONED, all_versions, VERSIONED_SOURCE, tuple(VERSIONS))
    _write_model(repository / PICTURES, all_versions + picture, PICTURES_SOURCE, tuple(VERSIONS))
    alike = "version_policy: { all {} }\n" + _config("FP32", [-1], MAX_BATCH_SIZE)
    _write_model(repository / identity_name("FP32"), alike, IDENTITY_SOURCE, tuple(VERSIONS))
    return repository


def inferq_parameter(options: dict[str, object]) -> str:
    """The `config.pbtxt` lines that tell inferq about a model."""
    return f"parameters {{ key: \"inferq\" value {{ string_value: '{json.dumps(options)}' }} }}\n"


def _config(datatype: str, dims: list[int], max_batch_size: int, layout: str = "FORMAT_NONE") -> str:
    data_type = CONFIG_TYPES[datatype]
    return (
        'backend: "python"\n'
        f"max_batch_size: {max_batch_size}\n"
        f'input [ {{ name: "input" data_type: {data_type} format: {layout} dims: {dims} }} ]\n'
        f'output [ {{ name: "output" data_type: {data_type} dims: {dims} }} ]\n'
        "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
    )


def _write_model(folder: Path, config: str, source: str, versions: Sequence[str] = ("1",)) -> None:
    for version in versions:
        (folder / version).mkdir(parents=True)
        (folder / version / "model.py").write_text(source)
    (folder / "config.pbtxt").write_text(config)
