"""The manifest: what a checkpoint is and where its bytes lie. Its object is the commit: no manifest, no checkpoint.

Pure. `makers[0]` is the checkpoint itself; the others are ancestors some of whose packs are still in use. A manifest
names every object it needs, with size and hash, so that it can be read, checked and kept without any other manifest.
"""

from typing import Annotated, Literal

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from outlive.base import CheckpointId, InvalidError, MachineId
from outlive.machine.checkpoint.numbers import Reader, Writer
from outlive.machine.checkpoint.packs import damaged, seal, unseal

MAGIC = b"OLckman1"
FOLDER = "checkpoints"
MANIFESTS = f"{FOLDER}/manifests"
PACKS = f"{FOLDER}/packs"

TREE = "tree"
CONTENTS = "contents"
MEMORY = "memory/"  # followed by the name of the image file

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckpointFacts(_Value):
    """What the caller knows of the machine at that moment."""

    id: CheckpointId
    machine: MachineId
    generation: Annotated[int, Field(ge=0)]
    base_key: str
    base_fingerprint: str
    runtime_key: str
    runsc_version: str
    platform: str
    cpu_features: tuple[str, ...] = ()
    spec: dict[str, JsonValue] = {}  # facts that a restore needs and that mean nothing here
    effects: tuple[JsonValue, ...] = ()  # the ledger of effects that the machine held


class PackRef(_Value):
    number: Annotated[int, Field(ge=0)]
    size: Annotated[int, Field(ge=0)]
    hash: Hash


class Maker(_Value):
    """A checkpoint that stored packs. `attempt` tells one try of storing it from another."""

    checkpoint: CheckpointId
    attempt: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    index_size: Annotated[int, Field(ge=0)]
    index_hash: Hash
    packs: tuple[PackRef, ...]  # those in use; in order

    @property
    def index_key(self) -> str:
        return f"{PACKS}/{self.checkpoint}.{self.attempt}.index"

    def pack_key(self, number: int) -> str:
        return pack_key(self.checkpoint, self.attempt, number)


class Stream(_Value):
    name: str
    length: Annotated[int, Field(ge=0)]
    hash: Hash
    layout: Annotated[bytes, Field(exclude=True)] = b""


class Manifest(_Value):
    format: Literal[1] = 1
    facts: CheckpointFacts
    parent: CheckpointId | None
    has_memory: bool
    makers: Annotated[tuple[Maker, ...], Field(min_length=1)]
    streams: tuple[Stream, ...]
    hash: Annotated[str, Field(exclude=True)] = ""
    """Of the whole: of the manifest's object, and so of all that it names."""

    @property
    def id(self) -> CheckpointId:
        return self.facts.id

    @property
    def new_bytes(self) -> int:
        """What this checkpoint itself put into the store, without its manifest."""
        return stored_bytes(self.makers[0])

    @property
    def total_bytes(self) -> int:
        """What it needs in the store, ancestors' packs included."""
        return sum(size for size, _ in self.objects().values())

    def objects(self) -> dict[str, tuple[int, str]]:
        """Every object that it refers to: key -> size, hash."""
        found: dict[str, tuple[int, str]] = {}
        for place, maker in enumerate(self.makers):
            if place and not maker.packs:
                continue  # an ancestor that this checkpoint no longer needs; the next one drops it
            found[maker.index_key] = (maker.index_size, maker.index_hash)
            found.update({maker.pack_key(pack.number): (pack.size, pack.hash) for pack in maker.packs})
        return found

    def stream(self, name: str) -> Stream:
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise damaged(manifest_key(self.id), f"it has no stream {name!r}")


def stored_bytes(maker: Maker) -> int:
    return maker.index_size + sum(pack.size for pack in maker.packs)


def manifest_key(checkpoint: CheckpointId) -> str:
    return f"{MANIFESTS}/{checkpoint}"


def pack_key(checkpoint: CheckpointId, attempt: str, number: int) -> str:
    # One flat folder: a folder for each checkpoint would stay behind on local disk when its packs are gone.
    return f"{PACKS}/{checkpoint}.{attempt}.{number}"


def encode_manifest(manifest: Manifest) -> tuple[Manifest, bytes]:
    """The manifest with its hash, and its object."""
    writer = Writer()
    writer.text(manifest.model_dump_json().encode())
    for stream in manifest.streams:
        writer.text(stream.layout)
    content = seal(MAGIC, bytes(writer.content))
    return manifest.model_copy(update={"hash": blake3(content).hexdigest()}), content


def decode_manifest(content: bytes, checkpoint: CheckpointId) -> Manifest:
    key = manifest_key(checkpoint)
    if content[:7] == MAGIC[:7] and content[7:8] != MAGIC[7:8]:
        raise InvalidError(
            "checkpoint.format", f"Checkpoint {checkpoint} is of a format that this Outlive cannot read: update it."
        )
    reader = Reader(unseal(MAGIC, content, key), key)
    try:
        manifest = Manifest.model_validate_json(reader.text())
    except ValidationError as error:
        raise damaged(key, "it does not say what a manifest says") from error
    if manifest.id != checkpoint or manifest.makers[0].checkpoint != checkpoint:
        raise damaged(key, "it is the manifest of another checkpoint")
    streams = tuple(stream.model_copy(update={"layout": reader.text()}) for stream in manifest.streams)
    if not reader.is_at_end:
        raise reader.damage("there is more than it should hold")
    return manifest.model_copy(update={"streams": streams, "hash": blake3(content).hexdigest()})
