"""Making a failing test pass, one move at a time: what to do next follows from what was done. Pure.

Look at the files, run the tests, read the test that fails and the function it is about, change that, run the tests
again; when they pass, show and publish the difference. A change that does not help is followed by the next likely one.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.loop.models.demo.failures import Failure, count_tests, has_passed, is_test, read_failure
from outlive.loop.models.demo.fixes import Fix, edit_between, find_fixes
from outlive.loop.models.demo.history import Done, Thought

RUN_TESTS = "python3 -B -m unittest"  # -B: code that was compiled within the same second may be taken for the new one
DIFF_PATH = "/tmp/fix.diff"  # noqa: S108  in the machine
SHOW_DIFF = f"git diff --no-color | tee {DIFF_PATH}"
NEEDS = frozenset({"edit_file", "list_files", "publish", "read_file", "search", "shell"})
MOVES_LIMIT = 60  # calls of one task
TRIES_LIMIT = 3  # of a call whose outcome is unknown
_SHOWN = 400  # characters of an output that are said again

_FOUND = re.compile(r"^([^:\n]+\.py):\d+:\s*def ", re.MULTILINE)


def repair(done: Sequence[Done], tools: Collection[str]) -> Thought:
    if missing := sorted(NEEDS - set(tools)):
        return Thought(f"For this I need tools that this agent does not have: {', '.join(missing)}.")
    if len(done) >= MOVES_LIMIT or sum(each.is_unknown for each in done) > TRIES_LIMIT:
        return Thought("I have tried for long enough and stop here. This is as much as a demo model can do.")
    if done and done[-1].is_error and not done[-1].is_unknown:
        return Thought(f"I cannot go on: {done[-1].output.strip()[:_SHOWN]}\n\nSay `go on` when that is mended.")
    return _look(_Story(done))


@dataclass(frozen=True, slots=True)
class _Story:
    """What was done, by what it was for."""

    done: Sequence[Done]

    def last(self, name: str, **given: object) -> Done | None:
        """The newest call of that tool, with at least these arguments, whose outcome is known."""
        for each in reversed(self.done):
            if each.name == name and not each.is_error and all(each.arguments.get(k) == v for k, v in given.items()):
                return each
        return None

    @property
    def runs(self) -> list[Done]:
        return [each for each in self.done if each.name == "shell" and each.arguments.get("command") == RUN_TESTS]

    @property
    def edits(self) -> list[Done]:
        return [each for each in self.done if each.name == "edit_file"]

    @property
    def is_tested(self) -> bool:
        """Whether the tests were run after the last change, and their outcome is known."""
        for each in reversed(self.done):
            if each.name == "edit_file" or each.is_unknown:
                return False
            if each.name == "shell" and each.arguments.get("command") == RUN_TESTS:
                return True
        return False


def _look(story: _Story) -> Thought:
    listing = story.last("list_files")
    if listing is None:
        return _do("First I look at what is there.", "list_files", glob="*")
    if not any(is_test(line.strip()) for line in listing.output.splitlines()):
        return Thought("I find no Python tests here, so there is nothing that I could make pass.")
    if not story.runs:
        return _do("Now I run the tests, to see which one fails.", "shell", command=RUN_TESTS)
    if not story.is_tested:
        return _do("Now I run the tests again.", "shell", command=RUN_TESTS)
    if has_passed(story.runs[-1].output):
        return _conclude(story)
    first = next((run for run in story.runs if not run.is_error), story.runs[-1])
    failure = read_failure(first.output)
    if failure is None:
        return Thought("The tests do not pass, but I cannot read why. This is as much as a demo model can do.")
    return _find(story, failure)


def _find(story: _Story, failure: Failure) -> Thought:
    """Read the test, and find the function that it is about."""
    pattern = f"def ({'|'.join(failure.called)})\\("
    if story.last("read_file", path=failure.file) is None:
        calls: list[tuple[str, Mapping[str, Any]]] = [("read_file", {"path": failure.file})]
        if failure.source is None and failure.called:
            calls.append(("search", {"pattern": pattern}))
        return Thought(
            f"`{failure.test}` fails: {_told(failure)}. I read the test, and look for what it calls.", (*calls,)
        )
    source = failure.source or _source_in(story.last("search", pattern=pattern))
    if source is None:
        return Thought("I do not find the function that the test calls. This is as much as a demo model can do.")
    read = story.last("read_file", path=source)
    if read is None:
        return _do(f"It is in {source}. I read it.", "read_file", path=source)
    return _change(story, failure, source, read.output)


def _told(failure: Failure) -> str:
    if failure.got is None:
        return f"`{failure.statement}` ends with {failure.message}"
    return f"`{failure.statement}` gets {failure.got} and wants {failure.wanted}"


def _source_in(found: Done | None) -> str | None:
    paths = [] if found is None else _FOUND.findall(found.output)
    return next((path for path in paths if not is_test(path)), None)


def _change(story: _Story, failure: Failure, path: str, source: str) -> Thought:
    """The next likely change that was not tried yet."""
    fixes = find_fixes(source, failure.called, failure.direction)
    tried = len(story.edits)
    before = source if tried == 0 else fixes[tried - 1].source if tried <= len(fixes) else source
    if tried < len(fixes):
        old, new = edit_between(before, fixes[tried].source)
        begin = "I think I see it" if tried == 0 else "That was not it. I try something else"
        text = f"{begin}: in line {fixes[tried].line} of {path}, {fixes[tried].why}."
        return _do(text, "edit_file", path=path, old=old, new=new)
    if tried == len(fixes) > 0:
        old, new = edit_between(before, source)
        return _do("Nothing that I tried helps. I put it back as it was.", "edit_file", path=path, old=old, new=new)
    return Thought("I do not know how to make this test pass. This is as much as a demo model can do.")


def _conclude(story: _Story) -> Thought:
    count = count_tests(story.runs[-1].output)
    if not story.edits:
        return Thought(f"All {count} tests pass already: there is nothing to do.")
    diff = story.last("shell", command=SHOW_DIFF)
    if diff is None:
        return _do(f"All {count} tests pass now. I look at the difference.", "shell", command=SHOW_DIFF)
    if diff.output.startswith("diff ") and story.last("publish") is None:
        return _do("That is all of it. I publish it.", "publish", path=DIFF_PATH, title="The fix")
    return Thought(_summary(story, count))


def _summary(story: _Story, count: int) -> str:
    first = next(run for run in story.runs if not run.is_error)
    failure = read_failure(first.output)
    fix = _made(story, failure)
    lines = [f"Done: all {count} tests pass."]
    if failure is not None and fix is not None:
        path = story.edits[-1].arguments["path"]
        lines.append(f"`{failure.test}` failed because {fix.why}. I changed line {fix.line} of {path}:")
        lines.append(f"\n    - {fix.was}\n    + {fix.becomes}\n")
    if story.last("publish") is not None:
        lines.append("The difference is published with this conversation.")
    return "\n".join(lines)


def _made(story: _Story, failure: Failure | None) -> Fix | None:
    read = story.last("read_file", path=story.edits[-1].arguments.get("path"))
    if failure is None or read is None:
        return None
    fixes = find_fixes(read.output, failure.called, failure.direction)
    return fixes[len(story.edits) - 1] if len(story.edits) <= len(fixes) else None


def _do(text: str, name: str, **arguments: object) -> Thought:
    return Thought(text, ((name, arguments),))
