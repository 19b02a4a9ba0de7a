"""OCI images on disk: an image layout as a folder or a tar, and what `docker save` writes, older and newer.

Rule 1: nothing is unpacked whose digest was not checked, or is not checked to the end before the tree gets its name.
Rule 2: names in an image are looked up in the image only: a folder's links are not followed.
"""

import hashlib
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from outlive.base import ExhaustedError, InvalidError, NotFoundError, UnavailableError
from outlive.machine.backends.bases.tree_cache import Say
from outlive.machine.backends.bases.unpacking import Bounds, Hashing, decompressed, is_compressed, reading, unpack

_DOCUMENT_BYTES = 16 << 20
_MOST_LAYERS = 512
_DEEPEST_INDEX = 4
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64", "ppc64le": "ppc64le", "s390x": "s390x"}
_REF_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIFFERENT = "The manifest and the configuration of the image name different layers."


T = TypeVar("T")
D = TypeVar("D", bound=BaseModel)


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Platform(_Document):
    os: str = ""
    architecture: str = ""


class _Descriptor(_Document):
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    platform: _Platform | None = None
    annotations: dict[str, str] = {}


class _Manifest(_Document):
    """An index has `manifests`, a manifest has the rest."""

    manifests: list[_Descriptor] | None = None
    config: _Descriptor | None = None
    layers: list[_Descriptor] = Field([], max_length=_MOST_LAYERS)


class _RootFs(_Document):
    diff_ids: list[str] = Field([], max_length=_MOST_LAYERS)


class _Run(_Document):
    env: list[str] | None = Field(None, alias="Env")


class _Config(_Document):
    rootfs: _RootFs = _RootFs()
    config: _Run | None = None


class _Saved(_Document):
    """One image in the `manifest.json` of `docker save`."""

    config: str = Field(alias="Config")
    tags: list[str] | None = Field(None, alias="RepoTags")
    layers: list[str] = Field(alias="Layers", max_length=_MOST_LAYERS)


class _SavedList(RootModel[list[_Saved]]):
    pass


class Layer(NamedTuple):
    file: str
    digest: str | None  # of the file as it lies there
    diff_id: str  # of the tar in it


class Image(NamedTuple):
    """What is to be unpacked. `name` stands for the content: a digest that covers all of it."""

    name: str
    layers: tuple[Layer, ...]
    env: tuple[tuple[str, str], ...]


class Files(Protocol):
    def open(self, name: str) -> BinaryIO | None: ...


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str) -> BinaryIO | None:
        try:
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            raise InvalidError("base.bad_image", f"{name!r} in the image is not a plain file.") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InvalidError("base.bad_image", f"{name!r} in the image is not a plain file.")
        return os.fdopen(descriptor, "rb")


class _Tar:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def open(self, name: str) -> BinaryIO | None:
        for spelling in (name, f"./{name}"):
            try:
                found = self._archive.extractfile(spelling)  # follows links within the archive: older Docker has them
            except (KeyError, RecursionError):
                continue
            return found  # type: ignore[return-value]  # an `IO[bytes]` is all we need
        return None


@contextmanager
def open_image(path: Path, scratch: Path) -> Iterator[Files]:
    """The files of an image. One that is a compressed tar is decompressed to `scratch` first: it is read crosswise."""
    if path.is_dir():
        yield _Folder(path)
        return
    if not path.is_file():
        raise NotFoundError("base.no_source", f"There is no image at {str(path)!r}.")
    with _plain(path, scratch) as plain:
        try:
            with tarfile.open(plain, mode="r:") as archive:
                yield _Tar(archive)
        except tarfile.TarError as error:
            raise InvalidError("base.bad_image", f"{str(path)!r} is not a tar: {error}.") from None


@contextmanager
def _plain(path: Path, scratch: Path) -> Iterator[Path]:
    if not is_compressed(path):
        yield path
        return
    plain, left = scratch / "image.tar", Bounds().bytes
    with path.open("rb") as source, plain.open("wb") as target, reading(f"{str(path)!r}"):
        content = decompressed(source)
        while chunk := content.read(1 << 20):
            left -= len(chunk)
            if left < 0:
                raise ExhaustedError("base.too_large", f"{str(path)!r} decompresses to more than is allowed.")
            target.write(chunk)
    try:
        yield plain
    finally:
        plain.unlink()


def read_image(files: Files, wanted: str | None) -> Image:
    """Which layers make the image. Where there are several images, `wanted` says which."""
    if (index := files.open("index.json")) is not None:
        index.close()
        return _of_layout(files, wanted)
    return _of_docker(files, wanted)


def _of_layout(files: Files, wanted: str | None) -> Image:
    index = _parse(_Manifest, _bytes(files, "index.json"), "index.json")
    images = [(_names(item), item) for item in index.manifests or []]
    chosen = _only(_for_this_host(_chosen(images, wanted)), images)
    manifest = _parse(_Manifest, _blob(files, chosen.digest), chosen.digest)
    for _ in range(_DEEPEST_INDEX):  # an index of platforms, mostly
        if manifest.manifests is None:
            break
        chosen = _only(_for_this_host(manifest.manifests), [])
        manifest = _parse(_Manifest, _blob(files, chosen.digest), chosen.digest)
    if manifest.config is None or manifest.manifests is not None:
        raise InvalidError("base.bad_image", "The image has no manifest that names its layers.")
    config = _parse(_Config, _blob(files, manifest.config.digest), "the configuration")
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        raise InvalidError("base.bad_image", _DIFFERENT)
    pairs = zip(manifest.layers, config.rootfs.diff_ids, strict=True)
    layers = tuple(Layer(_blob_path(layer.digest), layer.digest, diff_id) for layer, diff_id in pairs)
    return Image(chosen.digest, layers, _environment(config))


