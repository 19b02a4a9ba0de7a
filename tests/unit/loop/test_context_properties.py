"""Whatever a log holds, its context is one that a model can be asked with."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.conversation.events import Event, MachineRebooted
from outlive.loop.context import Bounds, Context, build_context
from outlive.loop.models.messages import AssistantMessage, Note, ToolResultMessage, UserMessage
from unit.loop.logs import Log, answer, call, finished

SIZES = st.sampled_from([0, 1, 3, 50, 700, 4_000, 60_000])


class Call(NamedTuple):
    arguments: int
    output: int
    end: str  # how it ended; "requested" and "" are those that have no result


class Said(NamedTuple):
    size: int


class Answered(NamedTuple):
    size: int
    calls: list[Call]
    is_late: bool  # a message comes while the model speaks


CALLS = st.builds(Call, SIZES, SIZES, st.sampled_from(["finished", "failed", "lost", "requested", ""]))
MOVES = st.lists(
    st.one_of(
        st.builds(Said, SIZES),
        st.builds(Answered, SIZES, st.lists(CALLS, max_size=4), st.booleans()),
        st.just("rebooted"),
        st.just("ended"),
    ),
    max_size=25,
)
BUDGETS = st.sampled_from([1_000, 2_500, 10_000, 40_000])


def text(number: int, size: int) -> str:
    """Text that says which it is at both ends, so that order and wholeness can be seen."""
    return f"<{number}>" + "ö" * size + f"</{number}>"


def log_of(moves: list[object]) -> tuple[Log, list[str]]:
    """A log, and what people said in it."""
    log, said = Log(), [text(0, 10)]
    turn, n = log.message(said[0]), 1
    log.begin(turn)
    for number, move in enumerate(moves, 1):
        if log.summary.turn is None:
            said.append(text(number + 1_000, 5))
            turn, n = log.message(said[-1]), 1
            log.begin(turn)
        match move:
            case Said(size):
                said.append(text(number, size))
                log.message(said[-1])
            case Answered(size, calls, is_late):
                asked = [call(f"{number}.{i}", command="a" * each.arguments) for i, each in enumerate(calls)]
                log.start(turn, n)
                if is_late:
                    said.append(text(number + 2_000, 20))
                    log.message(said[-1])
                log.respond(turn, n, answer(text(number, size), *asked))
                for place, (each, made) in enumerate(zip(calls, asked, strict=True), n + 1):
                    if each.end:
                        log.request(turn, place, made)
                    if each.end not in ("", "requested"):
                        log.finish_tool(turn, place, finished(made.id, "o" * each.output, outcome=each.end))
                n += 1 + len(calls)
            case "rebooted":
                log.append(MachineRebooted(machine="mach_1"), turn=turn)
            case _:
                log.end(turn)
    return log, said


def check_can_be_asked(context: Context) -> None:
    messages = context.messages
    assert messages
    assert not isinstance(messages[0], AssistantMessage | ToolResultMessage)
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert expected
            assert message.call == expected.pop(0)
            assert message.output
        else:
            assert expected == [], "every call has its result before anything else is said"
        if isinstance(message, AssistantMessage):
            expected = [each.id for each in message.tool_calls]
    assert expected == []


def places_of(context: Context, events: list[Event]) -> list[int]:
    """Where in the log the answers stand that are told."""
    sealed = {event.data["text"]: event.seq for event in events if event.type == "model.responded"}
    return [sealed[message.text] for message in context.messages if isinstance(message, AssistantMessage)]


@given(MOVES, BUDGETS)
@settings(max_examples=250, deadline=None)
def test_any_log_gives_a_context_that_fits_and_can_be_asked(moves: list[object], budget: int) -> None:
    log, said = log_of(moves)
    instructions = "i" * 400
    context = build_context(log.events, instructions=instructions, bounds=Bounds(tokens=budget + 100))
    check_can_be_asked(context)
    assert context.tokens <= budget + 100
    assert places_of(context, log.events) == sorted(places_of(context, log.events))
    told = [message.text for message in context.messages if isinstance(message, UserMessage)]
    assert told, "what was said last is always there"
    newest = said[-1]
    assert told[-1] == newest or (len(newest.encode()) > budget and told[-1][:3] == newest[:3])
    assert [each.partition(">")[0] for each in told] == [
        each.partition(">")[0] for each in said if any(one.startswith(each.partition(">")[0] + ">") for one in told)
    ], "in the order in which it was said"
    assert context == build_context(log.events, instructions=instructions, bounds=Bounds(tokens=budget + 100))


@given(MOVES)
@settings(max_examples=100, deadline=None)
def test_with_room_for_all_nothing_is_left_out(moves: list[object]) -> None:
    log, said = log_of(moves)
    messages = build_context(log.events, bounds=Bounds(tokens=10**9, result_bytes=10**9)).messages
    assert [message.text for message in messages if isinstance(message, UserMessage)] == said
    answers = [event.data["text"] for event in log.events if event.type == "model.responded"]
    assert [message.text for message in messages if isinstance(message, AssistantMessage)] == answers
    outputs = [event.data["output"] for event in log.events if event.type == "tool.finished"]
    together = "\n".join(message.output for message in messages if isinstance(message, ToolResultMessage))
    assert all(output in together for output in outputs)
    assert not [message for message in messages if isinstance(message, Note) and "left out" in message.text]
