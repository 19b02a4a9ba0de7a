"""The shell tool: commands typed into a terminal that people watch and take, each once."""

import json
from dataclasses import replace

import anyio
import pytest
from pydantic import JsonValue

from eventually import eventually
from integration.loop.tools.workshop import AGENT, PERSON, Workshop
from outlive.base import ConflictError, ConversationId, EffectId, MachineId, TerminalId, new_effect_id
from outlive.conversation.events import ToolCall
from outlive.loop.fitting import RESULT_BYTES
from outlive.loop.tools import ToolResult
from outlive.loop.tools.registry import interrupt_tool, run_tool
from outlive.loop.tools.terminals import terminal_id, type_command
from outlive.machine.door import ExecRequest
from outlive.machine.terminal.door import Close, Input, RunInTerminal, Take, Yield

pytestmark = pytest.mark.anyio


async def place(workshop: Workshop, of: ConversationId, n: int = 1) -> tuple[MachineId, int, TerminalId]:
    """Where the agent types: machine, generation, terminal."""
    machine = await workshop.machine(of)
    record = await workshop.machines.records.machines.get(machine.id)
    return record.id, record.generation, terminal_id(record.id, n)


async def test_commands_share_one_shell_that_can_be_watched(workshop: Workshop) -> None:
    of = await workshop.converse()
    first = await workshop.call(of, "shell", command="mkdir -p deep && cd deep && export NAME=ada; echo 'a\tb' >&2")
    assert (first.outcome, first.exit_code, first.output) == ("finished", 0, "a\tb\n")
    second = await workshop.call(of, "shell", command="pwd\necho $NAME; (exit 7)")
    assert (second.outcome, second.exit_code) == ("finished", 7)
    assert second.output == "/workspace/deep\nada\n[exit code 7]"
    assert "".join(text for text, _ in workshop.said) == "a\tb\n/workspace/deep\nada\n"
    machine, generation, terminal = await place(workshop, of)
    view = await workshop.doors.view(machine, generation, terminal)
    assert view.terminal.lease is not None
    assert view.terminal.lease.operator == AGENT.id
    quiet = await workshop.call(of, "shell", command="echo $PAGER-$GIT_PAGER")
    assert quiet.output == "cat-cat\n"


async def test_a_command_runs_once_however_often_its_step_is_run(workshop: Workshop) -> None:
    of = await workshop.converse()
    effect, again = new_effect_id(), new_effect_id()
    command = "echo x >>times; cat times"
    results = [await workshop.call(of, "shell", effect, command=command)]
    workshop.forget()
    results.append(await workshop.call(of, "shell", effect, command=command))
    assert results[0] == results[1] == ToolResult("finished", "x\n", 0)

    # A worker that dies in the middle of it; the one after it finds the command, and does not start it.
    command = "echo y >>times; until [ -e go ]; do sleep 0.05; done; echo gone"
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: workshop.call(of, "shell", again, command=command))
        await eventually(lambda: _holds(workshop, of, "times", "x\ny\n"), within_s=60)
        group.cancel_scope.cancel()
    workshop.forget()
    found: list[ToolResult] = []

    async def follow() -> None:
        found.append(await workshop.call(of, "shell", again, command=command))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await workshop.exec(of, "touch go")
    assert found == [ToolResult("finished", "gone\n", 0)]
    assert await workshop.exec(of, "cat times") == "x\ny\n"


