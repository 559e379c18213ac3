"""The `inferq` parameter of a model's configuration: JSON, checked strictly, as frozen objects.

It owns syntax and single values; whether they fit the model's tensors is for `describe` to judge.
"""

import json
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from jobs.spec import ColorOrder, InputKind, Interpolation, Layout, OutputKind

KEY: Final = "inferq"
MAX_SIDE: Final = 16384
"""Most pixels that a side of a prepared picture may have."""

MAX_CLASSES: Final = 1000
_MAX_QUOTE_LENGTH: Final = 60


class ParameterError(ValueError):
    """The parameter is wrong; the text is a clause that says what and where."""


def _pair(value: Any) -> Any:
    return [value, value] if isinstance(value, int) else value


def _several(value: Any) -> Any:
    return [value] if isinstance(value, int | float) else value


_Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Divisor = Annotated[float, Field(allow_inf_nan=False, gt=0)]
_Pair = Annotated[tuple[_Side, _Side], BeforeValidator(_pair), Field(strict=False)]
_Numbers = Annotated[tuple[_Number, ...], BeforeValidator(_several), Field(strict=False, min_length=1, max_length=3)]
_Divisors = Annotated[tuple[_Divisor, ...], BeforeValidator(_several), Field(strict=False, min_length=1, max_length=3)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class InputParameter(_Strict):
    """What a model's author says of one input; all but `kind` concerns images only.

    One number stands for both sides of `crop`, and for every channel in `mean` and `std`.
    """

    kind: Annotated[InputKind, Field(strict=False)] = InputKind.TENSOR
    resize: _Side | None = None
    crop: _Pair | None = None
    interpolation: Interpolation = "bilinear"
    color: ColorOrder = "RGB"
    layout: Layout | None = None
    scale: _Divisor = 1.0
    mean: _Numbers = ()
    std: _Divisors = ()
    orientation: bool = True


class OutputParameter(_Strict):
    """What a model's author says of one output; `top` concerns classifications only."""

    kind: Annotated[OutputKind, Field(strict=False)] = OutputKind.TENSOR
    top: Annotated[int, Field(ge=1, le=MAX_CLASSES)] | None = None


class Parameter(_Strict):
    """The whole parameter; inputs and outputs that it doesn't name are plain tensors.

    `batch` "full" says that the model takes only as many rows as its `max_batch_size` at a time.
    """

    batch: Literal["full"] | None = None
    inputs: dict[str, InputParameter] = {}
    outputs: dict[str, OutputParameter] = {}


def parse(text: str) -> Parameter:
    """The parameter that a JSON text holds. Raises ParameterError."""
    try:
        plain = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except ParameterError:
        raise
    except (ValueError, RecursionError) as exc:
        raise ParameterError(f"it is not JSON ({exc})") from exc
    try:
        return Parameter.model_validate(plain)
    except ValidationError as exc:
        raise ParameterError(_first(exc)) from exc


def _first(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(step) for step in error["loc"])
    got = repr(error["input"])
    quote = got if len(got) <= _MAX_QUOTE_LENGTH else got[:_MAX_QUOTE_LENGTH] + "…"
    problem = "there is no such option" if error["type"] == "extra_forbidden" else error["msg"]
    problem = problem[:1].lower() + problem[1:]
    return f"{where + ': ' if where else ''}{problem}, got {quote}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) != len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise ParameterError(f"'{twice}' is given twice in one object")
    return plain


def _refuse_constant(name: str) -> NoReturn:
    raise ParameterError(f"{name} is not a number of JSON")
