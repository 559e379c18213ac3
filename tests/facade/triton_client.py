"""What NVIDIA's own client gets from a server: `python triton_client.py HOST:PORT` prints every outcome as JSON.

It runs in the engine's environment, which has that client unmodified, once against the engine and once against the
product. Owns the calls; must not know which of the two it talks to.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

ROWS = 2
VARIABLE = 3
NO_JSON = ("FP16", "BF16")
"""The engine takes and gives these only as raw bytes."""

Outcome = dict[str, Any]


def outcome(call: Callable[[], Any]) -> Outcome:
    """What a call came to: its result as plain data, or the status of its refusal."""
    try:
        result = call()
    except InferenceServerException as exc:
        return {"refused": exc.status() or f"by the client itself: {exc.message()}"}
    return {"result": plain(result)}


def plain(result: Any) -> Any:
    if hasattr(result, "as_numpy"):
        response = result.get_response()
        return {
            "id": response.get("id"),
            "model": (response["model_name"], response["model_version"]),
            "outputs": {
                output["name"]: (output["datatype"], output["shape"], values(result.as_numpy(output["name"])))
                for output in response["outputs"]
            },
        }
    return result


def values(array: Any) -> Any:
    if array.dtype == np.object_:
        return [item.decode("latin-1") if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    return array.tobytes().hex()


def inputs_of(metadata: Any, config: Any) -> list[tuple[str, str, Any]]:
    """Name, datatype and array of each input, the same whenever asked."""
    rng = np.random.default_rng(11)
    rows = config["max_batch_size"] if metadata["name"] == "fixed8" else ROWS
    made = []
    for each in metadata["inputs"]:
        shape = [VARIABLE if dim < 0 else dim for dim in each["shape"]]
        if config["max_batch_size"]:
            shape[0] = rows
        made.append((each["name"], each["datatype"], array_of(rng, each["datatype"], shape, metadata["name"])))
    return made


def array_of(rng: Any, datatype: str, shape: list[int], model: str) -> Any:
    count = int(np.prod(shape))
    if datatype == "BYTES":
        texts = [f"{rng.integers(1000)} ü".encode() for _ in range(count)]
        return np.array(texts, dtype=np.object_).reshape(shape)
    if datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(bool)
    numbers = rng.integers(0, 20 if model == "slow" else 100, shape)
    return numbers.astype(triton_to_np_dtype(datatype))


def tensors(made: Iterable[tuple[str, str, Any]], *, binary: bool, library: Any = triton) -> list[Any]:
    ready = []
    for name, datatype, array in made:
        tensor = library.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        ready.append(tensor)
    return ready


def wanted(metadata: Any, *, binary: bool, library: Any = triton, classes: int = 0) -> list[Any]:
    return [
        library.InferRequestedOutput(output["name"], binary_data=binary, class_count=classes)
        for output in metadata["outputs"]
    ]


def questions(client: Any, name: str) -> dict[str, Callable[[], Any]]:
    """Every call about one model that reads."""
    return {
        "metadata": lambda: client.get_model_metadata(name),
        "metadata of a version": lambda: client.get_model_metadata(name, "1"),
        "config": lambda: client.get_model_config(name),
        "ready": lambda: client.is_model_ready(name),
        "ready in an unknown version": lambda: client.is_model_ready(name, "9"),
        "statistics": lambda: shape_of(client.get_inference_statistics(name)),
    }


def shape_of(statistics: Any) -> Any:
    """Which members there are: the numbers differ from call to call."""
    (entry,) = statistics["model_stats"]
    return {"name": entry["name"], "version": entry["version"], "members": sorted(entry)}


def inferences(client: Any, metadata: Any, config: Any) -> dict[str, Callable[[], Any]]:
    """Every way to ask a model for numbers, and every way to ask wrongly."""
    name = metadata["name"]
    made = inputs_of(metadata, config)
    has_json = not any(datatype in NO_JSON for _, datatype, _ in made)
    binary = functools.partial(tensors, made, binary=True)
    infer = functools.partial(client.infer, name)
    (first, datatype, array), *others = made
    calls: dict[str, Callable[[], Any]] = {
        "binary": lambda: infer(binary()),
        "named outputs": lambda: infer(binary(), outputs=wanted(metadata, binary=True)),
        "one output": lambda: infer(binary(), outputs=wanted(metadata, binary=True)[:1]),
        "version and id": lambda: infer(binary(), model_version="1", request_id="client-17"),
        "parameters": lambda: infer(binary(), parameters={"a": 1, "b": "x", "c": True}, priority=1),
        "gzip": lambda: infer(binary(), request_compression_algorithm="gzip", response_compression_algorithm="gzip"),
        "deflate": lambda: infer(
            binary(), request_compression_algorithm="deflate", response_compression_algorithm="deflate"
        ),
        "later": lambda: client.async_infer(name, binary()).get_result(),
        "wrong name": lambda: infer(tensors([("nobody", datatype, array), *others], binary=True)),
        "wrong rank": lambda: infer(tensors([(first, datatype, array[None, None]), *others], binary=True)),
        "wrong datatype": lambda: infer(wrong_datatype(made)),
        "input twice": lambda: infer(tensors([*made, made[0]], binary=True)),
        "no input": lambda: infer([]),
        "unknown output": lambda: infer(binary(), outputs=[triton.InferRequestedOutput("nobody")]),
        "unknown version": lambda: infer(binary(), model_version="9"),
    }
    optional = {each["name"] for each in config["input"] if each.get("optional")}
    if optional:
        calls["required inputs"] = lambda: infer(
            tensors([each for each in made if each[0] not in optional], binary=True)
        )
    if has_json:
        calls["JSON both ways"] = lambda: infer(tensors(made, binary=False), outputs=wanted(metadata, binary=False))
        calls["JSON in"] = lambda: infer(tensors(made, binary=False), outputs=wanted(metadata, binary=True))
    if metadata["outputs"][0]["datatype"] not in ("BYTES", "BOOL", *NO_JSON):
        calls["classes"] = lambda: infer(binary(), outputs=wanted(metadata, binary=True, classes=2))
        calls["classes in JSON"] = lambda: infer(binary(), outputs=wanted(metadata, binary=False, classes=2))
    return calls


def wrong_datatype(made: list[tuple[str, str, Any]]) -> list[Any]:
    (name, datatype, array), *others = made
    other = "INT64" if datatype != "INT64" else "FP64"
    changed = np.zeros(array.shape, triton_to_np_dtype(other))
    return tensors([(name, other, changed), *others], binary=True)


def refused_calls(client: Any) -> dict[str, Callable[[], Any]]:
    """What concerns the engine's own process."""
    return {
        "load": lambda: client.load_model("identity"),
        "unload": lambda: client.unload_model("identity"),
        "shared memory": lambda: client.register_system_shared_memory("region", "/region", 64),
        "shared memory on a GPU": lambda: client.get_cuda_shared_memory_status(),
        "trace": lambda: client.update_trace_settings(settings={"trace_level": ["OFF"]}),
        "trace of a model": lambda: client.get_trace_settings("identity"),
        "log": lambda: client.get_log_settings(),
    }


