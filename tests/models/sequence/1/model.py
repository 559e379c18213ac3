"""Running total per sequence."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value, start, sequence = (
            int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0])
            for name in ("value", "START", "CORRID")
        )
        self.totals[sequence] = value if start else self.totals.get(sequence, 0) + value
        total = np.array([[self.totals[sequence]]], dtype=np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("total", total)])
