"""Settings that api and workers share, and how every process reads its own.

It owns the `INFERQ_*` prefix and the form of the complaint about a wrong value; it is read once, at start.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, FilePath, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from jobs.destination import AllowList
from jobs.webhook import tenant_secrets

ENV_PREFIX = "INFERQ_"


class SettingsError(Exception):
    """A setting can't be used; the message names the environment variable and says what it takes."""


class Settings(BaseSettings):
    """Base of every settings object: frozen, read from `INFERQ_*`; an empty variable counts as not set."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")


Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]


class StoreSettings(Settings):
    """How a process reaches Redis, and what it promises about what it stores there."""

    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis or Valkey primary: redis://[user:password@]host:port/db, rediss:// for TLS; "
        "or its Sentinels: redis+sentinel://[user:password@]host:port,host:port/service/db",
    )
    redis_ca_file: FilePath | None = Field(
        None, description="certificates, PEM, that Redis' own must come from, in place of the system's; for rediss://"
    )
    redis_cert_file: FilePath | None = Field(None, description="our certificate for Redis, PEM, for mutual TLS")
    redis_key_file: FilePath | None = Field(None, description="its key, PEM")
    redis_timeout_seconds: Seconds = Field(5.0, description="deadline of one call to Redis, pool wait included")
    redis_pool_size: int = Field(
        64, ge=2, le=10_000, description="connections per process; callers wait for a free one"
    )
    durable: bool = Field(False, description="answer 202 only after Redis has fsynced the job (WAITAOF; slower)")
    head_start_seconds: Seconds = Field(600.0, description="how much earlier than it was a high-priority job counts")
    record_ttl_seconds: Seconds = Field(86_400.0, description="how long a job's record outlives its result")
    max_queued: int = Field(1_000_000, ge=1, description="queued jobs per model; more are refused with 503")
    max_queued_bytes: int = Field(
        4 * 1024**3, ge=1, description="requests of one model's jobs that have not ended, in bytes; else 503"
    )
    max_open: int = Field(2_000_000, ge=1, description="jobs that have not ended, of all models; else 503")
    max_open_bytes: int = Field(8 * 1024**3, ge=1, description="their requests in bytes; else 503")
    tenant_max_open: int = Field(500_000, ge=1, description="jobs of one tenant that have not ended; else 429")
    tenant_max_open_bytes: int = Field(2 * 1024**3, ge=1, description="their requests in bytes; else 429")
    tenant_rate: float = Field(
        0.0,
        ge=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="jobs that one tenant may submit a second, ten seconds' worth at once; else 429; 0 = any",
    )
    metrics_port: int = Field(
        0, ge=0, le=65_535, description="port of /metrics, under inferq up the first of them; 0 = none"
    )
    metrics_host: str = Field("127.0.0.1", min_length=1, description="address of that port")
    log_level: str = Field(
        "INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="least severe level that is logged"
    )

    @field_validator("redis_ca_file", "redis_cert_file", "redis_key_file")
    @classmethod
    def _check_tls(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and not str(info.data.get("redis_url", "")).startswith("rediss"):
            raise ValueError("TLS files have no meaning unless INFERQ_REDIS_URL begins with rediss")
        if info.field_name == "redis_key_file" and (value is None) != (info.data.get("redis_cert_file") is None):
            raise ValueError("a certificate and its key belong together")
        return value


class WebhookSettings(StoreSettings):
    """What the api must know of webhooks to judge a request, and their worker to send."""

    webhook_secret: SecretStr = Field(
        SecretStr(""),
        description="whsec_… to sign with where a job has no secret of its own, tenant=whsec_… for another tenant than "
        "local, *=whsec_… to derive those of all others from, by commas; two of one tenant sign both",
    )
    webhook_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="hosts, host:port, networks and :port that webhooks may reach beyond public https, by commas"
    )

    @field_validator("webhook_allow", mode="before")
    @classmethod
    def _split_allow(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("webhook_allow")
    @classmethod
    def _check_allow(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        AllowList.parse(entries)
        return entries

    @field_validator("webhook_secret")
    @classmethod
    def _check_secret(cls, value: SecretStr) -> SecretStr:
        tenant_secrets(value.get_secret_value())
        return value

    @cached_property
    def webhook_secrets(self) -> Mapping[str, tuple[str, ...]]:
        """The live secrets by tenant; jobs of a tenant without any need their own."""
        return tenant_secrets(self.webhook_secret.get_secret_value())

    @cached_property
    def webhook_allowed(self) -> AllowList:
        """The allow list, read."""
        return AllowList.parse(self.webhook_allow)


SettingsT = TypeVar("SettingsT", bound=Settings)


def load(settings_class: type[SettingsT]) -> SettingsT:
    """The settings of this process from its environment; raises SettingsError that names each wrong variable."""
    try:
        return settings_class()
    except ValidationError as exc:
        complaints = [
            _complaint(str(error["loc"][0]) if error["loc"] else "", error["input"], error["msg"])
            for error in exc.errors(include_url=False, include_context=False)
        ]
        raise SettingsError("; ".join(complaints)) from None


def _complaint(name: str, value: object, message: str) -> str:
    shown = "…" if name.endswith("secret") else repr(value)
    return f"{ENV_PREFIX}{name.upper()}={shown}: {message.removeprefix('Value error, ')}"
