"""What a file asks for: three forms, keys that follow from what is asked, and what cannot be an item."""

import json

import pytest

from outlive.base import InvalidError
from outlive.client.batches.items import Item, read_items


def names(items: list[Item]) -> list[str | int]:
    return [item.name for item in items]


def test_json_lines_csv_and_plain_lines_are_read() -> None:
    lines = '{"id": "a", "prompt": "One"}\n\n{"text": "Two", "model": "demo:"}\n"Three"\n'
    found = read_items("x.jsonl", lines)
    assert [(item.name, item.text) for item in found] == [("a", "One"), (3, "Two"), (4, "Three")]
    assert found[1].asked == {"model": "demo:"}
    table = 'id,prompt,other\n1,"a, b\nc",x\n2,d,y\n'
    assert [(item.name, item.text) for item in read_items("x.csv", table)] == [("1", "a, b\nc"), ("2", "d")]
    assert [item.text for item in read_items("x.csv", table, "other")] == ["x", "y"]
    assert [(item.name, item.text) for item in read_items("x.txt", "One\n\n  Two  \r\n")] == [(1, "One"), (3, "Two")]
    assert names(read_items("prompts", '\ufeff{"id": 7, "prompt": "One"}')) == ["7"]


def test_a_key_follows_from_what_is_asked_for_and_not_from_where_it_stands() -> None:
    first = read_items("x.jsonl", '{"prompt": "One"}\n{"prompt": "Two", "id": 2}\n')
    moved = read_items("x.jsonl", '{"id": 2, "note": "new", "prompt": "Two"}\n{"prompt": "Zero"}\n{"prompt": "One"}\n')
    assert {item.key for item in first} < {item.key for item in moved}
    edited = read_items("x.jsonl", '{"prompt": "One!"}\n{"prompt": "Two", "id": 3}\n')
    assert {item.key for item in first} & {item.key for item in edited} == set()
    of_a_model = read_items("x.jsonl", '{"prompt": "One", "model": "demo:"}')
    assert of_a_model[0].key != first[0].key


def test_the_same_thing_asked_for_twice_is_two_items() -> None:
    found = read_items("x.txt", "One\nOne\nOne\n")
    assert len({item.key for item in found}) == 3
    assert {item.key for item in read_items("x.txt", "One\nOne\n")} < {item.key for item in found}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"prompt": "a"}\n{"prompt": ', "Line 2 .* no JSON"),
        ("{}\n", "Line 1 .* no text"),
        ('{"prompt": 7}', "Line 1 .* no text"),
        ('{"prompt": " "}', "Line 1 .* no text"),
        ('{"prompt": "a", "id": []}', "`id`"),
        ('{"prompt": "a", "model": 5}', "`model`"),
        ('{"prompt": "a", "metadata": 5}', "`metadata`"),
        ('{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}', "line 1 too"),
        ("[1]", "no JSON object"),
        ("\n\n", "no item"),
    ],
)
def test_what_cannot_be_an_item_is_refused_with_its_line(content: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        read_items("x.jsonl", content)


def test_csv_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidError, match="no CSV"):
        read_items("x.csv", 'prompt\n"a"b\n')


def test_a_title_is_one_short_line() -> None:
    [item] = read_items("x.jsonl", json.dumps({"prompt": "a\n\x1b[31mb " + "c" * 200}))
    assert len(item.title) == 80
    assert item.title.startswith("a [31mb c")
