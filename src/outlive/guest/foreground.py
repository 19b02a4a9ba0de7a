"""Which process group is in front of a terminal, and signals to it.

Linux says so to whoever holds the PTY. gVisor says so only inside the terminal's own session, and sends no SIGWINCH
when the size changes. There a process stays behind in each session, the lookout: it looks and signals for the guest,
and ends with the terminal. It is asked over a socket and answers later, so that the guest waits for nobody.

One signal does not end a group (`groups.py`). So for SIGKILL the lookout also says whom it has sent it to, and the
guest sends it to those again: never to who is in front by then.
"""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from outlive.guest.groups import end_group, is_in_session
from outlive.guest.loop import Loop, Timer
from outlive.guest.wire import Words

_LOOK = 0  # else: the number of a signal
_NUMBER_SIZE = 4
_LOOK_S = 1.0
_WAITING_LIMIT = 64
_TERMINAL = 0  # the descriptor of it, in its session


class _Asked:
    """One question to the lookout. Its answer comes in its turn, also where nobody waits for it any more."""

    def __init__(self, then: Callable[[int], object], *, is_patient: bool = False) -> None:
        self._then: Callable[[int], object] | None = then
        self.is_patient = is_patient

    def answer(self, group: int) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(group)


class Foreground:
    """Of one terminal, whose own program is `pid`."""

    def __init__(self, loop: Loop, master: int, pid: int, lookout: socket.socket | None) -> None:
        self._loop = loop
        self._master = master
        self._pid = pid
        self._lookout = lookout
        self._came = bytearray()
        self._waiting: list[_Asked] = []
        self._timer: Timer | None = None
        if lookout is not None:
            lookout.setblocking(False)
            loop.watch(lookout.fileno(), read=self._read)

    def look(self, then: Callable[[Words | None], None]) -> None:
        """Calls `then`, now or soon: with the group in front, None if that is the terminal's own program."""
        if self._lookout is None:
            then(self._describe(_group_of(self._master)))
        elif len(self._waiting) >= _WAITING_LIMIT or not self._ask(_LOOK):
            then(None)
        else:
            self._waiting.append(_Asked(lambda group: then(self._describe(group))))
            self._timer = self._timer or self._loop.after(_LOOK_S, self._give_up)

    def kill(self, number: int) -> None:
        if self._lookout is not None:
            if self._ask(number) and number == signal.SIGKILL:
                self._waiting.append(_Asked(self.end, is_patient=True))
            return
        group = _group_of(self._master) or self._pid
        with suppress(OSError):
            os.killpg(group, number)
        if number == signal.SIGKILL:
            self.end(group)

    def end(self, group: int) -> bool:
        """SIGKILL to this group until nobody is in it, if it is of this terminal. Whether somebody was."""
        is_ours = is_in_session(group, self._pid)
        if is_ours:
            end_group(self._loop, group)
        return is_ours

    def resized(self) -> None:
        if self._lookout is not None:
            self._ask(signal.SIGWINCH)

    def close(self) -> None:
        if self._lookout is not None:
            self._receive()  # whom it has killed last
            self._loop.forget(self._lookout.fileno())
            self._lookout.close()
            self._lookout = None
            self._give_up()

    def _describe(self, group: int) -> Words | None:
        if group in (0, self._pid):
            return None
        return {"group": group, "name": _name_of(group)}

    def _ask(self, number: int) -> bool:
        try:
            return self._lookout is not None and self._lookout.send(bytes([number])) == 1
        except OSError:
            return False

    def _read(self) -> None:
        if not self._receive():
            self.close()

    def _receive(self) -> bool:
        data = b""
        if self._lookout is not None:
            with suppress(OSError):
                data = self._lookout.recv(4096)
        self._came += data
        while len(self._came) >= _NUMBER_SIZE and self._waiting:
            group = int.from_bytes(self._came[:_NUMBER_SIZE])
            del self._came[:_NUMBER_SIZE]
            self._waiting.pop(0).answer(group)
        if not self._waiting:
            self._came.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return bool(data)

    def _give_up(self) -> None:
        """Who only looks waits no longer."""
        self._timer = None
        for asked in list(self._waiting):
            if not asked.is_patient:
                asked.answer(0)


def _group_of(descriptor: int) -> int:
    """0 if there is none."""
    try:
        return max(0, os.tcgetpgrp(descriptor))
    except OSError:
        return 0


def _name_of(group: int) -> str:
    try:
        with open(f"/proc/{group}/comm", "rb") as file:
            return os.fsdecode(file.read(64)).strip()
    except OSError:
        return ""


def is_asleep(pid: int) -> bool:
    """Whether it waits for something. One that was stopped does not, nor does one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(1024).rpartition(b")")[2].split()[:1] == [b"S"]
    except OSError:
        return False


def is_blind(master: int) -> bool:
    """Whether this kernel does not say which group is in front to whoever holds the PTY."""
    try:
        os.tcgetpgrp(master)
    except OSError:
        return True
    return False


# In the session


def stay_in_session(asked: socket.socket) -> None:
    """Leave a lookout behind. Its parent is nobody in the session: no shell has to know of it."""
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            _keep_lookout(asked)
        os._exit(0)
    os.waitpid(between, 0)


def _keep_lookout(asked: socket.socket) -> None:
    """Never returns. Holds its socket and the terminal, and nothing of the guest."""
    try:
        os.setpgid(0, 0)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP):
            signal.signal(ignored, signal.SIG_IGN)
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in (_TERMINAL, asked.fileno()):
                with suppress(OSError):
                    os.close(int(name))
        while numbers := asked.recv(64):
            for number in numbers:
                _look_or_signal(asked, number)
    finally:
        os._exit(0)


def _look_or_signal(asked: socket.socket, number: int) -> None:
    group = _group_of(_TERMINAL)
    if group and number != _LOOK:
        with suppress(OSError):
            os.killpg(group, number)
    if number in (_LOOK, signal.SIGKILL):
        asked.sendall(group.to_bytes(_NUMBER_SIZE))
