"""Offered tools as they are stored: the statements and the shape of a row, the same in every database. Pure."""

from typing import Any

from pydantic import ValidationError

from outlive.base import BrokenError
from outlive.loop.tools.own.offers import Offered
from outlive.loop.tools.own.wire import OfferedTool

_COLUMNS = "queue, version, definition, offered_at, seen_at"
ALL = f"SELECT {_COLUMNS} FROM tool_offers ORDER BY name"  # noqa: S608
ONE = f"SELECT {_COLUMNS} FROM tool_offers WHERE name = ?"  # noqa: S608
DELETE_QUEUE = "DELETE FROM tool_offers WHERE queue = ?"
DELETE_ONE = "DELETE FROM tool_offers WHERE name = ?"
INSERT = f"INSERT INTO tool_offers (name, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


def to_row(offered: Offered) -> tuple[Any, ...]:
    """The values of `INSERT`."""
    definition = offered.tool.model_dump_json()
    return (offered.name, offered.queue, offered.version, definition, offered.offered_at, offered.seen_at)


def to_offered(row: Any) -> Offered:
    queue, version, definition, offered_at, seen_at = row
    try:
        return Offered(OfferedTool.model_validate_json(definition), queue, version, offered_at, seen_at)
    except ValidationError as error:
        raise BrokenError("tool.damaged", "A stored tool cannot be read; was it written by a newer version?") from error
