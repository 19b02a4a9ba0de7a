"""The crash campaign of turns: conversations that go on all the time on one stack, while its processes are killed at
random, chosen by a seed. At the end the checker looks at every conversation (`checker.py` has the rules), and nothing
may be left on the host.

Run it with `make crash ARGS=loop`; `ARGS="loop --kills 20 --turns 6 --seed 7"` for another length and another course.
"""

import argparse
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from crash.loop.checker import Account, Item, wrongs
from crash.loop.report import Tally, report_of
from crash.loop.stacks import LoopStack, loop_stack
from crash.loop.talks import Talk
from crash.machines.stacks import PROCESSES
from eventually import eventually

TAG = "t0000"
TURN_WITHIN_S = 1_800.0  # while everything dies
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
    ) -> None:
        """`every_s`: between two kills, on average, while turns go on."""
        self._stack = stack
        self._seed = seed
        self._random = random.Random(seed)
        self._kills = kills
        self._turns = turns
        self._every_s = every_s
        self._say = say
        self._begun = 0
        self._over = 0
        self._killed: Counter[str] = Counter()

    async def run(self, conversations: int) -> Tally:
        with self._stack.trace.told_on_failure(f"seed {self._seed}"):
            undisturbed = await self._undisturbed()
            began = time.monotonic()
            async with self._stack.talks(conversations) as talks:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._kill, talks)
                    for talk in talks:
                        group.start_soon(self._talk, talk)
                took_s = time.monotonic() - began
                await anyio.to_thread.run_sync(self._stack.wait_until_well)
                accounts = [await talk.account(self._stack.calls()) for talk in talks]
            return self._tally(accounts, undisturbed, took_s)

    async def _undisturbed(self) -> list[Item]:
        async with self._stack.talks() as [talk]:
            await talk.do(TAG)
            return list((await talk.account(())).transcript)

    # ── at the same time ──

    async def _talk(self, talk: Talk) -> None:
        """One turn after the other, for as long as somebody kills or turns are wanted."""
        while self._killed.total() < self._kills or self._begun < self._turns:
            self._begun += 1
            await talk.ended(await talk.send(f"t{self._begun:04}"), TURN_WITHIN_S)
            self._over += 1

    async def _kill(self, talks: Sequence[Talk]) -> None:
        while self._killed.total() < self._kills:
            head = _heads(talks)
            await anyio.sleep(self._random.uniform(0.0, 2 * self._every_s))
            victim = self._random.choice(PROCESSES)
            if self._random.random() > _HASTY:
                # On a busy host nothing would ever get up between two kills, and they would hit nothing but starts.
                with suppress(AssertionError):
                    await eventually(lambda head=head: _heads(talks) > head, _STANDSTILL_S)  # type: ignore[misc]
            if self._stack.pid_of(victim) is None:  # not back yet from the last time
                continue
            self._stack.kill(victim)
            self._killed[victim] += 1
            self._say(f"{self._killed.total():4}/{self._kills}  kill -9 {victim:<8}  {self._over} turns have ended")

    # ── afterwards ──

    def _tally(self, accounts: Sequence[Account], undisturbed: Sequence[Item], took_s: float) -> Tally:
        return Tally(
            seed=self._seed,
            took_s=took_s,
            killed=dict(self._killed),
            accounts=accounts,
            wrongs=[wrong for account in accounts for wrong in wrongs(account, undisturbed, TAG)],
        )


def _heads(talks: Sequence[Talk]) -> int:
    return sum(talk.view.head for talk in talks)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="make crash ARGS=loop", description="Turns that go on while all is killed.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--turns", type=int, default=100, help="at least")
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
