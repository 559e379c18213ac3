"""Settings of a webhook worker, read once at start.

It owns their names, defaults and dangers; nothing else in the package reads the environment.
"""

from typing import Annotated, Final

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from jobs.outbox import HELD_MS
from jobs.settings import WebhookSettings
from workers.webhooks.schedule import longest_ms

_HOUR: Final = 3600.0
SCHEDULE: Final = (
    *(0.0, 5.0, 300.0, 1800.0),
    *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)),
)


class WebhookWorkerSettings(WebhookSettings):
    """How messages are sent, how often they are tried, and how many at once."""

    webhook_schedule: Annotated[tuple[float, ...], NoDecode] = Field(
        SCHEDULE, min_length=1, max_length=50, description="pauses in seconds before each attempt, by commas; ±20 %"
    )
    webhook_timeout_seconds: float = Field(15.0, ge=0.1, le=60, description="what one attempt may take in all")
    webhook_concurrency: int = Field(768, ge=1, le=10_000, description="messages that one worker sends at once")
    webhook_concurrency_per_host: int = Field(32, ge=1, le=1000, description="of these, to one host and port")
    drain_seconds: float = Field(30.0, ge=0, description="how long sends may take to end after SIGTERM")

    @field_validator("webhook_schedule", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("webhook_schedule")
    @classmethod
    def _check(cls, pauses: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 <= pause <= 7 * 24 * _HOUR for pause in pauses) or longest_ms(pauses) > HELD_MS:
            raise ValueError(f"the pauses must add up to less than {(HELD_MS / 1000 - 24 * _HOUR) / 1.2:.0f} seconds")
        return pauses
