"""Commands in a guest: run once, kept until they are safe, never in each other's way."""

from pathlib import Path

import pytest

from outlive.base import new_effect_id
from outlive.machine.command import Command
from outlive.machine.guest_link import Guest

pytestmark = pytest.mark.anyio


def line(text: str, **rest: object) -> Command:
    return Command(new_effect_id(), text, **rest)  # type: ignore[arg-type]


async def test_a_command_gives_its_output_apart_and_its_exit_code(guest: Guest) -> None:
    done = await guest.run(line("echo out; echo err >&2; exit 3"))
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    assert (done.exit.reason, done.exit.code, done.exit.signal) == ("exited", 3, None)


async def test_a_known_effect_is_found_and_never_run_again(guest: Guest, workspace: Path) -> None:
    command = line("echo once >> counted; cat counted")
    first = await guest.run(command)
    async with guest.start(command) as again:
        assert not again.is_new
        assert [chunk.data async for chunk in again.chunks()] == [b"once\n"]
        assert await again.exit(5) == first.exit
    assert (workspace / "counted").read_text() == "once\n"
