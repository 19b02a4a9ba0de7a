"""What a search takes for a word, whatever database it runs in."""

import pytest

from outlive.conversation.backends.search import (
    QUERY_WORDS_LIMIT,
    TEXT_FIELDS,
    query_words,
    words_of,
    words_of_stored,
)
from outlive.conversation.events import (
    DURABLE,
    ConversationCreated,
    EventData,
    MessageSent,
    ModelResponded,
    NewEvent,
    text_of,
)
from outlive.conversation.log import SEARCHED_CHARACTERS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \t\n\x00?!", []),
        ("Find the needle, the NEEDLE.", ["find", "the", "needle"]),
        ("test_append_with-stale.fence(42)", ["test", "append", "with", "stale", "fence", "42"]),
        ("Élan Straße ÄRGER ﬁn ①", ["elan", "strasse", "arger", "fin", "1"]),
        ("naïve x\u0301y_z", ["naive", "xy", "z"]),
        ("漢字 とabc", ["漢", "字", "と", "abc"]),
        ("привет мир 안녕", ["привет", "мир", "안녕"]),
        ("🧑‍🚀 a\ud800b", ["a", "b"]),
        ("x" * 1000, ["x" * 64]),
        ("é" + "x" * 1000, ["e" + "x" * 63]),
    ],
)
def test_words_are_folded_apart_and_each_once(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_plain_text_is_split_the_same_way_as_any_other() -> None:
    every = "".join(map(chr, range(128))) + " one_two-three FOUR 5"
    assert words_of(every) == [word for word in words_of(every + " é") if word != "e"]


def test_what_is_read_back_is_found_by_the_same_words() -> None:
    samples: dict[str, EventData] = {
        "conversation.created": ConversationCreated(title="Some\x00 title é"),
        "message.sent": MessageSent(message="m", text="Some \ud800 text"),
        "model.responded": ModelResponded(text="An answer 漢字", model="demo:"),
    }
    assert set(samples) == set(TEXT_FIELDS)
    for data in (*samples.values(), ConversationCreated()):
        assert words_of_stored(data.type, NewEvent(data, "").data_json) == words_of(text_of(data) or "")
    for type, made in DURABLE.items():
        fields = set(made.model_fields) & {"text", "title"}
        assert bool(fields) == (type in TEXT_FIELDS) or type == "artifact.published", type


def test_only_the_beginning_of_a_text_is_looked_at() -> None:
    assert words_of("a " * SEARCHED_CHARACTERS + "late") == ["a"]


def test_a_query_has_a_bounded_number_of_words() -> None:
    assert query_words("Two words") == ["two", "words"]
    assert len(query_words(" ".join(map(str, range(1000))))) == QUERY_WORDS_LIMIT
