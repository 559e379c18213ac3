"""Settings that api and workers share, and how every process reads its own.

It owns the `INFERQ_*` prefix and the form of the complaint about a wrong value; it is read once, at start.
"""

from typing import Annotated, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "INFERQ_"


class SettingsError(Exception):
    """A setting can't be used; the message names the environment variable and says what it takes."""


class Settings(BaseSettings):
    """Base of every settings object: frozen, read from `INFERQ_*`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")


Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]


class StoreSettings(Settings):
    """How a process reaches Redis, and what it promises about what it stores there."""

    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis or Valkey primary: redis://[user:password@]host:port/db, rediss:// for TLS",
    )
    redis_timeout_seconds: Seconds = Field(5.0, description="deadline of one call to Redis, pool wait included")
    redis_pool_size: int = Field(
        64, ge=2, le=10_000, description="connections per process; callers wait for a free one"
    )
    durable: bool = Field(False, description="answer 202 only after Redis has fsynced the job (WAITAOF; slower)")
    head_start_seconds: Seconds = Field(600.0, description="how much earlier than it was a high-priority job counts")
    record_ttl_seconds: Seconds = Field(86_400.0, description="how long a job's record outlives its result")
    max_queued: int = Field(1_000_000, ge=1, description="queued jobs per model; more are refused with 503")
    log_level: str = Field(
        "INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="least severe level that is logged"
    )


SettingsT = TypeVar("SettingsT", bound=Settings)


def load(settings_class: type[SettingsT]) -> SettingsT:
    """The settings of this process from its environment; raises SettingsError that names each wrong variable."""
    try:
        return settings_class()
    except ValidationError as exc:
        complaints = [
            f"{ENV_PREFIX}{str(error['loc'][0]).upper() if error['loc'] else ''}={error['input']!r}: {error['msg']}"
            for error in exc.errors(include_url=False, include_context=False)
        ]
        raise SettingsError("; ".join(complaints)) from exc
