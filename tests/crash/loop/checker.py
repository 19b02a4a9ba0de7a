"""What holds of every conversation, whatever died while it went on. Pure: from the log, what a follower was shown, what
the provider was asked and what is in the machine, to a list of what is wrong.

1. The log has no hole and no double; every turn begins once, ends once and is done; every message is in it once.
2. A step is sealed once, by its newest attempt; each attempt after the first is explained by a `turn.recovered`.
3. A sealed step is never bought again; no attempt asks the provider more than once.
4. Every effect happened exactly once, or is marked lost and happened at most once. No write undid what came after it.
5. A follower was shown every event once, in order; live output only of the attempt at hand, and none that was not said.
6. What a person reads equals an undisturbed run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outlive.client import Event
from outlive.testing.pretend_provider import Call

SEALS = ("model.responded", "tool.finished")
LIVE = ("model.delta", "tool.output")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Account:
    """All that is known of one conversation when it is over."""

    turns: Mapping[str, str]  # tag of what was asked for -> turn
    log: Sequence[Event]
    seen: Sequence[Event]  # by a follower that was there all the time
    shown: Sequence[Item]  # what is on that follower's screen
    transcript: Sequence[Item]
    calls: Sequence[Call]  # of the provider, for steps of this conversation
    lines: Sequence[str]  # of the machine's files, as file:line


def wrongs(account: Account, undisturbed: Sequence[Item], tag: str) -> list[str]:
    """What is wrong, each behind the name of the rule. `undisturbed` is the transcript of a turn that nothing happened
    to, which was asked for `tag`."""
    found = {
        "log": _log_wrongs(account),
        "steps": _step_wrongs(account.log),
        "buying": _buying_wrongs(account.log, account.calls),
        "effects": _effect_wrongs(account),
        "stream": _stream_wrongs(account.log, account.seen),
        "reading": _reading_wrongs(account, undisturbed, tag),
    }
    return [f"{rule}: {wrong}" for rule, all_wrong in found.items() for wrong in all_wrong]


# ── 1: the log ──


def _log_wrongs(account: Account) -> Iterable[str]:
    log = account.log
    if [event.seq for event in log] != list(range(1, len(log) + 1)):
        yield f"the log has holes or doubles: {[event.seq for event in log]}"
    yield from _doubles("event", (event.id for event in log))
    yield from _doubles("message", (event.data["message"] for event in log if event.type == "message.sent"))
    sent = [event for event in log if event.type == "message.sent"]
    if len(sent) != len(account.turns):
        yield f"{len(account.turns)} messages were sent, {len(sent)} are in the log"
    for kind in ("turn.started", "turn.finished"):
        yield from _doubles(kind, (event.turn for event in log if event.type == kind))
    for tag, turn in account.turns.items():
        ends = [event.data["outcome"] for event in log if event.type == "turn.finished" and event.turn == turn]
        if ends != ["done"]:
            yield f"{tag}: the turn {turn} ended as {ends}"


def _doubles(what: str, names: Iterable[object]) -> Iterable[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name} is there {count} times"


# ── 2: steps ──


def _step_wrongs(log: Sequence[Event]) -> Iterable[str]:
    steps = defaultdict[str, list[Event]](list)
    for event in log:
        if event.step is not None:
            steps[event.step].append(event)
    explained = {(event.data["step"], event.data["attempt"]) for event in log if event.type == "turn.recovered"}
    for step, events in steps.items():
        attempts = [event.attempt for event in events if event.type == "step.started"]
        if attempts != list(range(1, len(attempts) + 1)):
            yield f"{step}: its attempts are {attempts}"
        seals = [event for event in events if event.type in SEALS]
        if len(seals) != 1 or seals[0] is not events[-1] or seals[0].attempt != len(attempts):
            yield f"{step}: sealed {[(seal.seq, seal.attempt) for seal in seals]}, of {len(attempts)} attempts"
        if len({event.data["effect"] for event in events if "effect" in event.data}) > 1:
            yield f"{step}: its attempts have different effect ids"
        for attempt in attempts[1:]:
            if (step, attempt) not in explained:
                yield f"{step}: nothing says why attempt {attempt} was needed"


# ── 3: what was bought ──


def _buying_wrongs(log: Sequence[Event], calls: Sequence[Call]) -> Iterable[str]:
    sealed_at = {event.step: _seconds(event.at) for event in log if event.type == "model.responded"}
    attempts = Counter(event.step for event in log if event.type == "step.started")
    for step, count in Counter(call.step for call in calls).items():
        if count > attempts[step]:
            yield f"{step}: bought {count} times in {attempts[step]} attempts"
    for call in calls:
        if call.step in sealed_at and call.started_at > sealed_at[call.step]:
            yield f"{call.step}: bought again {call.started_at - sealed_at[call.step]:.3f} s after it was sealed"


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


# ── 4: effects ──


def _effect_wrongs(account: Account) -> Iterable[str]:
    lines = Counter(account.lines)
    outcomes = outcomes_of(account.log)
    for tag, turn in account.turns.items():
        asked = outcomes.get(turn, [])
        if [name for name, _ in asked] != ["shell", "write_file", "shell"]:
            yield f"{tag}: its tools were {asked}"
            continue
        (_, first), (_, written), (_, second) = asked
        yield from _count_wrong(f"ran:{tag}.1", lines, first)
        yield from _count_wrong(f"ran:{tag}.2", lines, second)
        yield from _count_wrong(f"{tag}.txt:{tag} written", lines, written)
        yield from _count_wrong(f"{tag}.txt:{tag}.2", lines, second)
    known = {f"{file}:{text}" for tag in account.turns for file, text in _left_by(tag)}
    if strange := [line for line in lines if line not in known]:
        yield f"in the machine is what nobody asked for: {strange}"


def _left_by(tag: str) -> Iterable[tuple[str, str]]:
    yield from (("ran", f"{tag}.1"), ("ran", f"{tag}.2"), (f"{tag}.txt", f"{tag} written"), (f"{tag}.txt", f"{tag}.2"))


def outcomes_of(log: Sequence[Event]) -> dict[str, list[tuple[str, str]]]:
    """By turn: tool and outcome of each call, in the order of the calls."""
    names = {event.step: event.data["name"] for event in log if event.type == "tool.requested"}
    found = defaultdict[str, list[tuple[str, str]]](list)
    for event in log:
        if event.type == "tool.finished":
            found[event.turn or ""].append((names.get(event.step, "?"), event.data["outcome"]))
    return found


def _count_wrong(line: str, lines: Counter[str], outcome: str) -> Iterable[str]:
    allowed = (1,) if outcome == "finished" else (0, 1)
    if outcome not in ("finished", "lost") or lines[line] not in allowed:
        yield f"{line!r} happened {lines[line]} times, and is said to be {outcome}"


# ── 5: what a follower was shown ──


def _stream_wrongs(log: Sequence[Event], seen: Sequence[Event]) -> Iterable[str]:
    durable = [event for event in seen if event.seq is not None]
    if [_known_by(event) for event in durable] != [_known_by(event) for event in log]:
        yield f"a follower was shown {[event.seq for event in durable]}, the log has {len(log)} events"
    said = {event.step: event.data["text"] for event in log if event.type == "model.responded"}
    at_hand: dict[str, tuple[int, int]] = {}  # step -> its attempt, and how much of it was shown
    rewound: dict[str, int] = {}
    for event in seen:
        step, attempt = event.step or "", event.attempt or 0
        if event.type == "step.started":
            if attempt > 1 and rewound.get(step) != attempt:
                yield f"{step}: attempt {attempt} began, and what the one before said was not taken back"
            at_hand[step] = (attempt, 0)
        elif event.type == "step.rewound":
            if rewound.get(step) == attempt or attempt <= at_hand.get(step, (0, 0))[0]:
                yield f"{step}: taken back twice for attempt {attempt}"
            rewound[step] = attempt
            at_hand.pop(step, None)
        elif event.type in SEALS:
            at_hand.pop(step, None)
        elif event.type in LIVE:
            yield from _live_wrongs(event, at_hand, said)


def _known_by(event: Event) -> tuple[object, ...]:
    return (event.seq, event.id, event.type, event.step, event.attempt, event.data)


def _live_wrongs(event: Event, at_hand: dict[str, tuple[int, int]], said: Mapping[str | None, str]) -> Iterable[str]:
    step, offset, text = event.step or "", event.data["offset"], event.data["text"]
    attempt, end = at_hand.get(step, (0, 0))
    if attempt != event.attempt:
        yield f"{step}: live output of attempt {event.attempt} while {attempt or 'none'} is at hand"
        return
    if offset < end:
        yield f"{step}: live output from {offset} on was shown up to {end} before"
    if event.type == "model.delta" and step in said and said[step][offset : offset + len(text)] != text:
        yield f"{step}: {text!r} was shown, which is not what was said at {offset}"
    at_hand[step] = (attempt, offset + len(text))


# ── 6: what a person reads ──


def _reading_wrongs(account: Account, undisturbed: Sequence[Item], tag: str) -> Iterable[str]:
    if list(account.shown) != list(account.transcript):
        yield "what a follower has on the screen is not the transcript"
    read = [_essence(item) for item in account.transcript if item["kind"] != "note"]
    usual = [_essence(item) for item in undisturbed if item["kind"] != "note"]
    expected = [_renamed(item, tag, other) for other in account.turns for item in usual]
    if len(read) != len(expected):
        yield f"a person reads {len(read)} things instead of {len(expected)}"
        return
    is_lost = False
    for found, wanted in zip(read, expected, strict=True):
        is_lost = (is_lost and found[0] != "message") or "lost" in found
        if found != wanted and not is_lost:  # behind an effect that is lost the model says something else
            yield f"a person reads {found} instead of {wanted}"


Essence = tuple[str, ...]


def _essence(item: Item) -> Essence:
    """What of an item is the same in every run: no id, no time, no number of attempts."""
    match item["kind"]:
        case "message":
            return ("message", item["text"])
        case "answer":
            calls = [f"{call['name']} {call['arguments']}" for call in item["tool_calls"]]
            return ("answer", item["state"], item["text"], item["stop_reason"], *calls)
        case "tool":
            named = (item["name"], str(item["arguments"]))
            return ("tool", item["state"], *named, item["outcome"], item["output"], str(item["exit_code"]))
        case kind:
            return (kind,)


def _renamed(essence: Essence, tag: str, other: str) -> Essence:
    return tuple(text.replace(tag, other) for text in essence)
