"""Follow-ups to a turn that runs: listed, put in another order, withdrawn, and one that does not wait.

The model here is a pretended one, which does what the newest message tells it to; so this runs without a key, on a
stack of its own.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from outlive.client import Client, Conversation
from outlive.testing.pretend_provider import provider_process

OUTLIVE = [sys.executable, "-m", "outlive"]
AGENT = {"name": "clerk", "model": "openai:pretend", "instructions": "Help.", "tools": ["wait"]}
WITHIN_S = 120.0  # a slow machine has begun to answer by then
ASK = "Think for long. What it is told to answer: [[slow 600]] [[say Never said.]]"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, provider_process() as provider:
        os.environ.update(OUTLIVE_HOME=str(Path(folder) / "home"), OUTLIVE_API__PORT="0", **provider.environment())
        outlive("up", "--detach")
        try:
            show()
            last = provider.request(provider.calls()[-1].number)
            print(f"what the model was told: {', '.join(told(last))}")
            return 0
        finally:
            outlive("down")


def show() -> None:
    with Client() as client:
        client.agents.apply(AGENT)
        conversation = client.conversations.create(agent="clerk")
        turn = conversation.send(ASK).turn_id
        until_it_thinks(conversation)
        docs, tests, logo = [conversation.send(text) for text in ("the docs", "the tests", "the logo")]
        print(f"waiting: {', '.join(each.text for each in conversation.queue())}")
        queue = conversation.order_queue([tests.message_id, docs.message_id, logo.message_id])
        print(f"in another order: {', '.join(each.text for each in queue)}")
        queue = conversation.withdraw(logo.message_id)
        print(f"without the logo: {', '.join(each.text for each in queue)}")
        now = conversation.send("[[say I stopped thinking.]]", when="now")
        print(f"one that does not wait, in the same turn: {now.turn_id == turn}")
        for event in conversation.follow(deltas=False):
            if event.type == "model.responded":
                print(f"the answer: {event.data['text']}")
            if event.type == "turn.finished":
                print(f"the turn: {event.data['outcome']}")
                return


def until_it_thinks(conversation: Conversation) -> None:
    """Whatever waits is taken when an answer is asked for: these are to wait."""
    deadline = time.monotonic() + WITHIN_S
    while not any(event.type == "step.started" for event in conversation.events()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"No answer was asked for within {WITHIN_S:g} s: look at `outlive status`.")
        time.sleep(0.1)


def told(request: dict[str, object]) -> list[str]:
    said = str(request)
    places = {word: said.find(f"the {word}") for word in ("docs", "tests", "logo")}
    return sorted((word for word, place in places.items() if place >= 0), key=lambda word: places[word])


def outlive(*arguments: str) -> str:
    return subprocess.run([*OUTLIVE, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
