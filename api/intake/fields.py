"""Options that come as text: the query of any request, and the fields of a form.

It owns their decoding and the words of the protocol that are spelled as text there; their ranges are not its business.
"""

from typing import Any, Final
from urllib.parse import parse_qsl

from api.formats import FormatError, json
from api.intake.draft import DraftOutput
from api.intake.envelope import outputs_of, parameters_of
from api.intake.limits import MAX_OPTION_BYTES
from api.intake.options import FIELD_NAMES, OPTION_NAMES, check_names, invalid
from api.problems import Problem, ProblemCode

_MAX_FIELDS: Final = 64

OUTPUTS: Final = "outputs"
PARAMETERS: Final = "parameters"
INPUT: Final = "input"


def query_options(query: bytes) -> dict[str, str]:
    """The options in a query; raises Problem where one is unknown, given twice or not UTF-8."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS, separator="&"
        )
    except ValueError:
        raise Problem(
            ProblemCode.INVALID_REQUEST, "The query is not percent-encoded UTF-8, or has too many parts."
        ) from None
    options: dict[str, str] = {}
    for name, value in pairs:
        add_option(options, name, value)
    check_names(options, FIELD_NAMES)
    return options


def add_option(options: dict[str, Any], name: str, value: Any) -> None:
    """Add what another part of the request says; raises Problem where the option was there already, or is too long."""
    if name in options:
        raise Problem(ProblemCode.INVALID_OPTION, f"The option `{name[:100]}` is given twice.", option=name[:100])
    if isinstance(value, str) and len(value) > MAX_OPTION_BYTES:
        raise invalid(name, f"at most {MAX_OPTION_BYTES} characters long")
    options[name] = value


def take_outputs(options: dict[str, Any]) -> tuple[DraftOutput, ...] | None:
    """The outputs that a query or form asks for: names with commas between them, or JSON as in a document."""
    text = options.pop(OUTPUTS, None)
    if text is None:
        return None
    if text.startswith("["):
        return outputs_of(_json(OUTPUTS, text))
    return outputs_of([name.strip() for name in text.split(",")])


def take_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """The model's request parameters that a query or form gives, as a JSON object."""
    text = options.pop(PARAMETERS, None)
    return {} if text is None else parameters_of(_json(PARAMETERS, text), OPTION_NAMES)


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text.encode())
    except FormatError as exc:
        raise invalid(name, f"JSON: {exc}") from None