async def test_what_began_in_a_machine_that_is_gone_runs_in_no_other(workshop: Workshop) -> None:
    """Its worker dies, and then its machine is deleted: the next attempt asks the journal of that machine."""
    of = await workshop.converse()
    done, begun, typed, written, never = (new_effect_id() for _ in range(5))
    told = await workshop.call(of, "shell", done, command="echo did it; exit 3")
    await workshop.call(of, "shell", begun, command="sleep 1000", background=True)
    await workshop.call(of, "write_file", written, path="a", content="x")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: workshop.call(of, "shell", typed, command="echo y >typed; sleep 1000"))
        await eventually(lambda: _holds(workshop, of, "typed", "y\n"), within_s=60)
        group.cancel_scope.cancel()
    first = (await workshop.machine(of)).id
    await workshop.machines.keeper.do(first, "delete")
    workshop.forget()

    async def again(effect: EffectId, name: str, **arguments: JsonValue) -> ToolResult:
        context = replace(workshop.context(of, effect), is_again=True, machines=frozenset({first}))
        return await run_tool(ToolCall(id="call_1", name=name, arguments=arguments), context)

    async def stopped(effect: EffectId, **arguments: JsonValue) -> ToolResult:
        context = replace(workshop.context(of, effect), is_again=True, machines=frozenset({first}))
        return await interrupt_tool(ToolCall(id="call_1", name="shell", arguments=arguments), context)

    assert await again(done, "shell", command="echo did it; exit 3") == told
    assert await stopped(done, command="echo did it; exit 3") == told
    assert (await again(begun, "shell", command="sleep 1000", background=True)).outcome == "lost"
    assert (await again(typed, "shell", command="echo y >typed; sleep 1000")).outcome == "lost"
    assert (await again(written, "write_file", path="a", content="x")).outcome == "finished"
    assert (await workshop.conversations.get(of)).machine == first, "no other was made for that"
    assert (await again(never, "list_files")).output == "[The folder is empty.]"
    assert (await workshop.machine(of)).id != first


async def _holds(workshop: Workshop, of: ConversationId, path: str, content: str) -> bool:
    if (await workshop.conversations.get(of)).machine is None:
        return False
    return await workshop.exec(of, f"cat {path}") == content


async def test_what_cannot_be_typed_is_run_by_itself_and_once_too(workshop: Workshop) -> None:
    of = await workshop.converse()
    effect, command = new_effect_id(), "echo x >>times; printf '\x01%s' typed; cat times; pwd; echo oh >&2; exit 3"
    first = await workshop.call(of, "shell", effect, command=command)
    assert (first.outcome, first.exit_code) == ("finished", 3)
    assert first.output == "\x01typedx\n/workspace\noh\n[exit code 3]"
    assert ("oh\n", "stderr") in workshop.said
    workshop.forget()
    assert await workshop.call(of, "shell", effect, command=command) == first


async def test_what_a_person_holds_is_not_typed_into(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "shell", command="true")
    machine, generation, terminal = await place(workshop, of)
    await workshop.doors.act(machine, generation, terminal, PERSON, Take())
    refused = await workshop.call(of, "shell", command="touch typed")
    assert refused.outcome == "rejected"
    assert "'ada' has held the terminal since 20" in refused.output
    assert await workshop.exec(of, "ls") == ""
    await workshop.doors.act(machine, generation, terminal, PERSON, Yield())
    assert (await workshop.call(of, "shell", command="ls")).output == ""


async def test_an_agent_moves_on_from_a_terminal_that_is_busy_has_ended_or_does_not_read(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "shell", command="MINE=1")
    machine, generation, terminal = await place(workshop, of)
    await workshop.doors.act(machine, generation, terminal, PERSON, Take())
    await workshop.doors.act(machine, generation, terminal, PERSON, Input(data=b"sleep 600\r"))
    await workshop.doors.act(machine, generation, terminal, PERSON, Yield())

    async def runs() -> bool:
        return "sleep 600" in await workshop.exec(of, "cat /proc/*/cmdline | tr '\\0' ' '")

    await eventually(runs, within_s=60)
    moved = await workshop.call(of, "shell", command="echo [$MINE]")
    assert moved.output.startswith("[]\n[This ran in another terminal")
    assert "sleep 600" in moved.output
    await workshop.doors.act(machine, generation, terminal, PERSON, Close())
    await workshop.doors.act(machine, generation, terminal_id(machine, 2), PERSON, Close())
    fresh = await workshop.call(of, "shell", command="echo new; echo $$ > /tmp/shell")
    assert fresh.output == "new\n[This is a new terminal: the one before has ended.]"
    await workshop.exec(of, "kill -STOP $(cat /tmp/shell)")
    for act in (Take(), Input(data=b"touch mixed; "), Yield()):
        await workshop.doors.act(machine, generation, terminal_id(machine, 3), PERSON, act)
    moved = await workshop.call(of, "shell", command="ls; echo whole")
    assert moved.output.startswith("whole\n[This ran in another terminal")
    assert "'ada' typed there last, and 13 bytes are not read yet" in moved.output


