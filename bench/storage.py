"""What stays in storage after a million deltas: the sealed results, and little else."""

import random
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.lowlevel

from bench.house import House, open_house, settings_of
from bench.measure import Say, Section
from bench.rows import ACTOR
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import ConversationId, SystemClock, new_step_id, new_turn_id, to_text
from outlive.conversation.events import Delta, ModelResponded, NewEvent, TurnFinished, TurnStarted
from outlive.conversation.log import Append
from outlive.conversation.position import START
from outlive.conversation.writer import start_step

NAME = "storage"
TITLE = "Storage"
WHAT = (
    "{scale.deltas:,} deltas of a word each, streamed through {scale.steps} model steps of one conversation while "
    "somebody follows; each step is then sealed with its whole text. Storage is everything on disk after the "
    "stack was closed: the database with its indexes and the words to search by, its journal, and the object "
    "store. Beside it: the bytes of the sealed results (the payloads of `model.responded`). The same again with "
    "deltas of one letter, where the results are small and full pages weigh more."
)
_WORDS = 2_000


def _vocabulary() -> list[str]:
    """Words of the lengths that text has, with a space each; the same in every run."""
    source = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgk"
    return ["".join(source.choices(letters, k=source.randint(1, 9))) + " " for _ in range(_WORDS)]


class _Left(NamedTuple):
    """What a run has left."""

    sealed: int
    stored: int
    empty: int
    shown: int  # characters of live output that the follower saw
    seconds: float


async def _stream(house: House, conversation: ConversationId, vocabulary: list[str], scale: Scale, say: Say) -> int:
    """Stream and seal all steps. Returns the bytes of the sealed payloads."""
    turn = new_turn_id()
    at = to_text(SystemClock().now())
    started = NewEvent(TurnStarted(agent="coder", version=1, model="demo:"), at)
    await house.conversations.append(Append(conversation, (started,), key="start", actor=ACTOR, turn=turn))
    source = random.Random(11)
    sealed = 0
    per_step = scale.deltas // scale.steps
    for number in range(scale.steps):
        if number % 10 == 0:
            say(f"step {number} of {scale.steps}, {number * per_step:,} deltas so far")
        step = await start_step(
            house.conversations,
            conversation,
            turn=turn,
            step=new_step_id(),
            attempt=1,
            kind="model",
            name="demo:",
            actor=ACTOR,
        )
        words = source.choices(vocabulary, k=per_step)
        for at_word, word in enumerate(words):
            step.delta(word)
            if at_word % 100 == 99:
                await anyio.lowlevel.checkpoint()  # as between two reads of a model's stream: let it leave
        data = ModelResponded(text="".join(words), model="demo:")
        await step.seal(data)
        sealed += len(NewEvent(data, at).data_json)
    finished = NewEvent(TurnFinished(outcome="done"), at)
    await house.conversations.append(Append(conversation, (finished,), key="end", actor=ACTOR, turn=turn))
    return sealed


def bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _deltas_left(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        (found,) = connection.execute("SELECT count(*) FROM events WHERE type = 'model.delta'").fetchone()
    finally:
        connection.close()
    return int(found)


async def _measure(workshop: Workshop, vocabulary: list[str], scale: Scale, say: Say) -> _Left:
    settings = settings_of(workshop.path("storage"))
    async with open_house(settings):
        pass
    empty = bytes_under(settings.home)
    shown = 0
    started_at = time.perf_counter()
    async with open_house(settings) as house:
        conversation = await house.make_conversation()

        async def follow() -> None:
            nonlocal shown
            async with house.conversations.follow(conversation, START) as following:
                while True:
                    for frame in await following.next_frames():
                        if isinstance(frame.body, Delta):
                            shown += len(frame.body.text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            sealed = await _stream(house, conversation, vocabulary, scale, say)
            tasks.cancel_scope.cancel()
    seconds = time.perf_counter() - started_at
    assert _deltas_left(house.database_path) == 0
    return _Left(sealed, bytes_under(settings.home), empty, shown, seconds)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    words = await _measure(workshop, _vocabulary(), scale, lambda text: say(f"words: {text}"))
    section.add("sealed results", "bytes", [float(words.sealed)])
    section.add("storage", "bytes", [float(words.stored)])
    section.add("storage of an empty stack", "bytes", [float(words.empty)])
    letters = await _measure(workshop, ["x"], scale, lambda text: say(f"single letters: {text}"))
    section.add("sealed results, a letter each", "bytes", [float(letters.sealed)])
    section.add("storage, a letter each", "bytes", [float(letters.stored)])
    section.add("deltas, through writer, broker and one follower", "deltas/s", [scale.deltas / words.seconds])
    section.add("live output that the follower was shown", "characters", [float(words.shown)])
    if scale.is_quick:
        section.notes.append("Not judged: a few kilobytes of results cannot outweigh the empty tables.")
        section.compare("storage", "sealed results")
    else:
        section.compare("storage", "sealed results", "at most", 1.2)
    section.compare("storage, a letter each", "sealed results, a letter each")
    return section
