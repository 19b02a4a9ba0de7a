"""Paths as a model writes them: inside the machine, from the working directory. Pure."""

import posixpath

WORKSPACE = "/workspace"


def in_machine(path: str) -> str:
    """The absolute path. `..` goes up the way it reads."""
    return posixpath.normpath(posixpath.join(WORKSPACE, path)) if path else WORKSPACE


def as_shown(path: str) -> str:
    """From the working directory, for what is in it."""
    if path == WORKSPACE:
        return "."
    return path.removeprefix(f"{WORKSPACE}/")
