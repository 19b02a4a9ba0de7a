"""What a tool returned or raised, as it is told: bounded, whatever it is. Pure."""

import traceback
from pathlib import PurePath
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, to_json

from outlive.base import InvalidError
from outlive.toolkit.declared import ToolError

ANSWER_LIMIT = 16 * 1024 * 1024  # bytes of one result; what is more is cut, and said
_MESSAGE_LIMIT = 4_000  # characters of an error
_FRAMES = 5  # of its traceback


class Answer(NamedTuple):
    content: bytes
    is_text: bool


def answer_of(value: Any) -> Answer:
    """Text and bytes as they are, nothing as nothing, all else as JSON. `tool.result` (invalid) for what is none."""
    if value is None:
        return Answer(b"", is_text=True)
    if isinstance(value, str):
        return _bounded(value.encode("utf-8", "replace"), is_text=True)
    if isinstance(value, bytes | bytearray | memoryview):
        content = bytes(value)
        return _bounded(content, is_text=_is_text(content))
    try:
        return _bounded(to_json(value), is_text=True)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        what = (str(error).splitlines() or ["?"])[0][:300]
        raise InvalidError(
            "tool.result", f"It ran, and returned a {type(value).__name__}, which cannot be told as JSON: {what}"
        ) from None


def tell_error(error: BaseException) -> str:
    """What a tool raised, with the end of its traceback: names of files, never their folders or their lines."""
    if isinstance(error, ToolError):
        return error.message[:_MESSAGE_LIMIT]
    said = f"{type(error).__name__}: {error}"[:_MESSAGE_LIMIT]
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return "\n".join([said, *(f"  at {PurePath(each.filename).name}:{each.lineno} in {each.name}" for each in frames)])


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _bounded(content: bytes, *, is_text: bool) -> Answer:
    if len(content) <= ANSWER_LIMIT:
        return Answer(content, is_text)
    cut = content[:ANSWER_LIMIT]
    if is_text:
        note = f"\n[{len(content) - ANSWER_LIMIT:,} bytes more were returned than are kept, and are gone.]"
        cut = cut.decode("utf-8", "ignore").encode() + note.encode()
    return Answer(cut, is_text)
