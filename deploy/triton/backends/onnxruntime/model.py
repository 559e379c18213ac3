"""ONNX Runtime as a Python-based Triton backend, for engines that lack Triton's own C++ one.

Owns the way from Triton's requests to one onnxruntime session and back, for any ONNX model whose tensors Triton's
Python backend can carry. Must not know a particular model, nor mean anything by a `config.pbtxt` that Triton's own
`onnxruntime` backend would read differently: the same model repository serves under both.

One model instance is one process with one session: `instance_group { count: 2 }` gives two sessions that run at the
same time, each with `intra_op_thread_count` threads of its own. 0 means its share of the cores here, and all of them in
Triton's own backend.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

ONNX_TO_TRITON = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}
"""Every element type that both onnxruntime's Python package and Triton's Python backend can carry; BF16 is not one."""

GRAPH_LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
"""`optimization { graph { level } }` as Triton's own backend documents it; 0 is protobuf's "not set"."""

DEFAULT_MAX_BATCH_SIZE = 4
"""What Triton's own backend completes for a model that can batch and whose configuration says nothing."""


@dataclass(frozen=True)
class Item:
    """One request of a batch, read: its tensors by name, the outputs it wants, and its rows (0 when not batching)."""

    index: int
    feeds: dict[str, np.ndarray]
    wanted: list[str]
    rows: int

    @property
    def merge_key(self) -> tuple[Any, ...]:
        """Equal for items whose tensors can be concatenated along the first axis."""
        return tuple(sorted((name, array.dtype.str, array.shape[1:]) for name, array in self.feeds.items()))


