"""A batch of 1,000 items with a kill in the middle: the command and the worker of the stack, by `kill -9`.

Needs a stack (`outlive up --detach`). `--items N` for another size.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from outlive import Client

OUTLIVE = [sys.executable, "-m", "outlive"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=1000)
    items = parser.parse_args().items
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.jsonl"
        file.write_text("".join(json.dumps({"id": f"n{n}", "prompt": f"Say hello, {n}"}) + "\n" for n in range(items)))
        return run(file, items)


def run(file: Path, items: int) -> int:
    command = [*OUTLIVE, "batch", "run", str(file), "--model", "demo:", "--parallel", "16", "--every", "30", "--json"]
    out = file.with_name(f"{file.name}.batch")
    print(f"{items:,} items, each a conversation with one turn")

    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while len(lines(out / "results.jsonl")) < items // 2 and first.poll() is None:
        time.sleep(0.05)
    first.kill()
    first.wait()
    os.kill(worker(), signal.SIGKILL)
    print(f"kill -9 of the command and of the worker, with {items // 2:,} items or more written down")

    told = json.loads(subprocess.run(command, check=False, capture_output=True, text=True).stdout)
    print(f"the same command again: {told['done']:,} done, {told['failed']:,} failed, {told['left']:,} left")

    results = lines(out / "results.jsonl")
    print(f"results: {len(results):,} lines about {len({line['item'] for line in results}):,} items")
    batch = json.loads((out / "batch.json").read_text())["batch"]
    with Client() as client:
        made = [each for each in client.conversations.list(limit=None) if each.metadata.get("batch") == batch]
        print(f"conversations on the server: {len(made):,}, each asked once")
    return 0 if told["done"] == len(results) == len(made) == items else 1


def lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def worker() -> int:
    status = json.loads(subprocess.run([*OUTLIVE, "status", "--json"], capture_output=True, check=True).stdout)
    [pid] = [process["pid"] for process in status["processes"] if process["name"] == "worker"]
    return int(pid)


if __name__ == "__main__":
    sys.exit(main())
