"""What a real browser makes of the service: pages of an allowed origin, of others, and its own documentation."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest

from tests.browser.conftest import Site, Visit

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_a_page_of_an_allowed_origin_does_all_that_an_application_needs(
    visit: Visit, site: Site, product_url: str
) -> None:
    with visit(f"{site.origin}/calls.html?api={quote(product_url)}"):
        report = site.report()
    assert report == {
        "submitted": {
            "status": 202,
            "location": True,
            "hasRequestId": True,
            "replayed": "true",
            "end": "succeeded",
            "output": [1, 2, 3],
        },
        "photo": "espresso",
        "bytes": 5,
        "events": ["snapshot", "done", "succeeded"],
        "result": {"floats": [5, 6], "again": 304},
        "canceled": [204, 404],
        "facade": [8, 9],
        "refused": {"status": 404, "type": "application/problem+json", "code": "unknown_model"},
    }


async def test_a_page_of_another_origin_learns_nothing_and_makes_no_job(
    visit: Visit, stranger: Site, product_url: str
) -> None:
    """T: Config: without keys, whoever opens a page lends it their loopback."""

    async def jobs() -> list[object]:
        async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
            listed: list[object] = (await client.get("/jobs")).json()["jobs"]
            return listed

    before = await jobs()
    with visit(f"{stranger.origin}/stranger.html?api={quote(product_url)}"):
        report = stranger.report()
    assert report == {"form": "lost", "blind": "opaque", "json": "lost", "read": "lost"}
    assert await jobs() == before


async def test_a_name_that_a_page_gave_this_machine_opens_nothing(
    rendered: Callable[[str], str], product_url: str
) -> None:
    """T: Config: DNS rebinding makes page and service one origin for the browser."""
    port = product_url.rpartition(":")[2]
    shown = rendered(f"http://rebound.example:{port}/models")
    assert "urn:inferq:problem:foreign_page" in shown
    assert "efficientnet_lite0" not in shown


async def test_the_documentation_shows_every_operation_without_a_network(
    rendered: Callable[[str], str], product_url: str
) -> None:
    async with httpx.AsyncClient(base_url=product_url, trust_env=False) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    shown = rendered(f"{product_url}/docs")
    operations = sum(len(methods) for methods in paths.values())
    assert shown.count('class="opblock opblock-') == operations > 20
    for path in paths:
        assert f'data-path="{path}"' in shown
