"""Every row of the threat model has a test that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROWS = (
    "Auth header",
    "`GET /jobs/{id}`",
    "List/cancel/replay",
    "Idempotency-Key",
    "Body size",
    "Body speed",
    "Multipart",
    "Filename / Content-Type",
    "Content-Encoding",
    "JSON/msgpack/tensor",
    "Image/audio/archive",
    "Model name / version",
    "Webhook URL",
    "Webhook headers/response",
    "Webhook secret",
    "Webhook forging/replay",
    "Redis",
    "Results",
    "Triton link",
    "Metrics/docs/health",
    "Errors/logs",
    "Quotas",
    "Supply",
    "Config",
)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_threat_model_is_named_by_a_test(row: str) -> None:
    texts = (path.read_text() for path in TESTS.rglob("test_*.py") if path.name != "test_rows.py")
    assert any(f"T: {row}" in text for text in texts)
