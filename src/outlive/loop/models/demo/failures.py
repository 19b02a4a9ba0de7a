"""What a run of `unittest` says: whether all passed, and what is wrong with the first test that did not. Pure."""

import ast
import re
from dataclasses import dataclass
from typing import Literal

WORKSPACE = "/workspace/"

_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_OK = re.compile(r"^OK\b", re.MULTILINE)
_HEAD = re.compile(r"^(?:FAIL|ERROR): (\w+)[^\n]*$", re.MULTILINE)
_FRAME = re.compile(r'^ +File "([^"\n]+)", line (\d+), in (\S+)\n +([^\n]*)$', re.MULTILINE)
_MESSAGE = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b[^\n]*)$", re.MULTILINE)
_DIFFER = re.compile(r"^AssertionError: (?:\w+ differ: )?(.+?) != (.+?)(?: : [^\n]*)?$")
_CALL = re.compile(r"(\w+)\(")

Direction = Literal["more", "less"]


@dataclass(frozen=True, slots=True)
class Failure:
    """The first test that failed. `got` and `wanted` where the test compares two values."""

    test: str
    file: str
    statement: str  # the line of the test
    message: str
    called: tuple[str, ...]  # functions that the line of the test calls, by name
    source: str | None = None  # the file that it broke in, if that is not the test's own
    got: str | None = None
    wanted: str | None = None

    @property
    def direction(self) -> Direction | None:
        """Whether there should be more of it than there is, or less."""
        got, wanted = _size(self.got), _size(self.wanted)
        if got is None or wanted is None or got == wanted:
            return None
        return "more" if got < wanted else "less"


def count_tests(output: str) -> int:
    found = _RAN.findall(output)
    return int(found[-1]) if found else 0


def has_passed(output: str) -> bool:
    return count_tests(output) > 0 and bool(_OK.search(output)) and not _HEAD.search(output)


def read_failure(output: str) -> Failure | None:
    """None: no failure that could be read."""
    head = _HEAD.search(output)
    if head is None:
        return None
    following = _HEAD.search(output, head.end())
    block = output[head.end() : following.start() if following else len(output)]
    frames = [found.groups() for found in _FRAME.finditer(block) if found[1].startswith(WORKSPACE)]
    message = _MESSAGE.search(block)
    if not frames or message is None:
        return None
    tests = [frame for frame in frames if is_test(frame[0])]
    file, _, _, statement = tests[-1] if tests else frames[0]
    broke_in, _, function, _ = frames[-1]
    differ = _DIFFER.match(message[1])
    called = _called(statement)
    is_elsewhere = not is_test(broke_in)
    return Failure(
        test=head[1],
        file=file.removeprefix(WORKSPACE),
        statement=statement.strip(),
        message=message[1],
        called=tuple(dict.fromkeys((function, *called))) if is_elsewhere else called,
        source=broke_in.removeprefix(WORKSPACE) if is_elsewhere else None,
        got=differ[1] if differ else None,
        wanted=differ[2] if differ else None,
    )


def is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _called(statement: str) -> tuple[str, ...]:
    names = [name for name in _CALL.findall(statement) if not name.startswith("assert") and name not in _PLAIN]
    return tuple(dict.fromkeys(names))


_PLAIN = frozenset({"list", "set", "dict", "tuple", "sorted", "str", "int", "float", "len", "sum", "with", "in"})


def _size(shown: str | None) -> float | None:
    """Of a value as the test shows it: a number's own, or how many there are in it."""
    try:
        value = ast.literal_eval(shown or "")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, int | float):
        return float(value)
    return float(len(value)) if isinstance(value, list | tuple | set | dict | str) else None
