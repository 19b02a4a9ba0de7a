"""Two engines that nobody here wrote show the same text for the same output, and each shows what the other draws.

They differ honestly in what is not UTF-8 (how many replacement characters), controls of 8 bits in UTF-8 (bittty obeys
them), DEL (ghostty shows it), emoji joined to one (bittty gives them one place) and in what a resize brings back of
what had scrolled out (bittty keeps nothing). None of this is among the pieces. `DIFFERENT` are pieces that each of them
takes in its own way.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.machine.backends.screens.bittty import BitttyScreens
from outlive.machine.backends.screens.ghostty import GhosttyScreens
from outlive.testing.screens import fed, seen
from outlive.testing.terminal_sessions import PIECES, SESSIONS

GHOSTTY, BITTTY = GhosttyScreens(), BitttyScreens()

DIFFERENT = {
    b"\x1b[?6h": "bittty leaves the cursor where it is, ghostty and xterm put it at the origin",
    b"\x1b[?6l": "the same",
    b"\x1b[2;4r": "bittty lets the cursor leave the margins, and inserts and deletes nothing outside of them",
    b"\x1b[20h": "bittty has an index return the carriage too",
    b"\x1b[?1049h": "ghostty clears the alternate screen also when it is shown already",
    b"\x1b[g": "ghostty clears a tab stop only with its number given",
    b"\x1b[?7l": "without wrapping, they put wide and combined characters at the last column differently",
    b"\x1b[Z": "ghostty still wraps the next character after a tab back from the last column",
    "漢".encode(): "ghostty empties a last column that a wide character does not fit into",
    "🙂".encode(): "the same",
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_looks_the_same_in_both_engines(name: str) -> None:
    assert seen(fed(GHOSTTY, SESSIONS[name])) == seen(fed(BITTTY, SESSIONS[name]))


@pytest.mark.parametrize("name", SESSIONS)
def test_what_one_engine_draws_the_other_shows(name: str) -> None:
    by_ghostty, by_bittty = (fed(engine, SESSIONS[name]) for engine in (GHOSTTY, BITTTY))
    assert seen(fed(BITTTY, by_ghostty.draw())) == seen(by_ghostty)
    assert seen(fed(GHOSTTY, by_bittty.draw())) == seen(by_bittty)


@given(
    output=st.lists(st.sampled_from([piece for piece in PIECES if piece not in DIFFERENT]), max_size=60).map(b"".join)
)
@settings(max_examples=100, deadline=None)  # the machine may be busy
def test_any_output_of_the_usual_pieces_looks_the_same_in_both_engines(output: bytes) -> None:
    assert seen(fed(GHOSTTY, output)) == seen(fed(BITTTY, output))


@given(output=st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join))
@settings(max_examples=60, deadline=None)  # the machine may be busy
def test_a_terminal_of_another_make_shows_what_is_drawn_of_any_output(output: bytes) -> None:
    screen = fed(GHOSTTY, output)
    assert seen(fed(BITTTY, screen.draw())) == seen(screen)
