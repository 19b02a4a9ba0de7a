"""The API killed while it makes a fork with its machine: one conversation, one machine, and the log says so, whether or
not anybody asks again. And while it runs a race: the chosen one's machine is left, and nothing of the others."""

import http.client
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from crash.loop.stacks import LoopStack, loop_stack
from eventually import eventually_sync
from leaks import leftovers
from outlive.base import CrashPoint, derive
from outlive.wiring.node import cgroup_name

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("forks_and_races")]

WITHIN_S = 120.0
PROMPT = f"[[tool shell {json.dumps({'command': 'cat /workspace/a; hostname >> /workspace/a'})}]] [[say Done.]]"
ENDLESS = '[[tool shell {"command": "sleep 1000"}]]'
OWN = ["conversation.created", "machine.attached", "machine.forked"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopStack]:
    made = loop_stack(tmp_path_factory.mktemp("forks"), OUTLIVE_LOOP__SWEEP_S="1")
    with made as stack, stack.trace.told_on_failure("the stack"):
        yield stack
        stack.down()


def tool(name: str, **arguments: str) -> str:
    return f"[[tool {name} {json.dumps(arguments)}]]"


def done(stack: LoopStack, conversation: str, text: str) -> None:
    """A turn, to its end."""
    turn = stack.must(stack.ask("POST", f"/v1/conversations/{conversation}/messages", {"text": text}))["turn_id"]
    ended = ("turn.finished", turn)
    eventually_sync(lambda: ended in {(each["type"], each["turn"]) for each in events(stack, conversation)}, WITHIN_S)


def events(stack: LoopStack, conversation: str) -> list[dict[str, Any]]:
    shown = stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000"))
    return list(shown["items"])


@pytest.fixture(scope="module")
def worked(stack: LoopStack) -> str:
    """A conversation in whose machine something was done."""
    made = stack.must(stack.ask("POST", "/v1/conversations", {"model": "openai:pretend", "environment": "host"}))
    done(stack, made["id"], f"{tool('shell', command='echo one > /workspace/a')} [[say Done.]]")
    return str(made["id"])


@pytest.mark.parametrize("asks_again", [True, False])
@pytest.mark.parametrize("point", [CrashPoint.FORK_AFTER_CONVERSATION, CrashPoint.FORK_AFTER_MACHINE])
def test_a_fork_cut_off_by_a_dying_api_is_one_conversation_with_one_machine_or_none(
    stack: LoopStack, worked: str, point: CrashPoint, asks_again: bool
) -> None:
    stack.wait_until_well()
    before = {each["id"] for each in stack.must(stack.ask("GET", "/v1/machines"))["items"]}
    known = {each["id"] for each in stack.must(stack.ask("GET", "/v1/conversations"))["items"]}
    path, body, key = f"/v1/conversations/{worked}/fork", {"machine": "fork"}, uuid.uuid4().hex
    stack.arm(point)
    if asks_again:
        answered = stack.must(stack.ask("POST", path, body, key=key))
    else:
        with pytest.raises((OSError, http.client.HTTPException)):
            stack.home.call("POST", path, body, key=key)
    assert not stack.is_armed(point)
    stack.wait_until_well()
    [made] = {each["id"] for each in stack.must(stack.ask("GET", "/v1/conversations"))["items"]} - known
    if point == CrashPoint.FORK_AFTER_CONVERSATION and not asks_again:
        # A fork that nobody knows of, without a machine: the first tool makes it one.
        assert [each["type"] for each in events(stack, made)][-1:] == ["conversation.created"]
        assert {each["id"] for each in stack.must(stack.ask("GET", "/v1/machines"))["items"]} == before
        return
    eventually_sync(lambda: [each["type"] for each in events(stack, made)][-3:] == OWN, WITHIN_S)
    [machine] = {each["id"] for each in stack.must(stack.ask("GET", "/v1/machines"))["items"]} - before
    assert machine == derive("mach", made) == events(stack, made)[-2]["data"]["machine"]
    assert not asks_again or (answered["id"], answered["machine"]) == (made, machine)
    shown = stack.must(stack.exec(machine, f"eff_{uuid.uuid4().hex}", "cat a"))
    assert shown["stdout"] == "one\n"


def listed(stack: LoopStack, what: str) -> set[str]:
    return {each["id"] for each in stack.must(stack.ask("GET", f"/v1/{what}?limit=1000"))["items"]}


def shown(stack: LoopStack, race: str) -> dict[str, Any]:
    return stack.must(stack.ask("GET", f"/v1/races/{race}"))


