"""T: Config: web pages that make somebody's browser call a service which asks for no API key."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from tests.api.harness import Api, Backend, fp32_input, identity_spec, running_api
from tests.threats.tenants import Tenants

pytestmark = pytest.mark.anyio

EVIL = "https://evil.example"
FORM = {"content-type": "multipart/form-data; boundary=b"}
OCTETS = BytesIO()
np.save(OCTETS, np.ones(1, np.float32))
SIMPLE = b'--b\r\nContent-Disposition: form-data; name="x"; filename="x.npy"\r\n\r\n%b\r\n--b--\r\n' % OCTETS.getvalue()
OURS = [
    "127.0.0.1",
    "127.0.0.1:8080",
    "127.1:80",
    "[::1]:8080",
    "[::ffff:127.0.0.1]",
    "localhost:8080",
    "LOCALHOST.",
    "2130706433",
]
NEIGHBOURS = ["api:8080", "app.localhost", "host.docker.internal:8080"]
NONSENSE = [
    "evil.1",
    "1.2.3.4.5",
    "evil.example]",
    "[evil.example]",
    "[::1",
    "[::1]x",
    "localhost:8080:evil",
    "a@localhost",
]
FOREIGN = [
    *NONSENSE,
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.local",
    "[::1].evil.example",
]


async def submit(api: Api, **headers: str) -> int:
    """What a job's upload is answered, sent as a page may send it without asking first."""
    response = await api.client.post("/jobs", params={"model": "identity"}, content=SIMPLE, headers=FORM | headers)
    assert response.status_code in (202, 403), response.text
    return response.status_code


async def jobs(api: Api) -> int:
    """How many jobs there are."""
    return len((await api.get("/jobs")).json()["jobs"])


@pytest.mark.parametrize("origin", [EVIL, "null", "http://api.evil.example", "http://api:8081"])
async def test_a_page_of_another_origin_makes_no_job(api: Api, origin: str) -> None:
    assert await submit(api, origin=origin) == 403
    assert await jobs(api) == 0
    refused = await api.client.post("/v2/models/identity/infer", json={}, headers={"origin": origin})
    assert refused.status_code == 403
    assert "INFERQ_ALLOW_ORIGINS" in refused.json()["error"]


async def test_its_own_pages_may_call(api: Api) -> None:
    assert await submit(api, origin="http://api") == 202
    assert await submit(api, origin="https://app.localhost", host="app.localhost") == 202


async def test_pages_that_are_allowed_may_call() -> None:
    for allowed in ("https://App.example", "*"):
        async with running_api(Backend(), models=[identity_spec()], allow_origins=(allowed,)) as api:
            assert await submit(api, origin="https://app.example") == 202
            assert await submit(api, origin=EVIL) == (202 if allowed == "*" else 403)


@pytest.mark.parametrize("host", [*OURS, *NEIGHBOURS])
async def test_the_service_answers_to_its_address_and_to_names_that_no_stranger_can_give_it(
    api: Api, host: str
) -> None:
    assert await submit(api, host=host) == 202


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_that_a_page_gave_this_machine_opens_nothing(api: Api, host: str) -> None:
    """DNS rebinding: for the browser page and service are one origin then."""
    assert await submit(api, host=host) == 403
    assert await submit(api, host=host, origin=f"http://{host}") == 403
    refused = await api.client.get("/jobs", headers={"host": host})
    assert refused.json()["code"] == "foreign_page"
    for words in ("inferq keys create", "addresses", "`localhost`", "without a dot", "`.localhost`", "`.internal`"):
        assert words in refused.json()["detail"]
    assert (await api.client.get("/health/ready", headers={"host": host})).status_code != 403


async def test_who_opens_the_service_to_a_network_may_call_it_what_they_like() -> None:
    async with running_api(Backend(), models=[identity_spec()], allow_unauthenticated=True) as api:
        assert await submit(api, host="inferq.example.com") == 202
        assert await submit(api, host="inferq.example.com", origin="https://inferq.example.com") == 202
        assert await submit(api, host="inferq.example.com", origin=EVIL) == 403


async def test_with_keys_it_is_the_key_that_counts(tenants: Tenants) -> None:
    document = {"model": "identity", "inputs": [fp32_input([1.0])]}
    headers = {"origin": EVIL, "host": "evil.example"}
    assert (await tenants.alice.post("/jobs", json=document, headers=headers)).status_code == 202
    assert (await tenants.nobody.post("/jobs", json=document, headers=headers)).status_code == 401
