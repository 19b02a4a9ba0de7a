"""The items of a batch, from the text of its file. Pure.

A file has JSON lines (`{"id"?, "prompt" | "text", ...}`), a CSV table, or one prompt on each line.

Rule: an item is what it asks for. Its key is made of that alone, not of its place: lines may be added, removed and
      moved, and an item that was edited is another item. The same thing asked for twice is two items.
"""

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlive.base import InvalidError

ITEMS_LIMIT = 100_000
_PROMPTS = ("prompt", "text")
_ASKED = ("agent", "model", "environment", "title")
_TITLE_LENGTH = 80

Form = Literal["json", "csv", "lines"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to ask for. `name`: the id that the file gives it, else the number of its line."""

    name: str | int
    key: str
    text: str
    asked: Mapping[str, Any]  # agent, model, environment, title, metadata: what the item says of its own

    @property
    def title(self) -> str:
        said = " ".join(str(self.asked.get("title") or self.text).split())
        said = "".join(character for character in said if character.isprintable())
        return said if len(said) <= _TITLE_LENGTH else f"{said[: _TITLE_LENGTH - 1]}…"


def form_of(name: str, content: str) -> Form:
    """What kind of file this is: by its name, else by its first character."""
    suffix = name.rpartition(".")[2].lower()
    if suffix == "csv":
        return "csv"
    if suffix in ("jsonl", "ndjson", "json") or content.lstrip("\ufeff \t\r\n").startswith("{"):
        return "json"
    return "lines"


def read_items(name: str, content: str, column: str | None = None) -> list[Item]:
    """All items, in order. `column`: which field or column is the prompt, if it is not `prompt` or `text`."""
    content = content.removeprefix("\ufeff")
    form = form_of(name, content)
    rows = {"json": _json_rows, "csv": _csv_rows, "lines": _line_rows}[form](content)
    prompts = (column,) if column is not None and form != "lines" else _PROMPTS
    items: list[Item] = []
    seen = Counter[str]()
    lines: dict[str, int] = {}
    for line, row in rows:
        item = _item(line, row, prompts, seen)
        if isinstance(item.name, str) and lines.setdefault(item.name, line) != line:
            raise _wrong(line, f"the id {item.name!r} is on line {lines[item.name]} too: ids are unique.")
        items.append(item)
        if len(items) > ITEMS_LIMIT:
            raise InvalidError("batch.too_many", f"A batch has at most {ITEMS_LIMIT:,} items: split the file.")
    if not items:
        raise InvalidError("batch.empty", "There is no item in this file.")
    return items


def _item(line: int, row: Mapping[str, Any], prompts: Iterable[str], seen: Counter[str]) -> Item:
    text = next((row[name] for name in prompts if row.get(name) not in (None, "")), None)
    if not isinstance(text, str) or not text.strip():
        raise _wrong(line, f"it has no text under {' or '.join(map(repr, prompts))}.")
    id, metadata = row.get("id"), row.get("metadata")
    if id is not None and (not isinstance(id, str | int) or isinstance(id, bool)):
        raise _wrong(line, "its `id` is neither text nor a whole number.")
    if metadata is not None and not isinstance(metadata, dict):
        raise _wrong(line, "its `metadata` is no object.")
    asked: dict[str, Any] = {name: row[name] for name in _ASKED if row.get(name) not in (None, "")}
    if wrong := [name for name, value in asked.items() if not isinstance(value, str)]:
        raise _wrong(line, f"its `{wrong[0]}` is no text.")
    if metadata:
        asked["metadata"] = metadata
    has_id = id is not None and id != ""
    whole = json.dumps({"id": str(id) if has_id else None, "text": text, **asked}, sort_keys=True)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    seen[digest] += 1
    key = digest if seen[digest] == 1 else f"{digest}.{seen[digest]}"
    return Item(str(id) if has_id else line, key, text, asked)


def _json_rows(content: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for line, text in enumerate(content.split("\n"), 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            raise _wrong(line, "it is no JSON.") from None
        if isinstance(row, str):
            row = {"prompt": row}
        if not isinstance(row, dict):
            raise _wrong(line, "it is no JSON object.")
        yield line, row


def _csv_rows(content: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
    try:
        for row in reader:
            if any(row.values()):
                yield reader.line_num, {name: value for name, value in row.items() if isinstance(name, str)}
    except csv.Error as error:
        raise _wrong(reader.line_num, f"it is no CSV: {error}.") from None


def _line_rows(content: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for line, text in enumerate(content.split("\n"), 1):
        if text.strip():
            yield line, {"prompt": text.strip()}


def _wrong(line: int, why: str) -> InvalidError:
    return InvalidError("batch.line", f"Line {line} of the file cannot be an item: {why}", line=line)
