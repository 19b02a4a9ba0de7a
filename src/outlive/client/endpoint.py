"""Where the API is and how to speak to it: `$OUTLIVE_URL` and `$OUTLIVE_TOKEN`, else `$OUTLIVE_HOME/endpoint.json`."""

import ipaddress
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from outlive.base import InvalidError, UnavailableError


class Endpoint(NamedTuple):
    url: str  # without a path
    token: str | None
    is_from_file: bool = False  # then it may be another one after the stack was started again

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r})"  # the token never gets into a log by accident


def find_endpoint(url: str | None, token: str | None, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint to use: what was given, else the environment, else the file of the embedded stack."""
    given_url = url or environ.get("OUTLIVE_URL") or None
    given_token = token or environ.get("OUTLIVE_TOKEN") or None
    if given_token is not None and not (given_token.isascii() and given_token.isprintable()):
        raise InvalidError("endpoint.token", "The token holds characters that no token has. Was it copied whole?")
    if given_url is not None:
        return Endpoint(_checked(given_url), given_token)
    found = _read(home(environ) / "endpoint.json")
    return found._replace(token=given_token or found.token)


def home(environ: Mapping[str, str] = os.environ) -> Path:
    try:
        return Path(environ.get("OUTLIVE_HOME") or "~/.outlive").expanduser()
    except RuntimeError:  # `~` of a user without an entry in the password file, as in some containers
        raise UnavailableError(
            "endpoint.absent", "No stack is known: this user has no home folder. Set OUTLIVE_HOME, or OUTLIVE_URL."
        ) from None


def _read(path: Path) -> Endpoint:
    try:
        content = json.loads(path.read_bytes())
        url, token = content["url"], content["token"]
    except FileNotFoundError:
        raise UnavailableError(
            "endpoint.absent",
            f"No stack is known: there is no {str(path)!r}. Run `outlive up`, or set OUTLIVE_URL and OUTLIVE_TOKEN.",
        ) from None
    except OSError as error:
        raise UnavailableError("endpoint.unreadable", f"Cannot read {str(path)!r}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError):
        raise UnavailableError(
            "endpoint.damaged", f"{str(path)!r} is damaged. Run `outlive up`: it writes it again."
        ) from None
    if not isinstance(url, str) or not isinstance(token, str):
        raise UnavailableError("endpoint.damaged", f"{str(path)!r} is damaged. Run `outlive up`: it writes it again.")
    return Endpoint(_checked(url), token, is_from_file=True)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise InvalidError("endpoint.url", f"{url!r} is no address of an API: it looks like `http://127.0.0.1:8484`.")
    return f"{parts.scheme}://{parts.netloc}"
