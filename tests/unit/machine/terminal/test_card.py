"""The record of a terminal as its host holds it."""

from datetime import UTC, datetime

import anyio
import pytest

from outlive.base import NodeId, new_machine_id, new_principal_id, new_terminal_id
from outlive.machine.node.terminals.card import Card
from outlive.machine.terminal.records import DecideTerminal
from outlive.machine.terminal.status import Lease, Terminal

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class SlowToAnswer:
    """Records that change at once, and say so when they are let."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.answers: list[anyio.Event] = []

    async def change(self, _: object, decide: DecideTerminal, **__: object) -> Terminal:
        changed = decide(self.terminal)
        self.terminal = changed.model_copy(update={"revision": self.terminal.revision + 1})
        answer, said = anyio.Event(), self.terminal
        self.answers.append(answer)
        await answer.wait()
        return said


async def test_a_lease_that_was_taken_stays_taken_when_the_answer_to_an_older_change_comes_last() -> None:
    born = Terminal(
        id=new_terminal_id(),
        machine=new_machine_id(),
        name="one",
        owner=new_principal_id(),
        created_at=NOW,
        changed_at=NOW,
    )
    lease = Lease(operator=new_principal_id(), name="ann", kind="person", since=NOW, how="take", offset=0)
    records = SlowToAnswer(born)
    card = Card(born, records, (NodeId("node"), 1))  # type: ignore[arg-type]  # only changes are asked for
    async with anyio.create_task_group() as group:
        for update in ({"reserved_to": 1_000}, {"lease": lease}):
            group.start_soon(card.change, lambda found, update=update: found.model_copy(update=update))
            await anyio.wait_all_tasks_blocked()
        for answer in reversed(records.answers):
            answer.set()
            await anyio.wait_all_tasks_blocked()
    assert (card.terminal.lease, card.terminal.reserved_to) == (lease, 1_000)
