"""Typed ids: a prefix that names the kind, and a UUIDv7 that sorts by time.

Rule 1: an id is made here and nowhere else, so that every id in the system sorts by the moment it was made.
Rule 2: an id is checked where it enters (`parse_id`), and trusted from there on: each kind is a type of its own.
"""

import hashlib
import os
import re
import threading
import time
from datetime import datetime
from typing import NewType

ConversationId = NewType("ConversationId", str)
EventId = NewType("EventId", str)
MessageId = NewType("MessageId", str)
TurnId = NewType("TurnId", str)
StepId = NewType("StepId", str)
EffectId = NewType("EffectId", str)
PrincipalId = NewType("PrincipalId", str)
OperationId = NewType("OperationId", str)
MachineId = NewType("MachineId", str)
CheckpointId = NewType("CheckpointId", str)
EnvironmentId = NewType("EnvironmentId", str)
NodeId = NewType("NodeId", str)
TerminalId = NewType("TerminalId", str)
ArtifactId = NewType("ArtifactId", str)
ApprovalId = NewType("ApprovalId", str)

_SHAPE = re.compile(r"([a-z]{2,8})_([0-9a-f]{32})")

_last = 0
_last_lock = threading.Lock()


def _uuid7() -> int:
    """A UUIDv7 (RFC 9562) that is strictly greater than any this process made before."""
    global _last
    # 48 bits of milliseconds and 12 bits of their fraction; two in the same quarter of a microsecond count up.
    # Ids read the clock themselves: they need the real order of making, which no fake clock should bend.
    now_ns = time.time_ns()
    stamp = (now_ns // 1_000_000) << 12 | (now_ns % 1_000_000) * 4096 // 1_000_000
    with _last_lock:
        stamp = _last = max(stamp, _last + 1)
    random_bits = int.from_bytes(os.urandom(8), "big") >> 2
    return (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random_bits


def _make(prefix: str) -> str:
    return f"{prefix}_{_uuid7():032x}"


def new_conversation_id() -> ConversationId:
    return ConversationId(_make("conv"))


def new_event_id() -> EventId:
    return EventId(_make("evt"))


def new_message_id() -> MessageId:
    return MessageId(_make("msg"))


def new_turn_id() -> TurnId:
    return TurnId(_make("turn"))


def new_step_id() -> StepId:
    return StepId(_make("step"))


def new_effect_id() -> EffectId:
    return EffectId(_make("eff"))


def new_principal_id() -> PrincipalId:
    return PrincipalId(_make("prin"))


def new_operation_id() -> OperationId:
    return OperationId(_make("op"))


def new_machine_id() -> MachineId:
    return MachineId(_make("mach"))


def new_checkpoint_id() -> CheckpointId:
    return CheckpointId(_make("ckpt"))


def new_environment_id() -> EnvironmentId:
    return EnvironmentId(_make("env"))


def new_node_id() -> NodeId:
    return NodeId(_make("node"))


def new_terminal_id() -> TerminalId:
    return TerminalId(_make("term"))


def derive(prefix: str, origin: str, n: int | None = None) -> str:
    """The id of the `prefix` thing that belongs to `origin` (the operation that makes it, the step it is the effect
    of): the same each time it is asked for. With `n`, of the n-th such thing; it keeps the moment of its origin."""
    digits = origin.partition("_")[2]
    if n is None:
        return f"{prefix}_{digits}"
    bits = int.from_bytes(hashlib.sha256(f"{prefix}/{origin}/{n}".encode()).digest()[:8], "big") >> 2
    return f"{prefix}_{int(digits, 16) >> 64 << 64 | 0b10 << 62 | bits:032x}"


def derive_machine_id(at: datetime, seed: str) -> MachineId:
    """The id of the machine that `seed` stands for, among those of that moment: the same each time it is asked for."""
    bits = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:10], "big")
    stamp = int(at.timestamp() * 1000) << 80 | 0x7 << 76 | (bits >> 64 & 0xFFF) << 64
    return MachineId(f"mach_{stamp | 0b10 << 62 | (bits & (1 << 62) - 1):032x}")


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` has the shape of an id of the kind that `prefix` names."""
    match = _SHAPE.fullmatch(text)
    return match is not None and match[1] == prefix
