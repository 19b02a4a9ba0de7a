"""Take apart what a guest says. It is a stranger: each field is checked, and what is wrong is a `WireError`.

A `WireError` ends the connection: a guest that lies once is not asked again on it.
"""

import math
import re
from collections.abc import Callable
from typing import TypeVar

from outlive.base import EffectId, OutliveError
from outlive.guest.wire import WireError, Words
from outlive.machine.command import Exit, ExitReason, HeldEffect
from outlive.machine.guest_link.refusals import KINDS, refused

COUNT_LIMIT = 2**53
TEXT_LIMIT = 16 * 1024

_IDENTITY = re.compile(r"[!-~]+")
_REASONS: dict[object, ExitReason] = {"exited": "exited", "signal": "signal", "timeout": "timeout"}
_Value = TypeVar("_Value")


def open_answer(words: Words) -> Words | OutliveError:
    """What was answered, or the refusal as one of our errors (whose text is the machine's own word)."""
    match words:
        case {"ok": dict() as said}:
            return said
        case {"error": {"kind": str(kind), "code": str(code), "message": str(message)}} if kind in KINDS:
            return refused(kind, code, message)
        case _:
            raise WireError("an answer that is neither yes nor no")


def count(words: Words, name: str, most: int = COUNT_LIMIT) -> int:
    value = words.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise WireError(f"{name!r} is no count")
    return value


def seconds(words: Words, name: str) -> float:
    value = words.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise WireError(f"{name!r} is no number of seconds")
    return float(value)


def text(words: Words, name: str, longest: int = TEXT_LIMIT) -> str:
    value = words.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise WireError(f"{name!r} is no text")
    return value


def identity(words: Words, name: str) -> str:
    """What we call something, said back to us: text that every database and every log takes."""
    value = text(words, name, 128)
    if not _IDENTITY.fullmatch(value):
        raise WireError(f"{name!r} is no id")
    return value


def flag(words: Words, name: str) -> bool:
    value = words.get(name)
    if not isinstance(value, bool):
        raise WireError(f"{name!r} is neither true nor false")
    return value


def maybe(read: Callable[[Words, str], _Value], words: Words, name: str) -> _Value | None:
    return None if words.get(name) is None else read(words, name)


def rows(words: Words, name: str, most: int) -> list[Words]:
    value = words.get(name)
    if not isinstance(value, list) or len(value) > most or not all(isinstance(row, dict) for row in value):
        raise WireError(f"{name!r} is no list")
    return value


def read_exit(words: Words) -> Exit:
    reason = _REASONS.get(text(words, "reason"))
    code, number = maybe(count, words, "code"), maybe(count, words, "signal")
    if reason is None or (code is None) == (number is None):
        raise WireError("an exit that is none")
    return Exit(
        reason=reason,
        code=code,
        signal=number,
        stdout_size=count(words, "stdout"),
        stderr_size=count(words, "stderr"),
        stdout_cut=count(words, "stdout_cut"),
        stderr_cut=count(words, "stderr_cut"),
        seconds=seconds(words, "seconds"),
    )


def read_held(words: Words) -> HeldEffect:
    found = words.get("exit")
    if found is not None and not isinstance(found, dict):
        raise WireError("an exit that is none")
    return HeldEffect(
        effect=EffectId(identity(words, "effect")),
        exit=None if found is None else read_exit(found),
        stdout_size=count(words, "stdout"),
        stderr_size=count(words, "stderr"),
        stdin_taken=maybe(count, words, "stdin"),
    )
