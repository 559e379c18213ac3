"""SHA-256 of each element, as hexadecimal text."""

import hashlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()) for request in requests]

    def answer(self, files):
        digests = [hashlib.sha256(file).hexdigest().encode() for file in files.ravel()]
        array = np.array(digests, dtype=np.object_).reshape(files.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("sha256", array)])
