"""What a crash campaign of turns came to, as a page. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crash.loop.checker import Account, outcomes_of

_RULES = {
    "log": "events lost or doubled, turns that did not end as done",
    "steps": "steps sealed twice, by an old attempt, or retried without a word",
    "buying": "sealed steps bought again",
    "effects": "effects done twice, or not done and not marked lost",
    "stream": "followers that were shown something wrong",
    "reading": "transcripts that differ from an undisturbed run of the same kind",
    "asking": "people asked twice or not heard; waits, raises or subagents begun twice or not told of",
    "batches": "items of batches that are not done exactly once",
    "left": "machines of losers and forked subagents that are still there",
}
_SHOWN = 50  # wrongs


@dataclass(frozen=True, slots=True)
class Tally:
    seed: int
    took_s: float
    conversations: int  # that people began
    killed: Mapping[str, int]
    kinds: Mapping[str, int]
    accounts: Sequence[Account]
    wrongs: Sequence[str]


def report_of(tally: Tally) -> str:
    by_rule = Counter(wrong.partition(":")[0] for wrong in tally.wrongs)
    return "\n".join(
        (
            "# Turns while everything is killed",
            "",
            f"`make crash ARGS=loop`, seed {tally.seed}: {sum(tally.killed.values())} times `kill -9` in "
            f"{tally.took_s:,.0f} s, on one stack with {tally.conversations} people at a time, each in a conversation "
            "that a client follows all the time. What they ask for leaves lines that are counted; a run of each kind "
            "that nothing happened to is what the others are compared with. Conversations of subagents, contestants "
            "and items are checked as those of people are. The pretend provider counts what is bought. When the stack "
            "was stopped, nothing was left of it on the host.",
            "",
            "| what may not be | found |",
            "|---|---|",
            *(f"| {text} | {by_rule[rule]} |" for rule, text in _RULES.items()),
            "",
            "| what was | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in _facts(tally).items()),
            "",
            "| what was asked for | times |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in tally.kinds.items()),
            *(f"\n- {wrong}" for wrong in tally.wrongs[:_SHOWN]),
            "",
        )
    )


def _facts(tally: Tally) -> dict[str, str]:
    events = [event for account in tally.accounts for event in account.own]
    calls = [call for account in tally.accounts for call in account.calls]
    types = Counter(event.type for event in events)
    seals = types["model.responded"] + types["tool.finished"]
    mended = Counter(event.data["what"] for event in events if event.type == "turn.recovered")
    outcomes = Counter(
        outcome for account in tally.accounts for each in outcomes_of(account.own).values() for _, outcome in each
    )
    answered = sum(call.outcome == "answered" for call in calls)
    return {
        "kills": ", ".join(f"{name} {count}" for name, count in sorted(tally.killed.items())),
        "conversations": f"{len(tally.accounts)}, {tally.conversations} of them begun by people",
        "turns": f"{types['turn.finished']}, of {types['message.sent']} messages",
        "events": f"{len(events):,}",
        "steps": f"{seals:,} sealed, in {types['step.started']:,} attempts",
        "mended without anybody": _counts(mended),
        "effects": _counts(outcomes),
        "model calls": f"{len(calls):,}, {answered:,} told to the end, for {types['model.responded']:,} sealed steps",
    }


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"
