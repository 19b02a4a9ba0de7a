"""What `outlive demo` shows where machines can run: an agent makes the failing test of a sample project pass."""

import sys
from typing import NamedTuple

import anyio
import anyio.to_thread

from outlive.base import OutliveError
from outlive.cli.clean import clean_line
from outlive.cli.following import Output, choose_output
from outlive.cli.sample_repo import bundle_sample
from outlive.client import AsyncClient, AsyncConversation, Event

TASK = "Make the failing test pass"
TITLE = "Demo: make the failing test pass"
PATIENCE_S = 60.0  # for an API that is being restarted


class Outcome(NamedTuple):
    conversation: str
    outcome: str  # of the turn
    reason: str | None
    model: str | None
    machine: str | None
    terminal: str | None  # that the agent worked in
    artifacts: tuple[str, ...]
    position: str | None


class _Quiet:
    """For `--json`: only the outcome is printed."""

    def show(self, events: list[Event]) -> None:
        pass

    def remark(self, text: str) -> None:
        pass


class Watching:
    """What is worth remembering of the events that were shown."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.reason: str | None = None
        self.artifacts: list[str] = []

    def take(self, event: Event) -> None:
        match event.type:
            case "turn.started":
                self.model = str(event.data.get("model"))
            case "artifact.published":
                self.artifacts.append(str(event.data.get("artifact")))
            case "turn.finished":
                self.reason = event.data.get("reason")


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


async def give_task(url: str, token: str, *, is_silent: bool) -> Outcome:
    async with AsyncClient(url, token, patience_s=PATIENCE_S) as client:
        blob = await client.blobs.put(await anyio.to_thread.run_sync(bundle_sample))
        conversation = await client.conversations.create(title=TITLE, metadata={"demo": True, "repo": {"blob": blob}})
        if not is_silent:
            say(f"A conversation: {conversation.id}. Its agent gets a small project and the task: {TASK}.\n")
        if is_silent:
            return await _watch(client, conversation, _Quiet())
        with choose_output(as_json=False) as output:
            return await _watch(client, conversation, output)


async def _watch(client: AsyncClient, conversation: AsyncConversation, output: "Output | _Quiet") -> Outcome:
    seen = Watching()

    def say_lost(error: OutliveError, wait_s: float) -> None:
        output.remark(f"… {clean_line(error.message)} Trying again in {wait_s:.1f} s.")

    run = conversation.run(TASK, on_lost=say_lost)
    try:
        while events := await run.next_events():
            output.show(events)
            for event in events:
                seen.take(event)
    finally:
        with anyio.CancelScope(shield=True):
            await run.aclose()
    await conversation.refresh()
    return Outcome(
        conversation=conversation.id,
        outcome=run.outcome or "unknown",
        reason=seen.reason,
        model=seen.model,
        machine=conversation.machine_id,
        terminal=await _terminal_of(client, conversation.machine_id),
        artifacts=tuple(seen.artifacts),
        position=run.position,
    )


async def _terminal_of(client: AsyncClient, machine: str | None) -> str | None:
    """The open one that the agent types into. None is no reason to fail: there may be a machine without."""
    if machine is None:
        return None
    try:
        found = await client.terminals.list(machine)
    except OutliveError as error:
        print(f"outlive: {error.message}", file=sys.stderr)
        return None
    return next((terminal.id for terminal in found if terminal.state == "open"), None)
