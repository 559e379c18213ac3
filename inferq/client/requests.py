"""What the client asks, as values: one function per call of the HTTP contract.

Pure, so that the synchronous and the asynchronous client share it; it must not send anything.
"""

import json
import mimetypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypedDict, TypeGuard
from urllib.parse import quote

import httpx

Upload = bytes | str | os.PathLike[str] | BinaryIO
"""A file by its path or opened, its bytes, or a text. A `str` is always a text: a file's name goes in a `Path`."""

if TYPE_CHECKING:
    from inferq.client.tensors import Array

    Inputs = Upload | Array | Mapping[str, Upload | Array]

BINARY: Final = "application/octet-stream"
JSON: Final = "application/json"
HEADER_LENGTH: Final = "Inference-Header-Content-Length"
MAX_POLL_SECONDS: Final = 30.0
"""Longest single long-poll; the server allows 60, proxies on the way often no more than that."""


class Options(TypedDict, total=False):
    """What `POST /jobs` takes beside model and inputs; durations are seconds, defaults are the server's.

    `outputs` names those that are wanted, `parameters` go to the model.
    """

    model_version: str
    priority: Literal["high", "normal", "low"]
    queue_ttl_seconds: float
    timeout_seconds: float
    max_failures: int
    run_at: datetime | str
    result_ttl_seconds: float
    webhook: str
    webhook_events: Sequence[str]
    webhook_secret: str | Sequence[str]
    webhook_include_output: bool
    metadata: Mapping[str, Any]
    outputs: Sequence[str | Mapping[str, Any]]
    parameters: Mapping[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. The server may take `patience_seconds` by design before it answers.

    `has_text`: an input came as `str`, which a caller may have meant as a file's name.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    patience_seconds: float = 0.0
    has_text: bool = False


def submit(model: str, inputs: "Inputs", options: Mapping[str, Any], idempotency_key: str) -> Call:
    """`POST /jobs`. Named arrays alone travel as raw tensors, anything else as a form with a part per input.

    ValueError where an option is unknown or an input has no form to travel in, TypeError where it is of no type that
    is taken, OSError where a file can't be read.
    """
    plain = said(model, options)
    named = dict(inputs) if isinstance(inputs, Mapping) else {"": inputs}
    for name, value in named.items():
        _check_type(name, value)
    headers = {"Idempotency-Key": idempotency_key, "Accept": JSON}
    arrays = {name: value for name, value in named.items() if _is_array(value)}
    if len(arrays) == len(named) and "" not in arrays:  # none at all is for a model whose inputs are all optional
        from inferq.client.tensors import to_binary  # numpy, which uploads do without

        length, content = to_binary(arrays, plain)
        return Call("POST", "/jobs", {}, {**headers, "Content-Type": BINARY, HEADER_LENGTH: str(length)}, content)
    fields = {name: value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()}
    files = [(name or "file", _part(value)) for name, value in named.items()]
    form = httpx.Request("POST", "http://form/", data=fields, files=files)
    headers["Content-Type"] = form.headers["Content-Type"]
    has_text = any(isinstance(value, str) for value in named.values())
    return Call("POST", "/jobs", {}, headers, form.read(), has_text=has_text)


def get_job(job_id: str, wait_seconds: float = 0.0) -> Call:
    """`GET /jobs/{id}`, with a long-poll of up to `wait_seconds`."""
    params = {"wait": f"{wait_seconds:.3f}"} if wait_seconds >= 0.001 else {}
    return Call("GET", _job_path(job_id), params, patience_seconds=wait_seconds)


def get_result(job_id: str, media_type: str = BINARY) -> Call:
    """`GET /jobs/{id}/result`, unless asked otherwise in the form that changes no bit."""
    return Call("GET", f"{_job_path(job_id)}/result", headers={"Accept": media_type})


def cancel(job_id: str) -> Call:
    """`POST /jobs/{id}/cancel`."""
    return Call("POST", f"{_job_path(job_id)}/cancel")


def delete(job_id: str, *, force: bool) -> Call:
    """`DELETE /jobs/{id}`."""
    return Call("DELETE", _job_path(job_id), {"force": "true"} if force else {})


def list_page(*, status: str | None, model: str | None, limit: int, cursor: str | None) -> Call:
    """`GET /jobs`: one page."""
    asked = {"status": status, "model": model, "limit": str(limit), "cursor": cursor}
    return Call("GET", "/jobs", {name: value for name, value in asked.items() if value is not None})


def list_models() -> Call:
    """`GET /models`."""
    return Call("GET", "/models")


def get_model(name: str) -> Call:
    """`GET /models/{name}`."""
    return Call("GET", f"/models/{quote(name, safe='')}")


def _job_path(job_id: str) -> str:
    return f"/jobs/{quote(job_id, safe='')}"


def _is_array(value: "Upload | Array") -> "TypeGuard[Array]":
    is_upload = isinstance(value, bytes | bytearray | memoryview | str | os.PathLike) or hasattr(value, "read")
    return not is_upload


def is_array(value: Any) -> bool:
    """Whether it is a numpy array, or something that is like one."""
    return _is_array(value) and hasattr(value, "dtype") and hasattr(value, "shape")


def _check_type(name: str, value: Any) -> None:
    if _is_array(value) and not is_array(value):
        kind = type(value).__name__
        raise TypeError(
            f"{f'input {name!r}' if name else 'the input'} is of type {kind}, which can't be sent: an input is a numpy "
            "array (numpy.asarray(…, dtype=…) makes one), a Path, a file opened in binary mode, bytes, or a str as text"
        )


def _part(value: Any) -> tuple[str, bytes, str]:
    """Name, bytes and type of a form's part. The server looks at the bytes; name and type are for its log."""
    if isinstance(value, str):
        return "text.txt", value.encode(), "text/plain; charset=utf-8"
    if isinstance(value, os.PathLike):
        path = Path(value)
        return path.name, path.read_bytes(), mimetypes.guess_type(path.name)[0] or BINARY
    if isinstance(value, bytes | bytearray | memoryview):
        return "upload", bytes(value), BINARY
    if hasattr(value, "read"):
        data = value.read()
        if not isinstance(data, bytes):
            raise ValueError("a file must be opened in binary mode: open(…, 'rb')")
        return "upload", data, BINARY
    from inferq.client.tensors import to_npy

    return "array.npy", to_npy(value), "application/x-npy"


def said(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Model and options as members of a JSON document; ValueError where an option is unknown."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise ValueError(f"there is no option {min(unknown)}; there are {', '.join(Options.__annotations__)}")
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(run_at := given.get("run_at"), datetime):
        if run_at.tzinfo is None:
            raise ValueError("run_at needs a time zone: datetime.now(UTC) + timedelta(…)")
        given["run_at"] = run_at.isoformat()
    return {"model": model, **given}