async def over_aio(address: str, models: dict[str, tuple[Any, Any]]) -> dict[str, Outcome]:
    """The same numbers through the asynchronous client, many calls at once."""

    async def infer(client: Any, metadata: Any, config: Any) -> Outcome:
        made = tensors(inputs_of(metadata, config), binary=True, library=triton_aio)
        try:
            return {"result": plain(await client.infer(metadata["name"], made, request_id="aio"))}
        except InferenceServerException as exc:
            return {"refused": exc.status()}

    async with triton_aio.InferenceServerClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        found = await asyncio.gather(*(infer(client, *model) for model in models.values()))
    return dict(zip(models, found, strict=True))


def main(address: str) -> None:
    client = triton.InferenceServerClient(address, concurrency=4)
    names = [entry["name"] for entry in client.get_model_repository_index() if entry["state"] == "READY"]
    models = {name: (client.get_model_metadata(name), client.get_model_config(name)) for name in names}
    report: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "server": client.get_server_metadata(),
        "index": client.get_model_repository_index(),
        "unknown model": outcome(lambda: client.get_model_metadata("nobody")),
        "inference of an unknown model": outcome(
            lambda: client.infer("nobody", tensors([("x", "FP32", np.zeros((1, 1), np.float32))], binary=True))
        ),
        "is an unknown model ready": client.is_model_ready("nobody"),
        "refused": {name: outcome(call) for name, call in refused_calls(client).items()},
        "models": {
            name: {
                **{what: outcome(call) for what, call in questions(client, name).items()},
                **{what: outcome(call) for what, call in inferences(client, *described).items()},
            }
            for name, described in models.items()
        },
        "aio": asyncio.run(over_aio(address, models)),
    }
    client.close()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
