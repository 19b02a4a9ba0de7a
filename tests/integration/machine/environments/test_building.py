"""An environment is built once, says what it did, and its machines come up as it was saved: services running."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc
import pytest

from eventually import eventually
from integration.machine.environments.house import House, a_definition, open_house
from machine_rooms import open_machine_room
from outlive.base import ConflictError, MachineId, NotFoundError, UnavailableError, new_machine_id
from outlive.machine import environments
from outlive.machine.building import HOUSE, INSTALL_WITHIN_S, build_machines, effect_of, install_spec
from outlive.machine.node import up
from outlive.machine.records import MachineFilter
from outlive.machine.status import Environment, Machine

pytestmark = pytest.mark.anyio

# Answers with what it remembers: a number that it drew when it was started.
_SERVICE = (
    "import http.server, os\n"
    "drawn = os.urandom(8).hex().encode()\n"
    "class Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers(); self.wfile.write(drawn)\n"
    "http.server.HTTPServer(('127.0.0.1', 8000), Handler).serve_forever()\n"
)
_ASK = (
    "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000', timeout=10).read().decode())\""
)


async def test_machines_come_up_with_what_was_installed_and_with_its_services_running(tmp_path: Path) -> None:
    web = a_definition(
        "web",
        install=("mkdir -p /opt/web && id -un > /opt/web/who", f"cat > /opt/web/serve.py <<'END'\n{_SERVICE}END"),
        start=("exec python3 /opt/web/serve.py",),
        ports=(8000,),
    )
    async with open_house(tmp_path) as house:
        built = await house.build(web)
        assert (built.state, built.reason) == ("ready", None), house.room.settler.failed
        assert built.checkpoint is not None
        assert (await house.room.records.checkpoints.get(built.checkpoint)).has_memory

        first, second = await house.create("web"), await house.create("web")
        assert (first.environment, first.origin) == ("web", built.checkpoint)
        assert (await house.room.exec(first.id, "cat /opt/web/who")).stdout == "root\n"
        drawn = await house.room.exec(first.id, _ASK, env={"no_proxy": "127.0.0.1"})
        assert drawn.exit_code == 0, drawn.stderr
        # The same number: it is the very process that was running when the environment was saved.
        assert (await house.room.exec(second.id, _ASK, env={"no_proxy": "127.0.0.1"})).stdout == drawn.stdout

        # What built it is gone; what its machines are born from is not.
        for machine in build_machines(built, built.tries):
            assert (await house.room.records.machines.get(machine)).state == "deleted"
        assert not await house.room.records.checkpoints.delete(built.checkpoint)


async def test_a_build_that_is_begun_again_installs_nothing_twice(tmp_path: Path) -> None:
    counted = a_definition("counted", install=("echo once >> /opt/count", "echo twice >> /opt/count"))
    async with open_house(tmp_path) as house:
        found = await house.environments.define(counted)
        # As if a worker had died in the middle: the first command has run, and nobody has heard of it.
        installing, _ = build_machines(found, found.tries)
        spec = install_spec(counted)
        await house.room.keeper.create(installing, owner=HOUSE, environment="counted", spec=spec)
        fields = {"effect_id": effect_of(found, 0), "user": "root", "timeout_s": INSTALL_WITHIN_S}
        await house.room.exec(installing, counted.install[0], **fields)

        await house.building.build(found.digest, found.tries)
        await house.building.build(found.digest, found.tries)
        await house.building.clean_up(found.digest, found.tries)
        made = await house.create("counted")
        assert (await house.room.exec(made.id, "cat /opt/count")).stdout == "once\ntwice\n"
        log = await house.environments.log("counted")
        assert log.count(b"$ echo once") == 1


async def test_what_says_that_there_is_a_log_says_so_of_one_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []

    def begun(found: Environment, key: str, now: datetime) -> Environment:
        kept.append((tmp_path / "objects" / key).exists())
        return environments.begun(found, key, now)

    async with open_house(tmp_path) as house:
        spied = SimpleNamespace(**{**vars(environments), "begun": begun})
        monkeypatch.setattr("outlive.machine.building.environments", spied)
        await house.build(a_definition("plain", install=("true",)))
    assert kept == [True]


async def test_a_build_that_goes_on_behind_its_installation_keeps_what_that_said(tmp_path: Path) -> None:
    serve = "until [ -e /workspace/go ]; do sleep 0.1; done; exec python3 -m http.server 8000 --bind 127.0.0.1"
    web = a_definition("web", install=("echo installed",), start=(serve,), ports=(8000,))
    async with open_house(tmp_path) as house:
        found = await house.environments.define(web)
        _, serving = build_machines(found, found.tries)

        async def is_starting() -> bool:
            said = await house.environments.log("web") if (await house.environments.get("web")).log_key else b""
            return b"Starting it" in said

        async with anyio.create_task_group() as worker:
            worker.start_soon(house.building.build, found.digest, found.tries)
            await eventually(is_starting, within_s=60)
            await eventually(lambda: _runs(house, serving), within_s=60)
            worker.cancel_scope.cancel()  # it dies while it waits for the port

        before = await house.environments.log("web")
        await house.room.exec(serving, "touch /workspace/go")
        await house.building.build(found.digest, found.tries)
        await house.building.clean_up(found.digest, found.tries)
        log = await house.environments.log("web")
        assert log.startswith(before)
        assert log.count(b"$ echo installed\ninstalled\n") == 1
        assert b"\nReady: ckpt_" in log


async def test_what_installing_said_is_kept_before_its_machine_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlive.machine.build_log._FLUSH_EVERY_S", 3600.0)
    async with open_house(tmp_path) as house:
        found = await house.environments.define(a_definition("web", install=("echo installed",)))
        _, serving = build_machines(found, found.tries)
        create = house.room.keeper.create

        async with anyio.create_task_group() as worker:

            async def create_and_die(machine: MachineId, **fields: Any) -> Machine:
                made = await create(machine, **fields)
                if machine == serving:
                    worker.cancel_scope.cancel()
                    await anyio.lowlevel.checkpoint()
                return made

            with monkeypatch.context() as dying:
                dying.setattr(house.room.keeper, "create", create_and_die)
                await house.building.build(found.digest, found.tries)

        before = await house.environments.log("web")
        assert before == b"$ echo installed\ninstalled\nStarting it.\n"
        await house.building.build(found.digest, found.tries)
        await house.building.clean_up(found.digest, found.tries)
        log = await house.environments.log("web")
        assert log.startswith(before)
        assert b"\nReady: ckpt_" in log


async def test_a_build_that_another_worker_ended_leaves_its_log_alone(tmp_path: Path) -> None:
    """One that stood still, and woke when all was over."""
    async with open_house(tmp_path) as house:
        definition = a_definition("web", install=("until [ -e /tmp/go ]; do sleep 0.1; done",))
        found = await house.environments.define(definition)
        installing, _ = build_machines(found, found.tries)
        async with anyio.create_task_group() as worker:
            worker.start_soon(house.building.build, found.digest, found.tries)
            await eventually(lambda: _runs(house, installing), within_s=60)
            await house.building.give_up(found.digest, found.tries, "by another")
            log = await house.environments.log("web")
            await house.room.exec(installing, "touch /tmp/go")
        ended = await house.environments.get("web")
        assert (ended.state, ended.reason) == ("failed", "by another")
        assert b"Ready" not in await house.environments.log("web")
        assert (await house.environments.log("web")).startswith(log)
        await house.building.clean_up(found.digest, found.tries)


async def _runs(house: House, machine: MachineId) -> bool:
    try:
        return (await house.room.records.machines.get(machine)).state == "running"
    except NotFoundError:
        return False


async def test_a_command_that_fails_fails_the_build_and_says_how(tmp_path: Path) -> None:
    broken = a_definition("broken", install=("echo fine", "echo no such package >&2; exit 7", "echo never"))
    async with open_house(tmp_path) as house:
        failed = await house.build(broken)
        assert failed.state == "failed"
        assert failed.reason is not None
        assert "exit code 7" in failed.reason
        assert failed.reason.endswith("no such package")
        log = await house.environments.log("broken")
        assert b"$ echo fine\nfine\n" in log
        assert b"no such package" in log
        assert b"$ echo never" not in log
        with pytest.raises(ConflictError) as refused:
            await house.create("broken")
        assert refused.value.code == "environment.failed"
        assert await house.room.records.machines.list(MachineFilter(is_warm=None), limit=9) == []

        # Asked again it is tried again, from the beginning, in machines of its own.
        again = await house.build(broken)
        assert (again.state, again.tries) == ("failed", 2)
        assert build_machines(again, 1) != build_machines(again, 2)


async def test_a_service_that_does_not_listen_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlive.machine.building.PORTS_WITHIN_S", 0.5)
    async with open_house(tmp_path) as house:
        failed = await house.build(a_definition("deaf", start=("sleep 1000",), ports=(8000,)))
        assert failed.state == "failed"
        assert failed.reason is not None
        assert "nothing listens on 8000" in failed.reason


async def test_the_same_definition_is_one_build_and_a_name_stands_for_the_newest(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        first = await house.environments.define(a_definition("one", install=("true",)))
        same = await house.environments.define(a_definition("other-name", install=("true",)))
        assert (first.digest, first.state) == (same.digest, "building")
        with pytest.raises(UnavailableError) as early:
            await house.create("one")
        assert early.value.code == "environment.building"
        with pytest.raises(NotFoundError):
            await house.environments.log("one")

        plain = await house.environments.define(a_definition("one"))
        assert (plain.state, plain.digest != first.digest) == ("ready", True)
        assert (await house.environments.get("one")).digest == plain.digest
        assert (await house.environments.get("other-name")).digest == first.digest
        assert [found.name for found in await house.environments.list()] == [
            *("debian", "default", "host", "one", "other-name"),
        ]
        assert house.builder.asked == [(first.digest, 1)] * 2


async def test_a_read_only_machine_is_written_only_in_memory_and_sleeps_and_forks_like_others(tmp_path: Path) -> None:
    fixed = a_definition("fixed", install=("echo installed > /opt/there",), read_only=True)
    async with open_house(tmp_path) as house:
        assert (await house.build(fixed)).state == "ready"
        made = await house.create("fixed")

        async def check(machine: MachineId) -> None:
            told = await house.room.exec(machine, "cat /opt/there; touch /tmp/a && echo memory; touch /workspace/b")
            assert told.stdout == "installed\nmemory\n"
            assert told.exit_code == 1
            assert "Read-only file system" in told.stderr
            as_root = await house.room.exec(machine, "touch /opt/b", user="root")
            assert "Read-only file system" in as_root.stderr

        await check(made.id)
        await house.room.exec(made.id, "echo kept > /tmp/kept")
        await house.room.keeper.checkpoint(made.id)
        await house.room.keeper.do(made.id, "hibernate")
        await house.room.keeper.do(made.id, "wake")
        await check(made.id)
        assert (await house.room.exec(made.id, "cat /tmp/kept")).stdout == "kept\n"
        [child] = await house.room.keeper.fork(made.id, [new_machine_id()], owner=made.owner)
        await check(child.id)


async def test_a_build_reaches_what_its_definition_lists_and_services_start_again_after_a_cold_boot(
    tmp_path: Path,
) -> None:
    async with serve_text(b"from outside") as port, open_house(tmp_path) as house:
        fetching = a_definition(
            "fetching",
            install=(f"{_fetch(port)} > /opt/fetched", f"! {_fetch(port + 1)}"),
            start=("exec python3 -m http.server 8000 --directory /opt",),
            ports=(8000,),
            egress=(f"127.0.0.1:{port}",),
        )
        built = await house.build(fetching)
        assert built.state == "ready", built.reason
        assert {decision.verdict for decision in house.room.decisions} >= {"allowed", "denied"}

        recipe = await house.environments.resolve("fetching")
        cold = await house.room.keeper.create(
            new_machine_id(),
            owner=HOUSE,
            environment="fetching",
            spec=recipe.spec,
            origin=recipe.origin,
            has_memory=False,
        )

        async def is_served() -> bool:
            asked = await house.room.exec(
                cold.id, _ASK.replace("8000'", "8000/fetched'"), env={"no_proxy": "127.0.0.1"}
            )
            return asked.stdout == "from outside\n"

        await eventually(is_served, within_s=60)


async def test_services_that_a_dead_node_did_not_start_are_started_by_the_next_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = a_definition("late", start=("echo started >> /workspace/starts; exec sleep 1000",)).to_spec()
    async with open_machine_room(tmp_path) as room:
        try:
            with monkeypatch.context() as dying:
                dying.setattr(up, "start_services", _die)
                async with room.node():
                    machine = await room.create(spec)
                    assert (await room.exec(machine.id, "cat /workspace/starts")).exit_code == 1
            for _ in range(2):  # the next node starts them, the one after it finds them
                async with room.node():

                    async def is_started() -> bool:
                        return (await room.exec(machine.id, "cat /workspace/starts")).stdout == "started\n"

                    await eventually(is_started, within_s=60)
        finally:
            await room.empty()


async def _die(*_: object) -> None:
    """As if the node had died here."""


def _fetch(port: int) -> str:
    """A command that fetches by way of the egress proxy and says what it got."""
    return (
        'env no_proxy= NO_PROXY= python3 -c "import urllib.request as u; print(end=u.build_opener(u.ProxyHandler('
        f"{{'http': 'http://127.0.0.1:3128'}})).open('http://127.0.0.1:{port}/', timeout=10).read().decode())\""
    )


@asynccontextmanager
async def serve_text(text: bytes) -> AsyncIterator[int]:
    """A server of this host that answers everything with this."""

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
            await stream.send(head.encode() + text)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        group.cancel_scope.cancel()
