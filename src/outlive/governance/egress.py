"""Which hosts a machine may reach: rules, and verdicts on a host and on an address. Pure.

A rule is written `host:port`. The host is a name (`example.com`), all names below one (`*.example.com`, not
`example.com` itself), an address (`192.0.2.7`, `[2001:db8::7]`) or a network (`10.1.0.0/16`, `[fd12::/32]`). The port
is a number or `*`.

Rule 1: what is not listed is denied. There is no rule for everything.
Rule 2: hosts are compared in one spelling, label by label or as numbers; never as pieces of text.
Rule 3: a name says nothing about where it leads. Every address is judged again before it is connected to, and one
        that is not plainly public is reached only if the rules list it as an address.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal, NamedTuple

import idna

from outlive.base import ExhaustedError, InvalidError

RULES_LIMIT = 1_000
RULE_LENGTH_LIMIT = 300
_NAME_LENGTH_LIMIT = 253
_WIDEST_NETWORK = 8  # bits: a wider one would open addresses that nobody had in mind

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Why = Literal["host_invalid", "not_listed", "address_not_public", "address_metadata"]

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")

# The special-purpose registries of IANA, written out: the tables of `ipaddress` differ between Python versions.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a carrier's customers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Of IPv6 only global unicast can be public: loopback, ULA, link-local, multicast and NAT64 all lie outside of it.
_GLOBAL_UNICAST_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
)
# Where clouds hand out credentials. Listed by a network they stay closed: only the very address opens them.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "100.100.100.200",
        "168.63.129.16",  # looks public
        "169.254.169.123",
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "192.0.0.192",
        "fd00:ec2::23",
        "fd00:ec2::254",
        "fd20:ce::254",
    )
)


@dataclass(frozen=True, slots=True)
class Name:
    """One host name: labels in lower case, without the dot at the end."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.labels)