class TritonPythonModel:
    """One instance of one ONNX model; Triton calls `initialize` once, `execute` per batch, `finalize` at the end."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Add the inputs and outputs that `config.pbtxt` leaves out, from the ONNX file, and the batch size if none."""
        config = auto_complete_model_config.as_dict()
        if config["input"] and config["output"]:
            return auto_complete_model_config
        session = open_session(config, Path(pb_utils.get_model_dir()), kind="CPU", device_id=0)
        nodes = [*session.get_inputs(), *session.get_outputs()]
        says_nothing = not config["input"] and not config["output"] and config["max_batch_size"] == 0
        if says_nothing and all(has_free_first_dim(node) for node in nodes):
            auto_complete_model_config.set_max_batch_size(DEFAULT_MAX_BATCH_SIZE)
            auto_complete_model_config.set_dynamic_batching()
        batching = auto_complete_model_config.as_dict()["max_batch_size"] > 0
        if not config["input"]:
            for node in session.get_inputs():
                auto_complete_model_config.add_input(io_config(node, batching))
        if not config["output"]:
            for node in session.get_outputs():
                auto_complete_model_config.add_output(io_config(node, batching))
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Open the session; fails the load with one sentence when file and configuration don't fit each other."""
        config = json.loads(args["model_config"])
        version_dir = Path(args["model_repository"]) / args["model_version"]
        kind, device_id = args["model_instance_kind"], int(args["model_instance_device_id"])
        self.session = open_session(config, version_dir, kind, device_id)
        self.batching = config["max_batch_size"] > 0
        graph_inputs = [*self.session.get_inputs(), *self.session.get_overridable_initializers()]
        check_tensors(config["name"], "input", config["input"], graph_inputs, self.batching)
        check_tensors(config["name"], "output", config["output"], self.session.get_outputs(), self.batching)
        self.quiet = ort.RunOptions()
        self.quiet.log_severity_level = 4  # a failed run is its request's answer, not the engine's log
        self.string_inputs = {node.name for node in graph_inputs if node.type == "tensor(string)"}

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer each request, in order; one that fails never fails another of the same batch."""
        responses: list[Any] = [None] * len(requests)
        items = []
        for index, request in enumerate(requests):
            if request.is_cancelled():
                responses[index] = failure("the client cancelled the request", pb_utils.TritonError.CANCELLED)
                continue
            try:
                items.append(self.read(index, request))
            except ValueError as error:
                responses[index] = failure(str(error), pb_utils.TritonError.INVALID_ARG)
        for group in self.groups(items):
            for item, response in zip(group, self.run_group(group), strict=True):
                responses[item.index] = response
        return responses

    def finalize(self) -> None:
        """Free the session's memory before the process ends."""
        del self.session

    def read(self, index: int, request: Any) -> Item:
        """One request as an `Item`; ValueError when its bytes are no text where the graph wants text."""
        feeds = {}
        for tensor in request.inputs():
            array = tensor.as_numpy()
            feeds[tensor.name()] = decoded(tensor.name(), array) if tensor.name() in self.string_inputs else array
        rows = next(iter(feeds.values())).shape[0] if self.batching and feeds else 0
        return Item(index, feeds, list(request.requested_output_names()), rows)

    def groups(self, items: Iterable[Item]) -> list[list[Item]]:
        """Items that may share one run; each alone when the model doesn't batch."""
        if not self.batching:
            return [[item] for item in items]
        by_key: dict[tuple[Any, ...], list[Item]] = {}
        for item in items:
            by_key.setdefault(item.merge_key, []).append(item)
        return list(by_key.values())

    def run_group(self, group: list[Item]) -> list[Any]:
        """Responses for a group: from one merged run if that works, else from one run per item."""
        if len(group) > 1:
            try:
                return self.run_merged(group)
            except Exception as error:  # whatever a kernel raises, only the culprit may pay for it: find it one by one
                pb_utils.Logger.log_verbose(f"merged run of {len(group)} requests failed, running them alone: {error}")
        return [self.run_alone(item) for item in group]

    def run_merged(self, group: list[Item]) -> list[Any]:
        """One run over the concatenated rows, split again; raises when an output doesn't have one row per input row."""
        feeds = {name: np.concatenate([item.feeds[name] for item in group]) for name in group[0].feeds}
        wanted = list(dict.fromkeys(name for item in group for name in item.wanted))
        outputs = self.run_session(wanted, feeds)
        total = sum(item.rows for item in group)
        if any(array.ndim == 0 or array.shape[0] != total for array in outputs.values()):
            raise ValueError("an output has another number of rows than the inputs")
        edges = pairwise(accumulate((item.rows for item in group), initial=0))
        return [
            success({name: outputs[name][start:stop] for name in item.wanted})
            for item, (start, stop) in zip(group, edges, strict=True)
        ]

    def run_alone(self, item: Item) -> Any:
        """The response to one item, success or failure."""
        try:
            return success(self.run_session(item.wanted, item.feeds))
        except (InvalidArgument, ValueError) as error:
            return failure(str(error), pb_utils.TritonError.INVALID_ARG)
        except Exception as error:  # onnxruntime raises many classes without a common base; all end this request only
            return failure(str(error), pb_utils.TritonError.INTERNAL)

    def run_session(self, wanted: list[str], feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The wanted outputs by name; onnxruntime runs the whole graph, but copies out only these."""
        return dict(zip(wanted, self.session.run(wanted, feeds, self.quiet), strict=True))


def success(outputs: dict[str, np.ndarray]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])


def failure(message: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))


def decoded(name: str, array: np.ndarray) -> np.ndarray:
    """BYTES elements as text, which is what an ONNX string is; ValueError names the input that isn't UTF-8."""
    try:
        texts = [element.decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise ValueError(f"input '{name}' is not UTF-8 text: {error}") from error
    return np.array(texts, dtype=np.object_).reshape(array.shape)


def open_session(config: dict[str, Any], version_dir: Path, kind: str, device_id: int) -> ort.InferenceSession:
    """A session on the version's ONNX file, as the model's configuration wants it."""
    name = config["default_model_filename"]
    path = version_dir / (name if name not in ("", "model.py") else "model.onnx")
    if not path.is_file():
        raise pb_utils.TritonModelException(f"model '{config['name']}' has no file '{path.name}' in '{version_dir}'")
    try:
        return ort.InferenceSession(path, session_options(config), providers=execution_providers(kind, device_id))
    except Exception as error:  # a broken file raises any of a dozen classes; each must become the reason of the load
        raise pb_utils.TritonModelException(f"onnxruntime can't open '{path}': {error}") from error


def session_options(config: dict[str, Any]) -> ort.SessionOptions:
    """The parameters that Triton's own backend documents, and any `session.*` entry that onnxruntime knows."""
    parameters = {key: value["string_value"] for key, value in config["parameters"].items()}

    def integer(key: str, default: int) -> int:
        text = parameters.get(key, str(default))
        try:
            return int(text)
        except ValueError as error:
            reason = f"model '{config['name']}': parameter '{key}' must be an integer, got '{text}'"
            raise pb_utils.TritonModelException(reason) from error

    level = int(config.get("optimization", {}).get("graph", {}).get("level", 0))
    if level not in GRAPH_LEVELS:
        raise pb_utils.TritonModelException(f"model '{config['name']}': graph level {level} is not -1, 0, 1 or 2")
    options = ort.SessionOptions()
    options.graph_optimization_level = GRAPH_LEVELS[level]
    options.intra_op_num_threads = integer("intra_op_thread_count", 0) or share_of_cores(config)
    options.inter_op_num_threads = integer("inter_op_thread_count", 0)
    parallel = integer("execution_mode", 0) == 1
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL if parallel else ort.ExecutionMode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = integer("enable_mem_arena", 1) == 1
    options.enable_mem_pattern = integer("enable_mem_pattern", 1) == 1
    for key, value in parameters.items():
        if key.startswith("session."):
            options.add_session_config_entry(key, value)
    return options


def share_of_cores(config: dict[str, Any]) -> int:
    """The threads of one instance where nobody says how many: all instances together take each core once."""
    on_cpu: list[int] = [group["count"] for group in config["instance_group"] if group["kind"] == "KIND_CPU"]
    return max(1, len(os.sched_getaffinity(0)) // max(1, sum(on_cpu)))


def execution_providers(kind: str, device_id: int) -> list[Any]:
    """CUDA for a GPU instance where the installed onnxruntime has it, else the CPU."""
    if kind != "GPU":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        pb_utils.Logger.log_warn("the installed onnxruntime has no CUDA provider: a GPU instance runs on the CPU")
        return ["CPUExecutionProvider"]
    return [("CUDAExecutionProvider", {"device_id": device_id}), "CPUExecutionProvider"]


def has_free_first_dim(node: Any) -> bool:
    """Whether a batch of any size fits: onnxruntime gives a variable dim as its name or None, a fixed one as int."""
    return bool(node.shape) and not isinstance(node.shape[0], int)


def io_config(node: Any, batching: bool) -> dict[str, Any]:
    """What `config.pbtxt` would say of a graph input or output."""
    shape = node.shape[1:] if batching else node.shape
    dims = [dim if isinstance(dim, int) else -1 for dim in shape]
    return {"name": node.name, "data_type": ONNX_TO_TRITON.get(node.type, "TYPE_INVALID"), "dims": dims}


def check_tensors(model: str, role: str, configured: list[Any], nodes: Sequence[Any], batching: bool) -> None:
    """Refuse a configuration that the graph can't keep: unknown names, other types, other ranks or fixed dims."""
    by_name = {node.name: node for node in nodes}
    for tensor in configured:
        name, node = tensor["name"], by_name.get(tensor["name"])
        if node is None:
            raise pb_utils.TritonModelException(
                f"model '{model}': {role} '{name}' is not in the ONNX graph, which has {sorted(by_name)}"
            )
        expected = ONNX_TO_TRITON.get(node.type)
        if expected is None:
            raise pb_utils.TritonModelException(f"model '{model}': {role} '{name}' is {node.type}: can't be served")
        if tensor["data_type"] != expected:
            raise pb_utils.TritonModelException(
                f"model '{model}': {role} '{name}' is {tensor['data_type']}, the ONNX graph has {expected}"
            )
        if batching and node.shape and not has_free_first_dim(node):
            raise pb_utils.TritonModelException(
                f"model '{model}': max_batch_size is above 0 but {role} '{name}' has a fixed first dim, {node.shape[0]}"
            )
        check_dims(model, role, tensor, node, batching)


def check_dims(model: str, role: str, tensor: dict[str, Any], node: Any, batching: bool) -> None:
    """Compare dims as the graph sees them: after `reshape`, after the batch dimension; -1 or a name fits anything."""
    dims = [int(dim) for dim in tensor.get("reshape", {}).get("shape", tensor["dims"])]
    graph = node.shape[1:] if batching else node.shape
    fits = len(dims) == len(graph) and all(
        dim == -1 or not isinstance(free, int) or dim == free for dim, free in zip(dims, graph, strict=True)
    )
    if node.shape and not fits:  # onnxruntime gives an unknown rank as an empty shape
        raise pb_utils.TritonModelException(
            f"model '{model}': {role} '{tensor['name']}' has dims {dims}, the ONNX graph has {graph}"
        )
