"""A process with the pretend provider of models. It says where it is, and serves until the bench is gone."""

import anyio

from bench.lifeline import end_with_the_bench, say
from outlive.testing.pretend_provider import pretend_provider


async def _serve() -> None:
    async with pretend_provider() as provider:
        say(environment=provider.environment())
        await anyio.sleep_forever()


if __name__ == "__main__":
    end_with_the_bench()
    anyio.run(_serve, backend_options={"use_uvloop": True})
