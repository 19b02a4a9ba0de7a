"""What of an output is shown: bounded, and nothing left out in silence."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.loop.tools.output import SMALLEST_LIMIT, LivePieces, bounded


@given(st.text(), st.integers(16, 64))
def test_what_is_shown_is_bounded_and_says_what_it_left_out(text: str, limit: int) -> None:
    part = bounded(text, limit)
    whole = text.encode("utf-8", "replace").decode()
    if part.is_whole:
        assert part.text == whole
        return
    head, _, rest = part.text.partition("\n[... ")
    count, _, tail = rest.partition(" bytes are left out here ...]\n")
    assert len(head.encode()) + len(tail.encode()) <= limit
    assert whole.startswith(head)
    assert whole.endswith(tail)
    # Half a character at a cut is left out too, and not counted.
    counted = len(head.encode()) + len(tail.encode()) + int(count.replace(",", ""))
    assert 0 <= len(whole.encode()) - counted <= 6


@given(st.text(min_size=SMALLEST_LIMIT // 2).map(lambda text: text * 4), st.integers(SMALLEST_LIMIT, 400))
def test_the_bound_holds_with_all_that_is_said_about_a_cut(text: str, limit: int) -> None:
    assert len(bounded(text, limit).text.encode()) <= limit


def test_a_cut_is_at_a_line_end_where_one_is_near() -> None:
    part = bounded("\n".join(f"line {n:04}" for n in range(100)) + "\n", 100)
    head, _, tail = part.text.partition("\n[...")
    assert head.splitlines()[-1].startswith("line ")
    assert len(head.splitlines()[-1]) == 9
    assert tail.splitlines()[1].startswith("line ")


@given(st.lists(st.binary(max_size=8)), st.integers(0, 40))
def test_live_pieces_that_are_told_again_are_shown_once(pieces: list[bytes], again_at: int) -> None:
    whole = b"".join(pieces)
    plain = whole.replace(b"\x1b", b"").replace(b"\r", b"").replace(b"\b", b"")
    live, shown, at = LivePieces(), "", 0
    for piece in pieces:
        shown += live.take(at, piece)
        at += len(piece)
        if at > again_at:
            again_at = 1_000_000
            shown += live.take(0, whole[:at])
    shown += live.end()
    assert shown.count("\n") <= whole.count(b"\n")
    if b"\x1b" not in whole and b"\xc2" not in whole:  # a control string, which has no end yet, takes line ends along
        assert shown.count("\n") == whole.count(b"\n")
    if plain == whole and whole.isascii() and all(byte >= 32 or byte in (9, 10) for byte in whole) and 127 not in whole:
        assert shown == whole.decode()


def test_live_output_is_plain_even_where_a_sequence_is_cut_in_two() -> None:
    live = LivePieces()
    assert live.take(0, b"\x1b[3") == ""
    assert live.take(3, b"1mred\x1b[0m\n") == "red\n"


def test_live_output_ends_at_its_bound_and_says_so() -> None:
    live = LivePieces(limit=10)
    assert live.take(0, b"12345678\n") == "12345678\n"
    assert live.take(9, b"abcdef\n") == "a\n[More follows; it is in the result.]\n"
    assert live.take(16, b"never\n") == ""


PROMPT = b"\x1b]133;D;1;aid=1.2\x07\x1b]133;A\x07\r\nagent@machine\r\n$ "


def test_live_output_ends_before_the_next_prompt_of_the_shell() -> None:
    """Also where the prompt has several lines, and where nobody knows yet how long the output is."""
    for length in (6, None):
        live = LivePieces()
        assert live.take(0, b"built\n" + PROMPT) == "built\n"
        assert live.take(6 + len(PROMPT), b"more") == ""
        assert live.end(length) == ""
    live = LivePieces()
    assert live.take(0, b"no end of line" + PROMPT) == ""
    assert live.end(14) == "no end of line"


def test_what_only_looks_like_the_end_of_a_command_is_shown_when_the_end_is_known() -> None:
    live = LivePieces()
    printed = b"one\n" + PROMPT + b"two\n"
    assert live.take(0, printed) == "one\n"
    assert "two" in live.end(len(printed))
