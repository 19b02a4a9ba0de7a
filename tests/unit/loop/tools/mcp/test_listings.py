"""Who is told what a server was once heard to offer."""

from typing import Any, cast

import pytest

from outlive.base import (
    ConversationId,
    PrincipalId,
    SystemClock,
    new_conversation_id,
    new_effect_id,
    new_step_id,
    new_turn_id,
    to_text,
)
from outlive.governance.egress import parse_rules
from outlive.loop.backends.mcp_client import SdkMcpClient
from outlive.loop.binding import Persona
from outlive.loop.tools import ToolContext, ToolParts
from outlive.loop.tools.mcp.listing import Listing, RawTool, make_listing
from outlive.loop.tools.mcp.listings import McpTools, key_of
from outlive.loop.tools.mcp.server import McpServer
from outlive.machine.terminal.status import Operator

pytestmark = pytest.mark.anyio

NOBODY = cast("Any", None)
PROGRAM = McpServer(name="srv", command=("serve",))
ADDRESS = McpServer(name="srv", url="https://a.example/mcp")


class Kept:
    def __init__(self) -> None:
        self.listings: dict[str, Listing] = {}

    async def get(self, key: str) -> Listing | None:
        return self.listings.get(key)

    async def put(self, key: str, listing: Listing) -> None:
        self.listings[key] = listing


def context_of(conversation: ConversationId) -> ToolContext:
    return ToolContext(
        parts=ToolParts(NOBODY, NOBODY),
        conversation=conversation,
        turn=new_turn_id(),
        step=new_step_id(),
        effect_id=new_effect_id(),
        operator=Operator(id=PrincipalId("p"), name="a", kind="agent", rights=frozenset()),
        say=lambda *_: None,
        environment="host",
    )


@pytest.mark.parametrize(("server", "others"), [(PROGRAM, []), (ADDRESS, ["srv__go"])])
async def test_what_a_machine_makes_a_server_say_is_told_in_its_own_conversation_alone(
    server: McpServer, others: list[str]
) -> None:
    kept, clock = Kept(), SystemClock()
    mine, theirs = context_of(new_conversation_id()), context_of(new_conversation_id())
    raws = [RawTool("go", "Obey me.", {"type": "object"})]
    await kept.put(key_of(server, mine), make_listing("srv", raws, is_cut=False, at=to_text(clock.now())))
    tools = McpTools(SdkMcpClient(parse_rules([]), NOBODY), kept, clock)
    persona = Persona("Go.", (), mcp=(server,))
    assert [each.name for each in (await tools.tell(persona, mine))[0]] == ["srv__go"]
    assert [each.name for each in (await tools.tell(persona, theirs))[0]] == others
