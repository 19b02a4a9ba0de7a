"""A turn that may use so many steps: it stops before it takes one more, asks, waits, and goes on when it is given more.

The model here is a pretended one, which does what the message tells it to; so this runs without a key, on a stack of
its own. An agent with `[budget.turn]` or `[budget.conversation]` in its definition does the same with any model.
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
    "name": "thrifty",
    "model": "openai:gpt-4.1",
    "instructions": "Spend little.",
    "tools": ["wait"],
    "budget": {"turn": {"steps": 4}, "conversation": {"usd": 2.0}},
}
ASK = """Look at the build three times. What it is told to answer:
[[repeat 3 tool wait {"seconds": 0}]] [[say It is green.]]"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, provider_process() as provider:
        os.environ.update(OUTLIVE_HOME=str(Path(folder) / "home"), OUTLIVE_API__PORT="0", **provider.environment())
        outlive("up", "--detach")
        try:
            return show()
        finally:
            outlive("down")


def show() -> int:
    with Client() as client:
        client.agents.apply(AGENT)
        conversation = client.conversations.create(agent="thrifty")
        for event in conversation.run(ASK, deltas=False):
            match event.type:
                case "approval.requested":
                    print(event.data["question"])
                case "turn.parked" if pending := client.approvals.list(state="pending"):
                    limit, used = (conversation.budget()[each]["turn"]["steps"] for each in ("limits", "used"))
                    print(f"while it waits: {used} of {limit} steps")
                    client.approvals.approve(pending[0].id, amount=5)
                case "budget.raised":
                    print(f"raised: {event.data['steps']} steps more")
                case "turn.finished":
                    print(f"the turn: {event.data['outcome']}")
        print(f"in all: {conversation.budget()['used']['conversation']['steps']} steps")
    return 0


def outlive(*arguments: str) -> str:
    return subprocess.run([*OUTLIVE, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
