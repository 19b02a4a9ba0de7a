"""`outlive batch run`, `retry` and `status`: many prompts from a file, each done once whatever dies."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlive.base import InvalidError, derive, new_operation_id
from outlive.cli.asking import open_client, say, say_json
from outlive.cli.exit import DONE, FAILED
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client.batches import Counts, Header, Item, Line, Options

PARALLEL = 8
PARALLEL_LIMIT = 256
_EVERY = re.compile(r"([1-9]\d{0,5})(s?)")
_WAITING_SHOWN = 10

batch_app = typer.Typer(
    name="batch",
    help="Many prompts from a file, each done exactly once: run, retry, status.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Every = Annotated[
    str, typer.Option("--every", metavar="N", help="Write down what is done after every N items; Ns: every N seconds.")
]
Parallel = Annotated[
    int, typer.Option("--parallel", min=1, max=PARALLEL_LIMIT, help="How many items at the same time.")
]
Patience = Annotated[
    float, typer.Option("--patience", min=0, metavar="S", help="Seconds to wait for a stack that is away.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the batch.")]


def add_commands(app: typer.Typer) -> None:
    app.add_typer(batch_app)


@batch_app.command("run")
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines (prompt or text, id?), CSV, or a prompt on each line.")
    ],
    agent: Annotated[str | None, typer.Option("--agent", help="Agent that does them. Default: coder.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model that answers (provider:name).")] = None,
    environment: Annotated[str | None, typer.Option("--environment", help="Environment of their machines.")] = None,
    column: Annotated[
        str | None, typer.Option("--column", metavar="NAME", help="Which field or column is the prompt.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results. Default: FILE.batch.")
    ] = None,
    every: Every = "30",
    parallel: Parallel = PARALLEL,
    patience: Patience = 600.0,
    json: Json = False,
) -> int:
    """Ask an agent for every item of a file, each in a conversation of its own.

    The same command again goes on where it was, after Ctrl-C, a crash of this command or of the stack, today or next
    week: nothing is asked for twice. An item that was edited is a new one. Results are in DIR/results.jsonl, what
    failed in DIR/failures.jsonl (`outlive batch retry DIR`). Exits with 0 when all is done, with 1 when some is not.

    \b
    Examples:
      outlive batch run prompts.jsonl --agent coder --every 30
      outlive batch run tickets.csv --column question --parallel 16 --out answers
    """
    from outlive.client.batches import Header, read_header

    options = _options(every, parallel, patience)
    folder = out or file.with_name(f"{file.name}.batch")
    found = read_header(folder)
    items = _read(file, column if found is None else found.column)
    path = str(file.resolve())
    if found is None:
        batch = derive("batch", new_operation_id())
        header = Header(batch, path, agent, model, environment, column, since=_since(agent, environment))
        return _go_on(folder, header, items, options, json)
    given = {"file": path, "agent": agent, "model": model, "environment": environment, "column": column}
    for name, value in given.items():
        if value is not None and value != getattr(found, name):
            raise InvalidError(
                "batch.other",
                f"The batch in {str(folder)!r} was begun with the {name} {getattr(found, name)!r}, not {value!r}. "
                "Leave the option out to go on with it, or begin another one with --out.",
            )
    return _go_on(folder, found, items, options, json)


@batch_app.command("retry")
def retry(
    folder: Folder, every: Every = "30", parallel: Parallel = PARALLEL, patience: Patience = 600.0, json: Json = False
) -> int:
    """Try again what failed, each in a new conversation, and go on with what is left.

    \b
    Example:
      outlive batch retry prompts.jsonl.batch
    """
    from outlive.client.batches import glance, open_record

    options = _options(every, parallel, patience)
    header = glance(folder).header
    items = _read(Path(header.file), header.column)
    with open_record(folder) as record:
        record.retry()
    return _go_on(folder, header, items, options, json)


@batch_app.command("status")
def status(folder: Folder, json: Json = False) -> None:
    """How a batch stands, as far as it was written down; also while it is being run.

    \b
    Example:
      outlive batch status prompts.jsonl.batch
    """
    from outlive.client.batches import count, glance, plan

    found = glance(folder)
    items = _read(Path(found.header.file), found.header.column)
    settled = plan(items, found.results, found.failures)
    keys = {item.key for item in items}
    waiting = [line for line in found.waiting if line["key"] in keys]
    _report(folder, count(len(items), settled.results, settled.failures, waiting), settled.failures, waiting, json)


# ── inside ──


def _options(every: str, parallel: int, patience_s: float) -> "Options":
    from outlive.client.batches import Options

    match = _EVERY.fullmatch(every)
    if match is None:
        raise InvalidError("cli.usage", f"--every is a number of items (30) or of seconds (30s), not {every!r}.")
    number = int(match[1])
    if match[2]:
        return Options(parallel, every=1_000_000, every_s=float(number), patience_s=patience_s)
    return Options(parallel, every=number, patience_s=patience_s)


def _read(file: Path, column: str | None) -> "list[Item]":
    from outlive.client.batches import read_items

    try:
        content = file.read_text("utf-8")
    except OSError as error:
        raise InvalidError("batch.unreadable", f"{str(file)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidError("batch.unreadable", f"{str(file)!r} is not UTF-8.") from None
    return read_items(file.name, content, column)


def _since(agent: str | None, environment: str | None) -> str | None:
    """Asked before anything is written: a stack, an agent or an environment that is not there is said at once."""
    with open_client() as client:
        if agent is not None:
            client.agents.get(agent)
        if environment:
            client.environments.get(environment)
        newest = client.conversations.list(limit=1)
    return newest[0].created_at if newest else None


def _go_on(folder: Path, header: "Header", items: "list[Item]", options: "Options", as_json: bool) -> int:
    from outlive.cli.batch_screen import run_to_screen

    counts, failures, waiting = run_to_screen(folder, header, items, options, quiet=as_json)
    _report(folder, counts, failures, waiting, as_json)
    return DONE if counts.done == counts.items else FAILED


def _report(folder: Path, counts: "Counts", failures: "list[Line]", waiting: "list[Line]", as_json: bool) -> None:
    from outlive.client.batches import FAILURES, RESULTS, WAITING

    if as_json:
        files = {"results": RESULTS, "failures": FAILURES, "waiting": WAITING}
        say_json({**counts.to_json(), "files": {name: str(folder / file) for name, file in files.items()}})
        return
    from outlive.cli.clean import clean_line

    left = counts.left - counts.waiting
    parts = [f"{counts.done:,} done"]
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.waiting:,} waiting for somebody"] if counts.waiting else []
    parts += [f"{left:,} left"] if left > 0 else []
    say(f"{_counted(counts.items)}: {', '.join(parts)}{_spent(counts)}")
    say(f"results:  {folder / RESULTS}")
    if counts.failed:
        reasons = {clean_line(line.get("reason") or line["outcome"]): None for line in failures}
        say(f"failures: {folder / FAILURES} ({next(iter(reasons))}{', ...' if len(reasons) > 1 else ''})")
        say(f"          try them again with: outlive batch retry {folder}")
    for line in waiting[:_WAITING_SHOWN]:
        question = f": {clean_line(line['question'])}" if line.get("question") else ""
        say(f"waiting:  item {clean_line(line['item'])} in {clean_line(line['conversation'])}{question}")
    if len(waiting) > _WAITING_SHOWN:
        say(f"          and {len(waiting) - _WAITING_SHOWN:,} more in {folder / WAITING}")


def _counted(items: int) -> str:
    return "1 item" if items == 1 else f"{items:,} items"


def _spent(counts: "Counts") -> str:
    tokens: dict[str, Any] = {**counts.tokens}
    read = tokens["input_tokens"] + tokens["cache_read_tokens"] + tokens["cache_write_tokens"]
    cost = f", ${counts.cost:.4f}" if counts.cost else ""
    return f" ({read:,} tokens in, {tokens['output_tokens']:,} out{cost})" if read or tokens["output_tokens"] else ""
