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

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

import outlive.guest
from outlive.base import NotFoundError, UnavailableError
from outlive.machine.backends.bases.boot import PLACE
from outlive.machine.backends.bases.bundling import write_bundle
from outlive.machine.backends.bases.tree_cache import Record, Say, TreeCache
from outlive.machine.base import Runtime, check_key

VERSION = 1
RECORD = "runtime.json"
_LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "*.pyc", "*.a", "*.o", "config-*", "site-packages", "dist-packages", "lib-dynload"),
    *("test", "tests", "idlelib", "idle_test", "tkinter", "turtle.py", "turtledemo", "ensurepip", "lib2to3"),
    *(
        "pydoc_data",
        "distutils",
        "asyncio",
        "unittest",
        "xml",
        "xmlrpc",
        "email",
        "http",
        "wsgiref",
        "sqlite3",
        "sitecustomize.py",
        "usercustomize.py",
        "EXTERNALLY-MANAGED",
        "LICENSE.txt",
    ),
)
# Modules that a guest has no use for, and that would bring large libraries along.
_NO_MODULE = re.compile(
    r"_tkinter|_test|_ctypes|_xx|xx|readline|_curses|_dbm|_gdbm|nis|ossaudiodev|_ssl|_hashlib|_sqlite3|_lzma|_bz2|_uuid|_crypt"
)
_LIBRARY = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found$", re.MULTILINE)
_LDD_WITHIN_S = 60.0
_BOOT = Path(__file__).with_name("boot.py")
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


def ensure_runtime(cache: Path, *, say: Say) -> Runtime:
    """The runtime of this Python and this guest. Instant if it was made before."""
    return ensure_runtime_of(Path(next(iter(outlive.guest.__path__))), cache, say=say)


def ensure_runtime_of(guest: Path, cache: Path, *, say: Say) -> Runtime:
    """The same for a guest whose package is elsewhere."""
    trees = TreeCache(cache, RECORD)
    name = _recipe_name(guest)
    if (found := trees.find_named(name)) is not None:
        return _runtime(found, trees)
    with trees.making(say) as made:
        if (found := trees.find_named(name)) is not None:
            return _runtime(found, trees)
        say(f"composing the guest's runtime from Python {sys.version.split()[0]}")
        tree = made / "tree"
        loader = _compose(tree, guest)
        (tree / "loader").write_text(loader)
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


def _runtime(record: Record, trees: TreeCache) -> Runtime:
    tree = trees.tree_of(record.key)
    return Runtime(record.key, tree, (*_start(PLACE, (tree / "loader").read_text()), f"{PLACE}/boot.pyc"))


def _start(place: str, loader: str) -> tuple[str, ...]:
    """How the interpreter is started when the tree is at `place`: by its own loader, and with nothing from outside."""
    by_loader = (f"{place}/lib/{loader}", "--inhibit-cache", "--library-path", f"{place}/lib", f"{place}/bin/python3")
    return (*by_loader, "-I", "-S", "-B", "-X", "utf8")


def _recipe_name(guest: Path) -> str:
    """What it is made from: this interpreter, by the time of its last change, and the guest, by its content."""
    hasher = blake3(_BOOT.read_bytes())
    for path in _sources(guest):
        hasher.update(f"{path.relative_to(guest)} {path.stat().st_size}\n".encode())
        hasher.update(path.read_bytes())
    interpreter, stdlib = _interpreter(), _stdlib()
    times = [path.stat().st_mtime_ns for path in (interpreter, stdlib, stdlib / "lib-dynload")]
    return f"runtime {VERSION} {sys.version} {interpreter} {times} {hasher.hexdigest()}"


def _sources(guest: Path) -> list[Path]:
    return sorted(path for path in guest.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()  # in a venv: the Python it was made from


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _compose(tree: Path, guest: Path) -> str:
    """Fill `tree`; the answer is the name of the loader in its `lib`."""
    lib = tree / "lib"
    python = lib / _stdlib().name
    (tree / "bin").mkdir(parents=True)
    shutil.copyfile(_interpreter(), tree / "bin" / "python3")
    shutil.copytree(_stdlib(), python, ignore=_LEFT_OUT, symlinks=False, ignore_dangling_symlinks=True)
    modules = python / "lib-dynload"
    modules.mkdir()
    for module in (_stdlib() / "lib-dynload").glob("*.so"):
        if not _NO_MODULE.match(module.name):
            shutil.copyfile(module, modules / module.name)
    loader = _copy_libraries([tree / "bin" / "python3", *modules.iterdir()], _interpreter(), lib)
    app = tree / "app" / "outlive"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    shutil.copytree(guest, app / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    write_bundle(tree, _start(str(tree), loader))
    py_compile.compile(
        str(_BOOT), str(tree / "boot.pyc"), f"{PLACE}/boot.py", doraise=True, invalidation_mode=_UNCHECKED
    )
    _compile(python)
    _set_modes(tree)
    return loader


def _copy_libraries(programs: Iterable[Path], interpreter: Path, lib: Path) -> str:
    """Everything that the loader would look for on this host, under the names that it looks for."""
    environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(interpreter.parent.parent / "lib")}
    answer = subprocess.run(  # noqa: S603
        ["/usr/bin/ldd", *map(str, programs)],
        capture_output=True,
        text=True,
        timeout=_LDD_WITHIN_S,
        env=environment,
        check=False,
    ).stdout
    if missing := sorted(set(_MISSING.findall(answer))):
        raise UnavailableError("runtime.library", f"This Python lacks the shared library {missing[0]!r}: install it.")
    found = {match["name"] or Path(match["path"]).name: Path(match["path"]) for match in _LIBRARY.finditer(answer)}
    found = {Path(name).name: path for name, path in found.items()}
    loader = next((name for name in sorted(found) if name.startswith("ld-")), None)
    if loader is None:
        raise UnavailableError(
            "runtime.static", "This Python is not linked to a C library as we know it: run Outlive on Debian's Python."
        )
    for name, path in found.items():
        shutil.copyfile(path, lib / name)
    (lib / loader).chmod(0o755)
    return loader


def _compile(python: Path) -> None:
    """The standard library as compiled files alone: half the size, and one look less at each import."""
    place = f"{PLACE}/lib/{python.name}"
    compileall.compile_dir(
        python, quiet=2, stripdir=str(python), prependdir=place, legacy=True, invalidation_mode=_UNCHECKED
    )
    for source in python.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()


def _set_modes(tree: Path) -> None:
    """Anybody in a machine may read and run it. Times are all alike: they are no part of what it is."""
    programs = {tree / "bin" / "python3"}
    for folder, folders, files in os.walk(tree):
        for name in folders:
            (Path(folder) / name).chmod(0o755)
        for name in files:
            path = Path(folder) / name
            path.chmod(0o755 if path in programs or name.startswith("ld-") else 0o644)
    tree.chmod(0o755)
