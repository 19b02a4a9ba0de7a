"""The commands of machines against a real API: documents, exit codes, output as it is, copies both ways."""

import io
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import anyio.abc
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute

from eventually import eventually, eventually_sync
from integration.api.machines import MachineApi, open_machine_api
from integration.api.stack import TOKEN
from integration.api.test_egress import decided
from integration.stack.homes import COMMAND
from outlive.cli import main

pytestmark = pytest.mark.anyio


class Cli:
    def __init__(self, api: MachineApi) -> None:
        self._environment = {**os.environ, "OUTLIVE_URL": api.api.url, "OUTLIVE_TOKEN": TOKEN}

    async def run(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """A command in a process of its own if it minds signals; else here, which saves the start of a program."""
        call = self._run_apart if arguments[:2] == ("machine", "exec") else self._run_here
        return await anyio.to_thread.run_sync(call, arguments)

    def _run_apart(self, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[bytes]":
        command = [*COMMAND, *arguments]
        return subprocess.run(command, env=self._environment, input=b"", capture_output=True, timeout=100, check=False)

    def _run_here(self, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[bytes]":
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, self._environment), redirect_stdout(out), redirect_stderr(err):
            code = main.run(arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue().encode(), err.getvalue().encode())

    async def document(self, *arguments: str) -> Any:
        done = await self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(b"\n") == 1, "one document"
        return json.loads(done.stdout)

    def start(self, *arguments: str, url: str | None = None) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env={**self._environment, **({"OUTLIVE_URL": url} if url else {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


@pytest.fixture
def cli(api: MachineApi) -> Cli:
    return Cli(api)


async def test_a_machine_from_its_making_to_its_end(cli: Cli) -> None:
    made = await cli.document("machine", "create", "--name", "one")
    assert (made["state"], made["name"]) == ("running", "one")
    id = made["id"]
    assert (await cli.document("machine", "pause", id))["state"] == "paused"
    assert (await cli.document("machine", "resume", id))["state"] == "running"
    assert (await cli.document("machine", "checkpoint", id))["id"].startswith("ckpt_")
    assert len((await cli.document("machine", "fork", id, "--count", "2"))["items"]) == 2
    assert (await cli.document("machine", "hibernate", id))["state"] == "hibernated"
    assert (await cli.document("machine", "wake", id))["generation"] == 2
    listed = await cli.run("machines", "--state", "running")
    assert listed.stdout.splitlines()[0].split() == b"ID STATE ENVIRONMENT CHANGED NAME".split()
    assert len(listed.stdout.splitlines()) == 4
    assert b"generation    2" in (await cli.run("machine", "show", id)).stdout
    assert (await cli.document("machine", "delete", id))["state"] == "deleted"
    assert (await cli.run("machine", "show", id)).returncode == 3
    assert (await cli.run("machine", "show", "nonsense")).returncode == 3


async def test_a_conversation_that_keeps_its_machine_is_said_aside(cli: Cli, api: MachineApi) -> None:
    conversation = (await api.http.post("/v1/conversations", json={})).json()["id"]
    first = await cli.run("machine", "create", "--conversation", conversation)
    assert first.stderr == b""
    kept = first.stdout.strip()
    second = await cli.run("machine", "create", "--conversation", conversation)
    made = second.stdout.strip()
    assert (len(made.split()), made != kept) == (1, True)
    assert b"keeps its machine " + kept + b": its agent does not work in " + made in second.stderr
    assert (await cli.document("machine", "create", "--conversation", conversation))["id"] not in (kept, made)


@pytest.mark.parametrize("what", [("create",), ("fork", "M", "--count", "4")])
async def test_ctrl_c_says_that_what_was_asked_for_may_still_come(
    cli: Cli, api: MachineApi, what: tuple[str, ...]
) -> None:
    machine = await api.create()
    shown = (await api.http.get(f"/v1/machines/{machine}")).content
    async with _silent_to_posts(shown) as (url, is_asked):
        running = cli.start("machine", *(machine if each == "M" else each for each in what), url=url)
        code, said = await _interrupted(running, is_asked)
    assert (code, b"may still come; see: outlive machines" in said) == (130, True)


async def test_ctrl_c_says_that_a_build_goes_on(cli: Cli, api: MachineApi, tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    file.write_text('name = "web"\ninstall = ["true"]\n')  # nobody builds here
    running = cli.start("environment", "build", str(file))

    async def is_asked() -> bool:
        status: int = (await api.http.get("/v1/environments/web")).status_code
        return status == 200

    code, said = await _interrupted(running, is_asked)
    assert (code, b"goes on; see: outlive environment log web" in said) == (130, True)


async def _interrupted(
    running: "subprocess.Popen[bytes]", is_asked: Callable[[], bool | Awaitable[bool]]
) -> tuple[int, bytes]:
    """By Ctrl-C, as soon as it has asked; its exit code, and what it said on stderr."""
    with running:
        try:
            await eventually(is_asked, within_s=30)
            running.send_signal(signal.SIGINT)
            _, said = await anyio.to_thread.run_sync(lambda: running.communicate(timeout=30))
        finally:
            running.kill()
    return running.returncode, said


@asynccontextmanager
async def _silent_to_posts(shown: bytes) -> AsyncIterator[tuple[str, Callable[[], bool]]]:
    """A server that shows this to whoever looks, and never answers who wants something done."""
    asked = anyio.Event()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            while not (await stream.receive()).startswith(b"POST"):
                await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(shown), shown))
            asked.set()
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", asked.is_set
        group.cancel_scope.cancel()


async def test_exec_passes_output_and_exit_code_as_they_are(cli: Cli, api: MachineApi) -> None:
    machine = await api.create()
    done = await cli.run("machine", "exec", machine, "--", "sh", "-c", "printf 'a\\377'; printf err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"a\xff", b"err")
    shell = await cli.run("machine", "exec", machine, "--env", "A=1", "-c", "echo $A $PWD | rev | cut -c1-9 | rev")
    assert shell.stdout == b"workspace\n"
    late = await cli.run("machine", "exec", machine, "--timeout", "0.2", "--", "sleep", "60")
    assert late.returncode == 124
    assert b"too long" in late.stderr
    result = await cli.document("machine", "exec", machine, "--effect", "e1", "-c", "echo hi")
    assert (result["effect_id"], result["stdout"], result["exit_code"]) == ("e1", "hi\n", 0)
    assert (await cli.run("machine", "exec", machine, "--effect", "e1", "-c", "echo other")).returncode == 1
    assert (await cli.run("machine", "exec", machine, "--env", "nothing", "--", "true")).returncode == 2
    assert (await cli.run("machine", "exec", machine)).returncode == 2


async def test_ctrl_c_interrupts_the_command_and_a_second_one_leaves_it(cli: Cli, api: MachineApi) -> None:
    machine = await api.create()
    folder = api.node.machines.folder(machine)  # type: ignore[arg-type]
    stubborn = "trap 'touch interrupted' INT; touch begun; while :; do read -t 1 < <(:) || sleep 0.1; done"
    running = cli.start("machine", "exec", machine, "--effect", "e1", "-c", stubborn)
    try:
        await eventually(lambda: (folder / "workspace" / "begun").exists(), within_s=30)
        running.send_signal(signal.SIGINT)
        await eventually(lambda: (folder / "workspace" / "interrupted").exists(), within_s=30)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(lambda: eventually_sync(lambda: running.poll() is not None, within_s=30))
        assert running.returncode == 130
        assert running.stderr is not None
        assert b"--effect e1" in running.stderr.read()
        assert (await api.http.get(f"/v1/machines/{machine}/effects/e1")).json()["outcome"] == "started"
        assert len((await api.http.get(f"/v1/machines/{machine}/processes")).json()["items"]) == 1
    finally:
        running.kill()
        running.communicate()


async def test_files_and_directories_are_copied_both_ways(cli: Cli, api: MachineApi, tmp_path: Path) -> None:
    machine = await api.create()
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "run.sh").write_bytes(b"#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "sub" / "bytes").write_bytes(bytes(range(256)))
    (tree / "link").symlink_to("/etc/passwd")
    copied = await cli.document("machine", "cp", str(tree), f"{machine}:copy")
    assert copied == {"files": 2, "bytes": 266, "left_out": [str(tree / "link")]}
    back = tmp_path / "back"
    await cli.document("machine", "cp", f"{machine}:/workspace/copy", str(back))
    assert (back / "sub" / "bytes").read_bytes() == bytes(range(256))
    assert (back / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not (back / "link").exists()
    into = await cli.run("machine", "cp", f"{machine}:copy/run.sh", str(tmp_path))
    assert into.returncode == 0
    assert (tmp_path / "run.sh").read_bytes() == b"#!/bin/sh\n"
    assert (await cli.run("machine", "cp", f"{machine}:none", str(tmp_path))).returncode == 3
    assert (await cli.run("machine", "cp", str(tmp_path / "none"), f"{machine}:x")).returncode == 3
    assert (await cli.run("machine", "cp", "a", "b")).returncode == 2


async def test_what_a_machine_reached_is_shown_harmlessly_whatever_host_it_named(cli: Cli, api: MachineApi) -> None:
    machine = await api.create()
    hostile = "a\x1b]52;c;eA==\x07\n999  now  allowed\u202eb.example\x9b2J"
    await api.node.egress.store(
        [
            decided(machine, 1),
            decided(machine, 1, verdict="ended", reason="done", address="192.0.2.7", bytes_up=5),
            decided(machine, 2, verdict="denied", reason="not_listed", host=hostile, method="G\x1bET"),
        ]
    )
    shown = await cli.run("machine", "egress", machine)
    assert shown.returncode == 0
    text = shown.stdout.decode()
    assert all(each.isprintable() for each in text.replace("\n", "")), repr(text)
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == ["N", "1", "2", "3"], "a host begins no line of its own"
    assert lines[2].split() == "2 2030-01-02 03:04:06Z ended CONNECT a.example:443 192.0.2.7 5 0 done".split()
    assert "not_listed" in lines[3]
    document = await cli.document("machine", "egress", machine)
    assert [each["n"] for each in document["items"]] == [1, 2, 3]
    assert document["items"][2]["host"] == hostile
    raw = await cli.run("machine", "egress", machine, "--json")
    assert raw.stdout.isascii()
    first = await cli.run("machine", "egress", machine, "--limit", "2")
    assert (len(first.stdout.splitlines()), b"--after 2" in first.stderr) == (3, True)
    rest = await cli.run("machine", "egress", machine, "--after", "2", "--limit", "1")
    assert (len(rest.stdout.splitlines()), rest.stderr) == (2, b"")
    await cli.document("machine", "delete", machine)
    assert len((await cli.document("machine", "egress", machine))["items"]) == 3
    assert (await cli.run("machine", "egress", "mach_nope")).returncode == 3


async def test_nothing_is_written_through_a_link_that_lies_in_the_way(
    cli: Cli, api: MachineApi, tmp_path: Path
) -> None:
    machine = await api.create()
    await api.http.put(f"/v1/machines/{machine}/files/workspace/d/f", content=b"from the machine")
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    target = tmp_path / "target"
    target.mkdir()
    (target / "f").symlink_to(precious)
    done = await cli.run("machine", "cp", f"{machine}:d/f", str(target / "f"))
    assert done.returncode == 0
    assert precious.read_bytes() == b"mine"
    assert (target / "f").read_bytes() == b"from the machine"


async def test_an_environment_that_is_not_there_is_said_before_anything_is_made(cli: Cli, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello\n")
    for command in (("run", "Hello", "--detach"), ("batch", "run", str(prompts))):
        refused = await cli.run(*command, "--environment", "nope")
        assert (refused.returncode, refused.stdout) == (3, b"")
        assert refused.stderr == b"error: There is no environment 'nope'.\n"
    assert (await cli.document("list"))["items"] == []
    assert not prompts.with_name("prompts.txt.batch").exists()
    assert (await cli.run("run", "Hello", "--detach", "--environment", "host")).returncode == 0


async def test_an_agent_whose_environment_is_not_built_yet_is_applied_and_told_so(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "builder.toml"
    agent = 'name = "builder"\nmodel = "demo:"\ninstructions = "Build."\ntools = []\nenvironment = "{}"\n'
    file.write_text(agent.format("nope"))
    applied = await cli.run("agent", "apply", str(file))
    assert (applied.returncode, applied.stdout) == (0, b"builder version 1\n")
    assert b"no environment 'nope' yet" in applied.stderr
    assert b"outlive environment build FILE" in applied.stderr
    file.write_text(agent.format("host"))
    assert (await cli.run("agent", "apply", str(file))).stderr == b""
