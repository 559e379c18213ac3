"""The ONNX Runtime backend of the embedded engine, on models of a node or two made for one question each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from inferq.stack import StackEnvironment, TritonServer
from tests.support.engine_http import Array, EngineHttp, EngineRefused, array
from tests.support.onnx import Node, Value, onnx_model
from tests.support.processes import command_line, group_members
from tests.support.servers import QUICK_START, StartEngine

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

# Holds requests back until max_batch_size rows are there, so that a test decides what runs together.
WAIT_FOR_A_FULL_BATCH = "dynamic_batching { max_queue_delay_microseconds: 10000000 }\n"

SUM_AND_PICK = onnx_model(
    [Node("Add", ["a", "b"], ["sum"]), Node("Gather", ["table", "index"], ["picked"])],
    [Value("a", "FP32", ["n", "w"]), Value("b", "FP32", ["n", "w"]), Value("index", "INT64", ["n", 1])],
    [Value("sum", "FP32", ["n", "w"]), Value("picked", "FP32", ["n", 1])],
    [("table", np.array([10, 20, 30], dtype=np.float32))],
)
"""`sum` always works; `picked` fails for an `index` beyond 2."""

SUM_AND_PICK_CONFIG = """
input [
  { name: "a" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "b" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "index" data_type: TYPE_INT64 dims: [ 1 ] }
]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "picked" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""

ECHO_TEXT = onnx_model(
    [Node("Identity", ["text"], ["echo"])], [Value("text", "BYTES", ["n", "w"])], [Value("echo", "BYTES", ["n", "w"])]
)
ECHO_TEXT_CONFIG = """
input [ { name: "text" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "echo" data_type: TYPE_STRING dims: [ -1 ] } ]
"""

