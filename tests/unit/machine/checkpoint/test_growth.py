"""What checkpoints add to the store: little when little changed, and never more and more for the same machine."""

import os
import random
from pathlib import Path

import pytest

from outlive.machine.checkpoint import CheckpointStore, Manifest, Saved
from outlive.machine.checkpoint.lineage import LEAST_USE, MOST_ANCESTORS
from outlive.storage.objects import open_objects
from outlive.testing.checkpoints import PAGE, facts_of_a_machine, make_image, random_pages, some_bytes

pytestmark = pytest.mark.anyio


async def test_a_hundredth_of_300_mb_changed_adds_less_than_a_twentieth(tmp_path: Path) -> None:
    """Random memory, 1 % of its pages changed, scattered, and pages moved as a second image moves them."""
    count = 300_000_000 // PAGE
    memory = bytearray(some_bytes(1, count * PAGE))
    image, upper = tmp_path / "image", tmp_path / "upper"
    upper.mkdir()
    make_image(image, [bytes(memory)])
    store = CheckpointStore(open_objects(tmp_path / "objects"))
    first = await store.save(facts_of_a_machine(), image, upper)
    for page in random.Random(1).sample(range(count), count // 100):
        memory[page * PAGE + 1000] ^= 0xFF
    del memory[1_000 * PAGE : 1_003 * PAGE]
    memory[20_000 * PAGE : 20_000 * PAGE] = os.urandom(5 * PAGE)
    make_image(image, [bytes(memory)])
    second = await store.save(facts_of_a_machine(), image, upper, first.manifest)
    assert first.new_bytes > 300_000_000
    assert second.new_bytes < 0.02 * first.new_bytes, "3 MB of pages, an index and a manifest"
    await store.verify(second.manifest)


async def test_a_long_lineage_needs_a_bounded_multiple_of_what_it_shows(tmp_path: Path) -> None:
    image, upper = tmp_path / "image", tmp_path / "upper"
    upper.mkdir()
    store = CheckpointStore(open_objects(tmp_path / "objects"), pack_bytes=16 * PAGE)
    pages = random_pages(0, 200)
    source = random.Random(1)
    parent: Manifest | None = None
    saved: list[Saved] = []
    for generation in range(1, 80):
        for page, fresh in zip(source.sample(range(200), 10), random_pages(generation, 10), strict=True):
            pages[page] = fresh
        make_image(image, pages)
        saved.append(await store.save(facts_of_a_machine(), image, upper, parent))
        parent = saved[-1].manifest
    assert max(checkpoint.total_bytes for checkpoint in saved) < 200 * PAGE / LEAST_USE * 1.2
    assert max(len(checkpoint.manifest.makers) for checkpoint in saved) <= MOST_ANCESTORS + 1
    assert sum(checkpoint.new_bytes for checkpoint in saved[1:]) < len(saved) * 0.2 * saved[0].new_bytes
    assert parent is not None
    await store.verify(parent)
    await store.fetch(parent, tmp_path / "image2", tmp_path / "upper2")
    assert (tmp_path / "image2" / "pages.img").read_bytes() == b"".join(pages)


async def test_nothing_changed_adds_next_to_nothing(tmp_path: Path) -> None:
    image, upper = tmp_path / "image", tmp_path / "upper"
    upper.mkdir()
    make_image(image, random_pages(1, 1000))
    store = CheckpointStore(open_objects(tmp_path / "objects"))
    first = await store.save(facts_of_a_machine(), image, upper)
    second = await store.save(facts_of_a_machine(), image, upper, first.manifest)
    assert second.new_bytes < 2_000
    await store.verify(second.manifest)
