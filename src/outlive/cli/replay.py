"""`outlive replay` and `outlive compare`: a turn again on another model, and two turns side by side."""

import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlive.cli.asking import open_client, say, say_json
from outlive.cli.exit import DONE, FAILED, INTERRUPTED
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import Conversation

WIDTH = 120  # in a pipe

Id = Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")]


def add_commands(app: typer.Typer) -> None:
    app.command("replay")(replay)
    app.command("compare")(compare)


def replay(
    conversation: Id,
    model: Annotated[str, typer.Option("--model", help="Model that answers this time (provider:name).")],
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="SEQ", min=1, help="An event of the turn. Default: the last that ended."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Really do what the recording has no result for, in a new machine.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow: print the id of the replay.")] = False,
    json: Json = False,
) -> int:
    """Run a turn that is over again on another model, follow it, and show both side by side.

    The model is really asked. Its calls are answered from the recording, as long as they are those of the recording;
    where they part, that is said, and nothing is done unless --execute. Exits with 0 when the replay is done.

    \b
    Examples:
      outlive replay conv_0198... --model openai:gpt-5
      outlive replay conv_0198... --model anthropic:claude-haiku-4-5 --at 12
    """
    with open_client() as client:
        made = client.conversations.get(conversation).replay(model, at, execute=execute)
        position = _beginning(made)
    if detach:
        if json:
            say_json(made.facts.to_json())
        else:
            say(made.id)
        return DONE
    return _followed(made, position, json)


def compare(
    conversation: Id,
    other: Annotated[
        str | None,
        typer.Argument(metavar="OTHER", help="Compare with its newest turn. Default: what C is a replay of."),
    ] = None,
    json: Json = False,
) -> None:
    """Show two turns side by side: a replay beside its recording, or the newest turns of two conversations.

    \b
    Examples:
      outlive compare conv_0199...
      outlive compare conv_0199... conv_0198...
    """
    with open_client() as client:
        _say_compared(client.conversations.get(conversation).comparison(other), json)


def _beginning(made: "Conversation") -> str | None:
    """The position behind what the replay shares with its recording."""
    shared = int((made.parent or {}).get("at", 0))
    return next((event.position for event in made.events(shared)), None)


def _followed(made: "Conversation", position: str | None, as_json: bool) -> int:
    if as_json:
        with open_client() as client:
            _wait(client.conversations.get(made.id), position, made.turn)
    else:
        from outlive.cli.following import follow_to_screen

        follow_to_screen(made.id, position, deltas=True, until_idle=True, as_json=False)
    with open_client() as client:
        found = client.conversations.get(made.id)
        if found.turn is not None:
            say(f"It goes on; later: outlive compare {made.id}")
            return INTERRUPTED
        compared = found.comparison()
    if not as_json:
        say("")
    _say_compared(compared, as_json)
    return DONE if compared["right"]["outcome"] == "done" else FAILED


def _wait(conversation: "Conversation", position: str | None, turn: str | None) -> None:
    if turn is None:
        return
    for event in conversation.follow(position, deltas=False):
        if event.type == "turn.finished" and event.turn == turn:
            return


def _say_compared(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(found)
        return
    from outlive.cli.compared import compared_text
    from outlive.cli.screen import is_terminal

    say(compared_text(found, shutil.get_terminal_size().columns if is_terminal() else WIDTH))
