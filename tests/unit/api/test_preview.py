"""What passes between a caller of a preview and the server in the machine, header by header."""

import pytest

from outlive.api.preview import SANDBOX, bound_cookie, moved, request_headers, response_headers

PREFIX = "/v1/machines/mach_1/ports/8000"


def _asked(*given: tuple[bytes, bytes], is_upgrade: bool = False) -> dict[bytes, bytes]:
    told = request_headers(
        [(b"host", b"outlive.example"), *given],
        port=8000,
        prefix=PREFIX,
        scheme="https",
        client="192.0.2.7",
        is_upgrade=is_upgrade,
    )
    assert len({name for name, _ in told}) == len(told)
    return dict(told)


def test_what_lets_the_caller_in_never_reaches_the_machine() -> None:
    told = _asked(
        (b"authorization", b"Bearer secret"),
        (b"cookie", b"outlive_session=secret; theirs=1; __Host-outlive=secret; OutLive=secret"),
        (b"proxy-authorization", b"Basic secret"),
        (b"idempotency-key", b"secret"),
    )
    assert b"secret" not in b" ".join(told.values())
    assert told[b"cookie"] == b"theirs=1"


def test_the_server_is_told_where_it_is_seen_and_by_nobody_else() -> None:
    told = _asked((b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-host", b"evil"), (b"forwarded", b"for=6.6.6.6"))
    assert told == {
        b"host": b"localhost:8000",
        b"x-forwarded-host": b"outlive.example",
        b"x-forwarded-proto": b"https",
        b"x-forwarded-prefix": PREFIX.encode(),
        b"x-forwarded-for": b"192.0.2.7",
    }


def test_what_concerns_one_connection_is_not_passed_on() -> None:
    told = _asked((b"connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"te", b"trailers"), (b"upgrade", b"h2c"))
    assert told.keys().isdisjoint({b"connection", b"x-mine", b"te", b"upgrade"})


def test_a_length_is_told_once_and_a_stream_as_a_stream() -> None:
    assert _asked((b"content-length", b"5"))[b"content-length"] == b"5"
    told = _asked((b"transfer-encoding", b"chunked"))
    assert told[b"transfer-encoding"] == b"chunked"
    assert b"transfer-encoding" not in _asked()


def test_an_upgrade_is_asked_for_in_our_words() -> None:
    told = _asked(
        (b"connection", b"keep-alive, Upgrade"),
        (b"upgrade", b"WebSocket"),
        (b"sec-websocket-key", b"k"),
        (b"origin", b"https://outlive.example"),
        is_upgrade=True,
    )
    assert (told[b"connection"], told[b"upgrade"], told[b"sec-websocket-key"]) == (b"Upgrade", b"websocket", b"k")
    assert told[b"origin"] == b"http://localhost:8000"


def test_every_answer_is_sandboxed_beside_its_own_policy() -> None:
    told = response_headers([(b"Content-Security-Policy", b"default-src *")], port=8000, prefix=PREFIX)
    assert [value for name, value in told if name == b"content-security-policy"] == [b"default-src *", SANDBOX]
    assert b"allow-same-origin" not in SANDBOX
    assert b"allow-top-navigation" not in SANDBOX


def test_what_speaks_for_a_whole_host_is_left_out() -> None:
    names = [b"Strict-Transport-Security", b"Clear-Site-Data", b"Service-Worker-Allowed", b"Alt-Svc", b"Keep-Alive"]
    told = response_headers([(name, b"x") for name in names], port=8000, prefix=PREFIX)
    assert {name for name, _ in told} == {b"content-security-policy", b"referrer-policy"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b"a=1", b"a=1; Path=" + PREFIX.encode() + b"/"),
        (b"a=1; Path=/; HttpOnly", b"a=1; HttpOnly; Path=" + PREFIX.encode() + b"/"),
        (b"a=1; domain=example.org;PATH=/v1; Secure", b"a=1; Secure; Path=" + PREFIX.encode() + b"/"),
        (b"outlive_session=forged", None),
        (b"__Host-outlive=forged; Path=/", None),
        (b"__Host-a=1; Path=/; Secure", None),
        (b"nameless", None),
        (b"=x", None),
    ],
)
def test_a_cookie_of_a_machine_is_bound_to_its_preview(given: bytes, told: bytes | None) -> None:
    assert bound_cookie(given, PREFIX) == told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b"/login", PREFIX.encode() + b"/login"),
        (b"http://localhost:8000/a?b", PREFIX.encode() + b"/a?b"),
        (b"http://127.0.0.1:8000", PREFIX.encode() + b"/"),
        (b"beside", b"beside"),
        (PREFIX.encode() + b"/known", PREFIX.encode() + b"/known"),
        (b"//elsewhere/x", b"//elsewhere/x"),
        (b"https://elsewhere/x", b"https://elsewhere/x"),
        (b"http://localhost:80001/x", b"http://localhost:80001/x"),
    ],
)
def test_a_redirect_stays_in_the_preview_if_it_leads_to_the_server_itself(given: bytes, told: bytes) -> None:
    assert moved(given, 8000, PREFIX) == told
