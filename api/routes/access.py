"""What a request speaks of: its tenant, its job, its model.

It turns names into things or into a 404; it must not do anything with them.
"""

from typing import Any, Final, NamedTuple

from starlette.requests import Request

from api.auth import Caller
from api.problems import Problem, ProblemCode
from api.services import Services
from jobs import keys
from jobs.spec import ModelSpec

_LONGEST_SHOWN: Final = 100


class JobReference(NamedTuple):
    """A job id of proper form, and the tenant that asks."""

    job_id: str
    tenant: str


def services(request: Request) -> Services:
    """What the process shares."""
    found: Services = request.app.state.services
    return found


def caller(request: Request) -> Caller:
    """Who asks; every path that is not open to all has found that out before."""
    found: Caller = request.state.caller
    return found


def tenant(request: Request) -> str:
    """The owner of what this request stores and sees: one for all while no API keys are in use."""
    return caller(request).tenant


def visible_models(request: Request) -> list[ModelSpec]:
    """Every model that exists for the caller, in the order of names."""
    who, known = caller(request), services(request).catalog.models
    return [known[name] for name in sorted(known) if who.may_use(name)]


def job_reference(request: Request) -> JobReference:
    """The job of the path; raises the same 404 for an id of wrong form as for one that nobody has."""
    job_id = request.path_params["job_id"]
    if not keys.is_job_id(job_id):
        raise unknown_job()
    return JobReference(job_id, tenant(request))


def unknown_job() -> Problem:
    """There is no such job, or it is somebody else's: the answer is the same."""
    return Problem(ProblemCode.UNKNOWN_JOB, "There is no job with this id; it may have been deleted or have expired.")


async def known_model(request: Request, name: str) -> ModelSpec:
    """What is known of a model; raises StoreError where nobody can tell, and Problem where it is unknown.

    A model that the caller's key does not name is as unknown as one that does not exist.
    """
    catalog = services(request).catalog
    spec = await catalog.find(name)
    if spec is None and not catalog.models:
        await catalog.refresh()
        spec = catalog.models.get(name)
    if spec is not None and caller(request).may_use(name):
        return spec
    if not catalog.models:
        raise Problem(ProblemCode.NO_MODELS_YET, "No worker has registered a model yet. Try again soon.")
    known: dict[str, Any] = {}
    if caller(request).may_read:
        known["models"] = [model.name for model in visible_models(request)]
    raise Problem(ProblemCode.UNKNOWN_MODEL, f"There is no model {name[:_LONGEST_SHOWN]!r}.", **known)
