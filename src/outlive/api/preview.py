"""What passes between a caller of a preview and the server in the machine, header by header. Pure.

Code in a machine is anybody's code. So:
Rule 1: what lets the caller in here never gets there: `Authorization`, our own cookies, what other proxies said.
Rule 2: what it answers cannot act for our origin: every answer is sandboxed (no scripts with our origin's rights), its
        cookies are bound to the preview's own path, and headers that speak for a whole host are left out.
Rule 3: one reading of every message: both sides are parsed strictly, lengths are told anew, and what concerns one
        connection (hop-by-hop) is never passed on.
"""

import re
from collections.abc import Iterable, Sequence

Header = tuple[bytes, bytes]

SANDBOX = b"sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
OUR_COOKIES = re.compile(rb"(?:__Host-|__Secure-)?outlive", re.IGNORECASE)

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
_OURS = frozenset({b"host", b"authorization", b"cookie", b"origin", b"expect", b"forwarded", b"idempotency-key"})
_OF_A_HOST = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"nel",
        b"origin-agent-cluster",
        b"public-key-pins",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"strict-transport-security",
        b"www-authenticate",
        b"date",
        b"server",
    }
)


def request_headers(
    given: Iterable[Header], *, port: int, prefix: str, scheme: str, client: str | None, is_upgrade: bool = False
) -> list[Header]:
    """What the server in the machine is told."""
    given = list(given)
    dropped = _HOP_BY_HOP | _OURS | _named_by_connection(given)
    passed = [(n, v) for n, v in given if n not in dropped and not n.startswith(b"x-forwarded-")]
    host = f"localhost:{port}".encode()
    told: list[Header] = [(b"host", host), *passed]
    if any(name == b"origin" for name, _ in given):
        told.append((b"origin", b"http://" + host))  # the gate let only our own pass; there it is its own
    if cookies := _their_cookies(value for name, value in given if name == b"cookie"):
        told.append((b"cookie", cookies))
    outer = next((value for name, value in given if name == b"host"), b"")
    told += [
        (b"x-forwarded-host", outer),
        (b"x-forwarded-proto", scheme.encode()),
        (b"x-forwarded-prefix", prefix.encode()),
    ]
    if client is not None:
        told.append((b"x-forwarded-for", client.encode()))
    has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in given)
    if is_upgrade:
        told += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    elif has_body and not any(name == b"content-length" for name, _ in passed):
        told.append((b"transfer-encoding", b"chunked"))
    return told


def response_headers(given: Iterable[Header], *, port: int, prefix: str) -> list[Header]:
    """What the caller is told."""
    given = [(name.lower(), value) for name, value in given]
    dropped = _HOP_BY_HOP | _OF_A_HOST | _named_by_connection(given)
    told: list[Header] = []
    for name, value in given:
        if name in dropped:
            continue
        if name == b"set-cookie":
            if (cookie := bound_cookie(value, prefix)) is not None:
                told.append((name, cookie))
        elif name in (b"location", b"content-location"):
            told.append((name, moved(value, port, prefix)))
        else:
            told.append((name, value))
    # Beside its own policy, if it has one: browsers keep to both.
    return [*told, (b"content-security-policy", SANDBOX), (b"referrer-policy", b"no-referrer")]


def bound_cookie(value: bytes, prefix: str) -> bytes | None:
    """A cookie of the machine, for its own preview only; None for one that takes a name of ours."""
    first, *attributes = [part.strip() for part in value.split(b";")]
    name = first.partition(b"=")[0].strip()
    if b"=" not in first or not name or OUR_COOKIES.match(name) or name.lower().startswith((b"__host-", b"__secure-")):
        return None
    kept = [part for part in attributes if part.partition(b"=")[0].strip().lower() not in (b"path", b"domain")]
    return b"; ".join([first, *(part for part in kept if part), b"Path=" + prefix.encode() + b"/"])


def moved(value: bytes, port: int, prefix: str) -> bytes:
    """Where a redirect leads, seen from outside: within the preview, if it leads to the server itself."""
    own = re.match(rb"https?://(?:localhost|127\.0\.0\.1|\[::1\]):%d(?=[/?#]|\Z)" % port, value, re.IGNORECASE)
    path = value[own.end() :] or b"/" if own else value
    is_local = bool(own) or (path.startswith(b"/") and not path.startswith((b"//", b"/\\")))
    begun = prefix.encode()
    if not is_local or path == begun or path.startswith((begun + b"/", begun + b"?")):
        return path
    return begun + (path if path.startswith(b"/") else b"/" + path)


def _their_cookies(given: Iterable[bytes]) -> bytes:
    pairs = [pair.strip() for value in given for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair and not OUR_COOKIES.match(pair))


def _named_by_connection(given: Sequence[Header]) -> frozenset[bytes]:
    return frozenset(
        word.strip().lower() for name, value in given if name == b"connection" for word in value.split(b",")
    )
