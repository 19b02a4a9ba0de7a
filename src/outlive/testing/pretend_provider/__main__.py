"""`python -m outlive.testing.pretend_provider [--port N]`: prints one line of JSON with its address, then serves."""

import argparse
import json
import sys

import anyio

from outlive.testing.pretend_provider.server import environment_of, pretend_provider


async def _main(port: int) -> None:
    async with pretend_provider(port) as provider:
        sys.stdout.write(json.dumps({"url": provider.url, "environment": environment_of(provider.url)}) + "\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="pretend-provider")
    parser.add_argument("--port", type=int, default=0)
    try:
        anyio.run(_main, parser.parse_args().port)
    except KeyboardInterrupt:
        sys.exit(130)
