"""A stack whose processes die on purpose, and a caller who does not give up: the same request again until it has an
answer. Every request, answer and accident goes to a trace, which is printed when a test fails.
"""

import http.client
import json
import os
import signal
import time
import urllib.error
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from eventually import eventually_sync
from integration.stack.homes import Home
from leaks import assert_nothing_left
from outlive.base import CrashPoint
from outlive.processes import proc
from outlive.wiring.node import cgroup_name

STATES = {"starting", "running", "paused", "hibernated", "lost"}
PROCESSES = ("node", "worker", "api", "temporal")
# Short, so that a partition is a matter of seconds.
LEASES = {"OUTLIVE_NODE__LEASE_S": "3", "OUTLIVE_NODE__HEARTBEAT_S": "0.5", "OUTLIVE_NODE__MARGIN_S": "2"}
LOOKS = 3
SETTLED_WITHIN_S = 90.0
TOLD = 400  # lines of a trace

Facts = dict[str, Any]


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> str:
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""


class Trace:
    """What was done and seen, with the second of it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last: dict[str, str] = {}
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(f"{time.monotonic() - self._began:8.2f}  {text}")

    def say_new(self, about: str, text: str) -> None:
        """Unless it is what was said about this the last time."""
        if self._last.get(about) != text:
            self._last[about] = text
            self.say(f"{about} {text}")

    @contextmanager
    def told_on_failure(self, about: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            error.add_note(f"{about}\n" + "\n".join(self.lines[-TOLD:]))
            raise


class CrashStack:
    """A running stack with machines, and a folder in which crash points are armed."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.folder = path / "crash"
        self.folder.mkdir(parents=True)
        self.trace = Trace()
        self.node_paths = [path / "home" / "node"]  # others may be beside it
        self.home = Home(
            path / "home",
            OUTLIVE_MACHINES__ENABLED="on",
            OUTLIVE_CRASH_FOLDER=str(self.folder),
            # Nobody gives up on a process that is killed again and again.
            OUTLIVE_SUPERVISOR__RESTARTS="10000",
            OUTLIVE_SUPERVISOR__MAX_DELAY_S="0.2",
            **environment,
        )

    @contextmanager
    def running(self) -> Iterator["CrashStack"]:
        """Nothing of it is left afterwards, whatever happens."""
        try:
            self.home.up()
            yield self
        finally:
            self.home.stop()
            self.home.end_sandboxes()

    def down(self) -> None:
        """Stop it as a user does: nothing of it may be left on the host."""
        ended = self.home.run("down")
        self.trace.say(f"down: {ended.returncode} {ended.stderr.strip()[-300:]}")
        assert ended.returncode == 0, ended.stderr
        path = self.home.path / "node"
        assert_nothing_left(path, cgroup_name(path), are_asleep=True)

    # ── accidents ──

    def arm(self, point: CrashPoint, victim: int | None = None) -> None:
        """The process that comes by dies there; with `victim`, that process does at that moment."""
        made = self.folder / f"made.{point}"
        made.write_text(str(victim or ""))
        made.rename(self.folder / point)
        self.trace.say(f"armed {point} {victim or ''}")

    def is_armed(self, point: CrashPoint) -> bool:
        return (self.folder / point).exists()

    def disarm(self) -> None:
        for armed in self.folder.iterdir():
            with suppress(FileNotFoundError):
                armed.unlink()

    def pid_of(self, name: str) -> int | None:
        """None while it is being started again."""
        with suppress(OSError, ValueError, KeyError):
            pid = self.home.pid_of(name)
            return pid if proc.find(pid) is not None else None
        return None

    def kill(self, name: str) -> None:
        if (pid := self.pid_of(name)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.trace.say(f"kill -9 {name} ({pid})")

    def kill_sandbox(self, machine: str) -> None:
        """The sandbox itself, as if the kernel had run out of memory."""
        for record in self.sandboxes(machine):
            with suppress(OSError, ValueError):
                for process in json.loads(record.read_text())["processes"][:1]:
                    os.kill(int(process["pid"]), signal.SIGKILL)
                    self.trace.say(f"kill -9 the sandbox of {machine} ({process['pid']})")

    def sandboxes(self, machine: str) -> list[Path]:
        """The records of its sandboxes, on all nodes; stale ones too."""
        return [record for path in self.node_paths for record in (path / "machines" / machine).glob("*/sandbox.json")]

    def living(self, machine: str) -> list[Path]:
        """Those of its sandboxes that live."""
        found: list[Path] = []
        for record in self.sandboxes(machine):
            with suppress(OSError, ValueError):
                processes = json.loads(record.read_text())["processes"]
                if processes and all(proc.find(process["pid"]) for process in processes):
                    found.append(record.parent)
        return found

    def wait_until_well(self) -> None:
        eventually_sync(lambda: all(self.pid_of(name) for name in PROCESSES) and self.home.is_ready(), 60.0)

    # ── a caller who does not give up ──

    def ask(self, method: str, path: str, body: Facts | None = None, *, key: str | None = None) -> Answer:
        """The last word on this request: asked again, with the same key, while it is only "not now"."""
        key = key or uuid.uuid4().hex
        answers: list[Answer] = []

        def is_answered() -> bool:
            try:
                answers.append(self._ask_once(method, path, body, key))
            except (OSError, http.client.HTTPException) as error:
                self.trace.say_new(f"{method} {path}", f"{type(error).__name__} {error}")
                return False
            return not _is_not_now(answers[-1])

        eventually_sync(is_answered, SETTLED_WITHIN_S, every_s=0.1)
        return answers[-1]

    def _ask_once(self, method: str, path: str, body: Facts | None, key: str) -> Answer:
        try:
            found = self.home.call(method, path, body if method == "POST" else None, key=key)
            answer = Answer(200, found)
        except urllib.error.HTTPError as error:
            told = "".join(getattr(error, "__notes__", []))
            answer = Answer(error.code, json.loads(told) if told.startswith("{") else {"detail": told})
        shown = answer.body if answer.status != 200 else _short(answer.body)
        self.trace.say_new(
            f"{method} {path}", f"{json.dumps(body) if body else ''} -> {answer.status} {json.dumps(shown)}"
        )
        return answer

    def create(self, key: str | None = None) -> Facts:
        return self.must(self.ask("POST", "/v1/machines", {"environment": "host"}, key=key))

    def do(self, machine: str, verb: str, key: str | None = None) -> Answer:
        if verb == "delete":
            return self.ask("DELETE", f"/v1/machines/{machine}", key=key)
        return self.ask("POST", f"/v1/machines/{machine}/{verb}", {}, key=key)

    def exec(self, machine: str, effect: str, command: str, **fields: Any) -> Answer:
        body = {"command": command, "effect_id": effect, **fields}
        return self.ask("POST", f"/v1/machines/{machine}/exec", body)

    def must(self, answer: Answer) -> Facts:
        assert answer.status == 200, answer
        assert isinstance(answer.body, dict)
        return answer.body

    # ── what is there ──

    def look(self, machine: str) -> Facts:
        answer = self.ask("GET", f"/v1/machines/{machine}")
        if answer.status == 404:
            return {"id": machine, "state": "deleted", "desired": "deleted", "generation": None}
        shown = self.must(answer)
        assert shown["state"] in STATES, shown
        return shown

    def settled(self, machine: str) -> Facts:
        """The machine when nothing is left to be done for it."""
        found: list[Facts] = []

        def is_so() -> bool:
            found[:] = [self.look(machine)]
            return is_settled(found[0])

        eventually_sync(is_so, SETTLED_WITHIN_S, every_s=0.1)
        return found[0]

    def history(self, machine: str) -> list[Facts]:
        return list(self.must(self.ask("GET", f"/v1/machines/{machine}/events?limit=1000"))["items"])

    def rolled_back(self, machine: str) -> set[str]:
        """The effects of which the machine has said that it no longer holds them."""
        told = [event for event in self.history(machine) if event["kind"] == "rolled_back"]
        return {effect for event in told for effect in event["data"]["effects"]}

    def lines(self, machine: str) -> list[str]:
        """What the commands of `append` have left in the machine."""
        for _ in range(LOOKS):
            shown = self.must(self.exec(machine, f"eff_{uuid.uuid4().hex}", "cat ran 2>/dev/null"))
            if shown["outcome"] == "finished":
                return str(shown["stdout"]).split()
            # The machine died under the look itself: that is said, and the next one is of a machine that came back.
            assert shown["outcome"] == "lost", shown
        raise AssertionError(f"{LOOKS} looks into {machine} were lost one after the other")


def append(effect: str, after_s: float = 0.0) -> str:
    """A command that can be counted: it leaves its effect id in a file, on the disk."""
    return f"sleep {after_s}; echo {effect} >> ran; sync ran"


def _is_not_now(answer: Answer) -> bool:
    return answer.status in (500, 502, 503, 504) or answer.code == "idempotency.in_flight"


def is_settled(machine: Facts) -> bool:
    """Whether nothing is left to be done for it."""
    state, desired = machine["state"], machine["desired"]
    if state == "lost":
        return machine["checkpoint"] is None or desired != "running"
    return state == desired or (state, desired) == ("hibernated", "paused")


def _short(body: Any) -> Any:
    """What of an answer is worth a line."""
    if not isinstance(body, dict):
        return body
    kept = ("id", "state", "desired", "generation", "node", "checkpoint", "reason", "outcome", "stdout", "exit_code")
    return {name: body[name] for name in kept if name in body} or body
