"""Forms: what is accepted of multipart/form-data, and how fast the rest is refused."""

import time
from typing import Any

import pytest

from tests.support.intake import Gateway, field, multipart

pytestmark = pytest.mark.anyio

TEXT = (field("model", b"text"), field("text", b"hello"))


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


async def test_options_may_stand_before_and_after_the_upload_and_in_the_query(gateway: Gateway) -> None:
    submission = await gateway.accepted(
        params={"max_failures": "7"},
        **multipart(field("priority", b"high"), *TEXT, field("timeout_seconds", b"1.5")),
    )
    assert submission.request.priority == "high"
    assert submission.request.timeout_ms == 1500
    assert submission.request.max_failures == 7


async def test_an_input_given_twice_is_refused(gateway: Gateway) -> None:
    """B050"""
    twice = multipart(*TEXT, field("text", b"again"))
    assert (await gateway.refused(**twice))["code"] == "duplicate_input"
    twice = multipart(*TEXT, field("file", b"again", "t.txt", "text/plain"))
    assert (await gateway.refused(**twice))["code"] == "duplicate_input"


async def test_an_option_given_twice_is_refused(gateway: Gateway) -> None:
    problem = await gateway.refused(**multipart(*TEXT, field("model", b"photo")))
    assert (problem["code"], problem["option"]) == ("invalid_option", "model")
    problem = await gateway.refused(params={"priority": "low"}, **multipart(*TEXT, field("priority", b"high")))
    assert (problem["code"], problem["option"]) == ("invalid_option", "priority")


async def test_an_unknown_part_is_refused_with_the_inputs_that_there_are(gateway: Gateway) -> None:
    problem = await gateway.refused(**multipart(*TEXT, field("txet", b"typo")))
    assert (problem["status"], problem["code"], problem["input"]) == (422, "unknown_input", "txet")
    assert "`text`" in problem["detail"]


@pytest.mark.parametrize("filename", ["../../etc/passwd", "a\0b", "x" * 3000, "", "C:\\x", 'q\\"q', "\xe9"])
async def test_filenames_have_no_effect_at_all(gateway: Gateway, filename: str) -> None:
    """V07"""
    submission = await gateway.accepted(
        **multipart(field("model", b"text"), field("file", b"hello", filename, "text/plain"))
    )
    assert bytes(submission.payload) == b"hello"
    assert "passwd" not in repr(submission.request)


async def test_an_extended_name_does_not_smuggle_another_part_in(gateway: Gateway) -> None:
    headers = "Content-Disposition: form-data; name=\"text\"; name*=utf-8''model; filename*=utf-8''x"
    submission = await gateway.accepted(**multipart(field("model", b"text"), (headers, b"hello")))
    assert bytes(submission.payload) == b"hello"


@pytest.mark.parametrize(
    "request_",
    [
        multipart(*TEXT, end=b""),
        multipart(*TEXT, end=b"-"),
        multipart(*TEXT, end=b"\r\n"),
        multipart(end=b"\r\n"),
        {"content": b"", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"--x\r\n", "headers": {"Content-Type": "multipart/form-data"}},
        {"content": b"hello", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        multipart(*TEXT, boundary="b" * 300),
        multipart(("Content-Disposition: form-data", b"")),
        multipart(('Content-Disposition: attachment; name="text"', b"")),
        multipart(("X-Other: 1", b"")),
        multipart(('Content-Disposition: form-data; name="a\xff"', b"")),
        multipart(('Content-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="b"', b"")),
        multipart(('Content-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64', b"aGk=")),
        multipart(("\r\n".join(f"X-{n}: 1" for n in range(20)), b"")),
        multipart((f"Content-Disposition: form-data; name={'x' * 5000}", b"")),
        multipart(*(field(f"p{n}", b"") for n in range(257))),
        multipart((": no name", b"")),
    ],
    ids=range(18),
)
async def test_a_body_that_is_no_complete_form_is_malformed(gateway: Gateway, request_: dict[str, Any]) -> None:
    """B068"""
    problem = await gateway.refused(**request_)
    assert (problem["status"], problem["code"]) == (400, "malformed_body")


def other(content: bytes, boundary: str = "frontier") -> dict[str, Any]:
    """A body of which the Content-Type says this boundary."""
    return {"content": content, "headers": {"Content-Type": f"multipart/form-data; boundary={boundary}"}}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (other(multipart(*TEXT)["content"], "border"), "the boundary 'border', but the body begins with 'frontier'"),
        (other(multipart(*TEXT)["content"].replace(b"\r\n", b"\n")), "lines end in LF alone"),
        (other(b"preamble\n" + multipart(*TEXT)["content"].replace(b"\r\n", b"\n")), "lines end in LF alone"),
        (other(b"hello, world"), "the boundary 'frontier', which its Content-Type says, is not in it"),
        (other(b""), "it is empty"),
        (other(b"x", ""), "names no boundary"),
        (other(multipart(*TEXT)["content"].replace(b"Content-Disposition:", b"Content Disposition:")), "near byte "),
        (multipart(("\r\n".join(f"X-{n}: 1" for n in range(20)), b"")), "too many lines"),
        (multipart(*TEXT, end=b"!!"), "closing boundary is missing"),
        (other(b"--frontier!!"), "near byte "),
    ],
    ids=range(10),
)
async def test_a_form_that_is_written_wrong_is_told_what_is_wrong(
    gateway: Gateway, request_: dict[str, Any], words: str
) -> None:
    problem = await gateway.refused(**request_)
    assert (problem["status"], problem["code"]) == (400, "malformed_body")
    assert words in problem["detail"]


