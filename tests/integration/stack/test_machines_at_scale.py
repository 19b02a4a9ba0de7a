"""Machines of many hosts: PostgreSQL, Redis, S3, a Temporal of its own, and nodes that are reached over TLS. The same
promises as on one host, and a clear word when API and node do not trust each other.
"""

import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually_sync
from integration.stack.homes import make_certificate, trusting
from integration.stack.hosts import Host, temporal_server, two_free_ports
from leaks import assert_nothing_left
from outlive.machine.backends.gvisor.cgroups import find_cgroups, parse_mounts
from outlive.wiring.node import cgroup_name, has_leftovers
from services.postgres import PostgresServer, run_postgres
from services.redis import redis_service
from services.seaweedfs import BUCKET, REGION, SeaweedService, seaweedfs

__all__ = ["seaweedfs"]  # pytest finds the fixture here

pytestmark = pytest.mark.timeout(240)

PREFIX = "at-scale"
DATABASE = "scale"
LEASE_S, MARGIN_S = 4.0, 2.0
MOVED_WITHIN_S = 60.0
# The clock of the database is an hour behind those of all hosts: leases have to be reckoned by it alone.
_SLOW_CLOCK = (
    "CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE AS "
    "$$ SELECT pg_catalog.now() - interval '1 hour' $$; "
    f"ALTER DATABASE {DATABASE} SET search_path = public, pg_catalog"
)
# A shell that stays, with a variable that is nowhere but in its memory; it answers over two named pipes.
_SHELL = (
    'mkfifo ask answer; nohup bash -c \'kept=only-here; exec 3<>ask; while read -r -u 3 line; do eval "$line" > answer;'
    " done' >/dev/null 2>&1 &"
)
_ASK_SHELL = "echo 'echo $kept' > ask; timeout 20 cat answer"


class Hosts:
    """An API, a worker and two nodes, each on a host of its own."""

    def __init__(self, folder: Path, cert: Path, key: Path, postgres: PostgresServer, shared: dict[str, str]) -> None:
        self.folder = folder
        self.cert = cert
        self.postgres = postgres
        self.shared = shared
        trusted = {"OUTLIVE_NODE__TLS_CA": str(cert)}
        self.api = Host(folder / "api", "api", '"serving"', **shared, **trusted)
        self.worker = Host(folder / "worker", "worker", '"working"', **shared, **trusted)
        self.nodes = [
            Host(
                folder / name,
                "node",
                '"serving"',
                **shared,
                OUTLIVE_MACHINES__ENABLED="on",
                OUTLIVE_NODE__ADDRESS=f"https://127.0.0.1:{two_free_ports()}",
                OUTLIVE_NODE__TLS_CERT=str(cert),
                OUTLIVE_NODE__TLS_KEY=str(key),
            )
            for name in ("node-a", "node-b")
        ]

    @property
    def all(self) -> list[Host]:
        return [self.api, self.worker, *self.nodes]

    @contextmanager
    def another_api(self, name: str, **environment: str) -> Iterator[Host]:
        host = Host(self.folder / name, "api", '"serving"', **{**self.shared, **environment})
        with closing(host):
            host.start()
            host.wait_ready()
            yield host

    # ── as a client of the API ──

    def create(self) -> Any:
        return self.api.home.post("/v1/machines", {"environment": "host"})

    def exec(self, machine: str, command: str, **fields: object) -> Any:
        return self.api.home.post(f"/v1/machines/{machine}/exec", {"command": command, **fields})

    def raw(self, method: str, path: str, data: bytes | None = None) -> bytes:
        endpoint = self.api.home.endpoint
        headers = {"Authorization": f"Bearer {endpoint['token']}", "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(endpoint["url"] + path, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    # ── as the platform team ──

    def sql(self, query: str) -> str:
        return self.postgres.psql(query, DATABASE).strip()

    def house_of(self, machine: Any) -> Host:
        [house] = [host for host in self.nodes if (host.node_path / "id").read_text().strip() == machine["node"]]
        return house

    def look(self, machine: Any) -> Any:
        return self.api.home.get(f"/v1/machines/{machine['id']}")

    def history(self, machine: Any) -> dict[str, Any]:
        """What is told of it: the last of each kind."""
        items = self.api.home.get(f"/v1/machines/{machine['id']}/events?limit=1000")["items"]
        return {item["kind"]: item["data"] for item in items}

    @contextmanager
    def stopped(self, host: Host) -> Iterator[None]:
        """Inside, the process of this host has ended, in order."""
        assert host.end() == 0, host.log[-2000:]
        try:
            yield
        finally:
            host.start()
            host.wait_ready()

    @contextmanager
    def hanging(self, host: Host) -> Iterator[None]:
        """Inside, the process of this host is there and does nothing."""
        host.send(signal.SIGSTOP)
        try:
            yield
        finally:
            host.send(signal.SIGCONT)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, seaweedfs: SeaweedService) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    cert, key = make_certificate(folder)
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres())
        redis = stack.enter_context(redis_service())
        database = postgres.create_database(DATABASE)
        postgres.psql(_SLOW_CLOCK, DATABASE)
        shared = {
            "OUTLIVE_DATABASE__URL": database,
            "OUTLIVE_FEED__URL": redis.url,
            "OUTLIVE_OBJECTS__URL": f"s3://{BUCKET}/{PREFIX}",
            "OUTLIVE_OBJECTS__ENDPOINT": seaweedfs.endpoint,
            "OUTLIVE_OBJECTS__REGION": REGION,
            "OUTLIVE_OBJECTS__ACCESS_KEY": seaweedfs.credentials.access_key_id,
            "OUTLIVE_OBJECTS__SECRET_KEY": seaweedfs.credentials.secret_access_key,
            "OUTLIVE_TEMPORAL__ADDRESS": stack.enter_context(temporal_server(folder / "temporal")),
            "OUTLIVE_API__TOKEN": "owner-of-the-platform-0123456789abcdef",
            "OUTLIVE_NODE__TOKEN": "between-api-and-nodes-0123456789abcdef",
            "OUTLIVE_NODE__LEASE_S": str(LEASE_S),
            "OUTLIVE_NODE__HEARTBEAT_S": "0.5",
            "OUTLIVE_NODE__MARGIN_S": str(MARGIN_S),
        }
        hosts = Hosts(folder, cert, key, postgres, shared)
        for host in hosts.all:
            stack.callback(host.close)
        for host in hosts.all:  # all at once, on an empty database: they have to wait for each other
            host.start()
        for host in hosts.all:
            host.wait_ready()
        yield hosts


