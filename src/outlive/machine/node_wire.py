"""What the API and a node say to each other: addresses, paths, lines. A wire format; nothing here acts.

    GET|POST|PUT|DELETE /machines/{machine}/{generation}/...   HTTP/1.1 with `Authorization: Bearer`, JSON or raw bytes
    splice: one line {token, machine, generation, port}, one line {} or a problem, then raw bytes both ways
    attach: the same with {terminal, attach} in place of the port, then frames with their length both ways

Both ends are of one release or of two that follow each other: shapes only gain fields with defaults.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from outlive.base import (
    BrokenError,
    ConflictError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    FencedError,
    InvalidError,
    Kind,
    MachineId,
    NotFoundError,
    OutliveError,
    TerminalId,
    UnauthenticatedError,
    UnavailableError,
)
from outlive.machine.door import Output
from outlive.machine.status import Effect
from outlive.machine.terminal.door import Act, AttachTerminal
from outlive.machine.terminal.status import Operator

JSON_LIMIT = 8 * 1024 * 1024  # of a request; an escaped stdin takes six bytes for one
STDIN_PIECE_LIMIT = 1024 * 1024
SPLICE_LINE_LIMIT = 4 * 1024

_UNIX = "unix:"
_SPLICE_SUFFIX = ".splice"

_CLASSES: dict[Kind, type[OutliveError]] = {
    cls.kind: cls
    for cls in (
        InvalidError,
        UnauthenticatedError,
        DeniedError,
        NotFoundError,
        ConflictError,
        FencedError,
        ExhaustedError,
        UnavailableError,
        DeadlineError,
        BrokenError,
    )
}
assert _CLASSES.keys() == set(get_args(Kind))
# What is said in other ways, or is a name that the constructor has for something else.
_NO_FACTS = frozenset({"type", "title", "status", "detail", "kind", "code", "self", "message", "retry_after_s"})


# ── addresses ──


class NodeAddress(NamedTuple):
    """Where a node is: a unix socket, or a host and a port with TLS."""

    path: str = ""
    host: str = ""
    port: int = 0

    @property
    def splice(self) -> "NodeAddress":
        """Where its raw connections are taken: the socket beside, or the next port."""
        if self.path:
            return NodeAddress(path=self.path + _SPLICE_SUFFIX)
        return NodeAddress(host=self.host, port=self.port + 1)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return _UNIX + self.path if self.path else f"https://{host}:{self.port}"


def parse_address(text: str) -> NodeAddress:
    """`unix:/path` or `https://host:port`."""
    if text.startswith(_UNIX + "/"):
        return NodeAddress(path=text.removeprefix(_UNIX))
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or port >= 65_535 or parts.scheme != "https" or parts.path.strip("/") or parts.query:
        raise InvalidError(
            "node.address", f"{text!r} is no address of a node: it is unix:/path, or https://host:port (up to 65534)."
        )
    return NodeAddress(host=host, port=port)


# ── problems ──


def error_of(problem: Any) -> OutliveError:
    """The error that a node's problem document stands for: the same kind and code that the node raised."""
    if isinstance(problem, Mapping):
        kind, code = problem.get("kind"), problem.get("code")
        if isinstance(kind, str) and kind in _CLASSES and isinstance(code, str):
            detail = problem.get("detail") or problem.get("title") or code
            facts: dict[str, Any] = {
                name: value
                for name, value in problem.items()
                if isinstance(name, str) and name not in _NO_FACTS and isinstance(value, str | int | float | bool)
            }
            return _CLASSES[kind](code, str(detail), **facts)
    return garbled("it refused without saying why")


def garbled(why: str) -> BrokenError:
    return BrokenError("node.garbled", f"A node's answer makes no sense: {why}.")


# ── the output of a command, line by line ──


def output_line(piece: Output) -> bytes:
    data = base64.b64encode(piece.data).decode("ascii")
    return orjson.dumps({"stream": piece.stream, "offset": piece.offset, "data": data}) + b"\n"


def effect_line(effect: Effect) -> bytes:
    return b'{"effect":' + effect.model_dump_json().encode() + b"}\n"


def problem_line(problem: bytes) -> bytes:
    return b'{"problem":' + problem + b"}\n"


def parse_line(line: bytes) -> Output | Effect:
    """What one line says; raises what it tells of."""
    try:
        told = orjson.loads(line)
        if "effect" in told:
            return Effect.model_validate(told["effect"])
        if "problem" not in told:
            return Output(told["stream"], int(told["offset"]), base64.b64decode(told["data"], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error, ValidationError):
        raise garbled("a line of output is not one") from None
    raise error_of(told["problem"])


# ── raw connections ──


class SpliceRequest(BaseModel):
    """The first line of a raw connection: to a port of the machine, or to one of its terminals."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    token: str
    machine: MachineId
    generation: int
    port: int | None = None
    terminal: TerminalId | None = None
    attach: AttachTerminal | None = None


class ActRequest(BaseModel):
    """What somebody does to a terminal."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    operator: Operator
    act: Act
