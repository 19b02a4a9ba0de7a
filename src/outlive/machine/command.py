"""What it means to run a command in a machine: the words that the guest's link, the node and the journal share.

A command carries the effect id that its caller made before anything was done; the guest runs each id once. What it says
about it is the machine's own word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlive.base import EffectId

OUTPUT_LIMIT = 64 * 1024 * 1024
TIMEOUT_S = 600.0

Pipe = Literal["stdout", "stderr"]
ExitReason = Literal["exited", "signal", "timeout"]


@dataclass(frozen=True, slots=True)
class Command:
    """`argv` as it is, or one line for the machine's shell."""

    effect: EffectId
    argv: tuple[str, ...] | str
    cwd: str | None = None  # relative to /workspace
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None  # the environment's, if not said
    timeout_s: float | None = TIMEOUT_S
    output_limit: int = OUTPUT_LIMIT  # of both pipes; what is more is cut, and said
    has_stdin: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a command printed, and where in its pipe that was."""

    pipe: Pipe
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command's first process ended. `code` if it exited by itself, else `signal`."""

    reason: ExitReason
    code: int | None
    signal: int | None
    stdout_size: int
    stderr_size: int
    stdout_cut: int
    stderr_cut: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HeldEffect:
    """An entry of the guest's ledger. Without an exit it is running."""

    effect: EffectId
    exit: Exit | None
    stdout_size: int
    stderr_size: int
    stdin_taken: int | None = None  # bytes so far; None: it has no stdin, or it is closed


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that was followed to its end."""

    exit: Exit
    stdout: bytes
    stderr: bytes
