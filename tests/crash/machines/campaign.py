"""The crash campaign: rounds of one verb and one accident each, on a few machines of one stack with a second node
beside it, chosen by a seed.

After each round all is given time to settle, then the invariants are checked:
1. no effect ran twice; one that is said to be finished left its line, unless the machine says that it was rolled back;
2. what was once said of an effect is said again;
3. a machine is in a state that the API knows, and its generation never falls;
4. what a person has paused stays paused until somebody says resume;
5. no machine has more than one sandbox that lives, on whichever node.
A node that is cut off for longer than its lease has to have frozen its machines before they come up on the other one
(`partition.py` has the rules). At the end everything is deleted and stopped, and nothing is left: on the host, in the
folders of both nodes, in the store.

Run it with `make crash ARGS=machines`; `ARGS="machines --rounds 20 --seed 7"` for another length and another course,
`--report` writes what it came to.
"""

import argparse
import os
import random
import secrets
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import anyio

from crash.machines.nodes import House, OtherNode, OwnNode, other_node
from crash.machines.partition import Sign, cut_off, end_signs, give_sign, is_on
from crash.machines.report import Tally, report_of
from crash.machines.stacks import LEASES, PROCESSES, Answer, CrashStack, Facts, append
from eventually import eventually_sync
from outlive.base import CrashPoint, SystemClock
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.sweeper import sweep_once
from outlive.wiring.build import open_object_store, open_stores
from outlive.wiring.settings import Settings

REPORT = Path(__file__).parents[3] / "bench" / "results" / "crash-machines.md"
MACHINES = 3
POINTS = [
    point for point in CrashPoint if point.partition(".")[0] in ("exec", "up", "checkpoint", "hibernate", "remove")
]
VERBS = (
    *("create", "exec", "exec_again", "background", "hibernate", "wake"),
    *("pause", "resume", "checkpoint", "fork", "delete"),
)
ACCIDENTS = ("none", "point", "kill", "kill_two", "stop_node", "kill_sandbox", "partition")
OTHER = "other node"
VICTIMS = (*PROCESSES, OTHER)
TRIES = 20  # to have a machine give signs of life: the accident of the last round may show only now
SAVED = 0.75  # of the machines whose node is cut off are saved just before that
REFUSALS = {  # what a verb may be told instead of being done: the machine is in no state for it, and it says so
    "machine.paused",
    "machine.hibernated",
    "machine.lost",
    "machine.deleted",
    "machine.unknown",
    "machine.not_reached",
    "machine.not_saved",
}


class Round(NamedTuple):
    number: int
    verb: str
    accident: str
    machine: str | None


