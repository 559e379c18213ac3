"""Two tenants of one application, and what each of them may send.

Owns keys and clients; must not assert anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from jobs.apikeys import ApiKeys
from tests.api.harness import MODEL, Api, fp32_input


@dataclass
class Tenants:
    """`alice` and `bob` send their keys, `nobody` sends none."""

    api: Api
    keys: ApiKeys
    tokens: dict[str, str]
    alice: httpx.AsyncClient
    bob: httpx.AsyncClient
    nobody: httpx.AsyncClient

    async def client(self, name: str, **options: Any) -> httpx.AsyncClient:
        """A client with a fresh key of this name."""
        self.tokens[name] = await self.keys.create(name, **options)
        return with_key(self.api, self.tokens[name])

    async def submit(self, client: httpx.AsyncClient, **options: Any) -> str:
        """The id of a new job of whoever this client is."""
        headers = options.pop("headers", {})
        response = await client.post("/jobs", json=a_document(**options), headers=headers)
        assert response.status_code == 202, response.text
        job_id: str = response.json()["id"]
        return job_id


def a_document(**options: Any) -> dict[str, Any]:
    """A valid submission."""
    return {"model": MODEL, **options, "inputs": [fp32_input((1.0, 2.0))]}


def with_key(api: Api, token: str | bytes | None) -> httpx.AsyncClient:
    """A client of this application that sends this key."""
    value = token if isinstance(token, bytes) else (token or "").encode()
    headers = {b"Authorization": b"Bearer " + value} if token is not None else {}
    return httpx.AsyncClient(transport=api.client._transport, base_url="http://api", timeout=30, headers=headers)


@asynccontextmanager
async def open_tenants(api: Api) -> AsyncIterator[Tenants]:
    """Alice and Bob on this application."""
    keys = ApiKeys(api.store.connection)
    tokens = {name: await keys.create(name) for name in ("alice", "bob")}
    await api.services.gate.refresh()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(with_key(api, token)) for token in (tokens["alice"], tokens["bob"], None)
        ]
        yield Tenants(api, keys, tokens, *clients)
