"""A process tells that it is ready, once, or never."""

import os

import pytest

from outlive.processes.ready import ReadyPipe, tell_ready

pytestmark = pytest.mark.anyio


async def test_a_process_that_tells_is_ready() -> None:
    pipe = ReadyPipe()
    try:
        tell_ready(os.dup(pipe.write_fd))
        pipe.passed_on()
        assert await pipe.wait() is True
    finally:
        pipe.close()


async def test_a_process_that_ends_without_telling_is_never_ready() -> None:
    pipe = ReadyPipe()
    try:
        os.close(os.dup(pipe.write_fd))
        pipe.passed_on()
        assert await pipe.wait() is False
    finally:
        pipe.close()


def test_telling_a_supervisor_that_is_gone_or_never_was_is_no_failure() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    tell_ready(write_fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write_fd)
    tell_ready(None)
