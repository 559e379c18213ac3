"""Where webhooks may go: URLs as clients write them, and what an operator allows beyond the public internet.

Pure: it resolves no name. The api judges URLs by it when a job is submitted, and the webhook worker judges addresses
by it whenever it is about to connect.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import quote

import idna

from jobs.addresses import FORBIDDEN, Address, Kind, Network, Range, embedded, forbidden_range

MAX_URL_LENGTH: Final = 2048
DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_ALWAYS_ALLOWED_PORT: Final = 443
_LONGEST_NAME: Final = 253
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?P<colon>:(?P<port>[0-9]{0,5}))?", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_UNSENDABLE: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_SAFE_IN_TARGET: Final = "!$%&'()*+,-./:;=?@_~[]"


class ForbiddenDestination(ValueError):
    """A webhook must not go there; the message says why, in words that follow "it ".

    `entry` is what an operator would add to the allow list so that it may; '' where nothing should be added.
    """

    def __init__(self, why: str, entry: str = "") -> None:
        super().__init__(why)
        self.entry = entry


class Destination(NamedTuple):
    """A URL in one spelling: lower case, ASCII, no credentials; `port` is always there."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def literal(self) -> Address | None:
        """The host as an address, None where it is a name."""
        return _literal(self.host)

    @property
    def authority(self) -> str:
        """What a Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"


class Rule(NamedTuple):
    """One entry of an allow list: a name, a network or (None) any host; `port` None means any."""

    where: str | Network | None
    port: int | None

    def names(self, host: str, port: int) -> bool:
        """Whether a URL with this very name, or with a literal address in this network, is meant."""
        if self.port not in (None, port):
            return False
        if isinstance(self.where, str):
            return host == self.where
        address = _literal(host)
        return self.where is not None and address is not None and address in self.where

    def holds(self, address: Address, port: int) -> bool:
        """Whether this very address is meant, whatever name led to it."""
        return not isinstance(self.where, str | None) and self.port in (None, port) and address in self.where

    def names_range(self, row: Range) -> bool:
        """Whether it is a network inside this range, and not one that happens to be so wide as to hold the range."""
        return not isinstance(self.where, str | None) and row.is_named_by(self.where)


@dataclass(frozen=True, slots=True)
class AllowList:
    """What webhooks may reach beyond public addresses on port 443 over TLS."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "AllowList":
        """From entries such as `hooks.internal`, `hooks.internal:8080`, `10.1.0.0/16`, `[::1]:9000` and `:8443`.

        Raises ValueError with the entry that can't be read.
        """
        return cls(tuple(map(_rule, entries)))

    def has_named(self, host: str, port: int) -> bool:
        """Whether the operator vouches for this host: plain HTTP and any port are then fine."""
        return any(rule.names(host, port) for rule in self.rules)

    def has_port(self, host: str, port: int) -> bool:
        """Whether this port of this host may be tried."""
        return port == _ALWAYS_ALLOWED_PORT or Rule(None, port) in self.rules or self.has_named(host, port)

    def objection(self, address: Address, host: str, port: int) -> Range | None:
        """Why a connection for `host` must not go to `address`; None where it may.

        An allowed name may lead to a private address, `localhost` to loopback; to anything else that is forbidden only
        a network leads which names it, and what is inside an IPv6 address is judged as well.
        """
        forbidden = forbidden_range(address)
        if forbidden is not None and not self._opens(forbidden, address, host, port):
            return forbidden
        inside = embedded(address)
        return None if inside is None else self.objection(inside, host, port)

    def _opens(self, forbidden: Range, address: Address, host: str, port: int) -> bool:
        holding = [rule for rule in self.rules if rule.holds(address, port)]
        match forbidden.kind:
            case Kind.NEVER:
                return False
            case Kind.PRIVATE:
                return bool(holding) or self.has_named(host, port)
            case Kind.LOOPBACK if _is_localhost(host) and self.has_named(host, port):
                return True
            case _:
                return any(rule.names_range(forbidden) for rule in holding)