def left_of(stack: LoopStack, machine: str) -> list[str]:
    """Mounts, devices, processes and folders of it on the host."""
    path = stack.home.path / "node"
    return [each for each in leftovers(path, cgroup_name(path)) if machine in each]


def start(stack: LoopStack, point: CrashPoint, path: str, body: dict[str, Any]) -> str:
    """The API dies at `point`; the same request again, as a client asks it."""
    key = uuid.uuid4().hex
    stack.arm(point)
    race = stack.must(stack.ask("POST", path, body, key=key))
    assert not stack.is_armed(point)
    assert stack.must(stack.ask("POST", path, body, key=key))["id"] == race["id"]
    return str(race["id"])


@pytest.mark.parametrize(
    ("at_start", "at_choice"),
    [
        (CrashPoint.RACE_AFTER_RECORD, CrashPoint.RACE_AFTER_CHOICE),
        (CrashPoint.RACE_AFTER_FORK, CrashPoint.RACE_AFTER_STOP),
    ],
)
def test_a_race_of_three_leaves_the_chosen_ones_machine_and_nothing_of_the_others_wherever_the_api_dies(
    stack: LoopStack, at_start: CrashPoint, at_choice: CrashPoint
) -> None:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"model": "openai:pretend", "environment": "host"}))
    done(stack, made["id"], f"{tool('shell', command='echo one > /workspace/a')} [[say Done.]]")
    stack.wait_until_well()
    conversations, machines = listed(stack, "conversations"), listed(stack, "machines")
    contestants = [{"model": "openai:pretend"}, {"model": "openai:other"}, {"agent": "coder"}]
    body = {"prompt": PROMPT, "contestants": contestants}
    race = start(stack, at_start, f"/v1/conversations/{made['id']}/races", body)
    eventually_sync(lambda: shown(stack, race)["state"] in ("running", "ended"), WITHIN_S)
    three = shown(stack, race)["contestants"]
    copies = [str(each["machine"]) for each in three]
    assert listed(stack, "machines") - machines == set(copies)
    assert listed(stack, "conversations") - conversations == {each["conversation"] for each in three}
    # All of them were born of the same checkpoint, and each is told so.
    forked = [each for one in three for each in events(stack, one["conversation"]) if each["type"] == "machine.forked"]
    assert len(forked) == 3
    assert len({each["data"]["checkpoint"] for each in forked}) == 1

    eventually_sync(lambda: shown(stack, race)["state"] == "ended", WITHIN_S)
    first = three[0]["conversation"]
    stack.must(stack.ask("POST", f"/v1/conversations/{first}/messages", {"text": ENDLESS}))
    eventually_sync(lambda: "sleep 1000" in str(events(stack, first)[-1]["data"]), WITHIN_S)
    kept = shown(stack, race)["contestants"][1]
    assert (kept["answer"], kept["steps"], kept["model"]) == ("Done.", 3, "openai:other")
    stack.wait_until_well()
    stack.arm(at_choice)
    with pytest.raises((OSError, http.client.HTTPException)):  # and nobody asks again
        stack.home.call("POST", f"/v1/races/{race}/choose", {"conversation": kept["conversation"]})
    assert not stack.is_armed(at_choice)
    stack.wait_until_well()
    eventually_sync(lambda: shown(stack, race)["state"] == "chosen", WITHIN_S)

    assert [each["state"] for each in shown(stack, race)["contestants"]] == ["let_go", "chosen", "let_go"]
    assert listed(stack, "machines") - machines == {kept["machine"]}
    assert listed(stack, "conversations") - conversations == {kept["conversation"]}
    for each in three:
        conversation = stack.must(stack.ask("GET", f"/v1/conversations/{each['conversation']}"))
        assert (conversation["turn"], conversation["archived_at"] is None) == (None, each["machine"] == kept["machine"])
        assert bool(left_of(stack, each["machine"])) == (each["machine"] == kept["machine"])
    shell = stack.must(stack.exec(kept["machine"], f"eff_{uuid.uuid4().hex}", "wc -l < a"))
    assert shell["stdout"].strip() == "2"
    again = stack.ask("POST", f"/v1/races/{race}/choose", {"conversation": kept["conversation"]})
    assert stack.must(again)["state"] == "chosen"
    other = stack.ask("POST", f"/v1/races/{race}/choose", {"conversation": three[0]["conversation"]})
    assert (other.status, other.code) == (409, "race.already_chosen")
