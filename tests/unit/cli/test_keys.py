"""What a person types at an attached terminal: what goes there and what is meant for us."""

import pytest

from outlive.cli.keys import Keys, Typed, Wished


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (b"ls\r", [Typed(b"ls\r")]),
        (b"\x1dd", [Wished("menu"), Wished("detach")]),
        (b"a\x1dTb", [Typed(b"a"), Wished("menu"), Wished("take"), Typed(b"b")]),
        (b"\x1dy", [Wished("menu"), Wished("yield")]),
        (b"\x1d\x1d", [Wished("menu"), Typed(b"\x1d")]),
        (b"\x1d\x1d\x1d", [Wished("menu"), Typed(b"\x1d"), Wished("menu")]),
        (b"\x1d?d", [Wished("menu"), Wished("help"), Wished("detach")]),
        (b"\x1dxd", [Wished("menu"), Wished("nothing"), Typed(b"d")]),
        (b"\x03\x1a\x1b[A", [Typed(b"\x03\x1a\x1b[A")]),
    ],
)
def test_only_what_follows_the_escape_key_is_for_us(typed: bytes, found: list[Typed | Wished]) -> None:
    assert Keys().feed(typed) == found


def test_the_menu_stays_open_until_the_next_key() -> None:
    keys = Keys()
    assert keys.feed(b"\x1d") == [Wished("menu")]
    assert keys.feed(b"d") == [Wished("detach")]


def test_what_is_pasted_is_never_a_command() -> None:
    keys = Keys()
    paste = b"\x1b[200~x\x1dd"
    assert keys.feed(paste) == [Typed(paste)]
    assert keys.feed(b"\x1dt\x1b[201~") == [Typed(b"\x1dt\x1b[201~")]
    assert keys.feed(b"\x1dd") == [Wished("menu"), Wished("detach")]
