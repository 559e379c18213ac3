"""From the bytes of a request to a submission: parsed, checked against the model, or refused with a reason.

`read_submission` and `read_batch` are the ways in. Nothing here talks to Redis or to workers.
"""

from api.intake.batch import read_batch
from api.intake.limits import IntakeLimits, WebhookRules
from api.intake.submission import read_submission

__all__ = ["IntakeLimits", "WebhookRules", "read_batch", "read_submission"]
