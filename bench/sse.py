"""A client of server-sent events that costs next to nothing: raw sockets, bytes kept as they came, looked at later."""

import json
import socket
import time
from typing import Any, NamedTuple


class Read(NamedTuple):
    seconds: float
    body: bytes


class Body:
    """The body of one response, however its bytes come: its head taken off, its chunks put together."""

    __slots__ = ("_has_head", "_is_chunked", "_left", "_waiting")

    def __init__(self) -> None:
        self._has_head = False
        self._is_chunked = False
        self._left = 0  # bytes of the present chunk that are still to come
        self._waiting = b""

    def feed(self, data: bytes) -> bytes:
        data = self._waiting + data
        self._waiting = b""
        if not self._has_head:
            data = self._take_head(data)
        if not self._is_chunked:
            return data
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left:
                parts.append(data[at : at + self._left])
                at += len(parts[-1])
                self._left -= len(parts[-1])
                continue
            # The line that ends a chunk and the one that begins the next; the first chunk has only the second.
            start = at + 2 if data.startswith(b"\r\n", at) else at
            end = data.find(b"\r\n", start)
            if end < 0:
                self._waiting = data[at:]
                break
            self._left = int(data[start:end].split(b";")[0], 16)
            at = end + 2
        return b"".join(parts)

    def _take_head(self, data: bytes) -> bytes:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            self._waiting = data
            return b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"Refused: {data[:500]!r}")
        self._has_head = True
        self._is_chunked = b"transfer-encoding: chunked" in head.lower()
        return rest


def request(port: int, path: str, token: str | None = None) -> bytes:
    """A GET of a stream."""
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: text/event-stream"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_until(port: int, path: str, mark: bytes, token: str | None = None, deadline_s: float = 60.0) -> Read:
    """Follow a stream from its start until `mark` has come; the time is counted from before the connection."""
    chunks: list[bytes] = []
    carried = b""
    started_at = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=deadline_s) as client:
        client.sendall(request(port, path, token))
        while True:
            chunk = client.recv(1 << 20)
            if not chunk:
                raise RuntimeError(f"The stream {path!r} ended early: {b''.join(chunks)[:500]!r}")
            chunks.append(chunk)
            if mark in carried + chunk:
                break
            carried = chunk[-len(mark) :]
    took_s = time.perf_counter() - started_at
    return Read(took_s, Body().feed(b"".join(chunks)))


class Poster:
    """Posts over one connection, one request at a time."""

    def __init__(self, port: int, path: str, token: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        authorization = "" if token is None else f"Authorization: Bearer {token}\r\n"
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization}Content-Type: application/json\r\n"
        )

    def post(self, body: bytes, key: str) -> None:
        """Returns when it was accepted."""
        self.send(body, key)
        self.wait()

    def send(self, body: bytes, key: str) -> None:
        """Returns when it is on its way; `wait` has to follow."""
        head = f"{self._head}Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def wait(self) -> None:
        """Until what was sent is accepted."""
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._receive(answer)
        head_bytes, _, rest = answer.partition(b"\r\n\r\n")
        if not head_bytes.startswith(b"HTTP/1.1 202"):
            raise RuntimeError(f"Refused: {answer[:500]!r}")
        lines = head_bytes.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        while len(rest) < length:
            rest += self._receive(answer)

    def _receive(self, so_far: bytes) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise RuntimeError(f"The connection ended: {so_far[:500]!r}")
        return data

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Poster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