@pytest.fixture
def machine(hosts: Hosts) -> Iterator[Any]:
    made = hosts.create()
    yield made
    hosts.api.home.call("DELETE", f"/v1/machines/{made['id']}")


def test_commands_files_and_previews_reach_a_machine_over_tls(hosts: Hosts, machine: Any) -> None:
    assert [node["has_lease"] for node in hosts.api.home.get("/v1/nodes")["items"]] == [True, True]
    path = f"/v1/machines/{machine['id']}"
    big = bytes(range(256)) * 20_000
    hosts.raw("PUT", f"{path}/files/workspace/big", big)
    assert hosts.raw("GET", f"{path}/files/workspace/big") == big
    hosts.exec(machine["id"], "nohup python3 -m http.server 8123 >/dev/null 2>&1 &")
    eventually_sync(lambda: 8123 in hosts.api.home.get(f"{path}/ports")["items"], 60.0, every_s=0.1)
    assert hosts.raw("GET", f"{path}/ports/8123/big") == big
    assert hosts.exec(machine["id"], "stat -c %s big")["stdout"] == f"{len(big)}\n"


def test_a_machine_that_went_to_sleep_on_one_host_wakes_on_another_with_its_memory_from_the_bucket(
    hosts: Hosts, machine: Any, seaweedfs: SeaweedService
) -> None:
    hosts.exec(machine["id"], _SHELL)
    house = hosts.house_of(machine)
    asleep = hosts.api.home.post(f"/v1/machines/{machine['id']}/hibernate")
    assert asleep["state"] == "hibernated"
    assert any(asleep["checkpoint"] in key for key in _keys(seaweedfs))
    with hosts.stopped(house):
        assert_nothing_left(house.node_path, cgroup_name(house.node_path))
        assert hosts.exec(machine["id"], _ASK_SHELL)["stdout"] == "only-here\n"
        woken = hosts.look(machine)
        assert (woken["state"], woken["generation"]) == ("running", machine["generation"] + 1)
        assert hosts.house_of(woken) is not house
    assert "rebooted" not in hosts.history(machine)
    for host in hosts.all:  # what counts is elsewhere
        assert not {"objects", "outlive.db"} & {path.name for path in host.home.path.iterdir()}


def _keys(service: SeaweedService) -> list[str]:
    async def list_all() -> list[str]:
        return [stored.key async for stored in service.open(PREFIX).list()]

    return anyio.run(list_all)


