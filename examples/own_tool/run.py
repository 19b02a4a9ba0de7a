"""Gives the clerk a task, and prints what happens. Needs a stack (`outlive up`) and `outlive worker --tools orders`."""

import json
import sys
import tomllib
from pathlib import Path

from outlive import Client

TASK = "What does order 1042 cost with tax? Pay 10 of it back."

client = Client()
definition = tomllib.loads((Path(__file__).parent / "clerk.toml").read_text())
client.agents.apply(definition)
conversation = client.conversations.create(agent="clerk")
for event in conversation.run(sys.argv[1] if len(sys.argv) > 1 else TASK):
    if event.type == "tool.requested":
        print(f"call    {event.data['name']} {json.dumps(event.data['arguments'])}")
    elif event.type == "tool.finished":
        print(f"result  {event.data['output']}")
    elif event.type == "model.responded" and event.data["text"]:
        print(f"clerk   {event.data['text']}")
    elif event.type == "turn.finished" and event.data["outcome"] != "done":
        sys.exit(f"The turn is {event.data['outcome']}: {event.data['reason']}")
