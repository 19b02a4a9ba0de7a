"""The socket that the API listens on: whether the address may be used at all, and binding it.

Rule: nobody listens on the network by accident. An address that is not loopback needs TLS, or a flag that says what it
risks.
"""

import errno
import ipaddress
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from outlive.base import ConflictError, InvalidError
from outlive.wiring.sections import ApiSettings, NodeSettings

BACKLOG = 2_048


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may come to stand for anything


def check_address(api: ApiSettings) -> None:
    """Refuse an address that would send the token over the network in the clear."""
    if is_loopback(api.host) or api.has_tls or api.allow_cleartext_network:
        return
    raise InvalidError(
        "api.cleartext_network",
        f"Refused to listen on {api.host!r} without TLS: the token and everything said would cross the network "
        "readable by anyone on the path. Set api.tls_cert and api.tls_key, or listen on 127.0.0.1 behind a proxy or "
        "SSH tunnel, or accept the risk with --allow-cleartext-network.",
        host=api.host,
    )


def check_certificate(served: ApiSettings | NodeSettings) -> None:
    """Refuse a certificate that cannot be served with, before anything is started with it."""
    if served.tls_cert is None or served.tls_key is None:
        return
    try:
        # The password is asked for by nobody here: a key that needs one is an error, not a prompt.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(served.tls_cert, served.tls_key, password=lambda: b"")
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or getattr(error, "reason", None) or str(error)
        raise InvalidError(
            "api.bad_certificate" if isinstance(served, ApiSettings) else "node.bad_certificate",
            f"The certificate {str(served.tls_cert)!r} with the key {str(served.tls_key)!r} cannot be used: {reason}. "
            "Both are PEM files, and the key has no password.",
        ) from None


def listen(api: ApiSettings) -> socket.socket:
    """A socket that listens on the address of the settings."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            api.host, api.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidError("api.bad_host", f"Cannot listen on {api.host!r}: {error.strerror}.", host=api.host) from None
    try:
        # A port whose last connections still linger may be taken again; one that somebody listens on may not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused(api, error) from None
    return listener


def _refused(api: ApiSettings, error: OSError) -> InvalidError | ConflictError:
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            "api.port_taken",
            f"Port {api.port} on {api.host} is taken by another program. Choose another with --port N (0 takes a free "
            f"one), or find who has it: ss -ltnp 'sport = :{api.port}'.",
            port=api.port,
        )
    if error.errno == errno.EACCES:
        return InvalidError(
            "api.port_forbidden",
            f"Port {api.port} needs more rights; choose one above 1023 with --port.",
            port=api.port,
        )
    return InvalidError("api.bad_host", f"Cannot listen on {api.host}:{api.port}: {error.strerror}.", host=api.host)


def url_of(api: ApiSettings, listener: socket.socket) -> str:
    """The address for clients on this host. No path."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if listener.family == socket.AF_INET6 else "127.0.0.1"
    if listener.family == socket.AF_INET6:
        host = f"[{host}]"
    return f"{'https' if api.has_tls else 'http'}://{host}:{port}"


def client_url(api: ApiSettings, url: str) -> str:
    """`url` as clients should call it: a certificate is made for a name, so with TLS by the first name of the settings,
    if they have one."""
    if api.has_tls and (name := next((name for name in api.allowed_hosts if not _is_address(name)), None)):
        return f"https://{name.lower()}:{urlsplit(url).port}"
    return url


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def allowed_hosts(api: ApiSettings) -> frozenset[str]:
    """The names that a request may call us by. A page that made its own name point here (DNS rebinding) has another."""
    # The address we are bound to is always one: the supervisor asks by it whether we are ready.
    names = {"127.0.0.1", "localhost", "[::1]", _bracket(api.host.lower())}
    names |= {name.lower() for name in api.allowed_hosts}
    if not is_loopback(api.host):
        own = socket.gethostname().lower()
        names.add(own)
        with suppress(OSError):
            names |= {_bracket(str(info[4][0])) for info in socket.getaddrinfo(own, None)}
    return frozenset(names)


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
