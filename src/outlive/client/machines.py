"""Machines over the API, async. The sync form (`sync_machines.py`) runs these.

A command carries an effect id that is made here. Whatever happens to the connection, it is asked for again with the
same id: the machine runs it once and answers the same.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any

import anyio

from outlive.base import OutliveError, UnavailableError, new_effect_id
from outlive.client.machine_wire import (
    EgressFacts,
    ExecResult,
    FileFacts,
    MachineFacts,
    Piece,
    StreamName,
    checked_machine,
    egress_of,
    file_address,
    file_of,
    machine_of,
    result_of,
    told_by,
)
from outlive.client.terminals import AsyncMachineTerminals, AsyncTerminals
from outlive.client.transport import Backoff, Translated, Transport, may_heal
from outlive.client.wire import garbled, items_of

VERB_S = 300.0  # for what moves a machine
TIMEOUT_S = 600.0  # of a command, as the server has it
MARGIN_S = 90.0  # beyond a command's own timeout: a machine may have to be woken first
ATTEMPT_S = 120.0  # then a command is asked for again: an answer may have been lost without a word
SILENCE_S = 60.0
PATIENCE_S = 60.0  # for a followed command that cannot be heard
STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")
LIST_PAGE = 100
LIST_LIMIT = 100
HISTORY_PAGE = 1000


class MachineShown:
    """What both forms of a machine (async and sync) show of it; `refresh()` asks the server again."""

    def __init__(self, facts: MachineFacts) -> None:
        self._facts = facts

    @property
    def facts(self) -> MachineFacts:
        return self._facts

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def name(self) -> str | None:
        return self.facts.name

    @property
    def state(self) -> str:
        """starting, running, paused, hibernated, lost or deleted."""
        return self.facts.state

    @property
    def generation(self) -> int:
        return self.facts.generation

    @property
    def environment(self) -> str:
        return self.facts.environment

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state} generation={self.generation}>"


class AsyncMachine(MachineShown):
    def __init__(self, transport: Transport, facts: MachineFacts) -> None:
        super().__init__(facts)
        self._transport = transport
        self._path = f"/machines/{checked_machine(facts.id)}"
        self.terminals = AsyncMachineTerminals(AsyncTerminals(transport), facts.id)

    # ── its life ──

    async def refresh(self) -> "AsyncMachine":
        """Ask the server again; returns itself."""
        self._facts = machine_of(await self._transport.call("GET", self._path))
        return self

    async def pause(self) -> "AsyncMachine":
        """Stop everything in it until `resume`."""
        return await self._do("pause")

    async def resume(self) -> "AsyncMachine":
        return await self._do("resume")

    async def hibernate(self) -> "AsyncMachine":
        """Save it, memory included, and give up its place."""
        return await self._do("hibernate")

    async def wake(self) -> "AsyncMachine":
        return await self._do("wake")

    async def checkpoint(self) -> str:
        """Save it as it is now; it goes on. Returns the checkpoint's id."""
        answer = await self._transport.call("POST", f"{self._path}/checkpoint", deadline_s=VERB_S, attempt_s=VERB_S)
        return str(answer.get("id"))

    async def fork(self, count: int = 1) -> "list[AsyncMachine]":
        """So many copies of it as it is now, memory included."""
        answer = await self._transport.call(
            "POST", f"{self._path}/fork", {"count": count}, deadline_s=VERB_S, attempt_s=VERB_S
        )
        return [AsyncMachine(self._transport, machine_of(item)) for item in items_of(answer)]

    async def delete(self) -> None:
        """Delete it for good."""
        answer = await self._transport.call("DELETE", self._path, deadline_s=VERB_S, attempt_s=VERB_S)
        self._facts = machine_of(answer)

    async def _do(self, verb: str) -> "AsyncMachine":
        answer = await self._transport.call("POST", f"{self._path}/{verb}", deadline_s=VERB_S, attempt_s=VERB_S)
        self._facts = machine_of(answer)
        return self

    # ── commands ──

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
        user: str | None = None,
        background: bool = False,
        effect_id: str | None = None,
    ) -> ExecResult:
        """Run a command, once, and return what came of it. A text runs under `bash -c`, a sequence as it is."""
        body = _exec_body(command, cwd, env, timeout_s, stdin, user, effect_id)
        if background:
            body["background"] = True
        answer = await self._transport.call(
            "POST",
            f"{self._path}/exec",
            body,
            deadline_s=(timeout_s or TIMEOUT_S) + MARGIN_S,
            attempt_s=ATTEMPT_S,
            has_key=False,  # the effect id is the key
        )
        return result_of(answer)

    async def stream(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
        user: str | None = None,
        effect_id: str | None = None,
    ) -> AsyncGenerator[Piece | ExecResult, None]:
        """The same with its output as it comes; the result is last. Reconnects by itself, shows nothing twice
        and leaves nothing out: behind a piece that was missed the rest comes at the end."""
        body = _exec_body(command, cwd, env, timeout_s, stdin, user, effect_id)
        seen: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        backoff, silent_since = Backoff(), anyio.current_time()
        while True:
            try:
                async for told in self._follow(body):
                    silent_since = anyio.current_time()
                    backoff.reset()
                    if isinstance(told, ExecResult):
                        for name in STREAMS:
                            if rest := await self._missed(told, name, seen[name]):
                                yield Piece(name, seen[name], rest)
                        yield told
                        return
                    at = seen[told.stream]
                    if told.offset > at:
                        continue  # something before it was missed: the result has all of it
                    if new := told.data[at - told.offset :]:
                        seen[told.stream] += len(new)
                        yield Piece(told.stream, at, new)
                raise UnavailableError("api.cut_off", "The connection to the server was lost.")
            except OutliveError as error:
                wait_s = backoff.wait_s(error.retry_after_s)
                if not may_heal(error) or anyio.current_time() + wait_s - silent_since > PATIENCE_S:
                    raise
            await anyio.sleep(wait_s)
            self._transport.look_again()

    async def _missed(self, result: ExecResult, stream: StreamName, seen: int) -> bytes:
        """What was printed while nobody listened, from what is kept. Bytes that are no text are kept only in long
        outputs; of others that began to come live nothing can be added then."""
        if result.truncated:
            kept = [piece async for piece in self._pieces(f"{self._path}/effects/{result.effect_id}/{stream}")]
            return b"".join(kept)[seen:]
        text = result.stdout if stream == "stdout" else result.stderr
        return text.encode()[seen:] if seen == 0 or "\ufffd" not in text else b""

    async def _follow(self, body: Mapping[str, Any]) -> AsyncIterator[Piece | ExecResult]:
        # A refusal at once may take as long as waking the machine does.
        response = await self._transport.open_stream(
            f"{self._path}/exec", {}, {"Accept": "application/x-ndjson"}, VERB_S, body=body
        )
        try:
            with Translated(self._transport.url):
                async for line in response.aiter_lines():
                    if line and (told := told_by(line)) is not None:
                        yield told
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def effect(self, effect_id: str) -> ExecResult:
        """What is known of a command. Does not wake the machine."""
        return result_of(await self._transport.call("GET", f"{self._path}/effects/{effect_id}"))

    async def signal(self, effect_id: str, number: int) -> None:
        """Send a signal to a running command and all its children."""
        await self._transport.call("POST", f"{self._path}/effects/{effect_id}/signal", {"signal": number})

    async def write_stdin(self, effect_id: str, text: str, *, end: bool = False, offset: int | None = None) -> int:
        """Type into a command that runs in the background. Returns how many bytes of stdin it was given since its
        start: with that as the next `offset` nothing is typed twice, whatever dies meanwhile."""
        body = {"text": text, "end": end, **({} if offset is None else {"offset": offset})}
        answer = await self._transport.call("POST", f"{self._path}/effects/{effect_id}/stdin", body)
        return int(answer["offset"])

    # ── the outside ──

    async def egress(self, *, after: int = 0, limit: int | None = LIST_LIMIT) -> list[EgressFacts]:
        """What was decided on its connections to the outside, oldest first, from behind number `after`. `limit=None`:
        all there are. Does not wake the machine."""
        return await _egress(self._transport, self.id, after, limit)

    # ── files ──

    async def read_file(self, path: str) -> bytes:
        """All of a file. A path without a slash in front is in /workspace."""
        return b"".join([piece async for piece in self.iter_file(path)])

    async def iter_file(self, path: str) -> AsyncIterator[bytes]:
        """A file in pieces, however large it is."""
        async for piece in self._pieces(file_address(self.id, path)):
            yield piece

    async def _pieces(self, address: str) -> AsyncIterator[bytes]:
        response = await self._transport.open_stream(address, {}, {"Accept": "*/*"}, SILENCE_S)
        try:
            with Translated(self._transport.url):
                async for piece in response.aiter_bytes():
                    yield piece
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def write_file(self, path: str, content: bytes | AsyncIterable[bytes], *, mode: int | None = None) -> int:
        """Write a file, whole or not at all; directories above it are made. Returns its size."""
        pieces = _once(content) if isinstance(content, bytes) else content
        params = {} if mode is None else {"mode": f"{mode:04o}"}
        answer = await self._transport.upload(file_address(self.id, path), pieces, params, SILENCE_S)
        if not isinstance(size := answer.get("size"), int):
            raise garbled()
        return size

    async def stat_file(self, path: str) -> FileFacts:
        return file_of(await self._transport.call("GET", file_address(self.id, path), params={"stat": "1"}))

    async def list_files(self, path: str = ".") -> list[FileFacts]:
        answer = await self._transport.call("GET", file_address(self.id, path), params={"list": "1"})
        return [file_of(item) for item in items_of(answer)]

    async def delete_file(self, path: str, *, recursive: bool = False) -> None:
        params = {"recursive": "true"} if recursive else {}
        await self._transport.call("DELETE", file_address(self.id, path), params=params)


