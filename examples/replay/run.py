"""A turn again on other models: one that does the same, and one that goes another way.

The models here are pretended ones, which do what the message tells each of them to; so this runs without a key, on a
stack of its own. With keys: `outlive replay C --model openai:...` of any turn that is over.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from outlive.client import Client
from outlive.testing.pretend_provider import provider_process

OUTLIVE = [sys.executable, "-m", "outlive"]
COUNT = {"command": "printf 'milk\\nbread\\n' > list.txt; wc -l < list.txt"}
SHOW = {"command": "cat list.txt"}
OTHER = {"command": "rm list.txt"}
ASK = f"""How many lines has my list? What they are told to answer:
[[say I count.]] [[tool shell {json.dumps(COUNT)}]] [[say I look.]] [[tool shell {json.dumps(SHOW)}]] [[say Two lines.]]
[[as other]] [[say I count.]] [[tool shell {json.dumps(COUNT)}]] [[say Away!]] [[tool shell {json.dumps(OTHER)}]]
"""


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
        conversation = client.conversations.create(environment="host", model="openai:first")
        for event in conversation.run(ASK):
            if event.type == "turn.finished":
                print(f"the turn on openai:first: {event.data['outcome']}")
        for model in ("openai:second", "openai:other"):
            replay = json.loads(outlive("replay", conversation.id, "--model", model, "--json"))
            differ = sum(not row["same"] for row in replay["rows"])
            print(f"again on {model}: {replay['right']['outcome']}, {differ} steps differ")
        print()
        print(outlive("compare", replay["right"]["conversation"]), end="")
        machine = conversation.machine()
        print(f"and the list is still there: {machine.exec('cat /workspace/list.txt').stdout.split()}")
        machine.delete()
    return 0


def outlive(*arguments: str) -> str:
    return subprocess.run([*OUTLIVE, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