DOUBLE = onnx_model([Node("Add", ["x", "x"], ["y"])], [Value("x", "FP32", ["n", 4])], [Value("y", "FP32", ["n", 4])])
DOUBLE_CONFIG = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def write_model(repository: Path, name: str, onnx: bytes | None, config: str) -> None:
    """A model for the onnxruntime backend, without a file when `onnx` is None."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text('backend: "onnxruntime"\n' + config)
    if onnx is not None:
        (repository / name / "1" / "model.onnx").write_bytes(onnx)


class Models:
    """A model repository that a test adds to, on an engine that loads on demand."""

    def __init__(self, repository: Path, engine: TritonServer) -> None:
        self.repository = repository
        self.engine = engine

    def add(self, name: str, onnx: bytes | None, config: str) -> str:
        """Write a model; returns its name."""
        write_model(self.repository, name, onnx, config)
        return name

    def processes(self, name: str) -> int:
        """How many stub processes serve the model."""
        lines = (command_line(pid) for pid in group_members(self.engine.process.pid))
        return sum(f"{self.repository}/{name}/" in line for line in lines)


@pytest.fixture(scope="module")
def models(stack_environment: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    folder = tmp_path_factory.mktemp("onnx")
    (folder / "models").mkdir()
    flags = ["--model-control-mode=explicit", *QUICK_START]
    engine = TritonServer(stack_environment, [folder / "models"], folder, extra_flags=flags)
    engine.start()
    yield Models(folder / "models", engine)
    engine.stop()


def floats(*rows: Sequence[float]) -> Array:
    return np.array(rows, dtype=np.float32)


def indices(*rows: int) -> Array:
    return np.array(rows, dtype=np.int64)[:, None]


async def test_requests_of_one_batch_share_a_run_and_get_their_own_rows(models: Models) -> None:
    config = f"max_batch_size: 6\n{WAIT_FOR_A_FULL_BATCH}{SUM_AND_PICK_CONFIG}"
    name = models.add("merged", SUM_AND_PICK, config)
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        sent = [
            {"a": floats(*[[size, row]] * size), "b": floats(*[[1, 1]] * size), "index": indices(*[row] * size)}
            for row, size in enumerate((1, 2, 3))
        ]
        answers = await asyncio.gather(*(triton.infer(name, inputs) for inputs in sent))
        for row, (inputs, answer) in enumerate(zip(sent, answers, strict=True)):
            np.testing.assert_array_equal(array(answer["sum"]), inputs["a"] + 1)
            np.testing.assert_array_equal(array(answer["picked"]), np.full((len(inputs["a"]), 1), 10 * (row + 1)))
        assert await triton.calls(name) == (3, 1)


async def test_a_request_that_fails_fails_alone(models: Models) -> None:
    """B074: a bad item must not take its neighbours along."""
    config = f"max_batch_size: 4\n{WAIT_FOR_A_FULL_BATCH}{SUM_AND_PICK_CONFIG}"
    name = models.add("one_bad_index", SUM_AND_PICK, config)
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        calls = (
            triton.infer(name, {"a": floats([1]), "b": floats([index]), "index": indices(index)})
            for index in (0, 99, 1, 2)
        )
        first, bad, third, fourth = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(bad, EngineRefused)
    assert "out of data bounds" in str(bad)
    picked = []
    for answer in (first, third, fourth):
        assert isinstance(answer, dict)
        picked.append(array(answer["picked"]).item())
    assert picked == [10, 20, 30]


async def test_a_text_that_is_not_utf8_fails_alone_and_names_the_input(models: Models) -> None:
    name = models.add("texts", ECHO_TEXT, f"max_batch_size: 3\n{WAIT_FOR_A_FULL_BATCH}{ECHO_TEXT_CONFIG}")
    texts = ["grüße".encode(), b"\xff\xfe", b"plain"]
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        calls = (triton.infer(name, {"text": np.array([[text]], dtype=np.object_)}) for text in texts)
        first, bad, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(bad, EngineRefused)
    assert "input 'text' is not UTF-8 text" in str(bad)
    assert isinstance(first, dict)
    assert isinstance(third, dict)
    assert [array(answer["echo"]).item() for answer in (first, third)] == [texts[0], texts[2]]


async def test_texts_of_any_shape_come_back_byte_for_byte(models: Models) -> None:
    """B036, B039: NUL bytes, empty texts and a tensor without elements."""
    name = models.add("texts_alone", ECHO_TEXT, f"max_batch_size: 4\n{ECHO_TEXT_CONFIG}")
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        for sent in (
            np.array([[b"a\0b\0\0", b""], ["é".encode(), b"x" * 70_000]], dtype=np.object_),
            np.empty((2, 0), dtype=np.object_),
        ):
            answer = array((await triton.infer(name, {"text": sent}))["echo"])
            assert answer.shape == sent.shape
            assert answer.ravel().tolist() == sent.ravel().tolist()


async def test_requests_of_different_shapes_in_one_batch_all_get_their_answer(models: Models) -> None:
    """B032: ragged requests reach the backend together and can't be concatenated."""
    ragged = SUM_AND_PICK_CONFIG.replace("dims: [ -1 ] }", "dims: [ -1 ] allow_ragged_batch: true }", 2)
    name = models.add("ragged", SUM_AND_PICK, f"max_batch_size: 4\n{WAIT_FOR_A_FULL_BATCH}{ragged}")
    widths = (16, 20, 16, 20)
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        sent = [{"a": floats(range(width)), "b": floats([1] * width), "index": indices(1)} for width in widths]
        answers = await asyncio.gather(*(triton.infer(name, inputs) for inputs in sent))
    for inputs, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(array(answer["sum"]), inputs["a"] + 1)


async def test_only_the_outputs_asked_for_come_back_even_from_a_shared_run(models: Models) -> None:
    name = models.add("wanted", SUM_AND_PICK, f"max_batch_size: 2\n{WAIT_FOR_A_FULL_BATCH}{SUM_AND_PICK_CONFIG}")
    inputs = {"a": floats([1, 2]), "b": floats([3, 4]), "index": indices(2)}
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        first, second = await asyncio.gather(
            triton.infer(name, inputs, {"sum": {}}), triton.infer(name, inputs, {"picked": {}})
        )
    assert {output: array(tensor).tolist() for output, tensor in first.items()} == {"sum": [[4, 6]]}
    assert {output: array(tensor).tolist() for output, tensor in second.items()} == {"picked": [[30]]}


