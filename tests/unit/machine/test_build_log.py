"""The log of a build holds each byte once, grows only, is bounded, and costs the build nothing."""

from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from outlive.base import EffectId, MachineId
from outlive.machine.build_log import LOG_LIMIT, BuildLog, CommandOutput, log_key
from outlive.machine.door import Output
from outlive.machine.status import Effect
from outlive.storage.objects import ObjectStore, open_objects

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = log_key("f" * 32, 1)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return open_objects(str(tmp_path / "objects"))


def an_effect(stdout: str, *, truncated: bool = False) -> Effect:
    ids = {"machine": MachineId("mach_" + "1" * 32), "id": EffectId("e"), "n": 1, "digest": "d", "generation": 1}
    fields = {"state": "finished", "exit_code": 0, "stdout": stdout, "truncated": truncated, "started_at": AT}
    return Effect.model_validate({**ids, **fields})


async def read(log: BuildLog, objects: ObjectStore) -> bytes:
    await log.flush()
    return await objects.get(KEY)


async def test_output_is_taken_once_however_often_it_is_followed(objects: ObjectStore) -> None:
    log = BuildLog(objects, KEY)
    log.say("$ command")
    output = CommandOutput(log)
    output.take(Output("stdout", 0, b"one "))
    output.take(Output("stdout", 0, b"one "))  # again, after a break
    output.take(Output("stdout", 2, b"e two"))
    output.end(an_effect("one two"))
    log.say("next")
    assert await read(log, objects) == b"$ command\none two\nnext\n"


async def test_what_was_printed_before_we_came_is_told_by_the_result(objects: ObjectStore) -> None:
    log = BuildLog(objects, KEY)
    output = CommandOutput(log)
    output.take(Output("stdout", 4, b"two "))  # from a gap on nothing is taken live
    output.take(Output("stdout", 8, b"three"))
    output.end(an_effect("one two three", truncated=True))
    assert await read(log, objects) == b"one two three\n[It printed more than is kept here.]\n"


async def test_it_is_bounded_and_says_so_once(objects: ObjectStore) -> None:
    log = BuildLog(objects, KEY)
    for _ in range(3):
        log.add(b"x" * (LOG_LIMIT // 2 + 1))
    log.say("more")
    kept = await read(log, objects)
    assert kept[:LOG_LIMIT] == b"x" * LOG_LIMIT
    assert kept[LOG_LIMIT:] == b"\n[The log is full: the rest is not kept.]\n"


async def test_it_is_readable_while_it_grows(objects: ObjectStore) -> None:
    log = BuildLog(objects, KEY)
    async with anyio.create_task_group() as group:
        group.start_soon(log.keep)
        await eventually(lambda: objects.exists(KEY))  # also while nothing was said yet
        log.say("here")

        async def is_there() -> bool:
            return await objects.get(KEY) == b"here\n"

        await eventually(is_there)
        group.cancel_scope.cancel()


async def test_a_store_that_is_away_costs_the_log_alone(tmp_path: Path) -> None:
    place = tmp_path / "objects"
    log = BuildLog(open_objects(str(place)), KEY)
    (place / "environments").mkdir(parents=True)
    (place / "environments" / ("f" * 32)).write_text("in the way")
    log.say("unheard")
    await log.flush()
    (place / "environments" / ("f" * 32)).unlink()
    await log.flush()
    assert await open_objects(str(place)).get(KEY) == b"unheard\n"
