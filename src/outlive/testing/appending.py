"""A writer in a process of its own: `python -m outlive.testing.appending KIND ADDRESS CONVERSATION NAME COUNT`."""

import sys

import anyio

from outlive.base import ConversationId
from outlive.conversation.log import EventLog
from outlive.testing.conversations import message, open_store


async def append_messages(log: EventLog, conversation: ConversationId, name: str, count: int) -> None:
    """Append `count` messages that say who wrote them and which one each is, one after the other."""
    for number in range(count):
        await log.append(message(conversation, f"{name} {number}", key=f"{name}/{number}"))


async def main() -> None:
    kind, address, conversation, name, count = sys.argv[1:]
    async with open_store(kind, address) as (log, _):
        await append_messages(log, ConversationId(conversation), name, int(count))


if __name__ == "__main__":
    anyio.run(main)
