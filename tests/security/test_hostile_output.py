"""Hostile output, shown to a person: a real terminal that obeys everything gets what `outlive attach` would show it,
and nothing of the person's side changes."""

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.cli.escapes import TITLE_LIMIT
from outlive.cli.harmless import Harmless
from security.hostile_output import CORPUS
from security.operator_terminal import OperatorTerminal

# Bytes of which random choices meet the parser often.
_PIECES = [
    *(b"\x1b", b"[", b"]", b"P", b"_", b"\\", b"\x07", b"\x18", b"?", b">", b"=", b"!", b" ", b"$", b"#", b"%"),
    *(b";", b":", b"0", b"1", b"2", b"6", b"52;c;eA==", b"1004", b"1049", b"2004", b"8;;http://a", b"2;t", b"133;A"),
    *(b"h", b"l", b"m", b"n", b"c", b"q", b"p", b"t", b"u", b"x", b"i", b"J", b"H", b"r", b"s", b"k", b"Z", b"b"),
    *(b"a", b"\r\n", b"\x05", b"\x0e", b"\xc2", b"\x9b", b"\x9d", b"\xe2\x82\xac", b"\xf0\x9f", b"\x80", b"\xff"),
]
_hostile = st.lists(st.one_of(st.sampled_from(_PIECES), st.binary(max_size=4)), max_size=60).map(b"".join)

# All that may ever leave the filter: valid text without C1, controls from BEL to SI, and these sequences.
_ALLOWED = re.compile(
    r"[\x07-\x0f\x20-\x7e\xa0-\U0010ffff]"
    r"|\x1b[78DEM=>]|\x1b[()*+][0AB]|\x1b#[34568]"
    r"|\x1b\[[0-9;:]*m|\x1b\[[0-9;]*[@A-MPSTXZ`abdefr]|\x1b\[[su]|\x1b\[4[hl]|\x1b\[[0-6]? q|\x1b\[\?[012]?[JK]"
    r"|\x1b\[\?(?:1|5|6|7|25|47|1047|1048|1049|1000|1002|1003|1006|2004|2026)[hl]"
    r"|\x1b\]2;[^\x00-\x1f\x7f-\x9f]*\x1b\\|\x1b\]8;(?:id=[\w.-]+)?;(?:(?:https?://|mailto:)[!-~]+)?\x1b\\"
)


@pytest.fixture
def screen() -> Iterator[OperatorTerminal]:
    screen = OperatorTerminal()
    yield screen
    screen.close()


def _shown(data: bytes, filter: Harmless | None = None) -> bytes:
    return (filter or Harmless()).feed(data)


def _byte_by_byte(data: bytes) -> bytes:
    filter = Harmless()
    return b"".join(filter.feed(data[at : at + 1]) for at in range(len(data)))


def test_the_corpus_harms_a_terminal_that_gets_it_as_it_is() -> None:
    harmful = 0
    for data in CORPUS.values():
        screen = OperatorTerminal()
        before = screen.state
        screen.feed(b"\x1b[20;20Hx")
        screen.feed(data)
        harmful += bool(screen.answers or screen.effects or screen.state != before)
        screen.close()
    # The others are for other terminals than this one.
    assert len(CORPUS) >= 80
    assert harmful >= 60


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_output_changes_nothing_on_the_operators_side(name: str, screen: OperatorTerminal) -> None:
    before = screen.state
    filter = Harmless()
    screen.feed(filter.feed(CORPUS[name]))
    assert screen.answers == []
    assert [effect for effect in screen.effects if effect != "title_changed"] == []
    after = screen.state
    assert after._replace(title="") == before
    assert after.title == filter.title
    assert len(after.title) <= TITLE_LIMIT
    assert after.title.isprintable()
    # What is printed next is seen: the attack blinds nobody, once it is over.
    screen.feed(filter.feed(b"\x1b\\\x18\x1b[Hafter"))
    assert screen.text.startswith("after")
    assert screen.answers == []


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_output_is_the_same_however_it_is_cut(name: str) -> None:
    data = CORPUS[name] + b"tail"
    whole = _shown(data)
    assert _byte_by_byte(data) == whole
    for at in range(1, min(len(data), 400)):
        filter = Harmless()
        assert filter.feed(data[:at]) + filter.feed(data[at:]) == whole


@pytest.mark.parametrize("name", CORPUS)
def test_nothing_but_the_named_sequences_leaves_the_filter(name: str) -> None:
    assert _ALLOWED.sub("", _shown(CORPUS[name]).decode()) == ""


