"""Whether the API answers. Standard library only: this is asked often, by small processes, before anything is up."""

import http.client
import json
import ssl
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

PATH = "/readyz"
_BODY_LIMIT = 64 * 1024


class Health(NamedTuple):
    is_ready: bool
    detail: str
    body: object = None


def probe(url: str, tls_cert: Path | None = None, timeout_s: float = 2.0) -> Health:
    """Ask the API at `url` whether it is ready. Never raises for one that is away."""
    address = urlsplit(url)
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=timeout_s, context=_trust(tls_cert)
        )
    else:
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        connection.request("GET", PATH)
        answer = connection.getresponse()
        body = answer.read(_BODY_LIMIT)
    except (OSError, http.client.HTTPException) as error:
        return Health(False, f"{url} does not answer: {error or type(error).__name__}")
    finally:
        connection.close()
    return Health(answer.status == http.client.OK, f"{PATH} answers {answer.status}", _parse(body))


def wait_until_ready(url: str, tls_cert: Path | None, within_s: float) -> Health:
    """The first answer that says ready, or the last one that does not."""
    deadline = time.monotonic() + within_s
    while not (health := probe(url, tls_cert)).is_ready and time.monotonic() < deadline:
        time.sleep(0.05)
    return health


def _trust(tls_cert: Path | None) -> ssl.SSLContext:
    # The name in the certificate is that of the outside; we ask on loopback, and send nothing that is secret.
    context = ssl.create_default_context(cafile=str(tls_cert) if tls_cert else None)
    context.check_hostname = False
    return context


def _parse(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None
