"""A race of three on copies of one live machine: one is kept, and nothing of the others. Then a fork of the kept one.

Needs a stack with machines (`outlive up`), and no key: the built-in demo model runs what stands between backticks.
"""

import sys

from outlive import Client
from outlive.base import NotFoundError
from outlive.client import Conversation

PROMPT = "Run `echo two >> notes; paste -sd' ' notes`"

client = Client()


def notes(machine: str | None) -> str:
    """What is in the file of a machine; nothing of one that is gone."""
    try:
        return client.machines.get(str(machine)).exec("paste -sd' ' notes").stdout.strip()
    except NotFoundError:
        return "(gone)"


def do(conversation: Conversation, prompt: str) -> None:
    for _ in conversation.run(prompt):
        pass


client.agents.apply({"name": "advisor", "model": "demo:", "instructions": "Only give advice.", "tools": []})
environment = sys.argv[1] if len(sys.argv) > 1 else None
conversation = client.conversations.create(model="demo:", environment=environment)
do(conversation, "Run `echo one > notes`")
print(f"before the race, the machine has: {notes(conversation.machine().id)}")

race = conversation.race(PROMPT, [{"model": "demo:first"}, {"model": "demo:second"}, {"agent": "advisor"}]).wait()
for each in race.contestants:
    who = each.agent or each.model
    print(f"{each.number} {who}: {each.outcome}, {each.steps} steps, its copy has: {notes(each.machine)}")

race.choose(1)
kept, *others = race.contestants
print(f"kept {kept.number}, with: {notes(kept.machine)}")
print(f"the others: {', '.join(notes(each.machine) for each in others)}")
print(f"the conversation itself, untouched: {notes(conversation.machine().id)}")

winner = client.conversations.get(kept.conversation)
fork = winner.fork(machine=True)
do(fork, "Run `echo three >> notes`")
print(f"a fork of the kept one goes its own way: {notes(fork.machine().id)}")
print(f"and the kept one has: {notes(winner.machine().id)}")