class Campaign:
    """`other`: a node beside the stack's own, that is started again as that is."""

    def __init__(
        self, stack: CrashStack, other: OtherNode, seed: int, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.stack = stack
        self.other = other
        self.own = OwnNode(stack)
        self.tally = Tally(seed)
        self._say = say
        self._random = random.Random()  # of the round
        self._ids = random.Random(f"ids of {seed}")
        self._machines: dict[str, Facts] = {}  # as last seen
        self._commands: dict[str, tuple[str, str]] = {}  # effect -> machine, command
        self._outcomes: dict[str, Facts] = {}  # effect -> what was said of it when it was over
        self._paused: set[str] = set()  # a person has said so, and nobody has said resume

    def run(self, rounds: int) -> Tally:
        start = time.monotonic()
        with self.stack.trace.told_on_failure(f"seed {self.tally.seed}"):
            with self.other.kept():
                self._create(self._new("key"))
                for number in range(1, rounds + 1):
                    chosen = self._choose(number)
                    began = time.monotonic()
                    self._play(chosen)
                    self._check(chosen)
                    took_s = time.monotonic() - began
                    self._say(f"{number:4}/{rounds}  {chosen.verb:<11} {chosen.accident:<13} {took_s:5.1f} s")
                self._delete_all()
            self._end()
        self.tally.rounds, self.tally.took_s = rounds, time.monotonic() - start
        return self.tally

    # ── a round ──

    def _choose(self, number: int) -> Round:
        # Whatever the rounds before came to, this one has the same verb and the same accident.
        self._random = random.Random(f"{self.tally.seed} round {number}")
        verb = self._random.choice(VERBS)
        if verb in ("create", "fork") and len(self._machines) >= MACHINES:
            verb = "delete"
        if verb == "delete" and len(self._machines) < 2:
            verb = "create"
        accident = self._random.choice(ACCIDENTS)
        machine = self._random.choice(sorted(self._machines)) if self._machines else None
        if machine is None:
            verb = "create"
        return Round(number, verb, accident, machine)

    def _play(self, chosen: Round) -> None:
        self.stack.trace.say(f"── {chosen.number}: {chosen.verb} of {chosen.machine}, accident: {chosen.accident}")
        happen = self._prepare(chosen)
        self.tally.verbs[chosen.verb] += 1
        with ThreadPoolExecutor(1, "accident") as meanwhile:
            accident = meanwhile.submit(happen)
            try:
                self._do(chosen)
            finally:
                accident.exception()  # when it is over
                self.stack.disarm()
            accident.result()
        if chosen.accident == "partition":
            end_signs(self.stack, sorted(self._machines))

    def _prepare(self, chosen: Round) -> Callable[[], None]:
        """What happens meanwhile, with all that is random drawn beforehand: the course is the seed's alone."""
        delay_s = self._random.uniform(0.0, 0.3)
        victims = self._random.sample(VICTIMS, 2)
        stopped: House = self._random.choice((self.own, self.other))
        stopped_s = self._random.uniform(0.2, 5.0)
        point = self._random.choice(POINTS)
        is_saved = self._random.random() < SAVED
        machine, accident = chosen.machine, chosen.accident
        signs: list[Sign] = []
        if accident == "point":
            self.stack.arm(point)
        if accident == "partition" and machine is not None:
            stopped, signs = self._before_partition(machine, is_saved=is_saved)
            accident = "partition" if signs else "none"
        self.tally.accidents[accident] += 1

        def happen() -> None:
            threading.Event().wait(delay_s)
            match accident:
                case "kill":
                    self._kill(victims[0])
                case "kill_two":
                    self._kill(victims[0])
                    self._kill(victims[1])
                case "kill_sandbox" if machine is not None:
                    self.stack.kill_sandbox(machine)
                case "stop_node":
                    self._stop(stopped, stopped_s)
                case "partition":
                    self._cut_off(stopped, signs)

        return happen

    def _kill(self, victim: str) -> None:
        if victim == OTHER:
            self.stack.trace.say(f"kill -9 {OTHER} ({self.other.pid})")
            self.other.kill()
        else:
            self.stack.kill(victim)

    def _stop(self, house: House, seconds: float) -> None:
        pid = house.pid
        if pid is None:
            return
        self.stack.trace.say(f"the {house.name} ({pid}) stands still for {seconds:.1f} s")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            threading.Event().wait(seconds)
            os.kill(pid, signal.SIGCONT)

    def _before_partition(self, machine: str, *, is_saved: bool) -> tuple[House, list[Sign]]:
        """The node that has this machine, and all there that give signs of life; none if it cannot be had running."""
        if self.stack.look(machine)["state"] != "running":
            self._change(machine, "resume")
        for _ in range(TRIES):
            seen = self.stack.settled(machine)
            house: House = self.other if is_on(seen, self.other) else self.own
            sign = give_sign(self.stack, house, machine, is_saved=is_saved)
            if sign is not None:
                others = [each for each in sorted(self._machines) if each != machine]
                signs = (give_sign(self.stack, house, each, is_saved=False) for each in others)
                return house, [sign, *(each for each in signs if each is not None)]
            if seen["state"] != "running":
                break
        return self.own, []

    def _cut_off(self, house: House, signs: Sequence[Sign]) -> None:
        fates = cut_off(self.stack, house, self.own if house is self.other else self.other, signs)
        self.tally.cut[house.name] += 1
        self.tally.fates += fates
        self.tally.checked["machines cut off"] += sum(fate.word in ("elsewhere", "lost") for fate in fates)
        self.tally.checked["stale machines"] += len(fates)

    def _do(self, chosen: Round) -> None:
        machine = chosen.machine or ""
        match chosen.verb:
            case "create":
                self._create(self._new("key"))
            case "exec" | "background":
                self._exec(machine, self._new("eff"), is_background=chosen.verb == "background")
            case "exec_again":
                known = [effect for effect, (of, _) in self._commands.items() if of == machine]
                self._exec(machine, self._random.choice(known) if known else self._new("eff"))
            case "fork":
                answer = self.stack.do(machine, "fork", self._new("key"))
                if self._is_done(answer):
                    self._machines[answer.body["id"]] = answer.body
            case verb:
                self._change(machine, verb)

    def _create(self, key: str) -> None:
        made = self.stack.create(key)
        self._machines[made["id"]] = made

    def _change(self, machine: str, verb: str) -> None:
        if verb == "resume":
            self._paused.discard(machine)
        answer = self.stack.do(machine, verb, self._new("key"))
        is_done = self._is_done(answer)
        if verb == "pause" and is_done:
            self._paused.add(machine)
        if verb == "delete":
            assert is_done or answer.status == 404, answer
            self._forget(machine)

    def _forget(self, machine: str) -> None:
        del self._machines[machine]
        self._paused.discard(machine)
        self._commands = {effect: known for effect, known in self._commands.items() if known[0] != machine}

    def _exec(self, machine: str, effect: str, *, is_background: bool = False) -> None:
        command = self._commands.get(effect, ("", append(effect, after_s=0.3 if is_background else 0.0)))[1]
        self._commands[effect] = (machine, command)
        answer = self.stack.exec(machine, effect, command, background=is_background)
        if self._is_done(answer):
            self._note(effect, answer.body)

    def _note(self, effect: str, said: Facts) -> None:
        if said["outcome"] == "started":
            return
        if effect not in self._outcomes:
            self.tally.outcomes[said["outcome"]] += 1
        self.tally.checked["answers compared"] += effect in self._outcomes
        known = self._outcomes.setdefault(effect, said)
        assert said == known, f"of {effect} was said {known}, now {said}"

    def _is_done(self, answer: Answer) -> bool:
        if answer.status == 200:
            return True
        assert answer.code in REFUSALS, answer
        self.tally.refused[answer.code] += 1
        return False

    # ── what holds after each ──

    def _check(self, chosen: Round) -> None:
        self.stack.wait_until_well()
        eventually_sync(lambda: self.other.is_well, 60.0)
        for machine in sorted(self._machines):
            seen = self.stack.settled(machine)
            assert seen["state"] != "deleted", seen
            assert seen["generation"] >= self._machines[machine]["generation"], seen
            if machine in self._paused:
                assert seen["desired"] == "paused", f"a person's stop was ended: {seen}"
                assert seen["state"] in ("paused", "hibernated", "lost"), seen
            has_moved = seen["node"] != self._machines[machine]["node"]
            self._machines[machine] = seen
            self.tally.checked["machines looked at"] += 1
            self._check_alone(machine)
            if seen["state"] == "running" and (machine == chosen.machine or chosen.verb == "fork" or has_moved):
                self._check_effects(machine)
            elif seen["state"] == "lost" and seen["checkpoint"] is None:
                assert seen["reason"], seen  # honestly lost
                self._change(machine, "delete")

    def _check_alone(self, machine: str) -> None:
        """Stale ones may be on their way out; two that live may not be."""
        eventually_sync(lambda: len(self.stack.living(machine)) <= 1, 30.0, every_s=0.1)
        self.tally.checked["sandboxes counted"] += 1

    def _check_effects(self, machine: str) -> None:
        effects = [effect for effect, (of, _) in self._commands.items() if of == machine]
        # Asked before the lines are looked at: one that runs in the background may end between the two.
        answers = {effect: self.stack.ask("GET", f"/v1/machines/{machine}/effects/{effect}") for effect in effects}
        lines = Counter(self.stack.lines(machine))
        assert not [line for line, count in lines.items() if count > 1], f"ran more than once: {lines}"
        gone = self.stack.rolled_back(machine) if any(effect not in lines for effect in effects) else set()
        self.tally.checked["commands looked for"] += len(effects)
        for effect, answer in answers.items():
            if answer.status == 404:
                assert effect not in lines, f"{effect} ran, and nobody knows of it"
                continue
            self._note(effect, answer.body)
            if answer.body["outcome"] == "finished":
                assert effect in lines or effect in gone, f"{effect} is finished and has left nothing"

    # ── the end ──

    def _delete_all(self) -> None:
        for machine in sorted(self._machines):
            if machine in self._paused:
                self._change(machine, "resume")
            if self.stack.settled(machine)["state"] != "lost":
                self._check_effects(machine)
            self._change(machine, "delete")

    def _end(self) -> None:
        self.other.down()
        self.stack.down()
        left = anyio.run(swept, self.stack.home.path)
        assert left == [], f"left in the store: {left}"
        self.tally.checked["places looked at"] += len(self.stack.node_paths) + 1

    def _new(self, kind: str) -> str:
        return f"{kind}_{self._ids.getrandbits(128):032x}"


async def swept(home: Path) -> list[str]:
    """What is left of checkpoints in the store of a home that is down, after a sweep."""
    settings = Settings(home=home)
    async with open_stores(settings, SystemClock()) as stores:
        objects = await open_object_store(settings)
        await sweep_once(stores.checkpoints, CheckpointStore(objects))
        return [found.key async for found in objects.list("checkpoints")]


@contextmanager
def two_nodes(path: Path) -> Iterator[tuple[CrashStack, OtherNode]]:
    """What a campaign is played on."""
    with CrashStack(path, **LEASES).running() as stack, other_node(stack, path / "other") as other:
        yield stack, other


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="make crash ARGS=machines", description="Rounds of verbs and accidents on real machines."
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--report", type=Path, nargs="?", const=REPORT, help=f"by default {REPORT.name}")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}, {given.rounds} rounds", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="outlive-crash-") as folder,
        two_nodes(Path(folder)) as (stack, other),
    ):
        campaign = Campaign(stack, other, given.seed, lambda text: print(text, flush=True))
        page = report_of(campaign.run(given.rounds))
    if given.report is not None:
        given.report.write_text(page)
    print(page, flush=True)
    print(f"seed {given.seed}: {given.rounds} rounds, no command ran twice, nothing is left", flush=True)
