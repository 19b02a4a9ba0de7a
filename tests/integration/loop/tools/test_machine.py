"""The machine of a conversation: made on demand, kept, followed by another when it is gone, and all of it said."""

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from integration.loop.tools.workshop import Workshop
from outlive.base import MachineId, derive, new_effect_id
from outlive.conversation.events import ToolFinished
from outlive.conversation.writer import start_step
from outlive.loop.tools.checkout import checkout_id
from outlive.loop.tools.mcp.server import McpServer
from outlive.loop.tools.mcp.tool import nth, open_way
from outlive.machine.door import ExecRequest
from outlive.machine.lifecycle import Change
from outlive.machine.node.door import NodeDoor
from outlive.machine.status import MachineEvent

pytestmark = pytest.mark.anyio


async def test_a_machine_that_slept_is_woken_and_that_is_said_once(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "shell", command="KEPT=1")
    machine = MachineId(derive("mach", of))
    await workshop.machines.keeper.do(machine, "hibernate")
    workshop.forget()
    kept = await workshop.call(of, "shell", command="echo $KEPT")
    assert kept.output == "1\n"
    workshop.forget()
    await workshop.call(of, "list_files")
    assert (await workshop.types(of))[2:] == ["machine.attached", "machine.hibernated", "machine.woken"]


async def test_a_machine_that_is_gone_for_good_is_followed_by_another(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "write_file", path="a", content="x")
    first = MachineId(derive("mach", of))
    await workshop.machines.keeper.do(first, "delete")
    assert (await workshop.call(of, "list_files")).output == "[The folder is empty.]"
    workshop.forget()
    second = await workshop.machine(of)
    assert second.id != first
    attached = [event.data["machine"] for event in await workshop.events(of) if event.type == "machine.attached"]
    assert attached == [first, second.id]
    assert (await workshop.conversations.get(of)).machine == second.id


async def test_a_machine_that_a_person_has_paused_is_left_alone(workshop: Workshop) -> None:
    of = await workshop.converse()
    machine = await workshop.machine(of)
    await workshop.machines.keeper.do(machine.id, "pause")
    for name, arguments in [("shell", {"command": "true"}), ("list_files", {})]:
        refused = await workshop.call(of, name, **arguments)  # type: ignore[arg-type]
        assert refused.outcome == "rejected"
        assert "paused by a person" in refused.output
    await workshop.machines.keeper.do(machine.id, "resume")
    assert (await workshop.call(of, "shell", command="echo on")).output == "on\n"


async def test_a_machine_is_saved_only_if_something_was_done_in_it(workshop: Workshop) -> None:
    of = await workshop.converse()
    machines = workshop.parts.machines
    assert machines is not None
    await machines.save(of)  # there is none
    machine = await workshop.machine(of)

    async def checkpoints() -> int:
        return (await workshop.machines.records.machines.get(machine.id)).checkpoints_made

    await machines.save(of)
    assert await checkpoints() == 0
    await workshop.call(of, "write_file", path="a", content="x")
    await machines.save(of)
    await machines.save(of)
    assert await checkpoints() == 1


async def test_a_machine_is_saved_again_when_what_ran_while_it_was_saved_has_ended(workshop: Workshop) -> None:
    of = await workshop.converse()
    machines = workshop.parts.machines
    assert machines is not None
    machine, door = await workshop.machine(of), NodeDoor(workshop.node)
    record = await workshop.machines.records.machines.get(machine.id)
    server = ExecRequest(effect_id=new_effect_id(), command="sleep 1000", background=True)
    await door.exec(record.id, record.generation, server)

    async def saved() -> int:
        await machines.save(of)
        return (await workshop.machines.records.machines.get(machine.id)).checkpoints_made

    assert [await saved(), await saved()] == [1, 1]
    await door.signal(record.id, record.generation, server.effect_id, signal.SIGKILL)
    await door.exec(record.id, record.generation, server.model_copy(update={"background": False}))
    assert [await saved(), await saved()] == [2, 2]


