"""Group commit: who shares a transaction, who waits, and who is told what."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from eventually import eventually
from outlive.base import (
    ConflictError,
    ConversationId,
    ExhaustedError,
    InvalidError,
    OutliveError,
    UnavailableError,
)
from outlive.conversation.backends import group
from outlive.conversation.backends.group import Done, GroupCommitter
from outlive.conversation.events import MessageSent, NewEvent
from outlive.conversation.log import Append, Appended

pytestmark = pytest.mark.anyio

AT = "2030-01-02T03:04:05.000006Z"


def append_of(key: str, text: str = "x") -> Append:
    return Append(ConversationId("conv_1"), (NewEvent(MessageSent(message="m", text=text), AT),), key, "me")


class Transactions:
    """A database that commits when it is told to. A key that begins with "bad" is refused."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.gate = anyio.Event()
        self.gate.set()
        self.failure: OutliveError | None = None
        self.is_refusing = False
        self.tasks: anyio.abc.TaskGroup | None = None

    def start(self, appends: list[Append], done: Done) -> None:
        if self.is_refusing:
            raise ExhaustedError("test.refusing", "no more")
        assert self.tasks is not None
        self.groups.append([append.key for append in appends])
        self.tasks.start_soon(self._commit, appends, done)

    async def _commit(self, appends: list[Append], done: Done) -> None:
        await self.gate.wait()
        if self.failure is not None:
            done(None, self.failure)
            return
        results: list[Appended | OutliveError] = [
            ConflictError("test.bad", append.key) if append.key.startswith("bad") else Appended((), is_repeat=False)
            for append in appends
        ]
        done(results, None)


class Callers:
    """Appends under way, and how each ended."""

    def __init__(self, committer: GroupCommitter, tasks: "anyio.abc.TaskGroup") -> None:
        self._committer = committer
        self._tasks = tasks
        self.ends: dict[str, str] = {}

    def send(self, append: Append) -> None:
        self._tasks.start_soon(self._send, append)

    async def _send(self, append: Append) -> None:
        try:
            await self._committer.append(append)
            self.ends[append.key] = "appended"
        except OutliveError as error:
            self.ends[append.key] = error.code


@asynccontextmanager
async def running(
    transactions: Transactions, patience_s: float = 10.0
) -> AsyncIterator[tuple[GroupCommitter, Callers]]:
    committer = GroupCommitter(transactions.start, patience_s=patience_s)
    async with anyio.create_task_group() as tasks:
        transactions.tasks = tasks
        yield committer, Callers(committer, tasks)
        committer.close()
        tasks.cancel_scope.cancel()


async def test_what_waits_while_a_transaction_runs_shares_the_next_one() -> None:
    transactions = Transactions()
    async with running(transactions) as (_, callers):
        transactions.gate = anyio.Event()
        callers.send(append_of("first"))
        await eventually(lambda: transactions.groups == [["first"]])
        for number in range(20):
            callers.send(append_of(str(number)))
        await anyio.wait_all_tasks_blocked()
        assert callers.ends == {}
        transactions.gate.set()
        await eventually(lambda: len(callers.ends) == 21)
    assert transactions.groups == [["first"], [str(number) for number in range(20)]]


async def test_one_refused_append_does_not_touch_the_others_of_its_group() -> None:
    async with running(Transactions()) as (_, callers):
        for key in ("a", "bad", "b"):
            callers.send(append_of(key))
        await eventually(lambda: len(callers.ends) == 3)
        assert callers.ends == {"a": "appended", "bad": "test.bad", "b": "appended"}


async def test_a_transaction_that_fails_fails_all_of_its_group_and_none_after() -> None:
    transactions = Transactions()
    async with running(transactions) as (committer, callers):
        transactions.failure = UnavailableError("test.away", "away", retry_after_s=3, part="disk")
        errors = []

        async def fail(key: str) -> None:
            with pytest.raises(UnavailableError) as failed:
                await committer.append(append_of(key))
            errors.append(failed.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, "a")
            tasks.start_soon(fail, "b")
        assert [(error.code, error.retry_after_s, error.facts) for error in errors] == [
            ("test.away", 3, {"part": "disk"})
        ] * 2
        assert errors[0] is not errors[1]
        transactions.failure = None
        callers.send(append_of("c"))
        await eventually(lambda: callers.ends == {"c": "appended"})


async def test_a_group_is_bounded_in_appends_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "GROUP_LIMIT", 3)
    monkeypatch.setattr(group, "GROUP_BYTES", 5_000)
    transactions = Transactions()
    async with running(transactions) as (_, callers):
        for key in ("first", "1", "2", "3", "4"):
            callers.send(append_of(key))
        for key in ("big", "bigger"):
            callers.send(append_of(key, "x" * 4_000))
        callers.send(append_of("alone", "x" * 9_000))
        await eventually(lambda: len(callers.ends) == 8)
    assert transactions.groups == [["first"], ["1", "2", "3"], ["4", "big"], ["bigger"], ["alone"]]


