"""The forms that a submission can have, told apart by the headers, each parsed into a draft.

It owns which media type means which form. It must not know any model, and it never waits: bodies arrive whole.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from api.body import RequestHeaders
from api.intake.draft import Draft, DraftUpload
from api.intake.envelope import draft_from_binary, draft_from_json, draft_from_msgpack
from api.intake.fields import INPUT, add_option, take_outputs, take_parameters
from api.intake.limits import IntakeLimits
from api.intake.media import (
    FORM,
    JSON,
    MSGPACK,
    MULTIPART,
    MULTIPART_FAMILY,
    OCTETS,
    SAYS_JSON,
    TEXT,
    MediaType,
    media_type,
)
from api.intake.multipart import Part, parse_multipart
from api.intake.options import FIELD_NAMES, check_spelling
from api.problems import Problem, ProblemCode

_HEADER_LENGTH: Final = b"inference-header-content-length"


class Form(NamedTuple):
    """What the headers say about the body; `header_length` is '' unless it is in the protocol's binary form."""

    media: MediaType
    header_length: str

    @property
    def is_document(self) -> bool:
        """Whether the body is parsed member by member, rather than taken apart into pieces that stay as they are."""
        return self.media.type == JSON or self.media.type in MSGPACK

    @property
    def is_json(self) -> bool:
        """Whether all of the body becomes Python objects, which take many times its size."""
        return self.media.type == JSON and not self.header_length


def form_of(headers: RequestHeaders) -> Form:
    """The form of a request; raises Problem where a header is given twice."""
    return Form(media_type(headers.one(b"content-type")), headers.one(_HEADER_LENGTH))


def parse(body: bytes, form: Form, query: Mapping[str, str], limits: IntakeLimits) -> Draft:
    """What headers, query and body say together; raises Problem."""
    media, header_length = form
    if header_length:
        return with_query(draft_from_binary(body, header_length, limits), query)
    if media.type == JSON:
        return with_query(draft_from_json(body, limits), query)
    if media.type in MSGPACK:
        return with_query(draft_from_msgpack(body), query)
    is_form = media.type == MULTIPART
    is_misnamed_form = media.type == FORM or (media.family == MULTIPART_FAMILY and not is_form)
    if is_misnamed_form or ("model" not in query and not is_form and _begins_like_json(body)):
        raise _misnamed(body, media)
    options: dict[str, Any] = dict(query)
    if is_form:
        uploads = _uploads(parse_multipart(body, media.parameters.get("boundary", "")), options)
        if "model" not in options:
            check_spelling([upload.name for upload in uploads if upload.is_bare_field])
        return _from_fields(options, uploads)
    charset = media.parameters.get("charset", "")
    return _from_fields(options, [DraftUpload(options.pop(INPUT, ""), media.type or OCTETS, body, charset)])


def _begins_like_json(body: bytes) -> bool:
    return body[:64].lstrip()[:1] == b"{"


def _misnamed(body: bytes, media: MediaType) -> Problem:
    """The problem with a body whose Content-Type keeps it from being understood."""
    said = f"The body is said to be {media.type[:100]}" if media.type else "The body has no Content-Type"
    said += ", which curl says unless it is told otherwise" if media.type == FORM else ""
    if _begins_like_json(body):
        advice = f"JSON needs the header {SAYS_JSON}."
    elif media.family == MULTIPART_FAMILY:
        advice = f"A form is {MULTIPART}."
    else:
        advice = (
            "Send a file with `-F file=@NAME`, or with `--data-binary @NAME -H 'Content-Type: …'` and its real type."
        )
    return Problem(ProblemCode.UNSUPPORTED_MEDIA_TYPE, f"{said}. {advice}")


def with_query(draft: Draft, query: Mapping[str, str]) -> Draft:
    """What a document and the query beside it say together; raises Problem where both say the same thing."""
    if not query:
        return draft
    if INPUT in query:
        raise Problem(ProblemCode.INVALID_OPTION, "A document names its inputs, so `input` has no meaning.")
    said = dict(draft.options)
    for name, value in query.items():
        add_option(said, name, value)
    fields = _from_fields(said, [])
    for name, twice in (
        ("outputs", draft.outputs and fields.outputs),
        ("parameters", draft.parameters and fields.parameters),
    ):
        if twice:
            raise Problem(ProblemCode.INVALID_OPTION, f"The option `{name}` is given twice.", option=name)
    return Draft(
        options=fields.options,
        tensors=draft.tensors,
        outputs=draft.outputs if draft.outputs is not None else fields.outputs,
        parameters=draft.parameters or fields.parameters,
        request_id=draft.request_id,
    )


def _from_fields(options: dict[str, Any], uploads: list[DraftUpload]) -> Draft:
    outputs, parameters = take_outputs(options), take_parameters(options)
    return Draft(options=options, uploads=tuple(uploads), outputs=outputs, parameters=parameters)


def _uploads(parts: list[Part], options: dict[str, Any]) -> list[DraftUpload]:
    """The parts that are inputs; those that are options go to `options`."""
    uploads: list[DraftUpload] = []
    for part in parts:
        if part.name in FIELD_NAMES and not part.is_file:
            add_option(options, part.name, _text(part))
        else:
            uploads.append(_upload(part))
    if INPUT in options:
        raise Problem(
            ProblemCode.INVALID_OPTION, "In a multipart body a part's name says its input, so `input` has no meaning."
        )
    return uploads


def _text(part: Part) -> str:
    try:
        return str(part.data, "utf-8")
    except UnicodeDecodeError:
        raise Problem(ProblemCode.INVALID_OPTION, f"The option `{part.name}` is not UTF-8.", option=part.name) from None


def _upload(part: Part) -> DraftUpload:
    media = media_type(part.content_type) if part.content_type else MediaType(OCTETS if part.is_file else TEXT, {})
    return DraftUpload(part.name, media.type, part.data, media.parameters.get("charset", ""), part.is_file)
