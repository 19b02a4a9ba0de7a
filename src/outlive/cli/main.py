"""The command line: which commands there are, and the one place where an error becomes a message and an exit code."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Annotated, NoReturn, TextIO

import typer

from outlive.base import OutliveError
from outlive.cli import (
    agents,
    approvals,
    bases,
    batch,
    budgets,
    compaction,
    conversations,
    demo,
    doctor,
    environments,
    histories,
    machines,
    principals,
    queue,
    races,
    replay,
    roles,
    stack,
    terminals,
    turns,
)
from outlive.cli.exit import BROKEN_PIPE, EXIT_CODES, INTERRUPTED, WRONG_USE
from outlive.cli.output import first_error, print_error

_TEMPORAL = "temporalio.bridge.temporal_sdk_bridge"  # its runtime has threads of its own

_WHAT_TO_SET = (
    "The server at OUTLIVE_URL wants a token: set OUTLIVE_TOKEN. On the server's host the owner's is in "
    "$OUTLIVE_HOME/endpoint.json; another one is made by `outlive principal create`."
)

_HELP = """The self-hosted runtime for cloud agents that outlive their machine, their client, their worker and their
deploy.

State lives under $OUTLIVE_HOME (default ~/.outlive). Clients take $OUTLIVE_URL and $OUTLIVE_TOKEN, else the
endpoint.json found there. Every command takes --json.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 not found, 4 denied, 5 unavailable.
"""

# Plain help: the rich one costs three times the start of the program.
app = typer.Typer(
    name="outlive",
    help=_HELP,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_CONVERSING = (turns, conversations, queue, replay, races, batch, approvals, budgets, compaction, agents, histories)
for module in (stack, roles, doctor, bases, *_CONVERSING, machines, environments, principals, terminals, demo):
    module.add_commands(app)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print(f"outlive {version('outlive')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        code = run(sys.argv[1:])
        _flush(sys.stdout)
    except BaseException as error:
        if _TEMPORAL in sys.modules:
            _leave(_told(error))
        raise
    if _TEMPORAL in sys.modules:
        _leave(code)
    sys.exit(code)


def _flush(stream: TextIO | None) -> None:
    """If there is one: `>&-` leaves none."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:  # a closed pipe, a full disk: the command is done all the same
        _print_nowhere(stream)


def _told(error: BaseException) -> int:
    """Say what Python would say of it at its end."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    sys.excepthook(type(error), error, error.__traceback__)
    return 1


def _leave(code: int) -> NoReturn:
    """End without taking Python down first. A thread of Temporal's runtime that comes back with an answer meanwhile
    finds half an interpreter, and aborts the process: a command that had succeeded was told as killed by SIGABRT."""
    try:
        logging.shutdown()
        _flush(sys.stdout)
        _flush(sys.stderr)
    finally:
        os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    given = list(arguments) or ["--help"]
    options = given[: given.index("--")] if "--" in given else given
    if "--json" in takewhile(lambda each: each.startswith("-"), given):
        said = "--json goes after the command: outlive status --json. See --help."
        print_error("invalid", "cli.usage", said, as_json=True)
        return WRONG_USE
    return _guard(lambda: app(args=given, prog_name="outlive", standalone_mode=False), "--json" in options)


def _guard(command: Callable[[], object], as_json: bool) -> int:
    """Every error of ours ends here, as a sentence and a code. What is not ours is a bug and shows its traceback."""
    try:
        code = command()
    except OutliveError as error:
        return _fail(error, as_json)
    except BaseExceptionGroup as group:
        ours = first_error(group)
        if ours is not None:
            return _fail(ours, as_json)
        if group.split(BrokenPipeError)[1] is None:
            _print_nowhere(sys.stdout)
            return BROKEN_PIPE
        raise
    except typer.TyperException as error:
        print_error("invalid", "cli.usage", f"{error.format_message().rstrip('.')}. See --help.", as_json=as_json)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:
        # What somebody closed the other end of (`| head`) is no failure. Typer and Rich make an exit of it.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _print_nowhere(sys.stdout)
        return BROKEN_PIPE
    return code if isinstance(code, int) else 0


def _print_nowhere(stream: TextIO) -> None:
    """What is still to be written when Python ends goes nowhere, instead of failing once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _fail(error: OutliveError, as_json: bool) -> int:
    # The API says which header it wants; here somebody looks for what to set.
    said = _WHAT_TO_SET if error.code == "token.missing" else error.message
    print_error(error.kind, error.code, said, as_json=as_json)
    return EXIT_CODES[error.kind]
