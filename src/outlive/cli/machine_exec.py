"""`outlive machine exec`: a command in a machine, its output here as it comes, Ctrl-C there."""

import os
import signal
import sys
from typing import NamedTuple

import anyio
import anyio.abc
import anyio.to_thread

from outlive.base import InvalidError, OutliveError, new_effect_id
from outlive.cli.exit import FAILED, INTERRUPTED
from outlive.cli.render import json_text
from outlive.client import AsyncClient, ExecResult, Piece

PATIENCE_S = 3.0
TIMED_OUT = 124  # as timeout(1) has it
STDIN_LIMIT = 1024 * 1024
_SIGINT = 2
_WHY = {
    "timeout": "it took too long and was ended",
    "lost": "its machine was lost; how far it came is not known",
}


class Asked(NamedTuple):
    command: tuple[str, ...]
    is_shell: bool
    cwd: str | None
    env: tuple[str, ...]
    timeout_s: float | None
    has_stdin: bool
    user: str | None
    effect: str | None


def exec_to_screen(machine: str, asked: Asked, *, as_json: bool) -> int:
    """Run it, show it, and return what to exit with."""
    env = parse_env(asked.env)
    stdin = _read_stdin() if asked.has_stdin else None
    return anyio.run(_exec, machine, asked, env, stdin, as_json)


def parse_env(given: tuple[str, ...]) -> dict[str, str]:
    env = {}
    for each in given:
        name, is_there, value = each.partition("=")
        if not name or not is_there:
            raise InvalidError("cli.usage", f"--env takes NAME=VALUE, and {each!r} is not that.")
        env[name] = value
    return env


def exit_code_of(result: ExecResult) -> int:
    match result.outcome:
        case "timeout":
            return TIMED_OUT
        case "finished" if result.exit_code is not None:
            return result.exit_code
        case _:
            return FAILED


def _read_stdin() -> str:
    content = sys.stdin.buffer.read(STDIN_LIMIT + 1)
    if len(content) > STDIN_LIMIT:
        raise InvalidError("cli.usage", "Standard input is longer than 1 MiB: use `outlive machine cp`.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidError("cli.usage", "Standard input is not UTF-8: use `outlive machine cp`.") from None


async def _exec(machine: str, asked: Asked, env: dict[str, str], stdin: str | None, as_json: bool) -> int:
    async with AsyncClient(patience_s=PATIENCE_S) as client:
        run = _Run(client, machine, asked.effect or new_effect_id(), as_json)
        async with anyio.create_task_group() as group:
            await group.start(run.watch_interrupts, group.cancel_scope)
            try:
                await run.show(asked, env, stdin)
            except OutliveError as error:
                run.failed = error
            group.cancel_scope.cancel()
        if run.failed is not None:
            raise run.failed
        return run.exit_code


class _Run:
    def __init__(self, client: AsyncClient, machine: str, effect: str, as_json: bool) -> None:
        self._client = client
        self._machine = machine
        self._effect = effect
        self._as_json = as_json
        self.exit_code = INTERRUPTED
        self.failed: OutliveError | None = None

    async def show(self, asked: Asked, env: dict[str, str], stdin: str | None) -> None:
        machine = await self._client.machines.get(self._machine)
        told = machine.stream(
            " ".join(asked.command) if asked.is_shell else asked.command,
            cwd=asked.cwd,
            env=env,
            timeout_s=asked.timeout_s,
            stdin=stdin,
            user=asked.user,
            effect_id=self._effect,
        )
        async for each in told:
            if isinstance(each, Piece):
                if not self._as_json:
                    await anyio.to_thread.run_sync(_print, each)
            else:
                self._end(each)

    def _end(self, result: ExecResult) -> None:
        self.exit_code = exit_code_of(result)
        if self._as_json:
            print(json_text(result.to_json()), flush=True)
        elif result.outcome != "finished":
            print(f"outlive: {_WHY.get(result.outcome, result.outcome)}", file=sys.stderr)
        elif result.cut_bytes:
            print(f"outlive: it printed {result.cut_bytes} bytes more than is kept", file=sys.stderr)

    async def watch_interrupts(self, scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            is_first = True
            async for _ in signals:
                if not is_first:
                    print(
                        f"\noutlive: left it running. Find it again: outlive machine exec {self._machine} "
                        f"--effect {self._effect} -- (the same command)",
                        file=sys.stderr,
                    )
                    scope.cancel()
                    return
                is_first = False
                print("\noutlive: interrupting the command (again: leave it running)", file=sys.stderr)
                await self._interrupt()

    async def _interrupt(self) -> None:
        try:
            machine = await self._client.machines.get(self._machine)
            await machine.signal(self._effect, _SIGINT)
        except OutliveError as error:
            print(f"outlive: {error.message}", file=sys.stderr)


def _print(piece: Piece) -> None:
    target = sys.stdout if piece.stream == "stdout" else sys.stderr
    left = memoryview(piece.data)
    while left:
        left = left[os.write(target.fileno(), left) :]
