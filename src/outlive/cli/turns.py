"""`outlive run`, `interrupt`, `pause`, `resume`, `model`: give an agent something to do and watch it; stop it; let it
wait; let another model go on with it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlive.base import InvalidError, OutliveError
from outlive.cli.asking import open_client, say, say_json
from outlive.cli.exit import DONE, FAILED, INTERRUPTED
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import Client

TITLE_LENGTH = 80
_NOT_TAKEN = frozenset({"invalid", "not_found", "denied"})  # of any other error the message may be there


def add_commands(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("interrupt")(interrupt)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("model")(change_model)


def run(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to do; - reads it from standard input.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Agent that does it. Default: coder.")] = None,
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo",
            metavar="PATH|URL",
            help="Repository to work on. Of a path: what is checked out, with what is not committed.",
        ),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="C", help="Go on in this conversation.")
    ] = None,
    environment: Annotated[str | None, typer.Option("--environment", help="Environment of its machine.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model that answers (provider:name).")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow: print the conversation's id.")] = False,
    json: Json = False,
) -> int:
    """Give an agent something to do, and follow it until its turn ends. Ctrl-C detaches: the turn goes on.

    Exits with 0 when the turn is done, with 1 when it ended in another way. With --json each event is one line.

    \b
    Examples:
      outlive run "Make the failing test pass" --repo .
      outlive run "Now write a changelog entry" --conversation conv_0198...
      C=$(outlive run "Find out why the build is slow" --repo . --detach)
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise InvalidError("cli.usage", "The prompt is empty: say what is to be done.")
    if conversation is not None and (agent or repo or environment):
        raise InvalidError(
            "cli.usage", "A conversation keeps its agent, repository and environment: leave those options out."
        )
    ask = _leave if detach else _follow
    if conversation:
        return ask(conversation, text, model, json)
    made = _begin(text, agent=agent, repo=repo, environment=environment)
    with _archived_if_refused(made):
        return ask(made, text, model, json)


@contextmanager
def _archived_if_refused(made: str) -> Iterator[None]:
    """Nothing is left of a conversation whose first message was not taken."""
    try:
        yield
    except OutliveError as error:
        if error.kind in _NOT_TAKEN:
            with suppress(OutliveError), open_client() as client:
                found = client.conversations.get(made)
                if found.head == 1:  # nothing was said in it: what was refused came before that
                    found.archive()
        raise


def _leave(conversation: str, text: str, model: str | None, as_json: bool) -> int:
    with open_client() as client:
        sent = client.conversations.get(conversation).send(text, model=model)
    facts = {"message_id": sent.message_id, "turn_id": sent.turn_id, "seq": sent.seq}
    if as_json:
        say_json({"conversation": conversation, **facts})
    else:
        say(conversation)
    return DONE


def _follow(conversation: str, text: str, model: str | None, as_json: bool) -> int:
    from outlive.cli.running import run_to_screen

    outcome = run_to_screen(conversation, text, model=model, as_json=as_json)
    if outcome is not None and not as_json and sys.stderr.isatty():  # for a person who looks on
        print(f'go on with: outlive send {conversation} "..."', file=sys.stderr, flush=True)
    return INTERRUPTED if outcome is None else DONE if outcome == "done" else FAILED


def _begin(text: str, *, agent: str | None, repo: str | None, environment: str | None) -> str:
    from outlive.cli.clean import clean_line

    title = clean_line(text)
    title = title if len(title) <= TITLE_LENGTH else f"{title[: TITLE_LENGTH - 1]}…"
    with open_client() as client:
        if environment:  # the server takes one that is built later; whoever runs something needs it now
            client.environments.get(environment)
        metadata = {"repo": _repo(client, repo)} if repo is not None else None
        return client.conversations.create(agent=agent, title=title, environment=environment, metadata=metadata).id


def _repo(client: "Client", repo: str) -> dict[str, Any]:
    """What the conversation's metadata says of its repository."""
    from outlive.cli.repository import is_address, make_bundle

    if is_address(repo):
        return {"url": repo}
    bundle = make_bundle(Path(repo))
    if not bundle.has_history:
        print("The repository goes without its history: it is too large, or not all here.", file=sys.stderr, flush=True)
    return {"blob": client.blobs.put(bundle.content)}


def interrupt(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    reason: Annotated[str | None, typer.Option("--reason", help="Said in the log, and to the agent.")] = None,
    json: Json = False,
) -> None:
    """Stop the turn that is open, at once. It has ended when the command returns.

    \b
    Example:
      outlive interrupt conv_0198... --reason "wrong branch"
    """
    with open_client() as client:
        found = client.conversations.get(conversation).interrupt(reason)
    if json:
        say_json(found.facts.to_json())
    else:
        say(f"interrupted: {found.id}")


def pause(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    reason: Annotated[str | None, typer.Option("--reason", help="Said in the log.")] = None,
    json: Json = False,
) -> None:
    """Let the turn that is open wait from its next step on. What has begun is finished.

    \b
    Example:
      outlive pause conv_0198... --reason "let me look first"
    """
    with open_client() as client:
        found = client.conversations.get(conversation).pause(reason)
    if json:
        say_json(found.facts.to_json())
    else:
        say(f"paused: {found.id}")


def resume(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    json: Json = False,
) -> None:
    """Let a turn that was paused go on where it was.

    \b
    Example:
      outlive resume conv_0198...
    """
    with open_client() as client:
        found = client.conversations.get(conversation).resume()
    if json:
        say_json(found.facts.to_json())
    else:
        say(f"resumed: {found.id}")


def change_model(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model that answers from now on (provider:name).")],
    whole: Annotated[bool, typer.Option("--conversation", help="In later turns too, not in this one alone.")] = False,
    json: Json = False,
) -> None:
    """Let another model go on with the turn that is open, from its next step on. What has begun is finished.

    \b
    Examples:
      outlive model conv_0198... openai:gpt-5.5
      outlive model conv_0198... anthropic:claude-opus-4-6 --conversation
    """
    scope = "conversation" if whole else "turn"
    with open_client() as client:
        found = client.conversations.get(conversation).change_model(model, scope=scope)
    if json:
        say_json(found.facts.to_json())
    else:
        say(f"{model} is asked from now on: {found.id}")
