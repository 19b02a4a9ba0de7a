"""The host's end of a machine's one socket: the door that its guest dials, and the guest as an object with methods."""

from outlive.machine.guest_link.door import SOCKET, GuestDoor, Welcome, open_door
from outlive.machine.guest_link.guest import Guest, Hello
from outlive.machine.guest_link.running import RunningCommand
from outlive.machine.guest_link.stream import GuestStream

__all__ = ["SOCKET", "Guest", "GuestDoor", "GuestStream", "Hello", "RunningCommand", "Welcome", "open_door"]
