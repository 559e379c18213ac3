"""Tensors in the formats that clients read and write: JSON, msgpack, npy and the Open Inference Protocol's binary form.

Everything here is pure, and exact or refused with a FormatError; it must not know models, requests or HTTP.
"""

from typing import Final

MAX_ELEMENTS: Final = 16 * 1024 * 1024
"""Elements of all arrays in one document; more than that can only be sent as raw bytes."""

MAX_BYTES_ELEMENTS: Final = 1_000_000
"""Elements of one BYTES tensor: each is looked at by itself, so a few bytes for each would cost most."""


class FormatError(ValueError):
    """Values can't be said in the asked-for form without changing them; the message is a sentence's end."""
