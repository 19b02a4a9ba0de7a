"""What approvals promise, whatever keeps the log: subclass `ApprovalsContract` and give it a `place` fixture."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from outlive.base import (
    ApprovalId,
    ConflictError,
    ConversationId,
    NotFoundError,
    SystemClock,
    TurnId,
    derive,
    new_operation_id,
    new_step_id,
    new_turn_id,
)
from outlive.conversation.approvals import Approval, Approvals, ask_key, digest_of
from outlive.conversation.backends.local_feed import open_local_feed
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.backends.postgres_approvals import PostgresApprovals
from outlive.conversation.backends.sqlite_approvals import SqliteApprovals
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import ApprovalRequested, TurnFinished
from outlive.storage import open_postgres, open_sqlite
from outlive.storage.objects import open_objects
from outlive.testing.conversations import ACTOR, Store, StorePlace, at, batch, message, new_conversation, new_fork

LATER, BEFORE = "2999-01-01T00:00:00.000000Z", "2000-01-01T00:00:00.000000Z"
PERSON = "prin_of_a_person"


class Desk(NamedTuple):
    """Approvals at work in one process."""

    store: Store
    approvals: Approvals

    async def begin(self) -> tuple[ConversationId, TurnId]:
        conversation, turn = await new_conversation(self.store.catalog), new_turn_id()
        await self.store.log.append(message(conversation, "go", turn=turn))
        return conversation, turn

    async def ask(
        self, conversation: ConversationId, turn: TurnId, expires_at: str = LATER, command: str = "ls"
    ) -> ApprovalId:
        step = new_step_id()
        asked = ApprovalRequested(
            approval=derive("appr", step),
            question="May I?",
            digest=digest_of("shell", {"command": command}),
            expires_at=expires_at,
            step=step,
            effect=derive("eff", step),
            tool="shell",
            arguments={"command": command},
        )
        new = batch(conversation, asked, key=ask_key(asked.approval), turn=turn)
        await self.approvals._conversations.append(new)
        return ApprovalId(asked.approval)

    async def ids(self, **given: object) -> list[str]:
        return [each.id for each in await self.approvals.list(limit=100, **given)]  # type: ignore[arg-type]


class ApprovalsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    @asynccontextmanager
    async def desk(self, place: StorePlace, folder: Path) -> AsyncIterator[Desk]:
        blobs = ObjectBlobs(open_objects(str(folder / "objects")))
        clock = SystemClock()
        async with at(place) as store, open_local_feed(folder / "nobody.sock", store.log.heads) as feed:
            conversations = Conversations(store.log, store.catalog, blobs, feed, clock)
            if place.kind == "sqlite":
                async with open_sqlite(Path(place.address)) as sqlite:
                    yield Desk(store, Approvals(conversations, SqliteApprovals(sqlite), clock))
            else:
                async with open_postgres(place.address, pool_size=2) as postgres:
                    yield Desk(store, Approvals(conversations, PostgresApprovals(postgres), clock))

    async def test_what_was_asked_is_shown_as_it_was_asked(self, place: StorePlace, tmp_path: Path) -> None:
        async with self.desk(place, tmp_path) as desk:
            conversation, turn = await desk.begin()
            big = "x" * 300_000  # goes to the object store
            asked = [await desk.ask(conversation, turn, command=command) for command in ("ls", "y" * 8_000, big)]
            for approval, command in zip(asked, ("ls", "y" * 8_000, big), strict=True):
                shown = await desk.approvals.get(approval)
                assert (shown.state, shown.conversation, shown.turn) == ("pending", conversation, turn)
                assert shown.arguments == {"command": command}
                assert (shown.tool, shown.effect) == ("shell", approval.replace("appr_", "eff_"))
                assert shown.digest == digest_of("shell", {"command": command})
                assert shown.decided_by is None
            with pytest.raises(NotFoundError):
                await desk.approvals.get(ApprovalId(derive("appr", new_step_id())))

    async def test_approvals_are_listed_newest_first_page_by_page_and_by_state(
        self, place: StorePlace, tmp_path: Path
    ) -> None:
        async with self.desk(place, tmp_path) as desk:
            (one, turn), (other, its) = await desk.begin(), await desk.begin()
            asked = [await desk.ask(*each) for each in ((one, turn), (other, its), (one, turn), (other, its))]
            newest = sorted(asked, reverse=True)
            assert await desk.ids() == newest
            first = await desk.approvals.list(limit=3)
            rest = await desk.approvals.list(limit=3, before=first[-1].id)
            assert [each.id for each in (*first, *rest)] == newest
            await desk.approvals.decide(new_operation_id(), asked[0], "approve", actor=PERSON, comment=None)
            await desk.approvals.decide(new_operation_id(), asked[1], "deny", actor=PERSON, comment="no")
            await desk.store.log.append(batch(other, TurnFinished(outcome="interrupted"), turn=its))
            assert await desk.ids(state="pending") == [asked[2]]
            assert await desk.ids(state="approved") == [asked[0]]
            assert await desk.ids(state="denied") == [asked[1]]
            assert await desk.ids(state="expired") == [asked[3]], "nobody waits for it any more"
            assert await desk.ids() == newest

    async def test_an_approval_is_decided_once_whoever_decides_at_once(self, place: StorePlace, tmp_path: Path) -> None:
        async with self.desk(place, tmp_path) as here, self.desk(place, tmp_path) as there:
            conversation, turn = await here.begin()
            approval = await here.ask(conversation, turn)
            decided: list[Approval] = []
            refused: list[str] = []

            async def decide(desk: Desk, person: str) -> None:
                try:
                    made = await desk.approvals.decide(
                        new_operation_id(), approval, "approve", actor=person, comment=None
                    )
                    decided.append(made)
                except ConflictError as error:
                    refused.append(error.code)

            async with anyio.create_task_group() as group:
                for number in range(6):
                    group.start_soon(decide, (here, there)[number % 2], f"prin_{number}")
            [made] = decided
            assert refused == ["approval.decided"] * 5
            assert (await there.approvals.get(approval)) == made
            assert made.state == "approved"

    async def test_the_same_decision_again_is_the_same_and_another_is_refused(
        self, place: StorePlace, tmp_path: Path
    ) -> None:
        async with self.desk(place, tmp_path) as desk:
            approval = await desk.ask(*await desk.begin())
            operation = new_operation_id()
            made = await desk.approvals.decide(operation, approval, "deny", actor=PERSON, comment="not now")
            assert (made.state, made.decided_by, made.comment) == ("denied", PERSON, "not now")
            assert await desk.approvals.decide(operation, approval, "deny", actor=PERSON, comment="not now") == made
            with pytest.raises(ConflictError) as refused:
                await desk.approvals.decide(new_operation_id(), approval, "deny", actor=PERSON, comment="not now")
            assert refused.value.code == "approval.decided"

    async def test_what_has_expired_or_whose_turn_is_over_cannot_be_decided(
        self, place: StorePlace, tmp_path: Path
    ) -> None:
        async with self.desk(place, tmp_path) as desk:
            conversation, turn = await desk.begin()
            late = await desk.ask(conversation, turn, expires_at=BEFORE)
            left = await desk.ask(conversation, turn)
            codes = []
            for approval in (late, left):
                if approval == left:
                    await desk.store.log.append(batch(conversation, TurnFinished(outcome="done"), turn=turn))
                    await desk.store.log.append(message(conversation, "again", turn=new_turn_id()))
                with pytest.raises(ConflictError) as refused:
                    await desk.approvals.decide(new_operation_id(), approval, "approve", actor=PERSON, comment=None)
                codes.append(refused.value.code)
            assert codes == ["approval.expired", "approval.expired"]

    async def test_a_fork_does_not_ask_again(self, place: StorePlace, tmp_path: Path) -> None:
        async with self.desk(place, tmp_path) as desk:
            conversation, turn = await desk.begin()
            approval = await desk.ask(conversation, turn)
            fork = await new_fork(desk.store.catalog, conversation, 3)
            await desk.store.log.append(message(fork, "go on", turn=new_turn_id()))
            [found] = await desk.approvals.list(limit=10)
            assert (found.id, found.conversation) == (approval, conversation)
            await desk.approvals.decide(new_operation_id(), approval, "approve", actor=ACTOR, comment=None)
            assert [event.type for event in await desk.store.log.read(fork, 3, 10)] == [
                "conversation.created",
                "message.sent",
            ]
