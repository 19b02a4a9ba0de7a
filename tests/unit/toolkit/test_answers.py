"""What a tool returned or raised, as it is told."""

from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from outlive.base import InvalidError
from outlive.toolkit import Answer, ToolContext, ToolError, answer_of, tell_error
from outlive.toolkit.answers import ANSWER_LIMIT
from outlive.toolkit.context import LIVE_LIMIT


class Weather(BaseModel):
    day: date
    degrees: float


@pytest.mark.parametrize(
    ("value", "content", "is_text"),
    [
        (None, b"", True),
        ("ä", "ä".encode(), True),
        ("\ud800", b"?", True),
        (b"plain", b"plain", True),
        (b"\xff\x00", b"\xff\x00", False),
        ({"a": [1, None, True]}, b'{"a":[1,null,true]}', True),
        (Weather(day=date(2026, 1, 2), degrees=1.5), b'{"day":"2026-01-02","degrees":1.5}', True),
        ([Weather(day=date(2026, 1, 2), degrees=1)], b'[{"day":"2026-01-02","degrees":1.0}]', True),
        (7, b"7", True),
    ],
)
def test_a_result_is_told_as_text_bytes_or_json(value: Any, content: bytes, is_text: bool) -> None:
    assert answer_of(value) == Answer(content, is_text)


def test_a_result_that_is_no_json_is_told_as_such() -> None:
    with pytest.raises(InvalidError, match="It ran, and returned a object"):
        answer_of(object())
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidError, match="cannot be told as JSON"):
        answer_of(loop)


def test_a_result_is_bounded_and_what_is_gone_is_said() -> None:
    answer = answer_of("ä" * ANSWER_LIMIT)
    assert len(answer.content) < ANSWER_LIMIT + 200
    assert answer.content.decode().endswith("bytes more were returned than are kept, and are gone.]")
    assert len(answer_of(b"\xff" * (ANSWER_LIMIT + 1)).content) == ANSWER_LIMIT


def test_an_error_is_told_with_the_end_of_its_traceback_and_no_folder() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("no such city: " + "x" * 10_000)
        deep(n - 1)

    with pytest.raises(ValueError, match="no such city") as caught:
        deep(50)
    told = tell_error(caught.value)
    assert told.startswith("ValueError: no such city: xxx")
    assert len(told) < 4_500
    assert told.endswith("in deep")
    assert told.count("test_answers.py:") == 5
    assert "/" not in told


def test_an_error_of_the_authors_own_is_told_in_its_words_alone() -> None:
    assert tell_error(ToolError("There is no such city.")) == "There is no such city."


def test_live_output_is_bounded() -> None:
    context = ToolContext(effect_id="eff_1", conversation="conv_1", turn="turn_1")
    for _ in range(3):
        context.say("x" * (LIVE_LIMIT // 2))
    assert len(context.said()) == LIVE_LIMIT
