"""An interactive bash says where prompts, commands and their ends are, and is the user's own shell all the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from outlive.machine.guest_link import AttachedTerminal, Guest
from outlive.machine.terminal.marks import Commands, FoundMark, Marks

pytestmark = pytest.mark.anyio

COMES_S = 30.0


class Shell:
    """Types lines, and reads up to the prompt after each."""

    def __init__(self, attached: AttachedTerminal) -> None:
        self._attached = attached
        self._marks = Marks()
        self._prompts: set[str] = set()
        self._found: list[FoundMark] = []
        self.said = b""

    async def type(self, typed: str) -> None:
        await self._attached.send(typed.encode())

    async def enter(self, typed: str) -> list[FoundMark]:
        await self.type(typed)
        return await self.prompt()

    async def interrupt(self) -> list[FoundMark]:
        """Ctrl-C until there is a new prompt: a bash that is busy with keys when it comes acts on the next one."""
        with anyio.fail_after(COMES_S):
            while True:
                await self.type("\x03")
                with anyio.move_on_after(1):
                    return await self.prompt()

    async def prompt(self) -> list[FoundMark]:
        """What was marked up to the next new prompt."""
        self.said = b""
        found = self._found
        with anyio.fail_after(COMES_S):
            while not (found and found[-1].kind == "prompt_end" and found[-1].prompt not in self._prompts):
                offset, data = self._attached.offset, await self._attached.receive()
                assert data is not None
                self.said += data
                found += self._marks.feed(offset, data)
        self._prompts.add(found[-1].prompt)
        self._found = []
        return found


@asynccontextmanager
async def shell(guest: Guest, home: Path, **fields: object) -> AsyncIterator[Shell]:
    await guest.terminals.open("term_1", env={"HOME": str(home)}, **fields)  # type: ignore[arg-type]
    async with guest.terminals.attach("term_1", offset=0, with_input=True) as attached:
        made = Shell(attached)
        await made.prompt()
        yield made


def ends(found: list[FoundMark]) -> tuple[int, list[int | None]]:
    """How many commands were started, and the exit codes that were said for a new prompt."""
    last = found[-1].prompt
    return (
        sum(mark.kind == "started" for mark in found),
        [mark.exit_code for mark in found if mark.kind == "ended" and mark.prompt == last],
    )


@pytest.mark.parametrize("argv", [None, ("bash",), ("bash", "-i")])
async def test_commands_are_marked_with_their_line_output_and_exit_code(
    guest: Guest, workspace: Path, argv: tuple[str, ...] | None
) -> None:
    async with shell(guest, workspace, argv=argv) as typing:
        commands = Commands()
        commands.take(await typing.enter("echo a; (exit 3)\n"))
        run = commands.runs[-1]
        assert (run.command_line, run.exit_code) == ("echo a; (exit 3)", 3)
        assert ends(await typing.enter("true\n")) == (1, [0])


async def test_what_is_no_command_is_not_marked_as_one(guest: Guest, workspace: Path) -> None:
    async with shell(guest, workspace) as typing:
        assert ends(await typing.enter("\n")) == (0, [0])
        await typing.type("echo half")
        assert ends(await typing.interrupt()) == (0, [130])
        assert ends(await typing.enter("echo )\n")) == (0, [2])
        assert ends(await typing.enter("sh -c 'kill -9 $$'\n")) == (1, [137])


async def test_lines_that_are_pasted_together_are_over_once(guest: Guest, workspace: Path) -> None:
    async with shell(guest, workspace) as typing:
        found = await typing.enter("\x1b[200~echo one\ncat <<END\nt\two\nEND\n(exit 4)\x1b[201~\r")
        assert ends(found) == (3, [4])
        assert b"one\r\n" in typing.said
        assert b"t\two\r\n" in typing.said.replace(b"t       wo", b"t\two")


async def test_a_line_that_the_history_leaves_out_is_not_told(guest: Guest, workspace: Path) -> None:
    async with shell(guest, workspace) as typing:
        await typing.enter("HISTCONTROL=ignorespace\n")
        found = await typing.enter(" echo se''cret\n")
        assert ends(found) == (1, [0])
        assert not [mark for mark in found if mark.kind == "command_line"]
        [line] = [mark.text for mark in await typing.enter("echo 'a\\;b\n\x07c'\n") if mark.kind == "command_line"]
        assert line.startswith("echo 'a\\;b\n")


async def test_the_users_own_prompt_and_hooks_are_kept(guest: Guest, workspace: Path) -> None:
    (workspace / ".bashrc").write_text(
        "PROMPT_COMMAND='echo \"last=$?\"'\nPS0='[ps0]'\nPS1='mine> '\nalias hi='echo hel\"\"lo'\n"
    )
    async with shell(guest, workspace) as typing:
        assert ends(await typing.enter("hi; (exit 5)\n")) == (1, [5])
        assert b"[ps0]" in typing.said
        assert b"hello\r\nlast=5\r\n" in typing.said
        assert b"mine> " in typing.said
        await typing.enter("PS1='(venv) '$PS1; PS0=\n")
        assert b"(venv) " in typing.said
        assert ends(await typing.enter("(exit 6)\n")) == (1, [6])
        assert typing.said.count(b"133;A") == 1


async def test_a_strict_shell_lives_on_and_keeps_its_marks(guest: Guest, workspace: Path) -> None:
    async with shell(guest, workspace) as typing:
        await typing.enter("set -euo pipefail\n")
        assert ends(await typing.enter("echo fine | cat\n")) == (1, [0])
        await typing.enter("unset PS0; set +u\n")
        assert ends(await typing.enter("true\n")) == (1, [0])


async def test_a_shell_that_is_replaced_by_another_goes_on_without_marks(guest: Guest, workspace: Path) -> None:
    await guest.terminals.open("term_1", env={"HOME": str(workspace)})
    async with guest.terminals.attach("term_1", offset=0, with_input=True) as attached:
        typing = Shell(attached)
        await typing.prompt()
        await attached.send(b"exec bash --norc\n")
        await attached.send(b"echo replac''ed ${__outlive_id-none}\n")
        seen = b""
        with anyio.fail_after(COMES_S):
            while b"replaced none\r\n" not in seen:
                seen += await attached.receive() or b""
