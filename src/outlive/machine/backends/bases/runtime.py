"""The guest's runtime: the Python that runs us, taken apart and put together again so that it runs on any base.

    bin/python3        the interpreter
    lib/               the loader and every shared library that the interpreter and its modules need
    lib/pythonX.Y/     the standard library, compiled; for what is not in the bundle
    app/outlive/guest  the guest
    bundle             all modules that the guest needs, compiled
    boot.pyc           starts it from the bundle

Rule 1: it is started through its own loader and its own libraries. A base without Python or with another C library
        will do, and nothing done to the `/usr` of a machine can break its PID 1.
Rule 2: it is bound read-only to `/.outlive` and nowhere else: the path is written into it.
Rule 3: a start compiles nothing and looks for as little as it can: in a sandbox, each look takes its time.
"""

import os
import py_compile
import shutil
from pathlib import Path

from blake3 import blake3

import outlive.guest
from outlive.base import NotFoundError
from outlive.machine.backends.bases.boot import PLACE
from outlive.machine.backends.bases.bundling import write_bundle
from outlive.machine.backends.bases.interpreter import LOADER, UNCHECKED, ensure_python, python_name, set_modes
from outlive.machine.backends.bases.tree_cache import Record, Say, TreeCache
from outlive.machine.base import Runtime, check_key

VERSION = 2
RECORD = "runtime.json"
_BOOT = Path(__file__).with_name("boot.py")


def ensure_runtime(cache: Path, *, say: Say) -> Runtime:
    """The runtime of this Python and this guest. Instant if it was made before."""
    return ensure_runtime_of(_our_guest(), cache, say=say)


def look_for_runtime(cache: Path) -> Record | None:
    """What is known of the runtime that `ensure_runtime` would return at once; None if it would have to make it."""
    return TreeCache(cache, RECORD).find_named(_recipe_name(_our_guest()))


def ensure_runtime_of(guest: Path, cache: Path, *, say: Say) -> Runtime:
    """The same for a guest whose package is elsewhere."""
    trees = TreeCache(cache, RECORD)
    name = _recipe_name(guest)
    if (found := trees.find_named(name)) is not None:
        return _runtime(found, trees)
    python = ensure_python(cache, say=say)
    with trees.making(say) as made:
        if (found := trees.find_named(name)) is not None:
            return _runtime(found, trees)
        say("putting the guest's runtime together")
        _compose(made / "tree", python, guest)
        record = trees.publish(made, name, kind="runtime", reference=name, env=())
    say(f"runtime {record.key}: {record.bytes / 2**20:.0f} MiB")
    return _runtime(record, trees)


def find_runtime(key: str, cache: Path) -> Runtime:
    """One that was made before, by its key: what the memory of a checkpoint goes on with."""
    trees = TreeCache(cache, RECORD)
    record = trees.find(check_key(key))
    if record is None:
        raise NotFoundError("runtime.missing", f"The guest's runtime {key!r} is not on this host.")
    return _runtime(record, trees)


def _our_guest() -> Path:
    return Path(next(iter(outlive.guest.__path__)))


def _runtime(record: Record, trees: TreeCache) -> Runtime:
    tree = trees.tree_of(record.key)
    return Runtime(record.key, tree, (*_start(PLACE, (tree / LOADER).read_text()), f"{PLACE}/boot.pyc"))


def _start(place: str, loader: str) -> tuple[str, ...]:
    """How the interpreter is started when the tree is at `place`: by its own loader, and with nothing from outside."""
    by_loader = (f"{place}/lib/{loader}", "--inhibit-cache", "--library-path", f"{place}/lib", f"{place}/bin/python3")
    return (*by_loader, "-I", "-S", "-B", "-X", "utf8")


def _recipe_name(guest: Path) -> str:
    """What it is made from: this Python, and the guest by its content."""
    hasher = blake3(_BOOT.read_bytes())
    for path in _sources(guest):
        hasher.update(f"{path.relative_to(guest)} {path.stat().st_size}\n".encode())
        hasher.update(path.read_bytes())
    return f"runtime {VERSION} {python_name()} {hasher.hexdigest()}"


def _sources(guest: Path) -> list[Path]:
    return sorted(path for path in guest.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _compose(tree: Path, python: Path, guest: Path) -> None:
    shutil.copytree(python, tree, copy_function=os.link)
    app = tree / "app" / "outlive"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    shutil.copytree(guest, app / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    write_bundle(tree, _start(str(tree), (tree / LOADER).read_text()))
    boot = tree / "boot.pyc"
    py_compile.compile(str(_BOOT), str(boot), f"{PLACE}/boot.py", doraise=True, invalidation_mode=UNCHECKED)
    set_modes(tree)
