"""A batch: items in a second, beside the same turns by clients that keep nothing."""

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread

from bench.loop_parts import TURN, Talk, open_loop_stack
from bench.machines_stack import Line, Stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import OutliveError
from outlive.client import AsyncClient
from outlive.client.batches import BatchRun, Header, Options, Standing, open_record, read_items

NAME = "loop-batch"
TITLE = "The loop: a batch"
UNIT = "items/s"
PARALLEL = 8
WHAT = (
    "{scale.batch_items} items, 8 at a time, each a new conversation with one turn (three answers and two calls, as "
    "above). The batch: through the client, with keys, a follower for each item and a record that is synced after "
    "every 30. Bare turns: raw sockets that make a conversation, send and read until its end."
)


class Silent:
    def told(self, standing: Standing) -> None: ...
    def away(self, error: OutliveError) -> None: ...
    def back(self) -> None: ...


def _batch(stack: Stack, items: int) -> Contender:
    async def run() -> float:
        lines = (json.dumps({"prompt": TURN, "id": n}) + "\n" for n in range(items))
        asked = read_items("items.jsonl", "".join(lines))
        with tempfile.TemporaryDirectory() as folder:
            header = Header(f"batch_{time.time_ns()}", "items.jsonl", None, None, None, None, None)
            with open_record(Path(folder) / "batch", header) as record:
                async with AsyncClient(stack.url, stack.token) as client:
                    started_at = time.perf_counter()
                    counts = await BatchRun(client, record, asked, Silent(), Options(PARALLEL)).run()
                    took_s = time.perf_counter() - started_at
        if counts.done != items:
            raise RuntimeError(f"The batch went wrong: {counts}")
        return items / took_s

    return Contender("batch, 8 at once", UNIT, run)


def _bare(stack: Stack, items: int) -> Contender:
    def take_some(line: Line) -> None:
        for _ in range(items // PARALLEL):
            with closing(Talk(stack, line)) as talk:
                talk.take_turn()

    def take_all() -> float:
        with stack.lines(PARALLEL) as lines, ThreadPoolExecutor(PARALLEL) as pool:
            started_at = time.perf_counter()
            list(pool.map(take_some, lines))
            return items / (time.perf_counter() - started_at)

    async def run() -> float:
        return await anyio.to_thread.run_sync(take_all)

    return Contender("bare turns, 8 at once", UNIT, run)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with open_loop_stack(workshop, has_machines=False) as stack:
        contenders = [_batch(stack, scale.batch_items), _bare(stack, scale.batch_items)]
        section.readings += await take_turns(contenders, scale.loop_crowd_rounds, say)
    section.compare("batch, 8 at once", "bare turns, 8 at once")
    return section
