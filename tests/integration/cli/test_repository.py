"""A repository goes into a machine as it is on the screen, and is not touched by it."""

import os
import subprocess
from pathlib import Path

import pytest

from outlive.base import ExhaustedError, InvalidError
from outlive.cli.repository import is_address, make_bundle

IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(where), *arguments],
        env={**os.environ, **IDENTITY},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "--quiet", "--initial-branch=work")
    (project / "kept.txt").write_text("one\n")
    (project / "gone.txt").write_text("gone\n")
    (project / ".gitignore").write_text("secret.env\n")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "First")
    return project


def cloned(content: bytes, tmp_path: Path) -> Path:
    bundle, clone = tmp_path / "got.bundle", tmp_path / "clone"
    bundle.write_bytes(content)
    git(tmp_path, "clone", "--quiet", str(bundle), str(clone))
    return clone


def state_of(project: Path) -> tuple[str, ...]:
    refs = git(project, "for-each-ref")
    objects = git(project, "count-objects", "-v")
    return git(project, "status", "--porcelain"), git(project, "rev-parse", "HEAD"), refs, objects


def test_what_is_checked_out_comes_with_its_history(project: Path, tmp_path: Path) -> None:
    bundle = make_bundle(project)
    assert (bundle.has_changes, bundle.has_history) == (False, True)
    clone = cloned(bundle.content, tmp_path)
    assert git(clone, "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD")
    assert git(clone, "rev-parse", "--abbrev-ref", "HEAD") == "work"


def test_what_is_not_committed_is_a_commit_on_top_and_nothing_is_touched(project: Path, tmp_path: Path) -> None:
    (project / "kept.txt").write_text("two\n")
    (project / "staged.txt").write_text("staged\n")
    git(project, "add", "staged.txt")
    (project / "new ü.txt").write_text("new\n")
    (project / "secret.env").write_text("PASSWORD=1\n")
    (project / "gone.txt").unlink()
    before = state_of(project)
    bundle = make_bundle(project / "kept.txt")  # from anywhere in it
    assert (bundle.has_changes, bundle.has_history) == (True, True)
    assert state_of(project) == before
    clone = cloned(bundle.content, tmp_path)
    assert git(clone, "rev-parse", "HEAD^") == git(project, "rev-parse", "HEAD")
    shown = sorted(path.name for path in clone.iterdir() if path.name != ".git")
    assert shown == [".gitignore", "kept.txt", "new ü.txt", "staged.txt"]
    assert (clone / "kept.txt").read_text() == "two\n"


def test_a_change_in_the_very_moment_of_the_commit_is_seen(project: Path) -> None:
    """Of the same length, too: git tells it by the time of the index alone, and of that we read a copy."""
    git(project, "config", "core.trustctime", "false")
    kept, index = project / "kept.txt", project / ".git" / "index"
    a_while_ago = kept.stat().st_mtime - 10
    os.utime(kept, (a_while_ago, a_while_ago))
    git(project, "update-index", "--refresh")
    kept.write_text("two\n")
    for written in (kept, index):
        os.utime(written, (a_while_ago, a_while_ago))
    assert make_bundle(project).has_changes


def test_hooks_of_the_repository_do_not_run(project: Path) -> None:
    for name in ("post-index-change", "pre-commit", "reference-transaction"):
        hook = project / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {project}/ran\n")
        hook.chmod(0o755)
    (project / "kept.txt").write_text("two\n")
    assert make_bundle(project).has_changes
    assert not (project / "ran").exists()


def test_a_repository_without_a_commit_is_taken_as_it_is(tmp_path: Path) -> None:
    project = tmp_path / "empty"
    project.mkdir()
    git(project, "init", "--quiet", "--initial-branch=work")
    (project / "a.txt").write_text("a\n")
    bundle = make_bundle(project)
    assert (bundle.has_changes, bundle.has_history) == (True, False)
    assert (cloned(bundle.content, tmp_path) / "a.txt").read_text() == "a\n"


def test_a_shallow_one_and_a_long_history_go_without_it(project: Path, tmp_path: Path) -> None:
    (project / "big.bin").write_bytes(os.urandom(200_000))
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "Big")
    git(project, "rm", "--quiet", "big.bin")
    git(project, "commit", "--quiet", "-m", "Small again")
    bundle = make_bundle(project, limit=100_000)
    assert not bundle.has_history
    assert (cloned(bundle.content, tmp_path) / "kept.txt").read_text() == "one\n"
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{project}", str(shallow))
    assert not make_bundle(shallow).has_history
    (project / "big.bin").write_bytes(os.urandom(200_000))
    with pytest.raises(ExhaustedError) as refused:
        make_bundle(project, limit=100_000)
    assert refused.value.code == "repo.too_large"


def test_a_worktree_of_a_repository_is_one_too(project: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(project, "worktree", "add", "--quiet", "-b", "other", str(tree))
    (tree / "kept.txt").write_text("in the tree\n")
    clone = cloned(make_bundle(tree).content, tmp_path)
    assert (clone / "kept.txt").read_text() == "in the tree\n"
    assert git(clone, "rev-parse", "--abbrev-ref", "HEAD") == "other"


def test_what_is_no_repository_is_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as refused:
        make_bundle(tmp_path)
    assert refused.value.code == "repo.not_git"
    assert str(tmp_path) in refused.value.message
    with pytest.raises(InvalidError) as missing:
        make_bundle(tmp_path / "nothing")
    assert missing.value.code == "repo.missing"


@pytest.mark.parametrize(
    ("repo", "is_one"),
    [
        ("https://example.org/a.git", True),
        ("ssh://git@example.org/a", True),
        ("git@example.org:a/b.git", True),
        (".", False),
        ("/srv/a:b", False),
        ("../project", False),
        ("project", False),
    ],
)
def test_an_address_is_told_from_a_path(repo: str, is_one: bool) -> None:
    assert is_address(repo) == is_one
