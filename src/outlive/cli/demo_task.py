"""What `outlive demo` shows where machines can run: an agent makes the failing test of a sample project pass, while a
second client that follows it is cut off and resumes."""

import sys
from typing import NamedTuple

import anyio
import anyio.to_thread

from outlive.base import OutliveError
from outlive.cli.clean import clean_line
from outlive.cli.demo_second import SecondClient
from outlive.cli.following import Output, choose_output
from outlive.cli.sample_repo import bundle_sample
from outlive.client import AsyncClient, AsyncConversation, Event
from outlive.wiring.settings import Settings

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
    # Of the second client:
    is_identical: bool  # its screen and the server's transcript, at the end
    items: int
    cut_off_at: str | None
    missed: int
    trouble: str | None  # why they could not be compared


class _Quiet:
    """For `--json`: only the outcome is printed."""

    def show(self, events: list[Event]) -> None:
        pass

    def remark(self, text: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class Watching:
    """What is worth remembering of the events that were shown."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.reason: str | None = None
        self.artifacts: list[str] = []
        self.calls = 0  # of tools, that have ended
        self.head = 0

    def take(self, event: Event) -> None:
        self.head = event.seq or self.head
        self.calls += event.type == "tool.finished"
        match event.type:
            case "turn.started":
                self.model = str(event.data.get("model"))
            case "artifact.published":
                self.artifacts.append(str(event.data.get("artifact")))
            case "turn.finished":
                self.reason = event.data.get("reason")


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


async def give_task(settings: Settings, url: str, token: str, *, is_silent: bool) -> Outcome:
    async with AsyncClient(url, token, patience_s=PATIENCE_S) as client:
        blob = await client.blobs.put(await anyio.to_thread.run_sync(bundle_sample))
        conversation = await client.conversations.create(title=TITLE, metadata={"demo": True, "repo": {"blob": blob}})
        if is_silent:
            return await _Task(client, conversation, _Quiet(), settings).watch()
        say(f"A conversation: {conversation.id}. Its agent gets a small project and the task: {TASK}.\n")
        with choose_output(as_json=False) as output:
            return await _Task(client, conversation, output, settings).watch()


class _Task:
    def __init__(
        self, client: AsyncClient, conversation: AsyncConversation, output: "Output | _Quiet", settings: Settings
    ) -> None:
        self._client = client
        self._conversation = conversation
        self._output = output
        self._second = SecondClient(conversation, settings, lambda text: output.say(f"==> {text}"))
        self._seen = Watching()

    async def watch(self) -> Outcome:
        run = self._conversation.run(TASK, on_lost=self._say_lost)
        async with anyio.create_task_group() as group:
            await self._second.begin(group)
            try:
                while events := await run.next_events():
                    self._output.show(events)
                    for event in events:
                        self._seen.take(event)
                    await self._second.go_on(group, calls=self._seen.calls, head=self._seen.head)
            finally:
                with anyio.CancelScope(shield=True):
                    await run.aclose()
            compared = await self._second.end(group, head=self._seen.head)
            group.cancel_scope.cancel()
        await self._conversation.refresh()
        machine = self._conversation.machine_id
        return Outcome(
            conversation=self._conversation.id,
            outcome=run.outcome or "unknown",
            reason=self._seen.reason,
            model=self._seen.model,
            machine=machine,
            terminal=await _terminal_of(self._client, machine),
            artifacts=tuple(self._seen.artifacts),
            position=run.position,
            **compared._asdict(),
        )

    def _say_lost(self, error: OutliveError, wait_s: float) -> None:
        self._output.remark(f"… {clean_line(error.message)} Trying again in {wait_s:.1f} s.")


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
