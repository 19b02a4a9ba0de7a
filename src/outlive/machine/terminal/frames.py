"""The frames of an attached terminal: what a WebSocket message holds, and the same with a length between API and node.

The first byte of a message is its channel, as in Kubernetes' `v5.channel.k8s.io`; our own status is channel 5. Between
API and node each message has its length in front (4 bytes, big-endian, the channel counted). Pure.

Invariant: however the bytes are cut, the same frames come out; what is no frame, or one of more than `FRAME_LIMIT`
bytes, is refused (`terminal.frame`) before it is collected.
"""

import enum
import json
import struct
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel

from outlive.base import InvalidError, TerminalId
from outlive.machine.terminal.status import SIZE_LIMIT, Lease, Seam, Size, Terminal

FRAME_LIMIT = 1024 * 1024  # bytes of a message, its channel counted
PAYLOAD_LIMIT = FRAME_LIMIT - 1
V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"  # has no CLOSE
SUBPROTOCOLS = (V5, V4)

_LENGTH = struct.Struct("!I")
_HEADER = struct.Struct("!IB")


class Channel(enum.IntEnum):
    INPUT = 0
    OUTPUT = 1
    FINAL = 3  # a Kubernetes Status, the last thing that is said
    RESIZE = 4  # from the client: {"Width", "Height"}
    STATUS = 5  # to the client: JSON
    CLOSE = 255  # of the channel whose number it carries


_CHANNELS = {int(channel): channel for channel in Channel}


class Frame(NamedTuple):
    channel: Channel
    payload: bytes


def refuse(why: str) -> InvalidError:
    return InvalidError("terminal.frame", f"This is no frame of a terminal: {why}.")


# ── one message ──


def encode_message(channel: Channel, payload: bytes) -> bytes:
    """What a WebSocket message holds."""
    _check_length(len(payload) + 1)
    return bytes((channel,)) + payload


def read_message(message: bytes) -> Frame:
    _check_length(len(message))
    return Frame(_channel(message[0]), message[1:])


def encode(channel: Channel, payload: bytes) -> bytes:
    """The same with its length in front."""
    _check_length(len(payload) + 1)
    return _HEADER.pack(len(payload) + 1, channel) + payload


class FrameDecoder:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            _check_length(length)
            begin, end = at + _LENGTH.size, at + _LENGTH.size + length
            if len(buffer) > begin:
                _channel(buffer[begin])  # refused at once, not when all of it is there
            if len(buffer) < end:
                break
            frames.append(Frame(_channel(buffer[begin]), bytes(buffer[begin + 1 : end])))
            at = end
        if at:
            del buffer[:at]
        return frames

    @property
    def is_between(self) -> bool:
        """Whether no frame has begun that is not complete: a connection that ends elsewhere was cut."""
        return not self._buffer


def _check_length(length: int) -> None:
    if not 1 <= length <= FRAME_LIMIT:
        raise refuse(f"{length} bytes; one has 1 to {FRAME_LIMIT}")


def _channel(number: int) -> Channel:
    channel = _CHANNELS.get(number)
    if channel is None:
        raise refuse(f"there is no channel {number}")
    return channel


# ── from the client ──


def encode_resize(size: Size) -> bytes:
    return _json({"Width": size.cols, "Height": size.rows})


def read_resize(payload: bytes) -> Size:
    try:
        words = json.loads(payload)
        size = Size(words["Width"], words["Height"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise refuse('a size is {"Width": columns, "Height": rows}') from error
    if not all(type(cells) is int and 1 <= cells <= SIZE_LIMIT for cells in size):
        raise refuse(f"a size has 1 to {SIZE_LIMIT} columns and rows")
    return size


def read_close(payload: bytes) -> Channel:
    if len(payload) != 1:
        raise refuse("a CLOSE names one channel")
    return _channel(payload[0])


# ── our own status ──


def status(**words: object) -> bytes:
    """A payload of `Channel.STATUS`. The builders below say all there is; this is for what they do not know."""
    return _json(words)


def status_attached(terminal: Terminal, offset: int, *, is_screen: bool = False) -> bytes:
    """The first word. With a screen, what comes next on OUTPUT draws it and is not counted, until the offset is said
    again."""
    words = {"terminal": terminal.id, "offset": offset, "cols": terminal.cols, "rows": terminal.rows}
    return _json({**words, "lease": lease_words(terminal.lease)} | ({"screen": True} if is_screen else {}))


def status_offset(offset: int) -> bytes:
    return _json({"offset": offset})


def status_gap(start: int, end: int) -> bytes:
    """These bytes are gone. The offset is said next."""
    return _json({"gap": {"from": start, "to": end}})


def status_seam(seam: Seam) -> bytes:
    return _json({"seam": seam_words(seam)})


def status_lease(lease: Lease | None) -> bytes:
    return _json({"lease": lease_words(lease)})


def status_refused(lease: Lease | None, **facts: object) -> bytes:
    """What was typed did not reach the machine."""
    return _json({"refused": {"lease": lease_words(lease), **facts}})


def status_size(cols: int, rows: int) -> bytes:
    return _json({"size": {"cols": cols, "rows": rows}})


def status_operators(present: Sequence[BaseModel]) -> bytes:
    """Everybody who is attached: `door.Present`."""
    return _json({"operators": [each.model_dump(mode="json") for each in present]})


def status_machine(state: Literal["hibernated", "away", "running"]) -> bytes:
    return _json({"machine": state})


def status_title(title: str) -> bytes:
    return _json({"title": title})


def status_bell() -> bytes:
    return _json({"bell": True})


def status_detached(offset: int, reason: str) -> bytes:
    return _json({"detached": {"offset": offset, "reason": reason}})


def status_exit(code: int | None, signal: int | None = None) -> bytes:
    return _json({"exit": code, "signal": signal})


def read_status(payload: bytes) -> dict[str, object]:
    try:
        words = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise refuse("a status is JSON") from error
    if not isinstance(words, dict):
        raise refuse("a status is a JSON object")
    return words


def lease_words(lease: Lease | None) -> dict[str, object] | None:
    return None if lease is None else lease.model_dump(mode="json", exclude={"is_forced"})


def seam_words(seam: Seam) -> dict[str, object]:
    return {"from": seam.start, "at": seam.at, "generation": seam.generation}


# ── the end, as Kubernetes says it ──


def final_success() -> bytes:
    return _json({"metadata": {}, "status": "Success"})


def final_exit(code: int | None, signal: int | None = None) -> bytes:
    """How the program ended. One that a signal ended has the exit code that a shell gives it."""
    if code is None:
        code = 128 + (signal or 0)
    if code == 0:
        return final_success()
    return _json(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with exit code {code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    )


def final_failure(code: str, message: str, *, terminal: TerminalId | None = None) -> bytes:
    """It ended otherwise: the machine is lost or deleted, the terminal was closed."""
    details = {"name": terminal, "kind": "terminals"} if terminal else {}
    causes = [{"reason": code, "message": message}]
    return _json(
        {
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "InternalError",
            "details": {**details, "causes": causes},
            "code": 500,
        }
    )


def _json(words: object) -> bytes:
    return json.dumps(words, separators=(",", ":"), allow_nan=False).encode("ascii")
