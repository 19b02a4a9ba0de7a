"""A log in memory that keeps the real rules of an append, for tests of what the loop makes of a log."""

from outlive.base import ConversationId, StepId, TurnId, derive, new_conversation_id, new_message_id, new_turn_id
from outlive.conversation.append import Known, Plan, Summary, plan
from outlive.conversation.events import (
    CompactionFinished,
    CompactionRequested,
    ConversationCreated,
    Event,
    EventData,
    MachineHibernated,
    MessageSent,
    ModelResponded,
    NewEvent,
    StepStarted,
    ToolCall,
    ToolFinished,
    ToolRequested,
    TurnFinished,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)
from outlive.conversation.log import Append, Appended, Writer
from outlive.loop.fold import compaction_id, fold_turn
from outlive.loop.state import TurnState

AT = "2030-01-02T03:04:05.000006Z"
STARTED = TurnStarted(agent="coder", version=3, model="demo:")


def call(id: str, name: str = "shell", **arguments: str) -> ToolCall:
    return ToolCall(id=id, name=name, arguments={**arguments})


def answer(text: str = "Done.", *calls: ToolCall, stop_reason: str | None = None) -> ModelResponded:
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    return ModelResponded(text=text, tool_calls=[*calls], model="demo:", stop_reason=reason)


def finished(call: str, output: str = "ok", **more: object) -> ToolFinished:
    data = {"call": call, "effect": "eff_1", "outcome": "finished", "output": output, **more}
    return ToolFinished.model_validate(data)


class Log:
    """One conversation. An append either changes it or raises what the rules say."""

    def __init__(self, created: ConversationCreated | None = None, shared: tuple[Event, ...] = ()) -> None:
        self.conversation: ConversationId = new_conversation_id()
        self.events: list[Event] = [*shared]
        new = NewEvent(created or ConversationCreated(agent="coder"), AT)
        seq = len(shared) + 1
        self.events.append(
            Event(seq, new.id, None, None, None, new.type, new.data.v, AT, "prin_1", new.data_json, None)
        )
        self._known = Known({self.conversation: Summary(1, seq, "idle", None, None, None, AT)})
        self._keys = 0

    @property
    def summary(self) -> Summary:
        return self._known.summaries[self.conversation]

    def append(
        self, *data: EventData, turn: TurnId | None = None, writer: Writer | None = None, expect: int | None = None
    ) -> Appended:
        self._keys += 1
        events = tuple(NewEvent(each, AT) for each in data)
        key = writer.key if writer else f"key-{self._keys}"
        append = Append(self.conversation, events, key, "prin_1", turn, writer, expect, self.summary.machine)
        done = plan(append, self._known, Plan())
        if not isinstance(done, Appended):
            raise done
        if not done.is_repeat:
            self.events += done.events
        return done

    def state(self) -> TurnState:
        return fold_turn(self.conversation, self.events)

    # ── what happens in a conversation ──

    def message(self, text: str = "Hi", model: str | None = None) -> TurnId:
        """Somebody sends a message; the turn that it opens or joins."""
        sent = MessageSent(message=new_message_id(), text=text, model=model)
        turn = self.append(sent, turn=new_turn_id()).events[0].turn
        assert turn is not None
        return turn

    def begin(self, turn: TurnId) -> None:
        self.append(STARTED, turn=turn)

    def start(self, turn: TurnId, n: int, attempt: int = 1, kind: str = "model", name: str = "demo:") -> StepId:
        step = StepId(derive("step", turn, n))
        started = StepStarted.model_validate({"kind": kind, "name": name})
        self.append(started, turn=turn, writer=Writer(step, attempt, 0))
        return step

    def respond(self, turn: TurnId, n: int, data: ModelResponded, attempt: int = 1) -> None:
        self.append(data, turn=turn, writer=Writer(StepId(derive("step", turn, n)), attempt, 1))

    def answered(self, turn: TurnId, n: int, data: ModelResponded) -> None:
        """A whole model step."""
        self.start(turn, n)
        self.respond(turn, n, data)

    def request(self, turn: TurnId, n: int, call: ToolCall, attempt: int = 1) -> None:
        step = self.start(turn, n, attempt, "tool", call.name)
        asked = ToolRequested(call=call.id, name=call.name, arguments=call.arguments, effect=derive("eff", step))
        self.append(asked, turn=turn, writer=Writer(step, attempt, 1))

    def finish_tool(self, turn: TurnId, n: int, data: ToolFinished, attempt: int = 1) -> None:
        step = StepId(derive("step", turn, n))
        data = data.model_copy(update={"effect": derive("eff", step)})
        self.append(data, turn=turn, writer=Writer(step, attempt, 2))

    def tool(self, turn: TurnId, n: int, call: ToolCall, data: ToolFinished | None = None) -> None:
        """A whole tool step."""
        self.request(turn, n, call)
        self.finish_tool(turn, n, data or finished(call.id))

    def ask_to_compact(self, turn: TurnId | None = None, reason: str = "asked", **more: object) -> int:
        asked = CompactionRequested.model_validate({"reason": reason, **more})
        return self.append(asked, turn=turn).events[0].seq

    def compact(self, turn: TurnId, requested: int, **data: object) -> None:
        """A whole compaction."""
        step = compaction_id(turn, requested)
        self.append(StepStarted(kind="compaction", name="demo:"), turn=turn, writer=Writer(step, 1, 0))
        sealed = CompactionFinished.model_validate({"outcome": "compacted", "model": "demo:", **data})
        self.append(sealed, turn=turn, writer=Writer(step, 1, 1))

    def park(self, turn: TurnId) -> None:
        self.append(TurnParked(), turn=turn)

    def hibernate(self, turn: TurnId) -> None:
        self.append(MachineHibernated(machine="mach_1"), turn=turn)

    def interrupt(self, turn: TurnId) -> None:
        self.append(TurnInterrupted(reason="stop"), turn=turn)

    def end(self, turn: TurnId, outcome: str = "done", reason: str | None = None) -> None:
        self.append(TurnFinished.model_validate({"outcome": outcome, "reason": reason}), turn=turn)
