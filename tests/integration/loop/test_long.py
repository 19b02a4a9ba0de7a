"""A long conversation: it ends, and Temporal keeps next to nothing of it."""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.loop.tools.workshop import machines_of
from integration.loop.turns import Stage, data_of, stage_at
from machine_rooms import open_machine_room
from outlive.base import ConversationId
from outlive.conversation.events import Event
from outlive.testing.pretend_provider import PretendProvider

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CALLS = 100
OUTPUT = 5_120  # bytes that a tool prints each time
SAID = 3_600
BYTES_PER_TOKEN = 4

# What Temporal asks for a new run at, and what it ends a run at.
SUGGESTED_EVENTS, SUGGESTED_BYTES = 4_096, 4 * 1024 * 1024
MOST_EVENTS, MOST_BYTES = 51_200, 50 * 1024 * 1024


class Size(NamedTuple):
    """What one turn came to, in the log and in Temporal's history."""

    model_calls: int
    tool_bytes: int
    tokens: int
    events: int
    bytes: int

    def report(self) -> str:
        return (
            f"{self.model_calls} model calls, {self.tokens:,} tokens, {self.tool_bytes:,} bytes of tool output: "
            f"Temporal's history has {self.events:,} events and {self.bytes:,} bytes, "
            f"{self.events / MOST_EVENTS:.1%} and {self.bytes / MOST_BYTES:.1%} of what Temporal ends a run at."
        )


def _script() -> str:
    """A file is written, and then read again and again; each answer says a good deal beside its call."""
    line = "0123456789abcdef" * 4  # 65 bytes with its end
    content = "\n".join([line] * (OUTPUT // 65 + 1))
    write = f"[[lump {SAID}]] [[tool write_file {json.dumps({'path': 'notes.txt', 'content': content})}]]"
    read = f"[[lump {SAID}]] [[tool read_file {json.dumps({'path': 'notes.txt'})}]]"
    return " ".join([write, *[read] * (CALLS - 2), "[[say That was all.]]"])


async def _size(stage: Stage, conversation: ConversationId, events: list[Event]) -> Size:
    outputs = sum(len(each["output"].encode()) for each in data_of(events, "tool.finished"))
    answers = data_of(events, "model.responded")
    said = sum(len(each["text"]) for each in answers)
    described = await stage.client.get_workflow_handle(conversation).describe()
    history = described.raw_description.workflow_execution_info
    return Size(
        len(answers), outputs, (said + outputs) // BYTES_PER_TOKEN, history.history_length, history.history_size_bytes
    )


async def test_a_conversation_of_209_000_tokens_and_100_model_calls_ends_with_a_small_history(
    temporal: str, provider: PretendProvider, tmp_path: Path
) -> None:
    async with (
        open_machine_room(tmp_path) as room,
        room.node() as node,
        stage_at(tmp_path / "home", temporal, partial(machines_of, room, node)) as stage,
    ):
        conversation = await stage.converse(environment="host")
        turn = await stage.send(conversation, _script())
        events = await stage.ended(conversation, turn, within_s=150.0)
        size = await _size(stage, conversation, events)
    print(size.report())  # `pytest -s` shows it
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert data_of(events, "turn.recovered") == []
    assert data_of(events, "model.responded")[-1]["text"] == "That was all."
    assert [each["outcome"] for each in data_of(events, "tool.finished")] == ["finished"] * (CALLS - 1)
    compactions = [each["outcome"] for each in data_of(events, "compaction.finished")]
    assert compactions in (["compacted"], ["compacted"] * 2), "few, however long it gets"
    assert size.model_calls == len(provider.calls) - len(compactions) == CALLS
    assert size.tokens >= 209_000
    assert size.tool_bytes >= (CALLS - 2) * OUTPUT
    assert 0 < size.events < SUGGESTED_EVENTS / 2
    assert 0 < size.bytes < SUGGESTED_BYTES / 4


async def test_the_setting_alone_bounds_what_is_told_of_a_result_and_it_is_cut_once(
    temporal: str, provider: PretendProvider, tmp_path: Path
) -> None:
    async with (
        open_machine_room(tmp_path) as room,
        room.node() as node,
        stage_at(tmp_path / "home", temporal, partial(machines_of, room, node), result_bytes=2_000) as stage,
    ):
        conversation = await stage.converse(environment="host")
        command = json.dumps({"command": "seq 1 10000; (exit 3)"})
        turn = await stage.send(conversation, f"[[tool shell {command}]] [[quote 9000]]")
        events = await stage.ended(conversation, turn)
    [finished] = data_of(events, "tool.finished")
    output = finished["output"]
    assert 1_500 < len(output.encode()) <= 2_000
    assert output.count("left out") == 1
    assert output.endswith("9999\n10000\n[exit code 3]")
    told = data_of(events, "model.responded")[-1]["text"]  # what the model was told, said again
    assert told.rstrip() == output.rstrip()
