"""`outlive demo`: an agent does a small task in a real machine, followed by two clients, one of which is cut off and
resumes (`demo_task.py`); where machines cannot run, the same is shown of a conversation alone (`demo_story.py`).

Everything in it is the real thing: the stack, the loop, the machine, the processes that are killed, clients of the
public API. Without a provider's key the built-in demo model answers, and says so.
"""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.base import ConflictError, UnavailableError
from outlive.cli.exit import FAILED
from outlive.cli.output import Json, print_json

if TYPE_CHECKING:
    from outlive.cli.demo_story import Outcome as StoryOutcome
    from outlive.cli.demo_task import Outcome as TaskOutcome
    from outlive.processes.endpoint import Endpoint
    from outlive.processes.stack import Started
    from outlive.wiring.settings import Settings

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DIFFER = "What the clients and the server show DIFFERS. This must not happen: please report it."
_LOOK_S = 0.5  # how often we look whether the stack still runs


def add_commands(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    exit: Annotated[bool, typer.Option("--exit", help="Leave when all was shown, instead of serving on.")] = False,
    json: Json = False,
) -> None:
    """Give an agent a small task: make the failing test of a sample project pass, in a machine of its own.

    Starts the stack if none runs, and then keeps serving until Ctrl-C. Uses the provider whose key is set
    (ANTHROPIC_API_KEY, OPENAI_API_KEY), else the built-in demo model. A second client follows the turn, is cut off in
    the middle, and resumes. Where machines cannot run it shows a conversation with two such clients instead.

    \b
    Examples:
      outlive demo
      outlive demo --exit
      OUTLIVE_HOME=$(mktemp -d) outlive demo --exit
    """
    from outlive.processes.record import read_record

    with _ends_like_ctrl_c(), _stack(is_silent=json) as (settings, started):
        record = read_record(settings.run_path)
        off = None if record is None else record.machines_off
        show = _show_task if off is None else _show_story
        if off is not None and not json:
            print(f"==> Machines cannot run here: {off}. What follows is a conversation alone.", flush=True)
        is_well = show(settings, started, is_leaving=exit and not started.was_running, json=json)
        if not is_well:
            raise typer.Exit(FAILED)
        if not exit and not started.was_running:
            _serve_on(settings, is_silent=json)


def _show_task(settings: "Settings", started: "Started", *, is_leaving: bool, json: bool) -> bool:
    import anyio

    from outlive.cli.demo_task import give_task

    endpoint = _endpoint(settings)
    outcome = anyio.run(partial(give_task, settings, endpoint.url, endpoint.token, is_silent=json))
    if json:
        print_json({**outcome._asdict(), "url": endpoint.url})
    else:
        _conclude_task(outcome, settings, started, is_leaving=is_leaving)
    return outcome.outcome == "done" and outcome.is_identical


def _show_story(settings: "Settings", started: "Started", *, is_leaving: bool, json: bool) -> bool:
    import anyio

    from outlive.cli.demo_stage import open_stage
    from outlive.cli.demo_story import tell_story

    endpoint = _endpoint(settings)
    # A worker that others may be using is left alone.
    may_kill = not started.was_running
    with open_stage(is_silent=json) as stage:
        outcome = anyio.run(partial(tell_story, stage, settings, endpoint.url, endpoint.token, may_kill=may_kill))
    if json:
        print_json({**outcome._asdict(), "url": endpoint.url})
    else:
        _conclude_story(outcome, settings, started, is_leaving=is_leaving)
    return outcome.is_identical


def _endpoint(settings: "Settings") -> "Endpoint":
    from outlive.processes.endpoint import read_endpoint

    endpoint = read_endpoint(settings.endpoint_path)
    if endpoint is None:
        raise UnavailableError("endpoint.absent", f"There is no {str(settings.endpoint_path)!r}.")
    return endpoint


@contextmanager
def _stack(*, is_silent: bool) -> "Iterator[tuple[Settings, Started]]":
    """A stack that runs: the one that is there, else one of our own that ends with us."""
    from outlive.cli.stack import bring_down
    from outlive.processes.stack import start_detached
    from outlive.wiring.settings import read_settings

    settings = read_settings()
    if not is_silent:
        print(f"==> Outlive starts, with its state under {settings.home} ...", flush=True)
    held = _HeldBack()
    try:
        try:
            started = start_detached(settings)
        except ConflictError as error:
            if error.code != "api.port_taken":
                raise
            settings = read_settings({"api": {"port": 0}})
            started = start_detached(settings)
    except BaseException:
        held.restore()
        raise
    try:
        held.release()
        if not is_silent:
            how = "A stack was running already and is used" if started.was_running else "The stack is ready"
            print(f"==> {how}: {started.url}", flush=True)
        yield settings, started
    finally:
        if not started.was_running:
            # From here on nothing may cut us short: whatever we leave would run on unseen.
            for number in _ENDINGS:
                signal.signal(number, signal.SIG_IGN)
            bring_down(settings)
            if not is_silent:
                print("==> The stack is stopped.", flush=True)


