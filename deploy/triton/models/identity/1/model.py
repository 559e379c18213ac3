"""The identity function as a Triton model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers each request with its own bytes."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order; `output` is `input`, shape and bytes."""
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("output", request.inputs()[0].as_numpy())])
            for request in requests
        ]
