"""Files of the conversation's machine, as tools read, write, find and publish them."""

import anyio
import pytest

from eventually import eventually
from integration.loop.tools.workshop import Workshop
from outlive.base import ArtifactId, ConversationId, EffectId, derive, new_effect_id
from outlive.loop.fitting import RESULT_BYTES
from outlive.loop.tools.reach import ToolMachine

pytestmark = pytest.mark.anyio


async def test_a_file_that_was_written_is_read_edited_listed_and_found(workshop: Workshop) -> None:
    of = await workshop.converse()
    wrote = await workshop.call(of, "write_file", path="src/main.py", content="def f():\n    return 'ä'\n")
    assert (wrote.outcome, wrote.output) == ("finished", "Wrote 25 bytes to src/main.py.")
    edited = await workshop.call(of, "edit_file", path="/workspace/src/main.py", old="'ä'", new="'ö'")
    assert (edited.outcome, edited.output) == ("finished", "Edited src/main.py.")
    assert (await workshop.call(of, "read_file", path="src/main.py")).output == "def f():\n    return 'ö'\n"
    second = await workshop.call(of, "read_file", path="src/main.py", offset=2, limit=1)
    assert second.output == "    return 'ö'\n[Lines 2 to 2 of 2.]"

    await workshop.exec(of, "mkdir -p .git/x node_modules/y; touch .git/x/a.py node_modules/y/b.py; ln -s src link")
    assert (await workshop.call(of, "list_files")).output.splitlines() == [
        ".git/",
        "link -> src",
        "node_modules/",
        "src/",
    ]
    assert (await workshop.call(of, "list_files", glob="**/*.py")).output == "src/main.py\n"
    assert (await workshop.call(of, "search", pattern=r"return '.'$")).output == "src/main.py:2:    return 'ö'\n"
    assert (await workshop.call(of, "search", pattern="nowhere")).output == "[Nothing fits.]"
    wrong = await workshop.call(of, "search", pattern="(")
    assert wrong.outcome == "failed"
    assert "grep" in wrong.output
    assert await workshop.types(of) == ["conversation.created", "message.sent", "machine.attached"]


async def test_what_is_wrong_with_a_file_is_told_and_nothing_is_changed(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "write_file", path="a", content="one two one\n")
    for arguments, told in [
        ({"path": "a", "old": "one", "new": "1"}, "2 times"),
        ({"path": "a", "old": "three", "new": "3"}, "is not in it"),
        ({"path": "a", "old": "two", "new": "two"}, "are the same"),
        ({"path": "b", "old": "x", "new": "y"}, "b"),
    ]:
        result = await workshop.call(of, "edit_file", **arguments)  # type: ignore[arg-type]
        assert result.outcome == "failed"
        assert told in result.output
    assert (await workshop.call(of, "read_file", path="b")).outcome == "failed"
    assert (await workshop.call(of, "read_file", path=".")).outcome == "failed"
    assert (await workshop.call(of, "list_files", path="nowhere")).outcome == "failed"
    assert (await workshop.call(of, "list_files", path="nowhere", glob="*")).outcome == "failed"
    denied = await workshop.call(of, "write_file", path="/etc/hostname", content="mine")
    assert denied.outcome == "failed"
    assert "ermission denied" in denied.output
    a_folder = await workshop.call(of, "write_file", path="/tmp", content="x")
    assert (a_folder.outcome, "is a directory" in a_folder.output) == ("failed", True)
    assert await workshop.exec(of, "cat a; ls -A") == "one two one\na\n"
    everywhere = await workshop.call(of, "edit_file", path="a", old="one", new="1", all=True)
    assert everywhere.outcome == "finished"
    assert await workshop.exec(of, "cat a") == "1 two 1\n"


async def test_a_step_that_is_run_again_does_not_undo_what_was_done_in_between(workshop: Workshop) -> None:
    of = await workshop.converse()
    write, edit = new_effect_id(), new_effect_id()
    await workshop.call(of, "write_file", write, path="a", content="old\n")
    await workshop.exec(of, "echo by hand >a")
    workshop.forget()
    again = await workshop.call(of, "write_file", write, path="a", content="old\n")
    assert again.outcome == "finished"
    assert await workshop.exec(of, "cat a") == "by hand\n"

    assert (await workshop.call(of, "edit_file", edit, path="a", old="by hand", new="by tool")).outcome == "finished"
    workshop.forget()
    repeated = await workshop.call(of, "edit_file", edit, path="a", old="by hand", new="by tool")
    assert (repeated.outcome, repeated.output) == ("finished", "Edited a.")
    assert await workshop.exec(of, "cat a; ls -A; ls -A /tmp") == "by tool\na\n"


