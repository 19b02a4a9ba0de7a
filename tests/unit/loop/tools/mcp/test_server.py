"""MCP servers in an agent's definition."""

from ipaddress import IPv4Address
from typing import Any

import pytest
from pydantic import ValidationError

from outlive.base import DeniedError, UnavailableError
from outlive.governance.egress import Address, Name, parse_rules
from outlive.loop.backends.mcp_http import Place, judge
from outlive.loop.tools.mcp.server import McpServer


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "either a command or a url"),
        ({"command": ["x"], "url": "https://a.example"}, "either a command or a url"),
        ({"command": []}, "command"),
        ({"command": [""]}, "names a program"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": ["x"], "headers": {"A": "b"}}, "no headers"),
        ({"url": "https://a.example", "env": {"A": "b"}}, "env goes with a command"),
        ({"url": "ftp://a.example"}, "no http"),
        ({"url": "https://"}, "no http"),
        ({"url": "https://a.example:99999"}, "no http"),
        ({"url": "https://me:secret@a.example"}, "credentials"),
        ({"url": "https://a.example", "headers": {"Host": "b"}}, "not for a definition"),
        ({"url": "https://a.example", "headers": {"Accept-Encoding": "gzip"}}, "not for a definition"),
        ({"url": "https://a.example", "headers": {"Mcp-Session-Id": "b"}}, "not for a definition"),
        ({"url": "https://a.example", "headers": {"A": "b\r\nC: d"}}, "headers"),
        ({"command": ["x"], "name": "a__b"}, "name"),
        ({"command": ["x"], "name": "a" * 25}, "name"),
        ({"command": ["x"], "timeout_s": 0}, "timeout_s"),
        ({"command": ["x"], "color": "red"}, "color"),
    ],
)
def test_what_cannot_be_a_server_is_refused_with_the_reason(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        McpServer.model_validate({"name": "srv", **given})


class Names:
    """A resolver that has its own idea of the world."""

    def __init__(self, **known: str) -> None:
        self._known = known

    async def resolve(self, name: Name) -> list[Address]:
        if str(name).partition(".")[0] not in self._known:
            raise UnavailableError("egress.name_unresolved", "It leads nowhere.")
        return [IPv4Address(each) for each in self._known[str(name).partition(".")[0]].split()]

    async def connect(self, address: Address, port: int) -> Any:
        raise AssertionError("nobody connects here")


NAMES = Names(good="1.2.3.4", inside="10.0.0.7", rebound="10.0.0.8 1.2.3.5", cloud="169.254.169.254")
RULES = parse_rules(["*.example.org:443", "10.0.0.7:443", "127.0.0.1:*"])


@pytest.mark.anyio
async def test_a_server_is_asked_where_its_host_may_be_reached_and_nowhere_else() -> None:
    good = await judge("https://good.example.org/mcp", RULES, NAMES)
    assert good == Place("good.example.org", 443, (IPv4Address("1.2.3.4"),))
    assert (await judge("https://inside.example.org/", RULES, NAMES)).addresses == (IPv4Address("10.0.0.7"),)
    assert (await judge("https://rebound.example.org/", RULES, NAMES)).addresses == (IPv4Address("1.2.3.5"),)
    assert (await judge("http://127.0.0.1:8765/mcp", RULES, NAMES)).port == 8765
    for url in (
        "https://good.example.com/",
        "http://good.example.org/",
        "https://good.example.org:8443/",
        "https://cloud.example.org/",
        "http://169.254.169.254/",
        "http://[::1]/",
        "http://localhost/",
        "http://2130706433/",
    ):
        with pytest.raises(DeniedError) as caught:
            await judge(url, RULES, NAMES)
        assert caught.value.code == "mcp.denied"
    with pytest.raises(UnavailableError, match="leads nowhere"):
        await judge("https://nowhere.example.org/", RULES, NAMES)
