"""Which network addresses a webhook may never reach: one table of ranges that lead inwards, or nowhere.

Pure: it judges one address. Who may be reached all the same is `jobs.destination`'s allow list.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Range(NamedTuple):
    """Addresses of one meaning. `is_metadata` ones hand out a machine's credentials to whoever asks from it."""

    network: Network
    meaning: str
    is_metadata: bool = False


def _ranges(*rows: tuple[str, str]) -> tuple[Range, ...]:
    return tuple(Range(ip_network(network), meaning) for network, meaning in rows)


METADATA: Final[Sequence[Range]] = tuple(
    Range(ip_network(address), meaning, is_metadata=True)
    for address, meaning in (
        ("169.254.0.0/16", "link-local and metadata services"),
        ("100.100.100.200/32", "a metadata service"),
        ("168.63.129.16/32", "a metadata service"),
        ("fd00:ec2::254/128", "a metadata service"),
        ("fe80::/10", "link-local"),
    )
)

FORBIDDEN: Final[Sequence[Range]] = (
    *METADATA,
    *_ranges(
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "loopback"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarks"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved and broadcast"),
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discarded"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "unique-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    ),
)
"""The first range that holds an address names it."""


@lru_cache(4096)
def forbidden_range(address: Address) -> Range | None:
    """The range for whose sake a webhook must not reach this address; None where it may."""
    return next((row for row in FORBIDDEN if address in row.network), None)
