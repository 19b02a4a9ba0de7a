"""`outlive compact`, `pin`, `unpin`: have what is old summarised for the model, and say what stays word for word."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.clean import short
from outlive.cli.output import Json


def add_commands(app: typer.Typer) -> None:
    app.command("compact")(compact)
    app.command("pin")(pin)
    app.command("unpin")(unpin)


def compact(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="So many of the newest parts stay.")] = None,
    json: Json = False,
) -> None:
    """Have what is old in a conversation summarised for the model, before its next step. The log keeps all of it.

    \b
    Examples:
      outlive compact conv_0198...
      outlive compact conv_0198... --keep 4
    """
    with open_client() as client:
        turn = client.conversations.get(conversation).compact(keep)
    if json:
        say_json({"conversation": conversation, "turn": turn})
    else:
        say("asked for: " + ("before the next step" if turn else "the next turn begins with it"))


def pin(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="Id of the message (msg_...); without, what is pinned.")
    ] = None,
    json: Json = False,
) -> None:
    """Have models told a message word for word, however long the conversation gets; without one, show what is pinned.

    \b
    Example:
      outlive pin conv_0198... msg_0198...
    """
    with open_client() as client:
        found = client.conversations.get(conversation)
        _say_pins(found.pins() if message is None else found.pin(message), json)


def unpin(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of the message (msg_...).")],
    json: Json = False,
) -> None:
    """Let a message that was pinned be summarised like any other.

    \b
    Example:
      outlive unpin conv_0198... msg_0198...
    """
    with open_client() as client:
        _say_pins(client.conversations.get(conversation).unpin(message), json)


def _say_pins(pins: Sequence[Mapping[str, Any]], json: bool) -> None:
    if json:
        say_json({"items": [*pins]})
    else:
        rows = [(each["message"], str(each["seq"]), short(each["text"])) for each in pins]
        say(table(("MESSAGE", "SEQ", "TEXT"), rows))
