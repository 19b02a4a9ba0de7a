"""The egress proxy over real sockets: what it lets through, what it refuses, and that all of it is recorded."""

from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.abc
import pytest

from eventually import eventually
from integration.governance.egress import (
    LOOPBACK,
    LOOPS,
    MACHINE,
    OTHER_PUBLIC,
    PUBLIC,
    BookDialer,
    Origin,
    Store,
    answering,
    connect,
    echoing,
    get,
    open_egress,
    open_origin,
    outer_dialer,
)
from outlive.governance import EgressDecision, EgressLimits, open_egress_recording

pytestmark = pytest.mark.anyio


async def mute(origin: Origin, stream: anyio.abc.SocketStream) -> None:
    """Hears, says nothing, and never hangs up."""
    async for chunk in stream:
        origin.heard += chunk
    await anyio.sleep_forever()


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


async def test_a_tunnel_carries_both_ways_and_an_end_of_one_way_leaves_the_other_open(tmp_path: Path) -> None:
    async with open_origin(echoing) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.tunnel(f"allowed.test:{origin.port}", early=b"ear") as stream:
            await stream.send(b"ly")
            await stream.send_eof()
            answer = b"".join([chunk async for chunk in stream])
        assert answer == b"early and that was all"
        await eventually(lambda: len(egress.store.decisions) == 2)
    opened, ended = egress.store.decisions
    assert (opened.verdict, opened.reason, opened.host) == ("allowed", f"allowed.test:{origin.port}", "allowed.test")
    assert (ended.verdict, ended.reason, ended.address) == ("ended", "done", PUBLIC)
    assert (ended.bytes_up, ended.bytes_down) == (5, len(answer))
    assert (opened.machine, opened.connection, opened.method) == (MACHINE, ended.connection, "CONNECT")
    assert ended.at >= opened.at


async def test_megabytes_arrive_whole_both_ways(tmp_path: Path) -> None:
    blob = bytes(range(256)) * 16_384  # 4 MiB
    async with open_origin(echoing) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.tunnel(f"allowed.test:{origin.port}") as stream, anyio.create_task_group() as group:
            group.start_soon(stream.send, blob)
            received = b""
            while len(received) < len(blob):
                received += await stream.receive()
        assert received == blob


async def test_a_reader_that_does_not_read_stops_the_writer(tmp_path: Path) -> None:
    was_taken: list[bool] = []

    async def flooding(origin: Origin, stream: anyio.abc.SocketStream) -> None:
        with anyio.move_on_after(1) as waiting:
            for _ in range(64):
                await stream.send(bytes(1024 * 1024))
        was_taken.append(not waiting.cancelled_caught)

    async with open_origin(flooding) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.tunnel(f"allowed.test:{origin.port}"):
            await eventually(lambda: was_taken == [False])


async def test_a_host_that_is_not_listed_is_denied_without_being_asked_for(tmp_path: Path) -> None:
    async with open_origin(echoing) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow("other.test:443", f"*.allowed.test:{origin.port}")
        for request in (connect(f"allowed.test:{origin.port}"), get(f"http://allowed.test:{origin.port}/")):
            answer = await egress.ask(request)
            assert answer.startswith(b"HTTP/1.1 403 Denied by the egress policy\r\n")
            assert b"Proxy-Status: outlive; error=http_request_denied;" in answer
            assert f"would need the rule 'allowed.test:{origin.port}'".encode() in answer
            assert b"nothing changes that list: only a new machine" in answer
            assert b"retrying does not help" in answer
        await eventually(lambda: egress.store.said() == [("denied", "not_listed")] * 2)
        assert (egress.dialer.asked, egress.dialer.tried, origin.connections) == ([], [], 0)


@pytest.mark.parametrize("leads_to", [LOOPBACK, "::ffff:127.0.0.1", "10.1.2.3", "169.254.169.254", "fd00:ec2::254"])
async def test_a_listed_name_that_leads_to_a_private_address_is_denied_before_it_is_tried(
    tmp_path: Path, leads_to: str
) -> None:
    async with open_origin(echoing) as origin, open_egress(tmp_path, BookDialer(inner_test=[leads_to])) as egress:
        egress.allow(f"inner.test:{origin.port}")
        answer = await egress.ask(connect(f"inner.test:{origin.port}"))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"error=destination_ip_prohibited" in answer
        await eventually(lambda: len(egress.store.decisions) == 2)
        assert (egress.dialer.tried, origin.connections) == ([], 0)
        assert egress.store.decisions[1].address == leads_to.removeprefix("::ffff:")


