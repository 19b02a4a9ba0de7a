"""One fetch under way: the tree first, then all bytes, then the hashes, and the names last.

Invariant: an image folder or an upper directory under its name is whole and hashed.
"""

from pathlib import Path

import anyio

from outlive.machine.checkpoint.disk import Images, in_thread
from outlive.machine.checkpoint.fetching import Fetching, Sink
from outlive.machine.checkpoint.manifest import CONTENTS, MEMORY, TREE, Manifest, Stream, manifest_key
from outlive.machine.checkpoint.packs import damaged, hash_of
from outlive.machine.checkpoint.planting import Planter
from outlive.machine.checkpoint.progress import Progress, ProgressCallback
from outlive.machine.checkpoint.walking import LARGEST_TREE


class Restoring:
    def __init__(self, fetching: Fetching, manifest: Manifest, threads: anyio.CapacityLimiter) -> None:
        self._fetching = fetching
        self._manifest = manifest
        self._threads = threads

    async def run(self, image_dir: Path | None, upper: Path, progress: ProgressCallback) -> None:
        tree = await self._tree()
        planter = await in_thread(lambda: Planter(tree, upper, f"the tree of {self._manifest.id}"), self._threads)
        images = Images(image_dir) if image_dir is not None else None
        try:
            await in_thread(planter.prepare, self._threads)
            await self._contents(planter, images, progress)
            await in_thread(planter.finish, self._threads)
            if images is not None:
                await in_thread(images.finish, self._threads)
        finally:
            with anyio.CancelScope(shield=True):  # bounded: it only removes files
                await in_thread(planter.discard, self._threads)
                if images is not None:
                    await in_thread(images.discard, self._threads)

    async def _tree(self) -> bytes:
        stream = self._manifest.stream(TREE)
        if stream.length > 2 * LARGEST_TREE:
            raise self._damage("its tree is too long")
        tree = bytearray(stream.length)

        def write(offset: int, content: memoryview) -> None:
            tree[offset : offset + len(content)] = content

        await self._fetching.streams({TREE: write}, lambda count: None)
        self._check(hash_of(bytes(tree)), stream)
        return bytes(tree)

    async def _contents(self, planter: Planter, images: Images | None, progress: ProgressCallback) -> None:
        contents = self._manifest.stream(CONTENTS)
        if planter.length != contents.length:
            raise self._damage("its tree and its contents do not fit")
        sinks: dict[str, Sink] = {CONTENTS: planter.write}
        memory: list[Stream] = []
        if images is not None:
            memory = [stream for stream in self._manifest.streams if stream.name.startswith(MEMORY)]
            sizes = {_file_of(stream): stream.length for stream in memory}
            await in_thread(lambda: images.prepare(sizes), self._threads)
            sinks |= {stream.name: images.sink(_file_of(stream)) for stream in memory}
        total = contents.length + sum(stream.length for stream in memory)
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            progress(Progress("fetch", done, total))

        await self._fetching.streams(sinks, told)
        self._check(await in_thread(planter.hash, self._threads), contents)
        if images is not None:
            hashes = await in_thread(images.hashes, self._threads)
            for stream in memory:
                self._check(hashes[_file_of(stream)], stream)

    def _check(self, found: str, stream: Stream) -> None:
        if found != stream.hash:
            raise self._damage(f"the stream {stream.name!r} has another hash than it says")

    def _damage(self, why: str) -> Exception:
        return damaged(manifest_key(self._manifest.id), why)


def _file_of(stream: Stream) -> str:
    return stream.name.removeprefix(MEMORY)
