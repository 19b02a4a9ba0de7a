"""The repository as the style tests see it: what git tracks, or would (new files that it does not ignore)."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "outlive"
SAMPLE = "src/outlive/cli/sample/"  # a project of its own, that the demo gives to an agent


@cache
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=30,
    ).stdout
    paths = (ROOT / name for name in listed.decode().split("\0") if name)
    return tuple(sorted({path for path in paths if path.is_file()}))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> list[Path]:
    """All Python files under `folders`, or under every folder that has code."""
    return [
        path
        for path in tracked()
        if path.suffix == ".py"
        and name_of(path).startswith(folders or ("src/", "tests/", "bench/", "scripts/"))
        and not name_of(path).startswith(SAMPLE)
    ]


def markdown_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def text_of(path: Path) -> str | None:
    """The text of a file; nothing if it is not text (a picture, a damaged golden file)."""
    content = path.read_bytes()
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=name_of(path))