async def test_a_private_address_is_reached_when_it_is_listed_by_address(tmp_path: Path) -> None:
    async with open_origin(echoing) as origin, open_egress(tmp_path, BookDialer(inner_test=[LOOPBACK])) as egress:
        egress.allow(f"inner.test:{origin.port}", f"127.0.0.0/8:{origin.port}")
        for target in ("inner.test", LOOPBACK, "[::ffff:127.0.0.1]"):
            async with await egress.tunnel(f"{target}:{origin.port}") as stream:
                await stream.send(b"x")
                assert await stream.receive() == b"x"
        assert egress.dialer.asked == ["inner.test"]  # an address is not looked up


async def test_a_name_is_resolved_once_and_what_was_judged_is_connected_to(tmp_path: Path) -> None:
    dialer = outer_dialer()
    async with open_origin(echoing) as origin, open_egress(tmp_path, dialer) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.tunnel(f"ALLOWED.test.:{origin.port}"):
            assert (dialer.asked, dialer.tried) == (["allowed.test"], [PUBLIC])


async def test_private_addresses_among_public_ones_are_passed_over(tmp_path: Path) -> None:
    dialer = outer_dialer()
    dialer.book["allowed.test"] = [*BookDialer(x=[LOOPBACK, "10.0.0.1", OTHER_PUBLIC]).book["x"]]
    async with open_origin(echoing) as origin, open_egress(tmp_path, dialer) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.tunnel(f"allowed.test:{origin.port}"):
            assert dialer.tried == [OTHER_PUBLIC]


async def test_the_next_address_is_tried_when_one_does_not_answer_and_not_for_ever(tmp_path: Path) -> None:
    dialer = outer_dialer()
    silent = [f"8.8.4.{number}" for number in range(8)]
    dialer.book = BookDialer(allowed_test=[silent[0], PUBLIC], dead_test=silent).book
    dialer.silent = set(silent)
    limits = EgressLimits(connect_s=0.05, addresses=3)
    async with open_origin(echoing) as origin, open_egress(tmp_path, dialer, limits=limits) as egress:
        egress.allow(f"allowed.test:{origin.port}", "dead.test:443")
        async with await egress.tunnel(f"allowed.test:{origin.port}"):
            assert dialer.tried == [silent[0], PUBLIC]
        answer = await egress.ask(connect("dead.test:443"))
        assert answer.startswith(b"HTTP/1.1 504 ")
        assert b"error=connection_timeout" in answer
        assert dialer.tried[2:] == silent[:3]
        await eventually(lambda: ("failed", "connect_deadline") in egress.store.said())


async def test_what_cannot_be_reached_is_said_to_be_so(tmp_path: Path) -> None:
    dialer = outer_dialer()
    dialer.silent.add("slow.test")
    async with open_origin(echoing) as origin:
        closed_port = origin.port
    async with open_egress(tmp_path, dialer, limits=EgressLimits(resolve_s=0.05)) as egress:
        egress.allow("*.test:*")
        refused = await egress.ask(connect(f"allowed.test:{closed_port}"))
        assert refused.startswith(b"HTTP/1.1 502 ")
        assert (await egress.ask(connect("nowhere.test:1"))).startswith(b"HTTP/1.1 502 ")
        assert b"error=dns_timeout" in await egress.ask(connect("slow.test:1"))
        await eventually(lambda: len(egress.store.decisions) == 6)
        reasons = [reason for verdict, reason in egress.store.said() if verdict == "failed"]
        assert reasons == ["unreachable", "name_unresolved", "name_deadline"]


async def test_connections_beyond_the_bound_are_refused_and_the_others_go_on(tmp_path: Path) -> None:
    limits = EgressLimits(connections=2)
    async with open_origin(echoing) as origin, open_egress(tmp_path, outer_dialer(), limits=limits) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        target = f"allowed.test:{origin.port}"
        async with await egress.tunnel(target) as first:
            async with await egress.tunnel(target):
                assert (await egress.ask(b"")).startswith(b"HTTP/1.1 503 Too Many Connections\r\n")
            await first.send(b"still here")
            assert await first.receive() == b"still here"
            await eventually(lambda: egress.proxy.open_connections == 1)
            async with await egress.tunnel(target):
                pass


