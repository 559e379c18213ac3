"""`/docs` works without a network: whatever its page loads comes from this server."""

from __future__ import annotations

import re

import pytest

from tests.api.harness import Api, Backend, running_api
from tests.support.described import undescribed

pytestmark = pytest.mark.anyio


async def test_everything_that_the_page_loads_is_served_here(api: Api) -> None:
    page = await api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http" not in page.headers["content-security-policy"], "the policy lets another host in"
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 4
    for path in loaded:
        assert path.startswith("/docs/")
        response = await api.get(path)
        assert (response.status_code, response.headers["x-content-type-options"]) == (200, "nosniff"), path
        assert response.content
    assert "SwaggerUIBundle" in (await api.get("/docs/start.js")).text


@pytest.mark.parametrize("name", ["nothing.js", "..%2f__init__.py", "%2e%2e/core.py", "redoc.standalone.js"])
async def test_no_other_file_can_be_had(api: Api, name: str) -> None:
    assert (await api.get(f"/docs/{name}")).status_code == 404


async def test_without_the_setting_there_are_no_docs() -> None:
    async with running_api(Backend(), docs=False) as api:
        for path in ("/docs", "/docs/start.js", "/openapi.json"):
            assert (await api.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "headers", "missing"),
    [
        ("POST", "/jobs", 202, {"etag": "x", "ratelimit": "x", "content-type": "application/json"}, []),
        ("POST", "/jobs", 202, {"x-new": "x"}, ["the header x-new"]),
        ("POST", "/jobs/batch", 202, {"etag": "x"}, ["the header etag"]),
        ("GET", f"/jobs/{'0' * 32}", 418, {}, ["the status 418"]),
        ("HEAD", f"/jobs/{'0' * 32}/result", 200, {"content-type": "text/html; a=b"}, ["the media type text/html"]),
        ("PUT", "/jobs", 418, {"x-new": "x"}, []),
        ("GET", "/nowhere", 418, {"x-new": "x"}, []),
    ],
)
async def test_what_the_document_is_silent_about_is_found(
    api: Api, method: str, path: str, status: int, headers: dict[str, str], missing: list[str]
) -> None:
    """Every answer in these tests is held against the document; here is what that would find."""
    document = (await api.get("/openapi.json")).json()
    assert undescribed(document, method, path, status, headers) == missing
