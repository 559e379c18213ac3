"""Talks to a Triton directly, over its own HTTP protocol, past everything that the product does.

Owns the binary tensor framing of that protocol. Must not be used where a test is about the product's client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

NUMPY_TYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
DATATYPES = {np.dtype(numpy_type).name: datatype for datatype, numpy_type in NUMPY_TYPES.items()}


class EngineRefused(Exception):
    """The engine answered with an error; the message is its own."""


@dataclass(frozen=True)
class Raw:
    """A tensor as it travels: for BYTES framed elements, for BF16 two bytes per element."""

    datatype: str
    shape: tuple[int, ...]
    data: bytes


def raw(array: Array) -> Raw:
    """A tensor from a numpy array; an object array holds the `bytes` of a BYTES tensor."""
    if array.dtype == np.object_:
        framed = b"".join(len(element).to_bytes(4, "little") + element for element in array.ravel())
        return Raw("BYTES", array.shape, framed)
    return Raw(DATATYPES[array.dtype.name], array.shape, array.tobytes())


def array(tensor: Raw) -> Array:
    """The inverse of `raw`."""
    if tensor.datatype != "BYTES":
        return np.frombuffer(tensor.data, NUMPY_TYPES[tensor.datatype]).reshape(tensor.shape)
    elements, position = [], 0
    while position < len(tensor.data):
        start = position + 4
        position = start + int.from_bytes(tensor.data[position:start], "little")
        elements.append(tensor.data[start:position])
    return np.array(elements, dtype=np.object_).reshape(tensor.shape)


class EngineHttp:
    """One Triton; calls raise EngineRefused with its message."""

    def __init__(self, address: str) -> None:
        self.client = httpx.AsyncClient(base_url=f"http://{address}", timeout=30)

    async def __aenter__(self) -> EngineHttp:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def load(self, model: str) -> None:
        """Load or reload a model (explicit model control)."""
        self._checked(await self.client.post(f"/v2/repository/models/{model}/load"))

    async def config(self, model: str) -> dict[str, Any]:
        """The model's configuration as the engine completed it."""
        config: dict[str, Any] = self._checked(await self.client.get(f"/v2/models/{model}/config")).json()
        return config

    async def calls(self, model: str) -> tuple[int, int]:
        """Successful requests so far, and the model runs that they took."""
        stats = self._checked(await self.client.get(f"/v2/models/{model}/stats")).json()["model_stats"][0]
        return stats["inference_stats"]["success"]["count"], stats["execution_count"]

    async def infer(
        self, model: str, inputs: Mapping[str, Raw | Array], outputs: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, Raw]:
        """Outputs by name; `outputs` names the wanted ones with their parameters (`{"classification": 3}`)."""
        tensors = {name: tensor if isinstance(tensor, Raw) else raw(tensor) for name, tensor in inputs.items()}
        header = {
            "inputs": [
                {
                    "name": name,
                    "datatype": tensor.datatype,
                    "shape": list(tensor.shape),
                    "parameters": {"binary_data_size": len(tensor.data)},
                }
                for name, tensor in tensors.items()
            ],
            "parameters": {"binary_data_output": True},
        }
        if outputs is not None:
            header["outputs"] = [
                {"name": name, "parameters": {"binary_data": True, **parameters}}
                for name, parameters in outputs.items()
            ]
        head = json.dumps(header).encode()
        response = await self.client.post(
            f"/v2/models/{model}/infer",
            content=head + b"".join(tensor.data for tensor in tensors.values()),
            headers={"Inference-Header-Content-Length": str(len(head))},
        )
        return _outputs(self._checked(response))

    @staticmethod
    def _checked(response: httpx.Response) -> httpx.Response:
        if response.is_error:
            raise EngineRefused(response.json()["error"])
        return response


def _outputs(response: httpx.Response) -> dict[str, Raw]:
    # Triton leaves the header and the size out when no output has an element.
    position = int(response.headers.get("Inference-Header-Content-Length", len(response.content)))
    found = {}
    for output in json.loads(response.content[:position])["outputs"]:
        end = position + output.get("parameters", {}).get("binary_data_size", 0)
        found[output["name"]] = Raw(output["datatype"], tuple(output["shape"]), response.content[position:end])
        position = end
    return found
