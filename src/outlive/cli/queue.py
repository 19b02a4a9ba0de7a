"""`outlive queue list`, `order`, `withdraw`: the messages that wait for an answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import FollowUp

_TEXT_WIDTH = 60

Id = Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")]


def add_commands(app: typer.Typer) -> None:
    queue = typer.Typer(
        name="queue", help="Messages that wait for an answer: list, order, withdraw.", rich_markup_mode=None
    )
    queue.command("list")(list_)
    queue.command("order")(order)
    queue.command("withdraw")(withdraw)
    app.add_typer(queue)


def list_(conversation: Id, json: Json = False) -> None:
    """List the messages that wait, in the order in which the model will be told.

    \b
    Example:
      outlive queue list conv_0198...
    """
    with open_client() as client:
        _show(client.conversations.get(conversation).queue(), as_json=json)


def order(
    conversation: Id,
    messages: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="All that wait (msg_...), each once.")],
    json: Json = False,
) -> None:
    """Put the messages that wait in another order.

    \b
    Example:
      outlive queue order conv_0198... msg_0198b... msg_0198a...
    """
    with open_client() as client:
        _show(client.conversations.get(conversation).order_queue(messages), as_json=json)


def withdraw(
    conversation: Id,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of the message (msg_...).")],
    json: Json = False,
) -> None:
    """Take a message back that waits: the model is never told. Fails if it was taken already.

    \b
    Example:
      outlive queue withdraw conv_0198... msg_0198...
    """
    with open_client() as client:
        _show(client.conversations.get(conversation).withdraw(message), as_json=json)


def _show(queue: "Sequence[FollowUp]", *, as_json: bool) -> None:
    if as_json:
        say_json({"items": [each.to_json() for each in queue]})
        return
    from outlive.cli.clean import clean_line
    from outlive.cli.render import when

    if not queue:
        say("No message waits.")
        return
    rows = [(each.id, when(each.at), each.when, clean_line(each.actor), _short(each.text)) for each in queue]
    say(table(("ID", "SENT", "WHEN", "FROM", "TEXT"), rows))


def _short(text: str) -> str:
    from outlive.cli.clean import clean_line

    line = clean_line(text)
    return line if len(line) <= _TEXT_WIDTH else line[: _TEXT_WIDTH - 1] + "…"