@lru_cache(4096)
def parse(url: str, allowed: AllowList) -> Destination:
    """The one spelling of a URL that a webhook may be sent to; raises ForbiddenDestination."""
    if len(url) > MAX_URL_LENGTH:
        raise ForbiddenDestination(f"is longer than {MAX_URL_LENGTH} characters")
    if _UNSENDABLE.search(url):
        raise ForbiddenDestination("has spaces, backslashes or control characters")
    match = _URL.fullmatch(url)
    if match is None or match["scheme"].lower() not in DEFAULT_PORTS:
        raise ForbiddenDestination("is not an https:// URL")
    if "@" in match["authority"]:
        raise ForbiddenDestination("has credentials in it, which would end up in logs")
    scheme = match["scheme"].lower()
    host, port = _host_and_port(match["authority"], DEFAULT_PORTS[scheme])
    target = quote(match["target"], safe=_SAFE_IN_TARGET)
    destination = Destination(scheme, host, port, target if target.startswith("/") else f"/{target}")
    _judge(destination, allowed)
    return destination


def _judge(destination: Destination, allowed: AllowList) -> None:
    scheme, host, port, _ = destination
    literal = destination.literal or (IPv4Address("127.0.0.1") if _is_localhost(host) else None)
    objection = allowed.objection(literal, host, port) if literal is not None else None
    entry = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if objection is not None:
        raise ForbiddenDestination(
            f"leads to an address that webhooks may not reach ({objection.meaning})",
            entry if objection.kind in (Kind.PRIVATE, Kind.LOOPBACK) else "",
        )
    if scheme != "https" and not allowed.has_named(host, port):
        raise ForbiddenDestination("must begin with https://", entry)
    if not allowed.has_port(host, port):
        raise ForbiddenDestination(f"has port {port}, which webhooks may not use", entry)


def _is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _host_and_port(authority: str, default_port: int) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ForbiddenDestination("has no host and port that can be read")
    port = int(match["port"]) if match["port"] else default_port
    if not 0 < port < 65_536:
        raise ForbiddenDestination(f"has port {port}, which does not exist")
    return _host(match["host"]), port


def _host(text: str) -> str:
    """A host in one spelling: an address as the standards write it, a name in ASCII and lower case."""
    if text.startswith("["):
        try:
            address = IPv6Address(text[1:-1])
            if address.scope_id is None:
                return str(address)
            raise ForbiddenDestination("has an IPv6 address of one link only")
        except AddressValueError:
            raise ForbiddenDestination("has an IPv6 address that can't be read") from None
    name = _ascii(text).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise ForbiddenDestination("has an address that is not written as four decimal numbers") from None
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ForbiddenDestination("has a host that can't be a name")
    return name


def _ascii(name: str) -> str:
    """A name as resolvers know it: look-alikes folded, other scripts in punycode."""
    if name.isascii():
        return name.lower()
    try:
        folded = idna.uts46_remap(name, std3_rules=False, transitional=False)
        return folded if folded.isascii() else idna.encode(folded).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise ForbiddenDestination("has a host that is not a valid international name") from None


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _rule(entry: str) -> Rule:
    try:
        if re.fullmatch(r":[0-9]+", entry, re.ASCII):
            return Rule(None, _port(entry[1:]))
        if "/" in entry or _literal(entry) is not None:
            return Rule(_network(entry), None)
        match = _AUTHORITY.fullmatch(entry)
        if match is None or not match["host"] or match["port"] == "":
            raise ValueError("not a host")
        host = _host(match["host"])
        literal = _literal(host)
        port = _port(match["port"]) if match["port"] else None
        return Rule(host if literal is None else _network(host), port)
    except ValueError as exc:
        raise ValueError(
            f"{entry!r} is none of host, host:port, network (10.0.0.0/8) and :port, each without spaces: {exc}"
        ) from None


def _network(text: str) -> Network:
    network = ip_network(text)
    named = next((row for row in FORBIDDEN if row.is_named_by(network)), None)
    if named is not None and named.kind is Kind.NEVER:
        raise ValueError(f"webhooks never go there ({named.meaning})")
    return network


def _port(digits: str) -> int:
    port = int(digits)
    if not 0 < port < 65_536:
        raise ValueError("no such port")
    return port
