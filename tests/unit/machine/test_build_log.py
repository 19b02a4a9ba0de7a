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
    await BuildLog(objects, KEY).flush()
    assert await objects.get(KEY) == b""


async def test_a_build_that_is_begun_again_never_takes_back_what_was_read(objects: ObjectStore) -> None:
    first = BuildLog(objects, KEY)
    first.say("$ install")
    first.say("done")
    assert await read(first, objects) == b"$ install\ndone\n"

    second = BuildLog(objects, KEY)
    assert await read(second, objects) == b"$ install\ndone\n"
    second.say("$ install")
    assert await read(second, objects) == b"$ install\ndone\n"
    second.say("done")
    second.say("Starting it.")
    assert await read(second, objects) == b"$ install\ndone\nStarting it.\n"

    third = BuildLog(objects, KEY)  # its steps are done: nobody says again what they said
    third.say("Starting it.")
    third.say("Ready")
    again = b"$ install\ndone\nStarting it.\n[Begun again.]\nStarting it.\nReady\n"
    assert await read(third, objects) == again
    assert await read(third, objects) == again


async def test_what_a_build_that_is_begun_again_says_follows_what_was_said(objects: ObjectStore) -> None:
    await objects.replace(KEY, b"$ install\nhalf a li")
    log = BuildLog(objects, KEY)
    log.say("Not now: no node has room. It is tried again.")
    kept = await read(log, objects)
    assert kept.startswith(b"$ install\nhalf a li\n[")
    assert kept.endswith(b"]\nNot now: no node has room. It is tried again.\n")
    log.say("Ready")
    assert await read(log, objects) == kept + b"Ready\n"


async def test_one_that_is_full_stays_as_it_is_when_the_build_is_begun_again(objects: ObjectStore) -> None:
    full = BuildLog(objects, KEY)
    full.add(b"x" * LOG_LIMIT)
    kept = await read(full, objects)
    log = BuildLog(objects, KEY)
    log.say("something else")
    assert await read(log, objects) == kept
    log.say("and more")
    assert await read(log, objects) == kept


async def test_nothing_is_stored_until_it_is_known_what_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "objects"
    await open_objects(str(place)).replace(KEY, b"$ install\n")
    [stored] = place.rglob("*.log")
    aside = stored.rename(tmp_path / "aside")
    stored.mkdir()  # there, and not to be read
    log = BuildLog(open_objects(str(place)), KEY)
    log.say("$ install")
    await log.flush()
    log.say("done")
    stored.rmdir()
    aside.rename(stored)
    assert await read(log, open_objects(str(place))) == b"$ install\ndone\n"


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
