"""Gives an agent a task that it tries in two ways, each on a copy of its machine. Needs a stack (`outlive up`)."""

import sys
import tomllib
from pathlib import Path

from outlive import Client

TASK = (
    "Write ten numbers into numbers.txt, one on each line, in no order. Let one subagent put them in order with sort, "
    "and another one with awk. Which one did it? Do not change numbers.txt yourself."
)

client = Client()
client.agents.apply(tomllib.loads((Path(__file__).parent / "lead.toml").read_text()))
conversation = client.conversations.create(agent="lead", environment="host")
for event in conversation.run(sys.argv[1] if len(sys.argv) > 1 else TASK):
    if event.type == "tool.finished" and "subagent" not in event.data["output"]:
        print(f"shell     {' '.join(event.data['output'].split())}")
    elif event.type == "model.responded" and event.data["text"]:
        print(f"lead      {event.data['text']}")
    elif event.type == "turn.finished" and event.data["outcome"] != "done":
        sys.exit(f"The turn is {event.data['outcome']}: {event.data['reason']}")
subagents = conversation.subagents()
has_machine = conversation.refresh().machine_id is not None
if not subagents or not has_machine:
    if has_machine:
        conversation.machine().delete()
    sys.exit("The model gave no work to subagents on forks: name one that can in lead.toml.")
for each in subagents:
    child = client.conversations.get(each["conversation"])
    said = [event.data["text"] for event in child.events() if event.type == "model.responded"]
    print(f"subagent  on a {each['machine']}, {each['outcome']}: {said[-1] if said else '(said nothing)'}")
print(f"and here  {' '.join(conversation.machine().exec('cat numbers.txt').stdout.split())}")
conversation.machine().delete()
