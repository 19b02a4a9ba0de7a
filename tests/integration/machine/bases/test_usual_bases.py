"""The bases that come with Outlive: Debian as set-up makes it, and the host's own `/usr`, each run in a sandbox."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.machine.bases.archives import nothing
from integration.machine.bases.sandbox import overlay, run_in_sandbox
from outlive.machine.backends.bases import ensure_base, ensure_runtime, host
from outlive.machine.backends.bases.host import fingerprint
from outlive.machine.base import Base, Runtime
from outlive.wiring.bases import BASES, RUNTIMES

LOOK = """
cd /workspace && id -un && id -u && echo $HOME
for tool in bash python3 git curl gcc make ps less vi file zstd xz unzip; do
  command -v $tool >/dev/null || echo "no $tool"
done
python3 -c 'import ssl, sqlite3, venv; print(len(ssl.create_default_context().get_ca_certs()) > 50)'
printf 'int main(void) { return 42; }' >/tmp/a.c && gcc /tmp/a.c -o /tmp/a && /tmp/a; echo $?
"""


@pytest.fixture(scope="module")
def debian() -> Base:
    """The one of this host, which set-up has made: making another would take half a minute and half a gigabyte."""
    return ensure_base("debian", BASES, say=nothing)


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return ensure_runtime(RUNTIMES, say=nothing)


def all_entries(tree: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, folders, files in os.walk(tree):
        for name in [*folders, *files]:
            path = Path(folder) / name
            yield path, path.lstat()


def test_debian_has_a_developers_tools_and_they_work_for_the_agent(
    debian: Base, runtime: Runtime, tmp_path: Path
) -> None:
    ended = run_in_sandbox(tmp_path, debian.path, runtime, ["/bin/bash", "-c", LOOK], user=1000)
    assert ended.out.splitlines() == ["agent", "1000", ended.out.splitlines()[2], "True", "42"], ended.err


def test_debian_has_nothing_of_this_host_and_no_device(debian: Base) -> None:
    tree = debian.path
    for path, found in all_entries(tree):
        assert stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode), path
    assert not (tree / "etc" / "machine-id").exists()
    assert not list((tree / "etc").glob("ssh/ssh_host_*"))
    assert (tree / "etc" / "resolv.conf").read_text() == ""
    assert (tree / "etc" / "hostname").read_text() == "machine\n"
    assert not list((tree / "var" / "lib" / "apt" / "lists").glob("*_*"))
    assert not list((tree / "var" / "cache" / "apt").rglob("*.deb"))
    assert not (tree / "etc" / "apt" / "apt.conf.d" / "99mmdebstrap").exists()
    assert [entry for name in ("dev", "proc", "sys", "run", "tmp") for entry in (tree / name).iterdir()] == []


def test_debian_gives_the_agent_a_home_and_a_workspace_of_its_own(debian: Base) -> None:
    lines = (debian.path / "etc" / "passwd").read_text().splitlines()
    [entry] = [line.split(":") for line in lines if line.startswith("agent:")]
    assert entry[2:4] == ["1000", "1000"]
    for place in (debian.path / entry[5].lstrip("/"), debian.path / "workspace"):
        assert (place.stat().st_uid, place.stat().st_gid) == (1000, 1000)


def test_the_hosts_base_runs_programs_of_the_host_and_shows_nothing_else_of_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    base = ensure_base("host", tmp_path / "bases", say=nothing)
    assert not base.is_immutable
    look = (
        "import json, os, sys, pwd; print(json.dumps({"
        "'version': sys.version_info[:2], 'user': pwd.getpwuid(1000).pw_name,"
        "'same': os.path.samefile('/usr/bin', '/bin') and os.path.samefile('/usr/lib', '/lib'),"
        "'etc': sorted(os.listdir('/etc')), 'root': os.listdir('/root'),"
        "'home': os.listdir('/home'), 'var': sorted(os.listdir('/var')),"
        "'private': os.path.exists('/etc/ssl/private')}))"
    )
    with overlay(base.layers, tmp_path / "merged") as merged:
        ended = run_in_sandbox(tmp_path, merged, runtime, ["/bin/sh", "-c", f'exec /usr/bin/python3 -c "{look}"'])
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["same"]
    assert found["user"] == "agent"
    assert (found["root"], found["home"], found["private"]) == ([], ["agent"], False)
    assert found["var"] == ["cache", "lib", "log", "tmp"]
    assert not {"shadow", "gshadow", "sudoers", "ssh", "environment", "machine-id", "apt", "passwd-"} & set(
        found["etc"]
    )
    assert not set((base.path / "etc" / "passwd").read_text().splitlines()) & set(
        Path("/etc/passwd").read_text().splitlines()[1:]
    )


def test_the_fingerprint_of_usr_changes_with_a_package_and_with_a_folder(tmp_path: Path) -> None:
    usr, status = tmp_path / "usr", tmp_path / "status"
    (usr / "lib" / "deep" / "__pycache__").mkdir(parents=True)
    status.write_text("Package: a\n")
    seen = [fingerprint(usr, status)]
    assert fingerprint(usr, status) == seen[0]
    (usr / "lib" / "deep" / "__pycache__" / "a.pyc").touch()
    assert fingerprint(usr, status) == seen[0], "compiled Python comes and goes"
    status.write_text("Package: b\n")
    seen.append(fingerprint(usr, status))
    (usr / "lib" / "deep" / "new").touch()
    seen.append(fingerprint(usr, status))
    assert len(set(seen)) == 3


def test_a_new_folder_is_seen_below_one_that_is_remembered_though_its_time_is_set_back(tmp_path: Path) -> None:
    usr, status = tmp_path / "usr", tmp_path / "status"
    lib = usr / "lib"
    lib.mkdir(parents=True)
    os.utime(lib, (1_000_000, 1_000_000))

    def is_remembered() -> bool:
        fingerprint(usr, status)
        return str(lib) in host._seen[str(usr)]

    eventually_sync(is_remembered)  # when nothing has changed for a moment
    before = fingerprint(usr, status)
    (lib / "new").mkdir()
    os.utime(lib, (1_000_000, 1_000_000))
    assert fingerprint(usr, status) != before


def test_what_did_not_change_in_usr_is_not_listed_again() -> None:
    code = """if True:
        import sys
        from outlive.machine.backends.bases.host import fingerprint
        listed = []
        sys.addaudithook(lambda event, _: listed.append(event) if event == "os.scandir" else None)
        found, first = fingerprint(), len(listed)
        print(found == fingerprint(), first > 100, len(listed) - first < first / 10)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True).stdout
    assert said.split() == ["True"] * 3


def test_secrets_among_what_is_copied_from_etc_stay_behind(tmp_path: Path) -> None:
    base = ensure_base("host", tmp_path / "bases", say=nothing)
    for path, found in all_entries(base.path / "etc"):
        original = Path("/etc") / path.relative_to(base.path / "etc")
        if stat.S_ISREG(found.st_mode) and original.is_file() and original.read_bytes() == path.read_bytes():
            assert original.stat().st_mode & 0o004, original


def test_the_hosts_base_is_readable_in_a_machine_whatever_umask_it_was_made_with(tmp_path: Path) -> None:
    before = os.umask(0o077)  # a node's
    try:
        base = ensure_base("host", tmp_path / "bases", say=nothing)
    finally:
        os.umask(before)
    unread = [
        path
        for path, found in all_entries(base.path)
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & 0o004 == 0 and path != base.path / "root"
    ]
    assert unread == []