async def test_a_file_keeps_its_mode_and_a_link_stays_a_link(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.machine(of)
    await workshop.exec(of, "echo 'echo hi' >run; chmod 750 run; ln -s run link; chmod 640 run; chmod u+x run")
    assert (await workshop.call(of, "edit_file", path="link", old="hi", new="ho")).outcome == "finished"
    assert (await workshop.call(of, "write_file", path="link", content="echo hu\n")).outcome == "finished"
    assert await workshop.exec(of, "stat -c '%a %F' run link; cat run") == (
        "740 regular file\n777 symbolic link\necho hu\n"
    )


async def test_what_is_long_or_no_text_is_bounded_and_the_whole_is_kept(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.machine(of)
    await workshop.exec(of, "seq 1 20000 >long; printf '\\377\\376 x' >odd; printf 'a\\0b' >binary")
    long = await workshop.call(of, "read_file", path="long", limit=20_000)
    assert RESULT_BYTES - 2_000 < len(long.output.encode()) <= RESULT_BYTES
    assert long.output.startswith("1\n2\n")
    assert long.output.endswith("\n19999\n20000\n")
    assert "bytes are left out here" in long.output
    assert long.blob is not None
    assert (await workshop.conversations.blobs.get(long.blob)).split()[-1] == b"20000"
    assert (await workshop.call(of, "read_file", path="odd")).output == "�� x"
    assert (await workshop.call(of, "read_file", path="binary")).outcome == "failed"
    many = await workshop.call(of, "search", pattern="1")
    assert many.output.endswith("[Only the first 500 are shown.]")


async def test_what_was_published_stays_what_it_was_and_is_said_once(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "write_file", path="out/the.diff", content="--- a\n+++ b\n")
    effect = new_effect_id()
    published = await workshop.call(of, "publish", effect, path="out/the.diff", title="The fix")
    artifact = ArtifactId(derive("art", effect))
    assert published.output == f"Published 'The fix' (text/x-diff, 12 bytes) as {artifact}."
    await workshop.exec(of, "echo another >out/the.diff")
    workshop.forget()
    assert await workshop.call(of, "publish", effect, path="out/the.diff", title="The fix") == published
    kept = await workshop.artifacts.get(artifact)
    assert (kept.conversation, kept.name) == (of, "the.diff")
    assert await workshop.conversations.blobs.get(kept.blob) == b"--- a\n+++ b\n"
    assert (await workshop.types(of)).count("artifact.published") == 1
    assert (await workshop.call(of, "publish", path="nowhere")).outcome == "failed"


async def test_each_conversation_has_a_machine_of_its_own(workshop: Workshop) -> None:
    first, second = await workshop.converse(), await workshop.converse()
    await workshop.call(first, "write_file", path="mine", content="x")
    assert (await workshop.call(second, "read_file", path="mine")).outcome == "failed"
    attached = [(await workshop.conversations.get(ConversationId(each))).machine for each in (first, second)]
    assert attached[0] == derive("mach", first)
    assert attached[0] != attached[1]


async def test_a_write_that_is_under_way_when_it_is_interrupted_never_happens_later_and_is_told_as_unknown(
    workshop: Workshop,
) -> None:
    of = await workshop.converse()
    machine = await workshop.machine(of)
    await workshop.exec(of, "mkfifo pipe")  # who writes there waits for somebody who fills it
    under_way, never, done = new_effect_id(), new_effect_id(), new_effect_id()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: workshop.call(of, "write_file", under_way, path="pipe", content="late\n"))
        await eventually(lambda: _is_begun(machine, under_way), within_s=30)
        assert (await workshop.interrupt(of, "write_file", under_way)).outcome == "lost"
        group.cancel_scope.cancel()
    assert await workshop.exec(of, "timeout 1 sh -c 'echo x >pipe'; stat -c %F pipe; ls -A") == "fifo\npipe\n"

    assert (await workshop.interrupt(of, "write_file", never)).outcome == "failed"
    assert (await workshop.call(of, "write_file", never, path="never", content="x")).outcome == "failed"
    assert await workshop.exec(of, "ls -A never 2>&1; true") != "never\n"

    await workshop.call(of, "write_file", done, path="done", content="x")
    assert (await workshop.interrupt(of, "write_file", done)).outcome == "finished"


async def _is_begun(machine: ToolMachine, effect: EffectId) -> bool:
    return await machine.find(effect) is not None
