"""The tree of a filesystem delta as one stream of records: what is where, without the files' bytes. Pure.

The upper directory of an overlay: directories, files, links, whiteouts and opaque marks. Depth first, names in byte
order, so that an unchanged folder is the same bytes. The bytes of the files make a stream of their own, in the same
order, holes left out.

Invariant: a record that was read names a single step (no `/`, no `..`, no NUL), comes once in its folder,
has a mode of permission bits only, and a link refers to a node of the same tree. Nothing else can be said in this
format, whoever wrote it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from outlive.machine.checkpoint.numbers import Reader, Writer

DEEPEST = 256  # folders in folders; each is an open descriptor while its content is read or written
_LONGEST_NAME = 255
_LONGEST_TARGET = 4095
_LARGEST_ID = 2**32 - 2
_LARGEST_FILE = 2**63 - 1

Kind = Literal["file", "symlink", "fifo", "socket", "whiteout"]
_KINDS: tuple[Kind, ...] = ("file", "symlink", "fifo", "socket", "whiteout")
_LEAVE, _ENTER, _LINK, _FIRST_KIND = 0, 1, 2, 3

_KEPT_ATTRIBUTES = frozenset(
    {
        # What overlayfs needs to show the same merged tree. `origin`, `impure`, `nlink` and `uuid` are handles into
        # one particular lower filesystem: wrong on another host, and overlayfs does without.
        b"trusted.overlay.opaque",
        b"trusted.overlay.redirect",
        b"trusted.overlay.metacopy",
        # As powerful as a setuid bit, and kept like one: upper directories are mounted `nosuid` for the host, if at
        # all, and only root gets there.
        b"security.capability",
    }
)


def is_kept(attribute: bytes) -> bool:
    """Whether an extended attribute is part of a checkpoint. Labels and lists of the host's own are not."""
    return attribute in _KEPT_ATTRIBUTES or attribute.startswith(b"user.")


class Extent(NamedTuple):
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Owner:
    """What files and folders have alike."""

    mode: int
    uid: int
    gid: int
    mtime_ns: int
    attributes: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Enter:
    """A folder; its content follows, up to `Leave`. The first one is the upper directory itself and has no name."""

    name: bytes
    owner: Owner


@dataclass(frozen=True, slots=True)
class Leave:
    pass


@dataclass(frozen=True, slots=True)
class Node:
    name: bytes
    kind: Kind
    owner: Owner
    is_linked: bool = False  # other names follow: it gets the next node number
    size: int = 0
    extents: tuple[Extent, ...] = field(default=())  # where a file has bytes
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class Link:
    """Another name of a node that came before."""

    name: bytes
    node: int


Record = Enter | Leave | Node | Link


def write_record(writer: Writer, record: Record) -> None:
    match record:
        case Leave():
            writer.number(_LEAVE)
        case Enter(name, owner):
            writer.number(_ENTER)
            writer.text(name)
            _write_owner(writer, owner)
        case Link(name, node):
            writer.number(_LINK)
            writer.text(name)
            writer.number(node)
        case Node():
            writer.number(_FIRST_KIND + _KINDS.index(record.kind))
            writer.text(record.name)
            _write_owner(writer, record.owner)
            writer.number(record.is_linked)
            if record.kind == "file":
                writer.number(record.size)
                writer.number(len(record.extents))
                for extent in record.extents:
                    writer.number(extent.offset)
                    writer.number(extent.length)
            elif record.kind == "symlink":
                writer.text(record.target)


def _write_owner(writer: Writer, owner: Owner) -> None:
    writer.number(owner.mode)
    writer.number(owner.uid)
    writer.number(owner.gid)
    writer.signed(owner.mtime_ns)
    writer.number(len(owner.attributes))
    for name, value in owner.attributes:
        writer.text(name)
        writer.text(value)


def read_records(content: bytes, what: str) -> Iterator[Record]:
    reader = Reader(content, what)
    root = _read_record(reader, 0)
    if not isinstance(root, Enter) or root.name:
        raise reader.damage("its first folder is missing")
    yield root
    last_names = [b""]  # in each folder that is open
    nodes = 0
    while last_names:
        record = _read_record(reader, nodes)
        if isinstance(record, Leave):
            last_names.pop()
        else:
            _check_name(reader, record.name, last_names[-1])
            last_names[-1] = record.name
            if isinstance(record, Enter):
                last_names.append(b"")
                if len(last_names) > DEEPEST:
                    raise reader.damage("its folders are too deep")
        nodes += isinstance(record, Node) and record.is_linked
        yield record
    if not reader.is_at_end:
        raise reader.damage("there is more than it should hold")


def _read_record(reader: Reader, nodes: int) -> Record:
    tag = reader.number()
    if tag == _LEAVE:
        return Leave()
    name = reader.text()
    if tag == _ENTER:
        return Enter(name, _read_owner(reader))
    if tag == _LINK:
        node = reader.number()
        if node >= nodes:
            raise reader.damage("a link refers to nothing")
        return Link(name, node)
    if tag - _FIRST_KIND >= len(_KINDS):
        raise reader.damage("there is a record of no known kind")
    kind = _KINDS[tag - _FIRST_KIND]
    owner = _read_owner(reader)
    is_linked = bool(reader.number())
    if kind == "file":
        size = reader.number()
        extents = tuple(Extent(reader.number(), reader.number()) for _ in range(reader.number()))
        _check_extents(reader, size, extents)
        return Node(name, kind, owner, is_linked, size, extents)
    if kind == "symlink":
        target = reader.text()
        if not 0 < len(target) <= _LONGEST_TARGET or b"\0" in target:
            raise reader.damage("a link points to what is no path")
        return Node(name, kind, owner, is_linked, target=target)
    return Node(name, kind, owner, is_linked)


def _read_owner(reader: Reader) -> Owner:
    mode, uid, gid, mtime_ns = reader.number(), reader.number(), reader.number(), reader.signed()
    if mode > 0o7777 or uid > _LARGEST_ID or gid > _LARGEST_ID:
        raise reader.damage("an owner or a mode cannot be")
    attributes = tuple((reader.text(), reader.text()) for _ in range(reader.number()))
    if not all(is_kept(name) and b"\0" not in name for name, _ in attributes):
        raise reader.damage("an attribute cannot be")
    return Owner(mode, uid, gid, mtime_ns, attributes)


def _check_name(reader: Reader, name: bytes, last_name: bytes) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or b"/" in name or b"\0" in name or name in (b".", b".."):
        raise reader.damage("a name cannot be")
    if name <= last_name:
        raise reader.damage("a name comes twice or out of order")


def _check_extents(reader: Reader, size: int, extents: tuple[Extent, ...]) -> None:
    end = 0
    for offset, length in extents:
        if offset < end or not length:
            raise reader.damage("the parts of a file overlap")
        end = offset + length
    if end > size or size > _LARGEST_FILE:
        raise reader.damage("a file is longer than it can be")
