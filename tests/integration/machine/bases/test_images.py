"""OCI images become bases: layers over each other, what a layer hides is gone, and every digest is checked."""

import json
import os
import zlib
from pathlib import Path

import pytest
import zstandard

from integration.machine.bases.archives import (
    Entry,
    Layout,
    docker_save,
    folder,
    gzipped,
    link,
    tar_of,
)
from outlive.base import InvalidError, NotFoundError, UnavailableError
from outlive.machine.backends.bases import ensure_base

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)

LOWER = tar_of(
    [
        folder("app"),
        Entry("app/old", b"old"),
        Entry("app/kept", b"kept"),
        folder("cache"),
        Entry("cache/one", b"1"),
        folder("cache/deep"),
        Entry("cache/deep/two", b"2"),
        folder("replaced"),
        Entry("replaced/file", b""),
        link("door", "/app"),
    ]
)
UPPER = tar_of(
    [
        Entry("app/.wh.old"),
        Entry("door/new", b"new"),  # through a link of the layer below
        folder("cache"),
        Entry("cache/deep/three", b"3"),
        Entry("cache/.wh..wh..opq"),
        Entry("cache/four", b"4"),
        Entry("replaced", b"a file now"),
        Entry(".wh..wh.plnk"),
    ]
)
EXPECTED = {
    "app/kept": b"kept",
    "app/new": b"new",
    "cache/deep/three": b"3",
    "cache/four": b"4",
    "replaced": b"a file now",
}


def contents(tree: Path) -> dict[str, bytes]:
    roots = [tree / name for name in ("app", "cache", "replaced")]
    files = [path for root in roots for path in [root, *root.rglob("*")] if path.is_file()]
    return {str(path.relative_to(tree)): path.read_bytes() for path in files}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def test_layers_lie_over_each_other_and_hide_what_they_say(layout: Layout, cache: Path, said: list[str]) -> None:
    stored = [gzipped(LOWER), (UPPER, zstandard.compress(UPPER))]
    layout.write_index({"digest": layout.add_image(stored, env=["PATH=/app:/bin", "1BAD=x", "EMPTY="])})
    base = ensure_base(f"oci:{layout.path}", cache, say=said.append)
    assert contents(base.path) == EXPECTED
    assert base.env == (("EMPTY", ""), ("PATH", "/app:/bin"))
    assert not list(base.path.rglob(".wh.*"))
    assert "unpacking layer 2 of 2" in said


def test_a_layout_a_tar_of_it_and_what_docker_saves_give_one_base(
    layout: Layout, tmp_path: Path, cache: Path, said: list[str]
) -> None:
    layout.write_index({"digest": layout.add_image([(LOWER, LOWER), gzipped(UPPER)])})
    (tmp_path / "layout.tar").write_bytes(layout.as_tar())
    (tmp_path / "layout.tar.gz").write_bytes(gzipped(layout.as_tar())[1])
    (tmp_path / "older.tar").write_bytes(docker_save([LOWER, UPPER], ["tool:1"]))
    places = (layout.path, tmp_path / "layout.tar", tmp_path / "layout.tar.gz", tmp_path / "older.tar")
    assert len({ensure_base(f"oci:{place}", cache, say=said.append) for place in places}) == 1


def test_a_layer_that_docker_saved_as_a_link_is_found(tmp_path: Path, cache: Path, said: list[str]) -> None:
    again = tar_of([Entry("app/.wh.kept")])
    (tmp_path / "saved.tar").write_bytes(docker_save([LOWER, again, LOWER], ["tool:1"]))
    base = ensure_base(f"oci:{tmp_path}/saved.tar", cache, say=said.append)
    assert (base.path / "app/kept").read_bytes() == b"kept"


def test_of_many_platforms_the_one_that_runs_here_is_taken(layout: Layout, cache: Path, said: list[str]) -> None:
    here, there = layout.add_image([gzipped(LOWER)]), layout.add_image([gzipped(UPPER)])
    index = {
        "manifests": [
            {"digest": there, "platform": {"os": "linux", "architecture": "sparc"}},
            {"digest": here, "platform": {"os": "linux", "architecture": ARCHITECTURE}},
            {"digest": there, "platform": {"os": "unknown", "architecture": "unknown"}},
        ]
    }
    layout.write_index({"digest": layout.add(json.dumps(index).encode())})
    assert (ensure_base(f"oci:{layout.path}", cache, say=said.append).path / "app/old").exists()
    layout.write_index({"digest": there, "platform": {"os": "linux", "architecture": "sparc"}})
    with pytest.raises(UnavailableError):
        ensure_base(f"oci:{layout.path}", cache, say=said.append)


