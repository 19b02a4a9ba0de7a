"""A process ends when it is told to, and in time whatever hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = """
import atexit, sys, threading, anyio
from outlive.processes.ending import open_ending

async def main(lifeline_fd, hangs):
    async with open_ending(lifeline_fd, hang_s=60 if hangs == "patiently" else 0.5) as ending:
        print("ready", flush=True)
        await ending.wait()
        print("told", flush=True)
        if hangs == "loop":
            threading.Event().wait()
        if hangs in ("task", "patiently"):
            await anyio.sleep_forever()

if sys.argv[2] == "exit":
    atexit.register(threading.Event().wait)
anyio.run(main, int(sys.argv[1]), sys.argv[2])
"""


@contextmanager
def _process(hangs: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The process, told that it is ready, and our end of its lifeline."""
    read_fd, write_fd = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(read_fd), hangs], stdout=subprocess.PIPE, pass_fds=(read_fd,), text=True
    )
    os.close(read_fd)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process, write_fd
        finally:
            process.kill()


def test_a_signal_and_the_end_of_the_lifeline_end_a_process() -> None:
    with _process("nothing") as (process, write_fd):
        process.terminate()
        assert process.wait(20) == 0
        os.close(write_fd)
    with _process("nothing") as (process, write_fd):
        os.close(write_fd)
        assert process.wait(20) == 0


@pytest.mark.parametrize("hangs", ["task", "loop", "exit"])
def test_a_process_that_hangs_in_its_end_is_ended_in_time_even_while_python_ends(hangs: str) -> None:
    with _process(hangs) as (process, write_fd):
        os.close(write_fd)
        assert process.wait(20) == -signal.SIGALRM


def test_a_second_signal_ends_a_process_at_once() -> None:
    with _process("patiently") as (process, write_fd):
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        process.terminate()
        assert process.wait(20) == 1
        os.close(write_fd)
