"""Each text as it came, byte for byte."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("echo", request.inputs()[0].as_numpy())])
            for request in requests
        ]