Found = list[AsyncMachine]  # `list` is also a method here


class AsyncMachines:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self, *, environment: str | None = None, name: str | None = None, conversation: str | None = None
    ) -> AsyncMachine:
        """Make a machine. It is running when this returns."""
        given = {"environment": environment, "name": name, "conversation": conversation}
        body = {field: value for field, value in given.items() if value is not None}
        answer = await self._transport.call("POST", "/machines", body, deadline_s=VERB_S, attempt_s=VERB_S)
        return AsyncMachine(self._transport, machine_of(answer))

    async def get(self, id: str) -> AsyncMachine:
        answer = await self._transport.call("GET", f"/machines/{checked_machine(id)}")
        return AsyncMachine(self._transport, machine_of(answer))

    async def egress(self, id: str, *, after: int = 0, limit: int | None = LIST_LIMIT) -> list[EgressFacts]:
        """As of a machine; also of one that was deleted."""
        return await _egress(self._transport, id, after, limit)

    async def list(self, *, limit: int | None = LIST_LIMIT, state: str | None = None) -> Found:
        """Newest first; `state`: one or more, with commas. `limit=None`: all there are."""
        found: Found = []
        params: dict[str, str | int | bool] = {} if state is None else {"state": state}
        while limit is None or len(found) < limit:
            params["limit"] = LIST_PAGE if limit is None else min(LIST_PAGE, limit - len(found))
            answer = await self._transport.call("GET", "/machines", params=params)
            found.extend(AsyncMachine(self._transport, machine_of(item)) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                break
            params["cursor"] = following
        return found


async def _egress(transport: Transport, machine: str, after: int, limit: int | None) -> list[EgressFacts]:
    found: list[EgressFacts] = []
    while limit is None or len(found) < limit:
        page = HISTORY_PAGE if limit is None else min(HISTORY_PAGE, limit - len(found))
        params: dict[str, str | int | bool] = {"cursor": after, "limit": page}
        answer = await transport.call("GET", f"/machines/{checked_machine(machine)}/egress", params=params)
        found.extend(egress_of(item) for item in items_of(answer))
        if not isinstance(following := answer.get("next"), int):
            break
        after = following
    return found


def _exec_body(
    command: str | Sequence[str],
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout_s: float | None,
    stdin: str | None,
    user: str | None,
    effect_id: str | None,
) -> dict[str, Any]:
    given: dict[str, Any] = {"cwd": cwd, "timeout_s": timeout_s, "stdin": stdin, "user": user}
    body = {name: value for name, value in given.items() if value is not None}
    body["effect_id"] = effect_id or new_effect_id()
    if env:
        body["env"] = dict(env)
    if isinstance(command, str):
        body["command"] = command
    else:
        body["argv"] = list(command)
    return body


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
