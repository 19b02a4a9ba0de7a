"""An agent whose commands are run only if a person approves of exactly that one. Needs a stack (`outlive up`).

Here a rule stands for the person: nothing is forced. People decide with `outlive approvals`, `outlive approve` and
`outlive deny`, or wherever your webhook brings the question.
"""

import sys
import tomllib
from pathlib import Path

from outlive import Client

TASK = "Deploy by `touch deployed --force`. If that is not allowed, by `touch deployed`."

client = Client()
client.agents.apply(tomllib.loads((Path(__file__).parent / "deployer.toml").read_text()))
conversation = client.conversations.create(agent="deployer", environment="host")
for event in conversation.run(sys.argv[1] if len(sys.argv) > 1 else TASK, deltas=False):
    if event.type == "approval.requested":
        print(f"asked     {event.data['question']}")
    elif event.type == "turn.parked":  # from here on it costs nothing, for as long as people take
        for each in client.approvals.list(state="pending"):
            if each.conversation != conversation.id:
                continue
            if "--force" in each.question:
                client.approvals.deny(each.id, "Nothing is forced here.")
            else:
                client.approvals.approve(each.id)
    elif event.type == "approval.decided":
        print(f"decided   {event.data['decision']} {event.data.get('comment') or ''}".rstrip())
    elif event.type == "tool.finished":
        print(f"tool      {event.data['outcome']}: {' '.join(event.data['output'].split())}".rstrip(": "))
    elif event.type == "model.responded" and event.data["text"]:
        print(f"deployer  {event.data['text']}")
    elif event.type == "turn.finished" and event.data["outcome"] != "done":
        sys.exit(f"The turn is {event.data['outcome']}: {event.data['reason']}")
print(f"machine   {conversation.machine().exec('ls').stdout.strip()}")
conversation.machine().delete()
