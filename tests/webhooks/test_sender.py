"""One POST to receivers good and bad: what came of it, what it cost, and where its sockets went."""

from __future__ import annotations

import asyncio
import gzip
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.destination import AllowList
from tests.support.receiver import receiving
from tests.webhooks.rig import Names
from tests.webhooks.sockets import connects
from workers.webhooks.resolver import Resolve
from workers.webhooks.sender import Fault, Reply, Sender, pause_asked_for_ms

pytestmark = pytest.mark.anyio

CERTIFICATES = Path(__file__).parents[1] / "support" / "scripted_tls"
NETWORKS = ("127.0.0.0/8", "::1")


@asynccontextmanager
async def sending(
    *allow: str, names: Resolve | None = None, timeout_seconds: float = 10, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Sender]:
    allowed = AllowList.parse(allow or NETWORKS)
    async with Sender(allowed, names or Names(), timeout_seconds=timeout_seconds, tls=tls) as sender:
        yield sender


def server_tls(certificate: str = "engine") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem", CERTIFICATES / f"{certificate}.key")
    return context


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")


@pytest.mark.parametrize(
    ("word", "reply"),
    [
        ("200", Reply(200)),
        ("204", Reply(204)),
        ("299", Reply(299)),
        ("300", Reply(300, Fault.STATUS)),
        ("301 http://169.254.169.254/", Reply(301, Fault.STATUS)),
        ("302 http://169.254.169.254/", Reply(302, Fault.STATUS)),
        ("304", Reply(304, Fault.STATUS)),
        ("400", Reply(400, Fault.STATUS)),
        ("410", Reply(410, Fault.STATUS)),
        ("429 7", Reply(429, Fault.STATUS, 7000)),
        ("500", Reply(500, Fault.STATUS)),
        ("503 9", Reply(503, Fault.STATUS, 9000)),
        ("999", Reply(999, Fault.STATUS)),
        ("raw HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n", Reply(0, Fault.CUT_OFF)),
        ("raw HTTP/1.1 099 Few\r\nContent-Length: 0\r\n\r\n", Reply(0, Fault.CUT_OFF)),
        ("raw HTTP/1.1 200 OK\r\nno header\r\n\r\n", Reply(0, Fault.CUT_OFF)),
        ("reset", Reply(0, Fault.CUT_OFF)),
        ("nonsense", Reply(0, Fault.CUT_OFF)),
        ("endless", Reply(0, Fault.CUT_OFF)),
        ("bomb", Reply(200)),
        ("huge", Reply(200)),
        ("drip-body", Reply(200)),
    ],
)
async def test_what_a_receiver_does_is_what_came_of_it(word: str, reply: Reply) -> None:
    """T: Webhook headers/response."""
    async with receiving(word) as receiver, sending() as sender:
        with connects() as connected:
            began = time.monotonic()
            assert await sender.send(receiver.url, {"webhook-id": "m"}, b"{}") == reply
        assert time.monotonic() - began < 8
        assert connected == [("127.0.0.1", receiver.port)]
        (seen,) = receiver.seen
        assert (seen.target, seen.body, seen.headers["webhook-id"]) == ("/hook", b"{}", "m")


HEADS = {
    "no body": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "204": "HTTP/1.1 204 No Content\r\n\r\n",
    "204 with a length": "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    "a body": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    "chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "to the end": "HTTP/1.1 202 Accepted\r\n\r\n",
    "HTTP/1.0": "HTTP/1.0 200 OK\r\n\r\n",
    "line feeds": "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "compressed": "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n",
    "early hints": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}
