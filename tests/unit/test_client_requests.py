"""What the client asks the server, as values."""

import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferq.client import requests
from inferq.client.requests import Call


def parts_of(call: Call) -> dict[str, tuple[str | None, bytes]]:
    """The parts of a form, by an independent parser: name → (filename, bytes)."""
    head = f"Content-Type: {call.headers['Content-Type']}\r\n\r\n".encode()
    parts: list[Message] = BytesParser().parsebytes(head + call.content).get_payload()  # type: ignore[assignment]
    found = {}
    for part in parts:
        name = part.get_param("name", header="content-disposition")
        assert isinstance(name, str)
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        found[name] = (part.get_filename(), data)
    return found


def header_of(call: Call) -> tuple[dict[str, Any], bytes]:
    """The JSON header of a binary body, and the raw bytes behind it."""
    length = int(call.headers["Inference-Header-Content-Length"])
    return json.loads(call.content[:length]), call.content[length:]


def test_a_file_travels_as_the_form_part_file_beside_model_and_options(tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"\xff\xd8 pixels")
    call = requests.submit("m", photo, {"priority": "high", "max_failures": 2, "metadata": {"a": "ü"}}, "key")
    assert (call.method, call.path, dict(call.params)) == ("POST", "/jobs", {})
    assert call.headers["Idempotency-Key"] == "key"
    parts = parts_of(call)
    assert parts["file"] == ("photo.jpg", b"\xff\xd8 pixels")
    assert parts["model"] == (None, b"m")
    assert parts["priority"] == (None, b"high")
    assert parts["max_failures"] == (None, b"2")
    assert json.loads(parts["metadata"][1]) == {"a": "ü"}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (b"\0bytes", b"\0bytes"),
        (bytearray(b"array"), b"array"),
        (memoryview(b"view"), b"view"),
        ("a text, ü", "a text, ü".encode()),
        (io.BytesIO(b"opened"), b"opened"),
    ],
)
def test_bytes_texts_and_open_files_travel_as_they_are(value: Any, sent: bytes) -> None:
    assert parts_of(requests.submit("m", value, {}, "k"))["file"][1] == sent


def test_a_file_opened_as_text_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="binary mode"):
        requests.submit("m", io.StringIO("text"), {}, "k")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[1, 2, 3], (1,), 5, 1.5, None, {"x": [1, 2]}])
def test_what_is_no_input_is_refused_with_what_is_taken(value: Any) -> None:
    with pytest.raises(TypeError, match=r"can't be sent: an input is a numpy array \(.*\), a Path"):
        requests.submit("m", value, {}, "k")


def test_an_array_without_a_name_travels_as_npy() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    _, data = parts_of(requests.submit("m", array, {}, "k"))["file"]
    assert np.array_equal(np.load(io.BytesIO(data), allow_pickle=False), array)


def test_named_arrays_travel_as_raw_tensors_with_the_options_in_the_header() -> None:
    array = np.array([[1.5, np.nan]], dtype=np.float32)
    call = requests.submit("m", {"x": array}, {"timeout_seconds": 5, "outputs": ["y"], "parameters": {"p": 1}}, "k")
    header, raw = header_of(call)
    assert header == {
        "model": "m",
        "timeout_seconds": 5,
        "outputs": ["y"],
        "parameters": {"p": 1},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}],
    }
    assert raw == array.tobytes()


def test_files_and_arrays_of_one_job_travel_together_under_their_names() -> None:
    parts = parts_of(
        requests.submit("m", {"image": b"pixels", "threshold": np.array([0.5], dtype=np.float32)}, {}, "k")
    )
    assert parts["image"][1] == b"pixels"
    assert np.load(io.BytesIO(parts["threshold"][1])).tolist() == [0.5]


def test_an_instant_with_its_zone_is_written_as_rfc_3339_and_one_without_is_refused() -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert parts_of(requests.submit("m", b"x", {"run_at": at}, "k"))["run_at"][1] == b"2030-01-02T03:04:05+00:00"
    with pytest.raises(ValueError, match="time zone"):
        requests.submit("m", b"x", {"run_at": at.replace(tzinfo=None)}, "k")


@pytest.mark.parametrize(
    ("inputs", "options", "complaint"),
    [
        (b"x", {"prioritty": "high"}, "there is no option prioritty; there are model_version, priority"),
        ({"x": np.zeros(2, dtype=np.complex64)}, {}, "complex64"),
        (np.array(["a", 1], dtype=object), {}, "not int"),
    ],
)
def test_what_can_not_be_sent_is_refused_with_the_reason(
    inputs: Any, options: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        requests.submit("m", inputs, options, "k")


def test_no_inputs_at_all_are_the_servers_to_judge() -> None:
    """A model may have none that it needs."""
    call = requests.submit("m", {}, {"priority": "low"}, "k")
    length = int(call.headers["Inference-Header-Content-Length"])
    assert (json.loads(call.content[:length]), call.content[length:]) == (
        {"model": "m", "priority": "low", "inputs": []},
        b"",
    )


def test_ids_and_names_can_not_leave_their_place_in_the_path() -> None:
    assert requests.get_job("../models?x").path == "/jobs/..%2Fmodels%3Fx"
    assert requests.get_model("a/b ü").path == "/models/a%2Fb%20%C3%BC"


def test_a_wait_is_asked_in_seconds_and_grants_the_server_as_many() -> None:
    assert dict(requests.get_job("0" * 32).params) == {}
    call = requests.get_job("0" * 32, 12.5)
    assert dict(call.params) == {"wait": "12.500"}
    assert call.patience_seconds == 12.5


def test_a_page_is_asked_with_what_was_given_only() -> None:
    assert dict(requests.list_page(status=None, model="m", limit=5, cursor=None).params) == {"model": "m", "limit": "5"}
