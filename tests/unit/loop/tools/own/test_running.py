"""Functions of users that end in a way of their own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outlive.base import new_conversation_id, new_effect_id, new_turn_id
from outlive.loop.tools.own.running import Run, open_runner
from outlive.toolkit import ToolContext, tell_error, tool
from outlive.toolkit.declared import declaration_of

pytestmark = pytest.mark.anyio


@tool
async def waits_for_what_was_called_off() -> None:
    """Waits for a task of its own that it has cancelled."""
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


@tool
def raises_in_a_thread() -> None:
    """Raises what a loop raises."""
    raise asyncio.CancelledError("by myself")


@pytest.mark.parametrize("function", [waits_for_what_was_called_off, raises_in_a_thread])
async def test_a_function_that_is_cancelled_by_itself_has_failed(function: Callable[..., Any]) -> None:
    context = ToolContext(effect_id=new_effect_id(), conversation=new_conversation_id(), turn=new_turn_id())
    async with open_runner(1) as runner:
        returned = await runner.run(Run(declaration_of(function), {}, context))
    assert returned.error is not None
    assert tell_error(returned.error).startswith("CancelledError")
