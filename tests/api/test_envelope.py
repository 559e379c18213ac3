"""What every answer has in common, whatever was asked."""

from __future__ import annotations

import pytest

from tests.api.harness import Api, Backend, running_api

pytestmark = pytest.mark.anyio

PATHS = ["/health/live", "/jobs", "/models", f"/jobs/{'0' * 32}", "/nowhere", "/docs", "/openapi.json", "/"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_has_a_request_id_and_security_headers(api: Api, path: str) -> None:
    response = await api.get(path)
    assert len(response.headers["x-request-id"]) == 32
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert response.headers["cache-control"] == "no-store"
    assert "server" not in response.headers


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ("abc-123", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a b", False),
        ("a\tb", False),
        ("caf\xe9", False),
    ],
)
async def test_a_sane_request_id_is_kept_and_any_other_replaced(api: Api, given: str, is_kept: bool) -> None:
    """T: Errors/logs."""
    response = await api.get("/nowhere", headers={"X-Request-Id": given.encode("latin-1")})
    assert (response.headers["x-request-id"] == given) is is_kept
    assert response.json()["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/nowhere", "/jobs/", "/jobs/x/y/z", "/JOBS"])
async def test_an_unknown_path_is_a_problem(api: Api, path: str) -> None:
    response = await api.get(path)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/jobs", "GET, HEAD, OPTIONS, POST"),
        ("PATCH", f"/jobs/{'0' * 32}", "DELETE, GET, HEAD, OPTIONS"),
        ("GET", f"/jobs/{'0' * 32}/cancel", "OPTIONS, POST"),
        ("DELETE", "/models", "GET, HEAD, OPTIONS"),
        ("TRACE", "/health/live", "GET, HEAD, OPTIONS"),
        ("PUT", "/openapi.json", "GET, HEAD, OPTIONS"),
        ("PUT", "/docs", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_a_problem_that_names_those_it_takes(
    api: Api, method: str, path: str, allowed: str
) -> None:
    response = await api.client.request(method, path)
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == allowed
    options = await api.client.options(path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")


@pytest.mark.parametrize("path", PATHS)
async def test_head_is_get_without_the_body(api: Api, path: str) -> None:
    get, head = await api.get(path), await api.client.head(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"]
    assert head.headers.get("content-type") == get.headers.get("content-type")


async def test_a_fault_of_ours_is_a_500_without_a_trace(api: Api) -> None:
    """T: Errors/logs."""
    job_id = await api.submit()
    await api.damage(job_id)
    response = await api.get(f"/jobs/{job_id}", headers={"X-Request-Id": "find-me"})
    assert response.status_code == 500
    assert response.json() == {
        "type": "urn:inferq:problem:internal_error",
        "title": "The server failed",
        "status": 500,
        "code": "internal_error",
        "detail": "The server failed. Its log says why, under this request id.",
        "request_id": "find-me",
    }
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_no_other_origin_is_allowed_by_default(api: Api) -> None:
    response = await api.get("/models", headers={"Origin": "https://evil.example"})
    assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_an_origin_that_is_allowed_may_call_and_read_what_it_needs(backend: Backend) -> None:
    async with running_api(backend, allow_origins=("https://app.example",)) as api:
        asked = await api.client.options(
            "/jobs",
            headers={
                "Origin": "https://app.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type,idempotency-key",
            },
        )
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "POST" in asked.headers["access-control-allow-methods"]
        answer = await api.get("/models", headers={"Origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        refused = await api.get("/models", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers


async def test_openapi_lists_every_path_with_its_problems(api: Api) -> None:
    document = (await api.get("/openapi.json")).json()
    assert set(document["paths"]["/jobs/{job_id}"]) == {"get", "delete"}
    conflict = document["paths"]["/jobs/{job_id}/result"]["get"]["responses"]["409"]
    codes = conflict["content"]["application/problem+json"]["schema"]["properties"]["code"]["enum"]
    assert "no_result" in codes
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)


async def test_documentation_can_be_switched_off(backend: Backend) -> None:
    """T: Metrics/docs/health."""
    async with running_api(backend, docs=False) as api:
        assert (await api.get("/docs")).status_code == 404
        assert (await api.get("/openapi.json")).status_code == 404
        assert (await api.get("/")).json()["name"] == "inferq"
