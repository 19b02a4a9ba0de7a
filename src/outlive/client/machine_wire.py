"""What comes over the wire about machines, as plain frozen values. Fields we do not know are left out."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from outlive.base import InvalidError, NotFoundError, OutliveError, is_id
from outlive.client.problems import error_of
from outlive.client.wire import decode, garbled

StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """A machine as the server showed it when it was last asked."""

    id: str
    name: str | None
    state: str
    desired: str | None
    generation: int
    node: str | None
    environment: str
    conversation: str | None
    checkpoint: str | None
    reason: str | None
    created_at: str | None
    changed_at: str | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What came of a command. `outcome`: finished, timeout, lost; started for one that goes on in the background."""

    effect_id: str
    outcome: str
    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool  # stdout and stderr here are only the beginning
    cut_bytes: int = 0  # that were printed beyond what the machine may keep, and are gone

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of what a command prints. Those of one stream join without a gap."""

    stream: StreamName
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FileFacts:
    name: str
    kind: str  # file, directory, symlink, other
    size: int
    mode: int
    modified_at: str | None
    target: str | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class EgressFacts:
    """What was decided on a connection of a machine to the outside. `host` and `method` are what something in the
    machine wrote: text of a stranger."""

    n: int
    at: str
    connection: int
    method: str
    host: str
    port: int
    verdict: str  # allowed, then ended or failed; or denied
    reason: str
    address: str | None
    bytes_up: int
    bytes_down: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def machine_of(raw: Mapping[str, Any]) -> MachineFacts:
    try:
        return MachineFacts(
            id=raw["id"],
            name=raw.get("name"),
            state=raw["state"],
            desired=raw.get("desired"),
            generation=raw["generation"],
            node=raw.get("node"),
            environment=raw["environment"],
            conversation=raw.get("conversation"),
            checkpoint=raw.get("checkpoint"),
            reason=raw.get("reason"),
            created_at=raw.get("created_at"),
            changed_at=raw.get("changed_at"),
        )
    except KeyError:
        raise garbled() from None


def result_of(raw: Mapping[str, Any]) -> ExecResult:
    try:
        return ExecResult(
            effect_id=raw["effect_id"],
            outcome=raw["outcome"],
            exit_code=raw["exit_code"],
            stdout=raw["stdout"],
            stderr=raw["stderr"],
            truncated=raw["truncated"],
            cut_bytes=raw.get("cut_bytes", 0),
        )
    except KeyError:
        raise garbled() from None


def file_of(raw: Mapping[str, Any]) -> FileFacts:
    try:
        return FileFacts(raw["name"], raw["kind"], raw["size"], raw["mode"], raw.get("modified_at"), raw.get("target"))
    except KeyError:
        raise garbled() from None


def egress_of(raw: Mapping[str, Any]) -> EgressFacts:
    try:
        return EgressFacts(**{name: raw[name] for name in EgressFacts.__slots__})
    except KeyError:
        raise garbled() from None


def told_by(line: str) -> Piece | ExecResult | None:
    """What one line of a followed command says; None: nothing to show. Raises the problem that it tells of."""
    told = decode(line)
    if "result" in told:
        return result_of(told["result"])
    if isinstance(problem := told.get("problem"), Mapping):
        raise _problem(problem)
    if "stream" not in told:
        return None
    try:
        return Piece(told["stream"], int(told["offset"]), base64.b64decode(told["data"], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise garbled() from None


def _problem(problem: Mapping[str, Any]) -> OutliveError:
    status = problem.get("status")
    return error_of(status if isinstance(status, int) else 500, json.dumps(problem).encode(), None)


def checked_machine(id: str) -> str:
    # It becomes part of a path: what is no id never leaves the client.
    if not is_id(id, "mach"):
        raise NotFoundError("machine.unknown", f"There is no machine {id!r}: ids look like `mach_...`.")
    return id


def file_address(machine: str, path: str) -> str:
    """Where a file of a machine is in the API. A path without a slash in front is in /workspace."""
    if not path or "\0" in path:
        raise InvalidError("file.path", f"{path!r} is no path.")
    absolute = path if path.startswith("/") else f"/workspace/{path}"
    if ".." in absolute.split("/"):
        raise InvalidError("file.path", f"{path!r} holds `..`: say where the file is.")
    return f"/machines/{machine}/files/{quote(absolute.lstrip('/'), safe='/')}"
