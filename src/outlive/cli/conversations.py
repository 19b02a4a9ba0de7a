"""`outlive list`, `new`, `show`, `send`, `follow`, `fork`, `archive`: conversations, over the client.

What was said goes through `render.py` before it reaches a terminal. With `--json` the documents of the API are printed
as they came, in pure ASCII.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import Client

PATIENCE_S = 3.0  # a person waits at a prompt: say soon that nobody answers

Id = Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")]


def add_commands(app: typer.Typer) -> None:
    app.command("new")(new)
    app.command("list")(list_)
    app.command("show")(show)
    app.command("send")(send)
    app.command("follow")(follow)
    app.command("fork")(fork)
    app.command("archive")(archive)


@contextmanager
def _client() -> "Iterator[Client]":
    from outlive.client import Client

    with Client(patience_s=PATIENCE_S) as client:
        yield client


def _say(text: str) -> None:
    print(text, flush=True)


def _say_json(document: object) -> None:
    from outlive.cli.render import json_text

    _say(json_text(document))


def new(
    title: Annotated[str | None, typer.Option("--title", help="What it is about.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Agent that answers.")] = None,
    json: Json = False,
) -> None:
    """Make a conversation and print its id.

    \b
    Examples:
      outlive new --title "Failing test"
      C=$(outlive new) && outlive send $C "Hello"
    """
    with _client() as client:
        made = client.conversations.create(title=title, agent=agent)
    if json:
        _say_json(made.facts.to_json())
    else:
        _say(made.id)


def list_(
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Only those with all these words in title or text.")
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those that are archived instead.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """List conversations, newest first.

    \b
    Examples:
      outlive list
      outlive list --query "parser bug" --limit 5
      outlive list --archived --json
    """
    with _client() as client:
        if query:
            found = client.conversations.search(query, limit=limit, archived=archived)
        else:
            found = client.conversations.list(limit=limit, archived=archived)
    facts = [conversation.facts for conversation in found]
    if json:
        _say_json({"items": [each.to_json() for each in facts]})
        return
    from outlive.cli.screen import print_table

    print_table(facts)


def show(conversation: Id, json: Json = False) -> None:
    """Show a conversation: what was said and done, retries folded.

    \b
    Examples:
      outlive show conv_0198...
      outlive show conv_0198... --json | jq -r '.transcript.items[].text'
    """
    with _client() as client:
        found = client.conversations.get(conversation)
        transcript = found.transcript()
    if json:
        shown = {"head": transcript.head, "position": transcript.position, "items": list(transcript.items)}
        _say_json({**found.facts.to_json(), "transcript": shown})
        return
    from outlive.cli.screen import print_conversation

    print_conversation(found.facts, transcript)


def send(
    conversation: Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option("--model", help="Model that should answer (provider:name).")] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Stop the step that is under way, so that it is read at once.")
    ] = False,
    json: Json = False,
) -> None:
    """Send a message. It is recorded, once, when the command returns. A turn that runs reads it at its next step.

    \b
    Examples:
      outlive send conv_0198... "Now run the tests"
      outlive send conv_0198... "Not that branch!" --now
      git diff | outlive send conv_0198... -
    """
    said = sys.stdin.read() if text == "-" else text
    with _client() as client:
        sent = client.conversations.get(conversation).send(said, model=model, when="now" if now else "next")
    if json:
        _say_json({"message_id": sent.message_id, "turn_id": sent.turn_id, "seq": sent.seq})
    else:
        _say(f"sent: {sent.message_id} (event {sent.seq}, turn {sent.turn_id})")


def fork(
    conversation: Id,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="Share everything up to this event. Default: all.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model of the fork (provider:name).")] = None,
    machine: Annotated[
        bool, typer.Option("--machine", help="With a copy of its machine, from the checkpoint nearest to that event.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a conversation that shares the past of this one, and print its id.

    \b
    Examples:
      outlive fork conv_0198...
      outlive fork conv_0198... --at 12
      outlive fork conv_0198... --machine
    """
    with _client() as client:
        made = client.conversations.get(conversation).fork(at, model=model, machine=machine)
    if json:
        _say_json(made.facts.to_json())
    else:
        _say(made.id)


def archive(conversation: Id, json: Json = False) -> None:
    """Archive a conversation: hidden from lists, still readable, no new messages.

    \b
    Example:
      outlive archive conv_0198...
    """
    with _client() as client:
        found = client.conversations.get(conversation)
        found.archive()
    if json:
        _say_json(found.facts.to_json())
    else:
        _say(f"archived: {found.id}")


def follow(
    conversation: Id,
    after: Annotated[
        str | None, typer.Option("--after", metavar="POS", help="Go on right behind this position. Default: the start.")
    ] = None,
    no_deltas: Annotated[bool, typer.Option("--no-deltas", help="Leave out live output: only what is final.")] = False,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="Leave when all was shown and no turn is open (a message that nobody answered keeps its turn open).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show a conversation from a position on, and then live. Reconnects by itself. Ctrl-C leaves; nothing stops by it.

    With --json each event is one line; its `position` is what --after takes.

    \b
    Examples:
      outlive follow conv_0198...
      outlive follow conv_0198... --after 1-9f3c21ab-17
      outlive follow conv_0198... --no-deltas --until-idle --json
    """
    from outlive.cli.following import follow_to_screen

    follow_to_screen(conversation, after, deltas=not no_deltas, until_idle=until_idle, as_json=json)
