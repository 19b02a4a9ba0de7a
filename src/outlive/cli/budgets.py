"""`outlive budget`: what a conversation may use and has used, and giving it more."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from outlive.base import InvalidError
from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.output import Json


class Scope(StrEnum):
    TURN = "turn"
    CONVERSATION = "conversation"
    BOTH = "both"


def add_commands(app: typer.Typer) -> None:
    app.command("budget")(budget)


def budget(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    tokens: Annotated[int | None, typer.Option("--tokens", help="Add so many tokens.")] = None,
    usd: Annotated[float | None, typer.Option("--usd", help="Add so many US dollars.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Add so many steps.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Add so many seconds.")] = None,
    scope: Annotated[Scope, typer.Option("--for", help="Whose limits.")] = Scope.BOTH,
    json: Json = False,
) -> None:
    """Show what a conversation may use and has used; with an amount, give it more. Only what is limited can be raised.

    \b
    Examples:
      outlive budget conv_0198...
      outlive budget conv_0198... --usd 5
      outlive budget conv_0198... --steps 20 --for turn
    """
    given = {"tokens": tokens, "usd": usd, "steps": steps, "seconds": seconds}
    added = {name: value for name, value in given.items() if value is not None}
    for name, value in added.items():
        if not 0 < value < math.inf:
            raise InvalidError("cli.usage", f"--{name} is how much is added: more than 0, not {value:g}.")
    with open_client() as client:
        found = client.conversations.get(conversation)
        shown = found.raise_budget(scope=scope.value, **added) if added else found.budget()
    if json:
        say_json(shown)
    else:
        say(_table(shown))


def _table(shown: Mapping[str, Any]) -> str:
    rows = []
    for scope, limits in shown["limits"].items():
        for name, used in shown["used"][scope].items():
            if name in limits or (used and name != "unpriced"):
                limit = f"{limits[name]:,g}" if name in limits else "no limit"
                rows.append((scope, name, f"{used:,.6g}", limit))
    question = shown.get("question")
    asked = f"\nA person is asked for more: outlive approve {question['approval']}" if question else ""
    return table(("OF", "WHAT", "USED", "LIMIT"), rows) + asked
