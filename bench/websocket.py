"""The smallest client of a WebSocket: one blocking socket, so that what is timed is the server and not its client."""

import base64
import os
import socket
import struct
from collections.abc import Mapping
from urllib.parse import urlsplit

_WITHIN_S = 60.0
_PIECE = 512 * 1024
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10


class WebSocket:
    def __init__(self, url: str, path: str, token: str, protocol: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = bytearray()
        headers = {
            "Host": f"{parts.hostname}:{parts.port}",
            "Authorization": f"Bearer {token}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Protocol": protocol,
        }
        self._ask(path, headers)

    def _ask(self, path: str, headers: Mapping[str, str]) -> None:
        told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._socket.sendall(f"GET {path} HTTP/1.1\r\n{told}\r\n".encode())
        while b"\r\n\r\n" not in self._came:
            self._read()
        head, _, rest = bytes(self._came).partition(b"\r\n\r\n")
        if b" 101 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(f"{path}: {bytes(self._came).decode(errors='replace')}")
        self._came = bytearray(rest)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes, opcode: int = _BINARY) -> None:
        length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
        self._socket.sendall(bytes([0x80 | opcode]) + length + b"\0\0\0\0" + data)  # masked with nothing

    def receive(self) -> bytes:
        """The next message; `EOFError` when the server has closed."""
        while True:
            message = self.next()
            if message is not None:
                return message
            self._read()

    def next(self) -> bytes | None:
        """The next message, if all of it has come."""
        while (found := self._head()) is not None:
            start, end = found
            if len(self._came) < end:
                return None
            opcode, payload = self._came[0] & 15, bytes(self._came[start:end])
            del self._came[:end]
            if opcode == _PING:
                self.send(payload, _PONG)
            elif opcode == _CLOSE:
                raise EOFError("the server has closed")
            elif opcode != _PONG:
                return payload
        return None

    def _head(self) -> tuple[int, int] | None:
        """Where the payload of the frame that is first begins and ends. Servers mask nothing and cut nothing."""
        came = self._came
        if len(came) < 2:
            return None
        length, at = came[1] & 127, 2
        if length >= 126:
            size = struct.Struct("!H" if length == 126 else "!Q")
            at += size.size
            if len(came) < at:
                return None
            (length,) = size.unpack_from(came, 2)
        return at, at + length

    def read(self) -> None:
        """What has come, once `fileno` is readable."""
        self._read()

    def _read(self) -> None:
        data = self._socket.recv(_PIECE)
        if not data:
            raise EOFError("the server hung up")
        self._came += data

    def wait_quiet(self, quiet_s: float) -> None:
        """Until nothing has come for so long. What came is dropped."""
        self._socket.settimeout(quiet_s)
        try:
            while True:
                self.receive()
        except TimeoutError:
            self._socket.settimeout(_WITHIN_S)

    def close(self) -> None:
        self._socket.close()
