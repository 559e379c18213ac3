"""Answers each request `count` times, with 0, 1, 2, …; a negative count as often, and then with an error."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = int(request.inputs()[0].as_numpy()[0])
            for index in range(abs(count)):
                tensor = pb_utils.Tensor("index", np.array([index], dtype=np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            if count < 0:
                sender.send(pb_utils.InferenceResponse([], pb_utils.TritonError("no more of that")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
