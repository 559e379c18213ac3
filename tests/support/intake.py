"""A minimal application round the intake, and the models that its tests post to.

Owns no rule: it keeps what was accepted and answers what was refused, over real HTTP parsing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.intake import IntakeLimits, read_batch, read_submission
from api.problems import Problem, ProblemCode, response
from jobs.datatypes import Datatype
from jobs.spec import ImageOptions, InputKind, InputSpec, ModelSpec, OutputKind, OutputSpec
from jobs.store import Submission

NOW_MS = 1_760_000_000_000


def output(name: str = "y", datatype: Datatype = Datatype.FP32, dims: tuple[int, ...] = (-1,)) -> OutputSpec:
    """An output of plain numbers."""
    return OutputSpec(name, datatype, dims)


def tensor_model(
    name: str,
    datatype: Datatype,
    dims: tuple[int, ...] = (-1,),
    *,
    max_batch_size: int = 8,
    optional: Sequence[InputSpec] = (),
) -> ModelSpec:
    """A model with the tensor input `x` and the output `y`."""
    return ModelSpec(
        name, ("1", "2"), max_batch_size, (InputSpec("x", datatype, dims), *optional), (output(datatype=datatype),)
    )


PHOTO = ModelSpec(
    "photo",
    ("1",),
    8,
    (InputSpec("image", Datatype.UINT8, (32, 32, 3), kind=InputKind.IMAGE, image=ImageOptions("HWC", crop=(32, 32))),),
    (OutputSpec("scores", Datatype.FP32, (10,), OutputKind.CLASSIFICATION, 5), output("embedding")),
)
TEXT = ModelSpec("text", ("1",), 8, (InputSpec("text", Datatype.BYTES, (1,), kind=InputKind.TEXT),), (output(),))
BLOB = ModelSpec("blob", ("1",), 8, (InputSpec("blob", Datatype.BYTES, (1,), kind=InputKind.BYTES),), (output(),))
PAIR = ModelSpec(
    "pair",
    ("1",),
    8,
    (
        InputSpec("a", Datatype.FP32, (2,)),
        InputSpec("b", Datatype.INT64, (-1,)),
        InputSpec("c", Datatype.BOOL, (1,), optional=True),
    ),
    (output("sum"), output("difference"), output("words", Datatype.BYTES)),
)
MIXED = ModelSpec(
    "mixed",
    ("1",),
    8,
    (*PHOTO.inputs, InputSpec("threshold", Datatype.FP32, (1,))),
    (output(),),
)
REFUSED = ModelSpec(
    "refused", ("1",), 8, PAIR.inputs, PAIR.outputs, refusal="Sequence models keep state between requests."
)

MODELS = (
    PHOTO,
    TEXT,
    BLOB,
    PAIR,
    MIXED,
    REFUSED,
    tensor_model("fixed", Datatype.FP32, (3,)),
    tensor_model("grid", Datatype.INT32, (2, -1, 2)),
    tensor_model("plain", Datatype.FP32, (-1,), max_batch_size=0),
    tensor_model("scalar", Datatype.FP32, (), max_batch_size=0),
    tensor_model("strings", Datatype.BYTES, (2,)),
    replace(
        tensor_model("versioned", Datatype.FP32, (3,)),
        variants=(replace(tensor_model("versioned", Datatype.INT64, (2,), max_batch_size=2), versions=("1",)),),
    ),
    *(tensor_model(f"any_{datatype.lower()}", datatype) for datatype in Datatype),
)


class Gateway:
    """Posts requests and says what became of them."""

    def __init__(self, limits: IntakeLimits | None = None, models: Sequence[ModelSpec] = MODELS) -> None:
        self.limits = limits or IntakeLimits(max_body_bytes=8 * 1024 * 1024, max_pixels=100_000_000)
        self.models = {model.name: model for model in models}
        self.submissions: list[Submission] = []
        self.batches: list[list[Submission | Problem]] = []
        self.app = Starlette(
            routes=[
                Route("/jobs", self._submit, methods=["POST"]),
                Route("/jobs/batch", self._submit_batch, methods=["POST"]),
            ],
            exception_handlers={Problem: _answer},
        )
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://inferq.test")

    async def find(self, name: str) -> ModelSpec:
        """The spec of a model, as the catalog gives it."""
        if name not in self.models:
            raise Problem(ProblemCode.UNKNOWN_MODEL, f"There is no model `{name}`.", known_models=sorted(self.models))
        return self.models[name]

    async def _submit(self, request: Request) -> Response:
        submission = await read_submission(request, models=self.find, limits=self.limits, tenant="local", now_ms=NOW_MS)
        self.submissions.append(submission)
        return Response(status_code=202)

    async def _submit_batch(self, request: Request) -> Response:
        self.batches.append(
            await read_batch(request, models=self.find, limits=self.limits, tenant="local", now_ms=NOW_MS)
        )
        return Response(status_code=202)

    async def batch(self, **request: Any) -> list[Submission | Problem]:
        """What each job of this batch became."""
        answer = await self.client.post("/jobs/batch", **request)
        assert answer.status_code == 202, answer.text
        return self.batches[-1]

    async def refused_batch(self, **request: Any) -> dict[str, Any]:
        """The problem that this batch as a whole was answered with."""
        answer = await self.client.post("/jobs/batch", **request)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        problem: dict[str, Any] = answer.json()
        return problem

    async def post(self, **request: Any) -> httpx.Response:
        """Whatever the answer to this request is."""
        return await self.client.post("/jobs", **request)

    async def accepted(self, **request: Any) -> Submission:
        """The submission that this request became."""
        answer = await self.post(**request)
        assert answer.status_code == 202, answer.text
        return self.submissions[-1]

    async def refused(self, **request: Any) -> dict[str, Any]:
        """The problem that this request was answered with."""
        before = len(self.submissions)
        answer = await self.post(**request)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        assert len(self.submissions) == before
        problem: dict[str, Any] = answer.json()
        assert problem["status"] == answer.status_code
        return problem

    async def raw_query(self, query: bytes, content: bytes) -> httpx.Response:
        """The answer to a request with exactly these bytes as its query."""
        url = self.client.base_url.copy_with(raw_path=b"/jobs?" + query)
        return await self.client.post(url, content=content)

    async def tensor(self, model: str, datatype: str, shape: Sequence[int], data: Any, **more: Any) -> Submission:
        """What one tensor for the input `x`, posted as JSON, became."""
        return await self.accepted(json=document(model, datatype, shape, data, **more))

    async def bad_tensor(self, model: str, datatype: str, shape: Any, data: Any, **more: Any) -> dict[str, Any]:
        """The problem with one tensor for the input `x`, posted as JSON."""
        return await self.refused(json=document(model, datatype, shape, data, **more))


def document(model: str, datatype: str, shape: Any, data: Any, **more: Any) -> dict[str, Any]:
    """A request in Open Inference Protocol words with one tensor, `x`."""
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    return {"model": model, "inputs": [tensor], **more}


def multipart(*parts: tuple[str, bytes], boundary: str = "frontier", end: bytes = b"--\r\n") -> dict[str, Any]:
    """A multipart request from parts written out: each is its headers, without the last empty line, and its data."""
    body = b"".join(f"--{boundary}\r\n{headers}\r\n\r\n".encode("latin-1") + data + b"\r\n" for headers, data in parts)
    return {
        "content": body + f"--{boundary}".encode() + end,
        "headers": {"Content-Type": f"multipart/form-data; boundary={boundary}"},
    }


def field(name: str, data: bytes, filename: str | None = None, content_type: str | None = None) -> tuple[str, bytes]:
    """One part for `multipart`."""
    headers = f'Content-Disposition: form-data; name="{name}"'
    if filename is not None:
        headers += f'; filename="{filename}"'
    if content_type is not None:
        headers += f"\r\nContent-Type: {content_type}"
    return headers, data


def _answer(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return response(problem, "request-1")
