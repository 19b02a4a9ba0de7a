"""The Python of the guest's runtime: interpreter, standard library, shared libraries; from the one that runs us.

Made once for each Python of a host. The runtimes of one guest after the other share its files (as hard links), so
that a new guest costs neither time nor room.
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

from outlive.base import UnavailableError
from outlive.machine.backends.bases.boot import PLACE
from outlive.machine.backends.bases.tree_cache import Say, TreeCache

VERSION = 1
RECORD = "python.json"
LOADER = "loader"  # a file that names the loader in `lib`
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
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


def python_name() -> str:
    """What it is made from: this interpreter, by the time of its last change."""
    interpreter, stdlib = _interpreter(), _stdlib()
    times = [path.stat().st_mtime_ns for path in (interpreter, stdlib, stdlib / "lib-dynload")]
    return f"python {VERSION} {sys.version} {interpreter} {times}"


def ensure_python(cache: Path, *, say: Say) -> Path:
    """The tree of this Python. Instant if it was made before."""
    trees = TreeCache(cache, RECORD)
    name = python_name()
    if (found := trees.find_named(name)) is not None:
        return trees.tree_of(found.key)
    with trees.making(say) as made:
        if (found := trees.find_named(name)) is None:
            say(f"taking Python {sys.version.split()[0]} apart for the guest's runtime")
            _compose(made / "tree")
            found = trees.publish(made, name, kind="python", reference=name, env=())
    return trees.tree_of(found.key)


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()  # in a venv: the Python it was made from


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _compose(tree: Path) -> None:
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
    (tree / LOADER).write_text(loader)
    _compile(python)
    set_modes(tree)


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
    return loader


def _compile(python: Path) -> None:
    """The standard library as compiled files alone: a third of the size, and one look less at each import."""
    place = f"{PLACE}/lib/{python.name}"
    compileall.compile_dir(
        python, quiet=2, stripdir=str(python), prependdir=place, legacy=True, optimize=2, invalidation_mode=UNCHECKED
    )
    for source in python.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()


def set_modes(tree: Path) -> None:
    """Anybody in a machine may read and run it. Times are all alike: they are no part of what it is."""
    programs = {tree / "bin" / "python3"}
    for folder, folders, files in os.walk(tree):
        for name in folders:
            (Path(folder) / name).chmod(0o755)
        for name in files:
            path = Path(folder) / name
            path.chmod(0o755 if path in programs or name.startswith("ld-") else 0o644)
    tree.chmod(0o755)