async def test_a_connection_on_which_nothing_moves_is_ended(tmp_path: Path) -> None:
    limits = EgressLimits(idle_s=0.2, head_s=0.2)
    async with open_origin(mute) as origin, open_egress(tmp_path, outer_dialer(), limits=limits) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        assert (
            await egress.ask(connect(f"allowed.test:{origin.port}")) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        )
        answer = await egress.ask(get(f"http://allowed.test:{origin.port}/"))
        assert answer.startswith(b"HTTP/1.1 504 ")
        assert (await egress.ask(b"GET http")).startswith(b"HTTP/1.1 408 ")
        await eventually(lambda: len(egress.store.decisions) == 5)
        outcomes = [said for said in egress.store.said() if said[0] != "allowed"]
        assert outcomes == [("ended", "idle"), ("failed", "answer_deadline"), ("denied", "request_slow")]


async def test_a_connection_on_which_something_moves_outlives_the_deadline(tmp_path: Path) -> None:
    limits = EgressLimits(idle_s=0.5)
    async with open_origin(echoing) as origin, open_egress(tmp_path, outer_dialer(), limits=limits) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.tunnel(f"allowed.test:{origin.port}") as stream:
            until = anyio.current_time() + 2 * limits.idle_s
            while anyio.current_time() < until:
                await stream.send(b"x")
                assert await stream.receive() == b"x"


async def test_a_machine_that_goes_away_ends_its_connections_whatever_the_origin_does(tmp_path: Path) -> None:
    async with open_origin(mute) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        await (await egress.tunnel(f"allowed.test:{origin.port}")).aclose()
        async with await egress.dial() as stream:
            await stream.send(get(f"http://allowed.test:{origin.port}/"))
            await eventually(lambda: b"\r\n\r\n" in origin.heard)
        await eventually(lambda: egress.proxy.open_connections == 0)


async def test_leaving_ends_all_connections_and_their_ends_are_recorded(tmp_path: Path) -> None:
    async with open_origin(echoing) as origin:
        async with open_egress(tmp_path, outer_dialer()) as egress:
            egress.allow(f"allowed.test:{origin.port}")
            stream = await egress.tunnel(f"allowed.test:{origin.port}")
            await stream.send(b"four")
            assert await stream.receive() == b"four"
        async with stream:
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        with pytest.raises(OSError, match="refused"):
            await egress.dial()
    last = egress.store.decisions[-1]
    assert (last.verdict, last.reason, last.bytes_up, last.bytes_down) == ("ended", "closed", 4, 4)


async def test_nothing_is_let_through_while_it_cannot_be_recorded(tmp_path: Path) -> None:
    async with (
        open_origin(answering()) as origin,
        open_egress(tmp_path, outer_dialer(), queue_limit=1, limits=EgressLimits(record_s=0.3)) as egress,
    ):
        request = get(f"http://allowed.test:{origin.port}/")
        egress.store.hold()
        for _ in range(2):  # denials: one is with the store, one waits in the queue
            assert (await egress.ask(request)).startswith(b"HTTP/1.1 403 ")
        egress.allow(f"allowed.test:{origin.port}")
        answer = await egress.ask(request)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"cannot be recorded" in answer
        assert (egress.dialer.asked, origin.connections) == ([], 0)
        egress.store.may_answer.set()
        await eventually(lambda: len(egress.store.decisions) >= 2)
        assert (await egress.ask(request)).endswith(b"hi")


async def test_a_store_that_fails_loses_no_record(tmp_path: Path) -> None:
    async with open_origin(answering()) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        egress.store.fail = 2
        assert (await egress.ask(get(f"http://allowed.test:{origin.port}/"))).endswith(b"hi")
        await eventually(lambda: [verdict for verdict, _ in egress.store.said()] == ["allowed", "ended"])


async def test_what_waits_for_the_store_is_stored_on_leaving_also_when_cancelled() -> None:
    store = Store()
    moment = datetime(2030, 1, 2, tzinfo=UTC)
    decisions = [EgressDecision(MACHINE, moment, n, "GET", "a", 1, "denied", "x", None, 0, 0) for n in range(2)]
    with anyio.CancelScope() as scope:
        async with open_egress_recording(store) as record:
            for decision in decisions:
                await record(decision)
            scope.cancel()
    assert store.decisions == decisions