async def test_who_comes_when_all_is_full_waits_for_room_and_then_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WAITING_LIMIT", 3)
    transactions = Transactions()
    async with running(transactions, patience_s=0.05) as (committer, callers):
        transactions.gate = anyio.Event()
        callers.send(append_of("running"))
        await eventually(lambda: len(transactions.groups) == 1)
        for key in ("1", "2", "3"):
            callers.send(append_of(key))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ExhaustedError) as refused:
            await committer.append(append_of("too many"))
        assert refused.value.code == "log.busy"
        transactions.gate.set()
        await eventually(lambda: len(callers.ends) == 4)
        assert set(callers.ends.values()) == {"appended"}


async def test_who_waits_for_room_is_let_in_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WAITING_BYTES", 2_000)
    transactions = Transactions()
    async with running(transactions) as (_, callers):
        transactions.gate = anyio.Event()
        callers.send(append_of("running"))
        await eventually(lambda: len(transactions.groups) == 1)
        callers.send(append_of("waits", "x" * 1_000))
        callers.send(append_of("for room", "x" * 1_000))
        await anyio.wait_all_tasks_blocked()
        transactions.gate.set()
        await eventually(lambda: len(callers.ends) == 3)
        assert set(callers.ends.values()) == {"appended"}


async def test_a_caller_that_went_away_is_left_out_and_nobody_else_is() -> None:
    transactions = Transactions()
    async with running(transactions) as (committer, callers):
        transactions.gate = anyio.Event()
        callers.send(append_of("running"))
        await eventually(lambda: len(transactions.groups) == 1)
        callers.send(append_of("before"))
        with anyio.move_on_after(0.01):
            await committer.append(append_of("gone"))
        callers.send(append_of("after"))
        await anyio.wait_all_tasks_blocked()
        transactions.gate.set()
        await eventually(lambda: len(callers.ends) == 3)
    assert transactions.groups == [["running"], ["before", "after"]]


async def test_a_transaction_that_cannot_start_fails_its_group_and_none_after() -> None:
    transactions = Transactions()
    async with running(transactions) as (_, callers):
        transactions.is_refusing = True
        callers.send(append_of("a"))
        await eventually(lambda: callers.ends == {"a": "test.refusing"})
        transactions.is_refusing = False
        callers.send(append_of("b"))
        await eventually(lambda: callers.ends == {"a": "test.refusing", "b": "appended"})


async def test_nobody_waits_for_ever_for_a_transaction_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "DEADLINE_S", 0.1)
    transactions = Transactions()
    async with running(transactions) as (_, callers):
        callers.send(append_of("before"))
        await eventually(lambda: callers.ends == {"before": "appended"})
        transactions.gate = anyio.Event()
        callers.send(append_of("hangs"))
        await eventually(lambda: len(transactions.groups) == 2)
        callers.send(append_of("waits"))
        await eventually(lambda: callers.ends == {"before": "appended", "hangs": "log.slow", "waits": "log.slow"})
        transactions.gate.set()
        callers.send(append_of("after"))
        await eventually(lambda: callers.ends.get("after") == "appended")
    assert transactions.groups == [["before"], ["hangs"], ["after"]]


async def test_nobody_is_left_waiting_when_the_log_is_closed() -> None:
    transactions = Transactions()
    async with running(transactions) as (committer, callers):
        transactions.gate = anyio.Event()
        callers.send(append_of("running"))
        await eventually(lambda: len(transactions.groups) == 1)
        callers.send(append_of("waiting"))
        await anyio.wait_all_tasks_blocked()
        committer.close()
        await eventually(lambda: callers.ends == {"running": "log.closed", "waiting": "log.closed"})
        with pytest.raises(UnavailableError):
            await committer.append(append_of("late"))
        transactions.gate.set()
        await anyio.wait_all_tasks_blocked()
    assert transactions.groups == [["running"]]


async def test_those_answered_together_share_the_next_transaction_too() -> None:
    transactions = Transactions()
    async with running(transactions) as (committer, _):

        async def send(name: str) -> None:
            for number in range(3):
                await committer.append(append_of(f"{name}{number}"))

        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(send, name)
    assert transactions.groups == [
        ["a0"],
        ["b0", "c0", "d0", "a1"],
        ["b1", "c1", "d1", "a2"],
        ["b2", "c2", "d2"],
    ]


async def test_text_that_no_database_can_hold_is_refused_before_it_joins_a_group() -> None:
    transactions = Transactions()
    async with running(transactions) as (committer, _):
        for key in ("a\x00", "\udc00"):
            with pytest.raises(InvalidError):
                await committer.append(append_of(key))
    assert transactions.groups == []