def _of_docker(files: Files, wanted: str | None) -> Image:
    saved = _parse(_SavedList, _bytes(files, "manifest.json"), "manifest.json").root
    images = [(item.tags or [], item) for item in saved]
    chosen = _only(_chosen(images, wanted), images)
    config = _parse(_Config, _bytes(files, _inner(chosen.config)), "the configuration")
    diff_ids, env = config.rootfs.diff_ids, _environment(config)
    if len(diff_ids) != len(chosen.layers):
        raise InvalidError("base.bad_image", _DIFFERENT)
    layers = tuple(Layer(_inner(name), None, diff_id) for name, diff_id in zip(chosen.layers, diff_ids, strict=True))
    return Image(json.dumps(["docker", diff_ids, env]), layers, env)


def unpack_image(files: Files, image: Image, tree: Path, say: Say, bounds: Bounds) -> None:
    """Lay the layers over each other, the oldest first, each checked against its digests."""
    left = bounds
    for number, layer in enumerate(image.layers, 1):
        what = f"layer {number} of {len(image.layers)}"
        say(f"unpacking {what}")
        source = files.open(layer.file)
        if source is None:
            raise InvalidError("base.bad_image", f"The image lacks {what} ({layer.file}).")
        with source:
            packed = Hashing(source)
            content = Hashing(decompressed(packed))
            done = unpack(tree, content, what, say, bounds=left, has_whiteouts=True)
            with reading(what):
                content.drain()
            packed.drain()
        if content.digest != layer.diff_id or (layer.digest is not None and packed.digest != layer.digest):
            raise InvalidError("base.bad_digest", f"{what.capitalize()} is not what the image says it is: damaged.")
        left = left._replace(bytes=left.bytes - done.bytes, entries=left.entries - done.entries)


def _names(item: _Descriptor) -> list[str]:
    return [item.annotations[name] for name in _REF_NAMES if name in item.annotations]


def _chosen(images: list[tuple[list[str], T]], wanted: str | None) -> list[T]:
    """The images that have the name, which may be the end of a longer one; all, if none is asked for."""
    if wanted is None:
        return [image for _, image in images]
    found = [image for names, image in images if any(_is_called(name, wanted) for name in names)]
    if not found:
        raise NotFoundError("base.no_image", f"The image {wanted!r} is not in there; there are: {_listed(images)}.")
    return found


def _is_called(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith(f"/{wanted}") or name.endswith(f"/{wanted}:latest")


def _only(found: list[T], images: list[tuple[list[str], T]]) -> T:
    if not found:
        raise InvalidError("base.bad_image", "There is no image in there.")
    if len(found) > 1:
        raise InvalidError(
            "base.many_images", f"There are several images in there: add #NAME to the reference ({_listed(images)})."
        )
    return found[0]


def _listed(images: list[tuple[list[str], T]]) -> str:
    return ", ".join(sorted({name for names, _ in images for name in names})) or "none with a name"


def _for_this_host(items: list[_Descriptor]) -> list[_Descriptor]:
    """Of the same image for many platforms, the one that runs here."""
    architecture = _ARCHITECTURES.get(os.uname().machine, os.uname().machine)
    found = {
        item.digest: item
        for item in items
        if item.platform is None or (item.platform.os, item.platform.architecture) == ("linux", architecture)
    }
    if items and not found:
        raise UnavailableError("base.other_platform", f"The image is not for linux/{architecture}.")
    return list(found.values())


def _environment(config: _Config) -> tuple[tuple[str, str], ...]:
    run = config.config
    pairs = (text.partition("=") for text in (run.env if run and run.env else []))
    return tuple(sorted((name, value) for name, _, value in pairs if _VARIABLE.fullmatch(name) and "\0" not in value))


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _blob(files: Files, digest: str) -> bytes:
    content = _bytes(files, _blob_path(digest))
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise InvalidError("base.bad_digest", f"{digest} in the image is not what it says it is: damaged.")
    return content


def _bytes(files: Files, name: str) -> bytes:
    """A document of the image, whole. Never a large one."""
    file = files.open(name)
    if file is None:
        raise InvalidError("base.bad_image", f"This is no image that we know: it has no {name}.")
    with file:
        content = file.read(_DOCUMENT_BYTES + 1)
    if len(content) > _DOCUMENT_BYTES:
        raise ExhaustedError("base.too_large", f"{name} in the image is too large.")
    return content


def _inner(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise InvalidError("base.bad_image", f"{name!r} in the image leads out of it.")
    return name


def _parse(kind: type[D], content: bytes, what: str) -> D:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidError("base.bad_image", f"{what} in the image is not as it should be: {first['msg']}.") from None