@dataclass(frozen=True, slots=True)
class Below:
    """All names below one, at any depth."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(("*", *self.labels))


Host = Name | IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Rule:
    host: Name | Below | IPv4Network | IPv6Network
    port: int | None  # None: any

    def __str__(self) -> str:
        return f"{_rule_host_text(self.host)}:{'*' if self.port is None else self.port}"


EgressRules = tuple[Rule, ...]


class Allow(NamedTuple):
    """Yes, by this rule; None if a public address needed none of its own."""

    rule: Rule | None


class Deny(NamedTuple):
    """No. `needed` is the rule that would have allowed it, if one could."""

    why: Why
    needed: str | None


def parse_rules(texts: Iterable[str]) -> EgressRules:
    """The rules of an environment, each once, in their order. `invalid` names the one that is wrong."""
    rules = tuple(dict.fromkeys(parse_rule(text) for text in texts))
    if len(rules) > RULES_LIMIT:
        raise ExhaustedError(
            "egress.too_many_rules", f"An environment may list {RULES_LIMIT} egress rules; these are {len(rules)}."
        )
    return rules


def parse_rule(text: str) -> Rule:
    if len(text) > RULE_LENGTH_LIMIT:
        raise _wrong(f"{text[:40]}...", f"is longer than {RULE_LENGTH_LIMIT} characters")
    host_text, colon, port_text = text.strip().rpartition(":")
    if not colon or not host_text or port_text.endswith("]"):
        raise _wrong(text, "has no port: write host:port, or host:* for every port")
    port = None if port_text == "*" else parse_port(port_text)
    if port is None and port_text != "*":
        raise _wrong(text, "has a port that is neither a number from 1 to 65535 nor *")
    return Rule(_parse_rule_host(text, host_text), port)


def parse_port(text: str) -> int | None:
    """A port in its one spelling: no sign, no zero in front, no foreign digits."""
    return int(text) if _PORT.fullmatch(text) and int(text) <= 0xFFFF else None


def parse_host(text: str) -> Host | None:
    """A host as a request names it, an IPv6 address in brackets; None if it is none."""
    if text.startswith("[") and text.endswith("]"):
        address = _parse_address(text[1:-1])
        return unmapped(address) if isinstance(address, IPv6Address) else None
    labels = _parse_labels(text)
    if labels is None:
        return None
    # `127.1`, `0x7f.1` and `2130706433` are addresses to some resolvers: a name does not end in a number.
    if _NUMBER.fullmatch(labels[-1]):
        address = _parse_address(".".join(labels))
        return address if isinstance(address, IPv4Address) else None
    return Name(labels)


def host_text(host: Host) -> str:
    """The host as it stands in front of a port."""
    return f"[{host}]" if isinstance(host, IPv6Address) else str(host)


def decide(rules: EgressRules, host: str, port: int) -> Allow | Deny:
    """Whether the machine may ask for this host at all. Nothing is resolved before this says yes."""
    parsed = parse_host(host)
    if parsed is None or not 1 <= port <= 0xFFFF:
        return Deny("host_invalid", None)
    rule = _first_match(rules, parsed, port)
    return Deny("not_listed", f"{host_text(parsed)}:{port}") if rule is None else Allow(rule)


def decide_address(rules: EgressRules, address: Address, port: int) -> Allow | Deny:
    """Whether an address that an allowed host leads to may be connected to."""
    address = unmapped(address)
    is_metadata = address in _METADATA
    if is_public(address) and not is_metadata:
        return Allow(None)
    listed = tuple(rule for rule in rules if not is_metadata or _is_single(rule))
    rule = _first_match(listed, address, port)
    if rule is not None:
        return Allow(rule)
    return Deny("address_metadata" if is_metadata else "address_not_public", f"{host_text(address)}:{port}")


def is_public(address: Address) -> bool:
    address = unmapped(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _GLOBAL_UNICAST_6 and not any(address in network for network in _NOT_PUBLIC_6)


def unmapped(address: Address) -> Address:
    """`::ffff:10.0.0.1` is 10.0.0.1 to the kernel, and so to us."""
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _first_match(rules: EgressRules, host: Host, port: int) -> Rule | None:
    return next((rule for rule in rules if rule.port in (None, port) and _covers(rule.host, host)), None)


def _covers(listed: Name | Below | Network, host: Host) -> bool:
    match listed, host:
        case Name(), Name():
            return listed == host
        case Below(suffix), Name(labels):
            return len(labels) > len(suffix) and labels[-len(suffix) :] == suffix
        case IPv4Network(), IPv4Address():
            return host in listed
        case IPv6Network(), IPv6Address():
            return host in listed
        case _:
            return False


def _is_single(rule: Rule) -> bool:
    return isinstance(rule.host, IPv4Network | IPv6Network) and rule.host.num_addresses == 1


def _parse_labels(text: str) -> tuple[str, ...] | None:
    if not text.isascii():
        return None
    text = text.lower().removesuffix(".")
    labels = tuple(text.split("."))
    return labels if len(text) <= _NAME_LENGTH_LIMIT and all(map(_LABEL.fullmatch, labels)) else None


def _parse_address(text: str) -> Address | None:
    # A zone (`fe80::1%eth0`) names an interface of the host: no machine's business.
    if "%" in text or not text.isascii():
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


def _parse_rule_host(rule: str, text: str) -> Name | Below | Network:
    if text.startswith("[") != text.endswith("]") or (":" in text and not text.startswith("[")):
        raise _wrong(rule, "has an IPv6 address without brackets around it")
    inner = text[1:-1] if text.startswith("[") else text
    if "/" in inner or text.startswith("["):
        return _parse_network(rule, inner, is_bracketed=text.startswith("["))
    below = text.startswith("*.")
    if "*" in text.removeprefix("*."):
        raise _wrong(rule, "has a * that is neither its port nor the whole first label (*.example.com)")
    host = parse_host(_to_ascii(rule, text.removeprefix("*.")))
    match host:
        case Name(labels):
            return Below(labels) if below else host
        case IPv4Address() if not below:
            return IPv4Network(host)
        case _:
            raise _wrong(rule, "names neither a host name nor an address")


def _parse_network(rule: str, text: str, *, is_bracketed: bool) -> Network:
    if "%" in text:
        raise _wrong(rule, "has a zone, which has no meaning for a machine")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise _wrong(rule, f"names no address and no network ({error})") from None
    if is_bracketed != isinstance(network, IPv6Network):
        raise _wrong(rule, "has brackets, which are for IPv6, around something else")
    if "/" in text and not text.partition("/")[2].isdecimal():
        raise _wrong(rule, "has a mask; write the length of the prefix instead")
    if network.prefixlen < _WIDEST_NETWORK:
        raise _wrong(rule, f"is wider than /{_WIDEST_NETWORK}; list the networks that are meant")
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise _wrong(rule, "is an IPv4 address in IPv6; write it as IPv4")
    return network


def _to_ascii(rule: str, text: str) -> str:
    if text.isascii():
        return text
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise _wrong(rule, f"is not a host name ({error})") from None


def _rule_host_text(host: Name | Below | Network) -> str:
    if isinstance(host, Name | Below):
        return str(host)
    text = str(host.network_address if host.num_addresses == 1 else host)
    return f"[{text}]" if isinstance(host, IPv6Network) else text


def _wrong(rule: str, how: str) -> InvalidError:
    return InvalidError("egress.rule_invalid", f"The egress rule {rule!r} {how}.", rule=rule)
