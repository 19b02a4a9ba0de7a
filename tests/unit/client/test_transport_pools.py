"""Which connections a client uses: those to this host's own loopback know no proxy and trust nobody."""

from collections.abc import Iterator

import anyio
import pytest

from outlive.base import ConflictError
from outlive.client.endpoint import Endpoint
from outlive.client.transport import Transport

PLAIN = Endpoint("http://127.0.0.1:1", "token", is_from_file=True)
WITH_TLS = Endpoint("https://127.0.0.1:1", "token", is_from_file=True)


def test_a_stack_that_comes_back_with_tls_is_reached_by_what_the_environment_trusts() -> None:
    async def run() -> None:
        found: Iterator[Endpoint] = iter([PLAIN, WITH_TLS, PLAIN])
        transport = Transport(lambda: next(found))
        plain = transport._http
        transport.look_again()
        assert (plain.trust_env, transport._http.trust_env) == (False, True)
        transport.look_again()
        assert transport._http is plain
        await transport.aclose()

    anyio.run(run)


def test_a_closed_client_opens_nothing() -> None:
    async def run() -> None:
        transport = Transport(lambda: PLAIN)
        await transport.aclose()
        with pytest.raises(ConflictError, match="closed"):
            await transport.call("GET", "/conversations")

    anyio.run(run)