def bundle(folder: Path) -> bytes:
    """A small repository with one commit on a branch."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    (folder / "README").write_text("Hello\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "First"], check=True)
    subprocess.run([*git, "bundle", "create", "-q", str(folder / "it.bundle"), "HEAD", "main"], check=True)
    return (folder / "it.bundle").read_bytes()


async def test_the_repository_of_a_conversation_is_checked_out_once(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    blob = await workshop.conversations.blobs.put(bundle(tmp_path / "repo"))
    of = await workshop.converse({"repo": {"blob": blob, "ref": "main"}})
    found = await workshop.call(
        of, "shell", command="git status --short --branch; git log --oneline | wc -l; cat README"
    )
    assert found.output == "## main\n1\nHello\n"
    assert "bundle" not in await workshop.exec(of, "rm README; ls -A /tmp; git remote")
    workshop.forget()
    assert (await workshop.call(of, "list_files")).output == ".git/\n"


async def test_a_checkout_that_was_rolled_back_is_done_again_and_that_is_said(
    workshop: Workshop, tmp_path: Path
) -> None:
    (tmp_path / "repo").mkdir()
    blob = await workshop.conversations.blobs.put(bundle(tmp_path / "repo"))
    of = await workshop.converse({"repo": {"blob": blob}})
    machine = await workshop.machine(of)
    # As a machine that came up elsewhere, from a checkpoint older than the checkout.
    await workshop.exec(of, "rm -rf /workspace/* /workspace/.git")
    gone = MachineEvent(
        kind="rolled_back",
        at=workshop.conversations.clock.now(),
        generation=1,
        data={"checkpoint": "ckpt_1", "effects": [checkout_id(of, 1), "eff_2"]},
    )
    await workshop.machines.records.machines.change(machine.id, lambda _: Change({"reason": "x"}, (gone,)))
    for _ in range(2):
        assert (await workshop.call(of, "read_file", path="README")).output == "Hello\n"
        workshop.forget()
    [event] = [event for event in await workshop.events(of) if event.type == "machine.rolled_back"]
    assert event.data["effects"] == [checkout_id(of, 1), "eff_2"]


async def test_a_repository_that_cannot_be_had_is_told_once_and_the_machine_goes_on(workshop: Workshop) -> None:
    of = await workshop.converse({"repo": {"url": "https://example.org/nothing.git"}})
    for _ in range(2):  # as long as no call of the model's has told it
        failed = await workshop.call(of, "list_files")
        assert failed.outcome == "failed"
        assert "https://example.org/nothing.git" in failed.output
        assert "egress" in failed.output
        workshop.forget()
    context = workshop.context(of)
    step = await start_step(
        workshop.conversations,
        of,
        turn=context.turn,
        step=context.step,
        attempt=1,
        kind="tool",
        name="list_files",
        actor=context.operator.id,
    )
    await step.seal(ToolFinished(call="c", effect=context.effect_id, outcome="failed", output=failed.output))
    assert (await workshop.call(of, "list_files")).output == "[The folder is empty.]"


async def test_a_repository_that_nobody_could_mean_fails_the_call(workshop: Workshop) -> None:
    of = await workshop.converse({"repo": {"url": "a", "blob": "b"}})
    failed = await workshop.call(of, "list_files")
    assert (failed.outcome, "either blob or url" in failed.output) == ("failed", True)
    assert (await workshop.conversations.get(of)).machine is None


async def test_a_server_whose_machine_is_gone_is_begun_in_the_next_one(workshop: Workshop) -> None:
    """By whoever may call it again, or asks what it offers: it is no command that runs once."""
    of, effect = await workshop.converse(), new_effect_id()
    server = McpServer(name="echo", command=("cat",))
    async with open_way(server, workshop.context(of, effect)):
        first = (await workshop.machine(of)).id
    await workshop.machines.keeper.do(first, "delete")
    async with open_way(server, replace(workshop.context(of, effect), machines=frozenset({first}))):
        second = await workshop.machine(of)
        assert second.id != first
        begun = await second.find(nth(effect, 1))
    assert begun is not None
