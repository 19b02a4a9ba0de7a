"""The guest's runtime starts as PID 1 on any base: on Debian, and where there is nothing at all."""

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.machine.bases.archives import nothing
from integration.machine.bases.sandbox import run_in_sandbox
from outlive.machine.backends.bases.runtime import ensure_runtime, ensure_runtime_of
from outlive.machine.backends.bases.tree_cache import remove_tree
from outlive.machine.base import Runtime

STAND_IN = """\
import json, os, sys
import fcntl, hashlib, pty, select, signal, socket, struct, subprocess, termios, threading
maps = {line.split()[5] for line in open("/proc/self/maps") if "/" in line}
specs = {name: getattr(module, "__spec__", None) for name, module in sys.modules.items()}
print(json.dumps({
    "pid": os.getpid(), "name": __name__, "package": __package__, "path": sys.path, "file": __file__,
    "encoding": sys.getfilesystemencoding(), "arguments": sys.argv[1:], "maps": sorted(maps),
    "isolated": sys.flags.isolated, "site": "site" in sys.modules,
    "found one by one": [name for name, spec in specs.items() if "FileLoader" in repr(spec and spec.loader)
                         and "Extension" not in repr(spec.loader)],
    "late": __import__("tokenize").__name__, "package files": subprocess.__file__,
}))
"""


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runtime") / "runtimes"
    yield folder
    remove_tree(folder)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guest") / "guest"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(STAND_IN)
    return folder


@pytest.fixture(scope="module")
def runtime(guest: Path, runtimes: Path) -> Runtime:
    return ensure_runtime_of(guest, runtimes, say=nothing)


def test_it_starts_as_pid_1_where_there_is_nothing_else(runtime: Runtime, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    for name in ("proc", "tmp", ".outlive"):
        (empty / name).mkdir(parents=True)
    ended = run_in_sandbox(tmp_path, empty, runtime, [*runtime.argv, "--socket", "ü"])
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["pid"] == 1
    assert (found["name"], found["package"]) == ("__main__", "outlive.guest")
    assert found["encoding"] == "utf-8"
    assert found["arguments"] == ["--socket", "ü"]
    assert (found["isolated"], found["site"]) == (1, False)
    assert all(path.startswith("/.outlive/") for path in [*found["path"], found["file"], *found["maps"]])


def test_libraries_modules_and_settings_of_the_base_are_not_used(runtime: Runtime, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    for name in ("proc", "tmp", ".outlive", "lib/x86_64-linux-gnu", "usr/lib", "etc", "lib64"):
        (hostile / name).mkdir(parents=True)
    (hostile / "etc" / "ld.so.cache").write_bytes(os.urandom(4096))
    for name in (
        "lib/x86_64-linux-gnu/libc.so.6",
        "lib64/libc.so.6",
        "usr/lib/libm.so.6",
        "lib64/ld-linux-x86-64.so.2",
    ):
        (hostile / name).write_bytes(b"\x7fELF but no more")
    for name in ("json.py", "os.py", "sitecustomize.py", "pyvenv.cfg", "python311.zip"):
        (hostile / name).write_text("raise SystemExit('taken from the base')")
    ended = run_in_sandbox(tmp_path, hostile, runtime, runtime.argv)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["pid"] == 1


def test_a_start_looks_for_no_module_of_the_guest_one_by_one(runtime: Runtime, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    for name in ("proc", "tmp", ".outlive"):
        (empty / name).mkdir(parents=True)
    found = json.loads(run_in_sandbox(tmp_path, empty, runtime, runtime.argv).out)
    assert all(name.startswith("encodings") for name in found["found one by one"]), "the interpreter's own"
    assert found["late"] == "tokenize", "what is not in the bundle is still there"
    assert found["package files"].endswith("/subprocess.pyc")


def test_anybody_in_a_machine_may_read_it_and_only_the_guest_is_there_as_source(runtime: Runtime) -> None:
    for path in runtime.path.rglob("*"):
        assert path.stat().st_mode & 0o004, path
        assert not path.is_symlink()
    sources = {path.relative_to(runtime.path).parts[0] for path in runtime.path.rglob("*.py")}
    assert sources == {"app"}


def test_it_is_made_once_and_again_for_another_guest(
    guest: Path, runtimes: Path, runtime: Runtime, tmp_path: Path
) -> None:
    said: list[str] = []
    assert ensure_runtime_of(guest, runtimes, say=said.append) == runtime
    assert said == []
    other = tmp_path / "guest"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "__main__.py").write_text("print('other')")
    assert ensure_runtime_of(other, runtimes, say=said.append).key != runtime.key


def test_the_guest_itself_starts_and_can_import_all_of_itself(runtimes: Path, tmp_path: Path) -> None:
    real = ensure_runtime(runtimes, say=nothing)
    empty = tmp_path / "empty"
    for name in ("proc", "tmp", ".outlive"):
        (empty / name).mkdir(parents=True)
    modules = sorted(path.stem for path in (real.path / "app" / "outlive" / "guest").glob("[!_]*.py"))
    program = textwrap.dedent(f"""
        import importlib, sys
        sys.path.insert(0, "/.outlive/app")
        for name in {modules!r}:
            importlib.import_module("outlive.guest." + name)
        print("all", len({modules!r}))
    """)
    ended = run_in_sandbox(tmp_path, empty, real, [*real.argv[:-1], "-c", program])
    assert (ended.code, ended.out.strip()) == (0, f"all {len(modules)}"), ended.err
    assert modules
    refused = run_in_sandbox(tmp_path, empty, real, [*real.argv, "--no-such-option=1"])
    assert refused.code != 0
    assert "no-such-option" in refused.err, "its own first lines ran"