@pytest.mark.parametrize(
    "preamble", [b"\r\n", b"This is a multi-part message.\r\n", b"--x\r\n" * 9000, b"\n--frontie\r\n"]
)
async def test_a_preamble_is_passed_over_up_to_64_kib(gateway: Gateway, preamble: bytes) -> None:
    request = multipart(*TEXT)
    submission = await gateway.accepted(content=preamble + request["content"], headers=request["headers"])
    assert bytes(submission.payload) == b"hello"
    problem = await gateway.refused(content=preamble * 70_000 + request["content"], headers=request["headers"])
    assert problem["code"] in ("malformed_body", "payload_too_large")


@pytest.mark.parametrize(
    "request_",
    [
        multipart((f'Content-Disposition: form-data; name="a{";" * 4000}"', b"")),
        multipart((f"Content-Disposition: form-data; {'a;' * 2000}", b"")),
        {"content": b"a;" * 500_000, "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
        {"content": b"a;" * 500_000, "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"\r\n" * 2_000_000 + b"x", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"\r\n-" * 1_500_000, "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        multipart((field("file", b"\r\n--frontie" * 300_000, "f")), end=b""),
        multipart((field("file", b"\r\n--frontier-" * 100_000, "f")), end=b""),
    ],
    ids=range(8),
)
async def test_hostile_forms_are_refused_in_no_time(gateway: Gateway, request_: dict[str, Any]) -> None:
    """B068: the bound is generous for a busy machine; quadratic parsing of these takes minutes."""
    begun_at = time.process_time()
    problem = await gateway.refused(**request_)
    assert problem["status"] in (400, 415, 422)
    assert time.process_time() - begun_at < 2


async def test_a_part_that_holds_a_near_miss_of_the_boundary_is_kept_whole(gateway: Gateway) -> None:
    data = b"\r\n--frontie\r\n--frontierx\r\n--frontier-x\r\n-\r\r\n"
    submission = await gateway.accepted(**multipart(field("model", b"blob"), field("file", data, "f")))
    assert bytes(submission.payload) == data


async def test_what_follows_the_closing_boundary_is_no_part(gateway: Gateway) -> None:
    submission = await gateway.accepted(**multipart(*TEXT, end=b"--\r\nepilogue\r\n--frontier\r\n"))
    assert bytes(submission.payload) == b"hello"


async def test_an_input_whose_name_is_an_option_can_still_be_given_as_a_file(gateway: Gateway) -> None:
    problem = await gateway.refused(**multipart(*TEXT, field("priority", b"high", "f", "text/plain")))
    assert (problem["code"], problem["input"]) == ("unknown_input", "priority")


async def test_the_option_input_means_nothing_in_a_form(gateway: Gateway) -> None:
    assert (await gateway.refused(**multipart(*TEXT, field("input", b"text"))))["code"] == "invalid_option"


async def test_an_option_that_is_not_utf8_or_too_long_is_refused(gateway: Gateway) -> None:
    assert (await gateway.refused(**multipart(*TEXT, field("priority", b"\xff"))))["code"] == "invalid_option"
    assert (await gateway.refused(**multipart(*TEXT, field("metadata", b"x" * 70_000))))["code"] == "invalid_option"
