"""A reference becomes a base that is there: found if it was made before, else made, whole or not at all."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from outlive.base import InvalidError, NotFoundError
from outlive.machine.backends.bases import debian, host
from outlive.machine.backends.bases.images import open_image, read_image, unpack_image
from outlive.machine.backends.bases.tree_cache import Record, Say, TreeCache
from outlive.machine.backends.bases.unpacking import Bounds, decompressed, settle, unpack
from outlive.machine.base import KINDS, Base, Reference, check_key, parse_reference

Env = tuple[tuple[str, str], ...]

RECORD = "base.json"
_STOP_TAR_WITHIN_S = 10.0
_TAR_CHANGED = 1


class _Recipe(NamedTuple):
    """How a base is made. The same `name` promises the same content, so that it need not be made again."""

    name: str
    make: Callable[[Path, Say], Env]


def ensure_base(reference: str, cache: Path, *, say: Say) -> Base:
    """The base that `reference` stands for. Instant if it was made before and what it is made from is unchanged."""
    wanted = parse_reference(reference)
    trees = TreeCache(cache, RECORD)
    recipe = _recipe(wanted, cache)
    if (found := trees.find_named(recipe.name)) is not None:
        return _base(found, trees)
    with trees.making(say) as made:
        if (found := trees.find_named(recipe.name)) is not None:  # somebody had the turn before us
            return _base(found, trees)
        tree = made / "tree"
        tree.mkdir(mode=0o755)
        env = recipe.make(tree, say)
        settle(tree)
        record = trees.publish(made, recipe.name, kind=wanted.kind, reference=reference, env=env)
    say(f"base {record.key}: {record.entries} entries, {record.bytes / 2**20:.0f} MiB")
    return _base(record, trees)


def find_base(key: str, cache: Path) -> Base:
    """A base that was made before, by its key."""
    trees = TreeCache(cache, RECORD)
    record = trees.find(check_key(key))
    if record is None:
        raise NotFoundError("base.not_found", f"There is no base {key!r} on this host.")
    return _base(record, trees)


def list_bases(cache: Path) -> list[tuple[Base, Record]]:
    trees = TreeCache(cache, RECORD)
    return [(_base(record, trees), record) for record in trees.list()]


def remove_base(key: str, cache: Path, *, say: Say) -> None:
    """Remove a base; refused while a machine on this host runs on it."""
    TreeCache(cache, RECORD).remove(check_key(key), say)


def _base(record: Record, trees: TreeCache) -> Base:
    tree = trees.tree_of(record.key)
    kind = next(kind for kind in KINDS if kind == record.kind)
    if kind != "host":
        return Base(record.key, kind, tree, record.fingerprint, True, (tree,), record.env)
    return Base(record.key, kind, tree, host.fingerprint(), False, (tree, host.USR), record.env)


def _recipe(wanted: Reference, cache: Path) -> _Recipe:
    match wanted:
        case Reference("debian", packages=packages):
            return _Recipe(
                debian.recipe_name(packages), _nothing_more(lambda t, say: debian.make_debian(t, packages, say))
            )
        case Reference("host"):
            return _Recipe(_host_name(), _nothing_more(lambda tree, _: host.make_skeleton(tree)))
        case Reference("dir", path=Path() as path):
            return _Recipe(_folder_name(path), _nothing_more(lambda tree, say: _copy_folder(path, tree, say)))
        case Reference("tar", path=Path() as path):
            return _Recipe(_file_name("tar", path), _nothing_more(lambda tree, say: _unpack_tar(path, tree, say)))
        case Reference("oci", path=Path() as path, name=name):
            return _image_recipe(path, name, cache)
        case _:
            raise InvalidError("base.reference", f"No base can be made from {wanted!r}.")


def _nothing_more(make: Callable[[Path, Say], None]) -> Callable[[Path, Say], Env]:
    def made(tree: Path, say: Say) -> Env:
        make(tree, say)
        return ()

    return made


def _host_name() -> str:
    """The skeleton is copied again whenever a package or the loader's cache has changed."""
    places = (Path("/var/lib/dpkg/status"), Path("/etc/ld.so.cache"), Path("/etc/ssl/certs"), Path("/etc/alternatives"))
    return f"{host.RECIPE_NAME} {[path.stat().st_mtime_ns for path in places if path.exists()]}"


def _file_name(kind: str, path: Path) -> str:
    """A file that was not touched has the same content: the time of its last change cannot be set back."""
    try:
        found = path.stat()
    except OSError as error:
        raise NotFoundError("base.no_source", f"{str(path)!r} cannot be read: {error.strerror}.") from None
    facts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return f"{kind} {path} {facts}"


def _folder_name(path: Path) -> str:
    """The same for a folder: one look at each entry, none into it."""
    if not path.is_dir():
        raise NotFoundError("base.no_source", f"There is no folder {str(path)!r}.")
    hasher = blake3(os.fsencode(path))
    waiting = [os.fspath(path)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                found = entry.stat(follow_symlinks=False)
                facts = (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                hasher.update(f"{entry.path!r} {facts}\n".encode(errors="backslashreplace"))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return f"dir {hasher.hexdigest()}"


def _copy_folder(path: Path, tree: Path, say: Say) -> None:
    """Through a tar, so that what holds for archives holds for folders: no devices, no setuid, nothing from outside."""
    say(f"copying {path}")
    argv = ["/usr/bin/tar", "--one-file-system", "--numeric-owner", "--format=posix", "-C", str(path), "-cf", "-", "."]
    with subprocess.Popen(  # noqa: S603
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as tar:
        assert tar.stdout is not None
        try:
            unpack(tree, tar.stdout, str(path), say, bounds=Bounds())
            code = tar.wait(_STOP_TAR_WITHIN_S)
        except BaseException:
            tar.kill()
            raise
    if code == _TAR_CHANGED:
        say(f"{path} changed while it was copied: the base has some of it before and some after")
    elif code != 0:
        raise InvalidError("base.bad_source", f"{str(path)!r} cannot be read to its end.")


def _unpack_tar(path: Path, tree: Path, say: Say) -> None:
    say(f"unpacking {path}")
    with path.open("rb") as source:
        unpack(tree, decompressed(source), str(path), say, bounds=Bounds())


def _image_recipe(path: Path, name: str | None, cache: Path) -> _Recipe:
    def make(tree: Path, say: Say) -> Env:
        with open_image(path, tree.parent) as files:
            image = read_image(files, name)
            unpack_image(files, image, tree, say, Bounds())
        return image.env

    if path.is_dir():  # the digests in it name the content better than any time
        with open_image(path, cache) as files:
            return _Recipe(f"oci {read_image(files, name).name}", make)
    return _Recipe(f"{_file_name('oci', path)} {name}", make)
