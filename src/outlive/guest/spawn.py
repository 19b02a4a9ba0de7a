"""Start a program: which file, as whom, with which environment. A session of its own, no descriptor but three.

Limits that every program inherits are set once, on the guest itself (`limits.py`): so nothing has to run between fork
and exec.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outlive.guest.refusal import RefusalError, refusal_of
from outlive.guest.users import User, acting_as

PROXY = "http://127.0.0.1:3128"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIRECT = "localhost,127.0.0.1,::1"
_MARKING = os.path.join(os.path.dirname(__file__), "shell.bash")
_SHOWN = 200  # characters of a name
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")


class Program(NamedTuple):
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    user: User


def shell() -> str:
    return next((path for path in _SHELLS if os.path.exists(path)), "/bin/sh")


def marked(argv: Sequence[str]) -> Sequence[str]:
    """An interactive bash marks its prompts and commands (`shell.bash`). Anything else is run as it is."""
    is_bash = os.path.basename(argv[0]) == "bash" and all(option == "-i" for option in argv[1:])
    return (argv[0], "--rcfile", _MARKING, *argv[1:]) if is_bash else argv


def environment(user: User, *layers: Mapping[str, str]) -> dict[str, str]:
    """A clean, small environment, and then what each layer says."""
    env = {
        "PATH": _PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    for name, value in (("HTTP_PROXY", PROXY), ("HTTPS_PROXY", PROXY), ("NO_PROXY", _DIRECT)):
        env[name] = env[name.lower()] = value
    for layer in layers:
        env.update(layer)
    return env


def spawn(program: Program, stdin: int, stdout: int, stderr: int) -> int:
    """The new process's id, which is also that of its session and process group. Whoever calls reaps it."""
    try:
        with acting_as(program.user):
            child = subprocess.Popen(  # noqa: S603  # running what it is given is what a machine is for
                program.argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=program.cwd,
                env=program.env,
                start_new_session=True,
            )
    except OSError as error:
        raise not_started(program, error) from error
    except ValueError as error:
        raise RefusalError("invalid", "bad_request", f"This cannot be started: {error}.") from error
    child.returncode = 0  # the guest reaps: `subprocess` must never wait for this one
    return child.pid


def not_started(program: Program, error: OSError) -> RefusalError:
    """`error.filename` is the directory if it was that which could not be entered."""
    kind, why = refusal_of(error).kind, error.strerror or "it failed"
    name, cwd = (repr(text[:_SHOWN]) for text in (program.argv[0], program.cwd))
    if error.filename == program.cwd != program.argv[0]:
        return RefusalError(
            kind, "no_directory", f"{name} did not start: the directory {cwd} cannot be entered: {why}."
        )
    return RefusalError(kind, "not_started", f"{name} did not start: {why}.")
