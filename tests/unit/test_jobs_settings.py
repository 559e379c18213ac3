"""Settings come from the environment, and a wrong one is told by the name of its variable."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from jobs.settings import SettingsError, StoreSettings, load


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in StoreSettings.model_fields:
        monkeypatch.delenv(f"INFERQ_{name.upper()}", raising=False)


def test_the_defaults_are_usable() -> None:
    settings = load(StoreSettings)
    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    assert settings.durable is False


def test_each_setting_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "redis_url": "rediss://h:1/2",
        "redis_ca_file": Path(__file__),
        "redis_cert_file": Path(__file__),
        "redis_key_file": Path(__file__),
        "redis_timeout_seconds": 1.5,
        "redis_pool_size": 3,
        "durable": True,
        "head_start_seconds": 5.0,
        "record_ttl_seconds": 7.0,
        "max_queued": 9,
        "max_queued_bytes": 10,
        "max_open": 11,
        "max_open_bytes": 12,
        "tenant_max_open": 13,
        "tenant_max_open_bytes": 14,
        "tenant_rate": 1.5,
        "metrics_port": 15,
        "metrics_host": "h",
        "log_level": "DEBUG",
    }
    assert set(values) == set(StoreSettings.model_fields)
    for name, value in values.items():
        monkeypatch.setenv(f"INFERQ_{name.upper()}", str(value))
    assert load(StoreSettings).model_dump() == values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_TIMEOUT_SECONDS", "0"),
        ("REDIS_TIMEOUT_SECONDS", "-1"),
        ("REDIS_TIMEOUT_SECONDS", "nan"),
        ("REDIS_TIMEOUT_SECONDS", "inf"),
        ("REDIS_TIMEOUT_SECONDS", "soon"),
        ("REDIS_POOL_SIZE", "1"),
        ("REDIS_POOL_SIZE", "2.5"),
        ("DURABLE", "perhaps"),
        ("MAX_QUEUED", "0"),
        ("LOG_LEVEL", "verbose"),
        ("RECORD_TTL_SECONDS", "1e12"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"INFERQ_{name}", value)
    with pytest.raises(SettingsError, match=rf"^INFERQ_{name}='{value}': "):
        load(StoreSettings)


def test_all_wrong_values_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERQ_MAX_QUEUED", "0")
    monkeypatch.setenv("INFERQ_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError, match=r"INFERQ_MAX_QUEUED=.*; INFERQ_LOG_LEVEL="):
        load(StoreSettings)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load(StoreSettings).max_queued = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", StoreSettings.model_fields)
def test_each_setting_says_what_it_is(name: str) -> None:
    assert StoreSettings.model_fields[name].description
