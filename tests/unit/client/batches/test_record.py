"""The folder of a batch: what is on the disk is enough to go on, wherever its writer was killed."""

import json
from pathlib import Path
from typing import Any

import pytest

from outlive.base import ConflictError, NotFoundError
from outlive.client.batches.items import read_items
from outlive.client.batches.record import Header, glance, open_record

ITEMS = read_items("x.txt", "One\nTwo\nThree\n")
HEADER = Header("batch_1", "x.txt", None, None, None, None, None)


def over(n: int, outcome: str = "done") -> dict[str, Any]:
    return {"item": ITEMS[n].name, "key": ITEMS[n].key, "outcome": outcome, "attempt": 1, "answer": "…"}


def keys(path: Path) -> list[str]:
    return [json.loads(text)["key"] for text in path.read_text().splitlines()] if path.exists() else []


def test_a_record_goes_on_where_it_was(tmp_path: Path) -> None:
    with open_record(tmp_path, HEADER) as record:
        assert len(record.settle(ITEMS).tasks) == 3
        record.add(over(0))
        record.add(over(1, "failed"))
    with open_record(tmp_path) as record:
        assert [task.item for task in record.settle(ITEMS).tasks] == [ITEMS[2]]
        assert record.retry() == 1
    with open_record(tmp_path) as record:
        assert [task.name for task in record.settle(ITEMS).tasks] == [(ITEMS[1].key, 2), (ITEMS[2].key, 1)]
        record.add(over(1))
    assert keys(tmp_path / "results.jsonl") == [ITEMS[0].key, ITEMS[1].key]
    assert keys(tmp_path / "failures.jsonl") == []


def test_a_torn_end_is_cut_and_what_came_after_it_is_to_do_again(tmp_path: Path) -> None:
    with open_record(tmp_path, HEADER) as record:
        for n in range(3):
            record.add(over(n))
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    for torn in (whole[:-1], whole[:-20], whole[: len(whole) * 2 // 3 + 1] + b"\0\0\0\n"):
        path.write_bytes(torn)
        assert len(glance(tmp_path).results) == 2, "who only looks changes nothing"
        assert path.read_bytes() == torn
        with open_record(tmp_path) as record:
            assert [task.item for task in record.settle(ITEMS).tasks] == [ITEMS[2]]
            record.add(over(2))
        assert path.read_bytes() == whole


def test_what_is_not_in_the_file_any_more_is_moved_aside_once(tmp_path: Path) -> None:
    with open_record(tmp_path, HEADER) as record:
        for n in range(3):
            record.add(over(n))
    edited = read_items("x.txt", "Three\nOne\nTwo and a half\n")
    for _ in range(2):
        with open_record(tmp_path) as record:
            assert [task.item.text for task in record.settle(edited).tasks] == ["Two and a half"]
    assert keys(tmp_path / "results.jsonl") == [ITEMS[0].key, ITEMS[2].key]
    assert keys(tmp_path / "superseded.jsonl") == [ITEMS[1].key]
    assert [line["item"] for line in glance(tmp_path).results] == [2, 1], "named by the lines of today"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with open_record(tmp_path, HEADER), pytest.raises(ConflictError, match="is being run"), open_record(tmp_path):
        pass
    with open_record(tmp_path) as record:
        assert record.header == HEADER


def test_a_folder_without_a_batch_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"batch\.json"), open_record(tmp_path):
        pass
    with pytest.raises(NotFoundError):
        glance(tmp_path)
    assert [*tmp_path.iterdir()] == []
