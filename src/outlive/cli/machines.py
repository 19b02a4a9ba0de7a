"""`outlive machines` and `outlive machine ...`: machines, over the client.

What a program printed goes to the output as it is, byte by byte, so that pipes work; all else is cleaned before it
reaches a terminal.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.base import OutliveError
from outlive.cli.asking import open_client, say, say_aside, say_json, table, told_on_ctrl_c
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import Client, EgressFacts, Machine, MachineFacts

Id = Annotated[str, typer.Argument(metavar="M", help="Id of the machine (mach_...).")]

machine_app = typer.Typer(
    name="machine",
    help="One machine: create it, run commands in it, save it, copy files to and from it.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def add_commands(app: typer.Typer) -> None:
    app.command("machines")(machines)
    app.add_typer(machine_app)


def _say_machine(machine: "Machine", told: str, *, as_json: bool) -> None:
    if as_json:
        say_json(machine.facts.to_json())
    else:
        say(told)


def machines(
    state: Annotated[
        str | None,
        typer.Option("--state", help="Only those in these states, with commas (deleted ones only when asked for)."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """List machines, newest first.

    \b
    Examples:
      outlive machines
      outlive machines --state running,paused --json
    """
    with open_client() as client:
        found = [machine.facts for machine in client.machines.list(limit=limit, state=state)]
    if json:
        say_json({"items": [each.to_json() for each in found]})
    else:
        say(_table(found))


def _table(found: "Sequence[MachineFacts]") -> str:
    from outlive.cli.render import clean_line, when

    headings = ("ID", "STATE", "ENVIRONMENT", "CHANGED", "NAME")
    rows = [
        (each.id, each.state, clean_line(each.environment), when(each.changed_at), clean_line(each.name or ""))
        for each in found
    ]
    return table(headings, rows)


@machine_app.command()
def create(
    environment: Annotated[
        str | None, typer.Option("--environment", "-e", help="What it is made from. Default: default.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What people call it.")] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help="Conversation whose agent works in it, unless it has one.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a machine and print its id. It is running then.

    \b
    Examples:
      outlive machine create
      M=$(outlive machine create --name build) && outlive machine exec $M -- uname -a
    """
    with open_client() as client:
        with told_on_ctrl_c("the machine may still come; see: outlive machines"):
            made = client.machines.create(environment=environment, name=name, conversation=conversation)
        _say_machine(made, made.id, as_json=json)
        if conversation is not None:
            _say_whose(client, conversation, made.id)


def _say_whose(client: "Client", conversation: str, made: str) -> None:
    """A conversation that has a machine keeps it: the new one is nobody's place of work."""
    with suppress(OutliveError):  # the machine is made, and its id was said
        kept = client.conversations.get(conversation).machine_id
        if kept is not None and kept != made:
            say_aside(f"{conversation} keeps its machine {kept}: its agent does not work in {made}")


@machine_app.command()
def show(machine: Id, json: Json = False) -> None:
    """Show what is known of a machine. Does not wake it.

    \b
    Example:
      outlive machine show mach_0198...
    """
    from outlive.cli.render import clean_line, when

    with open_client() as client:
        facts = client.machines.get(machine).facts
    if json:
        say_json(facts.to_json())
        return
    rows = [
        ("id", facts.id),
        ("name", facts.name),
        ("state", facts.state),
        ("reason", facts.reason),
        ("environment", facts.environment),
        ("conversation", facts.conversation),
        ("generation", facts.generation),
        ("node", facts.node),
        ("checkpoint", facts.checkpoint),
        ("created", when(facts.created_at)),
        ("changed", when(facts.changed_at)),
    ]
    say("\n".join(f"{label:<14}{clean_line(value)}" for label, value in rows if value is not None))


