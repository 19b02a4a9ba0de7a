"""A process with many followers of server-sent events: raw sockets, one epoll, nothing looked at while the clock runs.

It connects all, says when each has read its first frame, and is then told which mark ends a round. When every
follower has read the mark it says when that was; only then it looks at what it got. The bench and this process read the
same clock (CLOCK_MONOTONIC), so their times can be compared.
"""

import re
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from bench.lifeline import hear, say
from bench.sse import Body, request
from bench.workshop import Process, Workshop, raise_descriptor_limit

DEADLINE_S = 120.0
_SERIAL = re.compile(rb"round (\d+) serial (\d+)\.")


class Follower:
    __slots__ = ("body", "carried", "chunks", "has_mark", "socket", "stamps")

    def __init__(self, port: int, path: str, token: str | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self.socket.sendall(request(port, path, token))
        self.socket.setblocking(False)
        self.body = Body()
        self.chunks: list[bytes] = []
        self.stamps: list[float] = []
        self.carried = b""
        self.has_mark = False

    def read(self, mark: bytes) -> None:
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise RuntimeError(f"A stream ended: {b''.join(self.chunks)[:300]!r}")
        self.chunks.append(chunk)
        # A mark may be cut in two, by the socket or by the line between two chunks of the body; it is at the end of
        # what is written at once, so looking at the last two pieces is enough.
        if mark in chunk or mark in self.carried + chunk:
            self.has_mark = True
        self.carried = chunk[-len(mark) :]

    def take(self) -> list[tuple[int, int]]:
        """What it got since the last time, in the order it came: round and serial of each."""
        got = self.body.feed(b"".join(self.chunks))
        self.chunks.clear()
        return [(int(number), int(serial)) for number, serial in _SERIAL.findall(got)]


class Followers:
    def __init__(self, port: int, paths: Sequence[str], token: str | None, count: int) -> None:
        self._poll = select.epoll()
        self._by_fd: dict[int, Follower] = {}
        for number in range(count):
            follower = Follower(port, paths[number % len(paths)], token)
            self._by_fd[follower.socket.fileno()] = follower
            self._poll.register(follower.socket, select.EPOLLIN)

    def read_until_all_have(self, mark: bytes, *, with_stamps: bool = False) -> float:
        """The moment at which the last follower had read `mark`."""
        left = len(self._by_fd)
        for follower in self._by_fd.values():
            follower.has_mark = False
        deadline = time.monotonic() + DEADLINE_S
        while left:
            ready = self._poll.poll(1.0, 1024)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} followers did not get everything within {DEADLINE_S} s")
            for fd, _ in ready:
                follower = self._by_fd[fd]
                had_mark = follower.has_mark
                follower.read(mark)
                if with_stamps:
                    follower.stamps.append(time.perf_counter())
                left -= follower.has_mark and not had_mark
        return time.perf_counter()

    def check(self, round_number: int, count: int) -> int:
        """How many followers got all of the round, each thing once and in order, and nothing else."""
        wanted = [(round_number, serial) for serial in range(count)]
        return sum(follower.take() == wanted for follower in self._by_fd.values())

    def arrivals(self) -> dict[str, float]:
        """When the one follower read each serial."""
        [follower] = self._by_fd.values()
        found: dict[str, float] = {}
        for at, chunk in zip(follower.stamps, follower.chunks, strict=True):
            for _, serial in _SERIAL.findall(chunk):
                found.setdefault(serial.decode(), at)
        follower.stamps.clear()
        return found


def main() -> None:
    words = hear()
    raise_descriptor_limit(int(words["count"]) + 100)
    followers = Followers(words["port"], words["paths"], words["token"], words["count"])
    followers.read_until_all_have(words["ready"].encode())
    followers.check(0, 0)
    say(ready=True)
    while True:
        words = hear()
        with_stamps = bool(words["stamps"])
        answer: dict[str, Any] = {"at": followers.read_until_all_have(words["mark"].encode(), with_stamps=with_stamps)}
        if with_stamps:
            answer["arrivals"] = followers.arrivals()
        answer["complete"] = followers.check(words["round"], words["count"])
        say(**answer)


class RemoteFollowers:
    """The bench's side of such a process."""

    def __init__(
        self, workshop: Workshop, port: int, paths: Sequence[str], count: int, *, ready: str, token: str | None = None
    ) -> None:
        self.count = count
        self._process: Process = workshop.start_python("bench.followers")
        self._process.tell(port=port, paths=list(paths), token=token, count=count, ready=ready)
        self._process.hear(DEADLINE_S)

    def expect(self, round_number: int, count: int, mark: str, *, stamps: bool = False) -> None:
        self._process.tell(round=round_number, count=count, mark=mark, stamps=stamps)

    def finish(self) -> dict[str, Any]:
        """What became of the round. Raises if a follower did not get everything."""
        answer = self._process.hear(DEADLINE_S + 10.0)
        if answer["complete"] != self.count:
            raise RuntimeError(f"Only {answer['complete']} of {self.count} followers got everything, once, in order.")
        return answer

    def stop(self) -> None:
        self._process.stop()


if __name__ == "__main__":
    main()
