"""The plan of an append: every rule, without a database."""

from typing import Any

import pytest

from outlive.base import (
    ConflictError,
    ConversationId,
    ExhaustedError,
    FencedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    StepId,
    TurnId,
)
from outlive.conversation.append import (
    AttemptEnded,
    AttemptStarted,
    AttemptStatus,
    Known,
    LastAttempt,
    Plan,
    Summary,
    TurnEnded,
    plan,
)
from outlive.conversation.events import (
    SEQ_MAX,
    ApprovalDecided,
    ApprovalRequested,
    ConversationArchived,
    ConversationCreated,
    EventData,
    MachineAttached,
    MachineWoken,
    MessageSent,
    ModelResponded,
    NewEvent,
    StepStarted,
    SubagentFinished,
    ToolFinished,
    ToolRequested,
    TurnFinished,
    TurnInterrupted,
    TurnParked,
    TurnPaused,
    TurnRecovered,
    TurnResumed,
    TurnStarted,
    WaitStarted,
)
from outlive.conversation.log import BATCH_LIMIT, Append, Appended, Writer

CONVERSATION = ConversationId("conv_1")
STEP, OTHER_STEP = StepId("step_1"), StepId("step_2")
OTHER = TurnId("turn_0")
TURN = TurnId("turn_1")
AT = "2030-01-02T03:04:05.000006Z"

MESSAGE = MessageSent(message="msg_1", text="hello")
STARTED = StepStarted(kind="model", name="demo:")
REQUESTED = ToolRequested(call="c", name="shell", arguments={}, effect="e")
RESPONDED = ModelResponded(text="hi", model="demo:")
ASKED = ApprovalRequested(approval="a", question="?", expires_at=AT)
TOOL_FINISHED = ToolFinished(call="c", effect="e", outcome="finished", output="")


def known_with(**changes: Any) -> Known:
    values = {
        "key": 7,
        "head": 10,
        "state": "idle",
        "turn": None,
        "machine": None,
        "archived_at": None,
        "updated_at": "",
    }
    return Known({CONVERSATION: Summary(**{**values, **changes})})


def append_of(
    *data: EventData, key: str = "k", turn: TurnId | None = TURN, writer: Writer | None = None, at: str = AT
) -> Append:
    return Append(CONVERSATION, tuple(NewEvent(each, at) for each in data), key, "me", turn, writer)


def check_refused(append: Append, known: Known, kind: type[OutliveError], code: str) -> OutliveError:
    """A refusal is a value, and nothing is changed by it."""
    into, before = Plan(), repr(known)
    refusal = plan(append, known, into)
    assert isinstance(refusal, kind)
    assert refusal.code == code
    assert (into, repr(known)) == (Plan(), before)
    return refusal


def check_planned(append: Append, known: Known, into: Plan | None = None) -> Appended:
    answer = plan(append, known, Plan() if into is None else into)
    assert isinstance(answer, Appended)
    return answer


def test_seq_goes_on_from_the_head() -> None:
    known, into = known_with(), Plan()
    assert check_planned(append_of(MESSAGE, MachineWoken(machine="m")), known, into).seqs == (11, 12)
    assert check_planned(append_of(MESSAGE, key="k2"), known, into).seqs == (13,)
    assert known.summaries[CONVERSATION].head == 13
    assert [(key, batch, event.seq) for key, batch, _, event in into.events] == [
        (7, "k", 11),
        (7, "k", 12),
        (7, "k2", 13),
    ]
    assert into.touched == {CONVERSATION}


def test_an_append_for_one_moment_of_the_log_is_refused_at_another() -> None:
    known, into = known_with(), Plan()
    meant = append_of(MESSAGE)._replace(expect=10)
    check_refused(meant._replace(expect=9), known, ConflictError, "append.moved")
    assert check_planned(meant, known, into).seqs == (11,)
    refusal = check_refused(meant._replace(key="k2"), known, ConflictError, "append.moved")
    assert refusal.facts == {"head": 11}
    assert check_planned(meant, known, into).is_repeat, "asked again, it has been appended"


def test_an_event_is_placed_with_what_its_append_says() -> None:
    writer = Writer(STEP, 1, 0)
    (event,) = check_planned(append_of(STARTED, writer=writer), known_with(turn=TURN)).events
    assert event[0] == 11
    assert event[2:] == (TURN, STEP, 1, "step.started", 1, AT, "me", '{"kind":"model","name":"demo:"}', None)


def test_an_unknown_conversation_is_not_found() -> None:
    check_refused(append_of(MESSAGE), Known(), NotFoundError, "conversation.not_found")


