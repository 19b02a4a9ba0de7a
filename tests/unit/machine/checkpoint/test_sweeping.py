"""No live checkpoint ever loses a pack, and garbage is gone in the end.

Saves, deletes and sweeps, each cut off, or met by the others, at any operation on the object store.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outlive.base import CheckpointId, ConflictError, new_checkpoint_id
from outlive.machine.checkpoint import CheckpointStore, Living, Manifest
from outlive.storage.objects import ObjectStore, Stored, open_objects
from outlive.testing.checkpoints import facts_of_a_machine, keys_of, make_image, random_pages


class _CutOffError(Exception):
    """The process died here."""


class Interrupted(ObjectStore):
    """A real store whose user dies at its n-th operation (before or after it works), or meets others there."""

    def __init__(self, real: ObjectStore) -> None:
        self._real = real
        self._at = -1
        self._before: Callable[[], Awaitable[None]] | None = None
        self._is_after = False

    def arm(self, at: int, is_after: bool, do: Callable[[], Awaitable[None]]) -> None:
        self._at, self._is_after, self._before = at, is_after, do

    async def _point(self, is_after: bool) -> None:
        if not is_after:
            self._at -= 1
        if self._at == 0 and is_after == self._is_after and self._before is not None:
            do, self._before = self._before, None
            await do()

    async def put_new(self, key: str, content: bytes) -> bool:
        await self._point(False)
        done = await self._real.put_new(key, content)
        await self._point(True)
        return done

    async def get(self, key: str) -> bytes:
        await self._point(False)
        done = await self._real.get(key)
        await self._point(True)
        return done

    async def size(self, key: str) -> int:
        await self._point(False)
        return await self._real.size(key)

    async def list(self, prefix: str = "") -> AsyncIterator[Stored]:
        await self._point(False)
        found = [stored async for stored in self._real.list(prefix)]
        await self._point(True)
        for stored in found:
            yield stored

    async def discard_unfinished(self, prefix: str, before: datetime) -> int:
        return await self._real.discard_unfinished(prefix, before)

    async def delete(self, key: str) -> None:
        await self._point(False)
        await self._real.delete(key)
        await self._point(True)


async def die() -> None:
    raise _CutOffError


places = st.integers(1, 12)
MEMORY = Path("/dev/shm")  # no disk to wait for


class Sweeping(RuleBasedStateMachine):
    """No rule has a precondition: packs are put side by side, so which operation is the n-th is not the same each time,
    and what can be done next must not depend on it."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="outlive-sweeping-", dir=MEMORY if MEMORY.is_dir() else None))
        (self._folder / "upper").mkdir()
        self.kept: dict[CheckpointId, Manifest] = {}
        self.making: dict[CheckpointId, Manifest | None] = {}  # with the parent, which is pinned
        self.saved: dict[CheckpointId, Manifest] = {}  # of those that are being made
        self._seed = 0

    def teardown(self) -> None:
        try:
            self.making.clear()
            self.saved.clear()
            anyio.run(self._sweep, None, False, die)
            anyio.run(self._check_that_garbage_is_gone)
        finally:
            shutil.rmtree(self._folder)

    # What a caller does: say that it is being made, save, keep or give up.

    @rule(has_parent=st.booleans(), which=st.integers(0, 100))
    def begin(self, has_parent: bool, which: int) -> None:
        if len(self.making) < 4:
            parents = list(self.kept.values())
            self.making[new_checkpoint_id()] = parents[which % len(parents)] if parents and has_parent else None

    @rule(which=st.integers(0, 100), dies_at=st.none() | places, is_after=st.booleans())
    def save(self, which: int, dies_at: int | None, is_after: bool) -> None:
        if self.making:
            anyio.run(self._save, list(self.making)[which % len(self.making)], dies_at, is_after, die)

    @rule(which=st.integers(0, 100), at=places, is_after=st.booleans())
    def save_and_meet_a_sweep(self, which: int, at: int, is_after: bool) -> None:
        async def sweep() -> None:
            await self._sweep(None, False, die)

        if self.making:
            anyio.run(self._save, list(self.making)[which % len(self.making)], at, is_after, sweep)

    @rule()
    def keep(self) -> None:
        if self.saved:
            self._keep()

    @rule(which=st.integers(0, 100))
    def give_up(self, which: int) -> None:
        if self.making:
            checkpoint = list(self.making)[which % len(self.making)]
            del self.making[checkpoint]
            self.saved.pop(checkpoint, None)

    @rule(which=st.integers(0, 100))
    def delete(self, which: int) -> None:
        self._delete(which)

    @rule(dies_at=st.none() | places, is_after=st.booleans())
    def sweep(self, dies_at: int | None, is_after: bool) -> None:
        anyio.run(self._sweep, dies_at, is_after, die)

    @rule(at=places, is_after=st.booleans(), which=st.integers(0, 100))
    def sweep_and_meet_a_whole_life(self, at: int, is_after: bool, which: int) -> None:
        """In the middle of a sweep: one that was saved is kept, its parent deleted, a child of it begun and saved."""

        async def live_on() -> None:
            if self.saved:
                self._keep()
            if self.kept:
                newest = list(self.kept.values())[-1]
                child = new_checkpoint_id()
                self.making[child] = newest
                await self._save(child, None, False, die)
                self._keep()
                self._delete(which)

        anyio.run(self._sweep, at, is_after, live_on)

    @invariant()
    def no_kept_checkpoint_lost_anything(self) -> None:
        anyio.run(self._check_the_kept)

    async def _save(
        self, checkpoint: CheckpointId, at: int | None, is_after: bool, do: Callable[[], Awaitable[None]]
    ) -> None:
        self._seed += 1
        pages = [page for seed in range(self._seed - 3, self._seed + 1) for page in random_pages(max(seed, 0), 4)]
        make_image(self._folder / "image", pages)
        (self._folder / "upper" / "file").write_text(f"{self._seed}")
        objects = Interrupted(open_objects(self._folder / "objects"))
        if at is not None:
            objects.arm(at, is_after, do)
        try:
            saved = await CheckpointStore(objects, pack_bytes=4 * 4096).save(
                facts_of_a_machine(checkpoint), self._folder / "image", self._folder / "upper", self.making[checkpoint]
            )
        except* _CutOffError:
            pass
        except* ConflictError:
            # A try that died after its commit: the next one finds the manifest.
            store = CheckpointStore(open_objects(self._folder / "objects"))
            self.saved[checkpoint] = await store.read_manifest(checkpoint)
        else:
            self.saved[checkpoint] = saved.manifest

    async def _sweep(self, at: int | None, is_after: bool, do: Callable[[], Awaitable[None]]) -> None:
        objects = Interrupted(open_objects(self._folder / "objects"))
        if at is not None:
            objects.arm(at, is_after, do)

        async def live() -> Living:
            pinned = {parent.id for parent in self.making.values() if parent is not None}
            return Living(frozenset(self.kept) | pinned, frozenset(self.making))

        try:
            await CheckpointStore(objects).sweep(live)
        except* _CutOffError:
            pass

    def _keep(self) -> None:
        checkpoint, manifest = self.saved.popitem()
        del self.making[checkpoint]
        self.kept[checkpoint] = manifest

    def _delete(self, which: int) -> None:
        pinned = {parent.id for parent in self.making.values() if parent is not None}
        free = [checkpoint for checkpoint in self.kept if checkpoint not in pinned]
        if free:
            del self.kept[free[which % len(free)]]

    async def _check_the_kept(self) -> None:
        store = CheckpointStore(open_objects(self._folder / "objects"))
        for manifest in self.kept.values():
            await store.verify(manifest)

    async def _check_that_garbage_is_gone(self) -> None:
        needed = {f"checkpoints/manifests/{checkpoint}" for checkpoint in self.kept}
        for manifest in self.kept.values():
            needed |= set(manifest.objects())
        assert await keys_of(open_objects(self._folder / "objects")) == needed


TestSweeping = Sweeping.TestCase
TestSweeping.settings = settings(max_examples=60, stateful_step_count=25)


@pytest.mark.parametrize("place", range(1, 9))
@pytest.mark.parametrize("is_after", [False, True])
def test_a_checkpoint_that_is_saved_and_kept_in_the_middle_of_a_sweep_stays_whole(place: int, is_after: bool) -> None:
    machine = Sweeping()
    try:
        machine.begin(has_parent=False, which=0)
        machine.save(which=0, dies_at=None, is_after=False)
        machine.keep()
        machine.begin(has_parent=True, which=0)
        machine.save(which=0, dies_at=None, is_after=False)  # is kept in the middle
        machine.sweep_and_meet_a_whole_life(at=place, is_after=is_after, which=0)
        machine.no_kept_checkpoint_lost_anything()
        assert len(machine.kept) >= 1
    finally:
        machine.teardown()
