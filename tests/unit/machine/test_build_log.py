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


async def test_it_can_be_read_as_soon_as_it_has_begun(objects: ObjectStore) -> None:
    await BuildLog(objects, KEY).begin()
    assert await objects.get(KEY) == b""


async def test_a_build_that_is_begun_again_never_takes_back_what_was_read(objects: ObjectStore) -> None:
    first = BuildLog(objects, KEY)
    await first.begin()
    first.say("$ install")
    first.say("done")
    await first.flush()

    second = BuildLog(objects, KEY)
    await second.begin()
    assert await read(second, objects) == b"$ install\ndone\n"
    second.say("$ install")
    assert await read(second, objects) == b"$ install\ndone\n"
    second.say("done")
    second.say("Ready")
    assert await read(second, objects) == b"$ install\ndone\nReady\n"

    third = BuildLog(objects, KEY)  # its steps are done: nobody says again what they said
    await third.begin()
    third.go_on()
    third.say("Starting it.")
    assert await read(third, objects) == b"$ install\ndone\nReady\nStarting it.\n"


async def test_the_last_word_is_stored_though_it_is_less_than_was_kept_before(objects: ObjectStore) -> None:
    await objects.replace(KEY, b"x" * 100)
    log = BuildLog(objects, KEY)
    await log.begin()
    log.say("Failed: its output is gone")
    await log.flush(is_last=True)
    assert await objects.get(KEY) == b"Failed: its output is gone\n"


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