async def test_an_output_without_a_row_per_input_row_is_computed_per_request(models: Models) -> None:
    total = onnx_model(
        [Node("ReduceSum", ["x"], ["total"], [("keepdims", 0)])],
        [Value("x", "FP32", ["n", "w"])],
        [Value("total", "FP32", ["m"])],
    )
    config = f"""max_batch_size: 2\n{WAIT_FOR_A_FULL_BATCH}
        input [ {{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }} ]
        output [ {{ name: "total" data_type: TYPE_FP32 dims: [ ] }} ]"""
    name = models.add("total", total, config.replace("dims: [ ]", "dims: [ 1 ] reshape { shape: [ ] }"))
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        calls = (triton.infer(name, {"x": floats(row)}) for row in ([1, 2], [30, 40]))
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [array(answer["total"]).item() for answer in answers if isinstance(answer, dict)] == [3, 70]


async def test_a_model_without_batching_takes_tensors_of_any_rank_as_they_are(models: Models) -> None:
    negate = onnx_model(
        [Node("Not", ["flags"], ["negated"]), Node("Add", ["halves", "halves"], ["doubled"])],
        [Value("flags", "BOOL", ["n"]), Value("halves", "FP16", ["n", "m", 2])],
        [Value("negated", "BOOL", ["n"]), Value("doubled", "FP16", ["n", "m", 2])],
    )
    config = """max_batch_size: 0
        input [
          { name: "flags" data_type: TYPE_BOOL dims: [ -1 ] },
          { name: "halves" data_type: TYPE_FP16 dims: [ -1, -1, 2 ] }
        ]
        output [
          { name: "negated" data_type: TYPE_BOOL dims: [ -1 ] },
          { name: "doubled" data_type: TYPE_FP16 dims: [ -1, -1, 2 ] }
        ]"""
    name = models.add("any_rank", negate, config)
    flags = np.array([True, False, True])
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        for halves in (np.arange(12, dtype=np.float16).reshape(2, 3, 2), np.empty((0, 3, 2), dtype=np.float16)):
            answer = await triton.infer(name, {"flags": flags, "halves": halves})
            np.testing.assert_array_equal(array(answer["negated"]), ~flags)
            np.testing.assert_array_equal(array(answer["doubled"]), halves * 2)


async def test_an_optional_input_falls_back_to_the_graphs_default(models: Models) -> None:
    shifted = onnx_model(
        [Node("Add", ["x", "offset"], ["y"])],
        [Value("x", "FP32", ["n", 2]), Value("offset", "FP32", [1, 2])],
        [Value("y", "FP32", ["n", 2])],
        [("offset", floats([100, 200]))],
    )
    config = """max_batch_size: 0
        input [
          { name: "x" data_type: TYPE_FP32 dims: [ -1, 2 ] },
          { name: "offset" data_type: TYPE_FP32 dims: [ 1, 2 ] optional: true }
        ]
        output [ { name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]"""
    name = models.add("optional", shifted, config)
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        default = await triton.infer(name, {"x": floats([1, 2])})
        given = await triton.infer(name, {"x": floats([1, 2]), "offset": floats([10, 20])})
    assert array(default["y"]).tolist() == [[101, 202]]
    assert array(given["y"]).tolist() == [[11, 22]]


