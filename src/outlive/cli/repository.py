"""A repository of this host as a git bundle: what `outlive run --repo` gives to a machine.

The bundle has the commit that is checked out, with its history, and what is not committed (without what is ignored) as
a commit on top. Nothing of the repository is changed: objects, index and references are made beside it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from outlive.base import DeadlineError, ExhaustedError, InvalidError, UnavailableError

BUNDLE_LIMIT = 64 * 1024 * 1024  # bytes of a blob
GIT_S = 300.0  # that one call of git may take
_SAID = 500  # characters of what git said
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Outlive"), ("EMAIL", "outlive@localhost"))
}
# What the caller's environment says about another repository does not count.
_NOT_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
# Neither hooks nor a watcher of the user's: nothing but git itself runs.
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")


class Bundle(NamedTuple):
    content: bytes
    has_changes: bool  # that were not committed
    has_history: bool


def is_address(repo: str) -> bool:
    """Whether this is the address of a repository elsewhere, and not a path of this host."""
    if "://" in repo:
        return True
    host, colon, _ = repo.partition(":")
    return bool(colon) and "/" not in host and not Path(repo).exists()


def make_bundle(path: Path, limit: int = BUNDLE_LIMIT) -> Bundle:
    """Refused with one of our errors if there is no repository at `path`, or it is too large even without history."""
    if not path.exists():
        raise InvalidError("repo.missing", f"There is nothing at {str(path)!r}.")
    if shutil.which("git") is None:
        raise UnavailableError("repo.no_git", "There is no git on this host, which --repo with a path needs.")
    with tempfile.TemporaryDirectory(prefix="outlive-repo-") as scratch:
        return _Bundling(path, Path(scratch)).make(limit)


class _Bundling:
    def __init__(self, path: Path, scratch: Path) -> None:
        self._scratch = scratch
        self._git_dir = scratch / "bare.git"
        try:
            self._top = Path(_git(path, "rev-parse", "--show-toplevel"))
        except InvalidError as error:
            raise InvalidError(
                "repo.not_git", f"{str(path)!r} is not in a git repository's working tree ({error.message})"
            ) from None
        # Where it was asked for from: one that is relative is relative to there.
        self._objects = (self._top / _git(self._top, "rev-parse", "--git-path", "objects")).resolve()
        self._head = _git_or_none(self._top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        self._branch = _git_or_none(self._top, "symbolic-ref", "--quiet", "--short", "HEAD") or "main"

    def make(self, limit: int) -> Bundle:
        self._prepare()
        tree = self._tree_of_now()
        is_shallow = _git(self._top, "rev-parse", "--is-shallow-repository") == "true"
        has_changes = self._head is None or tree != _git(self._top, "rev-parse", f"{self._head}^{{tree}}")
        if self._head is not None and not is_shallow:
            commit = self._commit(tree, self._head) if has_changes else self._head
            content = self._bundle(commit, limit)
            if content is not None:
                return Bundle(content, has_changes, has_history=True)
        content = self._bundle(self._commit(tree, None), limit)
        if content is None:
            raise ExhaustedError(
                "repo.too_large",
                f"The repository is larger than {limit:,} bytes, even without its history.",
                limit=limit,
            )
        return Bundle(content, has_changes, has_history=False)

    def _prepare(self) -> None:
        """A repository of our own beside it, that reads its objects and writes none there."""
        _git(self._scratch, "init", "--quiet", "--bare", str(self._git_dir))
        alternates = self._git_dir / "objects" / "info" / "alternates"
        alternates.write_text(f"{self._objects}\n", encoding="utf-8")

    def _tree_of_now(self) -> str:
        """What is in the working tree, as a tree. The index is a copy: it knows what of the tree is left out on purpose
        (a sparse checkout)."""
        index = self._scratch / "index"
        theirs = self._top / _git(self._top, "rev-parse", "--git-path", "index")
        if theirs.exists():
            shutil.copy2(theirs, index)  # with its time, by which git knows what changed in the moment it was written
        beside = {
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(self._git_dir / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._objects),
        }
        _git(self._top, "add", "--all", env=beside)
        return _git(self._top, "write-tree", env=beside)

    def _commit(self, tree: str, parent: str | None) -> str:
        on_top = ("-p", parent) if parent is not None else ()
        message = "Changes that were not committed" if parent is not None else "As it was, without its history"
        return self._ours("commit-tree", tree, *on_top, "-m", message)

    def _bundle(self, commit: str, limit: int) -> bytes | None:
        """None: it is larger than `limit`."""
        reference = f"refs/heads/{self._branch}"
        self._ours("update-ref", reference, commit)
        self._ours("symbolic-ref", "HEAD", reference)
        file = self._scratch / "bundle"
        self._ours("bundle", "create", "--quiet", str(file), "HEAD", reference)
        return file.read_bytes() if file.stat().st_size <= limit else None

    def _ours(self, *arguments: str) -> str:
        return _git(self._scratch, f"--git-dir={self._git_dir}", *arguments, env=_IDENTITY)


def _git(where: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What git prints. Refused with what it says if it fails."""
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    try:
        done = subprocess.run(  # noqa: S603
            ["git", *_QUIET, "-C", str(where if where.is_dir() else where.parent), *arguments],  # noqa: S607
            env={**inherited, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeadlineError("repo.slow", f"git took more than {GIT_S:g} s with the repository.") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-_SAID:]
        raise InvalidError("repo.git_failed", f"git {arguments[0]}: {said or f'exit code {done.returncode}'}")
    return done.stdout.decode(errors="surrogateescape").strip()


def _git_or_none(where: Path, *arguments: str) -> str | None:
    try:
        return _git(where, *arguments) or None
    except InvalidError:
        return None
