"""Printing what `render.py` made: with colours on a terminal, plain in a pipe. Rich is only imported for a terminal."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlive.cli.render import (
    HEADINGS,
    Block,
    block_of,
    facts_lines,
    plain,
    plain_table,
    row_of,
    tail_lines,
)
from outlive.cli.steps import Tone
from outlive.client.wire import ConversationFacts, Transcript

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def is_terminal() -> bool:
    return sys.stdout.isatty()


def open_console() -> "Console":
    from rich.console import Console

    # No markup, no emoji codes, no highlighting: what somebody said is shown as it was said.
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def print_table(facts: Sequence[ConversationFacts]) -> None:
    rows = [row_of(each) for each in facts]
    if not is_terminal():
        print(plain_table(rows), flush=True)
        return
    if not rows:
        print("No conversations yet. Make one with: outlive new")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEADINGS, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    table.columns[0].no_wrap = True
    open_console().print(table)


def print_conversation(facts: ConversationFacts, transcript: Transcript) -> None:
    blocks = [block_of(item) for item in transcript.items]
    if not is_terminal():
        print("\n".join([*facts_lines(facts), "", *(plain(block) for block in blocks)]), flush=True)
        return
    console = open_console()
    for line in facts_lines(facts):
        console.print(line, style="dim")
    for block in blocks:
        console.print()
        console.print(styled(block))


def styled(block: Block) -> "Text":
    from rich.text import Text

    text = Text(block.head, style=block.style)
    for line in block.body.split("\n") if block.body else []:
        text.append("\n")
        text.append(line, style=_style_of(line, block.tone))
    return text


def _style_of(line: str, tone: Tone) -> str:
    match tone:
        case "dim":
            return "default not bold dim"
        case "diff" if line.startswith("+"):
            return "green not bold"
        case "diff" if line.startswith("-"):
            return "red not bold"
        case "diff":
            return "default not bold dim"
        case _:
            return "default not bold not dim"


def live_text(blocks: Sequence[Block], width: int, height: int) -> "Text":
    """The steps that are going on, as much of their ends as fits: what fits can be taken back."""
    from rich.text import Text

    text = Text(no_wrap=True)
    lines_each = max(1, (height - 2 * len(blocks)) // max(1, len(blocks)))
    for block in blocks:
        text.append(block.head[:width], style=block.style)
        text.append("\n")
        for line in tail_lines(block.body, max(1, width), lines_each) if block.body else []:
            text.append(f"{line}\n", style=_style_of(line, block.tone))
    return text
