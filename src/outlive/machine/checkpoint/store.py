"""The checkpoint store: saves, verifies, reads, fetches and sweeps checkpoints on an object store.

Invariant 1: a checkpoint exists when its manifest does. The manifest is put last, create-only, and names everything by
size and hash. A save that dies before leaves packs under the name of a checkpoint that is not there: the sweep's prey.
Invariant 2: memory is bounded: a few packs are under way at a time, whatever the size of the machine.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import anyio

from outlive.base import CheckpointId, Clock, ConflictError, InvalidError, NotFoundError, SystemClock, is_id
from outlive.machine.checkpoint.abreast import abreast
from outlive.machine.checkpoint.disk import in_thread
from outlive.machine.checkpoint.fetching import Fetching, get_checked, missing, read_indexes
from outlive.machine.checkpoint.lineage import NOTHING_KNOWN, Known, known_of, only_used
from outlive.machine.checkpoint.manifest import (
    FOLDER,
    CheckpointFacts,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_key,
)
from outlive.machine.checkpoint.packs import PACK_BYTES, damaged, hash_of, open_frames
from outlive.machine.checkpoint.progress import Progress, ProgressCallback, no_progress
from outlive.machine.checkpoint.restoring import Restoring
from outlive.machine.checkpoint.saving import Saving
from outlive.machine.checkpoint.sweeping import Liveness, Swept, plan_sweep
from outlive.storage.objects import ObjectStore

_LONGEST_WRITE = timedelta(hours=1)  # a write of one object ends within a minute, or is abandoned


class Saved(NamedTuple):
    manifest: Manifest
    new_bytes: int
    """What this checkpoint added to the store, its manifest included."""
    total_bytes: int
    """What the store holds for it, ancestors' packs included."""
    read_bytes: int
    """What was read of the machine: memory and filesystem delta."""


