"""The OpenAPI document: what FastAPI can't tell from handlers that take the request as it is.

It describes and never checks; that it tells the truth is proven by asking the running api everything that it says.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from api.endpoint import Endpoint
from api.openapi.answers import answer
from api.openapi.bodies import request_body
from api.openapi.parameters import parameters
from api.openapi.schemas import SCHEMAS
from jobs.apikeys import KeyScope

__all__ = ["COMPONENTS", "Description", "document"]

FACADE: Final = "facade"
_SCHEME: Final = "api_key"
COMPONENTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "schemas": SCHEMAS,
        "securitySchemes": {
            _SCHEME: {"type": "http", "scheme": "bearer", "description": "Needed as soon as there is any API key"}
        },
    }
)
_GUARDED: Final = (401, 403, 429)
"""What every path may answer that looks at keys."""

_ANYWHERE: Final = (400, 500)
"""What every path may answer: a header twice, and a fault of ours."""


class Description(NamedTuple):
    """What FastAPI adds to an operation."""

    responses: dict[int | str, dict[str, Any]]
    extra: dict[str, Any]


def document(endpoint: Endpoint, scope: KeyScope | None, *, is_metered: bool = False) -> Description:
    """The description of an endpoint, which asks of a key to permit `scope` and uses up quotas if it is metered."""
    extra: dict[str, Any] = {}
    if endpoint.parameters:
        extra["parameters"] = parameters(endpoint.parameters)
    if endpoint.body:
        extra["requestBody"] = request_body(endpoint.body)
    if scope is not None:
        extra["security"] = [{_SCHEME: [scope.value]}, {}]
    statuses = sorted({*endpoint.answers, *_ANYWHERE, *(() if scope is None else _GUARDED)})
    shows = dict(endpoint.shows)
    about = {"is_facade": endpoint.tag == FACADE, "is_metered": is_metered, "is_call": endpoint.body == "infer"}
    return Description({status: answer(status, shows.get(status), **about) for status in statuses}, extra)