async def test_a_command_that_takes_too_long_is_stopped_and_said(workshop: Workshop) -> None:
    of = await workshop.converse()
    late = await workshop.call(of, "shell", command="echo before; sleep 600", timeout_s=5)
    assert late.outcome == "failed"
    assert late.output.startswith("before\n")
    assert "longer than its timeout" in late.output
    assert (await workshop.call(of, "shell", command="echo after")).output == "after\n"


async def test_long_output_is_shown_in_part_and_kept_whole(workshop: Workshop) -> None:
    of = await workshop.converse()
    long = await workshop.call(of, "shell", command="seq 1 100000")
    assert RESULT_BYTES - 2_000 < len(long.output.encode()) <= RESULT_BYTES
    assert long.output.startswith("1\n2\n")
    assert long.output.endswith("\n99999\n100000\n")
    assert long.blob is not None
    assert (await workshop.conversations.blobs.get(long.blob)).split() == [b"%d" % n for n in range(1, 100_001)]
    assert sum(len(text) for text, _ in workshop.said) < 300_000


async def test_what_cannot_be_started_in_the_background_is_not_said_to_be(workshop: Workshop) -> None:
    of = await workshop.converse()
    machine = await workshop.machine(of)
    await workshop.machines.exec(machine.id, "mv /workspace /elsewhere", user="root")
    effect = new_effect_id()
    told = await workshop.call(of, "shell", effect, command="sleep 1000", background=True)
    assert (told.outcome, told.exit_code) == ("finished", 126)
    assert "the directory '/workspace' cannot be entered: No such file" in told.output
    assert await workshop.call(of, "shell", effect, command="sleep 1000", background=True) == told
    assert await workshop.interrupt(of, "shell", effect, command="sleep 1000", background=True) == told


async def test_what_runs_in_the_background_outlives_the_call(workshop: Workshop) -> None:
    of = await workshop.converse()
    effect = new_effect_id()
    command = "echo started >>log; exec sleep 600"
    started = await workshop.call(of, "shell", effect, command=command, background=True)
    assert (started.outcome, started.output) == ("finished", f"Started in the background, as effect {effect}.")
    assert await workshop.call(of, "shell", effect, command=command, background=True) == started
    await eventually(lambda: _holds(workshop, of, "log", "started\n"), within_s=60)
    machine = await workshop.machine(of)
    effects = await machine.records.effects.list(machine.id, after=0, limit=10)
    assert [each.state for each in effects if each.id == effect] == ["started"]


async def test_an_interrupt_ends_what_runs_even_if_it_does_not_listen(workshop: Workshop) -> None:
    of = await workshop.converse()
    effect = new_effect_id()
    command = "trap '' INT; echo y >begun; while true; do sleep 1; done"
    arguments = {"command": f"bash -c {json.dumps(command)}"}
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: workshop.call(of, "shell", effect, **arguments))
        await eventually(lambda: _holds(workshop, of, "begun", "y\n"), within_s=60)
        group.cancel_scope.cancel()
    await workshop.interrupt(of, "shell", effect, command=arguments["command"])
    machine = await workshop.machine(of)

    async def is_over() -> bool:
        found = await machine.find(effect)
        return found is not None and found.is_over

    await eventually(is_over, within_s=60)
    assert (await workshop.call(of, "shell", command="echo free")).output == "free\n"


async def test_what_was_over_when_it_was_interrupted_is_told_as_it_ended(workshop: Workshop) -> None:
    """While no worker was there, say."""
    of = await workshop.converse()
    for command, background in (("echo done; exit_with() { return 3; }; exit_with", False), ("sleep 600", True)):
        effect = new_effect_id()
        ran = await workshop.call(of, "shell", effect, command=command, background=background)
        assert ran.outcome == "finished"
        workshop.forget()
        assert await workshop.interrupt(of, "shell", effect, command=command, background=background) == ran


