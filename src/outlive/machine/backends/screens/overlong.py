"""Sequences that grow and do not end: from a bound on they are thrown away, so that no output takes all the memory.

Invariant: where one ends does not depend on how the bytes were cut.
"""

import re

PENDING_LIMIT = 64 * 1024
PIECE = 32 * 1024  # less than the limit: how a sequence began is seen before it is forgotten

_ENDS_OF_STRING = re.compile(rb"[\x18\x1a\x1b]")
_ENDS = {b"\x1b]": re.compile(rb"[\x07\x18\x1a\x1b]"), b"\x1b[": re.compile(rb"[\x18\x1a\x1b\x40-\x7e]")}


def skip_overlong(begun: bytes, data: bytes, start: int) -> int | None:
    """Where what follows the sequence that began like this starts; None: not in these bytes."""
    end = _ENDS.get(begun, _ENDS_OF_STRING).search(data, start)
    if end is None:
        return None
    return end.start() if end[0] == b"\x1b" else end.end()
