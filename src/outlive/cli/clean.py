"""Text of others, made harmless for a terminal. Pure."""

import json
import re

# C0 and C1 controls, bidirectional overrides and isolates, lone surrogates (no encoding can write them).
_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n?|\u2028|\u2029|\x85")
_SHORT = 200


def clean(text: str) -> str:
    """The text without what a terminal would obey."""
    return _HARMFUL.sub("", _LINE_END.sub("\n", text))


def clean_line(text: object) -> str:
    """The same, on one line."""
    return " ".join(clean(str(text)).split())


def to_the_letter(text: object) -> str:
    """The same, for what somebody decides on: its blanks count too."""
    return clean(str(text)).replace("\n", " ").replace("\t", " ")


def json_text(document: object) -> str:
    """One line of JSON, pure ASCII: harmless in a terminal, writable in every encoding."""
    return json.dumps(document, ensure_ascii=True, default=dict)


def short(value: object) -> str:
    """Any value on one line that a person takes in at a glance."""
    text = clean_line(value if isinstance(value, str) else json_text(value))
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
