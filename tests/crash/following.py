"""A client that keeps a diary, an event on each line, so that it can be killed and go on from the last one."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio

from outlive.client import AsyncClient


def read_diary(diary: Path) -> list[dict[str, Any]]:
    """The events that were written whole."""
    if not diary.exists():
        return []
    lines = diary.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def follow(url: str, token: str, conversation: str, diary: Path) -> None:
    """Follow from the last event in the diary until the turn is finished."""
    anyio.run(_follow, url, token, conversation, diary)


async def _follow(url: str, token: str, conversation: str, diary: Path) -> None:
    seen = read_diary(diary)
    if seen and seen[-1]["type"] == "turn.finished":
        return  # the one before died with its last line written: nothing more will come
    whole = sum(len(json.dumps(event)) + 1 for event in seen)
    async with AsyncClient(url, token) as client:
        followed = await client.conversations.get(conversation)
        with diary.open("ab") as lines:
            lines.truncate(whole)  # a line that was cut off by death
            async for event in followed.follow(after=seen[-1]["position"] if seen else None):
                lines.write(json.dumps(asdict(event)).encode() + b"\n")
                lines.flush()
                if event.type == "turn.finished":
                    return
