"""Trees that a hostile machine, or a hostile store, might have written: none gets past the reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import BrokenError
from outlive.machine.checkpoint.numbers import Writer
from outlive.machine.checkpoint.tree import (
    DEEPEST,
    Enter,
    Extent,
    Leave,
    Link,
    Node,
    Owner,
    Record,
    read_records,
    write_record,
)

ROOT = Owner(0o755, 0, 0, 0)
TOP = Enter(b"", ROOT)


def written(*records: Record) -> bytes:
    writer = Writer()
    for record in records:
        write_record(writer, record)
    return bytes(writer.content)


def file(name: bytes, **more: object) -> Node:
    return Node(name, "file", ROOT, **more)  # type: ignore[arg-type]


def test_every_kind_of_record_is_read_as_it_was_written() -> None:
    owner = Owner(0o6755, 1000, 65_534, -5, ((b"user.a", b"\0\xff"), (b"trusted.overlay.opaque", b"y")))
    records = (
        TOP,
        Enter(b"a", owner),
        Leave(),
        Node(b"b", "file", owner, True, 10_000, (Extent(0, 10), Extent(4096, 5904))),
        Link(b"c", 0),
        Node(b"d", "symlink", owner, target=b"../../etc"),
        Node(b"e", "fifo", owner),
        Node(b"f", "socket", owner),
        Node(b"g\n\xff", "whiteout", owner),
        Leave(),
    )
    assert tuple(read_records(written(*records), "it")) == records


HOSTILE: dict[str, tuple[Record, ...]] = {
    "a way up": (TOP, file(b".."), Leave()),
    "a folder that is a way up": (TOP, Enter(b"..", ROOT), Leave(), Leave()),
    "itself": (TOP, file(b"."), Leave()),
    "two steps": (TOP, file(b"a/b"), Leave()),
    "an absolute path": (TOP, file(b"/etc"), Leave()),
    "no name": (TOP, file(b""), Leave()),
    "a NUL": (TOP, file(b"a\0b"), Leave()),
    "a long name": (TOP, file(b"x" * 256), Leave()),
    "one name twice": (TOP, Node(b"a", "symlink", ROOT, target=b"/etc"), Enter(b"a", ROOT), Leave(), Leave()),
    "names out of order": (TOP, file(b"b"), file(b"a"), Leave()),
    "a link to nothing": (TOP, Link(b"a", 0), Leave()),
    "a link to what comes later": (TOP, Link(b"a", 0), file(b"b", is_linked=True), Leave()),
    "a file type in the mode": (TOP, Node(b"a", "file", Owner(0o100644, 0, 0, 0)), Leave()),
    "nobody's id": (TOP, Node(b"a", "file", Owner(0o644, 2**32 - 1, 0, 0)), Leave()),
    "an attribute of the host": (TOP, Node(b"a", "file", Owner(0, 0, 0, 0, ((b"security.selinux", b"x"),))), Leave()),
    "overlapping parts": (TOP, file(b"a", size=20, extents=(Extent(0, 10), Extent(5, 10))), Leave()),
    "parts beyond the end": (TOP, file(b"a", size=5, extents=(Extent(0, 10),)), Leave()),
    "a size that no disk has": (TOP, file(b"a", size=2**63), Leave()),
    "a link without target": (TOP, Node(b"a", "symlink", ROOT), Leave()),
    "a link with NUL": (TOP, Node(b"a", "symlink", ROOT, target=b"a\0"), Leave()),
    "no root": (file(b"a"), Leave()),
    "a root with a name": (Enter(b"a", ROOT), Leave()),
    "more after the end": (TOP, Leave(), file(b"a")),
    "no end": (TOP, file(b"a")),
    "too deep": (TOP, *[Enter(b"a", ROOT)] * DEEPEST, *[Leave()] * (DEEPEST + 1)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_tree_that_cannot_be_is_damage(what: str) -> None:
    with pytest.raises(BrokenError):
        list(read_records(written(*HOSTILE[what]), "it"))


def test_a_record_of_no_known_kind_is_damage() -> None:
    with pytest.raises(BrokenError):
        list(read_records(written(TOP) + bytes([99]) + written(file(b"a"), Leave())[1:], "it"))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_tree_or_damage(content: bytes) -> None:
    depth = 0
    try:
        for record in read_records(written(TOP) + content, "it"):
            depth += isinstance(record, Enter) - isinstance(record, Leave)
            assert depth >= 0
    except BrokenError:
        return
    assert depth == 0
