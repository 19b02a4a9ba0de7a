"""The client without `async`: the same calls, run on a loop in a thread of their own.

Rule 1: nothing is decided here; every method runs its async twin.
Rule 2: a call that is interrupted (Ctrl-C) is cancelled on the loop as well: nothing goes on behind the caller's back.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from outlive.client.agents import Agents
from outlive.client.approvals import Approvals
from outlive.client.blobs import Blobs
from outlive.client.client import AsyncClient
from outlive.client.conversations import LIST_LIMIT, AsyncConversation, AsyncConversations
from outlive.client.environments import Environments
from outlive.client.facts import ConversationShown
from outlive.client.following import SILENCE_S, Following, OnLost
from outlive.client.loop import Loop
from outlive.client.principals import Principals
from outlive.client.races import Race, Races
from outlive.client.running import Run
from outlive.client.sync_machines import Machine, Machines
from outlive.client.sync_terminals import Terminals
from outlive.client.transport import DEADLINE_S, PATIENCE_S
from outlive.client.wire import ConversationFacts, Event, FollowUp, Sent, Transcript, When


class Conversation(ConversationShown):
    def __init__(self, loop: Loop, twin: AsyncConversation) -> None:
        super().__init__(twin.facts)
        self._loop = loop
        self._twin = twin

    @property
    def facts(self) -> ConversationFacts:
        return self._twin.facts

    def refresh(self) -> Self:
        """Ask the server again; returns itself."""
        self._loop.run(self._twin.refresh)
        return self

    def send(
        self,
        text: str,
        *,
        attachments: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
        when: When = "next",
        idempotency_key: str | None = None,
    ) -> Sent:
        """Send a message. It is in the log, once, when this returns.

        An attachment is `{"name", "media_type", "data": bytes}`, or has the name of a stored `blob` instead of data.
        A turn that runs reads it at its next step; with `when="now"` the step that is under way is stopped for it.
        With an `idempotency_key` of your own it is once for 24 hours, whoever sends it again.
        """
        return self._loop.run(
            self._twin.send, text, attachments=attachments, model=model, when=when, idempotency_key=idempotency_key
        )

    def run(
        self,
        text: str,
        *,
        attachments: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
        deltas: bool = True,
        give_up_after_s: float | None = None,
        silence_s: float = SILENCE_S,
        on_lost: OnLost | None = None,
    ) -> Iterator[Event]:
        """Send a message, and give out what happens until the turn that it belongs to has ended. Reconnects by itself.

        It is sent when this returns. Leaving the loop leaves the turn alone: it goes on.
        """
        run = self._twin.run(
            text,
            attachments=attachments,
            model=model,
            deltas=deltas,
            give_up_after_s=give_up_after_s,
            silence_s=silence_s,
            on_lost=on_lost,
        )
        self._loop.run(run.start)
        return _events_of(self._loop, run)

    def interrupt(self, reason: str | None = None) -> Self:
        """Stop the turn that is open, at once. It has ended when this returns."""
        self._loop.run(self._twin.interrupt, reason)
        return self

    def pause(self, reason: str | None = None) -> Self:
        """Let the turn that is open wait from its next step on."""
        self._loop.run(self._twin.pause, reason)
        return self

    def resume(self) -> Self:
        """Let it go on where it was."""
        self._loop.run(self._twin.resume)
        return self

    def queue(self) -> list[FollowUp]:
        """The messages that wait for an answer, in the order in which the model will be told."""
        return self._loop.run(self._twin.queue)

    def order_queue(self, order: Sequence[str]) -> list[FollowUp]:
        """Put all messages that wait, by their ids, in this order; a conflict if they are others by now."""
        return self._loop.run(self._twin.order_queue, order)

    def withdraw(self, message: str) -> list[FollowUp]:
        """Take a message back that nobody answers yet; a conflict if it was taken already. What waits then."""
        return self._loop.run(self._twin.withdraw, message)

    def change_model(self, model: str, *, scope: str = "turn") -> Self:
        """Ask another model (`provider:name`) from the next attempt of a step on: for the turn that is open, a conflict
        if none is; with scope `conversation` for later turns too."""
        self._loop.run(self._twin.change_model, model, scope=scope)
        return self

    def compact(self, keep: int | None = None) -> str | None:
        """Have what is old summarised before the next step; the turn that does it, or None if none is open."""
        return self._loop.run(self._twin.compact, keep)

    def pins(self) -> list[dict[str, Any]]:
        """The messages that are pinned."""
        return self._loop.run(self._twin.pins)

    def pin(self, message: str) -> list[dict[str, Any]]:
        """Have models told this message word for word, however long the conversation gets."""
        return self._loop.run(self._twin.pin, message)

    def unpin(self, message: str) -> list[dict[str, Any]]:
        """Let it be summarised like any other."""
        return self._loop.run(self._twin.unpin, message)

    def events(self, after: int = 0) -> Iterator[Event]:
        """The durable events with a seq greater than `after`, as far as there are any now."""
        is_last = False
        while not is_last:
            page, is_last = self._loop.run(self._twin.events_page, after)
            yield from page
            after = (page[-1].seq or 0) if page else after

    def follow(
        self,
        after: str | None = None,
        *,
        deltas: bool = True,
        give_up_after_s: float | None = None,
        silence_s: float = SILENCE_S,
        on_lost: OnLost | None = None,
    ) -> Iterator[Event]:
        """Everything after a position (from the start without one), then live, for ever; each thing once.

        Reconnects by itself. `give_up_after_s`: raise when the server could not be heard for so long.
        """
        following = self._twin.follow(
            after, deltas=deltas, give_up_after_s=give_up_after_s, silence_s=silence_s, on_lost=on_lost
        )
        return _events_of(self._loop, following)

    def transcript(self) -> Transcript:
        """What a person should read now."""
        return self._loop.run(self._twin.transcript)

    def fork(self, at: int | None = None, *, model: str | None = None, machine: bool = False) -> "Conversation":
        """A new conversation that shares this one's past up to event `at` (without one: all of it). `machine`: with a
        copy of its machine, from the checkpoint nearest to that event; it is up when this returns."""
        return Conversation(self._loop, self._loop.run(self._twin.fork, at, model=model, machine=machine))

    def replay(self, model: str, at: int | None = None, *, execute: bool = False) -> "Conversation":
        """Run a turn that is over again on another model: the last one, or that of event `at`. The conversation of the
        replay; its calls are answered from the recording. `execute`: really do what the recording has no result for."""
        return Conversation(self._loop, self._loop.run(self._twin.replay, model, at, execute=execute))

    def comparison(self, other: str | None = None) -> dict[str, Any]:
        """A replay beside what it is a replay of; with `other` the newest turns of the two conversations."""
        return self._loop.run(self._twin.comparison, other)

    def race(
        self, prompt: str, contestants: Sequence[Mapping[str, str]], *, idempotency_key: str | None = None
    ) -> Race:
        """Give the same prompt to 2 to 8 contestants (`{"model": ...}`, `{"agent": ...}`, or both), each in a fork of
        this conversation on a copy of its machine. They are at work when this returns. With an `idempotency_key` of
        your own it is one race for 24 hours, whoever asks again."""
        return Race(self._loop, self._loop.run(self._twin.race, prompt, contestants, idempotency_key=idempotency_key))

    def subagents(self) -> list[dict[str, Any]]:
        """Those that it began, in their order: `{"conversation", "turn", "state", "outcome", ...}`."""
        return self._loop.run(self._twin.subagents)

    def budget(self) -> dict[str, Any]:
        """`{"limits", "used", "question"}`. `conflict` if its agent has no budget."""
        return self._loop.run(self._twin.budget)

    def raise_budget(self, *, scope: str = "both", **amounts: float) -> dict[str, Any]:
        """Add to its limits: `tokens`, `usd`, `steps`, `seconds`, of the open turn, of the conversation or of both."""
        return self._loop.run(self._twin.raise_budget, scope=scope, **amounts)

    def archive(self) -> None:
        """Hide it from lists. It stays readable and takes no new messages."""
        self._loop.run(self._twin.archive)

    def machine(self) -> Machine:
        """The machine that it works in."""
        return Machine(self._loop, self._loop.run(self._twin.machine))


def _events_of(loop: Loop, following: Following | Run) -> Iterator[Event]:
    try:
        while events := loop.run(following.next_events):
            yield from events
    finally:
        if loop.close.alive:
            loop.run(following.aclose)


Found = list[Conversation]  # `list` is also a method here


class Conversations:
    def __init__(self, loop: Loop, twin: AsyncConversations) -> None:
        self._loop = loop
        self._twin = twin

    def create(
        self,
        *,
        agent: str | None = None,
        title: str | None = None,
        environment: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """Make a conversation; with `parent` (an id and a seq) a fork. With an `idempotency_key` of your own one is
        made in 24 hours, whoever asks again."""
        made = self._loop.run(
            self._twin.create,
            agent=agent,
            title=title,
            environment=environment,
            model=model,
            metadata=metadata,
            parent=parent,
            idempotency_key=idempotency_key,
        )
        return Conversation(self._loop, made)

    def get(self, id: str) -> Conversation:
        return Conversation(self._loop, self._loop.run(self._twin.get, id))

    def list(self, *, limit: int | None = LIST_LIMIT, archived: bool = False) -> Found:
        """Newest first; `archived`: those that are archived instead. `limit=None`: all there are."""
        found = self._loop.run(self._twin.list, limit=limit, archived=archived)
        return [Conversation(self._loop, each) for each in found]

    def search(self, query: str, *, limit: int | None = LIST_LIMIT, archived: bool = False) -> Found:
        """Those with all words of `query` in the title or in one message or answer, newest first."""
        found = self._loop.run(self._twin.search, query, limit=limit, archived=archived)
        return [Conversation(self._loop, each) for each in found]


class Client:
    """Speaks to the API at `url` with `token`; without them to the stack of `$OUTLIVE_URL` or `$OUTLIVE_HOME`.

    May be used as a context manager; without one it is closed when it is forgotten or the program ends.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._twin = AsyncClient(url, token, deadline_s=deadline_s, patience_s=patience_s)
        self._loop = Loop(self._twin.aclose)
        self.agents = Agents(self._loop, self._twin.agents)
        self.approvals = Approvals(self._loop, self._twin.approvals)
        self.blobs = Blobs(self._loop, self._twin.blobs)
        self.conversations = Conversations(self._loop, self._twin.conversations)
        self.machines = Machines(self._loop, self._twin.machines)
        self.environments = Environments(self._loop, self._twin.environments)
        self.principals = Principals(self._loop, self._twin.principals)
        self.races = Races(self._loop, self._twin.races)
        self.terminals = Terminals(self._loop, self._twin.terminals)

    @property
    def url(self) -> str:
        return self._twin.url

    def close(self) -> None:
        """Let go of connections and the thread. Again: nothing happens."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()
