"""Egress rules and verdicts: what is listed is allowed, in whatever spelling; nothing else is, in none."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import ExhaustedError, InvalidError
from outlive.governance.egress import (
    RULES_LIMIT,
    Address,
    Allow,
    Deny,
    decide,
    decide_address,
    host_text,
    is_public,
    parse_host,
    parse_rule,
    parse_rules,
    unmapped,
)

_LABELS = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
_NAMES = st.lists(_LABELS, min_size=1, max_size=4).map(".".join)
_PORTS = st.integers(1, 0xFFFF)
_ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


def _rule_for(address: Address, port: int | str) -> str:
    return f"{host_text(address)}:{port}"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Example.COM:443", "example.com:443"),
        ("example.com.:443", "example.com:443"),
        (" example.com:* ", "example.com:*"),
        ("*.Example.com:443", "*.example.com:443"),
        ("bücher.example:80", "xn--bcher-kva.example:80"),
        ("*.BÜCHER.example:80", "*.xn--bcher-kva.example:80"),
        ("日本語。jp:80", "xn--wgv71a119e.jp:80"),
        ("_srv.example.com:1", "_srv.example.com:1"),
        ("10.1.2.3:65535", "10.1.2.3:65535"),
        ("10.1.0.0/16:5432", "10.1.0.0/16:5432"),
        ("[2001:DB8::7]:443", "[2001:db8::7]:443"),
        ("[fd12::/32]:*", "[fd12::/32]:*"),
    ],
)
def test_a_rule_has_one_spelling_and_reads_back_as_itself(text: str, written: str) -> None:
    assert str(parse_rule(text)) == written
    assert parse_rule(written) == parse_rule(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("example.com", "no port"),
        (":443", "no port"),
        ("[2001:db8::7]", "no port"),
        ("example.com:", "neither a number"),
        ("example.com:0", "neither a number"),
        ("example.com:0443", "neither a number"),
        ("example.com:+443", "neither a number"),
        ("example.com:65536", "neither a number"),
        ("example.com:٤٤٣", "neither a number"),
        ("https://example.com:443", "without brackets"),
        ("2001:db8::7:443", "without brackets"),
        ("[2001:db8::7:443", "without brackets"),
        ("[10.0.0.1]:80", "for IPv6"),
        ("*:443", "neither its port"),
        ("a.*.example:443", "neither its port"),
        ("*x.example:443", "neither its port"),
        ("*.10.0.0.1:443", "neither a host name"),
        ("127.1:80", "neither a host name"),
        ("0x7f.0.0.1:80", "neither a host name"),
        ("1.2.3.04:80", "neither a host name"),
        ("-a.example:80", "neither a host name"),
        ("a..example:80", "neither a host name"),
        (f"{'a' * 64}.example:80", "neither a host name"),
        ("a b.example:80", "neither a host name"),
        ("\u0662.example\u3002\u0661:80", "not a host name"),
        ("10.1.2.3/16:80", "host bits"),
        ("10.0.0.0/255.0.0.0:80", "a mask"),
        ("0.0.0.0/0:80", "wider"),
        ("[fe80::1%eth0]:80", "a zone"),
        ("[::ffff:10.0.0.1]:80", "write it as IPv4"),
        ("a" * 301 + ":80", "longer"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_with_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(InvalidError, match=complaint) as refused:
        parse_rules(["example.org:80", text])
    assert refused.value.code == "egress.rule_invalid"


def test_rules_are_bounded_and_each_is_kept_once() -> None:
    assert len(parse_rules(["a.test:1", "A.test.:1"])) == 1
    with pytest.raises(ExhaustedError):
        parse_rules(f"h{number}.test:1" for number in range(RULES_LIMIT + 1))


@given(st.lists(st.tuples(_NAMES, _PORTS), max_size=4), _NAMES, _PORTS)
def test_a_name_is_allowed_if_and_only_if_it_is_listed(listed: list[tuple[str, int]], name: str, port: int) -> None:
    rules = parse_rules(f"{host}:{number}" for host, number in listed)
    assert isinstance(decide(rules, name, port), Allow) is ((name, port) in listed)


@given(_NAMES, st.lists(_LABELS, min_size=1, max_size=3), _PORTS)
def test_a_name_below_a_listed_suffix_is_allowed_and_its_neighbours_are_not(
    suffix: str, below: list[str], port: int
) -> None:
    rules = parse_rules([f"*.{suffix}:{port}"])
    assert isinstance(decide(rules, f"{'.'.join(below)}.{suffix}", port), Allow)
    assert isinstance(decide(rules, suffix, port), Deny)
    assert isinstance(decide(rules, f"elsewhere{suffix}", port), Deny)
    assert isinstance(decide(rules, f"a.{suffix}.elsewhere", port), Deny)


@given(_NAMES, _PORTS, st.data())
def test_case_and_a_dot_at_the_end_change_no_verdict(name: str, port: int, data: st.DataObject) -> None:
    spelling = "".join(data.draw(st.sampled_from([letter, letter.upper()])) for letter in name)
    spelling += data.draw(st.sampled_from(["", "."]))
    assert decide(parse_rules([f"{name}:{port}"]), spelling, port) == decide(
        parse_rules([f"{spelling}:{port}"]), name, port
    )
    assert isinstance(decide(parse_rules([f"{name}:{port}"]), spelling, port), Allow)


@given(st.text(max_size=20), st.integers(-5, 70_000))
def test_any_text_gets_a_verdict_and_without_rules_it_is_no(host: str, port: int) -> None:
    assert isinstance(decide((), host, port), Deny)


@given(_NAMES, _PORTS)
def test_a_denial_names_the_rule_that_would_allow_it(name: str, port: int) -> None:
    denial = decide((), name, port)
    assert isinstance(denial, Deny)
    assert denial.needed is not None
    assert isinstance(decide(parse_rules([denial.needed]), name, port), Allow)


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "1.2.3.4.5", "::1", "[::1", "[127.0.0.1]"),
        *("[fe80::1%eth0]", "a_b..c", "exa mple.com", "example.com:80", "example.com..", "bücher.example"),
        *("a\0.example", "example.com/", "user@example.com", "１.example.１", f"{'a.' * 127}aa"),
    ],
)
def test_what_is_no_host_is_denied_whatever_the_rules(host: str) -> None:
    rules = parse_rules(["*.com:*", "*.example:*", "127.0.0.0/8:*", "[fe80::/10]:*"])
    assert decide(rules, host, 80) == Deny("host_invalid", None)


def test_a_name_rule_never_covers_an_address_and_an_address_rule_never_a_name() -> None:
    assert isinstance(decide(parse_rules(["*.test:*"]), "10.0.0.1", 80), Deny)
    assert isinstance(decide(parse_rules(["10.0.0.1:*"]), "a.test", 80), Deny)


def test_a_mapped_address_is_the_address_it_maps() -> None:
    assert parse_host("[::ffff:10.0.0.1]") == IPv4Address("10.0.0.1")
    assert isinstance(decide(parse_rules(["10.0.0.1:80"]), "[::ffff:10.0.0.1]", 80), Allow)


NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.0.1 169.254.0.1 172.16.0.1 172.31.255.255
192.0.0.8 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1
255.255.255.255 :: ::1 ::10.0.0.1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1 fc00::1
fd12::1 fe80::1 fec0::1 ff02::1 2001::1 2001:db8::1 2002:7f00:1::1 3fff::1 4000::1
""".split()
PUBLIC = (
    "1.1.1.1 8.8.8.8 100.128.0.1 172.32.0.1 192.0.1.1 223.255.255.255 2606:4700::1111 2a00::1 ::ffff:8.8.8.8".split()
)
METADATA = "169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 ::ffff:169.254.169.254".split()


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_reached_only_if_it_is_listed(text: str) -> None:
    address = ip_address(text)
    assert not is_public(address)
    denial = decide_address(parse_rules(["a.test:80", "*.test:*"]), address, 80)
    assert isinstance(denial, Deny)
    assert denial.why == "address_not_public"
    assert denial.needed is not None
    assert isinstance(decide_address(parse_rules([denial.needed]), address, 80), Allow)
    assert isinstance(decide_address(parse_rules([denial.needed]), address, 81), Deny)


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_needs_no_rule_of_its_own(text: str) -> None:
    assert decide_address((), ip_address(text), 443) == Allow(None)


