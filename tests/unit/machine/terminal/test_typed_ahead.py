"""What a client has sent and nobody has taken yet: bounded, in order, keys in one go."""

import anyio
import pytest

from outlive.machine.node.terminals.typed_ahead import AHEAD_LIMIT, TypedAhead
from outlive.machine.terminal.door import INPUT_LIMIT
from outlive.machine.terminal.frames import Channel, Frame

pytestmark = pytest.mark.anyio


def _typed(data: bytes) -> Frame:
    return Frame(Channel.INPUT, data)


async def test_keys_are_put_together_up_to_what_may_be_typed_at_once_and_all_else_keeps_its_place() -> None:
    ahead, size = TypedAhead(), Frame(Channel.RESIZE, b"{}")
    await ahead.put([_typed(b"a"), _typed(b"b"), size, _typed(b"c")])
    await ahead.put([_typed(b"d" * INPUT_LIMIT)])
    ahead.end()
    assert await ahead.take() == [_typed(b"ab"), size, _typed(b"c"), _typed(b"d" * INPUT_LIMIT)]
    assert await ahead.take() is None


async def test_who_sends_more_than_may_wait_is_not_read_until_some_is_taken() -> None:
    ahead = TypedAhead()
    with anyio.move_on_after(0.05) as waiting:
        await ahead.put([_typed(b"x" * (AHEAD_LIMIT + 1))])
    assert waiting.cancelled_caught
    await ahead.take()
    with anyio.fail_after(20):
        await ahead.put([_typed(b"y")])


async def test_very_many_frames_without_anything_in_them_are_too_much_as_well() -> None:
    with anyio.move_on_after(0.05) as waiting:
        await TypedAhead().put([_typed(b"")] * AHEAD_LIMIT)
    assert waiting.cancelled_caught
