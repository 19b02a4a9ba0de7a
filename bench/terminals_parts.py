"""What the benchmarks of terminals share: a terminal and who is attached to it, and its rivals in the same machine."""

import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from bench.machines_stack import Stack
from bench.websocket import WebSocket
from outlive.guest.wire import PAYLOAD_LIMIT
from outlive.machine.node_wire import NodeAddress, SpliceRequest
from outlive.wiring.node_token import ensure_node_token

INPUT, OUTPUT, STATUS = 0, 1, 5
# What is typed comes back from a program, as a shell's line editor does it; the kernel's own echo is off.
ECHO = ("sh", "-c", "stty raw -echo; printf READY; exec cat")
READY = b"READY"
_WITHIN_S = 60.0
_QUIET_S = 0.3

# The smallest program that holds a PTY and carries its bytes. It dials a unix socket, as the guest does, or waits for a
# connection on a port of the machine, as a server that somebody runs there does.
_RELAY = """
import os, pty, select, socket, sys
if sys.argv[1].isdigit():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
else:
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[1])
pid, master = pty.fork()
if not pid:
    os.execvp(sys.argv[2], sys.argv[2:])
other = {master: link.fileno(), link.fileno(): master}
ready = select.epoll()
for each in other:
    ready.register(each, select.EPOLLIN)
while True:
    for each, _ in ready.poll():
        view = memoryview(os.read(each, 65536))
        if not view:
            sys.exit()
        while view:
            view = view[os.write(other[each], view):]
"""


class Echoing(Protocol):
    def echo(self, key: bytes) -> None:
        """Type it and wait until it is shown."""
        ...


class Attached:
    """A client of a terminal, through the API."""

    def __init__(self, stack: Stack, terminal: str, *, mode: str = "type", offset: int | None = None) -> None:
        start = "" if offset is None else f"&from={offset}"
        path = f"/v1/terminals/{terminal}/attach?mode={mode}{start}"
        self.socket = WebSocket(stack.url, path, stack.token, "v5.channel.k8s.io")

    def type(self, data: bytes) -> None:
        self.socket.send(bytes([INPUT]) + data)

    def wait_for(self, text: bytes) -> None:
        seen = b""
        while text not in seen:
            seen = seen[-64:] + self._output()

    def wait_for_screen(self) -> None:
        """Until the present screen is drawn to its end."""
        is_drawing = False
        while True:
            message = self.socket.receive()
            if message[0] == STATUS and "offset" in (words := json.loads(message[1:])):
                if is_drawing:
                    return
                is_drawing = bool(words.get("screen"))

    def _output(self) -> bytes:
        while True:
            message = self.socket.receive()
            if message[0] == OUTPUT:
                return message[1:]

    def settle(self) -> None:
        self.socket.wait_quiet(_QUIET_S)

    def echo(self, key: bytes) -> None:
        self.type(key)
        while key not in self._output():
            pass

    def close(self) -> None:
        self.socket.close()


@contextmanager
def attached(stack: Stack, terminal: str, *, mode: str = "type", offset: int | None = None) -> Iterator[Attached]:
    one = Attached(stack, terminal, mode=mode, offset=offset)
    try:
        yield one
    finally:
        one.close()


def open_terminal(stack: Stack, machine: str, argv: Sequence[str] | None = None, **words: object) -> str:
    body = {**({} if argv is None else {"argv": list(argv)}), **words}
    return str(stack.line.call("POST", f"/v1/machines/{machine}/terminals", body)["id"])


class Bytes:
    """A rival's PTY: plain bytes both ways on one socket."""

    def __init__(self, connection: socket.socket, ready: bytes = READY) -> None:
        connection.settimeout(_WITHIN_S)
        self._socket = connection
        self._wait_for(ready)
        self._socket.settimeout(_QUIET_S)
        try:
            while self._socket.recv(PAYLOAD_LIMIT):
                pass
        except TimeoutError:
            self._socket.settimeout(_WITHIN_S)

    def echo(self, key: bytes) -> None:
        self._socket.sendall(key)
        self._wait_for(key)

    def _wait_for(self, text: bytes) -> None:
        seen = b""
        while text not in seen:
            data = self._socket.recv(PAYLOAD_LIMIT)
            if not data:
                raise EOFError("the relay has ended")
            seen = seen[-64:] + data


