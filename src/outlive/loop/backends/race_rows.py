"""Races as they are stored: the statements and the shape of a row, the same in every database. Pure."""

from typing import Any

from pydantic import ValidationError

from outlive.base import BrokenError, NotFoundError, RaceId
from outlive.loop.races.race import Race

INSERT = "INSERT INTO races (id, is_settled, document) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
ONE = "SELECT document FROM races WHERE id = ?"
UPDATE = "UPDATE races SET is_settled = ?, document = ? WHERE id = ?"
UNSETTLED = "SELECT document FROM races WHERE NOT is_settled ORDER BY id LIMIT ?"


def numbered(sql: str) -> str:
    first, *others = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))


def to_row(race: Race) -> tuple[Any, ...]:
    """The values of `INSERT`."""
    return (race.id, race.is_settled, race.model_dump_json())


def to_race(document: str | None, id: RaceId) -> Race:
    if document is None:
        raise NotFoundError("race.unknown", f"There is no race {id!r}.")
    try:
        return Race.model_validate_json(document)
    except ValidationError as error:
        raise BrokenError("race.damaged", "A stored race cannot be read; was it written by a newer version?") from error
