"""A user's own package of tools. The tests put it into a folder beside, on the path of the user's worker alone."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from outlive import ToolContext, ToolError, tool

FOLDER = Path(os.environ["ACME_FOLDER"])


def note(what: str, context: ToolContext) -> None:
    """What happened, where a test can see it."""
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(json.dumps({"what": what, "effect": context.effect_id, "attempt": context.attempt}) + "\n")


def wait_for_gate(context: ToolContext) -> None:
    while not (FOLDER / "gate").exists() and not context.is_cancelled:
        time.sleep(0.05)


@tool(parallel=True)
def add(a: int, b: int = 2) -> dict[str, Any]:
    """The sum of two numbers."""
    return {"sum": a + b}


@tool
async def refuse(message: str, how: str = "own") -> None:
    """Fails."""
    if how == "exit":
        raise SystemExit(message)
    raise ToolError(message) if how == "own" else ValueError(message)


@tool
def variables() -> list[str]:
    """The names of the variables of the process."""
    return sorted(os.environ)


@tool
async def repeat(text: str, times: int) -> str:
    """A text, many times."""
    return text * times


@tool
def picture() -> bytes:
    """Bytes."""
    return b"\x89PNG\r\n\x00"


@tool(parallel=True)
def charge(amount: int, context: ToolContext) -> str:
    """Charges something; never twice."""
    note("charge", context)
    wait_for_gate(context)
    return f"charged {amount}"


@tool(parallel=True, idempotent=True)
async def count(context: ToolContext) -> str:
    """Counts; may be done again."""
    note("count", context)
    context.say("counting\n")
    while not (FOLDER / "gate").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return f"counted at attempt {context.attempt}"


@tool
async def linger(context: ToolContext) -> None:
    """Goes on until it is stopped."""
    note("linger", context)
    try:
        await asyncio.sleep(3600)
    finally:
        note("stopped", context)


@tool(timeout_s=0.5)
async def dawdle() -> None:
    """Takes longer than it may."""
    await asyncio.sleep(3600)


@tool(timeout_s=0.5)
def dawdle_in_a_thread(context: ToolContext) -> None:
    """Takes longer than it may, and cannot be stopped."""
    while not (FOLDER / "gate").exists():
        time.sleep(0.05)