async def test_what_may_have_been_published_is_told_as_unknown(workshop: Workshop) -> None:
    of, effect = await workshop.converse(), new_effect_id()
    assert (await workshop.interrupt(of, "publish", effect, path="x")).outcome == "failed"
    assert (await workshop.interrupt(of, "publish", effect, path="x", is_again=True)).outcome == "lost"
    assert (await workshop.interrupt(of, "read_file", effect, path="x", is_again=True)).outcome == "failed"
    assert (await workshop.interrupt(of, "gone_since", effect, is_again=True)).outcome == "lost"


async def test_what_had_not_begun_when_it_was_interrupted_never_begins(workshop: Workshop) -> None:
    of = await workshop.converse()
    await workshop.call(of, "shell", command="true")
    machine, generation, terminal = await place(workshop, of)
    effect = new_effect_id()
    for _ in range(2):
        assert (await workshop.interrupt(of, "shell", effect, command="touch begun")).outcome == "failed"
    late = RunInTerminal(effect_id=effect, command="touch begun", operator=AGENT)
    with pytest.raises(ConflictError, match="stopped before it began"):
        await workshop.doors.run(machine, generation, terminal, late)
    assert (await workshop.call(of, "shell", effect, command="touch begun")).exit_code == 130
    assert await workshop.exec(of, "ls") == ""


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("was", ["asleep", "not made"])
async def test_what_had_not_begun_never_begins_though_its_machine_was_not_up(
    workshop: Workshop, was: str, background: bool
) -> None:
    """Who is to begin it stands still before its machine is up, and goes on after the interrupt."""
    of = await workshop.converse()
    if was == "asleep":
        await workshop.machines.keeper.do((await workshop.machine(of)).id, "hibernate")
    effect = new_effect_id()
    told = await workshop.interrupt(of, "shell", effect, command="touch begun", background=background)
    assert "interrupted" in told.output
    machine = await workshop.machine(of)
    with pytest.raises(ConflictError, match="stopped before it began"):
        await machine.caller.exec(machine.id, ExecRequest(effect_id=effect, command="touch begun"))
    typed = RunInTerminal(effect_id=effect, command="touch begun", operator=AGENT)
    with pytest.raises(ConflictError, match="stopped before it began"):
        await type_command(machine, workshop.doors, typed, lambda _: None)
    assert await workshop.exec(of, "ls") == ""


async def test_a_lost_command_is_told_as_unknown_and_never_run_again(workshop: Workshop) -> None:
    of = await workshop.converse()
    machine, generation, _ = await place(workshop, of)
    effect, command = new_effect_id(), "echo x >>times; sleep 600"
    results: list[ToolResult] = []

    async def run() -> None:
        results.append(await workshop.call(of, "shell", effect, command=command))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await eventually(lambda: _holds(workshop, of, "times", "x\n"), within_s=60)
        await workshop.node.adoption.lose(workshop.node.residents.get(machine, generation), "its sandbox ended")
    assert [result.outcome for result in results] == ["lost"]
    assert "unknown" in results[0].output
    workshop.forget()
    assert (await workshop.call(of, "shell", effect, command=command)).outcome == "lost"
    assert await workshop.exec(of, "cat times") == "x\n"
    fresh = await workshop.call(of, "shell", command="cat times")
    assert fresh.output == "x\n[This is a new terminal: the one before has ended.]"
    workshop.forget()
    await workshop.machine(of)
    said = [(event.type, event.data.get("what")) for event in await workshop.events(of)]
    assert said == [
        ("conversation.created", None),
        ("message.sent", None),
        ("machine.attached", None),
        ("machine.lost", None),
        ("turn.recovered", "machine_lost"),
        ("machine.woken", None),
        ("machine.rebooted", None),
        ("turn.recovered", "machine_rebooted"),
    ]
