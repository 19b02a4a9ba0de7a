"""`outlive agents` and `outlive agent ...`: who answers, over the client."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.base import NotFoundError, OutliveError
from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.definition_file import read_definition, told_by_field
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import AgentFacts, Client

agent_app = typer.Typer(
    name="agent",
    help="One agent: apply its file, show it.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def add_commands(app: typer.Typer) -> None:
    app.command("agents")(agents)
    app.add_typer(agent_app)


def agents(json: Json = False) -> None:
    """List agents by name, each in its newest version.

    \b
    Example:
      outlive agents
    """
    with open_client() as client:
        found = client.agents.list()
    if json:
        say_json({"items": [each.to_json() for each in found]})
    else:
        say(_table(found))


def _table(found: "Sequence[AgentFacts]") -> str:
    from outlive.cli.clean import clean_line

    headings = ("NAME", "VERSION", "MODEL", "TOOLS")
    rows = []
    for each in found:
        version = f"{each.version}{' (built in)' if each.builtin else ''}"
        rows.append((clean_line(each.name), version, clean_line(each.model), clean_line(", ".join(each.tools))))
    return table(headings, rows)


@agent_app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Its definition, in TOML.")],
    json: Json = False,
) -> None:
    """Make a definition the newest version of its agent. The same again makes no new version.

    \b
    Example:
      outlive agent apply reviewer.toml && outlive run "Review the last commit" --agent reviewer --repo .
    """
    definition = read_definition(file, "agent")
    with open_client() as client, told_by_field():
        made = client.agents.apply(definition)
        if made.environment is not None:
            _tell_of_missing(client, made.environment)
    if json:
        say_json(made.to_json())
    else:
        print(f"{made.name} version {made.version}", flush=True)


def _tell_of_missing(client: "Client", environment: str) -> None:
    """That the environment has to be built before the agent needs a machine. It is applied whatever comes of this."""
    from outlive.cli.clean import clean_line

    try:
        client.environments.get(environment)
    except NotFoundError:
        said = f"There is no environment {clean_line(environment)!r} yet: make it with outlive environment build FILE"
        print(said, file=sys.stderr, flush=True)
    except OutliveError:
        pass


@agent_app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent.")],
    version: Annotated[int | None, typer.Option("--version", min=1, help="Which one. Default: the newest.")] = None,
    json: Json = False,
) -> None:
    """Show what an agent is.

    \b
    Example:
      outlive agent show coder
    """
    from outlive.cli.clean import clean, clean_line, json_text
    from outlive.cli.render import when

    with open_client() as client:
        found = client.agents.get(name, version)
    if json:
        say_json(found.to_json())
        return
    rows = [
        ("name", clean_line(found.name)),
        ("version", f"{found.version}{' (built in)' if found.builtin else ''}"),
        ("model", clean_line(found.model)),
        ("fallbacks", clean_line(", ".join(found.fallbacks)) if found.fallbacks else None),
        ("tools", clean_line(", ".join(found.tools))),
        ("mcp", clean_line(", ".join(str(each.get("name")) for each in found.mcp)) if found.mcp else None),
        ("environment", clean_line(found.environment) if found.environment else None),
        ("budget", json_text(found.budget) if found.budget is not None else None),
        ("policy", json_text(found.policy) if found.policy is not None else None),
        ("applied", f"{when(found.created_at)} by {clean_line(found.created_by)}"),
    ]
    lines = [f"{label:<13}{value}" for label, value in rows if value is not None]
    print("\n".join([*lines, "", clean(found.instructions)]), flush=True)
