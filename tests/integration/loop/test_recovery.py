"""Temporal's database is gone while turns are open: whoever comes next finishes them from the log."""

from pathlib import Path

import pytest

from eventually import eventually
from integration.loop.turns import WITHIN_S, data_of, stage_at, temporal_at, types
from outlive.loop.sweeper import TurnSweeper
from outlive.testing.pretend_provider import PretendProvider

LONG = " ".join(f"word{n}" for n in range(60))  # of which the first stack says two and never the last

pytestmark = pytest.mark.anyio


async def test_with_temporals_database_gone_open_turns_end_from_the_log(
    provider: PretendProvider, temporal: str, tmp_path: Path
) -> None:
    provider.pace_s = 0.5
    with temporal_at(tmp_path / "doomed") as doomed:
        async with stage_at(tmp_path / "home", doomed) as stage:
            conversation, fresh = await stage.converse(), await stage.converse()
            turn = await stage.send(conversation, '[[tool shell {"command": "ls"}]] [[say ' + LONG + "]]")
            await eventually(lambda: len(provider.calls) == 2 and provider.calls[-1].pieces > 1, WITHIN_S)
            other = await stage.record(fresh, "[[say Here I am.]]")  # and the API died
    provider.pace_s = 0.0
    async with stage_at(tmp_path / "home", temporal) as stage:
        assert await stage.events(conversation)
        assert not await stage.loop.is_running(conversation)
        await TurnSweeper(stage.parts.catalog, stage.loop, stage.parts.clock, settle_s=0.0).sweep()
        events = await stage.ended(conversation, turn)
        assert data_of(await stage.ended(fresh, other), "model.responded")[0]["text"] == "Here I am."
    whats = [each["what"] for each in data_of(events, "turn.recovered")]
    assert whats == ["restarted", "step_retried"]
    assert types(events).count("turn.started") == 1
    answers = [event for event in events if event.type == "model.responded"]
    assert data_of(events, "model.responded")[1]["text"] == LONG
    for answer in answers:
        outcomes = [call.outcome for call in provider.calls if call.step == answer.step]
        assert outcomes.count("answered") == 1  # what was sealed was not bought again
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
