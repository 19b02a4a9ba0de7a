"""The crash campaign of turns: conversations that go on all the time on one stack, while its processes are killed at
random, chosen by a seed. So is what is asked for: turns that ask people, wait, delegate, run out of budget, races and
batches (`kinds.py` has the table). At the end the checker looks at every conversation (`checker.py` has the rules), and
nothing may be left on the host.

Run it with `make crash ARGS=loop`; `ARGS="loop --kills 20 --turns 6 --seed 7"` for another length and another course.
"""

import argparse
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from crash.loop.checker import Account, Usual, usual_of, wrongs
from crash.loop.kinds import AGENT, KINDS, Kind
from crash.loop.people import Person
from crash.loop.report import Tally, report_of
from crash.loop.stacks import LoopStack, loop_stack
from crash.machines.stacks import PROCESSES
from eventually import eventually

_HASTY = 0.25  # of the kills do not wait until something has gone on since the last
_STANDSTILL_S = 30.0
REPORT = Path(__file__).parents[3] / "bench" / "results" / "crash-loop.md"


class Campaign:
    def __init__(
        self,
        stack: LoopStack,
        seed: int,
        *,
        kills: int,
        turns: int,
        every_s: float,
        say: Callable[[str], None],
        stride: int = 1,
    ) -> None:
        """`every_s`: between two kills, on average, while turns go on; `stride`: events that come between two."""
        self._stack = stack
        self._seed = seed
        self._random = random.Random(seed)
        self._kills = kills
        self._turns = turns
        self._every_s = every_s
        self._say = say
        self._stride = stride
        self._deck = _deck(random.Random(f"{seed} kinds"))
        self._begun = 0
        self._over = 0
        self._killed: Counter[str] = Counter()

    async def run(self, conversations: int) -> Tally:
        with self._stack.trace.told_on_failure(f"seed {self._seed}"):
            usual = await self._undisturbed(conversations)
            began = time.monotonic()
            async with self._people(conversations, is_hasty=False) as people:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._kill, people)
                    for person in people:
                        group.start_soon(self._work, person)
                took_s = time.monotonic() - began
                await anyio.to_thread.run_sync(self._stack.wait_until_well)
                accounts = await self._accounts(people)
                said = [wrong for person in people for wrong in person.wrongs]
            return Tally(
                seed=self._seed,
                took_s=took_s,
                conversations=conversations,
                killed=dict(self._killed),
                kinds={kind.name: sum(person.done[kind.name] for person in people) for kind in KINDS},
                accounts=accounts,
                wrongs=[*said, *(wrong for account in accounts for wrong in wrongs(account, usual))],
            )

    async def _undisturbed(self, conversations: int) -> Mapping[str, Usual]:
        """Each kind once, with nothing happening to it."""
        left = [(kind, f"u{place:04}") for place, kind in enumerate(KINDS)]

        async def work(person: Person) -> None:
            while left:
                await person.do(*left.pop(0))

        async with self._people(conversations, is_hasty=True) as people:
            async with anyio.create_task_group() as group:
                for person in people:
                    group.start_soon(work, person)
            accounts = await self._accounts(people)
            usual = {name: each for account in accounts for name, each in usual_of(account).items()}
            found = [wrong for account in accounts for wrong in wrongs(account, usual)]
            found += [wrong for person in people for wrong in person.wrongs]
        assert not found, f"with nothing killed: {found}"
        return usual

    @asynccontextmanager
    async def _people(self, count: int, *, is_hasty: bool) -> AsyncIterator[list[Person]]:
        self._stack.must(self._stack.ask("POST", "/v1/agents", dict(AGENT)))
        with tempfile.TemporaryDirectory(prefix="outlive-batches-") as folder:
            async with (
                self._stack.talks(count, agent=str(AGENT["name"])) as talks,
                anyio.create_task_group() as following,
            ):
                yield [
                    Person(talk, following, Path(folder), f"{self._seed} {place}", is_hasty=is_hasty)
                    for place, talk in enumerate(talks)
                ]
                following.cancel_scope.cancel()

    async def _accounts(self, people: Sequence[Person]) -> list[Account]:
        calls = self._stack.calls()
        return [account for person in people for account in await person.accounts(calls)]

    # ── at the same time ──

    async def _work(self, person: Person) -> None:
        """One thing after the other, for as long as somebody kills or more is wanted."""
        while self._killed.total() < self._kills or self._begun < self._turns:
            self._begun += 1
            await person.do(next(self._deck), f"t{self._begun:04}")
            self._over += 1

    async def _kill(self, people: Sequence[Person]) -> None:
        while self._killed.total() < self._kills:
            goal = _progress(people) + self._stride
            await anyio.sleep(self._random.uniform(0.0, 2 * self._every_s))
            victim = self._random.choice(PROCESSES)
            if self._random.random() > _HASTY:
                # On a busy host nothing would ever get up between two kills, and they would hit nothing but starts.
                with suppress(AssertionError):
                    await eventually(lambda goal=goal: _progress(people) >= goal, _STANDSTILL_S)  # type: ignore[misc]
            if self._stack.pid_of(victim) is None:  # not back yet from the last time
                continue
            self._stack.kill(victim)
            self._killed[victim] += 1
            self._say(f"{self._killed.total():4}/{self._kills}  kill -9 {victim:<8}  {self._over} turns have ended")


def _progress(people: Sequence[Person]) -> int:
    return sum(person.progress for person in people)


def _deck(chance: random.Random) -> Iterator[Kind]:
    """All kinds in some order, then all of them in another, for ever."""
    while True:
        yield from chance.sample(KINDS, len(KINDS))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="make crash ARGS=loop", description="Turns that go on while all is killed.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--turns", type=int, default=100, help="at least; races and batches are some")
    parser.add_argument("--conversations", type=int, default=6, help="at the same time")
    parser.add_argument("--every", type=float, default=1.5, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--report", type=Path, default=REPORT)
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}: {given.kills} kills, at least {given.turns} turns", flush=True)
    with tempfile.TemporaryDirectory(prefix="outlive-crash-") as folder, loop_stack(Path(folder)) as stack:
        campaign = Campaign(
            stack,
            given.seed,
            kills=given.kills,
            turns=given.turns,
            every_s=given.every,
            say=lambda text: print(text, flush=True),
        )
        tally = anyio.run(campaign.run, given.conversations)
        stack.down()
    given.report.write_text(report_of(tally))
    print(report_of(tally), flush=True)
    if tally.wrongs:
        raise SystemExit(1)
