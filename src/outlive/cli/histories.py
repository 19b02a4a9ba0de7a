"""`outlive histories export`: what Temporal remembers of turns, as files that a changed workflow can be tried on."""

from pathlib import Path
from typing import Annotated

import typer

from outlive.base import ConversationId, NotFoundError, is_id
from outlive.cli.output import Json, print_json


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(
        help="What Temporal remembers of turns: references, never what was said.", rich_markup_mode=None
    )
    group.command("export")(export)
    group.callback()(_group)  # a group with one command is still a group
    app.add_typer(group, name="histories")


def _group() -> None:
    pass


def export(
    conversation: Annotated[
        str | None, typer.Argument(metavar="[C]", help="Id of a conversation (conv_...). Default: of all.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to; it is made.")] = Path(
        "histories"
    ),
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many runs at most, newest first.")] = 100,
    json: Json = False,
) -> None:
    """Write the histories of turns as files, one for each run of a turn's workflow.

    Kept in tests/replay/histories, they say whether a changed workflow still carries on the turns that are open when it
    is deployed. They name ids, steps and tools; what was said is in the log alone.

    \b
    Examples:
      outlive histories export conv_0198... --out /tmp/histories
      outlive histories export --limit 20
    """
    import anyio

    from outlive.wiring.histories import export
    from outlive.wiring.settings import read_settings

    if conversation is not None and not is_id(conversation, "conv"):
        raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}: ids are `conv_...`.")
    wanted = ConversationId(conversation) if conversation is not None else None
    found = anyio.run(export, read_settings(), out, wanted, limit)
    if not found and wanted is not None:
        raise NotFoundError("histories.none", f"Temporal remembers no turn of {conversation!r}.")
    if json:
        print_json({"items": [each._asdict() for each in found]})
        return
    for each in found:
        print(f"{each.path}  {each.events} events  {each.size:,} bytes  {each.state}")
    if not found:
        print("Temporal remembers no turns.")