def test_a_repeat_gets_the_answer_of_the_first() -> None:
    known, into = known_with(), Plan()
    answer = check_planned(append_of(MESSAGE), known, into)
    again = check_planned(append_of(MESSAGE, at="2031" + AT[4:]), known, into)
    assert (again.events, again.is_repeat) == (answer.events, True)
    assert len(into.events) == 1


@pytest.mark.parametrize(
    "other",
    [
        append_of(MESSAGE, MESSAGE),
        append_of(),
        append_of(MachineWoken(machine="m")),
        append_of(MessageSent(message="msg_1", text="other")),
    ],
)
def test_a_key_is_not_taken_again_for_other_events(other: Append) -> None:
    known = known_with()
    check_planned(append_of(MESSAGE), known)
    check_refused(other, known, ConflictError, "append.key_reused")


def test_a_payload_in_the_object_store_is_part_of_what_is_repeated() -> None:
    known, append, other = known_with(), append_of(MESSAGE), append_of(MESSAGE)
    append.events[0].blob, append.events[0].data_json = "b3_1", ""
    other.events[0].blob, other.events[0].data_json = "b3_2", ""
    check_planned(append, known)
    assert check_planned(append, known).is_repeat
    check_refused(other, known, ConflictError, "append.key_reused")


def test_a_batch_is_neither_empty_nor_too_big() -> None:
    check_refused(append_of(), known_with(), InvalidError, "append.size")
    check_refused(append_of(*[MESSAGE] * (BATCH_LIMIT + 1)), known_with(), InvalidError, "append.size")
    assert len(check_planned(append_of(*[MESSAGE] * BATCH_LIMIT), known_with()).events) == BATCH_LIMIT


def test_a_conversation_is_not_created_by_an_append() -> None:
    check_refused(append_of(ConversationCreated()), known_with(), InvalidError, "append.created_twice")


def test_an_archived_conversation_takes_no_message_but_what_is_under_way() -> None:
    known = known_with(archived_at=AT, turn=TURN)
    check_refused(append_of(MESSAGE), known, ConflictError, "conversation.archived")
    check_planned(append_of(STARTED, writer=Writer(STEP, 1, 0)), known)


@pytest.mark.parametrize("data", [STARTED, REQUESTED, RESPONDED, TOOL_FINISHED], ids=lambda data: data.type)
def test_events_of_a_step_need_a_writer(data: EventData) -> None:
    check_refused(append_of(MESSAGE, data), known_with(), InvalidError, "append.needs_writer")


@pytest.mark.parametrize("writer", [Writer(STEP, 0, 0), Writer(STEP, -1, 0), Writer(STEP, 1, -1)])
def test_attempts_count_from_one_and_batches_from_zero(writer: Writer) -> None:
    check_refused(append_of(STARTED, writer=writer), known_with(), InvalidError, "append.writer")


def test_a_start_comes_first() -> None:
    append = append_of(MESSAGE, STARTED, writer=Writer(STEP, 1, 0))
    check_refused(append, known_with(), InvalidError, "append.start_not_first")


OK = (Appended, "")
FENCED, ABANDONED = (FencedError, "step.fenced"), (FencedError, "step.abandoned")
SEALED, STARTED_BEFORE = (ConflictError, "step.sealed"), (ConflictError, "step.already_started")
NOT_STARTED = (InvalidError, "step.not_started")
Ending = tuple[type[Any], str]

# The table of append.py: (attempt relative to the last, which is 5; starting) -> ending by the last one's status.
TABLE: dict[tuple[int, bool], dict[AttemptStatus, Ending]] = {
    (4, True): {"open": FENCED, "sealed": FENCED, "abandoned": FENCED},
    (4, False): {"open": FENCED, "sealed": FENCED, "abandoned": FENCED},
    (5, True): {"open": STARTED_BEFORE, "sealed": SEALED, "abandoned": ABANDONED},
    (5, False): {"open": OK, "sealed": SEALED, "abandoned": ABANDONED},
    (6, True): {"open": OK, "sealed": SEALED, "abandoned": ABANDONED},
    (6, False): {"open": NOT_STARTED, "sealed": SEALED, "abandoned": ABANDONED},
}


@pytest.mark.parametrize(
    ("attempt", "is_starting", "status", "ending"),
    [(*asked, status, ending) for asked, row in TABLE.items() for status, ending in row.items()],
)
def test_an_attempt_meets_the_fate_of_the_table(
    attempt: int, is_starting: bool, status: AttemptStatus, ending: Ending
) -> None:
    known = known_with(turn=None if status == "abandoned" else TURN)
    known.attempts[CONVERSATION, STEP] = LastAttempt(5, status)
    append = append_of(STARTED if is_starting else REQUESTED, writer=Writer(STEP, attempt, 3))
    kind, code = ending
    if kind is Appended:
        check_planned(append, known)
    else:
        refusal = check_refused(append, known, kind, code)
        assert refusal.facts == ({"attempt": 5} if ending == FENCED else {})


