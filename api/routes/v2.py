"""The façade `/v2`: an unmodified Triton client talks to it as to Triton, and every inference goes through the queue.

It owns what such a call does; how requests and answers read is the business of `api.facade`.
"""

from typing import Any, Final, NoReturn

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.facade import shown
from api.facade.request import version_name
from api.problems import Problem, ProblemCode
from api.routes.access import known_model, services, visible_models
from api.routes.answers import json_response
from jobs.spec import ModelSpec

_MAX_INDEX_BYTES: Final = 4096


async def server(request: Request) -> Response:
    """Who answers, and which of Triton's extensions it knows."""
    return json_response(shown.server_metadata(request.app.version))


def _yes() -> Response:
    """200 and nothing else, of the type that Triton says."""
    return Response(headers={"Content-Type": "text/plain"})


async def live(request: Request) -> Response:
    """Whether this process answers."""
    return _yes()


async def ready(request: Request) -> Response:
    """Whether an inference would be accepted now: 200, or 400 as Triton has it."""
    reasons = services(request).faults()
    if reasons:
        raise Problem(ProblemCode.NOT_READY, f"The server is not ready: {'; '.join(reasons)}.")
    return _yes()


async def model_ready(request: Request) -> Response:
    """Whether an inference of this model would be accepted and run now: 200, or 400 as Triton has it."""
    shared = services(request)
    spec = await _there(request)
    if not shared.catalog.is_ready(spec):
        raise Problem(ProblemCode.NOT_READY, spec.refusal or f"No worker serves model '{spec.name}' at the moment.")
    return _yes()


async def metadata(request: Request) -> Response:
    """What a model, or its version that the path names, takes and gives."""
    return json_response(shown.model_metadata(await _model(request)))


async def config(request: Request) -> Response:
    """The model's configuration as the engine has it."""
    spec = await _model(request)
    if not spec.config:
        raise Problem(ProblemCode.NOT_READY, f"No worker has told the configuration of model '{spec.name}' yet.")
    return Response(spec.config.encode(), media_type="application/json")


async def statistics(request: Request) -> Response:
    """What the engine counted for a model, or for all, as workers last read it."""
    shared = services(request)
    specs = [await _there(request)] if "name" in request.path_params else visible_models(request)
    names = [spec.name for spec in specs]
    known = await shared.registry.statistics(names)
    wanted = _version(request)
    entries = [
        entry for name in names for entry in known.get(name, ()) if wanted is None or entry.get("version") == wanted
    ]
    return json_response({"model_stats": entries})


async def repository_index(request: Request) -> Response:
    """Every model and version; with `{"ready": true}` those that would be run now."""
    shared = services(request)
    only_ready = await _wants_ready(request)
    entries: list[dict[str, Any]] = []
    for spec in visible_models(request):
        for version in spec.versions:
            one = shown.one_version(spec, version)
            is_ready = shared.catalog.is_ready(one)
            if is_ready or not only_ready:
                entries.append(shown.index_entry(one, is_ready=is_ready))
    return json_response(entries)


async def refuse_control(request: Request) -> NoReturn:
    """Never: models are loaded and unloaded where the engine runs."""
    raise Problem(ProblemCode.NOT_SUPPORTED, "Models are loaded and unloaded in the engine itself, not from here.")


async def refuse_shared_memory(request: Request) -> NoReturn:
    """Never: requests are queued and may run on any machine, so no memory can be shared with the client."""
    raise Problem(ProblemCode.NOT_SUPPORTED, "Shared memory can't reach the engine from here; send tensors as bytes.")


async def refuse_settings(request: Request) -> NoReturn:
    """Never: tracing and logging of the engine are set where it runs."""
    raise Problem(ProblemCode.NOT_SUPPORTED, "Tracing and logging are set in the engine itself, not from here.")


async def refuse_generate(request: Request) -> NoReturn:
    """Never: the generate extension is not part of the façade."""
    raise Problem(ProblemCode.NOT_SUPPORTED, "There is no generate extension here; use /infer, or POST /jobs.")


async def _model(request: Request) -> ModelSpec:
    """The model of the path, or its version that the path names, alone; raises Problem where one is unknown."""
    name = request.path_params["name"]
    spec = await known_model(request, name)
    version = _version(request)
    if version is not None and version not in spec.versions:
        raise Problem(
            ProblemCode.UNKNOWN_VERSION,
            f"Request for unknown model: '{spec.name}' version {version[:100]} is not found.",
        )
    return spec if version is None else shown.one_version(spec, version)


async def _there(request: Request) -> ModelSpec:
    """The same, where an unknown one is 400 to Triton's clients."""
    try:
        return await _model(request)
    except Problem as problem:
        if problem.status != 404:
            raise
        raise Problem(ProblemCode.NOT_READY, problem.detail) from None


def _version(request: Request) -> str | None:
    version = request.path_params.get("version")
    return None if version is None else version_name(version)


async def _wants_ready(request: Request) -> bool:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_INDEX_BYTES:
            raise Problem(ProblemCode.PAYLOAD_TOO_LARGE, "The request for the index is too large.", close=True)
    try:
        wanted = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError:
        raise Problem(ProblemCode.MALFORMED_BODY, "The request for the index is not JSON.") from None
    if not isinstance(wanted, dict) or not isinstance(wanted.get("ready", False), bool):
        raise Problem(ProblemCode.MALFORMED_BODY, "The request for the index is not an object with a truth `ready`.")
    return wanted.get("ready") is True
