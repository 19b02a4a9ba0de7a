"""Versions of agents as they are stored: the statements and the shape of a row, the same in every database. Pure."""

from typing import Any

from pydantic import ValidationError

from outlive.base import BrokenError
from outlive.loop.agents import Agent, AgentDefinition

_COLUMNS = "version, is_builtin, definition, created_by, created_at"
NEWEST = f"SELECT {_COLUMNS} FROM agents WHERE name = ? ORDER BY version DESC LIMIT 1"  # noqa: S608
ONE = f"SELECT {_COLUMNS} FROM agents WHERE name = ? AND version = ?"  # noqa: S608
ALL = (
    f"SELECT {_COLUMNS} FROM agents a"  # noqa: S608
    " WHERE version = (SELECT max(version) FROM agents b WHERE b.name = a.name) ORDER BY name"
)
INSERT = f"INSERT INTO agents (name, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


def to_row(agent: Agent) -> tuple[Any, ...]:
    """The values of `INSERT`."""
    definition = agent.definition.model_dump_json()
    return (agent.name, agent.version, agent.is_builtin, definition, agent.created_by, agent.created_at)


def to_agent(row: Any) -> Agent:
    version, is_builtin, definition, created_by, created_at = row
    try:
        return Agent(AgentDefinition.model_validate_json(definition), version, bool(is_builtin), created_by, created_at)
    except ValidationError as error:
        raise BrokenError(
            "agent.damaged", "A stored agent cannot be read; was it written by a newer version?"
        ) from error
