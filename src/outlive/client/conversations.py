"""Conversations over the API, async. The sync form (`sync.py`) runs these."""

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from outlive.base import NotFoundError, is_id, new_operation_id
from outlive.client.facts import ConversationShown
from outlive.client.following import SILENCE_S, Following, OnLost
from outlive.client.machines import VERB_S, AsyncMachine, AsyncMachines
from outlive.client.races import AsyncRace, race_of
from outlive.client.running import Run
from outlive.client.transport import Params, Transport
from outlive.client.wire import (
    ConversationFacts,
    Event,
    FollowUp,
    Sent,
    Transcript,
    When,
    event_of,
    facts_of,
    follow_up_of,
    garbled,
    items_of,
    transcript_of,
)

PAGE = 1_000  # events asked for at once
LIST_PAGE = 100
LIST_LIMIT = 100


class AsyncConversation(ConversationShown):
    def __init__(self, transport: Transport, facts: ConversationFacts) -> None:
        super().__init__(facts)
        self._transport = transport

    async def refresh(self) -> "AsyncConversation":
        """Ask the server again; returns itself."""
        self._facts = facts_of(await self._transport.call("GET", f"/conversations/{self.id}"))
        return self

    async def send(
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
        body: dict[str, Any] = {"text": text}
        if attachments:
            body["attachments"] = [_attached(attachment) for attachment in attachments]
        if model is not None:
            body["model"] = model
        if when != "next":
            body["when"] = when
        path = f"/conversations/{self.id}/messages"
        answer = await self._transport.call("POST", path, body, key=idempotency_key)
        try:
            return Sent(answer["message_id"], answer["turn_id"], answer["seq"])
        except KeyError:
            raise garbled() from None

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
    ) -> Run:
        """Send a message, and give out what happens until the turn that it belongs to has ended. Reconnects by itself.

        It is sent when the first event is asked for. Leaving the loop leaves the turn alone: it goes on.
        """

        def follow(after: str | None) -> Following:
            return self.follow(
                after, deltas=deltas, give_up_after_s=give_up_after_s, silence_s=silence_s, on_lost=on_lost
            )

        return Run(lambda: self.send(text, attachments=attachments, model=model), self._stand, follow)

    async def _stand(self) -> str | None:
        """The position of the newest event."""
        await self.refresh()
        newest, _ = await self.events_page(self.head - 1, limit=1)
        return newest[-1].position if newest else None

    async def interrupt(self, reason: str | None = None) -> "AsyncConversation":
        """Stop the turn that is open, at once. It has ended when this returns; a conflict if none is open."""
        body = {} if reason is None else {"reason": reason}
        self._facts = facts_of(await self._transport.call("POST", f"/conversations/{self.id}/interrupt", body))
        return self

    async def pause(self, reason: str | None = None) -> "AsyncConversation":
        """Let the turn that is open wait from its next step on; a conflict if none is open."""
        body = {} if reason is None else {"reason": reason}
        self._facts = facts_of(await self._transport.call("POST", f"/conversations/{self.id}/pause", body))
        return self

    async def resume(self) -> "AsyncConversation":
        """Let it go on where it was."""
        self._facts = facts_of(await self._transport.call("POST", f"/conversations/{self.id}/resume", {}))
        return self

    async def queue(self) -> list[FollowUp]:
        """The messages that wait for an answer, in the order in which the model will be told."""
        params: dict[str, str | int | bool] = {"limit": PAGE}
        waiting: list[FollowUp] = []
        while True:
            answer = await self._transport.call("GET", f"/conversations/{self.id}/queue", params=params)
            waiting += [follow_up_of(item) for item in items_of(answer)]
            if (following := answer.get("next")) is None:
                return waiting
            params["cursor"] = following

    async def order_queue(self, order: Sequence[str]) -> list[FollowUp]:
        """Put all messages that wait, by their ids, in this order; a conflict if they are others by now."""
        path = f"/conversations/{self.id}/queue"
        answer = await self._transport.call("PUT", path, {"order": [*order]}, key=new_operation_id())
        return [follow_up_of(item) for item in items_of(answer)]

    async def withdraw(self, message: str) -> list[FollowUp]:
        """Take a message back that nobody answers yet; a conflict if it was taken already. What waits then."""
        if not is_id(message, "msg"):
            raise NotFoundError("message.not_found", f"There is no message {message[:64]!r}.")
        path = f"/conversations/{self.id}/queue/{message}"
        answer = await self._transport.call("DELETE", path, key=new_operation_id())
        return [follow_up_of(item) for item in items_of(answer)]

    async def change_model(self, model: str, *, scope: str = "turn") -> "AsyncConversation":
        """Ask another model (`provider:name`) from the next attempt of a step on: for the turn that is open, a conflict
        if none is; with scope `conversation` for later turns too."""
        body = {"model": model, "scope": scope}
        self._facts = facts_of(await self._transport.call("POST", f"/conversations/{self.id}/model", body))
        return self

    async def compact(self, keep: int | None = None) -> str | None:
        """Have what is old summarised, all but the newest `keep` parts: before the next step of the turn that is open,
        whose id this returns; if none is open, before the first step of the next one."""
        body = {} if keep is None else {"keep": keep}
        answer = await self._transport.call("POST", f"/conversations/{self.id}/compact", body)
        turn: str | None = answer.get("turn")
        return turn

    async def pins(self) -> list[dict[str, Any]]:
        """`{"message", "seq", "text", "tokens"}` of each message that is pinned, in the order they were said."""
        return _pins(await self._transport.call("GET", f"/conversations/{self.id}/pins"))

    async def pin(self, message: str) -> list[dict[str, Any]]:
        """Have models told this message (`msg_...`) word for word, however long the conversation gets. What is pinned
        then."""
        return _pins(await self._transport.call("PUT", f"/conversations/{self.id}/pins/{_checked_message(message)}"))

    async def unpin(self, message: str) -> list[dict[str, Any]]:
        """Let it be summarised like any other. What is pinned then."""
        return _pins(await self._transport.call("DELETE", f"/conversations/{self.id}/pins/{_checked_message(message)}"))

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """The durable events with a seq greater than `after`, as far as there are any now."""
        while True:
            page, is_last = await self.events_page(after)
            for event in page:
                yield event
            if is_last:
                return
            after = page[-1].seq or 0

    async def events_page(self, after: int, limit: int = PAGE) -> tuple[list[Event], bool]:
        """One page of `events`, and whether it is the last."""
        answer = await self._transport.call(
            "GET", f"/conversations/{self.id}/events", params={"after": after, "limit": limit}
        )
        events = [event_of(item) for item in items_of(answer)]
        return events, not events or answer.get("next") is None

    def follow(
        self,
        after: str | None = None,
        *,
        deltas: bool = True,
        give_up_after_s: float | None = None,
        silence_s: float = SILENCE_S,
        on_lost: OnLost | None = None,
    ) -> Following:
        """Everything after a position (from the start without one), then live, for ever; each thing once.

        Reconnects by itself. `give_up_after_s`: raise when the server could not be heard for so long.
        """
        return Following(
            self._transport,
            self.id,
            after,
            deltas=deltas,
            give_up_after_s=give_up_after_s,
            silence_s=silence_s,
            on_lost=on_lost,
        )

    async def transcript(self) -> Transcript:
        """What a person should read now."""
        answer = await self._transport.call("GET", f"/conversations/{self.id}/transcript")
        return transcript_of(answer)

    async def fork(
        self, at: int | None = None, *, model: str | None = None, machine: bool = False
    ) -> "AsyncConversation":
        """A new conversation that shares this one's past up to event `at` (without one: all of it). `machine`: with a
        copy of its machine, from the checkpoint nearest to that event; it is up when this returns."""
        given = {"at": at, "model": model, "machine": "fork" if machine else None}
        body = {name: value for name, value in given.items() if value is not None}
        within_s = VERB_S if machine else None
        answer = await self._transport.call(
            "POST", f"/conversations/{self.id}/fork", body, deadline_s=within_s, attempt_s=within_s
        )
        return AsyncConversation(self._transport, facts_of(answer))

    async def replay(self, model: str, at: int | None = None, *, execute: bool = False) -> "AsyncConversation":
        """Run a turn that is over again on another model: the last one, or that of event `at`. The conversation of the
        replay; its calls are answered from the recording. `execute`: really do what the recording has no result for."""
        body: dict[str, Any] = {"model": model} | ({"at": at} if at is not None else {})
        body |= {"execute": True} if execute else {}
        answer = await self._transport.call("POST", f"/conversations/{self.id}/replay", body)
        return AsyncConversation(self._transport, facts_of(answer))

    async def comparison(self, other: str | None = None) -> dict[str, Any]:
        """A replay beside what it is a replay of; with `other` the newest turns of the two conversations."""
        params = {"with": _checked(other)} if other is not None else {}
        return await self._transport.call("GET", f"/conversations/{self.id}/comparison", params=params)

    async def race(
        self, prompt: str, contestants: Sequence[Mapping[str, str]], *, idempotency_key: str | None = None
    ) -> AsyncRace:
        """Give the same prompt to 2 to 8 contestants (`{"model": ...}`, `{"agent": ...}`, or both), each in a fork of
        this conversation on a copy of its machine. They are at work when this returns. With an `idempotency_key` of
        your own it is one race for 24 hours, whoever asks again."""
        body = {"prompt": prompt, "contestants": [dict(each) for each in contestants]}
        answer = await self._transport.call(
            "POST", f"/conversations/{self.id}/races", body, key=idempotency_key, deadline_s=VERB_S, attempt_s=VERB_S
        )
        return AsyncRace(self._transport, race_of(answer))

    async def subagents(self) -> list[dict[str, Any]]:
        """Those that it began, in their order: `{"conversation", "turn", "state", "outcome", ...}`."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            params = {"limit": PAGE} | ({"cursor": cursor} if cursor is not None else {})
            answer = await self._transport.call("GET", f"/conversations/{self.id}/subagents", params=params)
            found += [dict(item) for item in items_of(answer)]
            cursor = answer.get("next")
            if cursor is None:
                return found

    async def budget(self) -> dict[str, Any]:
        """`{"limits", "used", "question"}`. `conflict` if its agent has no budget."""
        return await self._transport.call("GET", f"/conversations/{self.id}/budget")

    async def raise_budget(self, *, scope: str = "both", **amounts: float) -> dict[str, Any]:
        """Add to its limits: `tokens`, `usd`, `steps`, `seconds`, of the open turn, of the conversation or of both."""
        return await self._transport.call("POST", f"/conversations/{self.id}/budget", {"scope": scope, **amounts})

    async def archive(self) -> None:
        """Hide it from lists. It stays readable and takes no new messages."""
        await self._transport.call("DELETE", f"/conversations/{self.id}")
        await self.refresh()

    async def machine(self) -> AsyncMachine:
        """The machine that it works in. `not_found` while it has none."""
        await self.refresh()
        if self.machine_id is None:
            raise NotFoundError("conversation.no_machine", f"Conversation {self.id!r} has no machine yet.")
        return await AsyncMachines(self._transport).get(self.machine_id)


Found = list[AsyncConversation]  # `list` is also a method here


class AsyncConversations:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        *,
        agent: str | None = None,
        title: str | None = None,
        environment: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncConversation:
        """Make a conversation; with `parent` (an id and a seq) a fork. With an `idempotency_key` of your own one is
        made in 24 hours, whoever asks again."""
        given = {"agent": agent, "title": title, "environment": environment, "model": model}
        body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if metadata is not None:
            body["metadata"] = dict(metadata)
        if parent is not None:
            body["parent"] = {"conversation": parent[0], "at": parent[1]}
        answer = await self._transport.call("POST", "/conversations", body, key=idempotency_key)
        return AsyncConversation(self._transport, facts_of(answer))

    async def get(self, id: str) -> AsyncConversation:
        answer = await self._transport.call("GET", f"/conversations/{_checked(id)}")
        return AsyncConversation(self._transport, facts_of(answer))

    async def list(self, *, limit: int | None = LIST_LIMIT, archived: bool = False) -> Found:
        """Newest first; `archived`: those that are archived instead. `limit=None`: all there are."""
        return await self._list({"archived": str(archived).lower()}, limit)

    async def search(self, query: str, *, limit: int | None = LIST_LIMIT, archived: bool = False) -> Found:
        """Those with all words of `query` in the title or in one message or answer, newest first."""
        return await self._list({"archived": str(archived).lower(), "q": query}, limit)

    async def pages(self, *, archived: bool = False) -> AsyncIterator[Found]:
        """All of them, newest first, page by page: leave the loop when you have enough."""
        cursor: dict[str, str] = {}
        while True:
            params: Params = {"archived": str(archived).lower(), "limit": PAGE, **cursor}
            answer = await self._transport.call("GET", "/conversations", params=params)
            yield [AsyncConversation(self._transport, facts_of(item)) for item in items_of(answer)]
            if not isinstance(following := answer.get("next"), str):
                return
            cursor = {"cursor": following}

    async def _list(self, params: Params, limit: int | None) -> Found:
        found: Found = []
        cursor: dict[str, str] = {}
        while limit is None or len(found) < limit:
            size = LIST_PAGE if limit is None else min(LIST_PAGE, limit - len(found))
            answer = await self._transport.call("GET", "/conversations", params={**params, "limit": size, **cursor})
            found.extend(AsyncConversation(self._transport, facts_of(item)) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                break
            cursor = {"cursor": following}
        return found


def _attached(attachment: Mapping[str, Any]) -> dict[str, Any]:
    data = attachment.get("data")
    if isinstance(data, bytes | bytearray | memoryview):
        return {**attachment, "data": base64.b64encode(data).decode()}
    return dict(attachment)


def _pins(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(item) for item in items_of(answer)]


def _checked_message(id: str) -> str:
    if not is_id(id, "msg"):
        raise NotFoundError("message.not_found", f"There is no message {id!r}: ids look like `msg_...`.")
    return id


def _checked(id: str) -> str:
    # It becomes part of a path: what is no id never leaves the client.
    if not is_id(id, "conv"):
        raise NotFoundError("conversation.not_found", f"There is no conversation {id!r}: ids look like `conv_...`.")
    return id
