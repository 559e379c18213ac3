"""Sum and difference of two tensors; computes only what a request asks for."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("a", "b"))
        compute = {"sum": lambda: a + b, "difference": lambda: a - b}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, compute[name]()) for name in request.requested_output_names()]
        )
