"""How a command speaks: text for people, or with `--json` exactly one JSON document on stdout.

An error is a line on stderr. With `--json` it is also the one document on stdout, `{"kind", "code", "detail"}`: whoever
reads stdout always finds one document, whatever happened.
"""

import json
import sys
from typing import Annotated

import typer

from outlive.base import OutliveError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(document: object) -> None:
    print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def print_error(kind: str, code: str, detail: str, *, as_json: bool) -> None:
    print(f"error: {detail}", file=sys.stderr, flush=True)
    if as_json:
        print_json({"kind": kind, "code": code, "detail": detail})


def first_error(group: BaseExceptionGroup[BaseException]) -> OutliveError | None:
    """The error of ours that a task group ended with, if it ended with nothing else."""
    ours, rest = group.split(OutliveError)
    if ours is None or rest is not None:
        return None
    error: BaseException = ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, OutliveError) else None
