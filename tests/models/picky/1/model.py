"""The identity function, which refuses a whole batch for one negative value."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()) for request in requests]

    def answer(self, rows):
        if (rows < 0).any():
            error = pb_utils.TritonError("negative values are not welcome here", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("output", rows)])
