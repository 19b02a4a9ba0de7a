"""What is remembered between transactions: bounded, and never enough to refuse by."""

import pytest

from outlive.base import ConversationId, InvalidError, NotFoundError, StepId
from outlive.conversation.append import LastAttempt, Summary
from outlive.conversation.backends import memory
from outlive.conversation.backends.memory import Memory, plan_all
from outlive.conversation.events import MessageSent, NewEvent, StepStarted
from outlive.conversation.log import Append, Appended, Writer

HERE, ELSEWHERE = ConversationId("conv_1"), ConversationId("conv_2")
STEP = StepId("step_1")


def remembering(*conversations: ConversationId) -> Memory:
    made = Memory()
    for key, conversation in enumerate(conversations, start=1):
        made.known.summaries[conversation] = Summary(key, 1, "idle", None, None, None, "")
    return made


def message(conversation: ConversationId, key: str = "k") -> Append:
    return Append(conversation, (NewEvent(MessageSent(message="m", text="t"), ""),), key, "me")


def start(conversation: ConversationId) -> Append:
    new = NewEvent(StepStarted(kind="model", name="x"), "")
    return Append(conversation, (new,), "s", "me", writer=Writer(STEP, 1, 0))


def test_what_is_not_remembered_has_to_be_looked_up() -> None:
    known = remembering(HERE)
    appends = [message(HERE), message(ELSEWHERE), start(HERE)]
    assert known.missing(appends) == appends[1:]
    known.known.attempts[HERE, STEP] = LastAttempt(1, "open")
    assert known.missing(appends) == appends[1:2]


def test_an_append_that_would_be_refused_is_looked_up_first() -> None:
    invalid = Append(HERE, (), "empty", "me")
    assert plan_all([message(HERE), invalid], remembering(HERE).known, []) is None
    assert plan_all([message(ELSEWHERE)], remembering(HERE).known, []) is None
    planned = plan_all([message(HERE), invalid], remembering(HERE).known, [invalid])
    assert planned is not None
    assert [type(result) for result in planned[1]] == [Appended, InvalidError]
    unknown = message(ELSEWHERE)
    planned = plan_all([unknown], remembering(HERE).known, [unknown])
    assert planned is not None
    assert isinstance(planned[1][0], NotFoundError)


def test_memory_is_bounded_and_keeps_no_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONVERSATIONS_LIMIT", 1)
    monkeypatch.setattr(memory, "ATTEMPTS_LIMIT", 1)
    one = remembering(HERE)
    one.known.batches[HERE, "k"] = []
    assert one.tidy() is one
    assert one.known.batches == {}
    assert remembering(HERE, ELSEWHERE).tidy().known.summaries == {}
    one.known.attempts = {(HERE, StepId(str(number))): LastAttempt(1, "open") for number in range(2)}
    assert one.tidy().known.summaries == {}