def test_of_many_images_one_has_to_be_named(layout: Layout, cache: Path, said: list[str]) -> None:
    name = "org.opencontainers.image.ref.name"
    one, two = layout.add_image([gzipped(LOWER)]), layout.add_image([gzipped(UPPER)])
    layout.write_index(
        {"digest": one, "annotations": {name: "registry.example/one:latest"}},
        {"digest": two, "annotations": {name: "two"}},
    )
    with pytest.raises(InvalidError, match=r"registry\.example/one:latest, two"):
        ensure_base(f"oci:{layout.path}", cache, say=said.append)
    with pytest.raises(NotFoundError, match="two"):
        ensure_base(f"oci:{layout.path}#three", cache, say=said.append)
    assert (ensure_base(f"oci:{layout.path}#one", cache, say=said.append).path / "app/old").exists()


@pytest.mark.parametrize("damaged", ["stored", "content", "manifest", "config"])
def test_what_is_not_what_its_digest_says_makes_no_base(
    damaged: str, layout: Layout, cache: Path, said: list[str]
) -> None:
    other = tar_of([Entry("app/evil", b"evil")])
    # A layer whose file has the right digest but another content than the configuration says:
    stored = [(LOWER, zlib_stored(other))] if damaged == "content" else [gzipped(LOWER)]
    digest = layout.add_image(stored)
    layout.write_index({"digest": digest})
    manifest = json.loads(layout.blob(digest).read_bytes())
    if damaged == "stored":
        layout.blob(manifest["layers"][0]["digest"]).write_bytes(gzipped(other)[1])
    elif damaged == "manifest":
        layout.blob(digest).write_bytes(layout.blob(digest).read_bytes() + b" ")
    elif damaged == "config":
        layout.blob(manifest["config"]["digest"]).write_bytes(b"{}")
    with pytest.raises(InvalidError) as refused:
        ensure_base(f"oci:{layout.path}", cache, say=said.append)
    assert refused.value.code == "base.bad_digest"
    assert list(cache.glob("[!.]*")) == list(cache.glob(".making-*")) == []


def zlib_stored(tar: bytes) -> bytes:
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(tar) + packer.flush()


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("manifest.json", b"[]")],
        [Entry("manifest.json", b"{")],
        [Entry("manifest.json", b'[{"Config": "../../etc/passwd", "Layers": []}]')],
        [Entry("manifest.json", b'[{"Config": "c", "Layers": ["a"]}]'), Entry("c", b"{}")],
        [Entry("index.json", b'{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}')],
        [link("manifest.json", "manifest.json")],
        [Entry("something", b"else")],
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(
    entries: list[Entry], tmp_path: Path, cache: Path, said: list[str]
) -> None:
    (tmp_path / "image.tar").write_bytes(tar_of(entries))
    with pytest.raises(InvalidError) as refused:
        ensure_base(f"oci:{tmp_path}/image.tar", cache, say=said.append)
    assert refused.value.code == "base.bad_image"


def test_a_file_of_a_layout_that_is_a_link_is_not_followed(layout: Layout, cache: Path, said: list[str]) -> None:
    (layout.path / "index.json").symlink_to("/etc/passwd")
    with pytest.raises(InvalidError, match="plain file"):
        ensure_base(f"oci:{layout.path}", cache, say=said.append)


def test_a_layer_hides_nothing_outside_of_the_tree(
    layout: Layout, tmp_path: Path, cache: Path, said: list[str]
) -> None:
    (tmp_path / "canary").write_text("whole")
    tricks = [link("out", str(tmp_path)), Entry("out/.wh.canary"), Entry(f"{'../' * 30}{tmp_path}/.wh..wh..opq")]
    layout.write_index({"digest": layout.add_image([gzipped(tar_of(tricks))])})
    ensure_base(f"oci:{layout.path}", cache, say=said.append)
    assert (tmp_path / "canary").read_text() == "whole"
    layout.write_index({"digest": layout.add_image([gzipped(tar_of([Entry("a/.wh...")]))])})
    with pytest.raises(InvalidError):
        ensure_base(f"oci:{layout.path}", cache, say=said.append)
