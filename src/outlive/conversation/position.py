"""Where a follower stands in the one ordered stream of durable events and deltas. Pure.

A position says: every durable event up to `seq` was seen, and of the steps that were open then, so many characters of
their live output. Nothing else is needed to go on, and nothing of it is kept on the server: so it never expires.

On the wire it is an opaque word, `1-<tag>-<seq>[-<start>.<offset>]...`: `tag` ties it to its conversation, `start`
names an attempt by the seq of its `step.started`. `<start>.x` says that the follower was told to forget that attempt
already (`step.rewound`), so that one who is cut off between the rewind and the new attempt is not told twice.
"""

import re
from typing import NamedTuple

from outlive.base import ConversationId, InvalidError
from outlive.conversation.events import SEQ_MAX

_SHAPE = re.compile(r"1-([0-9a-f]{8})-([0-9]{1,10})((?:-[0-9]{1,10}\.(?:[0-9]{1,12}|x))*)", re.ASCII)
_MAX_LENGTH = 4096
FORGOTTEN = -1


class Position(NamedTuple):
    seq: int
    offsets: tuple[
        tuple[int, int], ...
    ] = ()  # (start, characters seen or FORGOTTEN), by start; only what differs from 0


START = Position(0)


def tag_of(conversation: ConversationId) -> str:
    return conversation[-8:]


def format_position(tag: str, position: Position) -> str:
    if not position.offsets:
        return f"1-{tag}-{position.seq}"
    seen = "".join(f"-{start}.{'x' if offset == FORGOTTEN else offset}" for start, offset in position.offsets)
    return f"1-{tag}-{position.seq}{seen}"


def parse_position(conversation: ConversationId, text: str) -> Position:
    """The position that `text` stands for; refuses what is not one, or is one of another conversation."""
    match = _SHAPE.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None or int(match[2]) > SEQ_MAX:
        raise InvalidError(
            "position.malformed",
            "This is not a position: pass the `position` of an event (the `id:` of a frame) unchanged, "
            "or leave it out to start from the beginning.",
        )
    if match[1] != tag_of(conversation):
        raise InvalidError("position.foreign", f"This position belongs to another conversation than {conversation!r}.")
    pairs = (piece.split(".") for piece in match[3].split("-")[1:])
    offsets = {int(start): FORGOTTEN if seen == "x" else int(seen) for start, seen in pairs}
    return Position(int(match[2]), tuple(sorted(offsets.items())))