class Rivals:
    """Programs in the same machine that do what a terminal does, or a part of it."""

    def __init__(self, stack: Stack, machine: str, opened: ExitStack) -> None:
        self._stack = stack
        self._machine = machine
        self._opened = opened
        shown = stack.line.call("GET", f"/v1/machines/{machine}")
        self._generation = int(shown["generation"])
        self._folder = stack.settings.node_path / "machines" / machine / str(self._generation) / "host"
        self._ports = iter(range(7_600, 7_700))

    def straight(self, *argv: str, ready: bytes = READY) -> Bytes:
        """A relay that has a unix socket of its own to us, beside the guest's: nobody is between."""
        path = self._folder / "bench.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:  # an address that fits, however deep the folder is
                listener.bind(f"/proc/self/fd/{descriptor}/{path.name}")
            finally:
                os.close(descriptor)
            try:
                listener.listen(1)
                listener.settimeout(_WITHIN_S)
                self._start("python3", "-c", _RELAY, f"/run/outlive/{path.name}", *argv)
                connection, _ = listener.accept()
            finally:
                path.unlink()
        return Bytes(self._opened.enter_context(connection), ready)

    def through_node(self, *argv: str) -> Bytes:
        """A relay on a port of the machine, through the node: as a preview goes, without the API."""
        port = next(self._ports)
        self._start("python3", "-c", _RELAY, str(port), *argv)
        self._wait_for_port(port)
        connection = self._opened.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(_WITHIN_S)
        connection.connect(NodeAddress(path=str(self._stack.settings.node_socket_path)).splice.path)
        asked = SpliceRequest.model_validate(
            {
                "token": ensure_node_token(self._stack.settings),
                "machine": self._machine,
                "generation": self._generation,
                "port": port,
            }
        )
        connection.sendall(asked.model_dump_json().encode() + b"\n")
        answer = connection.recv(3)
        assert answer == b"{}\n", answer
        return Bytes(connection)

    def ttyd(self, *argv: str) -> "Ttyd | None":
        """ttyd on a port of the machine, through its preview; None if there is no ttyd here that runs there."""
        found = shutil.which("ttyd")
        if found is None:
            return None
        self._stack.line.put_file(self._machine, "/workspace/ttyd", Path(found).read_bytes())
        port = next(self._ports)
        self._start("sh", "-c", 'chmod +x "$1"; exec "$@"', "sh", *_ttyd(port), *argv)
        self._wait_for_port(port)
        return self._opened.enter_context(_closing(Ttyd(self._stack, f"/v1/machines/{self._machine}/ports/{port}/ws")))

    def _start(self, *argv: str) -> None:
        """In the background, as root: an agent's programs do not get at the folder of the sockets."""
        apart = ["sh", "-c", 'setsid "$@" </dev/null >/dev/null 2>&1 &', "sh", *argv]
        done = self._stack.line.exec(self._machine, argv=apart, user="root", env={"TERM": "xterm-256color"})
        assert done["exit_code"] == 0, done

    def _wait_for_port(self, port: int) -> None:
        looking = f"until grep -qi ':{port:04x} 00000000' /proc/net/tcp; do sleep 0.05; done"
        done = self._stack.line.exec(self._machine, command=looking, timeout_s=_WITHIN_S)
        assert done["exit_code"] == 0, done


def _ttyd(port: int) -> list[str]:
    return ["/workspace/ttyd", "--port", str(port), "--interface", "127.0.0.1", "--writable"]


class Ttyd:
    def __init__(self, stack: Stack, path: str) -> None:
        self._socket = WebSocket(stack.url, path, stack.token, "tty")
        self._socket.send(json.dumps({"AuthToken": "", "columns": 80, "rows": 24}).encode())
        seen = b""
        while READY not in seen:
            seen += self._output()
        self._socket.wait_quiet(_QUIET_S)

    def _output(self) -> bytes:
        while True:
            message = self._socket.receive()
            if message[:1] == b"0":
                return message[1:]

    def echo(self, key: bytes) -> None:
        self._socket.send(b"0" + key)
        while key not in self._output():
            pass

    def close(self) -> None:
        self._socket.close()


@contextmanager
def _closing(ttyd: Ttyd) -> Iterator[Ttyd]:
    try:
        yield ttyd
    finally:
        ttyd.close()
