"""`outlive race` and `outlive choose`: the same prompt to several models or agents, side by side; one is kept."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.base import InvalidError, NotFoundError, OutliveError
from outlive.cli.asking import open_client, say, say_json
from outlive.cli.exit import DONE, FAILED, INTERRUPTED
from outlive.cli.output import Json

if TYPE_CHECKING:
    from outlive.client import Client, ContestantFacts, RaceFacts
    from outlive.client.races import Race

_WIDTH = 100  # of a table that is not for a terminal
_CHANGES_WITHIN_S = 60.0
# What is there that was not when the race began: committed or not. The machine's own index is not touched.
_CHANGES = """
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || exit 3
index=$(mktemp)
cp "$(git rev-parse --git-path index)" "$index" 2>/dev/null || rm -f "$index"
export GIT_INDEX_FILE="$index"
git add -A >/dev/null 2>&1
since=$(git rev-parse -q --verify "HEAD@{$OUTLIVE_SINCE}" 2>/dev/null || git hash-object -t tree /dev/null)
git diff --cached --shortstat "$since"
rm -f "$index"
"""


def add_commands(app: typer.Typer) -> None:
    app.command("race")(race)
    app.command("choose")(choose)


def race(
    conversation: Annotated[str, typer.Argument(metavar="C", help="Id of the conversation (conv_...).")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to do; - reads it from standard input.")],
    model: Annotated[
        list[str] | None, typer.Option("--model", help="A contestant: the conversation's agent with this model.")
    ] = None,
    agent: Annotated[list[str] | None, typer.Option("--agent", help="A contestant: this agent.")] = None,
    choose: Annotated[
        int | None, typer.Option("--choose", metavar="N", min=1, help="Keep the N-th when all have ended.")
    ] = None,
    json: Json = False,
) -> int:
    """Give the same prompt to 2 to 8 models or agents, each in a fork of the conversation on a copy of its machine, and
    show what they came to side by side. Contestants are numbered as given, models first.

    Exits with 0 if one of them is done, with 1 if none is. Ctrl-C detaches: the race goes on.

    \b
    Examples:
      outlive race conv_0198... "Make the tests pass" --model anthropic:claude-sonnet-4-5 --model openai:gpt-5
      outlive race conv_0198... "Review the diff" --agent strict --agent kind --choose 1
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    contestants = [{"model": each} for each in model or []] + [{"agent": each} for each in agent or []]
    if choose is not None and choose > len(contestants):
        raise InvalidError("cli.usage", f"There are {len(contestants)} contestants; --choose {choose} is none of them.")
    with open_client() as client:
        started = client.conversations.get(conversation).race(text, contestants)
        try:
            with _progress(as_json=json) as show:
                started.wait(show)
        except KeyboardInterrupt:
            _say_detached(started.id)
            return INTERRUPTED
        changes = _changes(client, started.facts)
        if choose is not None:
            started.choose(choose)
        _say(started, changes, as_json=json)
        return DONE if any(each.outcome == "done" for each in started.contestants) else FAILED


def choose(
    id: Annotated[str, typer.Argument(metavar="RACE", help="Id of the race (race_...).")],
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=1, help="Which one to keep. Without it: show how they stand.")
    ] = None,
    json: Json = False,
) -> None:
    """Keep one contestant of a race; the others are let go: turns stopped, machines deleted, conversations archived.
    Without a number the race is shown as it stands.

    \b
    Examples:
      outlive choose race_0198...
      outlive choose race_0198... 2
    """
    with open_client() as client:
        found = client.races.get(id)
        changes = {} if found.chosen else _changes(client, found.facts)
        if number is not None:
            found.choose(number)
        _say(found, changes, as_json=json)


def _say(race: "Race", changes: dict[int, str], *, as_json: bool) -> None:
    facts = race.facts
    if as_json:
        contestants = [{**each.to_json(), "changes": changes.get(each.number)} for each in facts.contestants]
        say_json({**facts.to_json(), "contestants": contestants})
        return
    from outlive.cli.race_table import side_by_side

    say(side_by_side(facts, changes, shutil.get_terminal_size((_WIDTH, 24)).columns))
    if facts.chosen is None:
        say(f"\nkeep one with: outlive choose {facts.id} N")
    else:
        kept = next(each for each in facts.contestants if each.conversation == facts.chosen)
        say(f"\nkept {kept.number}: {kept.conversation} on {kept.machine or 'no machine'}; the others are gone")


def _changes(client: "Client", race: "RaceFacts") -> dict[int, str]:
    """What each has changed in its /workspace, where that is a git repository."""
    found = {each.number: _changes_of(client, each, race.created_at or "") for each in race.contestants}
    return {number: said for number, said in found.items() if said is not None}


def _changes_of(client: "Client", contestant: "ContestantFacts", since: str) -> str | None:
    if contestant.machine is None:
        return None
    try:
        machine = client.machines.get(contestant.machine)
        done = machine.exec(_CHANGES, env={"OUTLIVE_SINCE": f"{since[:19]}Z"}, timeout_s=_CHANGES_WITHIN_S)
    except NotFoundError:
        return None
    except OutliveError as error:
        return f"unknown: {error.message}"
    from outlive.cli.clean import clean_line

    return None if done.exit_code != 0 else clean_line(done.stdout) or "none"


@contextmanager
def _progress(*, as_json: bool) -> "Iterator[Callable[[RaceFacts], None]]":
    """How they stand, as it changes: in place on a terminal, else a line for each change on stderr."""
    from outlive.cli.race_table import progress_line
    from outlive.cli.screen import is_terminal

    if as_json:
        yield lambda _: None
    elif is_terminal():
        from rich.live import Live
        from rich.text import Text

        with Live(transient=True) as live:
            yield lambda race: live.update(Text("\n".join(progress_line(each) for each in race.contestants)))
    else:
        shown: dict[int, str] = {}

        def show(race: "RaceFacts") -> None:
            for each in race.contestants:
                line = progress_line(each)
                if shown.get(each.number) != line:
                    shown[each.number] = line
                    print(line, file=sys.stderr, flush=True)

        yield show


def _say_detached(race: str) -> None:
    said = f"\ndetached: the race goes on\nlook and choose with: outlive choose {race}"
    print(said, file=sys.stderr, flush=True)
