"""What happened in a terminal, for people and for files: accounts, output, recordings."""

import sys
from signal import Signals
from typing import Any

from outlive.base import InvalidError
from outlive.cli.harmless import Harmless
from outlive.cli.render import clean, clean_line


def account_text(told: dict[str, Any]) -> str:
    """For people: what happened, then what was printed."""
    events: list[str] = []
    for each in _dicts(told, "leases"):
        holder = each.get("lease")
        name = holder.get("name") if isinstance(holder, dict) else "nobody"
        events.append(clean_line(f"{each.get('at')}  {name} types ({each.get('how')})"))
    events += [
        clean_line(f"{each.get('at')}  {each.get('name')} typed: {each.get('text')}") for each in _dicts(told, "typed")
    ]
    events += [
        clean_line(f"{each.get('at')}  {each.get('name')} sent {_signal(each.get('signal'))}")
        for each in _dicts(told, "signals")
    ]
    events += [
        clean_line(f"{each.get('at')}  typed before byte {each.get('to')} and not read: given up")
        for each in _dicts(told, "given_up")
    ]
    # Every line begins with its time, in one format: sorted, they are in the order in which it happened.
    lines = [f"from {clean_line(told.get('from'))} to {clean_line(told.get('to'))}", *sorted(events)]
    for each in _dicts(told, "commands"):
        code = each.get("exit_code")
        lines.append(clean_line(f"command ({'runs' if code is None else f'exit {code}'}): {each.get('command_line')}"))
    return "\n".join([*lines, "", clean(str(told.get("text") or ""))])


def _signal(number: object) -> str:
    try:
        return Signals(number).name if isinstance(number, int) else "a signal"
    except ValueError:
        return f"signal {number}"


def _dicts(told: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = told.get(name)
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def write_output(data: bytes) -> None:
    """To a pipe as it is; for a person harmless."""
    if sys.stdout.isatty():
        filter = Harmless(shows_titles=False)
        data = filter.feed(data) + filter.reset()
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_file(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise InvalidError("cli.usage", f"Cannot write {path!r}: {error.strerror}.") from error