async def test_a_configuration_that_says_nothing_is_completed_from_the_graph(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    write_model(tmp_path / "models", "completed", DOUBLE, "")
    engine = start_engine([tmp_path / "models"], extra_flags=())
    async with EngineHttp(engine.http_address) as triton:
        config = await triton.config("completed")
        assert config["max_batch_size"] == 4
        assert [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config["input"]] == [
            ("x", "TYPE_FP32", [4])
        ]
        assert config["output"][0]["dims"] == [4]
        answer = await triton.infer("completed", {"x": floats([1, 2, 3, 4], [5, 6, 7, 8])})
    assert array(answer["y"]).tolist() == [[2, 4, 6, 8], [10, 12, 14, 16]]


async def test_thread_and_graph_settings_are_taken_and_each_instance_is_a_process(models: Models) -> None:
    config = f"""max_batch_size: 8
        {DOUBLE_CONFIG}
        optimization {{ graph {{ level: -1 }} }}
        instance_group [ {{ kind: KIND_CPU count: 2 }} ]
        parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
        parameters {{ key: "inter_op_thread_count" value {{ string_value: "2" }} }}
        parameters {{ key: "execution_mode" value {{ string_value: "1" }} }}
        parameters {{ key: "enable_mem_arena" value {{ string_value: "0" }} }}
        parameters {{ key: "session.intra_op.allow_spinning" value {{ string_value: "0" }} }}"""
    name = models.add("tuned", DOUBLE, config)
    async with EngineHttp(models.engine.http_address) as triton:
        await triton.load(name)
        assert models.processes(name) == 2
        calls = (triton.infer(name, {"x": floats([n, 0, 0, 0])}) for n in range(8))
        answers = await asyncio.gather(*calls)
    assert [array(answer["y"])[0, 0] for answer in answers] == [2 * n for n in range(8)]


REFUSED = {
    "no_file": (None, f"max_batch_size: 8\n{DOUBLE_CONFIG}", "has no file 'model.onnx'"),
    "no_model": (b"not an onnx file", f"max_batch_size: 8\n{DOUBLE_CONFIG}", "onnxruntime can't open"),
    "wrong_name": (
        DOUBLE,
        "max_batch_size: 8\n" + DOUBLE_CONFIG.replace('name: "x"', 'name: "z"'),
        "input 'z' is not in the ONNX graph, which has ['x']",
    ),
    "wrong_type": (
        DOUBLE,
        f"max_batch_size: 8\n{DOUBLE_CONFIG.replace('TYPE_FP32', 'TYPE_FP16')}",
        "input 'x' is TYPE_FP16, the ONNX graph has TYPE_FP32",
    ),
    "wrong_dims": (
        DOUBLE,
        f"max_batch_size: 8\n{DOUBLE_CONFIG.replace('dims: [ 4 ]', 'dims: [ 5 ]')}",
        "input 'x' has dims [5], the ONNX graph has [4]",
    ),
    "fixed_batch": (
        onnx_model([Node("Add", ["x", "x"], ["y"])], [Value("x", "FP32", [8, 4])], [Value("y", "FP32", [8, 4])]),
        f"max_batch_size: 8\n{DOUBLE_CONFIG}",
        "input 'x' has a fixed first dim, 8",
    ),
    "bf16": (
        onnx_model([Node("Identity", ["x"], ["y"])], [Value("x", "BF16", ["n", 4])], [Value("y", "BF16", ["n", 4])]),
        f"max_batch_size: 8\n{DOUBLE_CONFIG.replace('TYPE_FP32', 'TYPE_BF16')}",
        "input 'x' is tensor(bfloat16): can't be served",
    ),
    "bad_threads": (
        DOUBLE,
        f"max_batch_size: 8\n{DOUBLE_CONFIG}"
        'parameters { key: "intra_op_thread_count" value { string_value: "many" } }',
        "parameter 'intra_op_thread_count' must be an integer, got 'many'",
    ),
    "bad_level": (
        DOUBLE,
        f"max_batch_size: 8\n{DOUBLE_CONFIG}optimization {{ graph {{ level: 7 }} }}",
        "graph level 7 is not -1, 0, 1 or 2",
    ),
}
"""Model name to its file, its configuration, and a part of the sentence that must say why it isn't served."""


@pytest.mark.parametrize("name", REFUSED)
async def test_a_model_that_cannot_be_served_is_refused_with_the_reason(models: Models, name: str) -> None:
    onnx, config, reason = REFUSED[name]
    models.add(name, onnx, config)
    async with EngineHttp(models.engine.http_address) as triton:
        with pytest.raises(EngineRefused) as refused:
            await triton.load(name)
    assert reason in str(refused.value)
