"""Bodies in the content codings gzip and deflate, both ways.

It owns how far a body may expand; who may send one, and when an answer is compressed, is decided elsewhere.
"""

import zlib
from typing import Final

from api.negotiation import choose
from api.problems import Problem, ProblemCode

CODINGS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The codings and the `wbits` that zlib knows them by, the preferred one first."""

MAX_RATIO: Final = 100
FREE_BYTES: Final = 1024 * 1024
"""Up to this size a body may expand by any ratio; beyond it, by at most MAX_RATIO."""

_PIECE_BYTES: Final = 256 * 1024
_LEVEL: Final = 1  # tensors are mostly noise: more effort costs much and gains little


def coding_of(header: str) -> str:
    """The coding that Content-Encoding names, '' for none; raises Problem for any other, or a chain of them."""
    coding = header.lower()
    if coding in ("", "identity"):
        return ""
    if coding not in CODINGS:
        raise Problem(
            ProblemCode.UNSUPPORTED_MEDIA_TYPE,
            f"The body has the Content-Encoding {header[:100]}; only {' and '.join(CODINGS)} are supported here.",
            headers={"Accept-Encoding": ", ".join(CODINGS)},
        )
    return coding


def expanded(body: bytes, coding: str, max_bytes: int) -> bytes:
    """The body that was compressed; raises Problem where it is damaged, goes on behind its end, or grows too large.

    At no time it holds more than `max_bytes` and one piece.
    """
    decoder = zlib.decompressobj(CODINGS[coding])
    most = min(max_bytes, max(FREE_BYTES, MAX_RATIO * len(body)))
    pieces: list[bytes] = []
    size = 0
    pending = body
    try:
        while pending and not decoder.eof:
            piece = decoder.decompress(pending, _PIECE_BYTES)
            pending = decoder.unconsumed_tail
            size += len(piece)
            if size > most:
                raise _expands_too_far(max_bytes)
            pieces.append(piece)
    except zlib.error:
        raise Problem(ProblemCode.MALFORMED_BODY, f"The body is not {coding}, or it is damaged.") from None
    if not decoder.eof:
        raise Problem(ProblemCode.INCOMPLETE_BODY, f"The body's {coding} data is cut short.")
    if decoder.unused_data:
        raise Problem(ProblemCode.MALFORMED_BODY, f"The body goes on behind the end of its {coding} data.")
    return b"".join(pieces)


def coding_for(accept_encoding: str) -> str:
    """The coding that a client's Accept-Encoding asks for, '' for none."""
    if not accept_encoding.strip():
        return ""
    # `choose` reads weights of media ranges; content codings have the same grammar.
    chosen = choose(accept_encoding, (*CODINGS, ""))
    return chosen or ""


def compressed(body: bytes, coding: str) -> bytes:
    """The body in a coding."""
    encoder = zlib.compressobj(_LEVEL, zlib.DEFLATED, CODINGS[coding])
    return encoder.compress(body) + encoder.flush()


def _expands_too_far(max_bytes: int) -> Problem:
    return Problem(
        ProblemCode.PAYLOAD_TOO_LARGE,
        f"The body expands beyond {max_bytes} bytes, or to more than {MAX_RATIO} times its size.",
        max_body_bytes=max_bytes,
    )
