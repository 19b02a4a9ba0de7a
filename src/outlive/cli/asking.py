"""What commands that ask the server share: its client, and how an answer is said. What is dear to import comes late."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlive.client import Client

PATIENCE_S = 3.0  # a person waits at a prompt: say soon that nobody answers


@contextmanager
def open_client() -> "Iterator[Client]":
    from outlive.client import Client

    with Client(patience_s=PATIENCE_S) as client:
        yield client


@contextmanager
def told_on_ctrl_c(text: str) -> Iterator[None]:
    """Around a request that the server carries out also if nobody waits for its answer."""
    try:
        yield
    except KeyboardInterrupt:
        say_aside(text)
        raise


def say_aside(text: str) -> None:
    """What is no part of the answer."""
    print(f"outlive: {text}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    print(text, flush=True)


def say_json(document: object) -> None:
    from outlive.cli.clean import json_text

    say(json_text(document))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of one width, the last one free."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings) - 1)]
    shown = (
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]])
        for line in lines
    )
    return "\n".join(line.rstrip() for line in shown)
