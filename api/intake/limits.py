"""How much one submission may ask of the api; the caps that are not settings are documented constants here."""

from dataclasses import dataclass, field
from typing import Final

from jobs.destination import AllowList

MAX_PARTS: Final = 256
"""Parts of a multipart body, inputs and options together; inputs of a document."""

MAX_BATCH_JOBS: Final = 1000

MAX_OPTION_BYTES: Final = 64 * 1024
"""Length of one option's text; input fields may be as long as the body."""

MAX_METADATA_BYTES: Final = 4096
MAX_METADATA_DEPTH: Final = 64
MAX_PARAMETERS: Final = 64
MAX_PARAMETER_BYTES: Final = 4096
MAX_REQUEST_ID_LENGTH: Final = 255
MAX_IDEMPOTENCY_KEY_LENGTH: Final = 255
MAX_DURATION_SECONDS: Final = 30 * 86_400
MAX_TIMEOUT_SECONDS: Final = 86_400
MAX_FAILURES: Final = 100


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """What a deployment lets webhooks reach, and whether it has a secret to sign this tenant's messages with."""

    allowed: AllowList = field(default_factory=AllowList)
    has_secret: bool = False


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """The caps that a deployment sets. JSON has its own, because parsed it takes many times the memory of its text."""

    max_body_bytes: int
    max_pixels: int
    max_json_bytes: int = 32 * 1024 * 1024
    body_grace_seconds: float = 20.0
    webhooks: WebhookRules = field(default_factory=WebhookRules)
