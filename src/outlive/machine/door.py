"""The door to a machine that is up: commands, files, processes, ports. Straight to its node, never through Temporal.

The node implements it; the API and tool steps reach it over HTTP (`backends/node_client`). Every call names the
generation that the caller believes in: a node that has another one refuses (`machine.fenced`), and the caller reads the
record again. `machine.guest_away` (unavailable) while the machine does not answer: try again, with the same effect id.
What the machine itself refuses has the names of `guest_link/refusals`.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import anyio.abc
from pydantic import BaseModel, ConfigDict, Field, model_validator

from outlive.base import EffectId, MachineId
from outlive.machine.spec import User
from outlive.machine.status import Effect

EFFECT_ID_PATTERN = r"^[A-Za-z0-9_-]{1,128}$"
COMMAND_LIMIT = 128 * 1024  # bytes of a command, of all arguments, or of the environment
STDIN_LIMIT = 1024 * 1024
TIMEOUT_S = 600.0
TIMEOUT_LIMIT_S = 7 * 24 * 3600.0


def check_command(command: str | None, argv: tuple[str, ...] | None, env: Mapping[str, str], cwd: str) -> None:
    """That this can be handed to a program at all; a ValueError says what is wrong."""
    if argv is not None and (not argv or not argv[0]):
        raise ValueError("argv names no program")
    texts = [command or "", *(argv or ()), *env, *env.values(), cwd]
    if any("\0" in text for text in texts):
        raise ValueError("a command, its arguments and its environment hold no NUL")
    if any(not name or "=" in name for name in env):
        raise ValueError("the name of an environment variable is not empty and holds no '='")
    if sum(len(text.encode(errors="surrogatepass")) for text in texts) > COMMAND_LIMIT:
        raise ValueError(f"a command with its arguments and environment has at most {COMMAND_LIMIT} bytes")


class ExecRequest(BaseModel):
    """One command. Its digest is what an effect id stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    effect_id: EffectId = Field(pattern=EFFECT_ID_PATTERN)
    command: str | None = None  # run under `bash -c`
    argv: tuple[str, ...] | None = None
    cwd: str = "/workspace"
    env: dict[str, str] = {}
    timeout_s: float = Field(TIMEOUT_S, gt=0, le=TIMEOUT_LIMIT_S)
    stdin: str | None = None
    user: User | None = None  # None: as the environment says
    background: bool = False  # answer as soon as it was started

    @model_validator(mode="after")
    def _has_one_command(self) -> "ExecRequest":
        if (self.command is None) == (self.argv is None):
            raise ValueError("give either command or argv")
        check_command(self.command, self.argv, self.env, self.cwd)
        if len((self.stdin or "").encode(errors="surrogatepass")) > STDIN_LIMIT:
            raise ValueError(f"stdin has at most {STDIN_LIMIT} bytes; put a file into the machine instead")
        return self


def digest_of(request: ExecRequest) -> str:
    """What an effect id stands for. How one waits for it is not part of it."""
    made_of = request.model_dump_json(exclude={"effect_id", "background"})
    return hashlib.sha256(made_of.encode(errors="surrogatepass")).hexdigest()


class Output(NamedTuple):
    """A piece of what a command prints, as it prints it. Those that a follower is too slow for are left out."""

    stream: Literal["stdout", "stderr"]
    offset: int  # bytes of this stream before it
    data: bytes


FileKind = Literal["file", "directory", "symlink", "other"]


class FileEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: FileKind
    size: int
    mode: int
    modified_at: datetime
    target: str | None = None  # of a symlink


class ProcessEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    parent: int
    user: int
    state: str
    command: str
    effect: EffectId | None = None  # the command that it belongs to


class MachineDoor(Protocol):
    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        """Run it once, and return what came of it: at once if it is known already; with `background`, as soon as it
        was started. If the machine is lost meanwhile, so is the effect: that is an answer, not an error. So is one that
        cannot be started: `finished` with 127 (no such program) or 126, and the reason on its stderr, for ever."""
        ...

    def follow(self, machine: MachineId, generation: int, request: ExecRequest) -> AsyncIterator[Output | Effect]:
        """The same, with the output as it comes; the effect is last."""
        ...

    async def effect(self, machine: MachineId, generation: int, effect: EffectId) -> Effect: ...

    async def signal(self, machine: MachineId, generation: int, effect: EffectId, number: int) -> None:
        """To the whole process group of a running command. `effect.over` if it has ended."""
        ...

    async def write_stdin(
        self,
        machine: MachineId,
        generation: int,
        effect: EffectId,
        data: bytes,
        *,
        end: bool,
        offset: int | None = None,
    ) -> int:
        """For a command that was started in the background without `stdin`. With an offset (the bytes of stdin before
        `data`) it may be repeated: what has come is left out. Returns how much has come since the command's start."""
        ...

    async def stat_file(self, machine: MachineId, generation: int, path: str) -> FileEntry:
        """`file.unknown` (not_found) if there is none. Follows symlinks, inside the machine."""
        ...

    async def list_files(self, machine: MachineId, generation: int, path: str) -> Sequence[FileEntry]:
        """`file.not_a_directory` if it is none."""
        ...

    def read_file(
        self, machine: MachineId, generation: int, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """`file.not_a_file` if it is a directory or something special, `file.denied` without the right to."""
        ...

    async def write_file(
        self, machine: MachineId, generation: int, path: str, data: AsyncIterator[bytes], *, mode: int | None = None
    ) -> int:
        """Whole or not at all: written beside its place and renamed. Parents are made. Returns the bytes written.
        `file.is_a_directory`, `file.not_a_directory` (something above it is none), `machine.disk_full`."""
        ...

    async def delete_file(self, machine: MachineId, generation: int, path: str, *, recursive: bool = False) -> None:
        """`file.is_a_directory` for one, unless `recursive`."""
        ...

    async def processes(self, machine: MachineId, generation: int) -> Sequence[ProcessEntry]: ...

    async def ports(self, machine: MachineId, generation: int) -> Sequence[int]:
        """Where something listens."""
        ...

    async def connect(self, machine: MachineId, generation: int, port: int) -> anyio.abc.ByteStream:
        """A connection to a server in the machine, as from its own loopback. `port.refused` if nobody listens."""
        ...
