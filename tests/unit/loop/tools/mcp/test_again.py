"""A call of an MCP tool whose step is tried again: what may have been done before is never denied."""

from dataclasses import replace
from typing import Any, cast

import pytest

from outlive.base import MachineId, PrincipalId, StepId, derive, new_conversation_id, new_effect_id, new_turn_id
from outlive.conversation.events import MachineAttached, ToolCall
from outlive.governance.egress import parse_rules
from outlive.loop.activities.tool import machines_since
from outlive.loop.backends.mcp_client import SdkMcpClient
from outlive.loop.tools import ToolContext, ToolParts
from outlive.loop.tools.mcp.listing import ListedTool
from outlive.loop.tools.mcp.server import McpServer
from outlive.loop.tools.mcp.tool import BrokenMcpTool, McpTool
from outlive.loop.tools.reach import ToolMachine
from outlive.loop.tools.registry import interrupt_tool, run_tool
from outlive.machine.terminal.status import Operator
from unit.loop.logs import Log, answer, call

pytestmark = pytest.mark.anyio

NOBODY = cast("Any", None)
CALL = ToolCall(id="c", name="srv__go", arguments={})


class NewMachine:
    """The conversation's machine, in which nothing was done yet."""

    async def ensure(self, context: ToolContext) -> ToolMachine:
        return ToolMachine(MachineId("mach_new"), PrincipalId("p"), NOBODY, None, NOBODY, NOBODY)


CONTEXT = ToolContext(
    parts=ToolParts(NOBODY, NOBODY, cast("Any", NewMachine())),
    conversation=new_conversation_id(),
    turn=new_turn_id(),
    step=StepId("step_1"),
    effect_id=new_effect_id(),
    operator=Operator(id=PrincipalId("p"), name="a", kind="agent", rights=frozenset()),
    say=lambda *_: None,
)


@pytest.mark.parametrize("other", [None, BrokenMcpTool("srv__go", "It is away.")])
async def test_a_tool_that_is_gone_when_its_step_is_tried_again_is_lost(other: BrokenMcpTool | None) -> None:
    assert (await run_tool(CALL, CONTEXT, (), other)).outcome == "rejected"
    again = await run_tool(CALL, replace(CONTEXT, is_again=True), (), other)
    assert (again.outcome, "may have begun" in again.output) == ("lost", True)


async def test_an_interrupt_does_not_say_that_nothing_happened_of_a_tool_that_is_gone() -> None:
    other = BrokenMcpTool("srv__go", "It is away.")
    assert (await interrupt_tool(CALL, replace(CONTEXT, is_again=True), other)).outcome == "lost"


async def test_a_call_that_may_have_begun_in_a_machine_before_this_one_is_lost() -> None:
    server = McpServer(name="srv", command=("serve",))
    listed = ListedTool(name="srv__go", original="go", description="", parameters={})
    tool = McpTool(server, listed, SdkMcpClient(parse_rules([]), NOBODY))
    again = replace(CONTEXT, is_again=True, machines=frozenset({"mach_old", "mach_new"}))
    assert (await tool.run(CALL, again)).outcome == "lost"


def test_the_machines_of_a_step_are_those_since_it_was_first_requested() -> None:
    log = Log()
    turn = log.message()
    log.begin(turn)
    log.append(MachineAttached(machine="mach_1"), turn=turn)
    log.append(MachineAttached(machine="mach_2"), turn=turn)
    log.answered(turn, 1, answer("", call("c1")))
    step = StepId(derive("step", turn, 2))
    assert machines_since(log.events, step) == frozenset()
    log.request(turn, 2, call("c1"))
    assert machines_since(log.events, step) == {"mach_2"}
    log.append(MachineAttached(machine="mach_3"), turn=turn)
    log.request(turn, 2, call("c1"), attempt=2)
    assert machines_since(log.events, step) == {"mach_2", "mach_3"}