@pytest.mark.parametrize("text", METADATA)
def test_an_address_that_hands_out_credentials_is_not_opened_by_a_network(text: str) -> None:
    address = ip_address(text)
    networks = "100.0.0.0/8:* 168.0.0.0/8:* 169.254.0.0/16:* 192.0.0.0/24:* [fd00::/8]:*".split()
    denial = decide_address(parse_rules(networks), address, 80)
    assert isinstance(denial, Deny)
    assert denial.why == "address_metadata"
    assert denial.needed is not None
    assert isinstance(decide_address(parse_rules([*networks, denial.needed]), address, 80), Allow)


@given(_ADDRESSES, _PORTS)
def test_an_address_is_allowed_only_if_it_is_public_or_listed(address: Address, port: int) -> None:
    unlisted = decide_address((), address, port)
    if isinstance(unlisted, Deny):
        assert unlisted.needed is not None
        assert isinstance(decide_address(parse_rules([unlisted.needed]), address, port), Allow)
    else:
        # Every private range of the standard library is refused; ours refuses more.
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_a_mapped_address_gets_the_verdict_of_what_it_maps(address: IPv4Address) -> None:
    mapped = IPv6Address(f"::ffff:{address}")
    assert decide_address((), mapped, 80) == decide_address((), address, 80)


@given(st.ip_addresses(v=6, network=IPv6Network("64:ff9b::/96")))
def test_an_address_behind_a_translator_is_not_public(address: IPv6Address) -> None:
    assert isinstance(decide_address((), address, 80), Deny)


@given(_ADDRESSES, _ADDRESSES, _PORTS)
def test_listing_one_address_opens_no_other(listed: Address, asked: Address, port: int) -> None:
    if isinstance(listed, IPv6Address) and listed.ipv4_mapped is not None:
        return
    rules = parse_rules([_rule_for(listed, port)])
    if unmapped(asked) != listed:
        assert decide_address(rules, asked, port) == decide_address((), asked, port)
