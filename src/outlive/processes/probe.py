"""Whether the API answers. Standard library only: this is asked often, by small processes, before anything is up."""

import http.client
import json
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

TIMEOUT_S = 2.0
_BODY_LIMIT = 1024 * 1024
_COUNTS = {"outlive_followers": "followers", "outlive_messages_appended_total": "messages_since_start"}


class Health(NamedTuple):
    is_ready: bool
    detail: str
    body: object = None


def probe(url: str, tls_cert: Path | None = None, token: str | None = None) -> Health:
    """Ask the API at `url` whether it is ready. Never raises for one that is away. A token is needed by an API that
    listens on the network."""
    try:
        status, body = get(url, "/readyz", tls_cert, token)
    except (OSError, http.client.HTTPException) as error:
        return Health(False, f"{url} does not answer: {error or type(error).__name__}")
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return Health(status == http.client.OK, f"/readyz answers {status}", answer)


def count(url: str, tls_cert: Path | None, token: str | None) -> dict[str, int]:
    """What the API has counted since it started; empty if it does not say."""
    try:
        _, body = get(url, "/metrics", tls_cert, token)
    except (OSError, http.client.HTTPException):
        return {}
    lines = (line.partition(" ") for line in body.decode("utf-8", "replace").splitlines())
    return {_COUNTS[name]: int(float(value)) for name, _, value in lines if name in _COUNTS}


def get(url: str, path: str, tls_cert: Path | None, token: str | None) -> tuple[int, bytes]:
    """Status and body of the answer. Raises `OSError` or `HTTPException` if there is none."""
    return ask("GET", url, path, tls_cert, token, TIMEOUT_S)


def ask(
    method: str, url: str, path: str, tls_cert: Path | None, token: str | None, timeout_s: float
) -> tuple[int, bytes]:
    """The same with another method, and a deadline of its own for each answer."""
    address = urlsplit(url)
    host = address.hostname or ""
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(host, address.port, timeout=timeout_s, context=_trust(tls_cert))
    else:
        connection = http.client.HTTPConnection(host, address.port, timeout=timeout_s)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read(_BODY_LIMIT)
    finally:
        connection.close()


def _trust(tls_cert: Path | None) -> ssl.SSLContext:
    """Trust the certificate of the settings and nothing else. Its name is that of the outside; we ask on loopback."""
    context = ssl.create_default_context(cafile=str(tls_cert) if tls_cert else None)
    context.check_hostname = False
    # The file may hold a certificate without the root that vouches for it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
