"""The sample project that `outlive demo` gives to an agent, as a git bundle. It lies beside this file, in `sample/`."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from outlive.base import UnavailableError

SAMPLE = Path(__file__).with_name("sample")
WITHIN_S = 30.0

_ANYBODY = {"NAME": "Outlive", "EMAIL": "demo@outlive.invalid", "DATE": "2026-01-01T00:00:00Z"}


def bundle_sample() -> bytes:
    """A git bundle of one commit, always the same: whoever has run the demo before stores nothing new."""
    with tempfile.TemporaryDirectory(prefix="outlive-sample-") as folder:
        tree = Path(folder, "pager")
        shutil.copytree(SAMPLE, tree, ignore=shutil.ignore_patterns("__pycache__"))
        _git(tree, "init", "--quiet", "--initial-branch=main")
        _git(tree, "add", "--all")
        _git(tree, "commit", "--quiet", "--message=Pages for long lists")
        _git(tree, "bundle", "create", "--quiet", "../pager.bundle", "HEAD", "main")
        return Path(folder, "pager.bundle").read_bytes()


def _git(tree: Path, *arguments: str) -> None:
    """Git as it is, whatever its user has configured."""
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _ANYBODY.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UnavailableError("demo.no_git", "The demo needs git to make its sample project: install it.") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise UnavailableError("demo.no_git", f"git could not make the sample project: {said}")