@pytest.mark.parametrize("attempt", [1, 3])
def test_the_first_attempt_of_a_step_has_to_start(attempt: int) -> None:
    check_refused(append_of(REQUESTED, writer=Writer(STEP, attempt, 0)), known_with(), *NOT_STARTED)
    check_planned(append_of(STARTED, writer=Writer(STEP, attempt, 0)), known_with(turn=TURN))


def test_a_newer_attempt_ends_the_older_one_where_it_starts() -> None:
    known, into = known_with(turn=TURN), Plan()
    check_planned(append_of(STARTED, key="1", writer=Writer(STEP, 1, 0)), known, into)
    check_planned(append_of(STARTED, key="2", writer=Writer(STEP, 2, 0)), known, into)
    assert into.changes == [
        AttemptStarted(7, STEP, 1, 11, TURN),
        AttemptEnded(7, STEP, 1, 12, "superseded"),
        AttemptStarted(7, STEP, 2, 12, TURN),
    ]
    check_refused(append_of(REQUESTED, key="3", writer=Writer(STEP, 1, 1)), known, *FENCED)


@pytest.mark.parametrize("data", [RESPONDED, TOOL_FINISHED], ids=lambda data: data.type)
def test_a_seal_seals_the_attempt(data: EventData) -> None:
    known, into = known_with(turn=TURN), Plan()
    check_planned(append_of(STARTED, REQUESTED, data, writer=Writer(STEP, 1, 0)), known, into)
    assert into.changes == [AttemptStarted(7, STEP, 1, 11, TURN), AttemptEnded(7, STEP, 1, 13, "sealed")]
    check_refused(append_of(STARTED, key="2", writer=Writer(STEP, 2, 0)), known, *SEALED)


@pytest.mark.parametrize("data", [TurnFinished(outcome="done"), TurnInterrupted()], ids=lambda data: data.type)
def test_the_end_of_a_turn_abandons_what_is_open_in_its_conversation(data: EventData) -> None:
    known, into = known_with(turn=TURN), Plan()
    elsewhere = ConversationId("conv_2")
    known.attempts = {
        (CONVERSATION, STEP): LastAttempt(1, "open"),
        (CONVERSATION, OTHER_STEP): LastAttempt(1, "sealed"),
        (elsewhere, STEP): LastAttempt(1, "open"),
    }
    check_planned(append_of(data), known, into)
    assert into.changes == [TurnEnded(7, 11)]
    assert [last.status for last in known.attempts.values()] == ["abandoned", "sealed", "open"]


@pytest.mark.parametrize("open_turn", [None, TurnId("turn_2")])
@pytest.mark.parametrize("data", [TurnFinished(outcome="done"), TurnInterrupted()], ids=lambda data: data.type)
def test_a_turn_that_is_not_open_cannot_end(data: EventData, open_turn: TurnId | None) -> None:
    check_refused(append_of(data), known_with(turn=open_turn), ConflictError, "turn.over")


OTHER_TURN = TurnId("turn_2")


@pytest.mark.parametrize("data", [[STARTED], [STARTED, REQUESTED], [MachineWoken(machine="m"), ASKED]])
@pytest.mark.parametrize(
    ("given", "is_open", "is_appended"),
    [
        (TURN, TURN, True),
        (TURN, OTHER_TURN, False),
        (TURN, None, False),  # it is over, or was never opened
        (None, None, True),
        (None, OTHER_TURN, False),
    ],
)
def test_only_the_open_turn_begins_something(
    data: list[EventData], given: TurnId | None, is_open: TurnId | None, is_appended: bool
) -> None:
    append = append_of(*data, turn=given, writer=Writer(STEP, 1, 0) if STARTED in data else None)
    if is_appended:
        check_planned(append, known_with(turn=is_open))
    else:
        check_refused(append, known_with(turn=is_open), FencedError, "turn.over")


def test_the_end_of_a_turn_counts_for_what_is_planned_behind_it() -> None:
    known, into = known_with(turn=TURN), Plan()
    check_planned(append_of(TurnInterrupted(), TurnFinished(outcome="interrupted")), known, into)
    late = append_of(STARTED, REQUESTED, key="late", writer=Writer(STEP, 1, 0))
    check_refused(late, known, FencedError, "turn.over")
    check_planned(append_of(MESSAGE, key="next", turn=OTHER_TURN), known, into)
    check_refused(late, known, FencedError, "turn.over")