class _HeldBack:
    """Holds back every wish to end us while the stack is started: half started, nobody would know what to stop."""

    def __init__(self) -> None:
        self._is_wanted = False
        self._before = {number: signal.getsignal(number) for number in _ENDINGS}
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, _number: int, _frame: object) -> None:
        self._is_wanted = True

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def release(self) -> None:
        """End now, if that was wanted meanwhile."""
        self.restore()
        if self._is_wanted:
            raise KeyboardInterrupt


@contextmanager
def _ends_like_ctrl_c() -> Iterator[None]:
    """Whoever ends us politely, or closes the terminal, gets the same clean end as Ctrl-C."""

    def end(_number: int, _frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in _ENDINGS}
    # A shell without job control starts what runs in its background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end)
    if before[signal.SIGHUP] is not signal.SIG_IGN:  # as nohup asks for
        signal.signal(signal.SIGHUP, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _conclude_task(outcome: "TaskOutcome", settings: "Settings", started: "Started", *, is_leaving: bool) -> None:
    said = f"The turn is {outcome.outcome}" + (f": {outcome.reason}" if outcome.reason else ".")
    if outcome.is_identical:
        said += f"\n==> The second client's screen and the server: identical, {outcome.items} items each."
    else:
        trouble = f"The second client could not be compared: {outcome.trouble}" if outcome.trouble else _DIFFER
        said += f"\n==> {trouble}"
    if outcome.model == "demo:":
        said += (
            "\n==> It was the built-in demo model. With ANTHROPIC_API_KEY or OPENAI_API_KEY set, a real one does it."
        )
    lines = [f"show {outcome.conversation}", f'send {outcome.conversation} "Which files are there?"']
    if outcome.terminal is not None:
        lines.append(f"attach {outcome.terminal}    # the agent's terminal; Ctrl-] d leaves it")
    if outcome.machine is not None:
        lines.append(f'machine exec {outcome.machine} -c "git diff"')
    _go_on(said, lines, settings, started, is_leaving=is_leaving)


def _conclude_story(outcome: "StoryOutcome", settings: "Settings", started: "Started", *, is_leaving: bool) -> None:
    if outcome.is_identical:
        said = (
            f"A, B and the server: identical, {outcome.items} items each. B missed nothing and was told nothing twice."
        )
    else:
        said = _DIFFER
    lines = [
        "list",
        f"show {outcome.conversation}",
        f'send {outcome.conversation} "Hello"',
        f"follow {outcome.conversation} --after {outcome.position}",
    ]
    _go_on(said, lines, settings, started, is_leaving=is_leaving)


def _go_on(said: str, lines: list[str], settings: "Settings", started: "Started", *, is_leaving: bool) -> None:
    command = _command(settings)
    again = ["up --detach"] if is_leaving else []  # for the stack is about to be stopped
    shown = "".join(f"  {command} {line}\n" for line in [*again, *lines])
    print(f"\n==> {said}\n\nAPI: {started.url}   (token: {settings.endpoint_path})\nGo on with:\n{shown}", flush=True)


def _command(settings: "Settings") -> str:
    """How to call us again from here."""
    here = os.path.relpath(sys.argv[0])
    name = here if os.access(here, os.X_OK) and len(here) < len(sys.argv[0]) else sys.argv[0]
    home = f"OUTLIVE_HOME={shlex.quote(str(settings.home))} " if "OUTLIVE_HOME" in os.environ else ""
    return home + shlex.quote(name)


def _serve_on(settings: "Settings", *, is_silent: bool) -> None:
    from outlive.processes.record import read_record

    if not is_silent:
        print("==> Serving. Ctrl-C stops.", flush=True)
    try:
        while (record := read_record(settings.run_path)) is not None and record.is_running:
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return
    if not is_silent:
        print("==> The stack was stopped by somebody else.", flush=True)
