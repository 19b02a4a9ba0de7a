"""Numbers, layouts, packs, indexes and manifests: what was written is read back, and damage is told."""

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import BrokenError, InvalidError, new_checkpoint_id
from outlive.machine.checkpoint.layout import LayoutWriter, Run, Zeros, read_layout
from outlive.machine.checkpoint.manifest import Maker, Manifest, PackRef, Stream, decode_manifest, encode_manifest
from outlive.machine.checkpoint.numbers import Reader, Writer
from outlive.machine.checkpoint.packs import (
    FRAME_BYTES,
    RawPack,
    build_pack,
    decode_indexes,
    digest_of,
    encode_indexes,
    open_frames,
)
from outlive.testing.checkpoints import facts_of_a_machine, random_pages

numbers = st.integers(0, 2**64)
signed = st.integers(-(2**63), 2**63)


@given(st.lists(st.tuples(numbers, signed, st.binary(max_size=200))))
def test_numbers_and_texts_are_read_as_they_were_written(values: list[tuple[int, int, bytes]]) -> None:
    writer = Writer()
    for plain, relative, text in values:
        writer.number(plain)
        writer.signed(relative)
        writer.text(text)
    reader = Reader(bytes(writer.content), "it")
    assert [(reader.number(), reader.signed(), reader.text()) for _ in values] == values
    assert reader.is_at_end


@given(st.binary(max_size=50))
def test_a_reader_of_anything_ends_or_says_that_it_is_damaged(content: bytes) -> None:
    reader = Reader(content, "it")
    read = 0
    try:
        while not reader.is_at_end:
            read += 1 + len(reader.text())
    except BrokenError:
        pass
    assert read <= len(content)


chunk = st.tuples(st.integers(0, 3), st.integers(0, 50))
items = st.lists(st.one_of(chunk, st.integers(1, 10_000)), max_size=200)


@given(items)
def test_a_layout_says_which_chunks_and_zeros_came_in_which_order(given_items: list[tuple[int, int] | int]) -> None:
    writer = LayoutWriter()
    expected: list[object] = []
    for item in given_items:
        if isinstance(item, int):
            writer.zeros(item)
            if expected and isinstance(expected[-1], int):
                item += expected.pop()  # type: ignore[operator]
            expected.append(item)
        else:
            writer.chunk(*item)
            expected.append(item)
    found: list[object] = []
    for run in read_layout(writer.finish(), "it"):
        match run:
            case Zeros(length):
                found.append(length)
            case Run(maker, first, chunks):
                found += [(maker, first + place) for place in range(chunks)]
    assert found == expected


def test_a_layout_of_a_scattered_change_is_small() -> None:
    writer = LayoutWriter()
    for page in range(76_800):
        if page % 100:
            writer.chunk(1, page)
        else:
            writer.chunk(0, page // 100)
    assert len(writer.finish()) < 8_000


def test_a_pack_gives_back_its_chunks_frame_by_frame() -> None:
    pages = random_pages(1, 200)
    pack = build_pack(RawPack(0, pages, [digest_of(page) for page in pages]))
    assert len(pack.index.frames) == 200 * 4096 // FRAME_BYTES + 1
    frames = open_frames(pack.content, pack.index, {1}, "key")
    assert [len(frame) for frame in frames] == [0, FRAME_BYTES, 0, 0]
    assert frames[1] == b"".join(pages[64:128])
    (index,) = decode_indexes(encode_indexes([pack.index]), "key")
    assert index == pack.index
    assert index.digest(7) == digest_of(pages[7])


def test_a_frame_that_claims_more_than_its_index_says_is_not_opened() -> None:
    pages = random_pages(1, 2)
    pack = build_pack(RawPack(0, pages, [digest_of(page) for page in pages]))
    bomb = zstandard.ZstdCompressor().compress(bytes(100_000_000))
    with pytest.raises(BrokenError):
        open_frames(bomb, pack.index, {0}, "key")
    frame = pack.index.frames[0]._replace(stored=len(bomb))
    with pytest.raises(BrokenError):
        open_frames(bomb, type(pack.index)((frame,), pack.index.lengths, pack.index.digests), {0}, "key")


def a_manifest() -> Manifest:
    facts = facts_of_a_machine()
    own = Maker(
        checkpoint=facts.id,
        attempt="0123abcd",
        index_size=10,
        index_hash="a" * 64,
        packs=(PackRef(number=0, size=100, hash="b" * 64),),
    )
    old = own.model_copy(update={"checkpoint": new_checkpoint_id()})
    unused = own.model_copy(update={"checkpoint": new_checkpoint_id(), "packs": ()})
    return Manifest(
        facts=facts,
        parent=old.checkpoint,
        has_memory=True,
        makers=(own, old, unused),
        streams=(Stream(name="tree", length=5, hash="c" * 64, layout=b"\x00\x05"),),
    )


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest, content = encode_manifest(a_manifest())
    assert decode_manifest(content, manifest.id) == manifest
    assert manifest.hash != ""


def test_a_manifest_names_its_own_objects_and_those_of_ancestors_in_use() -> None:
    manifest = a_manifest()
    own, old, _ = manifest.makers
    assert set(manifest.objects()) == {own.index_key, own.pack_key(0), old.index_key, old.pack_key(0)}
    assert manifest.new_bytes == 110
    assert manifest.total_bytes == 220


def test_any_changed_byte_of_a_manifest_or_index_is_damage() -> None:
    manifest, content = encode_manifest(a_manifest())
    page = random_pages(1, 1)
    index = encode_indexes([build_pack(RawPack(0, page, [digest_of(page[0])])).index])
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x10
        with pytest.raises((BrokenError, InvalidError)):
            decode_manifest(bytes(changed), manifest.id)
    for place in range(len(index)):
        changed = bytearray(index)
        changed[place] ^= 0x10
        with pytest.raises(BrokenError):
            decode_indexes(bytes(changed), "key")


def test_the_manifest_of_another_checkpoint_is_damage_and_a_newer_format_is_said() -> None:
    manifest, content = encode_manifest(a_manifest())
    with pytest.raises(BrokenError):
        decode_manifest(content, new_checkpoint_id())
    with pytest.raises(InvalidError) as raised:
        decode_manifest(content.replace(b"OLckman1", b"OLckman2"), manifest.id)
    assert raised.value.code == "checkpoint.format"
