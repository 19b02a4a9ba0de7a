"""One client's WebSocket and the node that has its terminal: frames pass both ways, byte for byte.

Rule 1: the WebSocket outlives the node's attachment. When that ends while the terminal does not, the client is told,
        and the relay attaches anew where the client stands, wherever the machine is by then.
Rule 2: a machine that sleeps is not woken for those who watch. It is for one who types.
Rule 3: what is typed while there is no node waits, within bounds, or is refused. What was handed to a node is never
        handed to another: a keystroke may be lost with its node, and is never typed twice.
"""

from collections import deque

import anyio
import anyio.abc

from outlive.api.parts import MachineParts, TerminalParts
from outlive.api.terminal_course import Course, Passed, Told, decide, is_passing
from outlive.api.terminal_recorded import RecordedStream
from outlive.api.websocket import (
    DENIED,
    FAILED,
    MALFORMED,
    NORMAL,
    TOO_SLOW,
    UNSUPPORTED,
    GoneError,
    RefusedMessageError,
    WebSocket,
)
from outlive.base import InvalidError, MachineId, OutliveError, TerminalId
from outlive.machine.terminal.door import INPUT_LIMIT, AttachTerminal, FrameStream
from outlive.machine.terminal.frames import (
    Channel,
    Frame,
    final_failure,
    read_close,
    read_message,
    read_resize,
    status_exit,
    status_machine,
    status_refused,
)
from outlive.machine.terminal.status import Terminal

WAITING_LIMIT = 64 * 1024  # bytes typed while there is no node to take them
LOOK_FIRST_S = 0.2  # between two looks at the records
LOOK_LAST_S = 2.0
_GROWTH = 1.5
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Attaching:
    """How one client's attachments are made: the first, and those after it."""

    def __init__(self, machines: MachineParts, terminals: TerminalParts, terminal: Terminal, asked: AttachTerminal):
        self._machines = machines
        self._terminals = terminals
        self._asked = asked
        self.terminal: TerminalId = terminal.id
        self.machine: MachineId = terminal.machine
        self.mode = asked.mode

    async def first(self) -> FrameStream:
        """Wakes the machine, unless the terminal has ended: then the recording is all there is."""
        terminal = await self._terminals.records.get(self.terminal)
        if not terminal.is_open:
            return self._read(terminal, self._asked.offset)
        machine = await self._machines.keeper.get(self.machine)
        if machine.state == "paused":
            return await self._attach(machine.generation, self._asked.offset)
        return await self.awake(self._asked.offset)

    async def awake(self, offset: int | None) -> FrameStream:
        return await self._machines.caller.use(self.machine, lambda generation: self._attach(generation, offset))

    async def look(self) -> Course:
        terminal = await self._terminals.records.get(self.terminal)
        return decide(terminal, await self._machines.records.machines.get(self.machine))

    async def again(self, course: Course, offset: int | None) -> FrameStream:
        """Where it is now; wakes nothing."""
        if course.do == "read":
            return self._read(await self._terminals.records.get(self.terminal), offset)
        machine = await self._machines.records.machines.get(self.machine)
        return await self._attach(machine.generation, offset)

    async def _attach(self, generation: int, offset: int | None) -> FrameStream:
        asked = self._asked.model_copy(update={"offset": offset})
        stream = await self._terminals.door.attach(self.machine, generation, self.terminal, asked)
        self._asked = asked.model_copy(update={"is_return": True})  # who yields keeps nothing by being cut off
        return stream

    def _read(self, terminal: Terminal, offset: int | None) -> FrameStream:
        return RecordedStream(self._terminals, terminal, offset)


