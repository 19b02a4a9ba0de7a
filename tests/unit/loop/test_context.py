"""What a model is told of a conversation."""

from itertools import pairwise

import pytest
from pydantic import JsonValue

from outlive.base import TurnId, derive
from outlive.conversation.events import (
    Attachment,
    ConversationCreated,
    Event,
    MachineForked,
    MachineLost,
    MachineRebooted,
    MachineRolledBack,
    MachineWoken,
    MessageSent,
    ModelResponded,
    Parent,
    TurnRecovered,
)
from outlive.loop.context import Bounds, build_context
from outlive.loop.fitting import IMAGE_TOKENS, estimate_message, estimate_tokens, shorten
from outlive.loop.models.messages import (
    AssistantMessage,
    Image,
    Message,
    Note,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from unit.loop.logs import Log, answer, call, finished

SHELL = call("a", "shell", command="make")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def turn(log: Log) -> TurnId:
    turn = log.message("Build it")
    log.begin(turn)
    return turn


def told(log: Log, before: int | None = None, **bounds: int) -> list[Message]:
    return [*build_context(log.events, before=before, bounds=Bounds(**bounds)).messages]


def test_a_turn_is_told_in_the_order_it_happened(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("I build.", SHELL))
    log.tool(turn, 2, SHELL, finished("a", "built"))
    log.answered(turn, 3, answer("Built."))
    log.end(turn)
    log.message("Thanks")
    assert told(log) == [
        UserMessage("Build it"),
        AssistantMessage("I build.", (ToolCall("a", "shell", {"command": "make"}),), model="demo:"),
        ToolResultMessage("a", "shell", "built"),
        AssistantMessage("Built.", model="demo:"),
        UserMessage("Thanks"),
    ]


def test_instructions_are_told_whole_and_counted(log: Log, turn: TurnId) -> None:
    context = build_context(log.events, instructions="Be kind. " * 100)
    assert context.system == "Be kind. " * 100
    assert context.tokens == 225 + sum(estimate_message(each) for each in context.messages)


def test_a_step_is_told_what_came_before_it_started_and_no_more(log: Log, turn: TurnId) -> None:
    log.start(turn, 1)
    started = len(log.events)
    log.message("Too late for this one")
    assert told(log, before=started) == [UserMessage("Build it")]


def test_what_an_answer_had_not_seen_is_told_after_it_and_its_results(log: Log, turn: TurnId) -> None:
    log.start(turn, 1)
    log.message("With tests")
    log.respond(turn, 1, answer("", SHELL))
    log.append(MachineRebooted(machine="mach_1"), turn=turn)
    log.tool(turn, 2, SHELL)
    kinds = [type(message) for message in told(log)]
    assert kinds == [UserMessage, AssistantMessage, ToolResultMessage, UserMessage, Note]


def test_what_was_streamed_and_never_sealed_was_not_said(log: Log, turn: TurnId) -> None:
    log.start(turn, 1)
    log.start(turn, 1, attempt=2)
    log.append(TurnRecovered(what="step_retried", attempt=2, reason="the worker died"), turn=turn)
    assert told(log) == [UserMessage("Build it")]


def test_results_stand_in_the_order_of_their_calls(log: Log, turn: TurnId) -> None:
    calls = [call(id, "read_file") for id in "abc"]
    log.answered(turn, 1, answer("", *calls))
    for place in (2, 0, 1):
        log.tool(turn, 2 + place, calls[place], finished(calls[place].id, f"output {place}"))
    results = [message.output for message in told(log) if isinstance(message, ToolResultMessage)]
    assert results == ["output 0", "output 1", "output 2"]


def test_a_call_id_that_comes_again_has_the_result_of_its_own_answer(log: Log, turn: TurnId) -> None:
    for n, output in ((1, "first"), (3, "second")):
        log.answered(turn, n, answer("", SHELL))
        log.tool(turn, n + 1, SHELL, finished("a", output))
    assert [message.output for message in told(log) if isinstance(message, ToolResultMessage)] == ["first", "second"]


@pytest.mark.parametrize(
    ("outcome", "output", "exit_code", "is_error", "said"),
    [
        ("finished", "  indented\n", None, False, "  indented\n"),
        ("finished", "", 0, False, "(no output)"),
        ("finished", "2 failed", 1, False, "2 failed\n[exit code 1]"),
        ("finished", "", 1, False, "[exit code 1]"),
        ("finished", "2 failed\n[exit code 1]", 1, False, "2 failed\n[exit code 1]"),
        ("failed", "No such file", None, True, "No such file"),
        ("rejected", "by policy", None, True, "This call was rejected and not run.\nby policy"),
    ],
)
def test_a_result_says_how_the_call_ended(
    log: Log, turn: TurnId, outcome: str, output: str, exit_code: int | None, is_error: bool, said: str
) -> None:
    log.answered(turn, 1, answer("", SHELL))
    log.tool(turn, 2, SHELL, finished("a", output, outcome=outcome, exit_code=exit_code))
    assert told(log)[-1] == ToolResultMessage("a", "shell", said, is_error)


def test_a_lost_effect_is_told_as_unknown(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", SHELL))
    log.tool(turn, 2, SHELL, finished("a", "half of it", outcome="lost"))
    result = told(log)[-1]
    assert isinstance(result, ToolResultMessage)
    assert result.is_error
    assert "unknown" in result.output
    assert result.output.endswith("half of it")


def test_what_waited_when_a_turn_was_interrupted_is_told_with_the_next_one(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer())
    log.message("It waited")
    log.interrupt(turn)
    log.end(turn, "interrupted")
    log.message("Go on")
    said = [each.text for each in told(log) if isinstance(each, UserMessage)]
    assert said[-2:] == ["It waited", "Go on"]


def test_calls_of_an_interrupted_turn_have_results_that_say_what_is_known(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", SHELL, call("b")))
    log.request(turn, 2, SHELL)
    log.interrupt(turn)
    log.end(turn, "interrupted")
    log.message("Go on")
    _, _, began, never, note, last = told(log)
    assert isinstance(began, ToolResultMessage)
    assert isinstance(never, ToolResultMessage)
    assert (began.call, began.is_error, never.call, never.is_error) == ("a", True, "b", True)
    assert "unknown" in began.output
    assert "not run" in never.output
    assert (note, last) == (Note("The turn was interrupted: stop"), UserMessage("Go on"))


def test_a_fork_in_the_middle_of_a_step_is_told_whole(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", SHELL))
    log.request(turn, 2, SHELL)
    parent = Parent(conversation=log.conversation, at=len(log.events))
    fork = Log(ConversationCreated(parent=parent), tuple(log.events))
    fork.message("Try otherwise")
    assert [type(message) for message in told(fork)] == [
        UserMessage,
        AssistantMessage,
        ToolResultMessage,
        UserMessage,
    ]


def test_an_answer_that_says_nothing_is_left_out(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer(" "))
    assert told(log) == [UserMessage("Build it")]


def test_blocks_and_unreadable_calls_go_back_as_they_came(log: Log, turn: TurnId) -> None:
    bad = call("a").model_copy(update={"error": "no JSON"})
    block: JsonValue = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    log.answered(turn, 1, ModelResponded(text="", tool_calls=[bad], blocks=[block], model="anthropic:x"))
    message = told(log)[1]
    assert message == AssistantMessage("", (ToolCall("a", "shell", {}, "no JSON"),), (block,), "anthropic:x")


def test_what_became_of_the_machine_is_told(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", SHELL))
    log.tool(turn, 2, SHELL)
    effects = [derive("eff", derive("step", turn, 2)), *(f"eff_{number}" for number in range(20))]
    for event in (
        MachineRolledBack(machine="m", checkpoint="c", effects=effects),
        MachineRolledBack(machine="m", checkpoint="c", effects=[]),
        MachineRebooted(machine="m"),
        MachineWoken(machine="m"),
        MachineLost(machine="m"),
        MachineForked(machine="n", origin="m", checkpoint="c"),
        MachineForked(machine="n", origin="m", checkpoint="c", ahead=["eff_1", "eff_2"]),
    ):
        log.append(event, turn=turn)
    notes = [message.text for message in told(log) if isinstance(message, Note)]
    assert len(notes) == 7
    assert 'shell {"command": "make"}; eff_0;' in notes[0]
    assert notes[0].endswith("; eff_8; and 11 more.")
    assert "gone, if anything" in notes[1]
    assert all(word in note for word, note in zip(("restarted", "woken", "lost"), notes[2:5], strict=True))
    assert "a copy of the one before" in notes[5]
    assert "later" not in notes[5]
    assert "what 2 calls did that you are not told of" in notes[6]


@pytest.mark.parametrize(("outcome", "word"), [("failed", "no key"), ("out_of_budget", "budget")])
def test_how_an_unhappy_turn_ended_is_told(log: Log, turn: TurnId, outcome: str, word: str) -> None:
    log.end(turn, outcome, "no key" if outcome == "failed" else None)
    note = told(log)[-1]
    assert isinstance(note, Note)
    assert word in note.text


def with_attachments(log: Log, *blobs: str) -> list[Event]:
    attached = [Attachment(name=f"{blob}.png", media_type="image/png", size=9, blob=blob) for blob in blobs]
    log.append(MessageSent(message="msg_1", text="Look", attachments=attached))
    return log.events


def test_pictures_are_shown_and_other_attachments_named(log: Log) -> None:
    picture = Image("image/png", b"png")
    events = with_attachments(log, "blob1", "blob2")
    assert build_context(events, images={"blob1": picture}).messages == (
        UserMessage("Look\n[attached: blob2.png (image/png, 9 bytes)]", (picture,)),
    )


def test_pictures_that_do_not_fit_are_counted_and_left_out(log: Log) -> None:
    events = with_attachments(log, *(f"blob{number}" for number in range(9)))
    images = {f"blob{number}": Image("image/png", b"png") for number in range(9)}
    context = build_context(events, bounds=Bounds(tokens=4 * 2 * IMAGE_TOKENS + 200), images=images)
    (message,) = context.messages
    assert isinstance(message, UserMessage)
    assert len(message.images) == 2
    assert message.text == "Look\n[7 more pictures do not fit here]"


def test_a_log_without_a_word_still_says_something() -> None:
    assert build_context(()).messages == (Note("Nobody has said anything yet."),)


def test_a_context_never_begins_with_an_answer(log: Log) -> None:
    turn = TurnId("turn_1")
    log.begin(turn)
    log.answered(turn, 1, answer("Hello"))
    assert told(log) == [Note("What came before is not known."), AssistantMessage("Hello", model="demo:")]


def long_turn(log: Log, turn: TurnId, steps: int, output: str = "x" * 4_000) -> None:
    for number in range(steps):
        asked = call(f"c{number}")
        log.answered(turn, 1 + 2 * number, answer(f"step {number}", asked))
        log.tool(turn, 2 + 2 * number, asked, finished(asked.id, output))


def test_the_oldest_outputs_are_cut_first(log: Log, turn: TurnId) -> None:
    long_turn(log, turn, 12)
    messages = told(log, tokens=8_000)
    outputs = [message.output for message in messages if isinstance(message, ToolResultMessage)]
    assert len(outputs) == 12, "all are there"
    is_cut = ["left out here" in output for output in outputs]
    assert is_cut == sorted(is_cut, reverse=True)
    assert is_cut[0]
    assert not is_cut[-1]


def test_then_the_oldest_exchanges_are_left_out_and_the_task_stays(log: Log, turn: TurnId) -> None:
    long_turn(log, turn, 60)
    messages = told(log, tokens=8_000)
    assert messages[0] == UserMessage("Build it")
    assert isinstance(messages[1], Note)
    assert "parts of this conversation are left out" in messages[1].text
    last = messages[-2]
    assert isinstance(last, AssistantMessage)
    assert last.text == "step 59"
    assert messages[-1] == ToolResultMessage("c59", "shell", "x" * 4_000), "what came last is whole"


def test_what_a_person_said_leaves_after_all_that_was_answered_to_it(log: Log, turn: TurnId) -> None:
    long_turn(log, turn, 30)
    log.end(turn)
    second = log.message("And now this")
    log.begin(second)
    long_turn(log, second, 3)
    said = [message for message in told(log, tokens=8_000) if isinstance(message, UserMessage)]
    assert said == [UserMessage("Build it"), UserMessage("And now this")]
    assert log.message("And that") == second
    for n in range(100, 140):
        log.answered(second, n, answer("y" * 3_000))
    said = [message for message in told(log, tokens=8_000) if isinstance(message, UserMessage)]
    assert said == [UserMessage("And that")]


def test_the_same_beginning_is_told_the_same_way_at_many_steps(log: Log, turn: TurnId) -> None:
    """A provider's prompt cache pays only for a prefix that does not change."""
    contexts: list[list[Message]] = []
    for number in range(80):
        asked = call(f"c{number}")
        log.answered(turn, 1 + 2 * number, answer(f"step {number}", asked))
        log.tool(turn, 2 + 2 * number, asked, finished(asked.id, "x" * 2_000))
        contexts.append(told(log, tokens=8_000))
    kept = sum(after[: len(before)] == before for before, after in pairwise(contexts))
    assert 60 <= kept < 79, "mostly goes on where it was, and is cut now and then"


def test_a_message_longer_than_the_budget_keeps_its_beginning_and_end(log: Log) -> None:
    log.message("BEGIN " + "m" * 100_000 + " END")
    (message,) = told(log, tokens=4_000)
    assert isinstance(message, UserMessage)
    assert message.text.startswith("BEGIN ")
    assert message.text.endswith(" END")
    assert "left out here" in message.text
    assert estimate_message(message) <= 2_010


def test_a_step_with_more_output_than_fits_is_told_with_less_of_each(log: Log, turn: TurnId) -> None:
    calls = [call(str(number)) for number in range(10)]
    log.answered(turn, 1, answer("", *calls))
    for number, each in enumerate(calls):
        log.tool(turn, 2 + number, each, finished(each.id, "z" * 30_000))
    messages = told(log, tokens=5_000)
    outputs = [message.output for message in messages if isinstance(message, ToolResultMessage)]
    assert len(outputs) == 10
    assert all("left out here" in output and len(output) > 400 for output in outputs)


@pytest.mark.parametrize("text", ["short", "a" * 1_000, "ä" * 1_000, "🦀" * 1_000, "漢" * 999])
def test_a_shortened_text_fits_and_is_text(text: str) -> None:
    short = shorten(text, 500)
    assert len(short.encode()) <= 500
    assert (short == text) == (len(text.encode()) <= 500)
    assert short[0] == text[0]
    assert short[-1] == text[-1]


def test_scripts_that_take_more_bytes_take_more_tokens() -> None:
    assert estimate_tokens("word") == 1
    assert estimate_tokens("") == 0
    assert estimate_tokens("漢字漢字") == 3
    assert estimate_tokens("\ud800") == 1, "half a surrogate pair is counted, not refused"
