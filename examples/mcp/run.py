"""Asks the librarian for a book, and prints what happens. Needs a stack (`outlive up`) and `python catalog.py`."""

import json
import sys
import tomllib
from pathlib import Path

from outlive import Client

TASK = "Do we have anything about darkness? Lend it to Ged."

client = Client()
client.agents.apply(tomllib.loads((Path(__file__).parent / "librarian.toml").read_text()))
conversation = client.conversations.create(agent="librarian")
for event in conversation.run(sys.argv[1] if len(sys.argv) > 1 else TASK):
    if event.type == "tool.requested":
        print(f"call       {event.data['name']} {json.dumps(event.data['arguments'])}")
    elif event.type == "tool.finished":
        print(f"result     {event.data['output']}")
    elif event.type == "model.responded" and event.data["text"]:
        print(f"librarian  {event.data['text']}")
    elif event.type == "turn.finished" and event.data["outcome"] != "done":
        sys.exit(f"The turn is {event.data['outcome']}: {event.data['reason']}")
