"""A batch while its stack and its command are killed, chosen by a seed. At the end each item is done exactly once: by
the results, by the logs, and by the count of the provider.

Run it with `make crash ARGS=batch`; `ARGS="batch --items 100 --kills 3 --seed 7"` for another size and another course.
"""

import argparse
import json
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crash.batch.stacks import BatchCommand, BatchStack, batch_stack
from eventually import eventually_sync
from outlive.client.batches import Line
from outlive.testing.pretend_provider import Call

REPORT = Path(__file__).parents[3] / "bench" / "results" / "crash-batch.md"
PROGRESS_WITHIN_S = 900.0


@dataclass(slots=True)
class Outcome:
    """What a campaign came to."""

    seed: int
    items: int
    killed: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    results: int = 0
    conversations: int = 0
    steps: int = 0
    attempts: int = 0
    calls: int = 0
    answered: int = 0
    said: str = ""  # by the command
    wrongs: list[str] = field(default_factory=list)


class Campaign:
    def __init__(self, stack: BatchStack, file: Path, seed: int, say: Callable[[str], None]) -> None:
        self._stack = stack
        self._file = file
        self._random = random.Random(seed)
        self._seed = seed
        self._say = say

    def run(self, items: int, kills: int, command_kills: int, parallel: int) -> Outcome:
        lines = (json.dumps({"id": f"i{n:05}", "prompt": f"[[say Answer {n:05}.]]"}) + "\n" for n in range(items))
        self._file.write_text("".join(lines))
        outcome = Outcome(self._seed, items)
        victims = ["stack"] * kills + ["command"] * command_kills
        self._random.shuffle(victims)
        # Spread over the whole batch, each at a moment of its own within its part.
        moments = [(n + self._random.random()) * items / (len(victims) + 1) for n in range(len(victims))]
        command = BatchCommand(self._stack, self._file, parallel)
        began = time.monotonic()
        try:
            command.start()
            for victim, moment in zip(victims, moments, strict=True):
                self._wait_for(command, int(moment))
                self._kill(command, victim)
                outcome.killed[victim] += 1
                self._say(f"kill -9 {victim:<8} after {int(moment):5} of {items} answers")
            eventually_sync(lambda: command.has_ended, PROGRESS_WITHIN_S * 2, every_s=0.2)
            outcome.took_s = time.monotonic() - began
            outcome.said = command.said
            outcome.wrongs += [] if command.exit_code == 0 else [f"exit: {command.exit_code}\n{command.said}"]
            self._look(command, outcome)
        except AssertionError as error:
            error.add_note(command.said[-4_000:])
            raise
        finally:
            command.close()
        return outcome

    def _wait_for(self, command: BatchCommand, answers: int) -> None:
        def is_there() -> bool:
            return command.has_ended or _bought(self._stack.provider.calls()) >= answers

        eventually_sync(is_there, PROGRESS_WITHIN_S, every_s=0.1)

    def _kill(self, command: BatchCommand, victim: str) -> None:
        if victim == "command":
            command.kill()
            command.start()
        else:
            self._stack.kill()
            self._stack.up()

    def _look(self, command: BatchCommand, outcome: Outcome) -> None:
        calls = self._stack.provider.calls()
        results, failures = command.lines("results.jsonl"), command.lines("failures.jsonl")
        outcome.results = len(results)
        made = self._stack.conversations(command.batch)
        outcome.conversations = len(made)
        attempts: Counter[str] = Counter()
        for conversation in made:
            events = self._stack.events(conversation["id"])
            outcome.wrongs += log_wrongs(conversation["id"], [event["type"] for event in events])
            attempts.update(event["step"] for event in events if event["type"] == "step.started")
        outcome.steps, outcome.attempts = len(attempts), attempts.total()
        outcome.calls, outcome.answered = len(calls), _bought(calls)
        outcome.wrongs += result_wrongs([f"i{n:05}" for n in range(outcome.items)], results, failures)
        outcome.wrongs += made_wrongs([str(each["metadata"]["item"]) for each in made], outcome.items)
        outcome.wrongs += buying_wrongs(calls, attempts)


