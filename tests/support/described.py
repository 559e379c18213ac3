"""Holds answers against the OpenAPI document: their status, headers and media type.

Owns which headers are no matter of the document. Must not know what was asked for and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI

TRANSPORT = frozenset({"connection", "content-length", "content-type", "date", "server", "transfer-encoding", "vary"})
"""What HTTP has for any message."""

PROTECTION = frozenset(
    {
        "cache-control",
        "content-security-policy",
        "referrer-policy",
        "x-accel-buffering",
        "x-content-type-options",
        "x-frame-options",
    }
)
"""What is said to browsers, caches and proxies, and no client steers by."""

_CORS = "access-control-"
_DOCUMENTS: dict[bool, Mapping[str, Any]] = {}


def document_of(app: FastAPI) -> Mapping[str, Any]:
    """The application's document, built once for each of its two forms: with the pages of documentation or without."""
    has_pages = app.openapi_url is not None
    if has_pages not in _DOCUMENTS:
        _DOCUMENTS[has_pages] = app.openapi()
    return _DOCUMENTS[has_pages]


def undescribed(
    document: Mapping[str, Any], method: str, path: str, status: int, headers: Mapping[str, str]
) -> list[str]:
    """What an answer has that the document does not say of it; nothing for what is no operation of the document."""
    operation = _operation(document, method, path)
    if operation is None:
        return []
    answer = operation["responses"].get(str(status))
    if answer is None:
        return [f"the status {status}"]
    known = {name.lower() for name in answer.get("headers", {})} | TRANSPORT | PROTECTION
    strange = [f"the header {name}" for name in headers if name not in known and not name.startswith(_CORS)]
    media_type = headers.get("content-type", "").partition(";")[0]
    if media_type and media_type not in answer.get("content", {}):
        strange.append(f"the media type {media_type}")
    return strange


def _operation(document: Mapping[str, Any], method: str, path: str) -> Mapping[str, Any] | None:
    """Of several paths that fit, the one with the fewest parameters, as in the table of routes."""
    fitting = [template for template in document["paths"] if _fits(template, path)]
    if not fitting:
        return None
    operations: Mapping[str, Any] = document["paths"][min(fitting, key=lambda template: template.count("{"))]
    found: Mapping[str, Any] | None = operations.get("get" if method == "HEAD" else method.lower())
    return found


def _fits(template: str, path: str) -> bool:
    pieces: Iterable[str] = re.split(r"\{\w+\}", template)
    return re.fullmatch("[^/]+".join(map(re.escape, pieces)), path) is not None
