"""What holds of every conversation, whatever died while it went on. Pure: from the log, what a follower was shown, what
the provider was asked and what is in the machine, to a list of what is wrong.

1. The log has no hole and no double; every turn begins once, ends once and is done; every message is in it once.
2. A step is sealed once, by its newest attempt; each attempt after the first is explained by a `turn.recovered`.
3. A sealed step is never bought again; no attempt asks the provider more than once.
4. Every effect happened exactly once, or is marked lost and happened at most once. No write undid what came after it.
   What a person denied never happened.
5. A follower was shown every event once, in order; live output only of the attempt at hand, and none that was not said.
6. What a person reads equals an undisturbed run of the same kind.
7. Whoever is asked is asked once and heard once; a wait, a raise and a subagent is begun once, and its end told once.
8. Nothing is left of what was let go.

They hold for conversations that a turn, a race or a batch makes as for those that people begin.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from crash.loop.kinds import PLAIN, Kind
from outlive.client import Event
from outlive.testing.pretend_provider import Call

SEALS = ("model.responded", "tool.finished")
LIVE = ("model.delta", "tool.output")

# Of these a kind says how many there are.
COUNTED = (
    *("approval.requested", "approval.decided", "budget.raised"),
    *("wait.started", "subagent.started", "subagent.finished"),
)
SUBAGENT = "subagent:"  # whoever wrote a report
_REPORT = "You said: [report of subagent"  # what the provider says to one
_AFTERWARDS = ("machine.", "conversation.archived")  # what a conversation may be told when its turn is over

Item = Mapping[str, Any]


class Usual(NamedTuple):
    """What a person reads of a run that nothing happened to, which was asked for `tag`."""

    tag: str
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Account:
    """All that is known of one conversation when it is over."""

    turns: Mapping[str, str]  # tag of what was asked for -> turn
    log: Sequence[Event]
    seen: Sequence[Event]  # by a follower that was there all the time
    shown: Sequence[Item]  # what is on that follower's screen
    transcript: Sequence[Item]
    calls: Sequence[Call]  # of the provider, for steps of this conversation
    lines: Sequence[str] | None  # of the machine's files, as file:line; None: it is gone
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # by tag
    since: int = 0  # the events up to here are of the conversation that it was forked from
    beside: Mapping[str, Kind] = field(default_factory=dict)  # what else was asked for in the same machine, by tag
    later: Sequence[Event] = ()  # what came when it was over, and nobody followed any more
    left: Sequence[str] = ()  # machines that should be gone

    def kind(self, tag: str) -> Kind:
        return self.kinds.get(tag, PLAIN)

    @property
    def own(self) -> list[Event]:
        return [event for event in self.log if (event.seq or 0) > self.since]


def wrongs(account: Account, usual: Mapping[str, Usual]) -> list[str]:
    """What is wrong, each behind the name of the rule. `usual`: by the name of a kind."""
    own = account.own
    found = {
        "log": _log_wrongs(account, own),
        "steps": _step_wrongs(own),
        "buying": _buying_wrongs(own, account.calls),
        "effects": _effect_wrongs(account, own),
        "stream": _stream_wrongs(account.log, account.seen),
        "reading": _reading_wrongs(account, usual),
        "asking": _asking_wrongs(account, own),
        "left": (f"{machine} should be gone" for machine in account.left),
    }
    return [f"{rule}: {wrong}" for rule, all_wrong in found.items() for wrong in all_wrong]


def usual_of(account: Account) -> dict[str, Usual]:
    """What the runs of an undisturbed conversation are to be compared with, by the name of their kind."""
    read = _by_turn(account)
    return {account.kind(tag).name: Usual(tag, read.get(turn, [])) for tag, turn in account.turns.items()}


# ── 1: the log ──


def _log_wrongs(account: Account, own: Sequence[Event]) -> Iterable[str]:
    log = account.log
    if [event.seq for event in log] != list(range(1, len(log) + 1)):
        yield f"the log has holes or doubles: {[event.seq for event in log]}"
    yield from _doubles("event", (event.id for event in log))
    yield from _doubles("message", (event.data["message"] for event in own if event.type == "message.sent"))
    sent = [event for event in own if event.type == "message.sent" and not event.actor.startswith(SUBAGENT)]
    if len(sent) != len(account.turns):
        yield f"{len(account.turns)} messages were sent, {len(sent)} are in the log"
    for kind in ("turn.started", "turn.finished"):
        yield from _doubles(kind, (event.turn for event in own if event.type == kind))
    asked = {turn: tag for tag, turn in account.turns.items()}
    for turn in {**asked, **dict.fromkeys(event.turn for event in own if event.turn is not None)}:
        ends = [event.data["outcome"] for event in own if event.type == "turn.finished" and event.turn == turn]
        if ends != ["done"]:
            said = [f"{event.seq} {event.type} {event.actor}" for event in own if event.turn == turn]
            yield f"{asked.get(turn, 'unasked')}: the turn {turn} ended as {ends}: {said[-12:]}"
    for event in account.later:
        if not event.type.startswith(_AFTERWARDS):
            yield f"{event.type} came when all was over"


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


def _effect_wrongs(account: Account, own: Sequence[Event]) -> Iterable[str]:
    lines = None if account.lines is None else Counter(account.lines)
    outcomes = outcomes_of(own)
    for tag, turn in account.turns.items():
        kind, asked = account.kind(tag), outcomes.get(turn, [])
        if tuple(name for name, _ in asked) != kind.tools:
            yield f"{tag} ({kind.name}): its tools were {asked}"
            continue
        for place, (name, outcome) in enumerate(asked):
            if outcome not in (("rejected",) if place in kind.denied else ("finished", "lost", "rolled back")):
                yield f"{tag} ({kind.name}): {name} is said to be {outcome}"
        if lines is not None:
            for line, place in kind.lines(tag):
                yield from _count_wrong(line, lines, asked[place][1])
    everything = {**account.beside, **{tag: account.kind(tag) for tag in account.turns}}
    known = {line for tag, kind in everything.items() for line in kind.known(tag)}
    if strange := [line for line in lines or () if line not in known]:
        yield f"in the machine is what nobody asked for: {strange}"


def outcomes_of(log: Sequence[Event]) -> dict[str, list[tuple[str, str]]]:
    """By turn: tool and outcome of each call, in the order of the calls. What the log says a machine no longer holds is
    rolled back."""
    names = {event.step: event.data["name"] for event in log if event.type == "tool.requested"}
    undone = {effect for event in log if event.type == "machine.rolled_back" for effect in event.data["effects"]}
    found = defaultdict[str, list[tuple[str, str]]](list)
    for event in log:
        if event.type == "tool.finished":
            outcome = event.data["outcome"]
            is_undone = outcome == "finished" and event.data["effect"] in undone
            found[event.turn or ""].append((names.get(event.step, "?"), "rolled back" if is_undone else outcome))
    return found


_TIMES = {"finished": (1,), "rejected": (0,), "lost": (0, 1), "rolled back": (0, 1)}


def _count_wrong(line: str, lines: Counter[str], outcome: str) -> Iterable[str]:
    if lines[line] not in _TIMES.get(outcome, ()):
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


def _reading_wrongs(account: Account, usual: Mapping[str, Usual]) -> Iterable[str]:
    if list(account.shown) != list(account.transcript):
        yield "what a follower has on the screen is not the transcript"
    read = _by_turn(account)
    for tag, turn in account.turns.items():
        kind = account.kind(tag)
        tag_then, items = usual[kind.name]
        wanted = [_renamed(_essence(item), tag_then, tag) for item in items]
        found = [_essence(item) for item in read.pop(turn, [])]
        if len(found) != len(wanted):
            yield f"{tag} ({kind.name}): a person reads {len(found)} things instead of {len(wanted)}"
            continue
        is_lost = False
        for one, other in zip(found, wanted, strict=True):
            is_lost = is_lost or "lost" in one  # behind an effect that is lost the model says something else
            if one != other and not is_lost:
                yield f"{tag} ({kind.name}): a person reads {one} instead of {other}"
    for turn, items in read.items():
        yield f"in the turn {turn}, for which nobody asked, a person reads {[_essence(item) for item in items]}"


def _by_turn(account: Account) -> dict[str, list[Item]]:
    """What is read of each turn, but for notes, and for reports: they come when they come."""
    turns = {event.step or event.seq: event.turn or "" for event in account.log}
    found = defaultdict[str, list[Item]](list)
    for item in account.transcript:
        step = item.get("step")
        if _is_said(item) and (step is not None or item["seq"] > account.since):
            found[turns.get(step or item["seq"], "")].append(item)
    own = {event.turn for event in account.own}
    return {turn: items for turn, items in found.items() if turn in own or turn == ""}


def _is_said(item: Item) -> bool:
    match item["kind"]:
        case "message":
            return not str(item["actor"]).startswith(SUBAGENT)
        case "answer":
            return not str(item["text"]).startswith(_REPORT)
        case kind:
            return bool(kind != "note")


Essence = tuple[str, ...]


def _essence(item: Item) -> Essence:
    """What of an item is the same in every run: no id, no time, no number of attempts."""
    match item["kind"]:
        case "message":
            return ("message", _same(item["text"]))
        case "answer":
            calls = [f"{call['name']} {call['arguments']}" for call in item["tool_calls"]]
            return ("answer", item["state"], _same(item["text"]), item["stop_reason"], *calls)
        case "tool":
            named = (item["name"], str(item["arguments"]))
            return ("tool", item["state"], *named, item["outcome"], _same(item["output"]), str(item["exit_code"]))
        case kind:
            return (kind,)


# What differs from run to run.
_ID = re.compile(r"\b(conv|turn|step)_[0-9a-f-]{20,}")
_WAITED = re.compile(r"Waited [\d,]+ s")


def _same(text: str) -> str:
    return _WAITED.sub("Waited", _ID.sub(r"\1_", text))


def _renamed(essence: Essence, tag: str, other: str) -> Essence:
    return tuple(text.replace(tag, other) for text in essence)


# ── 7: people, waits and subagents ──


def _asking_wrongs(account: Account, own: Sequence[Event]) -> Iterable[str]:
    began = {event.data["conversation"]: event.turn for event in own if event.type == "subagent.started"}
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for event in own:
        if event.type in COUNTED:
            # The end of one that is detached is in the turn that its report opens.
            turn = began.get(event.data["conversation"]) if event.type == "subagent.finished" else event.turn
            said[turn or ""][event.type] += 1
    for tag, turn in account.turns.items():
        kind = account.kind(tag)
        found = said.pop(turn, Counter())
        if found != Counter(kind.says):
            yield f"{tag} ({kind.name}): there are {dict(found)} instead of {dict(kind.says)}"
        yield from _decision_wrongs(tag, kind, [event for event in own if event.turn == turn])
    if strange := {turn: dict(counts) for turn, counts in said.items()}:
        yield f"nobody asked for {strange}"
    detached = sum(account.kind(tag).is_detached for tag in account.turns)
    reports = [event for event in own if event.type == "message.sent" and event.actor.startswith(SUBAGENT)]
    if len(reports) != detached:
        yield f"{detached} subagents are detached, and {len(reports)} reports came"


def _decision_wrongs(tag: str, kind: Kind, events: Sequence[Event]) -> Iterable[str]:
    wanted = kind.answer.decision if kind.answer is not None else None
    for event in events:
        if event.type == "approval.decided" and event.data["decision"] != wanted:
            yield f"{tag} ({kind.name}): a person said {wanted}, and the log says {event.data['decision']}"


def batch_wrongs(
    tag: str, names: Mapping[str, str], results: Sequence[Item], failures: Sequence[Item], made: Sequence[str]
) -> list[str]:
    """What is wrong with a batch: each item is done once, and asked for in one conversation. `names`: of the items, by
    their keys; `made`: the keys that conversations of this batch say they are for."""
    found, asked = Counter(str(line["item"]) for line in results), Counter(made)
    wrong = [f"{name} is there {found[name]} times" for name in names.values() if found[name] != 1]
    wrong += [f"{name} is no item" for name in found if name not in names.values()]
    wrong += [f"{line['item']} ended as {line['outcome']}" for line in failures]
    wrong += [f"{name} has {asked[key]} conversations" for key, name in names.items() if asked[key] != 1]
    wrong += [f"a conversation is for {key}, which is no item" for key in asked if key not in names]
    return [f"batches: {tag}: {each}" for each in wrong]
