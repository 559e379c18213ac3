"""What may be asked for: the models that workers have registered, and how busy they are."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from api.routes.access import known_model, services, visible_models
from api.routes.answers import json_response
from api.services import Services
from jobs.registry import LaneState
from jobs.spec import InputSpec, ModelSpec, OutputSpec


async def list_models(request: Request) -> Response:
    """Every model, in the order of names."""
    return json_response({"models": await _shown(services(request), visible_models(request))})


async def read_model(request: Request) -> Response:
    """One model."""
    spec = await known_model(request, request.path_params["name"])
    return json_response((await _shown(services(request), [spec]))[0])


async def _shown(shared: Services, specs: Sequence[ModelSpec]) -> list[dict[str, Any]]:
    depths = await shared.registry.depths([spec.name for spec in specs])
    return [_model(shared, spec, *depths[spec.name]) for spec in specs]


def _model(shared: Services, spec: ModelSpec, queued: int, in_progress: int) -> dict[str, Any]:
    lanes = shared.catalog.lanes(spec.name)
    return {
        "name": spec.name,
        **_form(shared, spec),
        "variants": [_form(shared, variant) for variant in spec.variants],
        "platform": spec.platform,
        "instances": spec.instances,
        "queued": queued,
        "in_progress": in_progress,
        "workers": len(lanes),
        "lanes": {
            "ready": sum(lane.state is LaneState.READY for lane in lanes),
            "waiting_for_engine": sum(lane.state is LaneState.ENGINE for lane in lanes),
            "batches_in_flight": sum(lane.in_flight for lane in lanes),
            "credits": sum(lane.credits for lane in lanes),
            "batch_size": max((lane.batch_size for lane in lanes), default=None),
        },
        "urls": {"self": f"/models/{quote(spec.name, safe='')}"},
    }


def _form(shared: Services, spec: ModelSpec) -> dict[str, Any]:
    """What versions take and give, which is where they may differ."""
    return {
        "versions": spec.versions,
        "ready": shared.catalog.is_ready(spec),
        "refusal": spec.refusal,
        "max_batch_size": spec.max_batch_size,
        "inputs": [_input(part) for part in spec.inputs],
        "outputs": [_output(part) for part in spec.outputs],
        "notes": spec.notes,
    }


def _input(spec: InputSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": spec.datatype.value,
        "shape": spec.dims,
        "optional": spec.optional,
        "kind": spec.kind.value,
    }


def _output(spec: OutputSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": spec.datatype.value,
        "shape": spec.dims,
        "kind": spec.kind.value,
        "top": spec.top or None,
    }
