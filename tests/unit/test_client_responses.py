"""What the client reads from the server's headers and from job objects."""

from datetime import UTC, datetime

import httpx
import pytest

from inferq.client import Job
from inferq.client.responses import retry_after_seconds

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        ("0", 0.0),
        ("Tue, 01 Jan 2030 12:00:30 GMT", 30.0),
        ("Tue, 01 Jan 2030 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("1e9", None),
        ("", None),
        ("99999999999999999999", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_nonsense_is_nothing(value: str, seconds: float | None) -> None:
    response = httpx.Response(503, headers={"Retry-After": value})
    assert retry_after_seconds(response, NOW) == seconds


def test_a_job_has_its_metadata_and_one_without_or_that_may_not_be_read_has_none() -> None:
    plain = {"id": "0" * 32, "status": "queued", "done": False}
    assert Job.from_plain({**plain, "metadata": {"user": "zoë"}}).metadata == {"user": "zoë"}
    assert Job.from_plain({**plain, "metadata": {}}).metadata == {}
    assert Job.from_plain(plain).metadata == {}


def test_a_job_has_its_creation_attempt_and_webhook() -> None:
    plain = {"id": "0" * 32, "status": "queued", "done": False, "created_at": "2026-01-02T03:04:05.678Z"}
    assert Job.from_plain(plain).created_at == datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    assert (Job.from_plain(plain).attempt, Job.from_plain(plain).webhook) == (0, None)
    webhook = {"url": "https://r.example/", "status": "delivered", "attempts": 1}
    job = Job.from_plain({**plain, "attempt": 2, "webhook": webhook})
    assert (job.attempt, job.webhook) == (2, webhook)
