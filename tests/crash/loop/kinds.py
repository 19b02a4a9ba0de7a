"""What is asked for in the campaign, as a table: what is said, what people answer, and what it must leave behind.

A script is for the pretend provider. `<tag>` stands for the tag of the run; tags have one length, so that what a run
says differs by the tag alone. A command leaves a line that can be counted. Where a machine is gone before anybody can
look into it, the command itself says how often its line is there, and that is in the transcript.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MODEL = "openai:pretend"  # whose SDK is quicker to load: every worker that is started again does
OTHER_MODEL = "openai:other"
FOLDER = "/workspace"
RAN = f"{FOLDER}/ran"
AGENT = {
    "name": "handy",
    "model": MODEL,
    "instructions": "Do what you are asked for.",
    "tools": ["shell", "write_file", "edit_file", "wait", "ask_human", "subagent"],
    "policy": {"approve": ["edit_file"], "approve_expires_s": 86_400},
    "budget": {"turn": {"steps": 6}},  # `budget` needs one more
}
CONTESTANTS = ({"model": MODEL}, {"model": OTHER_MODEL})
_COMMENT = "I looked at it."


class Answer(NamedTuple):
    """What a person says who is asked."""

    decision: Literal["approve", "deny"]
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of work. `tools` are called in this order; `leaves`: the lines (as file:line) that each leaves, by its
    place; `denied`: places of those that a person says no to. `says`: how often an event is in its turn, of those that
    are counted (`checker.COUNTED`). `parts`: the conversations of their own that it makes."""

    name: str
    text: str
    does: Literal["turn", "race", "batch"] = "turn"
    tools: tuple[str, ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()
    denied: frozenset[int] = frozenset()
    answer: Answer | None = None
    says: Mapping[str, int] = field(default_factory=dict)
    parts: tuple["Kind", ...] = ()
    machine: Literal["same", "fork", "new"] = "same"  # of its parts
    is_detached: bool = False

    def script(self, tag: str) -> str:
        return self.text.replace("<tag>", tag)

    def lines(self, tag: str) -> list[tuple[str, int]]:
        return [(line.replace("<tag>", tag), place) for line, place in self.leaves]

    def known(self, tag: str) -> set[str]:
        """All that may be in the machine because of it."""
        own = {line for line, _ in self.lines(tag)}
        return own.union(*(part.known(tag) for part in self.parts))


def tool(name: str, word: str = "tool", **arguments: Any) -> str:
    """A call. What has a script of its own in it does not end this one."""
    given = json.dumps(arguments).replace("[", "\\u005b").replace("]", "\\u005d")
    return f"[[{word} {name} {given}]]"


def _script(*parts: str) -> str:
    return " ".join(("Do <tag>.", *parts))


PLAIN = Kind(
    "plain",
    _script(
        "[[say I begin with <tag>.]]",
        tool("shell", command=f"echo <tag>.1 >> {RAN}; echo first of <tag>"),
        "[[say Now a file.]]",
        tool("write_file", path=f"{FOLDER}/<tag>.txt", content="<tag> written\n"),
        tool("shell", "also tool", command=f"echo <tag>.2 | tee -a {RAN} >> {FOLDER}/<tag>.txt; echo then <tag>"),
        "[[say All is done: ]] [[quote 100]]",
    ),
    tools=("shell", "write_file", "shell"),
    # The file is written before a command adds to it: a write that came twice would take that away.
    leaves=(("ran:<tag>.1", 0), ("<tag>.txt:<tag> written", 1), ("ran:<tag>.2", 2), ("<tag>.txt:<tag>.2", 2)),
)

_ASKED = {"approval.requested": 1, "approval.decided": 1}
_EDIT = _script(
    tool("write_file", path=f"{FOLDER}/<tag>.txt", content="<tag> one\n"),
    tool("edit_file", path=f"{FOLDER}/<tag>.txt", old="<tag> one\n", new="<tag> one\n<tag> two\n"),
    "[[say Well: ]] [[quote 200]]",
)
_EDITS = ("write_file", "edit_file")
_EDITED = (("<tag>.txt:<tag> one", 0), ("<tag>.txt:<tag> two", 1))
APPROVED = Kind("approved", _EDIT, tools=_EDITS, leaves=_EDITED, answer=Answer("approve", _COMMENT), says=_ASKED)
DENIED = Kind(
    "denied", _EDIT, tools=_EDITS, leaves=_EDITED, denied=frozenset({1}), answer=Answer("deny", _COMMENT), says=_ASKED
)

_ONCE = tool("shell", command=f"echo <tag>.1 >> {RAN}; grep -c '<tag>.1$' {RAN}")
_LINE = (("ran:<tag>.1", 0),)
QUESTION = Kind(
    "question",
    _script(_ONCE, tool("ask_human", question="Is <tag> right?"), "[[say They say: ]] [[quote 100]]"),
    tools=("shell", "ask_human"),
    leaves=_LINE,
    answer=Answer("approve", "It is."),
    says=_ASKED,
)
WAIT = Kind(
    "wait",
    _script(_ONCE, tool("wait", seconds=1), "[[say At last: ]] [[quote 100]]"),
    tools=("shell", "wait"),
    leaves=_LINE,
    says={"wait.started": 1},
)
_NTH = tool("shell", "repeat 3 tool", command=f"echo <tag>.{{{{n}}}} >> {RAN}")
BUDGET = Kind(
    "budget",
    _script(_NTH, "[[say All is spent.]]"),
    tools=("shell",) * 3,
    leaves=tuple((f"ran:<tag>.{n + 1}", n) for n in range(3)),
    answer=Answer("approve"),
    says={**_ASKED, "budget.raised": 1},
)


def _part(name: str) -> Kind:
    return Kind(name, _script(_ONCE, "[[say It is there so often: ]] [[quote 100]]"), tools=("shell",), leaves=_LINE)


def _delegating(name: str, machine: Literal["same", "fork", "new"], *, is_detached: bool = False) -> Kind:
    part = _part(f"{name}: subagent")
    call = tool("subagent", prompt=part.text, machine=machine, detached=is_detached)
    return Kind(
        name,
        _script(call, "[[say It says: ]] [[quote 200]]"),
        tools=("subagent",),
        says={"subagent.started": 1, "subagent.finished": 1},
        parts=(part,),
        machine=machine,
        is_detached=is_detached,
    )


def _item(place: int) -> Kind:
    return Kind(f"batch: item {place}", f"Do <tag>. [[say Item {place} of <tag>.]]")


RACE = Kind("race", _part("race").text, does="race", parts=(_part("race: contestant"),) * len(CONTESTANTS))
BATCH = Kind("batch", "", does="batch", parts=tuple(_item(place) for place in range(3)))

KINDS = (
    *(PLAIN, APPROVED, DENIED, QUESTION, WAIT, BUDGET),
    _delegating("subagent, same machine", "same"),
    _delegating("subagent, fork", "fork"),
    _delegating("subagent, new machine", "new"),
    _delegating("subagent, detached", "same", is_detached=True),
    *(RACE, BATCH),
)
