"""What `outlive doctor` found, part by part."""

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from outlive.base import OutliveError
from outlive.cli.output import first_error

Level = Literal["ok", "warn", "fail"]

_INSPECT_WITHIN_S = 15.0


class Finding(NamedTuple):
    name: str
    level: Level
    detail: str
    mend: str | None = None


def look(name: str, inspect: Callable[[], str], mend: str, *, bad: Level = "fail") -> Finding:
    """What `inspect` says; at level `bad` if it raises one of our errors."""
    try:
        return Finding(name, "ok", inspect())
    except OutliveError as error:
        return Finding(name, bad, error.message, mend)


def inspect(name: str, ask: Callable[[], Awaitable[str]], mend: str, *, bad: Level = "fail") -> Finding:
    """The same for what takes its time, within bounds."""
    import anyio

    async def bounded() -> str:
        with anyio.fail_after(_INSPECT_WITHIN_S):
            return await ask()

    try:
        return Finding(name, "ok", anyio.run(bounded))
    except OutliveError as error:
        return Finding(name, bad, error.message, mend)
    except TimeoutError:
        return Finding(name, bad, f"no answer within {_INSPECT_WITHIN_S:g} s", mend)
    except BaseExceptionGroup as group:
        ours = first_error(group)
        if ours is None:
            raise
        return Finding(name, bad, ours.message, mend)
