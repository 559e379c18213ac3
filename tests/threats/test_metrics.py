"""T: Metrics/docs/health: a port of their own, bounded labels, nothing of tenants; a switch for documentation."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from inferq.stack.ports import free_port
from jobs.metrics import MAX_SERIES, OTHER, SECONDS, Family, Histogram, text_of
from jobs.record import Outcome
from jobs.store import Fail, Lease, Release, Retry, Succeed
from tests.api.conftest import emptied
from tests.api.harness import Backend, identity_spec, running_api
from tests.api.processes import api_process
from tests.support.stores import a_result, an_error
from tests.threats.tenants import Tenants
from workers.measures import Measures as WorkerMeasures

pytestmark = pytest.mark.anyio


def test_what_is_counted_is_bounded_whatever_it_is_called() -> None:
    family = Family("counter", "n", "Help.", ("model",))
    histogram = Histogram("h", "Help.", SECONDS, ("model",))
    for number in range(MAX_SERIES * 2):
        family.add(1, f"m{number}")
        histogram.observe(0.01, f"m{number}")
    lines = family.lines()
    assert len(lines) == MAX_SERIES + 3
    assert f'n{{model="{OTHER}"}} {MAX_SERIES}' in lines
    assert len(histogram._counts) == MAX_SERIES + 1


def test_a_name_can_not_break_out_of_its_label() -> None:
    family = Family("gauge", "g", "Help.", ("model",))
    family.put(1.5, 'a"} 1\nevil{x="\\')
    assert family.lines()[2] == 'g{model="a\\"} 1\\nevil{x=\\"\\\\"} 1.5'


def test_each_bucket_counts_what_lies_below() -> None:
    histogram = Histogram("h", "Help.", (1.0, 2.0), ())
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.lines()[2:] == [
        'h_bucket{le="1"} 2',
        'h_bucket{le="2"} 3',
        'h_bucket{le="+Inf"} 4',
        "h_sum 12",
        "h_count 4",
    ]


def test_a_worker_counts_how_attempts_end() -> None:
    measures = WorkerMeasures()
    measures.called("m", 3, 0.01)
    lease = Lease("0" * 32, 1)
    for settlement in (Succeed(lease, a_result()), Fail(lease, an_error()), Retry(lease, an_error(), 1)):
        measures.settled("m", settlement)
    measures.settled("m", Fail(lease, Outcome()))
    measures.settled("m", Release(lease))
    page = measures.page({})
    for line in (
        'inferq_attempts_total{model="m",outcome="succeeded",code=""} 1',
        'inferq_attempts_total{model="m",outcome="failed",code="engine_error"} 1',
        'inferq_attempts_total{model="m",outcome="failed",code="unknown"} 1',
        'inferq_attempts_total{model="m",outcome="retried",code="engine_error"} 1',
        'inferq_attempts_total{model="m",outcome="released",code=""} 1',
        'inferq_batch_rows_bucket{model="m",le="4"} 1',
    ):
        assert line in page.splitlines()


async def test_the_api_tells_of_routes_and_models_and_of_no_tenant(tenants: Tenants) -> None:
    job_id = await tenants.submit(tenants.alice)
    await tenants.bob.get(f"/jobs/{job_id}")
    await tenants.nobody.get("/no/such/path/" + job_id)
    page = await tenants.api.services.measures.page()
    lines = page.splitlines()
    assert 'inferq_http_requests_total{route="/jobs/{job_id}",status="404"} 1' in lines
    assert 'inferq_http_requests_total{route="(none)",status="404"} 1' in lines
    assert 'inferq_queued_jobs{model="identity"} 1' in lines
    assert any(re.fullmatch(r'inferq_queue_age_seconds{model="identity"} \d+(\.\d+)?', line) for line in lines)
    assert 'inferq_workers{role="inference"} 0' in lines
    for word in ("alice", "bob", job_id):
        assert word not in page


async def test_the_documentation_has_a_switch_and_metrics_have_no_path_on_the_public_port(backend: Backend) -> None:
    async with running_api(backend, models=[identity_spec()], docs=False) as api:
        for path in ("/docs", "/openapi.json", "/metrics"):
            assert (await api.get(path)).status_code == 404


@pytest.mark.process
@pytest.mark.server
async def test_metrics_have_a_port_of_their_own(valkey_url: str, tmp_path: Path) -> None:
    backend = await emptied(valkey_url)
    port = free_port()
    with api_process(tmp_path / "api.log", redis_url=backend.url, metrics_port=port) as process:
        async with httpx.AsyncClient() as client:
            page = await client.get(f"http://127.0.0.1:{port}/metrics")
            assert page.status_code == 200
            assert "inferq_redis_up 1" in page.text
            assert (await client.get(f"http://127.0.0.1:{port}/jobs")).status_code == 404
            assert (await client.get(f"{process.url}/metrics")).status_code == 404


def test_an_empty_page_is_a_page() -> None:
    assert text_of([]) == "\n"
