"""The HTTP that the egress proxy speaks: what a request asks for, what is passed on, and how a refusal reads. No I/O.

Rule 1: a request names its target once. `Host` says the same as the request line, or the request is refused.
Rule 2: nothing is passed on as it came. The head is parsed, its hop-by-hop fields are dropped, and it is written anew,
        so two readers of the same bytes cannot disagree on where a message ends.
"""

from typing import NamedTuple

import h11

from outlive.governance.egress import Deny, host_text, parse_host, parse_port

HEAD_LIMIT = 32 * 1024  # bytes of a request line and its fields

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    name.encode()
    for name in (
        "connection keep-alive proxy-connection proxy-authenticate proxy-authorization proxy-status "
        "te trailer transfer-encoding upgrade"
    ).split()
)
_NEVER_NOMINATED = frozenset((b"host", b"content-length", b"transfer-encoding"))
_VIA = (b"via", b"1.1 outlive")


class Head(NamedTuple):
    """A request that can be judged. `host` is in its one spelling; `target` and `headers` are for the origin."""

    method: str
    host: str
    port: int
    target: bytes
    headers: Headers

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"


class Refusal(NamedTuple):
    """An answer of our own. `error` is a type of RFC 9209 (Proxy-Status), `why` is what is recorded."""

    status: int
    phrase: str
    error: str
    why: str
    text: str

    def to_bytes(self) -> bytes:
        body = f"Outlive: {self.text}\n".encode()
        details = self.text.partition("\n")[0].encode("ascii", "replace").decode()
        details = details.replace("\\", "\\\\").replace('"', '\\"')
        lines = (
            f"HTTP/1.1 {self.status} {self.phrase}",
            f'Proxy-Status: outlive; error={self.error}; details="{details}"',
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode("ascii") + body


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def read_head(request: h11.Request) -> Head | Refusal:
    """What a request asks for. h11 has seen to it that it is well formed and has at most one Host."""
    fields: Headers = list(request.headers)
    wrong = _framing_fault(request, fields)
    if wrong is not None:
        return bad_request(wrong)
    if request.method == b"CONNECT":
        return _read_tunnel(request, fields)
    return _read_plain(request, fields)


def _read_tunnel(request: h11.Request, fields: Headers) -> Head | Refusal:
    authority = _split_authority(request.target, None)
    if authority is None:
        return bad_request("CONNECT needs a target of the form host:port")
    host, port = authority
    named = _split_authority(_field(fields, b"host"), port)
    if _field(fields, b"host") is not None and named != authority:
        return bad_request("the Host field names another target than the request line")
    if any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in fields):
        return bad_request("CONNECT has no body")
    return Head("CONNECT", host, port, b"", [])


def _read_plain(request: h11.Request, fields: Headers) -> Head | Refusal:
    scheme, separator, rest = request.target.partition(b"://")
    if not separator or scheme.lower() != b"http":
        return bad_request("a proxy is asked for http://host/path, or by CONNECT for everything else")
    ends = [at for at in (rest.find(mark) for mark in (b"/", b"?", b"#")) if at >= 0]
    end = min(ends, default=len(rest))
    authority, path = _split_authority(rest[:end], 80), rest[end:]
    if authority is None or b"#" in path:
        return bad_request("the target of the request is not a plain http address")
    if _field(fields, b"host") is not None and _split_authority(_field(fields, b"host"), 80) != authority:
        return bad_request("the Host field names another target than the request line")
    host, port = authority
    host_field = host if port == 80 else f"{host}:{port}"
    kept = [(name, value) for name, value in end_to_end(fields) if name not in (b"host", b"expect")]
    headers = [(b"host", host_field.encode()), *kept, _VIA, (b"connection", b"close")]
    target = path if path.startswith(b"/") else b"/" + path
    return Head(request.method.decode("ascii"), host, port, target, headers)


def end_to_end(fields: Headers) -> Headers:
    """The fields that are meant for the other end, in either direction, with the framing that the body keeps."""
    nominated = frozenset(_tokens(fields, b"connection"))
    is_chunked = _field(fields, b"transfer-encoding") is not None
    kept = [(name, value) for name, value in fields if name not in _HOP_BY_HOP and name not in nominated]
    if not is_chunked:
        return kept
    # Chunks outrank a length (RFC 9112, 6.3); passing both on would let the next reader choose.
    return [*((n, v) for n, v in kept if n != b"content-length"), (b"transfer-encoding", b"chunked")]


def bad_request(what: str) -> Refusal:
    text = f"this request cannot be passed on: {what}.\nSending the same again does not help."
    return Refusal(400, "Bad Request", "http_request_error", "request_invalid", text)


def denied(host: str, port: int, deny: Deny) -> Refusal:
    where = f"{host}:{port}"
    match deny.why:
        case "host_invalid":
            return bad_request(f"{where[:300]!r} does not name a host and a port")
        case "not_listed":
            error, what = "http_request_denied", f"the egress policy of this machine does not allow {where}."
        case "address_not_public":
            error, what = "destination_ip_prohibited", f"{where} leads to an address that is not public."
        case "address_metadata":
            error, what = "destination_ip_prohibited", f"{where} leads to an address that hands out credentials."
    text = (
        f"{what}\nIt would need the rule {deny.needed!r} in the egress list that it was made with, and nothing changes "
        "that list: only a new machine, made from an environment that lists it, has the rule.\n"
        "This is policy, not a fault: retrying does not help."
    )
    return Refusal(403, "Denied by the egress policy", error, deny.why, text)


def unreachable(why: str, text: str) -> Refusal:
    error = "dns_error" if why == "name_unresolved" else "destination_unavailable"
    return Refusal(502, "Bad Gateway", error, why, text)


def too_slow(why: str, text: str) -> Refusal:
    error = "dns_timeout" if why == "name_deadline" else "connection_timeout"
    return Refusal(504, "Gateway Timeout", error, why, text)


def _framing_fault(request: h11.Request, fields: Headers) -> str | None:
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if codings and any(name == b"content-length" for name, _ in fields):
        return "it has both a Content-Length and a Transfer-Encoding"
    if codings and (request.http_version < b"1.1" or [coding.lower() for coding in codings] != [b"chunked"]):
        return "its Transfer-Encoding is not chunked"
    if _NEVER_NOMINATED & frozenset(_tokens(fields, b"connection")):
        return "its Connection field names a field that is not hop-by-hop"
    return None


def _tokens(fields: Headers, wanted: bytes) -> list[bytes]:
    values = b",".join(value for name, value in fields if name == wanted)
    return [token for part in values.split(b",") if (token := part.strip().lower())]


def _field(fields: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in fields if name == wanted), None)


def _split_authority(authority: bytes | None, default_port: int | None) -> tuple[str, int] | None:
    """Host and port, each in its one spelling; the host as it came where it is none (its verdict says so)."""
    if authority is None or not authority.isascii() or b"@" in authority:
        return None
    text = authority.decode("ascii")
    host, port = text, default_port
    if not text.endswith("]") and ":" in text:
        host, _, port_text = text.rpartition(":")
        port = parse_port(port_text)
    if not host or port is None:
        return None
    parsed = parse_host(host)
    return (host if parsed is None else host_text(parsed)), port
