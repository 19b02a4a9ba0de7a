"""The first program of a machine that lies to its host: a guest of nobody's making. Its text is run inside, as PID 1.

Which lie it tells is in the last two digits of its hostname, which are those of its machine's id. Standard library
only, and little of it: that is all the runtime has.
"""

import json
import os
import select
import socket
import struct

HELLO, WELCOME, REQUEST, ANSWER, DATA = 1, 2, 3, 4, 6
HEADER = struct.Struct("!IBI")
STEP = 65_536


def frame(kind: int, identity: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), kind, identity) + payload


def words(kind: int, identity: int, said: object) -> bytes:
    return frame(kind, identity, json.dumps(said).encode())


def hello(machine: str = "", generation: int = 0) -> bytes:
    effects = {"running": 0, "exited": 0}
    me = {"version": 1, "boot": "0" * 32, "effects": effects, "machine": machine, "generation": generation}
    return words(HELLO, 0, me)


def dial() -> socket.socket:
    host = socket.socket(socket.AF_UNIX)
    host.connect("/run/outlive/ctl.sock")
    return host


def read(host: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = host.recv(size - len(found))
        if not part:
            raise OSError("the host hung up")
        found += part
    return found


def hear(host: socket.socket, kind: int) -> tuple[int, dict[str, object]]:
    while True:
        length, found, identity = HEADER.unpack(read(host, HEADER.size))
        payload = read(host, length)
        if found == kind:
            return identity, json.loads(payload)


def greet() -> tuple[socket.socket, dict[str, object]]:
    host = dial()
    host.sendall(hello())
    return host, hear(host, WELCOME)[1]


def flood(host: socket.socket, data: bytes) -> None:
    while True:
        host.sendall(data)


# These never say a good HELLO: their machine does not come up.


def says_nothing() -> None:
    dial().recv(1)


def begins_with_a_frame_too_long() -> None:
    flood(dial(), HEADER.pack(2**32 - 1, HELLO, 0) + bytes(STEP))


def sends_no_frames() -> None:
    flood(dial(), b"\xff" * STEP)


def dials_without_end() -> None:
    for host in [dial() for _ in range(20)]:
        host.close()


# These do, and lie from then on.


def answers_nothing() -> None:
    host, _ = greet()
    while host.recv(STEP):
        pass


def answers_what_nobody_asked() -> None:
    host, _ = greet()
    identity, _ = hear(host, REQUEST)
    flood(host, words(ANSWER, identity + 1000, {"ok": {}}))


def answers_without_end() -> None:
    host, _ = greet()
    identity, _ = hear(host, REQUEST)
    flood(host, HEADER.pack(2**31, ANSWER, identity) + bytes(STEP))


def answers_nonsense() -> None:
    host, _ = greet()
    identity, _ = hear(host, REQUEST)
    flood(host, frame(ANSWER, identity, b"[" * 60_000))


def sends_more_than_it_may() -> None:
    host, _ = greet()
    identity, said = hear(host, REQUEST)
    places = dict.fromkeys(("stdout", "stderr", "stdout_at", "stderr_at"), 0)
    host.sendall(words(ANSWER, identity, {"ok": {"effect": said["effect"], "exit": None, "is_new": True, **places}}))
    streams = said["streams"]
    assert isinstance(streams, dict)
    flood(host, frame(DATA, streams["stdout"], bytes(STEP)))


def comes_back_from_a_generation_to_come() -> None:
    host, welcome = greet()
    hear(host, REQUEST)
    host.close()
    while True:
        again = dial()
        again.sendall(hello(str(welcome["machine"]), int(str(welcome["generation"])) + 1))
        again.recv(STEP)
        again.close()
        pause()


def never_reads() -> None:
    host, _ = greet()
    pause(10_000)
    host.close()


def lists_without_end() -> None:
    """Answers with pages that hold nothing, each with another behind it."""
    host, _ = greet()
    number = 0
    while True:
        identity, said = hear(host, REQUEST)
        number += 1
        pages: dict[object, dict[str, object]] = {
            "file_list": {"entries": [], "last": f"{number:09}", "is_last": False},
            "processes": {"processes": [], "last": number, "is_last": False},
        }
        host.sendall(words(ANSWER, identity, {"ok": pages.get(said["do"], {"terminals": []})}))


def pause(seconds: float = 0.05) -> None:
    select.select([], [], [], seconds)


BEFORE_HELLO = (says_nothing, begins_with_a_frame_too_long, sends_no_frames, dials_without_end)
AFTER_HELLO = (
    answers_nothing,
    answers_what_nobody_asked,
    answers_without_end,
    answers_nonsense,
    sends_more_than_it_may,
    comes_back_from_a_generation_to_come,
    never_reads,
)
LISTING = (lists_without_end,)

if __name__ == "__main__":
    lie = (*BEFORE_HELLO, *AFTER_HELLO, *LISTING)[int(os.uname().nodename[-2:], 16)]
    while True:
        try:
            lie()
        except OSError:
            pause()
