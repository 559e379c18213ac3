"""No way in: which addresses a webhook may reach, however they are spelled, resolved or mixed."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.addresses import FORBIDDEN, forbidden_range
from jobs.destination import AllowList, ForbiddenDestination, parse
from tests.webhooks.rig import Names
from tests.webhooks.sockets import connects
from workers.webhooks.guard import Guard
from workers.webhooks.sender import Fault, Sender

pytestmark = pytest.mark.anyio

NOTHING = AllowList()

THREATS = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": ["10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255"],
    "link-local": ["169.254.0.1", "169.254.169.254", "169.254.255.255", "fe80::1", "febf::1"],
    "CGNAT": ["100.64.0.0", "100.127.255.255", "100.100.100.200"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "broadcast": ["255.255.255.255", "240.0.0.1"],
    "unspecified": ["0.0.0.0", "0.255.255.255", "::"],
    "unique-local": ["fc00::1", "fdff::1", "fd00:ec2::254"],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:8.8.8.8", "::ffff:a9fe:a9fe"],
    "IPv4-compatible": ["::127.0.0.1", "::7f00:1"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"],
    "6to4": ["2002:7f00:1::", "2002::1", "192.88.99.1"],
    "Teredo": ["2001::1", "2001:0:ffff::1"],
    "others": ["192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "168.63.129.16"],
}
FORBIDDEN_ADDRESSES = [address for addresses in THREATS.values() for address in addresses]
NEIGHBOURS = [
    *("100.63.255.254", "100.128.0.1", "64:ff9c::1", "9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0"),
    *("192.167.255.255", "192.169.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0"),
    *("223.255.255.255", "1.1.1.1", "8.8.8.8", "2003::1", "2001:4860:4860::8888", "2606:4700::1111", "fbff::1"),
]


@pytest.mark.parametrize("text", FORBIDDEN_ADDRESSES)
async def test_no_name_leads_to_a_forbidden_address_and_no_socket_is_made(text: str) -> None:
    """T: Webhook URL."""
    address = ip_address(text)
    assert forbidden_range(address) is not None
    names = Names({"receiver.example": [[text]]})
    async with Sender(NOTHING, names, timeout_seconds=5) as sender:
        literal = f"[{text}]" if address.version == 6 else text
        with connects() as connected:
            for host in ("receiver.example", literal):
                reply = await sender.send(f"https://{host}/", {}, b"{}")
                assert (reply.status, reply.fault) == (0, Fault.FORBIDDEN)
    assert connected == []
    assert names.asked == ["receiver.example"]


@pytest.mark.parametrize("text", NEIGHBOURS)
async def test_what_lies_beside_a_forbidden_range_may_be_reached(text: str) -> None:
    assert forbidden_range(ip_address(text)) is None
    guard = Guard(NOTHING, Names({"receiver.example": [[text]]}))
    async with guard.admitted(parse("https://receiver.example/", NOTHING)) as addresses:
        assert addresses == [ip_address(text)]


@pytest.mark.parametrize("row", FORBIDDEN, ids=lambda row: str(row.network))
def test_both_ends_of_every_range_are_forbidden(row: object) -> None:
    network = ip_network(str(getattr(row, "network", "")))
    for address in (network.network_address, network.broadcast_address):
        assert forbidden_range(address) is not None


@given(st.ip_addresses())
@example(IPv4Address("192.0.0.8"))
@settings(max_examples=2000)
def test_all_that_python_calls_private_is_forbidden(address: IPv4Address | IPv6Address) -> None:
    """The standard library keeps a list of its own; what it knows of we must know of."""
    if not address.is_global or address.is_multicast:
        assert forbidden_range(address) is not None


async def test_the_allowed_addresses_of_a_name_are_dialled_and_no_others() -> None:
    guard = Guard(NOTHING, Names({"mixed.example": [["127.0.0.1", "8.8.8.8", "169.254.169.254", "::1", "8.8.4.4"]]}))
    async with guard.admitted(parse("https://mixed.example/", NOTHING)) as addresses:
        assert list(map(str, addresses)) == ["8.8.8.8", "8.8.4.4"]
        guard.make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.4.4", 443))).close()
        for target in (("127.0.0.1", 443), ("8.8.8.8", 80), ("8.8.8.9", 443)):
            with pytest.raises(ForbiddenDestination, match="nobody has judged"):
                guard.make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", target))
    with pytest.raises(ForbiddenDestination, match="nobody has judged"):
        guard.make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 443)))


async def test_what_two_sends_dial_stays_admitted_until_both_are_over() -> None:
    guard = Guard(NOTHING, Names({"a.example": [["8.8.8.8"]]}))
    target = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 443))
    async with guard.admitted(parse("https://a.example/", NOTHING)):
        async with guard.admitted(parse("https://8.8.8.8/", NOTHING)):
            pass
        guard.make_socket(target).close()
    with pytest.raises(ForbiddenDestination):
        guard.make_socket(target)


ALLOWED = AllowList.parse(
    ["hooks.internal", "only.internal:8080", "10.1.0.0/16", "[fd00:1::5]:9000", "127.0.0.1:9000", ":8443"]
)


@pytest.mark.parametrize(
    ("host", "port", "address", "is_reached"),
    [
        ("hooks.internal", 1, "10.9.9.9", True),
        ("hooks.internal", 1, "172.31.0.1", True),
        ("hooks.internal", 1, "192.168.0.1", True),
        ("hooks.internal", 1, "100.64.0.1", True),
        ("hooks.internal", 1, "fd12::1", True),
        ("hooks.internal", 1, "127.0.0.1", False),
        ("hooks.internal", 9000, "127.0.0.1", True),
        ("hooks.internal", 9000, "127.0.0.2", False),
        ("hooks.internal", 1, "169.254.169.254", False),
        ("hooks.internal", 1, "fd00:ec2::254", False),
        ("other.internal", 443, "10.9.9.9", False),
        ("other.internal", 443, "10.1.255.255", True),
        ("other.internal", 443, "10.2.0.0", False),
        ("only.internal", 8080, "192.168.1.1", True),
        ("only.internal", 443, "192.168.1.1", False),
        ("x.example", 9000, "fd00:1::5", True),
        ("x.example", 443, "fd00:1::5", False),
        ("x.example", 9000, "::ffff:10.1.0.1", False),
        ("x.example", 443, "8.8.8.8", True),
    ],
)
def test_an_operator_lets_webhooks_reach_names_and_networks(
    host: str, port: int, address: str, is_reached: bool
) -> None:
    assert (ALLOWED.objection(ip_address(address), host, port) is None) is is_reached


CLOUDS = (
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42", "192.0.0.192"),
    *("168.63.129.16", "100.100.100.200"),
)
CLOUDS_6 = (
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1"),
    *("fd00:100::100:200", "fe80::a9fe:a9fe"),
)
NOT_PRIVATE = ("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.2.3", "255.255.255.255", "240.0.0.1")
NOT_PRIVATE_6 = ("::1", "::", "ff02::1", "ff0e::1", "fe80::1", "fec0::1", "5f00::1", "100::1", "2001:db8::1")


def ways_in(text: str) -> dict[str, IPv6Address]:
    """The IPv6 addresses that lead, or once led, to an IPv4 address."""
    inner = int(IPv4Address(text))
    at = {
        "mapped": (0xFFFF << 32) | inner,
        "compatible": inner,
        "translated": (0xFFFF << 48) | inner,
        "NAT64": (0x64FF9B << 96) | inner,
        "local NAT64": (0x64FF9B0001 << 80) | inner,
        "local NAT64 of 48 bits": (0x64FF9B0001 << 80) | (inner >> 16 << 64) | ((inner & 0xFFFF) << 40),
        "6to4": (0x2002 << 112) | (inner << 80),
        "6to4 host": (0x2002 << 112) | (inner << 80) | 1,
        "Teredo server": (0x20010000 << 96) | (inner << 64),
        "Teredo client": (0x20010000 << 96) | (inner ^ 0xFFFFFFFF),
    }
    return {way: IPv6Address(number) for way, number in at.items()}


VOUCHED = AllowList.parse(["hooks.internal"])


async def is_refused(allowed: AllowList, address: IPv4Address | IPv6Address, host: str = "hooks.internal") -> bool:
    """Whether no socket is made for a name that leads to an address, judged where sockets are made: none is used."""
    guard = Guard(allowed, Names({host: [[str(address)]]}))
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    target = (family, socket.SOCK_STREAM, 0, "", (str(address), 443))
    try:
        async with guard.admitted(parse(f"https://{host}/", allowed)):
            guard.make_socket(target).close()
            return False
    except ForbiddenDestination:
        with pytest.raises(ForbiddenDestination, match="nobody has judged"):
            guard.make_socket(target)
        return True


@pytest.mark.parametrize("text", [*CLOUDS, *CLOUDS_6, *NOT_PRIVATE, *NOT_PRIVATE_6])
async def test_a_name_that_is_vouched_for_leads_to_private_addresses_and_no_others(text: str) -> None:
    """T: Webhook URL."""
    assert await is_refused(VOUCHED, ip_address(text))


@pytest.mark.parametrize("text", [*CLOUDS, *NOT_PRIVATE, "10.0.0.1", "8.8.8.8"])
async def test_a_name_that_is_vouched_for_leads_to_no_ipv4_address_inside_an_ipv6_one(text: str) -> None:
    """T: Webhook URL: IPv6 embed."""
    for way, address in ways_in(text).items():
        assert await is_refused(VOUCHED, address), way


ALL = AllowList.parse(["0.0.0.0/0", "::/0", "hooks.internal"])


@pytest.mark.parametrize("text", [*CLOUDS, *CLOUDS_6, *NOT_PRIVATE, *NOT_PRIVATE_6])
async def test_a_network_so_wide_that_it_holds_everything_means_private_addresses_alone(text: str) -> None:
    assert await is_refused(ALL, ip_address(text))
    assert not await is_refused(ALL, ip_address("10.0.0.1"))
    assert not await is_refused(ALL, ip_address("fd12::1"))
    if ip_address(text).version == 4:
        for way, address in ways_in(text).items():
            assert await is_refused(ALL, address), way


@pytest.mark.parametrize("text", [*CLOUDS, *CLOUDS_6, "127.0.0.1", "127.0.0.0/8", "::1", "169.254.7.0/24", "fe80::/64"])
async def test_a_network_that_names_what_is_forbidden_opens_that(text: str) -> None:
    address = ip_network(text)[0]
    assert not await is_refused(AllowList.parse([text]), address)
    assert not await is_refused(AllowList.parse([f"[{address}]:443" if ":" in text else f"{address}:443"]), address)
    assert await is_refused(AllowList.parse([f"[{address}]:444" if ":" in text else f"{address}:444"]), address)


@pytest.mark.parametrize("wide", ["169.254.0.0/16", "100.64.0.0/10", "fd00::/8", "fe80::/10"])
async def test_a_network_around_a_metadata_service_does_not_open_it(wide: str) -> None:
    network = ip_network(wide)
    for text in (*CLOUDS, *CLOUDS_6):
        if ip_address(text) in network:
            assert await is_refused(AllowList.parse([wide]), ip_address(text))
    assert not await is_refused(AllowList.parse([wide]), network[77])


async def test_localhost_means_this_machine_and_no_other_name_does() -> None:
    allowed = AllowList.parse(["localhost", "me.localhost:443", "hooks.internal"])
    for text in ("127.0.0.1", "::1"):
        assert not await is_refused(allowed, ip_address(text), "localhost")
        assert not await is_refused(allowed, ip_address(text), "me.localhost")
        assert await is_refused(allowed, ip_address(text), "hooks.internal")
    assert await is_refused(allowed, ip_address("169.254.169.254"), "localhost")


async def test_through_nat64_only_what_may_be_reached_without_it() -> None:
    allowed = AllowList.parse(["64:ff9b::/96", "hooks.internal", "127.0.0.1"])
    reached = {text: not await is_refused(allowed, ways_in(text)["NAT64"]) for text in ("8.8.8.8", "10.0.0.1", *CLOUDS)}
    assert reached == {"8.8.8.8": True, "10.0.0.1": True, **dict.fromkeys(CLOUDS, False)}
    assert not await is_refused(allowed, ways_in("127.0.0.1")["NAT64"]), "which the list names itself"
    assert await is_refused(allowed, ways_in("127.0.0.2")["NAT64"])
    assert await is_refused(allowed, ways_in("10.0.0.1")["NAT64"], "other.example")


@pytest.mark.parametrize(
    "entry", ["0.0.0.0", "224.0.0.0/4", "255.255.255.255:443", "::ffff:10.0.0.1", "[2002:a00:1::]:80", "ff02::1", "::"]
)
def test_what_webhooks_never_reach_can_not_be_allowed(entry: str) -> None:
    with pytest.raises(ValueError, match="never go there"):
        AllowList.parse([entry])


URLS = {
    "https://receiver.example": "https://receiver.example/",
    "HTTPS://Receiver.EXAMPLE:443/A?b=C#d": "https://receiver.example/A?b=C",
    "https://receiver.example./x": "https://receiver.example/x",
    "https://bücher.example/ü?ß": "https://xn--bcher-kva.example/%C3%BC?%C3%9F",
    "https://8.8.8.8/": "https://8.8.8.8/",
    "https://[2606:4700:0:0::1111]/": "https://[2606:4700::1111]/",
    "https://receiver.example:8443/": "https://receiver.example:8443/",
    "http://hooks.internal/": "http://hooks.internal/",
    "http://hooks.internal:81/": "http://hooks.internal:81/",
    "http://only.internal:8080/": "http://only.internal:8080/",
    "http://10.1.2.3:5000/a": "http://10.1.2.3:5000/a",
    "http://127.0.0.1:9000/": "http://127.0.0.1:9000/",
    "https://receiver.example/a%2Fb%20c": "https://receiver.example/a%2Fb%20c",
}


@pytest.mark.parametrize(("url", "spelled"), URLS.items())
def test_a_url_has_one_spelling(url: str, spelled: str) -> None:
    assert parse(url, ALLOWED).url == spelled
    assert parse(spelled, ALLOWED).url == spelled


REFUSED = {
    "https://127.0.0.1/": "loopback",
    "https://2130706433/": "four decimal numbers",
    "https://0x7f000001/": "four decimal numbers",
    "https://0x7f.1/": "four decimal numbers",
    "https://0177.0.0.1/": "four decimal numbers",
    "https://017700000001/": "four decimal numbers",
    "https://127.1/": "four decimal numbers",
    "https://127.0.0.1.": "loopback",
    "https://127.0.0.1./": "loopback",
    "https://1.2.3.4.5/": "four decimal numbers",
    "https://256.1.1.1/": "four decimal numbers",
    "https://[::1]/": "loopback",
    "https://[::ffff:7f00:1]/": "IPv4-mapped",
    "https://[::ffff:127.0.0.1]/": "IPv4-mapped",
    "https://[fe80::1%25eth0]/": "IPv6",
    "https://[::1/": "host and port",
    "https://[]/": "IPv6",
    "https://localhost/": "loopback",
    "https://LOCALHOST./": "loopback",
    "https://a.localhost/": "loopback",
    "https://\uff11\uff12\uff17\uff0e\uff10\uff0e\uff10\uff0e\uff11/": "loopback",
    "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/": "loopback",
    "https://user@receiver.example/": "credentials",
    "https://user:password@receiver.example/": "credentials",
    "https://receiver.example@127.0.0.1/": "credentials",
    "https://receiver.example:80/": "port 80",
    "https://receiver.example:8443/": "port 8443",
    "https://receiver.example:0/": "port 0",
    "https://receiver.example:65536/": "port 65536",
    "https://receiver.example:4433333/": "host and port",
    "https://receiver.example:x/": "host and port",
    "http://receiver.example/": "https://",
    "ftp://receiver.example/": "https://",
    "file:///etc/passwd": "https://",
    "//receiver.example/": "https://",
    "receiver.example": "https://",
    "https:receiver.example": "https://",
    "": "https://",
    "https://": "name",
    "https:///x": "name",
    "https://a..b/": "name",
    "https://-a.example/": "name",
    "https://a%2eexample/": "name",
    "https://*.example/": "name",
    "https://receiver.example/\r\nX: y": "control characters",
    "https://receiver.example/ x": "spaces",
    "https://receiver.example\t/": "control characters",
    "https://receiver.example\\@127.0.0.1/": "backslashes",
    "https://receiver\x00.example/": "control characters",
    f"https://receiver.example/{'x' * 2048}": "2048",
    f"https://{'a' * 64}.example/": "name",
    f"https://{'a.' * 127}example/": "name",
}


@pytest.mark.parametrize(("url", "why"), REFUSED.items())
def test_a_bad_url_is_refused_with_its_reason(url: str, why: str) -> None:
    with pytest.raises(ForbiddenDestination, match=why):
        parse(url, NOTHING)


@pytest.mark.parametrize(
    "url",
    [
        "https://LOCALHOST./",
        "https://a.localhost:81/",
        "https://127.0.0.1/",
        "https://[fc00::1]/",
        "http://receiver.example/",
        "https://receiver.example:81/",
    ],
)
def test_the_entry_that_is_named_with_a_refusal_allows_that_url_and_no_other_port(url: str) -> None:
    with pytest.raises(ForbiddenDestination) as caught:
        parse(url, NOTHING)
    allowed = AllowList.parse([caught.value.entry])
    parse(url, allowed)
    assert caught.value.entry.rpartition(":")[2] == str(parse(url, allowed).port)


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254/", "https://[fe80::1]/", "https://127.1/", "ftp://a.example/"]
)
def test_no_entry_is_named_for_a_metadata_service_and_for_what_is_no_url(url: str) -> None:
    with pytest.raises(ForbiddenDestination) as caught:
        parse(url, NOTHING)
    assert caught.value.entry == ""


@pytest.mark.parametrize(
    "entry", ["a b", "https://hooks.internal", "10.0.0.1/8", "hooks.internal:", ":0", ":65536", "a:b", "[::1", "", "*"]
)
def test_an_allow_list_that_cannot_be_read_is_refused_as_a_whole(entry: str) -> None:
    with pytest.raises(ValueError, match="none of host, host:port"):
        AllowList.parse(["hooks.internal", entry])
