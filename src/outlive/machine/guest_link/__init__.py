"""The host's end of a machine's one socket: the door that its guest dials, and the guest as an object with methods."""

from outlive.machine.guest_link.door import SOCKET, GuestDoor, Welcome, open_door
from outlive.machine.guest_link.facts import (
    Activity,
    DroppedInput,
    FileFacts,
    FilePage,
    ForegroundFacts,
    LineFacts,
    ProcessFacts,
    Quiesced,
    TerminalActivity,
    TerminalExit,
    TerminalFacts,
)
from outlive.machine.guest_link.files import FileContent, GuestFiles
from outlive.machine.guest_link.guest import Guest, Hello
from outlive.machine.guest_link.running import RunningCommand
from outlive.machine.guest_link.stream import GuestStream
from outlive.machine.guest_link.terminals import AttachedTerminal, GuestTerminals

__all__ = [
    "SOCKET",
    "Activity",
    "AttachedTerminal",
    "DroppedInput",
    "FileContent",
    "FileFacts",
    "FilePage",
    "ForegroundFacts",
    "Guest",
    "GuestDoor",
    "GuestFiles",
    "GuestStream",
    "GuestTerminals",
    "Hello",
    "LineFacts",
    "ProcessFacts",
    "Quiesced",
    "RunningCommand",
    "TerminalActivity",
    "TerminalExit",
    "TerminalFacts",
    "Welcome",
    "open_door",
]
