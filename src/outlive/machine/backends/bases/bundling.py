"""The bundle of the guest's runtime: every module that the guest needs, compiled, in one file for `boot.py`."""

import ast
import json
import marshal
import subprocess
from pathlib import Path
from typing import NamedTuple

from outlive.base import BrokenError
from outlive.machine.backends.bases.boot import MAIN, PLACE

_WITHIN_S = 120.0
_PYC_HEADER = 16
# Runs in the composed runtime itself, so that what it finds is what will be there.
_LOOK = """
import importlib, json, sys
app, names = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, app)
for name in names:
    try:
        importlib.import_module(name)
    except ImportError:
        if name.startswith("outlive."):
            raise
specs = [(name, getattr(module, "__spec__", None)) for name, module in sys.modules.items() if name != "__main__"]
print(json.dumps([
    (name, spec.origin, spec.submodule_search_locations is not None)
    for name, spec in specs if spec is not None and spec.has_location
]))
"""


class _Found(NamedTuple):
    name: str
    file: str
    is_package: bool


def write_bundle(tree: Path, start: tuple[str, ...]) -> None:
    """Write `tree/bundle`. `start` is how the interpreter in the tree is started where it is now."""
    app = tree / "app"
    names = sorted(_imported(app / "outlive" / "guest"))
    sources: dict[str, tuple[bool, str, bytes]] = {}
    extensions: dict[str, str] = {}
    main = _Found(MAIN, str(app.joinpath(*MAIN.split("."))) + ".py", False)
    for found in [*_look(start, app, names), main]:
        path = Path(found.file)
        place = f"{PLACE}/{path.relative_to(tree)}"
        if path.suffix == ".py":
            code = compile(path.read_bytes(), place, "exec", dont_inherit=True, optimize=0)
            sources[found.name] = (found.is_package, place, marshal.dumps(code))
        elif path.suffix == ".pyc":
            sources[found.name] = (found.is_package, place, path.read_bytes()[_PYC_HEADER:])
        else:
            extensions[found.name] = place
    first = sorted(_imports_of(Path(main.file)) & sources.keys())
    (tree / "bundle").write_bytes(marshal.dumps((sources, extensions, first)))


def _imported(guest: Path) -> set[str]:
    """The guest's own modules but the one that runs it, and all that any of them imports, early or late."""
    names = {f"outlive.guest.{path.stem}" for path in guest.glob("*.py") if not path.stem.startswith("__")}
    return names.union({"outlive.guest"}, *map(_imports_of, guest.glob("*.py")))


def _imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def _look(start: tuple[str, ...], app: Path, names: list[str]) -> list[_Found]:
    argv = [*start, "-c", _LOOK, str(app), json.dumps(names)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_WITHIN_S, env={}, check=False)  # noqa: S603
    if done.returncode != 0:
        raise BrokenError("runtime.guest", f"The guest cannot be imported in its runtime:\n{done.stderr[-2_000:]}")
    return [_Found(*found) for found in json.loads(done.stdout)]
