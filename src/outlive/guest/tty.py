"""Start a program on a PTY of its own: a session whose controlling terminal it is."""

import errno
import fcntl
import os
import signal
import socket
import struct
import sys
import termios
from typing import NamedTuple

from outlive.guest.foreground import is_blind, stay_in_session
from outlive.guest.spawn import Program, not_started


class Size(NamedTuple):
    columns: int
    rows: int


class Started(NamedTuple):
    pid: int  # also of its session and process group
    master: int
    slave: str  # the path of the program's side
    lookout: socket.socket | None  # to a process in the session, where the kernel needs one (`foreground.py`)


def set_size(descriptor: int, size: Size) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def unread_keys(slave: str) -> int | None:
    """Bytes that were typed and wait in the PTY; None if it does not say. For a program that reads whole lines those of
    one that is not entered are not counted."""
    try:
        descriptor = os.open(slave, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def start(program: Program, size: Size) -> Started:
    """Fork: a terminal needs its own code between fork and exec, and there are few of them."""
    master, slave = os.openpty()
    said, saying = os.pipe2(os.O_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) if is_blind(master) else (None, None)
    try:
        set_size(slave, size)
        path = os.ttyname(slave)
        if os.getuid() == 0:
            os.fchown(slave, program.user.uid, program.user.gid)
        pid = os.fork()
        if pid == 0:
            _become(program, slave, saying, theirs)
        os.close(saying)
        saying = -1
        if code := os.read(said, 16):
            os.waitpid(pid, 0)
            number = abs(int(code))
            raise not_started(program, OSError(number, os.strerror(number), program.cwd if int(code) < 0 else None))
    except BaseException:
        os.close(master)
        if ours is not None:
            ours.close()
        raise
    finally:
        for descriptor in (slave, said, *([saying] if saying >= 0 else [])):
            os.close(descriptor)
        if theirs is not None:
            theirs.close()
    return Started(pid, master, path, ours)


def _become(program: Program, slave: int, saying: int, lookout: socket.socket | None) -> None:
    """In the child: never returns. Says what went wrong by its number, below zero if that was the directory."""
    sign = ""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.login_tty(slave)
        if lookout is not None:
            stay_in_session(lookout)
        if os.getuid() == 0:
            os.setgroups(program.user.groups)
            os.setresgid(program.user.gid, program.user.gid, program.user.gid)
            os.setresuid(program.user.uid, program.user.uid, program.user.uid)
        sign = "-"
        os.chdir(program.cwd)
        sign = ""
        os.execvpe(program.argv[0], list(program.argv), dict(program.env))  # noqa: S606  # what it is for
    except OSError as error:
        os.write(saying, f"{sign}{error.errno or errno.EINVAL}".encode())
    finally:
        os._exit(127)
