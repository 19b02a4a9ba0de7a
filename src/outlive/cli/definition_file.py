"""Definitions in TOML files: agents, environments. What is wrong with one is said in the words of the file."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Any, Literal

from outlive.base import InvalidError

_ROOT = "body."  # what the API calls a definition that was sent to it


def read_definition(file: Path, of: Literal["agent", "environment"]) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        dumps(found)
        return found
    except OSError as error:
        raise InvalidError(f"{of}.unreadable", f"{str(file)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidError(f"{of}.toml", f"{str(file)!r} is not UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidError(f"{of}.toml", f"{str(file)!r} is not TOML: {error}.") from None
    except TypeError:
        raise InvalidError(f"{of}.toml", f"{str(file)!r} holds a date or a time: no field is one.") from None


@contextmanager
def told_by_field() -> Iterator[None]:
    """A field that the API refuses has its name in the file."""
    try:
        yield
    except InvalidError as error:
        if not error.message.startswith(_ROOT):
            raise
        raise InvalidError(error.code, error.message.removeprefix(_ROOT)) from None
