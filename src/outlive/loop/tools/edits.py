"""What an edit comes to, and which lines of a file are read. Pure."""

from typing import NamedTuple

EDITED_LIMIT = 16 * 1024 * 1024  # bytes of what an edit comes to


class EditRefusal(NamedTuple):
    why: str


def edited(before: bytes, old: str, new: str, *, is_all: bool) -> bytes | EditRefusal:
    """Bytes for bytes, so that what is not UTF-8 in the rest of a file stays as it is."""
    was, becomes = old.encode("utf-8", "replace"), new.encode("utf-8", "replace")
    if was == becomes:
        return EditRefusal("`old` and `new` are the same.")
    count = before.count(was)
    if count == 0 and b"\r\n" in before and b"\r" not in was and was.replace(b"\n", b"\r\n") in before:
        return EditRefusal("`old` is not in it as given: the lines of this file end with CR LF.")
    if count == 0:
        return EditRefusal("`old` is not in it. It must be there exactly, with every space and line end.")
    if count > 1 and not is_all:
        return EditRefusal(f"`old` is in it {count} times: give more of what is around it, or set `all`.")
    if len(before) + count * (len(becomes) - len(was)) > EDITED_LIMIT:
        return EditRefusal("it would become too long.")
    return before.replace(was, becomes)


class Part(NamedTuple):
    text: str
    note: str  # what is not shown; empty: all of it is


def lines_of(text: str, first: int, limit: int) -> Part:
    """Lines `first` (from 1) and so many after."""
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole] + ([rest] if rest else [])
    if not lines:
        return Part("", "The file is empty.")
    if first > len(lines):
        return Part("", f"The file has {len(lines)} lines.")
    last = min(len(lines), first - 1 + limit)
    part = "".join(lines[first - 1 : last])
    if first == 1 and last == len(lines):
        return Part(part, "")
    more = f"; go on with offset={last + 1}" if last < len(lines) else ""
    return Part(part, f"Lines {first} to {last} of {len(lines)}{more}.")