def test_an_api_with_another_token_for_nodes_is_refused_by_them_and_says_so(hosts: Hosts, machine: Any) -> None:
    trusted = {"OUTLIVE_NODE__TLS_CA": str(hosts.cert), "OUTLIVE_NODE__TOKEN": "guessed-" * 5}
    with hosts.another_api("wrong-token", **trusted) as api:
        refused = api.ask("POST", f"/v1/machines/{machine['id']}/exec", {"command": "touch done"})
        seen = api.ask("GET", f"/v1/machines/{machine['id']}")
    assert (refused.status, refused.body["code"], seen.status) == (503, "node.token", 200)
    assert "node.token has to be the same on all hosts" in refused.body["detail"]
    assert hosts.exec(machine["id"], "ls")["stdout"] == ""

    address = hosts.house_of(machine).home.environment["OUTLIVE_NODE__ADDRESS"]
    asked = urllib.request.Request(f"{address}/machines/{machine['id']}/{machine['generation']}/processes")
    with pytest.raises(urllib.error.HTTPError) as stranger, trusting(hosts.cert).open(asked, timeout=20):
        pass
    stranger.value.close()
    assert stranger.value.code == 401


def test_a_node_whose_certificate_is_not_trusted_is_told_nothing_and_that_is_said(hosts: Hosts, machine: Any) -> None:
    with hosts.another_api("no-authority") as api:
        refused = api.ask("POST", f"/v1/machines/{machine['id']}/exec", {"command": "touch done"})
        preview = api.ask("GET", f"/v1/machines/{machine['id']}/ports/80/")
    for answer in (refused, preview):
        assert (answer.status, answer.body["code"]) == (503, "node.untrusted")
        assert "node.tls_ca" in answer.body["detail"]
    assert hosts.exec(machine["id"], "ls")["stdout"] == ""


def test_a_killed_api_that_is_started_again_serves_the_same_machines_and_no_command_runs_twice(
    hosts: Hosts, machine: Any
) -> None:
    command, effect = "echo ran >> ran; until [ -e gate ]; do sleep 0.1; done; cat ran", "asked-twice"
    answers: list[str] = []

    def ask_and_be_cut_off() -> None:
        try:
            hosts.exec(machine["id"], command, effect_id=effect)
            answers.append("answered")
        except OSError as error:
            answers.append(type(error).__name__)

    caller = threading.Thread(target=ask_and_be_cut_off)
    caller.start()
    eventually_sync(lambda: hosts.exec(machine["id"], "cat ran")["stdout"] == "ran\n", 60.0, every_s=0.1)
    hosts.api.end(signal.SIGKILL)
    caller.join(30)
    assert answers
    assert answers != ["answered"]
    hosts.api.start()
    hosts.api.wait_ready()
    assert hosts.look(machine) == machine
    hosts.exec(machine["id"], "touch gate")
    assert hosts.exec(machine["id"], command, effect_id=effect)["stdout"] == "ran\n"
    assert hosts.exec(machine["id"], "cat ran")["stdout"] == "ran\n"


def test_a_node_that_hangs_has_its_machines_frozen_before_they_come_up_elsewhere_by_the_clock_of_the_database(
    hosts: Hosts, machine: Any
) -> None:
    hosts.exec(machine["id"], _SHELL)
    hosts.api.home.post(f"/v1/machines/{machine['id']}/checkpoint")
    hosts.exec(machine["id"], "echo late > late", effect_id="after-the-checkpoint")
    house = hosts.house_of(machine)
    lease = f"FROM nodes WHERE id = '{machine['node']}'"
    with hosts.hanging(house):
        assert not _is_frozen(house)
        eventually_sync(lambda: hosts.look(machine)["node"] not in (None, machine["node"]), MOVED_WITHIN_S, every_s=0.1)
        assert float(hosts.sql(f"SELECT extract(epoch FROM now() - lease_until) {lease}")) >= MARGIN_S
        assert _is_frozen(house)
        assert hosts.exec(machine["id"], _ASK_SHELL)["stdout"] == "only-here\n"
        assert hosts.exec(machine["id"], "cat late")["exit_code"] != 0
        assert hosts.history(machine)["rolled_back"]["effects"] == ["after-the-checkpoint"]
        assert _is_frozen(house)
    # With contact again it finds that its machine is somebody else's.
    eventually_sync(lambda: not has_leftovers(house.node_path), 30.0, every_s=0.1)
    eventually_sync(lambda: hosts.sql(f"SELECT lease_until > now() {lease}") == "t", every_s=0.1)
    assert hosts.house_of(hosts.look(machine)) is not house


def _is_frozen(house: Host) -> bool:
    """Whether the watchdog keeps all that is on this host from running."""
    cgroups = find_cgroups(parse_mounts(Path("/proc/mounts").read_text()))
    switch = cgroups.switch(cgroup_name(house.node_path))
    return (switch.folder / switch.file).read_text().strip() == switch.frozen
