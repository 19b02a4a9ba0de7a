"""`outlive terminals`, `outlive terminal ...` and `outlive attach`: terminals of machines, over the client.

Nothing that a program printed or somebody typed reaches a person's terminal unless it was cleaned.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import TerminalFacts

Id = Annotated[str, typer.Argument(metavar="T", help="Id of the terminal (term_...).")]
MachineId = Annotated[str, typer.Argument(metavar="M", help="Id of the machine (mach_...).")]

terminal_app = typer.Typer(
    name="terminal",
    help="One terminal: open it, say who types, read what happened in it. To sit down at it: outlive attach.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def add_commands(app: typer.Typer) -> None:
    app.command("terminals")(terminals)
    app.command("attach")(attach)
    app.add_typer(terminal_app)


def _say_terminal(facts: "TerminalFacts", told: str, *, as_json: bool) -> None:
    if as_json:
        say_json(facts.to_json())
    else:
        say(told)


def _types(facts: "TerminalFacts") -> str:
    from outlive.cli.render import clean_line

    return clean_line(facts.lease.get("name") or facts.lease.get("operator")) if facts.lease else "nobody"


def terminals(machine: MachineId, json: Json = False) -> None:
    """List the terminals of a machine, oldest first. Does not wake it.

    \b
    Example:
      outlive terminals mach_0198...
    """
    with open_client() as client:
        found = client.terminals.list(machine)
    if json:
        say_json({"items": [each.to_json() for each in found]})
    else:
        say(_table(found))


def _table(found: "Sequence[TerminalFacts]") -> str:
    from outlive.cli.render import clean_line, when

    headings = ("ID", "STATE", "SIZE", "TYPES", "HERE", "CREATED", "TITLE")
    rows = [
        (
            each.id,
            each.state if each.exit_code is None else f"{each.state} {each.exit_code}",
            f"{each.cols}x{each.rows}",
            _types(each)[:20],
            str(len(each.operators)),
            when(each.created_at),
            clean_line(each.title),
        )
        for each in found
    ]
    return table(headings, rows)


def attach(
    terminal: Id,
    observe: Annotated[bool, typer.Option("--observe", help="Only look on.")] = False,
    take: Annotated[bool, typer.Option("--take", help="Type instead of whoever does now.")] = False,
    offset: Annotated[
        int | None, typer.Option("--from", min=0, metavar="OFFSET", help="Show every byte of output since this one.")
    ] = None,
    linger_s: Annotated[
        float | None,
        typer.Option("--linger", min=0, help="Leave after so many seconds of silence when input from a pipe is over."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print each frame as a line of JSON.")] = False,
) -> None:
    """Sit down at a terminal: its screen here, your keys there. Ctrl-] opens a menu: d detach, t take, y yield.

    The window's title says who types. Whoever types has a screen of the size of their window; others see what fits of
    it. When the connection is lost, it comes back by itself where it was. Sequences that could attack your terminal
    (clipboard, queries, window) are left out.

    Input from a pipe is typed; when it has ended and the terminal was silent for a while (--linger, else 2 seconds),
    this leaves. If nothing came in, or with --observe, only --linger makes it leave: without, it goes on until the
    terminal ends. Output into a pipe or file is the terminal's own, byte by byte, from now on.

    Exits with the exit code of the program in the terminal, or with 0 after leaving it.

    \b
    Examples:
      outlive attach term_0198...
      outlive attach term_0198... --observe
      echo "make test" | outlive attach term_0198...
      outlive attach term_0198... --observe --linger 5 < /dev/null
      outlive attach term_0198... --observe --from 0 > output.bin
    """
    from outlive.cli.attach import Asked, attach_to_screen

    if observe and take:
        raise typer.BadParameter("--observe and --take exclude each other")
    raise typer.Exit(attach_to_screen(Asked(terminal, observe, take, offset, json, linger_s)))


@terminal_app.command("open")
def open_(
    machine: MachineId,
    command: Annotated[str | None, typer.Option("--command", "-c", help="One line for bash. Default: a shell.")] = None,
    cols: Annotated[int | None, typer.Option("--cols", min=1, max=1000, help="Default: as your window, or 80.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1, max=1000, help="Default: as your window, or 24.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", help="Where it runs. Default: /workspace.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable; may be given again.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="agent or root. Default: as the environment says.")] = None,
    attach: Annotated[bool, typer.Option("--attach", "-a", help="Sit down at it at once.")] = False,
    json: Json = False,
) -> None:
    """Open a terminal in a machine and print its id. Wakes a hibernated machine.

    \b
    Examples:
      outlive terminal open mach_0198... --attach
      T=$(outlive terminal open mach_0198... --command "top") && outlive attach $T --observe
    """
    from outlive.cli.local_terminal import LocalTerminal
    from outlive.cli.machine_exec import parse_env

    width, height = LocalTerminal.window_size()
    with open_client() as client:
        opened = client.terminals.open(
            machine,
            command,
            cols=cols or width,
            rows=rows or height,
            cwd=cwd,
            env=parse_env(tuple(env or ())),
            user=user,
        )
    if attach:
        from outlive.cli.attach import Asked, attach_to_screen

        raise typer.Exit(attach_to_screen(Asked(opened.id, False, False, 0 if json else None, json)))
    _say_terminal(opened, opened.id, as_json=json)


@terminal_app.command()
def show(terminal: Id, json: Json = False) -> None:
    """Show what is known of a terminal, and who is there. Does not wake its machine.

    \b
    Example:
      outlive terminal show term_0198...
    """
    from outlive.cli.render import clean_line, when

    with open_client() as client:
        facts = client.terminals.get(terminal)
    if json:
        say_json(facts.to_json())
        return
    rows: list[tuple[str, Any]] = [
        ("id", facts.id),
        ("machine", facts.machine),
        ("state", facts.state),
        ("exit code", facts.exit_code),
        ("signal", facts.signal),
        ("reason", facts.reason),
        ("title", facts.title or None),
        ("size", f"{facts.cols}x{facts.rows}"),
        ("offset", facts.offset),
        ("types", _types(facts)),
        ("created", when(facts.created_at)),
        ("ended", when(facts.ended_at) if facts.ended_at else None),
    ]
    rows += [
        ("here", f"{each.get('name')} ({each.get('kind')}, {each.get('mode')}) {each.get('client') or ''}")
        for each in facts.operators
    ]
    say("\n".join(f"{label:<14}{clean_line(value)}" for label, value in rows if value is not None))


@terminal_app.command()
def take(terminal: Id, json: Json = False) -> None:
    """Take the lease: from now on only you type. A person needs nobody's consent.

    \b
    Example:
      outlive terminal take term_0198...
    """
    with open_client() as client:
        facts = client.terminals.take(terminal)
    _say_terminal(facts, f"{_types(facts)} types: {facts.id}", as_json=json)


@terminal_app.command("yield")
def yield_(terminal: Id, json: Json = False) -> None:
    """Give the lease up: whoever types next has it.

    \b
    Example:
      outlive terminal yield term_0198...
    """
    with open_client() as client:
        facts = client.terminals.yield_(terminal)
    _say_terminal(facts, f"{_types(facts)} types: {facts.id}", as_json=json)


@terminal_app.command()
def grant(
    terminal: Id,
    who: Annotated[str, typer.Argument(metavar="WHO", help="Name or id (prin_...) of the principal.")],
    json: Json = False,
) -> None:
    """Hand the lease to somebody else.

    \b
    Example:
      outlive terminal grant term_0198... anna
    """
    with open_client() as client:
        facts = client.terminals.grant(terminal, who)
    _say_terminal(facts, f"{_types(facts)} types: {facts.id}", as_json=json)


@terminal_app.command()
def close(terminal: Id, json: Json = False) -> None:
    """End what runs in a terminal. What was recorded stays.

    \b
    Example:
      outlive terminal close term_0198...
    """
    with open_client() as client:
        facts = client.terminals.close(terminal)
    _say_terminal(facts, f"{facts.state}: {facts.id}", as_json=json)


@terminal_app.command()
def run(
    terminal: Id,
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="One line for the shell in the terminal.")],
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0.001, help="Seconds after which it is given up. Default: 600.")
    ] = None,
    effect: Annotated[
        str | None, typer.Option("--effect", help="Effect id: the same id is never typed twice, and shows the same.")
    ] = None,
    json: Json = False,
) -> None:
    """Type a command into the shell of a terminal, for all to see, wait for it and print what it printed. Exits with
    its exit code (124 if it took too long, 1 if it was lost).

    \b
    Example:
      outlive terminal run term_0198... "cd src && make test"
    """
    from outlive.cli.machine_exec import exit_code_of

    with open_client() as client:
        result = client.terminals.run(terminal, command, timeout_s=timeout_s, effect_id=effect)
    if json:
        say_json(result.to_json())
    else:
        from outlive.cli.terminal_history import write_output

        write_output(result.stdout.encode())
    raise typer.Exit(exit_code_of(result))


@terminal_app.command()
def record(
    terminal: Id,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it. Default: standard output.")
    ] = None,
    json: Json = False,
) -> None:
    """Write the recording of a terminal as asciicast v3, for `asciinema play`.

    \b
    Examples:
      outlive terminal record term_0198... -o session.cast
      outlive terminal record term_0198... | asciinema play -
    """
    from outlive.cli.terminal_history import write_file, write_output

    with open_client() as client:
        recording = client.terminals.recording(terminal)
    if output is not None:
        write_file(output, recording)
    if json:
        say_json({"terminal": terminal, "bytes": len(recording), "file": output})
    elif output is None:
        write_output(recording)
    else:
        say(f"recorded: {output}, {len(recording)} bytes")


@terminal_app.command()
def screen(terminal: Id, json: Json = False) -> None:
    """Print what a terminal shows now, as plain text. Does not wake its machine.

    \b
    Example:
      outlive terminal screen term_0198...
    """
    from outlive.cli.render import clean

    with open_client() as client:
        text = clean(client.terminals.screen(terminal))
    if json:
        say_json({"terminal": terminal, "text": text})
    else:
        say(text)


@terminal_app.command()
def account(
    terminal: Id,
    start: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="From this byte of output on.")] = 0,
    end: Annotated[int | None, typer.Option("--to", min=0, metavar="OFFSET", help="Up to this one.")] = None,
    json: Json = False,
) -> None:
    """Tell what happened in a terminal: who typed what, which commands ran, what was printed.

    \b
    Example:
      outlive terminal account term_0198... --from 51200
    """
    from outlive.cli.terminal_history import account_text

    with open_client() as client:
        told = client.terminals.account(terminal, start, end)
    if json:
        say_json(told)
    else:
        say(account_text(told))
