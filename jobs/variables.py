"""Every variable of the environment that some part of the product reads, so that a misspelled one does not go unseen.

A test holds the list to the settings of all processes. It must not know what they mean.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from jobs.settings import ENV_PREFIX

_NAMES: Final = """
ACCESS_LOG ALLOW_ORIGINS ALLOW_UNAUTHENTICATED API_KEY CALL_QUEUE_SECONDS DECODE_BYTES DOCS DRAIN_SECONDS DURABLE
ENGINE ENGINE_CA_FILE ENGINE_CERT_FILE ENGINE_KEEPALIVE_SECONDS ENGINE_KEY_FILE ENGINE_MESSAGE_BYTES
ENGINE_SERVER_NAME ENGINE_SHARED_BYTES ENGINE_TLS HEAD_SECONDS HEAD_START_SECONDS HEARTBEAT_SECONDS HOST INFLIGHT_BYTES
INLINE_OUTPUT_BYTES KEEP_ALIVE_SECONDS LEASE_SECONDS LISTEN_FD LOG_LEVEL MAX_BODY_BYTES MAX_CONNECTIONS
MAX_CONNECTIONS_PER_ADDRESS MAX_JSON_BYTES MAX_OPEN MAX_OPEN_BYTES MAX_OUTPUT_BYTES MAX_PIXELS MAX_QUEUED
MAX_QUEUED_BYTES MAX_WAIT_SECONDS METRICS_HOST METRICS_PORT MODELS PORT PREPARE_THREADS RECORD_TTL_SECONDS
REDIS_CA_FILE REDIS_CERT_FILE REDIS_KEY_FILE REDIS_POOL_SIZE REDIS_TIMEOUT_SECONDS REDIS_URL
REGISTRY_SECONDS RELOAD_GRACE_SECONDS RESULT_BYTES STACK_VENV TARGET_LATENCY_MS TENANT_MAX_OPEN TENANT_MAX_OPEN_BYTES
TENANT_RATE TRUSTED_PROXIES UPLOAD_BYTES URL WEBHOOK_ALLOW WEBHOOK_CONCURRENCY WEBHOOK_CONCURRENCY_PER_HOST
WEBHOOK_SCHEDULE WEBHOOK_SECRET WEBHOOK_TIMEOUT_SECONDS
"""

KNOWN: Final = frozenset(ENV_PREFIX + name for name in _NAMES.split())
"""All processes may share one environment, so each must know what the others read."""


def unknown_variables(names: Iterable[str]) -> list[str]:
    """One sentence for each name with our prefix that nothing reads, with what was probably meant; never a value."""
    strangers = sorted(name for name in names if name.upper().startswith(ENV_PREFIX) and name.upper() not in KNOWN)
    return [f"{name} is set, and nothing reads it{_hint(name)}." for name in strangers]


def _hint(name: str) -> str:
    close = get_close_matches(name.upper(), KNOWN, 1)
    return f"; {close[0]} may be meant" if close else ""
