"""Terminals over the API, async. The sync form (`sync_terminals.py`) runs these.

A terminal belongs to its machine and to nobody else: whoever opened it may leave, and others go on. One operator at a
time holds the lease and types; the rest look on. A call that types carries a key: made again, it types once.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio

from outlive.base import new_effect_id
from outlive.client.attaching import Attachment, OnLost
from outlive.client.machine_wire import ExecResult, checked_machine, result_of
from outlive.client.terminal_wire import Mode, TerminalFacts, checked_terminal, input_body, terminal_of
from outlive.client.transport import Params, Translated, Transport
from outlive.client.wire import items_of

CLIENT = "outlive-python"
VERB_S = 300.0  # a machine may have to be woken first
SILENCE_S = 60.0
TIMEOUT_S = 600.0  # of a command, as the server has it
MARGIN_S = 90.0
ATTEMPT_S = 120.0

Found = list[TerminalFacts]  # `list` is also a method here


class AsyncTerminals:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def open(
        self,
        machine: str,
        command: str | Sequence[str] | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> TerminalFacts:
        """Open a terminal in a machine, which is woken for it. A text runs under `bash -c`, a sequence as it is;
        without a command it is a shell."""
        body: dict[str, Any] = {"cols": cols, "rows": rows}
        if isinstance(command, str):
            body["command"] = command
        elif command is not None:
            body["argv"] = list(command)
        given = {"cwd": cwd, "env": dict(env) if env else None, "user": user}
        body |= {name: value for name, value in given.items() if value is not None}
        path = f"/machines/{checked_machine(machine)}/terminals"
        return terminal_of(await self._transport.call("POST", path, body, deadline_s=VERB_S, attempt_s=VERB_S))

    async def get(self, id: str) -> TerminalFacts:
        """Does not wake its machine, as nothing here that only reads."""
        return terminal_of(await self._transport.call("GET", _path(id)))

    async def list(self, machine: str) -> Found:
        """All of a machine, those that ended included, oldest first."""
        found: Found = []
        params: dict[str, str | int | bool] = {}
        while True:
            answer = await self._transport.call(
                "GET", f"/machines/{checked_machine(machine)}/terminals", params=params or None
            )
            found.extend(terminal_of(item) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                return found
            params["cursor"] = following

    def attach(
        self,
        id: str,
        *,
        mode: Mode = "observe",
        offset: int | None = None,
        client: str = CLIENT,
        give_up_after_s: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Attachment:
        """Watch it, or with `mode="type"` also type. From an `offset` every byte since then, without one the present
        screen first; then live. Comes back by itself for ever, or until the server was away for `give_up_after_s`.

        async with client.terminals.attach(id, mode="type") as attachment:
            await attachment.send(b"ls\\n")
            async for frame in attachment: ...
        """
        return Attachment(
            self._transport, id, mode, offset, client=client, give_up_after_s=give_up_after_s, on_lost=on_lost
        )

    # ── who types ──

    async def take(self, id: str) -> TerminalFacts:
        """Take the lease: a person needs nobody's consent for it."""
        return await self._act(id, "take", {})

    async def yield_(self, id: str) -> TerminalFacts:
        """Give the lease up."""
        return await self._act(id, "yield", {})

    async def grant(self, id: str, operator: str) -> TerminalFacts:
        """Hand the lease to a principal, by id or name."""
        return await self._act(id, "grant", {"operator": operator})

    async def input(self, id: str, data: bytes | str) -> TerminalFacts:
        """Type, once. If somebody else holds the lease: a conflict, and nothing reaches the machine."""
        return await self._act(id, "input", input_body(data))

    async def resize(self, id: str, cols: int, rows: int) -> TerminalFacts:
        return await self._act(id, "resize", {"cols": cols, "rows": rows})

    async def signal(self, id: str, signal: int | str) -> TerminalFacts:
        """To what runs in the foreground: a number, or a name such as INT."""
        return await self._act(id, "signal", {"signal": signal})

    async def close(self, id: str) -> TerminalFacts:
        """End its program. What was recorded stays."""
        answer = await self._transport.call("DELETE", _path(id), deadline_s=VERB_S, attempt_s=VERB_S)
        return terminal_of(answer) if answer else await self.get(id)

    async def run(
        self, id: str, command: str, *, timeout_s: float | None = None, effect_id: str | None = None
    ) -> ExecResult:
        """Type a command into the shell that runs there, once, and return what came of it."""
        body: dict[str, Any] = {"command": command, "effect_id": effect_id or new_effect_id()}
        if timeout_s is not None:
            body["timeout_s"] = timeout_s
        answer = await self._transport.call(
            "POST",
            f"{_path(id)}/run",
            body,
            deadline_s=(timeout_s or TIMEOUT_S) + MARGIN_S,
            attempt_s=ATTEMPT_S,
            has_key=False,  # the effect id is the key
        )
        return result_of(answer)

    async def _act(self, id: str, verb: str, body: Mapping[str, Any]) -> TerminalFacts:
        answer = await self._transport.call("POST", f"{_path(id)}/{verb}", body, deadline_s=VERB_S, attempt_s=VERB_S)
        return terminal_of(answer)

    # ── what was ──

    async def screen(self, id: str) -> str:
        """What is seen now, as plain text."""
        return (await self._read(id, "screen", {"format": "text"})).decode("utf-8", "replace")

    async def drawing(self, id: str) -> bytes:
        """What draws the present screen on an empty one of its size."""
        return await self._read(id, "screen", {"format": "vt"})

    async def account(self, id: str, start: int = 0, end: int | None = None) -> dict[str, Any]:
        """What was typed, by whom, and printed between two offsets, as one piece: `text`, `typed`, `leases`,
        `commands`."""
        return await self._transport.call("GET", f"{_path(id)}/account", params=_range(start, end))

    async def output(self, id: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes that it printed between two offsets."""
        return await self._read(id, "output", _range(start, end))

    async def recording(self, id: str) -> bytes:
        """All of it as asciicast v3."""
        return b"".join([piece async for piece in self.iter_recording(id)])

    async def iter_recording(self, id: str) -> AsyncIterator[bytes]:
        """The same in pieces, however long it is."""
        async for piece in self._pieces(f"{_path(id)}/recording", {}):
            yield piece

    async def _read(self, id: str, what: str, params: Params) -> bytes:
        return b"".join([piece async for piece in self._pieces(f"{_path(id)}/{what}", params)])

    async def _pieces(self, address: str, params: Params) -> AsyncIterator[bytes]:
        response = await self._transport.open_stream(address, params, {"Accept": "*/*"}, SILENCE_S)
        try:
            with Translated(self._transport.url):
                async for piece in response.aiter_bytes():
                    yield piece
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


class AsyncMachineTerminals:
    """The terminals of one machine."""

    def __init__(self, terminals: AsyncTerminals, machine: str) -> None:
        self._terminals = terminals
        self._machine = machine

    async def open(
        self,
        command: str | Sequence[str] | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> TerminalFacts:
        """Open one: a command, or a shell."""
        return await self._terminals.open(self._machine, command, cols=cols, rows=rows, cwd=cwd, env=env, user=user)

    async def list(self) -> Found:
        return await self._terminals.list(self._machine)


def _path(id: str) -> str:
    return f"/terminals/{checked_terminal(id)}"


def _range(start: int, end: int | None) -> dict[str, str | int | bool]:
    return {"from": start} if end is None else {"from": start, "to": end}