@settings(max_examples=400)
@given(st.lists(_hostile, max_size=4))
def test_random_output_is_harmless_and_the_same_however_it_is_cut(chunks: list[bytes]) -> None:
    filter = Harmless()
    shown = b"".join(filter.feed(chunk) for chunk in chunks)
    assert shown == _shown(b"".join(chunks))
    assert _ALLOWED.sub("", shown.decode()) == ""


@settings(max_examples=150)
@given(_hostile)
def test_random_output_gets_no_answer_and_leaving_undoes_it(data: bytes) -> None:
    screen = OperatorTerminal()
    before = screen.state
    filter = Harmless()
    screen.feed(filter.feed(data))
    screen.feed(filter.reset())
    assert screen.answers == []
    assert [effect for effect in screen.effects if effect != "title_changed"] == []
    assert screen.state._replace(title="") == before
    screen.close()


def test_leaving_undoes_every_mode_that_was_let_through(screen: OperatorTerminal) -> None:
    before = screen.state
    filter = Harmless()
    modes = (1, 5, 6, 47, 1047, 1049, 1000, 1002, 1003, 1006, 2004, 2026)
    screen.feed(filter.feed(b"".join(b"\x1b[?%dh" % mode for mode in modes) + b"\x1b[?7;25l\x1b[4h\x1b=\x1b[5 q\x1b(0"))
    screen.feed(filter.feed(b"\x1b[2;5r\x1b[31m\x1b]8;;http://a/\x07\x0e"))
    assert screen.state != before
    assert filter.is_alternate
    screen.feed(filter.reset())
    assert screen.state == before
    assert not filter.is_alternate
    screen.feed(b"\x1b[Hqqq")
    assert screen.text.startswith("qqq")
    assert filter.reset() == Harmless().reset()


def test_what_draws_is_drawn_as_without_the_filter(screen: OperatorTerminal) -> None:
    drawn = (
        "\x1b[?1049h\x1b[2J\x1b[H\x1b[1;38;5;196mred\x1b[0m\x1b[3;1H\x1b[38:2::1:2:3mžluť ✓ 日本\x1b[K\r\n"
        "\x1b(0lqk\x1b(B\x1b[5;10Hx\x1b[3b\x1b[6;1H\x1b[2L\x1b[4hins\x1b[4l\x1b[2;20r\x1b[20;1H\nnew\x1bMup\x1b[r\x1b[9;9H"
        "\x1b[7mrev\x1b[m\x1b[10;1Htab\there\x1b7\x1b[20;20H\x1b8back\x1b[11d\x1b[4`g\x1b[3X\x1b[2P\x1b[2@\x1b[S\x1b[T"
    ).encode()
    plain = OperatorTerminal()
    plain.feed(drawn)
    screen.feed(_byte_by_byte(drawn))
    assert screen.text == plain.text
    assert screen.state == plain.state
    plain.close()


def test_links_to_pages_and_mail_pass_and_others_are_only_text() -> None:
    assert _shown(b"\x1b]8;id=a1;https://a.example/x\x07t\x1b]8;;\x07") == (
        b"\x1b]8;id=a1;https://a.example/x\x1b\\t\x1b]8;;\x1b\\"
    )
    assert _shown(b"\x1b]8;;mailto:a@b\x07t\x1b]8;;\x07").startswith(b"\x1b]8;;mailto:a@b\x1b\\t")
    assert _shown(b"\x1b]8;;https://a/\x07x\x1b]8;;file:///etc\x07y") == b"\x1b]8;;https://a/\x1b\\x\x1b]8;;\x1b\\y"


def test_a_title_is_one_short_line_and_may_be_left_out() -> None:
    filter = Harmless(shows_titles=False)
    assert filter.feed("\x1b]0; a\tb \u202e c\x07".encode() + b"x") == b"x"
    assert filter.title == "a b c"
    long = Harmless()
    long.feed(b"\x1b]2;" + b"y" * 4000 + b"\x07")
    assert long.title == "y" * TITLE_LIMIT


def test_invalid_text_is_replaced_and_valid_text_is_kept_when_cut() -> None:
    assert _shown(b"a\xff\xc3(\xed\xa0\x80b").decode() == "a\ufffd\ufffd(\ufffd\ufffd\ufffdb"
    assert _byte_by_byte("é€😀".encode()).decode() == "é€😀"


def test_plain_output_passes_at_more_than_20_megabytes_a_second() -> None:
    data = b"the quick brown fox jumps over the lazy dog 0123456789\r\n" * 72
    filter = Harmless()
    best = 0.0
    for _ in range(5):  # the machine may be busy: the best of five
        began = time.thread_time()
        for _ in range(250):
            filter.feed(data)
        best = max(best, 250 * len(data) / max(1e-9, time.thread_time() - began))
    assert best > 20e6
