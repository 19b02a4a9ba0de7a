"""An attachment to a terminal that has ended: what is left of its recording, then how it ended."""

from outlive.api.parts import TerminalParts
from outlive.machine.terminal.door import FrameStream
from outlive.machine.terminal.frames import (
    Channel,
    Frame,
    final_exit,
    final_failure,
    status_attached,
    status_exit,
)
from outlive.machine.terminal.status import Terminal


class RecordedStream(FrameStream):
    """Takes nothing that is typed."""

    def __init__(self, terminals: TerminalParts, terminal: Terminal, offset: int | None) -> None:
        self._waiting = [
            Frame(Channel.STATUS, status_attached(terminal, terminal.recorded_to if offset is None else offset)),
            *end_of(terminal),
        ]

    async def send(self, channel: Channel, payload: bytes) -> None:
        pass

    async def receive(self) -> tuple[Channel, bytes] | None:
        return self._waiting.pop(0) if self._waiting else None

    async def aclose(self) -> None:
        pass


def end_of(terminal: Terminal) -> list[Frame]:
    """How a terminal that is over ended, as its clients are told."""
    if terminal.state == "exited":
        final = final_exit(terminal.exit_code, terminal.signal)
    else:
        message = terminal.reason or f"The terminal is {terminal.state}."
        final = final_failure(f"terminal.{terminal.state}", message, terminal=terminal.id)
    return [Frame(Channel.STATUS, status_exit(terminal.exit_code, terminal.signal)), Frame(Channel.FINAL, final)]