class TerminalRelay:
    """Passes frames until one side has ended, and then says how (`code`, `reason`)."""

    def __init__(self, socket: WebSocket, attaching: Attaching) -> None:
        self._socket = socket
        self._attaching = attaching
        self._passed = Passed()
        self._node: FrameStream | None = None  # who takes what is typed now
        self._waiting: deque[Frame] = deque()  # typed, and for the next node
        self._waiting_size = 0
        self._typed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._serving = anyio.CancelScope()  # of the attachment that there is now
        self._is_finished = False
        self._served_at = 0.0
        self.code = FAILED
        self.reason = ""

    async def run(self, node: FrameStream) -> None:
        """`node`: the first attachment; it is closed here like all others."""
        with self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._hear)
                await self._serve_all(node)
                group.cancel_scope.cancel()

    def finish(self, code: int, reason: str = "") -> None:
        """End it. The first word counts."""
        if not self._is_finished:
            self._is_finished, self.code, self.reason = True, code, reason
        self._scope.cancel()

    # ── from the node to the client ──

    async def _serve_all(self, first: FrameStream) -> None:
        node: FrameStream | None = first
        try:
            while node is not None:
                await self._serve(node)
                if self._passed.is_ended:
                    self.finish(NORMAL)
                elif self._passed.is_detached:
                    self.finish(TOO_SLOW, "too slow")
                node = None if self._is_finished else await self._attach_again()
        except GoneError:
            self.finish(NORMAL)

    async def _serve(self, node: FrameStream) -> None:
        """Until the node has nothing more to say."""
        self._served_at = anyio.current_time()
        try:
            async with anyio.create_task_group() as group:
                self._serving = group.cancel_scope
                group.start_soon(self._hand_over, node)
                try:
                    await self._pass_on(node)
                finally:
                    self._node = None
                    group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await node.aclose()

    async def _pass_on(self, node: FrameStream) -> None:
        while True:
            try:
                frame = await node.receive()
            except OutliveError as error:
                if not is_passing(error):
                    self.finish(FAILED, error.code)
                return
            except _GONE:
                return
            if frame is None:
                return
            channel, payload = frame
            self._passed.see(channel, payload)
            try:
                await self._say(channel, payload)
            except GoneError:
                self.finish(NORMAL)
                return
            if self._passed.is_ended:
                return

    async def _say(self, channel: Channel, payload: bytes) -> None:
        await self._socket.send(bytes((channel,)) + payload)

    # ── between two nodes ──

    async def _attach_again(self) -> FrameStream | None:
        pause_s = LOOK_FIRST_S
        if anyio.current_time() - self._served_at < LOOK_FIRST_S:
            await anyio.sleep(LOOK_FIRST_S)  # a node that ends what it has just begun is not asked in a loop
        while True:
            try:
                course = await self._attaching.look()
                node = await self._try(course)
            except GoneError:
                raise
            except OutliveError as error:
                if not is_passing(error):
                    self.finish(DENIED if error.kind == "denied" else FAILED, error.code)
                    return None
                node, course = None, Course("wait")
            if node is not None:
                return await self._told_running(node)
            if course.do == "end":
                await self._say(Channel.STATUS, status_exit(None))
                await self._say(Channel.FINAL, final_failure("machine.gone", course.reason))
                self.finish(NORMAL)
                return None
            await self._tell(course.told)
            with anyio.move_on_after(pause_s):
                await self._typed.wait()
                if self._is_wanted(course):
                    continue
                await anyio.sleep_forever()
            pause_s = min(pause_s * _GROWTH, LOOK_LAST_S)

    async def _told_running(self, node: FrameStream) -> FrameStream:
        try:
            await self._tell("running")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await node.aclose()
            raise
        return node

    async def _try(self, course: Course) -> FrameStream | None:
        offset = self._passed.resume_at
        if course.do in ("attach", "read"):
            return await self._attaching.again(course, offset)
        if not self._is_wanted(course):
            return None
        try:
            return await self._attaching.awake(offset)
        except OutliveError as error:
            await self._refuse_waiting(error.code)
            raise

    def _is_wanted(self, course: Course) -> bool:
        return course.do == "wait" and course.told == "hibernated" and self._waiting_size > 0

    async def _tell(self, machine: Told) -> None:
        if self._passed.machine != machine:
            self._passed.machine = machine
            await self._say(Channel.STATUS, status_machine(machine))

    # ── from the client to the node ──

    async def _hear(self) -> None:
        try:
            while True:
                if message := await self._socket.receive():
                    await self._take(message)
        except GoneError:
            self.finish(NORMAL)
        except RefusedMessageError as error:
            self.finish(error.close_code, error.message)

    async def _take(self, message: bytes) -> None:
        for frame in checked(message):
            while (node := self._node) is not None and not await self._send(node, frame):
                if self._node is node:  # else the next one is there by now
                    self._node = None
            if node is None:
                await self._keep(frame)

    async def _send(self, node: FrameStream, frame: Frame) -> bool:
        """Whether the node has it. If not, not even a part of it counts: that attachment ends, the next one gets it."""
        serving = self._serving
        try:
            await node.send(*frame)
        except (OutliveError, *_GONE):
            serving.cancel()
            return False
        return True

    async def _keep(self, frame: Frame) -> None:
        if frame.channel is not Channel.INPUT:
            # Only the last of each says how it stands.
            self._waiting = deque(each for each in self._waiting if each.channel is not frame.channel)
            self._waiting.append(frame)
            return
        if self._attaching.mode != "type" or self._waiting_size + len(frame.payload) > WAITING_LIMIT:
            await self._say(Channel.STATUS, status_refused(None, reason=self._passed.machine))
            return
        self._waiting.append(frame)
        self._waiting_size += len(frame.payload)
        self._typed.set()

    async def _hand_over(self, node: FrameStream) -> None:
        """What was typed while there was no node; from then on what is typed goes to this one."""
        while self._waiting:
            frame = self._waiting.popleft()
            self._drop(frame)
            if not await self._send(node, frame):
                self._waiting.appendleft(frame)
                self._waiting_size += len(frame.payload) if frame.channel is Channel.INPUT else 0
                return
        self._node = node

    def _drop(self, frame: Frame) -> None:
        if frame.channel is Channel.INPUT:
            self._waiting_size -= len(frame.payload)
        if self._waiting_size == 0:
            self._typed = anyio.Event()

    async def _refuse_waiting(self, why: str) -> None:
        if self._waiting_size:
            self._waiting = deque(each for each in self._waiting if each.channel is not Channel.INPUT)
            self._waiting_size = 0
            self._typed = anyio.Event()
            await self._say(Channel.STATUS, status_refused(None, reason=why))


def checked(message: bytes) -> list[Frame]:
    """A message of a client as frames that a node takes: input in pieces, a size that is one."""
    try:
        channel, payload = read_message(message)
        if channel is Channel.RESIZE:
            read_resize(payload)
        elif channel is Channel.CLOSE:
            read_close(payload)
    except InvalidError as error:
        raise RefusedMessageError(
            UNSUPPORTED if message[0] not in _FROM_CLIENTS else MALFORMED, error.message
        ) from None
    if channel not in _FROM_CLIENTS:
        raise RefusedMessageError(UNSUPPORTED, f"channel {channel} is not for clients")
    if channel is not Channel.INPUT:
        return [Frame(channel, payload)]
    return [Frame(channel, payload[at : at + INPUT_LIMIT]) for at in range(0, len(payload), INPUT_LIMIT)]


_FROM_CLIENTS = frozenset({Channel.INPUT, Channel.RESIZE, Channel.CLOSE})