def _bought(calls: Iterable[Call]) -> int:
    return len({call.step for call in calls if call.outcome == "answered"})


# ── what may not be: pure ──


def result_wrongs(names: Sequence[str], results: Sequence[Line], failures: Sequence[object]) -> list[str]:
    found = Counter(str(line["item"]) for line in results)
    wrongs = [f"results: {name} is there {found[name]} times" for name in names if found[name] != 1]
    wrongs += [f"results: {name} is no item" for name in found if name not in set(names)]
    for line in results:
        if line["answer"] != f"Answer {str(line['item'])[1:]}.":
            wrongs.append(f"results: {line['item']} has the answer {line['answer']!r}")
    return wrongs + [f"results: {len(failures)} failures"] * bool(failures)


def made_wrongs(items: Sequence[str], count: int) -> list[str]:
    found = Counter(items)
    wrongs = [f"asked: {item} has {times} conversations" for item, times in found.items() if times != 1]
    return wrongs + [f"asked: {len(found)} of {count} items have a conversation"] * (len(found) != count)


def log_wrongs(conversation: str, types: Sequence[str]) -> list[str]:
    found = Counter(types)
    once = ("conversation.created", "message.sent", "turn.started", "model.responded", "turn.finished")
    return [f"log: {conversation} has {found[type]} {type}" for type in once if found[type] != 1]


def buying_wrongs(calls: Sequence[Call], attempts: Counter[str]) -> list[str]:
    bought = Counter(call.step for call in calls)
    return [
        f"buying: {step} was asked for {times} times in {attempts[step]} attempts"
        for step, times in bought.items()
        if times > attempts[step]
    ]


_RULES = {
    "exit": "runs that did not end with 0",
    "results": "items that are not exactly once among the results, or have somebody else's answer",
    "asked": "items that were asked for twice, or never",
    "log": "conversations without exactly one message, one answer and one end",
    "buying": "answers bought more often than there were attempts at them",
}


def report_of(outcome: Outcome) -> str:
    found = Counter(wrong.partition(":")[0] for wrong in outcome.wrongs)
    facts = {
        "kills": ", ".join(f"{name} {count}" for name, count in sorted(outcome.killed.items())),
        "results": f"{outcome.results:,}",
        "conversations": f"{outcome.conversations:,}",
        "model steps": f"{outcome.steps:,}, in {outcome.attempts:,} attempts",
        "calls of the provider": f"{outcome.calls:,}, {outcome.answered:,} different answers told to the end",
        "items per second, kills included": f"{outcome.items / outcome.took_s:.1f}",
    }
    return "\n".join(
        (
            "# A batch while its stack is killed",
            "",
            f"`make crash ARGS=batch`, seed {outcome.seed}: {outcome.items:,} items in {outcome.took_s:,.0f} s, while "
            "every process of the stack was killed at once (`kill -9`) and started again, and the command too.",
            "",
            "| what may not be | found |",
            "|---|---|",
            *(f"| {text} | {found[rule]} |" for rule, text in _RULES.items()),
            "",
            "| what was | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items()),
            *(f"\n- {wrong}" for wrong in outcome.wrongs[:50]),
            "",
        )
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="make crash ARGS=batch", description="A batch while its stack is killed.")
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=10, help="of the whole stack")
    parser.add_argument("--command-kills", type=int, default=5, help="of `outlive batch run`")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--report", type=Path, default=REPORT)
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}: {given.items} items, {given.kills} kills of the stack", flush=True)
    with tempfile.TemporaryDirectory(prefix="outlive-crash-") as folder, batch_stack(Path(folder)) as stack:
        campaign = Campaign(stack, Path(folder) / "items.jsonl", given.seed, lambda text: print(text, flush=True))
        outcome = campaign.run(given.items, given.kills, given.command_kills, given.parallel)
    given.report.write_text(report_of(outcome))
    print(report_of(outcome), flush=True)
    if outcome.wrongs:
        raise SystemExit(1)
