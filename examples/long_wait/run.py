"""A turn that waits. Nothing of it runs, its machine sleeps with all that is in it, and the stack itself may go.

The model here is a pretended one, which does what the message tells it to; so this runs without a key, on a stack of
its own. It would wait for 30 days; so that you need not, a message ends the wait.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from outlive.client import Client
from outlive.testing.pretend_provider import provider_process

OUTLIVE = [sys.executable, "-m", "outlive"]
AGENT = {
    "name": "patient",
    "model": "openai:gpt-4.1",
    "instructions": "Look again later.",
    "tools": ["shell", "wait"],
}
ASK = """Set a variable in the shell, wait, and look whether it is there. What it is told to answer:
[[tool shell {"command": "fruit=apple; echo $fruit"}]] [[tool wait {"seconds": 2592000}]]
[[tool shell {"command": "echo $fruit"}]] [[say Still there.]]"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, provider_process() as provider:
        os.environ.update(
            OUTLIVE_HOME=str(Path(folder) / "home"),
            OUTLIVE_API__PORT="0",
            OUTLIVE_MACHINES__ENABLED="on",
            **provider.environment(),
        )
        outlive("up", "--detach")
        try:
            conversation, position = begin()
            outlive("down")
            print("the stack is down, and is started again")
            outlive("up", "--detach")
            return end(conversation, position)
        finally:
            outlive("down")


def begin() -> tuple[str, str]:
    """Until it waits, and its machine sleeps. Returns the conversation, and where we stopped reading it."""
    with Client() as client:
        client.agents.apply(AGENT)
        conversation = client.conversations.create(agent="patient", environment="host")
        for event in conversation.run(ASK, deltas=False):
            tell(event.type, event.data)
            if event.type == "machine.hibernated":
                return conversation.id, event.position
    raise AssertionError("the turn ended before it waited")


def end(conversation: str, position: str) -> int:
    with Client() as client:
        found = client.conversations.get(conversation)
        found.send("It is time.")
        for event in found.follow(position, deltas=False):
            tell(event.type, event.data)
            if event.type == "turn.finished":
                break
        found.machine().delete()
    return 0


def tell(kind: str, data: dict[str, object]) -> None:
    match kind:
        case "tool.finished":
            print(f"tool: {str(data['output']).rpartition('; ')[2]}".rstrip())  # without how long it waited
        case "turn.parked":
            print("it waits: nothing of it runs")
        case "machine.hibernated":
            print("its machine sleeps")
        case "machine.woken":
            print("its machine is awake")
        case "message.sent":
            print(f"you: {str(data['text']).splitlines()[0]}")
        case "model.responded" if data["text"]:
            print(f"agent: {data['text']}")
        case "turn.finished":
            print(f"the turn: {data['outcome']}")


def outlive(*arguments: str) -> str:
    return subprocess.run([*OUTLIVE, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