@machine_app.command("exec")
def exec_(
    machine: Id,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="[--] COMMAND [ARG]...",
            help="Program and arguments, as they are; behind -- if one begins with a dash.",
        ),
    ],
    shell: Annotated[bool, typer.Option("--shell", "-c", help="COMMAND is one line for bash.")] = False,
    cwd: Annotated[str | None, typer.Option("--cwd", help="Where it runs. Default: /workspace.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable; may be given again.")
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0.001, help="Seconds after which it is ended. Default: 600.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Hand it all of standard input (text).")] = False,
    user: Annotated[str | None, typer.Option("--user", help="agent or root. Default: as the environment says.")] = None,
    effect: Annotated[
        str | None, typer.Option("--effect", help="Effect id: the same id never runs twice, and shows the same.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a command in a machine and show its output as it comes. Exits with the command's own exit code (124 if it
    took too long, 1 if it was lost). Wakes a hibernated machine.

    Ctrl-C interrupts the command (SIGINT); a second one leaves it running and says how to find it again.

    \b
    Examples:
      outlive machine exec mach_0198... -- git status
      outlive machine exec mach_0198... -c "make test 2>&1 | tail"
      git diff | outlive machine exec mach_0198... -i -- git apply
    """
    from outlive.cli.machine_exec import Asked, exec_to_screen

    asked = Asked(tuple(command), shell, cwd, tuple(env or ()), timeout_s, stdin, user, effect)
    raise typer.Exit(exec_to_screen(machine, asked, as_json=json))


@machine_app.command()
def pause(machine: Id, json: Json = False) -> None:
    """Stop everything in a machine, from outside, until you say resume.

    \b
    Example:
      outlive machine pause mach_0198...
    """
    with open_client() as client:
        _say_machine(client.machines.get(machine).pause(), f"paused: {machine}", as_json=json)


@machine_app.command()
def resume(machine: Id, json: Json = False) -> None:
    """End a pause.

    \b
    Example:
      outlive machine resume mach_0198...
    """
    with open_client() as client:
        _say_machine(client.machines.get(machine).resume(), f"running: {machine}", as_json=json)


@machine_app.command()
def hibernate(machine: Id, json: Json = False) -> None:
    """Save a machine with its memory and give up its place. It comes back as it was when somebody uses it.

    \b
    Example:
      outlive machine hibernate mach_0198...
    """
    with open_client() as client:
        _say_machine(client.machines.get(machine).hibernate(), f"hibernated: {machine}", as_json=json)


@machine_app.command()
def wake(machine: Id, json: Json = False) -> None:
    """Bring a hibernated machine back as it was.

    \b
    Example:
      outlive machine wake mach_0198...
    """
    with open_client() as client:
        _say_machine(client.machines.get(machine).wake(), f"running: {machine}", as_json=json)


@machine_app.command()
def checkpoint(machine: Id, json: Json = False) -> None:
    """Save a machine as it is now and print the checkpoint's id; it goes on running.

    \b
    Example:
      outlive machine checkpoint mach_0198...
    """
    with open_client() as client:
        made = client.machines.get(machine).checkpoint()
    if json:
        say_json({"id": made})
    else:
        say(made)


@machine_app.command()
def fork(
    machine: Id,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=32, help="How many copies.")] = 1,
    json: Json = False,
) -> None:
    """Make copies of a live machine, memory included, and print their ids.

    \b
    Examples:
      outlive machine fork mach_0198...
      outlive machine fork mach_0198... --count 4
    """
    with open_client() as client:
        found = client.machines.get(machine)
        with told_on_ctrl_c(f"the {'copy' if count == 1 else 'copies'} may still come; see: outlive machines"):
            made = found.fork(count)
    if json:
        say_json({"items": [each.facts.to_json() for each in made]})
    else:
        say("\n".join(each.id for each in made))


@machine_app.command()
def delete(machine: Id, json: Json = False) -> None:
    """Delete a machine for good: what runs in it, its files, its checkpoints.

    \b
    Example:
      outlive machine delete mach_0198...
    """
    with open_client() as client:
        found = client.machines.get(machine)
        found.delete()
        _say_machine(found, f"deleted: {machine}", as_json=json)


@machine_app.command()
def egress(
    machine: Id,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only what comes behind number N.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 1000,
    json: Json = False,
) -> None:
    """Show what was decided on a machine's connections to the outside, oldest first; also of one that was
    deleted. Does not wake it.

    One that is allowed has two lines: `allowed`, and how it came out (`ended`, or `failed`). Hosts are as something in
    the machine wrote them.

    \b
    Examples:
      outlive machine egress mach_0198...
      outlive machine egress mach_0198... --after 1000 --json
    """
    with open_client() as client:
        found = client.machines.egress(machine, after=after, limit=limit + 1)
    shown = found[:limit]
    if json:
        say_json({"items": [each.to_json() for each in shown]})
    else:
        say(_egress_table(shown))
    if len(found) > limit:
        say_aside(f"there are more: --after {shown[-1].n}")


def _egress_table(found: "Sequence[EgressFacts]") -> str:
    from outlive.cli.render import clean_line, when

    headings = ("N", "AT", "VERDICT", "METHOD", "TO", "ADDRESS", "UP", "DOWN", "WHY")
    rows = [
        tuple(
            clean_line(cell)
            for cell in (
                each.n,
                when(each.at),
                each.verdict,
                each.method or "-",
                f"{each.host}:{each.port}" if each.host else "-",
                each.address or "-",
                each.bytes_up,
                each.bytes_down,
                each.reason,
            )
        )
        for each in found
    ]
    return table(headings, rows)


@machine_app.command()
def cp(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A path here, or M:PATH in a machine.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The other: M:PATH, or a path here.")],
    json: Json = False,
) -> None:
    """Copy a file or a directory into a machine or out of it. In a machine a path without a slash in front is in
    /workspace. A directory is copied with all that is in it; links are left out, and that is said.

    \b
    Examples:
      outlive machine cp src mach_0198...:src
      outlive machine cp mach_0198...:/var/log/app.log .
    """
    from outlive.cli.machine_copy import copy

    copied = copy(source, target)
    if json:
        say_json({"files": copied.files, "bytes": copied.size, "left_out": list(copied.left_out)})
        return
    say(f"copied: {copied.files} {'file' if copied.files == 1 else 'files'}, {copied.size} bytes")
