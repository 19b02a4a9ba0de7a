"""Archives and images for tests, made in memory entry by entry, so that they can have what no tool would write."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    name: str
    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


def folder(name: str, mode: int = 0o755) -> Entry:
    return Entry(name, type=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> Entry:
    return Entry(name, type=tarfile.SYMTYPE, link=target)


def hard_link(name: str, target: str) -> Entry:
    return Entry(name, type=tarfile.LNKTYPE, link=target)


def tar_of(entries: Iterable[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.name)
            member.type, member.linkname, member.mode = entry.type, entry.link, entry.mode
            member.uid, member.gid, member.size = entry.uid, entry.gid, len(entry.content)
            archive.addfile(member, io.BytesIO(entry.content))
    return buffer.getvalue()


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Layout:
    """An OCI image layout on disk, filled blob by blob."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "blobs" / "sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def add(self, content: bytes) -> str:
        digest = digest_of(content)
        self.blob(digest).write_bytes(content)
        return digest

    def blob(self, digest: str) -> Path:
        return self.path / "blobs" / digest.replace(":", "/")

    def add_image(self, layers: Iterable[tuple[bytes, bytes]], env: Iterable[str] = ()) -> str:
        """Layers are (tar, as it is stored). The answer is the manifest's digest."""
        pairs = list(layers)
        config = config_of([tar for tar, _ in pairs], env)
        manifest = {
            "schemaVersion": 2,
            "config": {"digest": self.add(config), "size": len(config)},
            "layers": [{"digest": self.add(stored), "size": len(stored)} for _, stored in pairs],
        }
        return self.add(json.dumps(manifest).encode())

    def write_index(self, *manifests: dict[str, object]) -> None:
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))

    def as_tar(self) -> bytes:
        files = sorted(path for path in self.path.rglob("*") if path.is_file())
        return tar_of(Entry(str(path.relative_to(self.path)), path.read_bytes()) for path in files)


def config_of(tars: Iterable[bytes], env: Iterable[str] = ()) -> bytes:
    return json.dumps({"rootfs": {"diff_ids": [digest_of(tar) for tar in tars]}, "config": {"Env": list(env)}}).encode()


def gzipped(tar: bytes) -> tuple[bytes, bytes]:
    return tar, gzip.compress(tar, mtime=0)


def docker_save(tars: list[bytes], tags: list[str]) -> bytes:
    """What `docker save` wrote before it wrote OCI layouts: a folder per layer, a layer used twice as a link."""
    config = config_of(tars)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    layers = [f"{number:064x}/layer.tar" for number in range(len(tars))]
    entries = [Entry(name, config)]
    for number, (path, tar) in enumerate(zip(layers, tars, strict=True)):
        entries.append(folder(path.split("/")[0]))
        first = tars.index(tar)
        entries.append(Entry(path, tar) if first == number else link(path, f"../{layers[first]}"))
    manifest = [{"Config": name, "RepoTags": tags, "Layers": layers}]
    return tar_of([*entries, Entry("manifest.json", json.dumps(manifest).encode())])


def nothing(line: str) -> None:
    """Ears for what need not be heard."""
