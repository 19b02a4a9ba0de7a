"""`outlive principals` and `outlive principal ...`: who may ask and with which rights, over the client."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import PrincipalFacts

Whom = Annotated[str, typer.Argument(metavar="NAME|ID", help="Name or id (prin_...) of the principal.")]


class Kind(StrEnum):
    PERSON = "person"
    AGENT = "agent"
    DEVICE = "device"
    SERVICE = "service"


class Right(StrEnum):
    OBSERVE = "observe"
    TYPE = "type"
    TAKE = "take"
    ADMIN = "admin"
    APPROVE = "approve"


principal_app = typer.Typer(
    name="principal",
    help="One principal: somebody or something that may ask, with a token of its own.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def add_commands(app: typer.Typer) -> None:
    app.command("principals")(principals)
    app.add_typer(principal_app)


def principals(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """List principals, newest first. Needs the right admin.

    \b
    Example:
      outlive principals
    """
    with open_client() as client:
        found = client.principals.list(limit=limit)
    if json:
        say_json({"items": [each.to_json() for each in found]})
    else:
        say(_table(found))


def _table(found: "Sequence[PrincipalFacts]") -> str:
    from outlive.cli.render import clean_line, when

    headings = ("ID", "KIND", "RIGHTS", "CREATED", "NAME")
    rows = [(each.id, each.kind, ",".join(each.rights), when(each.created_at), clean_line(each.name)) for each in found]
    return table(headings, rows)


@principal_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called: 1 to 64 printable characters.")],
    kind: Annotated[Kind, typer.Option("--kind", help="What it is.")],
    right: Annotated[
        list[Right] | None,
        typer.Option("--right", help="What it may do, once for each. Default: observe, type; a person also take."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a principal and print its token, which is told once. Needs the right admin.

    \b
    Examples:
      outlive principal create anna --kind person
      outlive principal create wallboard --kind device --right observe
      OUTLIVE_TOKEN=$(outlive principal create ci --kind service --json | jq -r .token)
    """
    with open_client() as client:
        made = client.principals.create(
            name, kind.value, rights=None if right is None else [each.value for each in right]
        )
        url = client.url
    if json:
        say_json(made.to_json())
        return
    hint = "The token is shown once; nobody can look it up later. To act in its name:"
    print(f"{_told(made)}\n\n{hint}\n\n  export OUTLIVE_URL={url} OUTLIVE_TOKEN={made.token}", flush=True)


@principal_app.command()
def show(
    principal: Annotated[
        str | None, typer.Argument(metavar="[NAME|ID]", help="Name or id (prin_...). Default: whose token is used.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a principal and its rights; without a name, yourself.

    \b
    Examples:
      outlive principal show
      outlive principal show anna --json
    """
    with open_client() as client:
        found = client.principals.me() if principal is None else client.principals.get(principal)
    if json:
        say_json(found.to_json())
    else:
        print(_told(found), flush=True)


@principal_app.command()
def delete(principal: Whom, json: Json = False) -> None:
    """Delete a principal. Its token stops working at once, within seconds where there are several servers; what it did
    keeps its id. Needs the right admin.

    \b
    Example:
      outlive principal delete anna
    """
    with open_client() as client:
        found = client.principals.get(principal)
        client.principals.delete(found.id)
        gone = client.principals.get(found.id)
    if json:
        say_json(gone.to_json())
    else:
        print(f"deleted: {gone.id}", flush=True)


def _told(principal: "PrincipalFacts") -> str:
    from outlive.cli.render import clean_line, when

    rows = [
        ("id", principal.id),
        ("name", clean_line(principal.name)),
        ("kind", principal.kind),
        ("rights", ", ".join(principal.rights)),
        ("created", when(principal.created_at)),
        ("deleted", when(principal.deleted_at) if principal.deleted_at else None),
    ]
    return "\n".join(f"{label:<12}{value}" for label, value in rows if value is not None)
