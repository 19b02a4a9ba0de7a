"""What a guest says about its machine, as frozen values, and how each is taken apart. All of it is the machine's word.

Names of files are text as `os.fsdecode` gives it: they may hold lone surrogates for bytes that are no UTF-8.
"""

import os
from dataclasses import dataclass
from typing import Literal

from outlive.guest.wire import WireError, Words
from outlive.machine.guest_link import answers

FileKind = Literal["file", "directory", "link", "other"]
_FILE_KINDS: dict[object, FileKind] = {"file": "file", "directory": "directory", "link": "link", "other": "other"}
EMPTY_PAGES = 10  # of one list, with more behind them: all that was on such a page has gone while it was looked at
_PAGE = 1000
_TERMINALS = 256


@dataclass(frozen=True, slots=True)
class FileFacts:
    name: str
    kind: FileKind
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    target: str | None  # of a link


@dataclass(frozen=True, slots=True)
class FilePage:
    entries: tuple[FileFacts, ...]  # in the order of the bytes of their names
    last: str | None  # ask for those after it
    is_last: bool


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    pid: int
    parent: int
    uid: int
    state: str
    name: str
    argv: str
    memory: int


@dataclass(frozen=True, slots=True)
class TerminalExit:
    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class ForegroundFacts:
    """A job in front of a terminal that is not the terminal's own program."""

    group: int
    name: str


@dataclass(frozen=True, slots=True)
class TerminalFacts:
    terminal: str
    pid: int
    columns: int
    rows: int
    start: int  # the ring holds the output from here
    end: int  # up to here: so much was printed since birth
    input: int  # bytes typed since birth
    output_ago_s: float
    exit: TerminalExit | None
    foreground: ForegroundFacts | None = None


@dataclass(frozen=True, slots=True)
class DroppedInput:
    at: int  # of what was typed, nothing from here on was written to the PTY
    input: int  # the counter: what is typed next begins here


@dataclass(frozen=True, slots=True)
class LineFacts:
    unread: int | None  # bytes that were typed and the program has not read; None: not known
    is_waiting: bool  # the program waits, has read all, and what it printed until then ends at `end`
    input: int  # bytes typed since birth
    end: int


@dataclass(frozen=True, slots=True)
class TerminalActivity:
    terminal: str
    output_ago_s: float


@dataclass(frozen=True, slots=True)
class Activity:
    commands: int  # running
    terminals: tuple[TerminalActivity, ...]  # whose program runs
    previews: int
    relayed: int  # connections through the relay


@dataclass(frozen=True, slots=True)
class Quiesced:
    unsavable: tuple[str, ...]  # deleted files in use: with any of these a checkpoint of the memory fails


def read_file(words: Words) -> FileFacts:
    kind = _FILE_KINDS.get(words.get("kind"))
    if kind is None:
        raise WireError("a file of no kind")
    return FileFacts(
        name=answers.text(words, "name", 4096),
        kind=kind,
        size=answers.count(words, "size"),
        mode=answers.count(words, "mode", 0o7777),
        uid=answers.count(words, "uid"),
        gid=answers.count(words, "gid"),
        mtime_ns=answers.count(words, "mtime_ns", 2**63),
        target=answers.maybe(answers.text, words, "target"),
    )


def read_file_page(words: Words, after: str) -> FilePage:
    """Those after `after`. A page that has others behind it goes on from there, by the bytes of the names."""
    entries = tuple(read_file(row) for row in answers.rows(words, "entries", _PAGE))
    page = FilePage(entries, answers.maybe(answers.text, words, "last"), answers.flag(words, "is_last"))
    if not page.is_last and (page.last is None or _name_bytes(page.last) <= _name_bytes(after)):
        raise WireError("a list of files without an end")
    return page


def _name_bytes(name: str) -> bytes:
    try:
        return os.fsencode(name)
    except UnicodeEncodeError:
        raise WireError("a name that is none") from None


def read_processes(words: Words) -> tuple[list[ProcessFacts], int, bool]:
    page = [
        ProcessFacts(
            pid=answers.count(row, "pid"),
            parent=answers.count(row, "parent"),
            uid=answers.count(row, "uid"),
            state=answers.text(row, "state", 8),
            name=answers.text(row, "name", 256),
            argv=answers.text(row, "argv", 4096),
            memory=answers.count(row, "memory"),
        )
        for row in answers.rows(words, "processes", _PAGE)
    ]
    return page, answers.maybe(answers.count, words, "last") or 0, answers.flag(words, "is_last")


def read_ports(words: Words) -> list[int]:
    ports = words.get("ports")
    if not isinstance(ports, list) or len(ports) > _PAGE:
        raise WireError("no list of ports")
    if not all(isinstance(port, int) and 0 < port < 65536 for port in ports):
        raise WireError("a port that is none")
    return ports


def read_terminal_exit(words: Words) -> TerminalExit | None:
    found = words.get("exit")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise WireError("an exit that is none")
    return TerminalExit(answers.maybe(answers.count, found, "code"), answers.maybe(answers.count, found, "signal"))


def read_terminal(words: Words) -> TerminalFacts:
    return TerminalFacts(
        terminal=answers.identity(words, "terminal"),
        pid=answers.count(words, "pid"),
        columns=answers.count(words, "columns", 1000),
        rows=answers.count(words, "rows", 1000),
        start=answers.count(words, "start"),
        end=answers.count(words, "end"),
        input=answers.count(words, "input"),
        output_ago_s=answers.seconds(words, "output_ago_s"),
        exit=read_terminal_exit(words),
        foreground=_read_foreground(words),
    )


def _read_foreground(words: Words) -> ForegroundFacts | None:
    found = words.get("foreground")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise WireError("a foreground that is none")
    return ForegroundFacts(answers.count(found, "group"), answers.text(found, "name", 256))


def read_dropped_input(words: Words) -> DroppedInput:
    dropped = DroppedInput(answers.count(words, "at"), answers.count(words, "input"))
    if dropped.at > dropped.input:
        raise WireError("more written than typed")
    return dropped


def read_line(words: Words) -> LineFacts:
    return LineFacts(
        unread=answers.maybe(answers.count, words, "unread"),
        is_waiting=answers.flag(words, "is_waiting"),
        input=answers.count(words, "input"),
        end=answers.count(words, "end"),
    )


def read_terminals(words: Words) -> list[TerminalFacts]:
    return [read_terminal(row) for row in answers.rows(words, "terminals", _TERMINALS)]


def read_activity(words: Words) -> Activity:
    terminals = tuple(
        TerminalActivity(answers.identity(row, "terminal"), answers.seconds(row, "output_ago_s"))
        for row in answers.rows(words, "terminals", _TERMINALS)
    )
    commands, previews, relayed = (answers.count(words, name) for name in ("commands", "previews", "relayed"))
    return Activity(commands, terminals, previews, relayed)


def read_quiesced(words: Words) -> Quiesced:
    found = words.get("unsavable")
    if not isinstance(found, list) or len(found) > _PAGE or not all(isinstance(line, str) for line in found):
        raise WireError("no list of what is unsavable")
    return Quiesced(tuple(line[:1000] for line in found))
