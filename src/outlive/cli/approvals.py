"""`outlive approvals`, `approve` and `deny`: what agents ask people, and the answers."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli.asking import open_client, say, say_json, table
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import ApprovalFacts

QUESTION_SHOWN = 100  # characters


class State(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="Id of the approval (appr_...).")]
Comment = Annotated[str | None, typer.Option("--comment", help="Told to the agent; of a question, the answer.")]

Amount = Annotated[
    float | None, typer.Option("--amount", min=0, help="Of more budget: how much is added. Without, what is asked for.")
]


def add_commands(app: typer.Typer) -> None:
    app.command("approvals")(approvals)
    app.command("approve")(approve)
    app.command("deny")(deny)


def approvals(
    state: Annotated[State, typer.Option("--state", help="Which ones.")] = State.PENDING,
    all: Annotated[bool, typer.Option("--all", help="In whatever state.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, at most.")] = 50,
    json: Json = False,
) -> None:
    """List what people are asked, newest first.

    \b
    Examples:
      outlive approvals
      outlive approvals --state denied
    """
    with open_client() as client:
        found = client.approvals.list(state=None if all else state.value, limit=limit)
    if json:
        say_json({"items": [each.to_json() for each in found]})
    elif not found:
        say("Nobody is asked anything." if state is State.PENDING and not all else "There are none.")
    else:
        say(_table(found))


def _table(found: "Sequence[ApprovalFacts]") -> str:
    from outlive.cli.clean import clean_line
    from outlive.cli.render import when
    from outlive.cli.screen import is_terminal

    rows = []
    for each in found:
        question = clean_line(each.question)
        # A pipe gets all of it: whoever decides has to be able to see on what.
        if len(question) > QUESTION_SHOWN and is_terminal():
            question = f"{question[: QUESTION_SHOWN - 1]}…"
        rows.append((each.id, each.state, when(each.expires_at), each.conversation, question))
    return table(("ID", "STATE", "EXPIRES", "CONVERSATION", "QUESTION"), rows)


def approve(id: ApprovalId, comment: Comment = None, amount: Amount = None, json: Json = False) -> None:
    """Say yes: the tool is run, the turn goes on.

    \b
    Examples:
      outlive approve appr_0198...
      outlive approve appr_0198... --comment "Use port 8080"
      outlive approve appr_0198... --amount 5
    """
    with open_client() as client:
        _told(client.approvals.approve(id, comment, amount=amount), json)


def deny(id: ApprovalId, comment: Comment = None, json: Json = False) -> None:
    """Say no: the tool is not run, and the agent is told why.

    \b
    Example:
      outlive deny appr_0198... --comment "Not on a Friday"
    """
    with open_client() as client:
        _told(client.approvals.deny(id, comment), json)


def _told(decided: "ApprovalFacts", as_json: bool) -> None:
    if as_json:
        say_json(decided.to_json())
    else:
        from outlive.cli.clean import to_the_letter
        from outlive.cli.screen import is_terminal

        what = f"\n  {to_the_letter(decided.question)}" if is_terminal() else ""
        say(f"{decided.state}: {decided.id}{what}")