TAILS = {
    "": "",
    "a body": "ok",
    "garbage": "\x00\xff garbage\r\n\r\n",
    "another answer": "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    "a bad chunk": "zz\r\nabc",
    "a negative chunk": "-3\r\nabc",
    "a line feed": "\n",
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("head", HEADS)
async def test_a_message_is_delivered_with_the_head_of_a_good_answer_whatever_follows(head: str, tail: str) -> None:
    for end in ("raw", "raw-reset") if tail else ("raw", "raw-reset", "raw-hang"):
        async with receiving(f"{end} {HEADS[head]}{TAILS[tail]}") as receiver, sending() as sender:
            reply = await sender.send(receiver.url, {}, b"{}")
            assert (reply.fault, reply.status // 100) == (None, 2), end
            assert len(receiver.seen) == 1


async def test_a_head_that_comes_in_pieces_is_read_like_any_other() -> None:
    """Each split of head and garbage between two packets."""
    answer = f"{HEADS['early hints']}garbage"
    async with receiving() as receiver, sending() as sender:
        for at in range(1, len(answer)):
            receiver.words.append(f"raw-split {at} {answer}")
            assert await sender.send(receiver.url, {}, b"{}") == Reply(200), at


@pytest.mark.parametrize("end", ["leave", "reset"])
async def test_a_connection_that_its_server_closed_meanwhile_costs_no_attempt(end: str) -> None:
    """The same message again at once, over a new connection."""
    async with receiving("204", "204", end) as receiver, sending() as sender:
        for number in ("1", "2"):
            assert await sender.send(receiver.url, {"webhook-id": number}, b"{}") == Reply(204)
        assert (receiver.ids, receiver.connections) == (["1", "2", "2"], 2)


@pytest.mark.parametrize(("words", "seen"), [(["reset"], 1), (["204", "reset", "reset"], 3)])
async def test_a_connection_that_breaks_again_is_not_tried_for_ever(words: list[str], seen: int) -> None:
    async with receiving("204", *words) as receiver, sending() as sender:
        replies = [await sender.send(receiver.url, {}, b"{}") for _ in range(max(1, len(words) - 1))]
        assert replies[-1] == Reply(fault=Fault.CUT_OFF)
        assert len(receiver.seen) == seen


async def test_many_sends_at_once_survive_a_server_that_closes_after_each_answer() -> None:
    async with receiving(f"raw {HEADS['no body']}") as receiver, sending() as sender:
        for _ in range(20):
            replies = await asyncio.gather(*(sender.send(receiver.url, {"webhook-id": "m"}, b"{}") for _ in range(8)))
            assert replies == [Reply(200)] * 8


@pytest.mark.parametrize("word", ["hang", "drip"])
async def test_a_receiver_that_takes_too_long_is_left(word: str) -> None:
    async with receiving(word) as receiver, sending(timeout_seconds=0.5) as sender:
        assert await sender.send(receiver.url, {}, b"{}") == Reply(fault=Fault.TIMEOUT)


async def test_a_gigabyte_of_answer_takes_neither_memory_nor_time() -> None:
    async with receiving("huge") as receiver, sending() as sender:
        before = resident_bytes()
        assert (await sender.send(receiver.url, {}, b"{}")).fault is None
        assert resident_bytes() - before < 32 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_nobody_listening_is_told_from_a_name_that_does_not_exist() -> None:
    async with receiving() as receiver:
        url = receiver.url
    names = Names({"here.example": [["127.0.0.1"]]})
    async with sending("here.example", "gone.example", *NETWORKS, names=names) as sender:
        assert (await sender.send(url, {}, b"{}")).fault is Fault.CONNECTION
        assert (await sender.send("http://gone.example/", {}, b"{}")).fault is Fault.NAME


async def test_a_name_server_that_hangs_costs_no_more_than_the_timeout() -> None:
    async def hang(host: str) -> list[object]:
        await asyncio.Event().wait()
        return []

    async with sending("slow.example", names=hang, timeout_seconds=0.2) as sender:  # type: ignore[arg-type]
        assert (await sender.send("http://slow.example/", {}, b"{}")).fault is Fault.TIMEOUT


async def test_the_name_is_kept_for_tls_and_for_the_receiver() -> None:
    """T: Webhook URL: the connection goes to the judged address, and the name is proven by the certificate."""
    asked_for: list[str | None] = []
    tls = server_tls()
    tls.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    names = Names({"engine.test": [["127.0.0.1"]]})
    async with receiving(tls=tls) as receiver:
        authority = f"engine.test:{receiver.port}"
        async with sending(authority, *NETWORKS, names=names, tls=client_tls()) as sender:
            assert await sender.send(f"https://{authority}/hook", {}, b"{}") == Reply(204)
            assert await sender.send(f"https://{authority}/hook", {}, b"{}") == Reply(204)
        assert [seen.headers["host"] for seen in receiver.seen] == [authority] * 2
        assert receiver.connections == 1, "a connection is kept for the next message"
    assert asked_for == ["engine.test"]
    assert names.asked == ["engine.test"] * 2, "and yet the name is resolved for each"


async def test_bad_tls_is_never_good_enough() -> None:
    names = Names({"engine.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})
    async with receiving(tls=server_tls()) as receiver, receiving("greet") as plain:
        allow = (f"engine.test:{receiver.port}", f"other.test:{receiver.port}", f"engine.test:{plain.port}")
        cases = [
            (f"https://other.test:{receiver.port}/", client_tls()),
            (f"https://engine.test:{receiver.port}/", ssl.create_default_context()),
            (f"https://engine.test:{plain.port}/", client_tls()),
        ]
        for url, tls in cases:
            async with sending(*allow, *NETWORKS, names=names, tls=tls) as sender:
                assert await sender.send(url, {}, b"{}") == Reply(fault=Fault.TLS), url
        assert receiver.seen == plain.seen == []
        assert plain.connections == 1


async def test_a_name_that_changes_its_mind_gains_nothing() -> None:
    """B079: only the address that was judged is dialled, and a kept connection serves no name that left it."""
    names = Names({"engine.test": [["127.0.0.2"], ["127.0.0.1"], ["169.254.169.254"], ["127.0.0.2"]]})
    async with (
        receiving(host="127.0.0.2", tls=server_tls()) as outside,
        sending("127.0.0.2", f":{outside.port}", names=names, tls=client_tls()) as sender,
    ):
        url = f"https://engine.test:{outside.port}/"
        with connects() as connected:
            faults = [(await sender.send(url, {}, b"{}")).fault for _ in range(4)]
    assert faults == [None, Fault.FORBIDDEN, Fault.FORBIDDEN, None]
    assert set(connected) == {("127.0.0.2", outside.port)}
    assert len(outside.seen) == 2


async def test_plain_http_is_for_hosts_that_the_operator_named() -> None:
    names = Names({"receiver.example": [["127.0.0.2"]]})
    async with receiving(host="127.0.0.2") as receiver, sending("127.0.0.2", names=names) as sender:
        assert (await sender.send(f"http://receiver.example:{receiver.port}/", {}, b"{}")).fault is Fault.FORBIDDEN
        assert names.asked == []
        assert (await sender.send(f"http://127.0.0.2:{receiver.port}/", {}, b"{}")).fault is None
        assert receiver.connections == 1


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    async with receiving(host="127.0.0.3") as receiver:
        names = Names({"many.example": [["127.0.0.9", "169.254.169.254", "127.0.0.3"]]})
        async with sending(f"many.example:{receiver.port}", *NETWORKS, names=names) as sender:
            with connects() as connected:
                assert await sender.send(f"http://many.example:{receiver.port}/", {}, b"{}") == Reply(204)
    assert [address for address, *_ in connected] == ["127.0.0.9", "127.0.0.3"]


async def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with sending() as sender:
            assert await sender.send(receiver.url, {}, b"{}") == Reply(204)
    assert (proxy.connections, receiver.connections) == (0, 1)


async def test_cancelled_sends_leave_room_for_the_next_one() -> None:
    """B057: 20 slow receivers, 1,000 sends that are cancelled, then a good one."""
    async with receiving("hang") as slow, receiving() as good, sending(timeout_seconds=30) as sender:
        for _ in range(20):
            sends = [asyncio.create_task(sender.send(slow.url, {}, b"{}")) for _ in range(50)]
            await slow.got(len(slow.seen) + 1)
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
        assert await asyncio.wait_for(sender.send(good.url, {}, b"{}"), 5) == Reply(204)


async def test_a_compressed_answer_is_not_unpacked() -> None:
    assert len(gzip.compress(b"x" * 10_000_000)) < 20_000, "what such an answer would be"
    async with receiving("bomb") as receiver, sending() as sender:
        assert await sender.send(receiver.url, {}, b"{}") == Reply(200)
        assert "accept-encoding" not in receiver.seen[0].headers


def test_a_pause_is_read_as_seconds_or_as_a_date() -> None:
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert pause_asked_for_ms("120", now) == 120_000
    assert pause_asked_for_ms(" 0 ", now) == 0
    assert pause_asked_for_ms("Thu, 01 Jan 2026 12:01:30 GMT", now) == 90_000
    assert pause_asked_for_ms("Thu, 01 Jan 2026 11:00:00 GMT", now) == 0
    for nonsense in ("", "soon", "-5", "1.5", "9" * 41, "٣"):
        assert pause_asked_for_ms(nonsense, now) == 0


ABSURD = (
    "Mon, 01 Jan 99999999999 00:00:00 GMT",
    "Mon, 99999999999 Jan 2099 00:00:00",
    "Mon, 1 Jan 2099 99999999999:00:00",
    "Mon, 01 Jan 2099 00:00:00 +99999999999",
    "Mon, 01 Jan 2099 00:00:00 -9999",
    "01 Jan 0001 00:00:00 +2359",
    "0 0 0 0 0",
)
WORDS = st.sampled_from(
    ["Mon,", "01", "Jan", "2099", "9" * 11, "23:59:60", "00:00", "GMT", "+2359", "-", ":", "-1", ","]
)


@pytest.mark.parametrize("text", ABSURD)
def test_an_absurd_date_is_no_pause(text: str) -> None:
    assert pause_asked_for_ms(text, datetime(2026, 1, 1, tzinfo=UTC)) == 0


@given(st.text(max_size=40) | st.lists(WORDS, max_size=8).map(" ".join))
@settings(max_examples=1000, deadline=None)
def test_no_header_is_too_odd_to_be_ignored(text: str) -> None:
    assert pause_asked_for_ms(text, datetime(2026, 1, 1, tzinfo=UTC)) >= 0
