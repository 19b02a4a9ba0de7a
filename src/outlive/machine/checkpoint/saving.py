"""One save under way: reading, cutting and comparing in one thread, compressing and storing packs beside it.

Invariant: at most `AT_ONCE` packs are held besides the one that is being filled, and when `run` returns every pack is
in the store.
"""

import secrets
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import anyio

from outlive.base import CheckpointId
from outlive.machine.checkpoint.abreast import AT_ONCE, first_of_ours
from outlive.machine.checkpoint.chunking import cut_by_content, cut_pages
from outlive.machine.checkpoint.disk import image_files, in_thread, read_blocks, slices_of
from outlive.machine.checkpoint.lineage import Known
from outlive.machine.checkpoint.manifest import CONTENTS, MEMORY, TREE, Maker, PackRef, pack_key
from outlive.machine.checkpoint.packs import PackIndex, RawPack, build_pack, encode_indexes, hash_of
from outlive.machine.checkpoint.progress import Progress, ProgressCallback
from outlive.machine.checkpoint.scanning import Scanner
from outlive.machine.checkpoint.walking import UpperWalk
from outlive.storage.objects import ObjectStore

_PAGES = "pages.img"  # the image file that holds the machine's pages, each aligned to its size
_END = RawPack(-1, [], [])


class Saving:
    def __init__(
        self,
        objects: ObjectStore,
        threads: anyio.CapacityLimiter,
        checkpoint: CheckpointId,
        known: Known,
        pack_bytes: int,
        progress: ProgressCallback,
    ) -> None:
        self._objects = objects
        self._threads = threads
        self._checkpoint = checkpoint
        self._progress = progress
        self._slots = anyio.Semaphore(AT_ONCE)
        self._stored: dict[int, tuple[PackRef, PackIndex]] = {}
        self.scanner = Scanner(known, pack_bytes)
        # A save that is tried again under the same id never meets the packs of the try before.
        self._attempt = secrets.token_hex(4)

    async def run(self, image_dir: Path | None, upper: Path) -> None:
        with closing(self._scan(image_dir, upper)) as found:
            try:
                async with anyio.create_task_group() as tasks:
                    while (raw := await in_thread(lambda: next(found, _END), self._threads)) is not _END:
                        self._progress(Progress("save", self.scanner.read_bytes, None))
                        if raw is not None:
                            await self._slots.acquire()
                            tasks.start_soon(self._store, raw)
            except BaseExceptionGroup as group:
                raise first_of_ours(group) from group

    async def put_index(self) -> Maker:
        """Store the index of what `run` stored."""
        stored = [self._stored[number] for number in sorted(self._stored)]
        content = await in_thread(lambda: encode_indexes([index for _, index in stored]), self._threads)
        maker = Maker(
            checkpoint=self._checkpoint,
            attempt=self._attempt,
            index_size=len(content),
            index_hash=hash_of(content),
            packs=tuple(ref for ref, _ in stored),
        )
        await self._objects.put_new(maker.index_key, content)
        return maker

    def _scan(self, image_dir: Path | None, upper: Path) -> Generator[RawPack | None, None, None]:
        """All streams of the checkpoint. Runs in a thread, step by step."""
        if image_dir is not None:
            for path in image_files(image_dir):
                cut = cut_pages if path.name == _PAGES else cut_by_content
                yield from self.scanner.scan(f"{MEMORY}{path.name}", cut(read_blocks(path)))
        walk = UpperWalk(upper)
        yield from self.scanner.scan(CONTENTS, cut_by_content(walk.contents()))
        yield from self.scanner.scan(TREE, cut_by_content(slices_of(walk.tree)))
        yield from self.scanner.finish()

    async def _store(self, raw: RawPack) -> None:
        try:
            pack = await in_thread(lambda: build_pack(raw), self._threads)
            # Not new: the answer to a put that worked was lost. Nobody else has this name.
            await self._objects.put_new(pack_key(self._checkpoint, self._attempt, raw.number), pack.content)
            ref = PackRef(number=raw.number, size=len(pack.content), hash=pack.hash)
            self._stored[raw.number] = (ref, pack.index)
        finally:
            self._slots.release()
