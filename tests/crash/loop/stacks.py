"""A stack that runs turns, with the pretend provider in a process of its own: it counts while all others die."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from crash.loop.talks import Talk, open_talks
from crash.machines.stacks import CrashStack
from outlive.base import CrashPoint
from outlive.testing.pretend_provider import Call, ProviderProcess, provider_process

LOOP_POINTS = (
    CrashPoint.TURN_AFTER_SUBMIT,
    CrashPoint.TURN_AFTER_PLAN,
    CrashPoint.MODEL_BEFORE_CALL,
    CrashPoint.MODEL_AFTER_FIRST_DELTA,
    CrashPoint.MODEL_BEFORE_SEAL,
    CrashPoint.MODEL_AFTER_SEAL,
    CrashPoint.TOOL_AFTER_REQUEST,
    CrashPoint.TOOL_BEFORE_SEAL,
    CrashPoint.TOOL_AFTER_SEAL,
    CrashPoint.TURN_BEFORE_END,
    CrashPoint.TURN_AFTER_END,
)


class LoopStack(CrashStack):
    def __init__(self, path: Path, provider: ProviderProcess, **environment: str) -> None:
        super().__init__(path, **provider.environment(), **environment)
        self._provider = provider

    def calls(self) -> list[Call]:
        """What was bought, and what was asked for and left."""
        return self._provider.calls()

    @asynccontextmanager
    async def talks(self, count: int = 1, agent: str | None = None) -> AsyncIterator[list[Talk]]:
        endpoint = self.home.endpoint
        async with open_talks(endpoint["url"], endpoint["token"], count, agent) as talks:
            yield talks


@contextmanager
def loop_stack(path: Path, **environment: str) -> Iterator[LoopStack]:
    with provider_process() as provider:
        stack = LoopStack(path, provider, **environment)
        with stack.running():
            yield stack
