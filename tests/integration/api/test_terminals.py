"""Terminals over HTTP: open, list, act, read. Through a node's real wire, to programs on real PTYs."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eventually import eventually
from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from integration.api.stack import fresh_key
from integration.api.terminals import open_terminal, principal
from outlive.base import TerminalId, is_id, new_terminal_id

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def do(api: MachineApi, terminal: str, verb: str, token: str | None = None, **body: Any) -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    answer: httpx.Response = await api.http.post(f"/v1/terminals/{terminal}/{verb}", json=body, headers=headers)
    return answer


async def until_output(api: MachineApi, terminal: str, text: bytes) -> bytes:
    printed = b""

    async def has_come() -> bool:
        nonlocal printed
        printed = (await api.http.get(f"/v1/terminals/{terminal}/output")).content
        return text in printed

    await eventually(has_come, 40)
    return printed


async def test_a_terminal_is_opened_once_per_key_and_told_as_it_stands(api: MachineApi) -> None:
    machine = await api.create()
    path, key = f"/v1/machines/{machine}/terminals", fresh_key()
    body = {
        "argv": ["sh", "-c", "echo $A $0; exec cat", "x"],
        "cols": 100,
        "rows": 30,
        "env": {"A": "b"},
        "cwd": "/workspace",
    }
    made = await api.http.post(path, json=body, headers=key)
    assert made.status_code == 201
    shown = made.json()
    assert is_id(shown["id"], "term")
    assert made.headers["location"] == f"/v1/terminals/{shown['id']}"
    assert (shown["machine"], shown["state"], shown["cols"], shown["rows"]) == (machine, "open", 100, 30)
    assert (shown["lease"], shown["operators"], shown["exit_code"]) == (None, [], None)
    again = await api.http.post(path, json=body, headers=key)
    assert again.json() == shown
    assert again.headers["idempotency-replayed"] == "true"
    assert_problem(await api.http.post(path, json={}, headers=key), 409)
    await until_output(api, shown["id"], b"b x\r\n")
    listed = (await api.http.get(path)).json()
    assert [each["id"] for each in listed["items"]] == [shown["id"]]
    assert listed["next"] is None
    assert (await api.http.get(f"/v1/terminals/{shown['id']}")).json()["offset"] == 5


async def test_lists_are_paged_and_leave_out_the_ended_when_asked(api: MachineApi) -> None:
    machine = await api.create()
    made = [await open_terminal(api, machine, command="exec cat") for _ in range(3)]
    path = f"/v1/machines/{machine}/terminals"
    first = (await api.http.get(path, params={"limit": 2})).json()
    second = (await api.http.get(path, params={"limit": 2, "cursor": first["next"]})).json()
    assert [each["id"] for each in first["items"] + second["items"]] == sorted(made)
    assert second["next"] is None
    closed = await api.http.delete(f"/v1/terminals/{made[0]}")
    assert closed.json()["state"] == "closed"
    assert (await api.http.delete(f"/v1/terminals/{made[0]}")).json()["state"] == "closed"
    left = (await api.http.get(path, params={"ended": "false"})).json()
    assert [each["id"] for each in left["items"]] == sorted(made[1:])
    assert_problem(await api.http.get(path, params={"cursor": "x"}), 422)


async def test_typing_takes_a_free_lease_and_another_is_refused_until_it_is_yielded(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    await until_output(api, terminal, b"ready")
    bot, ann = await principal(api.api, "bot", "agent"), await principal(api.api, "ann")
    typed = await do(api, terminal, "input", bot, data="from the bot\n")
    assert typed.status_code == 200
    assert typed.json()["lease"]["name"] == "bot"
    problem = assert_problem(await do(api, terminal, "input", ann, data="x"), 409)
    assert (problem["code"], problem["operator_name"]) == ("terminal.leased", "bot")
    assert_problem(await do(api, terminal, "signal", ann, signal="INT"), 409)
    assert_problem(await do(api, terminal, "yield", ann), 409)
    assert (await do(api, terminal, "take", ann)).json()["lease"]["name"] == "ann"
    denied = assert_problem(await do(api, terminal, "take", bot), 403)
    assert denied["code"] == "terminal.take_denied"
    assert_problem(await do(api, terminal, "input", bot, data="too late\n"), 409)
    raw = base64.b64encode(b"\xff\xfe from ann\n").decode()
    assert (await do(api, terminal, "input", ann, base64=raw)).status_code == 200
    assert (await do(api, terminal, "grant", ann, operator="bot")).json()["lease"]["name"] == "bot"
    assert (await do(api, terminal, "yield", bot)).json()["lease"] is None
    assert (await do(api, terminal, "yield", ann)).status_code == 200
    printed = await until_output(api, terminal, b"from ann\r\n")
    assert printed == b"ready\r\nfrom the bot\r\n\xff\xfe from ann\r\n"


async def test_the_same_key_types_once(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    await until_output(api, terminal, b"ready")
    key = fresh_key()
    for _ in range(3):
        answer = await api.http.post(f"/v1/terminals/{terminal}/input", json={"data": "once\n"}, headers=key)
        assert answer.status_code == 200
    await do(api, terminal, "input", data="end\n")
    assert await until_output(api, terminal, b"end\r\n") == b"ready\r\nonce\r\nend\r\n"


async def test_a_node_that_vanishes_while_it_is_typed_to_is_not_typed_to_again(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    await until_output(api, terminal, b"ready")
    api.node.terminals.fails_after_act = True
    problem = assert_problem(await do(api, terminal, "input", data="perhaps\n"), 409)
    assert problem["code"] == "terminal.outcome_unknown"
    api.node.terminals.fails_after_act = False
    assert await until_output(api, terminal, b"perhaps") == b"ready\r\nperhaps\r\n"


async def test_signals_and_sizes_reach_the_program(api: MachineApi) -> None:
    command = "trap 'echo interrupted' INT; trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    terminal = await open_terminal(api, command=command)
    await until_output(api, terminal, b"ready")
    assert (await do(api, terminal, "signal", signal="INT")).status_code == 200
    await until_output(api, terminal, b"interrupted")
    assert (await do(api, terminal, "resize", cols=132, rows=43)).json()["cols"] == 132
    await until_output(api, terminal, b"43 132")
    assert (await do(api, terminal, "signal", signal=9)).status_code == 200

    async def is_over() -> bool:
        return bool((await api.http.get(f"/v1/terminals/{terminal}")).json()["state"] == "exited")

    await eventually(is_over, 40)
    assert (await api.http.get(f"/v1/terminals/{terminal}")).json()["signal"] == 9
    assert assert_problem(await do(api, terminal, "input", data="x"), 409)["code"] == "terminal.ended"


async def test_who_only_looks_sees_the_newest_and_makes_no_segments_of_the_recording(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="stty -echo; echo ready; exec cat")
    await until_output(api, terminal, b"ready")
    ann = await principal(api.api, "ann")
    path = f"/v1/terminals/{terminal}"
    for word in ("one", "two", "three"):
        await do(api, terminal, "input", ann, data=f"{word}\n")
        await until_output(api, terminal, word.encode())
        assert (await api.http.get(f"{path}/screen")).text.split()[-1] == word
        account = (await api.http.get(f"{path}/account")).json()
        assert account["text"].split()[-1] == account["typed"][-1]["text"].split()[-1] == word
        assert word in (await api.http.get(f"{path}/recording")).text
    record = await api.node.records.terminals.get(TerminalId(terminal))
    assert (record.segments, record.recorded_to) == (0, 0)


async def test_what_was_is_read_from_the_recording_without_waking_the_machine(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="stty -echo; printf '\\033[31mred\\033[m\\r\\n'; exec cat")
    await until_output(api, terminal, b"red")
    await do(api, terminal, "input", await principal(api.api, "ann"), data="said\n")
    whole = await until_output(api, terminal, b"said")
    await api.do(machine, "hibernate")
    path = f"/v1/terminals/{terminal}"
    shown = (await api.http.get(path)).json()
    assert (shown["state"], shown["offset"], shown["lease"]["name"]) == ("open", len(whole), "ann")
    text = await api.http.get(f"{path}/screen")
    assert text.text.split() == ["red", "said"]
    assert text.headers["outlive-offset"] == str(len(whole))
    drawn = await api.http.get(f"{path}/screen", params={"format": "vt"})
    assert b"red" in drawn.content
    assert b"\x1b[" in drawn.content
    part = await api.http.get(f"{path}/output", params={"from": 5, "to": 8})
    assert (part.content, part.headers["outlive-offset"]) == (whole[5:8], "5")
    assert (await api.http.get(f"{path}/output", params={"from": 10_000})).content == b""
    assert (await api.http.get(f"{path}/account", params={"from": len(whole)})).json()["text"] == ""
    ahead = assert_problem(await api.http.get(f"{path}/account", params={"from": len(whole) + 1}), 422)
    assert (ahead["code"], ahead["end"]) == ("terminal.offset_ahead", len(whole))
    account = (await api.http.get(f"{path}/account")).json()
    assert [(each["name"], each["text"]) for each in account["typed"]] == [("ann", "said\n")]
    assert (account["from"], account["to"]) == (0, len(whole))
    assert "red" in account["text"]
    assert [each["how"] for each in account["leases"]] == ["input"]
    recording = await api.http.get(f"{path}/recording")
    assert recording.headers["content-type"] == "application/x-asciicast"
    header, *events = [json.loads(line) for line in recording.text.splitlines()]
    assert (header["version"], header["term"]["cols"]) == (3, 80)
    assert "".join(data for _, code, data in events if code == "o") == whole.decode()
    assert "".join(data for _, code, data in events if code == "i") == "said\n"
    for answer in (text, drawn, part, recording):
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "hibernated"


async def test_typing_wakes_the_machine(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="stty -echo; echo ready; exec cat")
    await until_output(api, terminal, b"ready")
    await api.do(machine, "hibernate")
    assert (await do(api, terminal, "input", data="good morning\n")).status_code == 200
    await until_output(api, terminal, b"good morning\r\n")


# What it is made wrong by: a new terminal, and an act.
WRONG_TERMINALS: list[dict[str, Any]] = [
    {"command": "x", "argv": ["x"]},
    {"argv": []},
    {"cols": 0},
    {"rows": 1001},
    {"cols": "80"},
    {"command": "a\0b"},
    {"env": {"a=b": "c"}},
    {"surprise": 1},
]
WRONG_ACTS: list[tuple[str, dict[str, Any]]] = [
    ("input", {}),
    ("input", {"data": "a", "base64": "YQ=="}),
    ("input", {"base64": "!"}),
    ("input", {"data": "x" * 65_537}),
    ("input", {"data": "é" * 40_000}),
    ("resize", {"cols": 80}),
    ("resize", {"cols": 80, "rows": 0}),
    ("signal", {"signal": "NOPE"}),
    ("signal", {"signal": 0}),
    ("signal", {"signal": 65}),
    ("signal", {"signal": True}),
    ("grant", {}),
    ("take", {"x": 1}),
    ("run", {"command": ""}),
    ("run", {"command": "a\0b"}),
    ("run", {"command": "é" * 40_000}),
    ("run", {"command": "x", "effect_id": "no spaces"}),
]


async def test_what_is_wrong_is_refused_before_anything_is_opened_or_typed(api: MachineApi) -> None:
    machine = await api.create()
    path = f"/v1/machines/{machine}/terminals"
    for body in WRONG_TERMINALS:
        assert_problem(await api.http.post(path, json=body), 422)
    assert (await api.http.get(path)).json()["items"] == []
    terminal = await open_terminal(api, machine, command="exec cat")
    for verb, body in WRONG_ACTS:
        assert_problem(await do(api, terminal, verb, **body), 422)
    assert_problem(await do(api, terminal, "grant", operator="nobody"), 404)
    assert (await api.http.get(f"/v1/terminals/{terminal}")).json()["offset"] == 0
    for query in ("from=-1", "from=x", "to=1e9", "surprise=1", f"from={2**60}"):
        assert_problem(await api.http.get(f"/v1/terminals/{terminal}/output?{query}"), 422)
    assert_problem(await api.http.get(f"/v1/terminals/{terminal}/screen?format=html"), 422)


async def test_a_wrong_id_is_the_id_of_nothing(api: MachineApi) -> None:
    for wrong in ("x", "term_", f"mach_{'0' * 32}", new_terminal_id(), "term_" + "G" * 32, "%00", "x" * 5000):
        for tail in ("", "/screen", "/output", "/account", "/recording"):
            assert_problem(await api.http.get(f"/v1/terminals/{wrong}{tail}"), 404)
        for verb in ("take", "yield"):
            assert_problem(await api.http.post(f"/v1/terminals/{wrong}/{verb}"), 404)
        assert_problem(await api.http.delete(f"/v1/terminals/{wrong}"), 404)


async def test_who_may_only_observe_reads_and_does_nothing_else(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo ready; exec cat")
    await until_output(api, terminal, b"ready")
    eye = await principal(api.api, "eye", "device", rights=["observe"])
    headers = {"authorization": f"Bearer {eye}"}
    assert (await api.http.get(f"/v1/terminals/{terminal}/screen", headers=headers)).text.split() == ["ready"]
    for verb, body in (("take", {}), ("input", {"data": "x"}), ("resize", {"cols": 1, "rows": 1})):
        assert_problem(await do(api, terminal, verb, eye, **body), 403)
    assert_problem(await api.http.delete(f"/v1/terminals/{terminal}", headers=headers), 403)


async def test_a_stopped_machine_s_terminal_is_taken_and_nothing_is_typed_into_it(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="exec cat")
    agent, person = await principal(api.api, "bot", "agent"), await principal(api.api, "ann")
    assert (await do(api, terminal, "input", agent, data="before\n")).status_code == 200
    await api.do(machine, "pause")
    taken = await do(api, terminal, "take", person)
    assert taken.status_code == 200, taken.text
    assert taken.json()["lease"]["name"] == "ann"
    assert_problem(await do(api, terminal, "input", person, data="no\n"), 409)
    await api.do(machine, "resume")
    assert_problem(await do(api, terminal, "input", agent, data="no\n"), 409)
    assert (await do(api, terminal, "input", person, data="after\n")).status_code == 200
    assert b"no\r\n" not in await until_output(api, terminal, b"after\r\n")


async def test_the_terminals_of_a_machine_that_was_deleted_are_still_listed_and_read(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="echo kept; exec cat")
    await until_output(api, terminal, b"kept\r\n")
    assert (await api.http.delete(f"/v1/machines/{machine}")).status_code == 200
    listed = (await api.http.get(f"/v1/machines/{machine}/terminals")).json()
    assert [(each["id"], each["state"]) for each in listed["items"]] == [(terminal, "closed")]
    assert b"kept\r\n" in (await api.http.get(f"/v1/terminals/{terminal}/output")).content
