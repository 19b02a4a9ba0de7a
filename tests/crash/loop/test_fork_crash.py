"""The API killed while it makes a fork with its machine: one conversation, one machine, and the log says so, whether or
not anybody asks again."""

import http.client
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from crash.loop.stacks import LoopStack, loop_stack
from eventually import eventually_sync
from outlive.base import CrashPoint, derive

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("fork_crash")]

WITHIN_S = 120.0
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