def test_what_was_appended_before_its_turn_ended_is_still_a_repeat() -> None:
    known, into = known_with(turn=TURN), Plan()
    started = append_of(STARTED, key="1", writer=Writer(STEP, 1, 0))
    check_planned(started, known, into)
    check_planned(append_of(TurnFinished(outcome="done")), known, into)
    assert check_planned(started, known, into).is_repeat


def test_no_turn_begins_beside_the_one_that_is_open() -> None:
    begun = append_of(TurnStarted(agent="a", version=1, model="m"))
    check_refused(begun, known_with(turn=OTHER_TURN), ConflictError, "turn.over")
    check_planned(begun, known_with(turn=TURN))
    check_planned(begun, known_with())


@pytest.mark.parametrize(
    "data",
    [
        [STARTED, RESPONDED, RESPONDED],
        [STARTED, RESPONDED, REQUESTED],
        [TurnInterrupted(), RESPONDED],
    ],
)
def test_nothing_of_a_step_follows_its_end_in_a_batch(data: list[EventData]) -> None:
    known = known_with(turn=TURN)
    known.attempts[CONVERSATION, STEP] = LastAttempt(1, "open")
    append = append_of(*data, writer=Writer(STEP, 2, 0))
    check_refused(append, known, InvalidError, "append.after_the_end")


def test_a_log_that_is_full_takes_no_more() -> None:
    check_planned(append_of(MESSAGE), known_with(head=SEQ_MAX - 1))
    check_refused(append_of(MESSAGE), known_with(head=SEQ_MAX), ExhaustedError, "log.full")


@pytest.mark.parametrize(
    ("before", "data", "after"),
    [
        ({}, MESSAGE, {"state": "running", "turn": TURN}),
        ({"turn": TurnId("turn_0")}, MESSAGE, {"turn": TurnId("turn_0")}),
        ({}, TurnStarted(agent="a", version=1, model="m"), {"state": "running", "turn": TURN}),
        ({"turn": TURN}, ASKED, {"state": "waiting"}),
        ({"state": "waiting", "turn": TURN}, ApprovalDecided(approval="a", decision="deny"), {"state": "running"}),
        ({"state": "waiting", "turn": OTHER}, ApprovalDecided(approval="a", decision="deny"), {}),
        ({"state": "running", "turn": TURN}, TurnParked(), {"state": "waiting"}),
        ({"state": "running", "turn": OTHER}, TurnParked(), {}),
        ({"state": "waiting", "turn": TURN}, TurnResumed(), {"state": "running"}),
        ({"state": "running", "turn": TURN}, TurnPaused(), {}),
        ({"state": "waiting", "turn": OTHER}, MESSAGE, {"state": "running"}),
        ({"state": "waiting", "turn": TURN}, TurnRecovered(what="restarted", reason="r"), {"state": "running"}),
        ({"state": "waiting", "turn": TURN}, WaitStarted(step="s", call="c", until=AT), {}),
        ({"state": "idle"}, ApprovalDecided(approval="a", decision="deny"), {"state": "idle"}),
        ({"state": "running", "turn": TURN}, TurnFinished(outcome="done"), {"state": "idle", "turn": None}),
        ({"state": "running", "turn": TURN}, TurnFinished(outcome="failed"), {"state": "failed", "turn": None}),
        ({"turn": TURN}, MachineAttached(machine="mach_1"), {"machine": "mach_1"}),
        ({}, ConversationArchived(), {"archived_at": AT}),
        ({"machine": "mach_0"}, MachineWoken(machine="mach_0"), {}),
    ],
)
def test_the_summary_follows_the_events(before: dict[str, Any], data: EventData, after: dict[str, Any]) -> None:
    known = known_with(**before)
    check_planned(append_of(data), known)
    assert known == Known(
        known_with(**{**before, **after, "head": 11, "updated_at": AT}).summaries, known.attempts, known.batches
    )


def test_a_message_belongs_to_the_turn_that_is_open() -> None:
    open_turn = TurnId("turn_0")
    (event,) = check_planned(append_of(MESSAGE), known_with(turn=open_turn)).events
    assert event.turn == open_turn
    (event,) = check_planned(append_of(MESSAGE), known_with()).events
    assert event.turn == TURN


def test_what_comes_with_a_message_is_of_its_turn() -> None:
    """The end of a detached subagent and its report: else the end would name a turn that never begins."""
    batch = append_of(SubagentFinished(conversation=ConversationId("conv_2"), outcome="done"), MESSAGE)
    for known, turn in ((known_with(turn=OTHER), OTHER), (known_with(), TURN)):
        assert [event.turn for event in check_planned(batch, known).events] == [turn, turn]
        repeat = plan(batch, known, Plan())
        assert isinstance(repeat, Appended)
        assert repeat.is_repeat
