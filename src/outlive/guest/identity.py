"""Which machine this is, and which generation of it. Grows with every boot and restore; never goes back.

A fork is a copy of a live machine that must not go on as its twin: it gets its own machine-id and host name, and its
randomness is seeded anew. After every wake the machine's own hook is told.
"""

import os
import socket
import stat
from collections.abc import Callable
from typing import Literal

from outlive.guest.complaints import complain
from outlive.guest.groups import end_group
from outlive.guest.loop import Loop
from outlive.guest.spawn import Program, environment, spawn
from outlive.guest.users import Users
from outlive.guest.wire import VERSION, WireError, Words

HOOK = "/etc/outlive/after_wake"
_HOOK_S = 30.0

Welcome = Literal["boot", "again", "wake", "fork"]


def decide_welcome(had_machine: str, had_generation: int, machine: str, generation: int) -> Welcome:
    """What a welcome means to a guest that was this machine, in this generation, before."""
    if not had_machine:
        return "boot"
    if machine != had_machine:
        return "fork"
    if generation < had_generation:
        raise WireError(f"generation {generation} is over: this machine has been {had_generation}")
    return "wake" if generation > had_generation else "again"


class Identity:
    def __init__(self, loop: Loop, users: Users, *, owns_machine: bool) -> None:
        self._loop = loop
        self._users = users
        self._owns_machine = owns_machine  # False: an ordinary process of a test, which changes nothing around it
        self.boot = os.urandom(16).hex()
        self.machine = ""
        self.generation = 0
        self.env: dict[str, str] = {}

    def hello(self) -> Words:
        return {"version": VERSION, "boot": self.boot, "machine": self.machine, "generation": self.generation}

    def welcome(self, words: Words) -> None:
        machine, generation, env = words.get("machine"), words.get("generation"), words.get("env")
        if not isinstance(machine, str) or not isinstance(generation, int) or not isinstance(env, dict):
            raise WireError("this is no welcome")
        what = decide_welcome(self.machine, self.generation, machine, generation)
        self.machine, self.generation = machine, generation
        self.env = {str(name): str(value) for name, value in env.items()}
        if what in ("boot", "fork"):
            self._become(str(words.get("hostname", "")), str(words.get("seed", "")))
        if what in ("wake", "fork"):
            self._run_hook(what)

    def _become(self, hostname: str, seed: str) -> None:
        """Nothing in the guest draws on a generator of its own: what it needs it asks the system for, each time."""
        if not self._owns_machine:
            return
        steps: list[tuple[str, Callable[[], object]]] = [
            ("/dev/urandom", lambda: _write("/dev/urandom", seed)),
            ("/etc/machine-id", lambda: _write("/etc/machine-id", self.machine.rpartition("_")[2][:32])),
        ]
        if hostname and hostname != socket.gethostname():
            steps.append(("/etc/hostname", lambda: _write("/etc/hostname", hostname)))
            steps.append(("the host name", lambda: socket.sethostname(hostname)))
        for name, step in steps:
            try:
                step()
            except OSError as error:  # read-only, or without the right to: the machine is of use all the same
                complain(f"{name} was not set: {error}")

    def _run_hook(self, why: str) -> None:
        try:
            found = os.stat(HOOK)
        except OSError:
            return
        # It runs as root: only root may have written it.
        if not self._owns_machine or found.st_uid != 0 or found.st_mode & 0o022 or not found.st_mode & 0o100:
            return
        if not stat.S_ISREG(found.st_mode):
            return
        root = self._users.find("root")
        nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            pid = spawn(Program([HOOK, why], environment(root, self.env), "/", root), nothing, nothing, nothing)
        finally:
            os.close(nothing)
        self._hook = pid
        self._loop.after(_HOOK_S, lambda: self._end_hook(pid))

    def _end_hook(self, pid: int) -> None:
        if self._hook == pid:
            end_group(self._loop, pid)

    _hook = 0

    def reaped(self, pid: int) -> None:
        if pid == self._hook:
            self._hook = 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(f"{text}\n")
