"""`outlive environments` and `outlive environment ...`: what machines are made from, over the client."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.base import ConflictError
from outlive.cli.asking import open_client, say, say_json, table, told_on_ctrl_c
from outlive.cli.definition_file import read_definition, told_by_field
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import EnvironmentFacts

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the environment.")]

environment_app = typer.Typer(
    name="environment",
    help="One environment: build it from its file, show it, read what its build said.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def add_commands(app: typer.Typer) -> None:
    app.command("environments")(environments)
    app.add_typer(environment_app)


def environments(json: Json = False) -> None:
    """List environments by name.

    \b
    Example:
      outlive environments
    """
    with open_client() as client:
        found = client.environments.list()
    if json:
        say_json({"items": [each.to_json() for each in found]})
        return
    say(_table(found))


def _table(found: "Sequence[EnvironmentFacts]") -> str:
    from outlive.cli.render import clean_line

    headings = ("NAME", "STATE", "WARM", "BASE")
    rows = [
        (clean_line(each.name), each.state, str(each.warm), clean_line(each.definition.get("base", "")))
        for each in found
    ]
    return table(headings, rows)


@environment_app.command()
def build(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Its definition, in TOML.")],
    json: Json = False,
) -> None:
    """Build an environment and show what the build says (on stderr). The same definition again is built once; one that
    failed is tried again. Leaving does not end a build.

    \b
    Example:
      outlive environment build web.toml && outlive machine create --environment web
    """
    from outlive.cli.render import clean_line

    definition = read_definition(file, "environment")
    name = clean_line(str(definition.get("name", "NAME")))
    left = f"a build that has begun goes on; see: outlive environment log {name}"
    with open_client() as client, told_by_field(), told_on_ctrl_c(left):
        built = client.environments.build(definition, on_log=_show)
    if built.state == "failed":
        raise ConflictError("environment.failed", f"{built.name} could not be built: {built.reason}")
    if json:
        say_json(built.to_json())
    else:
        print(f"{built.state}: {built.name}", flush=True)


@environment_app.command()
def show(name: Name, json: Json = False) -> None:
    """Show what an environment is made from and how far it is.

    \b
    Example:
      outlive environment show web
    """
    from outlive.cli.render import clean, clean_line, json_text, when

    with open_client() as client:
        found = client.environments.get(name)
    if json:
        say_json(found.to_json())
        return
    rows = [
        ("name", clean_line(found.name)),
        ("state", found.state),
        ("reason", clean(found.reason) if found.reason else None),
        ("warm", found.warm),
        ("checkpoint", found.checkpoint),
        ("changed", when(found.changed_at)),
        ("digest", clean_line(found.digest)),
        ("definition", json_text(found.definition)),
    ]
    print("\n".join(f"{label:<12}{value}" for label, value in rows if value is not None), flush=True)


@environment_app.command()
def log(name: Name, json: Json = False) -> None:
    """Show what the build of an environment said, as far as it is.

    \b
    Example:
      outlive environment log web
    """
    from outlive.cli.render import clean

    with open_client() as client:
        said = client.environments.log(name).decode(errors="replace")
    if json:
        say_json({"log": said})
    else:
        print(clean(said), end="", flush=True)


def _show(said: bytes) -> None:
    from outlive.cli.render import clean

    print(clean(said.decode(errors="replace")), end="", file=sys.stderr, flush=True)
