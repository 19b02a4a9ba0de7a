"""What the benchmarks of the loop share: a stack whose model is the pretend provider, and clients that talk to it."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from bench.machines_stack import Line, Stack, open_stack
from bench.sse import Poster, as_json, request
from bench.workshop import Workshop
from outlive.base import new_operation_id

# Three answers and two calls, one after the other. The calls name no tool that there is: they go the whole way of a
# tool step, and end at once without a machine.
TURN = "[[tool nothing {}]] [[tool nothing {}]] [[say Done.]]"
FINISHED = b"event: turn.finished\n"
FIRST_DELTA = b"event: model.delta\n"
_WITHIN_S = 120.0
_FRAME_ENDS = b"\n\n"


@contextmanager
def open_loop_stack(workshop: Workshop, *, has_machines: bool) -> Iterator[Stack]:
    provider = workshop.start_python("bench.loop_provider")
    environment = provider.hear()["environment"]
    machines = {"OUTLIVE_MACHINES__ENABLED": "on" if has_machines else "off"}
    with open_stack(workshop, **environment, **machines) as stack:
        yield stack


class Talk:
    """A new conversation, with one who writes and one who follows it from its beginning."""

    def __init__(self, stack: Stack, line: Line) -> None:
        self.id = str(line.call("POST", "/v1/conversations", {})["id"])
        port = urlsplit(stack.url).port
        assert port is not None
        path = f"/v1/conversations/{self.id}"
        self._poster = Poster(port, f"{path}/messages", stack.token)
        self._follower = socket.create_connection(("127.0.0.1", port), timeout=_WITHIN_S)
        self._follower.sendall(request(port, f"{path}/stream", stack.token))
        self._read = b""
        self._read_until(b"event: conversation.created\n")

    def send(self, text: str) -> float:
        """The moment at which the message left."""
        sent_at = time.perf_counter()
        self._poster.send(as_json(text=text), new_operation_id())
        return sent_at

    def wait_for(self, mark: bytes) -> float:
        """The moment at which `mark` had come."""
        self._read_until(mark)
        return time.perf_counter()

    def end_turn(self) -> None:
        """Behind FINISHED: whether the turn did what it was to do, and the message was answered."""
        self._poster.wait()
        if b'"done"' not in self._read_until(_FRAME_ENDS):
            raise RuntimeError(f"The turn of {self.id} went wrong: {self._read[-500:]!r}")

    def _read_until(self, mark: bytes) -> bytes:
        """What came up to `mark`; what came behind it is kept."""
        place = self._read.find(mark)
        while place < 0:
            chunk = self._follower.recv(1 << 18)
            if not chunk:
                raise RuntimeError(f"The stream of {self.id} ended: {self._read[-500:]!r}")
            start = max(0, len(self._read) - len(mark))
            self._read += chunk
            place = self._read.find(mark, start)
        found, self._read = self._read[: place + len(mark)], self._read[place + len(mark) :]
        return found

    def take_turn(self) -> float:
        """Seconds from a message to the end of its turn, as the follower sees it."""
        sent_at = self.send(TURN)
        ended_at = self.wait_for(FINISHED)
        self.end_turn()
        return ended_at - sent_at

    def close(self) -> None:
        self._poster.close()
        self._follower.close()


@contextmanager
def talking(stack: Stack, line: Line | None = None) -> Iterator[Talk]:
    talk = Talk(stack, line or stack.line)
    try:
        yield talk
    finally:
        talk.close()