class CheckpointStore:
    def __init__(self, objects: ObjectStore, *, pack_bytes: int = PACK_BYTES, clock: Clock | None = None) -> None:
        self._objects = objects
        self._clock = clock or SystemClock()
        self._pack_bytes = pack_bytes
        self._threads = anyio.CapacityLimiter(max(2, os.cpu_count() or 1))

    async def save(
        self,
        facts: CheckpointFacts,
        image_dir: Path | None,
        upper: Path,
        parent: Manifest | None = None,
        progress: ProgressCallback = no_progress,
    ) -> Saved:
        """Store the machine's memory (none without `image_dir`) and filesystem delta. The machine stands still.

        `parent` is kept by the caller until this returns. If objects of the parent turn out to be damaged, save
        again without it.
        """
        if await self._objects.exists(_key(facts.id)):
            raise ConflictError("checkpoint.exists", f"Checkpoint {facts.id} is there already: read its manifest.")
        known = await self._known(parent)
        saving = Saving(self._objects, self._threads, facts.id, known, self._pack_bytes, progress)
        await saving.run(image_dir, upper)
        streams = tuple(saving.scanner.streams)
        ancestors = await in_thread(lambda: only_used(known, [stream.layout for stream in streams]), self._threads)
        manifest = Manifest(
            facts=facts,
            parent=parent.id if parent else None,
            has_memory=image_dir is not None,
            makers=(await saving.put_index(), *ancestors),
            streams=streams,
        )
        manifest, size = await self._commit(manifest)
        return Saved(manifest, manifest.new_bytes + size, manifest.total_bytes + size, saving.scanner.read_bytes)

    async def verify(self, saved: Manifest, progress: ProgressCallback = no_progress) -> None:
        """Read back every object that this checkpoint put, and ask for those of its ancestors. Only then may the
        original go."""
        stored = await self._get_manifest(saved.id)
        if hash_of(stored) != saved.hash:
            raise damaged(_key(saved.id), "it is not the one that was saved")
        own = saved.makers[0]
        index_of = (await read_indexes(self._objects, saved, self._threads)).get(0, [])
        objects = saved.objects()
        mine = {own.pack_key(number): index for number, index in enumerate(index_of)}
        total = sum(objects[key][0] for key in mine)
        done = 0

        async def check(key: str) -> None:
            nonlocal done
            size, expected = objects[key]
            if key in mine:
                content = await get_checked(self._objects, key, size, expected)
                frames = set(range(len(mine[key].frames)))
                await in_thread(lambda: open_frames(content, mine[key], frames, key), self._threads)
                done += size
                progress(Progress("verify", done, total))
            elif key != own.index_key:
                await self._check_size(key, size)

        await abreast(objects, check)

    async def read_manifest(self, checkpoint: CheckpointId) -> Manifest:
        return decode_manifest(await self._get_manifest(checkpoint), checkpoint)

    async def fetch(
        self, manifest: Manifest, image_dir: Path | None, upper: Path, progress: ProgressCallback = no_progress
    ) -> None:
        """Write the files of the checkpoint into `image_dir` (not at all if None: for a cold boot) and `upper`. Neither
        may be there yet; each appears when it is whole."""
        if image_dir is not None and not manifest.has_memory:
            raise InvalidError(
                "checkpoint.no_memory", f"Checkpoint {manifest.id} holds no memory: boot from its files."
            )
        indexes = await read_indexes(self._objects, manifest, self._threads)
        fetching = Fetching(self._objects, manifest, indexes, self._threads)
        await Restoring(fetching, manifest, self._threads).run(image_dir, upper, progress)

    async def sweep(self, live: Liveness) -> Swept:
        """Delete what no live checkpoint needs. `sweeping.py` says why it may run at any time."""
        listed = {found.key: found.size async for found in self._objects.list(FOLDER)}
        living = await live()  # after the listing: see there
        needed: set[str] = set()

        async def read(checkpoint: CheckpointId) -> None:
            needed.update((await self.read_manifest(checkpoint)).objects())

        await abreast(sorted(living.kept), read)
        doomed = plan_sweep(listed, living, frozenset(needed))
        await abreast(doomed, self._objects.delete)
        await self._objects.discard_unfinished(FOLDER, self._clock.now() - _LONGEST_WRITE)
        return Swept(len(doomed), sum(listed[key] for key in doomed))

    async def _known(self, parent: Manifest | None) -> Known:
        if parent is None:
            return NOTHING_KNOWN
        indexes = await read_indexes(self._objects, parent, self._threads)
        return await in_thread(lambda: known_of(parent, indexes), self._threads)

    async def _commit(self, manifest: Manifest) -> tuple[Manifest, int]:
        """The manifest with its hash, and the size of its object."""
        key = manifest_key(manifest.id)
        hashed, content = await in_thread(lambda: encode_manifest(manifest), self._threads)
        # Not new: a lost answer, or another try of the same checkpoint that was faster.
        if not await self._objects.put_new(key, content) and await self._objects.get(key) != content:
            raise ConflictError("checkpoint.exists", f"Somebody else has stored {key!r} meanwhile: read its manifest.")
        return hashed, len(content)

    async def _get_manifest(self, checkpoint: CheckpointId) -> bytes:
        try:
            return await self._objects.get(_key(checkpoint))
        except NotFoundError as error:
            raise NotFoundError("checkpoint.not_found", f"There is no checkpoint {checkpoint}.") from error

    async def _check_size(self, key: str, size: int) -> None:
        try:
            found = await self._objects.size(key)
        except NotFoundError as error:
            raise missing(key) from error
        if found != size:
            raise damaged(key, f"it has {found} bytes and not {size}")


def _key(checkpoint: CheckpointId) -> str:
    if not is_id(checkpoint, "ckpt"):
        raise InvalidError("checkpoint.id", f"{checkpoint[:60]!r} is no id of a checkpoint.")
    return manifest_key(checkpoint)
