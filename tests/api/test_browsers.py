"""Pages of other origins: they may call every path where the setting says so, and none where it doesn't."""

from __future__ import annotations

import pytest

from api.routes import ENDPOINTS, facade
from tests.api.harness import Api, Backend, fp32_input, identity_spec, running_api

pytestmark = pytest.mark.anyio

ORIGIN = "https://app.example"
SENT = (
    "authorization, content-encoding, content-type, idempotency-key, if-none-match, "
    "inference-header-content-length, last-event-id, prefer, x-request-id"
)
READABLE = {
    *("ETag", "Idempotent-Replayed", "Inference-Header-Content-Length", "Link", "Location", "Preference-Applied"),
    *("Retry-After", "X-Job-Id", "X-Request-Id"),
}
PATHS = [(endpoint.method, endpoint.path) for endpoint in (*ENDPOINTS, *facade.ENDPOINTS)]


async def preflight(api: Api, method: str, path: str, origin: str = ORIGIN) -> dict[str, str]:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": SENT,
    }
    response = await api.client.request("OPTIONS", path, headers=headers)
    return dict(response.headers) | {":status": str(response.status_code)}


@pytest.mark.parametrize("origins", [(ORIGIN,), ("*",)])
async def test_every_path_takes_a_preflight_with_all_the_headers_that_it_reads(origins: tuple[str, ...]) -> None:
    async with running_api(Backend(), models=[identity_spec()], allow_origins=origins) as api:
        for method, path in PATHS:
            allowed = await preflight(api, method, path.replace("{job_id}", "0" * 32))
            assert allowed[":status"] == "200", path
            assert allowed["access-control-allow-origin"] in (ORIGIN, "*")
            assert method in allowed["access-control-allow-methods"]
            assert set(SENT.split(", ")) <= set(allowed["access-control-allow-headers"].lower().split(", "))


async def test_answers_and_problems_can_be_read_with_their_headers() -> None:
    async with running_api(Backend(), models=[identity_spec()], allow_origins=(ORIGIN,)) as api:
        headers = {"Origin": ORIGIN}
        document = {"model": "identity", "inputs": [fp32_input([1.0])]}
        for response in (
            await api.client.post("/jobs", json=document, headers=headers),
            await api.client.post("/jobs", json={}, headers=headers),
            await api.client.get("/nowhere", headers=headers),
            await api.client.get("/v2/models/nobody", headers=headers),
        ):
            assert response.headers["access-control-allow-origin"] == ORIGIN
            assert set(response.headers["access-control-expose-headers"].split(", ")) >= READABLE


async def test_another_origin_is_told_nothing() -> None:
    async with running_api(Backend(), models=[identity_spec()], allow_origins=(ORIGIN,)) as api:
        refused = await preflight(api, "POST", "/jobs", "https://evil.example")
        assert refused[":status"] == "400"
        assert "access-control-allow-origin" not in refused


async def test_without_the_setting_no_page_may_call() -> None:
    async with running_api(Backend(), models=[identity_spec()]) as api:
        for path in ("/jobs", f"/jobs/{'0' * 32}/events", "/v2/models/identity/infer"):
            assert "access-control-allow-origin" not in await preflight(api, "POST", path)
