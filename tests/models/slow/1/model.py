"""Sleeps as long as the slowest row of the batch asks, and tells each row how many came together."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils

CANCEL_CHECK_SECONDS = 0.02


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        delays = request.inputs()[0].as_numpy()
        wake_at = time.monotonic() + float(delays.max(initial=0)) / 1000
        while (left := wake_at - time.monotonic()) > 0:
            if request.is_cancelled():
                error = pb_utils.TritonError("cancelled while asleep", pb_utils.TritonError.CANCELLED)
                return pb_utils.InferenceResponse(error=error)
            time.sleep(min(left, CANCEL_CHECK_SECONDS))
        rows = np.full_like(delays, len(delays))
        return pb_utils.InferenceResponse([pb_utils.Tensor("slept_ms", delays), pb_utils.Tensor("rows", rows)])
