"""What the demo model answers follows from the conversation alone."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

import pytest
from pydantic import JsonValue

from outlive.loop.models import (
    Answer,
    AssistantMessage,
    Message,
    ModelRequest,
    Note,
    TextDelta,
    ToolCall,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
)
from outlive.loop.models.demo import DemoModel
from outlive.loop.models.demo.mind import think
from outlive.loop.models.demo.repair import MOVES_LIMIT, NEEDS, RUN_TESTS
from outlive.loop.models.registry import ModelRegistry

TASK = UserMessage("Make the failing test pass")
LISTED = "list_files", {"glob": "*"}, "a.py\ntests/test_a.py\n"


def did(*done: tuple[str, Mapping[str, JsonValue], str], is_error: bool = False) -> list[Message]:
    """Answers that called a tool each, and what came of it; the last one failed, if `is_error`."""
    messages: list[Message] = []
    for n, (name, arguments, output) in enumerate(done):
        failed = is_error and n == len(done) - 1
        messages.append(AssistantMessage("", (ToolCall(f"c{n}", name, dict(arguments)),)))
        messages.append(ToolResultMessage(f"c{n}", name, output, is_error=failed))
    return messages


def names(messages: Sequence[Message]) -> list[str]:
    return [name for name, _ in think(messages, NEEDS).calls]


def test_a_task_begins_with_a_look_and_a_word_about_who_speaks() -> None:
    thought = think([TASK], NEEDS)
    assert "built-in demo model" in thought.text
    assert [name for name, _ in thought.calls] == ["list_files"]
    assert think([TASK, *did(LISTED)], NEEDS).calls == (("shell", {"command": RUN_TESTS}),)


def test_what_a_tool_could_not_do_ends_the_task_with_its_words_and_go_on_takes_it_up() -> None:
    messages = [TASK, *did(("list_files", {}, "There are no machines here."), is_error=True)]
    thought = think(messages, NEEDS)
    assert thought.calls == ()
    assert "There are no machines here." in thought.text
    again = [*messages, AssistantMessage(thought.text), UserMessage("Please go on")]
    assert names(again) == ["list_files"]


def test_a_run_whose_outcome_is_unknown_is_looked_at_again_and_not_for_ever() -> None:
    lost = ("shell", {"command": RUN_TESTS}, "What came of this call is unknown: it was lost.")
    assert names([TASK, *did(LISTED, lost, is_error=True)]) == ["shell"]
    often = [TASK, *did(LISTED)] + [each for _ in range(4) for each in did(lost, is_error=True)]
    assert names(often) == []


def test_what_a_machine_that_is_gone_held_is_done_again() -> None:
    note = Note("The machine is lost, with its files. The next tool call gets a new, fresh one.")
    assert names([TASK, *did(LISTED), note]) == ["list_files"]
    assert names([TASK, *did(LISTED), Note("The machine slept and was woken.")]) == ["shell"]


def test_who_speaks_in_between_is_heard_and_the_task_goes_on() -> None:
    thought = think([TASK, *did(LISTED), UserMessage("Hello?")], NEEDS)
    assert thought.text.startswith("I have read what you said meanwhile")
    assert [name for name, _ in thought.calls] == ["shell"]


def test_no_task_takes_for_ever() -> None:
    moves = did(LISTED, *[("shell", {"command": RUN_TESTS}, "?")] * MOVES_LIMIT)
    assert names([TASK, *moves]) == []


def test_tools_that_are_missing_are_named() -> None:
    assert "publish" in think([TASK], NEEDS - {"publish"}).text


@pytest.mark.parametrize(
    ("text", "command"),
    [("Which files are there?", "ls -la"), ("Run `uname -a` for me", "uname -a")],
)
def test_a_small_wish_is_one_command_and_a_word_about_it(text: str, command: str) -> None:
    thought = think([UserMessage(text)], NEEDS)
    assert thought.calls == (("shell", {"command": command}),)
    answered = think([UserMessage(text), *did(("shell", {"command": command}, "Linux\n"))], NEEDS)
    assert (answered.calls, "Linux" in answered.text) == ((), True)


@pytest.mark.parametrize("messages", [[], [UserMessage("Hello")], [TASK, AssistantMessage("Done."), UserMessage("Hi")]])
def test_anything_else_is_answered_with_what_it_is_and_how_to_get_a_real_model(messages: list[Message]) -> None:
    thought = think(messages, NEEDS)
    assert thought.calls == ()
    assert "ANTHROPIC_API_KEY or OPENAI_API_KEY" in thought.text


@pytest.mark.anyio
async def test_the_same_question_gets_the_same_answer_word_by_word() -> None:
    model = DemoModel(pace_s=0)
    request = ModelRequest("", (TASK,), tools=tuple(ToolSpec(n, "", {}) for n in NEEDS), step="step_1")
    *deltas, answer = [piece async for piece in _pieces(model, request)]
    assert isinstance(answer, Answer)
    assert len(deltas) > 5
    assert "".join(piece.text for piece in deltas if isinstance(piece, TextDelta)) == answer.text
    assert answer.stop_reason == "tool_use"
    assert [piece async for piece in _pieces(model, request)] == [*deltas, answer]
    await model.aclose()


@pytest.mark.anyio
async def test_the_demo_model_needs_no_key_and_no_name() -> None:
    registry = ModelRegistry()
    client, name = await registry.find("demo:")
    assert (type(client), str(name)) == (DemoModel, "demo:")
    await registry.aclose()


async def _pieces(model: DemoModel, request: ModelRequest) -> AsyncIterator[object]:
    async with aclosing(model.stream(request)) as pieces:
        async for piece in pieces:
            yield piece
