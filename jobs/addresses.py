"""Which network addresses a webhook may never reach: one table of ranges that lead inwards, or nowhere.

Pure: it judges one address. Who may be reached all the same is `jobs.destination`'s allow list.
"""

from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Kind(Enum):
    """What an allow list must say before a webhook may reach an address of a range."""

    PRIVATE = auto()
    """A name that is vouched for may lead there, and so may any network that holds the address."""
    LOOPBACK = auto()
    """This machine itself: a network inside the range is named, or `localhost` is."""
    LINK_LOCAL = auto()
    """Not routed, and where machines ask for their own credentials: a network inside the range is named."""
    METADATA = auto()
    """Hands out a machine's credentials to whoever asks from it: a network inside the range is named."""
    NAT64 = auto()
    """Another way to an IPv4 address: a network inside the range is named, and that address may be reached as well."""
    NEVER = auto()
    """Leads to nobody, to everybody, or to an IPv4 address by a way of no use: nothing opens it."""


class Range(NamedTuple):
    """Addresses of one meaning."""

    network: Network
    meaning: str
    kind: Kind

    def is_named_by(self, network: Network) -> bool:
        """Whether a network lies inside this range, so that whoever wrote it down meant the range."""
        theirs, ours = network, self.network
        if isinstance(theirs, IPv4Network) and isinstance(ours, IPv4Network):
            return theirs.subnet_of(ours)
        return isinstance(theirs, IPv6Network) and isinstance(ours, IPv6Network) and theirs.subnet_of(ours)


def _ranges(kind: Kind, *rows: tuple[str, str]) -> tuple[Range, ...]:
    return tuple(Range(ip_network(network), meaning, kind) for network, meaning in rows)


def _metadata(*networks: str) -> tuple[Range, ...]:
    return _ranges(Kind.METADATA, *((network, "a metadata service") for network in networks))


FORBIDDEN: Final[Sequence[Range]] = (
    *_metadata("169.254.169.254/32", "fe80::a9fe:a9fe/128"),  # most clouds, OpenStack
    *_metadata("169.254.170.2/32", "169.254.170.23/32", "fd00:ec2::/32"),  # Amazon: containers, pods, IPv6
    *_metadata("168.63.129.16/32"),  # Azure
    *_metadata("fd20:ce::254/128"),  # Google
    *_metadata("192.0.0.192/32", "fd00:c1::a9fe:a9fe/128"),  # Oracle
    *_metadata("100.100.100.200/32", "fd00:100::100:200/128"),  # Alibaba
    *_metadata("169.254.0.23/32"),  # Tencent
    *_metadata("169.254.42.42/32", "fd00:42::42/128"),  # Scaleway
    *_metadata("fd00:a9fe:a9fe::1/128"),  # Akamai
    *_ranges(
        Kind.LINK_LOCAL,
        ("169.254.0.0/16", "link-local and metadata services"),
        ("fe80::/10", "link-local"),
    ),
    *_ranges(
        Kind.LOOPBACK,
        ("127.0.0.0/8", "loopback"),
        ("::1/128", "loopback"),
    ),
    *_ranges(
        Kind.PRIVATE,
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("fc00::/7", "unique-local"),
    ),
    *_ranges(Kind.NAT64, ("64:ff9b::/96", "NAT64")),
    *_ranges(
        Kind.NEVER,
        ("0.0.0.0/8", "unspecified"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relays"),
        ("198.18.0.0/15", "benchmarks"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved and broadcast"),
        ("::/128", "unspecified"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discarded"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    ),
)
"""The first range that holds an address names it."""


@lru_cache(4096)
def forbidden_range(address: Address) -> Range | None:
    """The range for whose sake a webhook must not reach this address; None where it may."""
    return next((row for row in FORBIDDEN if address in row.network), None)


def embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that a NAT64 address leads to; None for any other."""
    row = forbidden_range(address)
    is_nat64 = row is not None and row.kind is Kind.NAT64
    return IPv4Address(int(address) & 0xFFFF_FFFF) if is_nat64 else None
