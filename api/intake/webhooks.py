"""The options of a submission that ask for messages: where to, about what, signed with what.

It turns what a client wrote into a Webhook or a Problem; which addresses may be reached is `jobs.destination`'s rule.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from api.intake.limits import WebhookRules
from api.intake.options import WEBHOOK_OPTIONS, invalid
from api.problems import Problem, ProblemCode
from jobs.destination import AllowList, ForbiddenDestination, parse
from jobs.webhook import ENDS, Webhook, WebhookEvent, parse_secrets

_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}
_MOST_EVENTS: Final = 16


def webhook_of(options: Mapping[str, Any], rules: WebhookRules) -> Webhook | None:
    """What the options ask for, None where there is no `webhook`; raises Problem that names the first wrong one."""
    given = [name for name in WEBHOOK_OPTIONS if options.get(name) is not None]
    if not given:
        return None
    if given[0] != "webhook":
        raise Problem(
            ProblemCode.INVALID_OPTION, f"The option `{given[0]}` has no meaning without `webhook`.", option=given[0]
        )
    url = _url(options["webhook"], rules.allowed)
    secrets = _secrets(options["webhook_secret"]) if "webhook_secret" in given else ()
    if not secrets and not rules.has_secret:
        raise Problem(
            ProblemCode.INVALID_OPTION,
            "The option `webhook` needs `webhook_secret` beside it: the server has no secret to sign your tenant's "
            "messages with; INFERQ_WEBHOOK_SECRET sets one.",
            option="webhook",
        )
    return Webhook(
        url,
        _events(options["webhook_events"]) if "webhook_events" in given else ENDS,
        secrets,
        _truth("webhook_include_output", options.get("webhook_include_output", False)),
    )


def _url(value: Any, allowed: AllowList) -> str:
    if not isinstance(value, str):
        raise invalid("webhook", "a URL")
    try:
        return parse(value, allowed).url
    except ForbiddenDestination as exc:
        advice = f"; an operator allows it with `{exc.entry}` in INFERQ_WEBHOOK_ALLOW" if exc.entry else ""
        raise Problem(ProblemCode.INVALID_OPTION, f"The option `webhook` {exc}{advice}.", option="webhook") from None


def _events(value: Any) -> tuple[WebhookEvent, ...]:
    names = _list("webhook_events", value)
    try:
        asked = {WebhookEvent(name) for name in names}
    except ValueError:
        asked = set()
    if not asked or len(names) > _MOST_EVENTS:
        raise invalid("webhook_events", f"one or more of {', '.join(WebhookEvent)}")
    return tuple(event for event in WebhookEvent if event in asked)


def _secrets(value: Any) -> tuple[str, ...]:
    try:
        secrets = parse_secrets(_list("webhook_secret", value))
    except ValueError as exc:
        raise Problem(
            ProblemCode.INVALID_OPTION, f"The option `webhook_secret`: {exc}.", option="webhook_secret"
        ) from None
    if not secrets:
        raise invalid("webhook_secret", "a secret that begins with whsec_")
    return secrets


def _list(name: str, value: Any) -> list[str]:
    """An array of texts; as a text it is JSON, or has commas between them."""
    if isinstance(value, str):
        if not value.startswith("["):
            return [part.strip() for part in value.split(",") if part.strip()]
        try:
            value = orjson.loads(value)
        except ValueError:
            raise invalid(name, "valid JSON") from None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise invalid(name, "a text, with commas between several, or an array of texts")
    return value


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUTHS:
        return _TRUTHS[value.lower()]
    raise invalid(name, "true or false")
