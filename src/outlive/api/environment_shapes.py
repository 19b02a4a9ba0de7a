"""The shapes of the API about environments: what may be sent, and what is answered. As in `shapes`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from outlive.base import to_text
from outlive.machine.environment import STEP_LIMIT, EnvironmentDefinition
from outlive.machine.spec import Limits, User
from outlive.machine.status import Environment

_Command = Annotated[str, StringConstraints(min_length=1, max_length=64 * 1024)]


class NewLimits(Limits):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NewEnvironment(BaseModel):
    """What machines are made from, as in its TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$")]
    base: Annotated[str, Field(description="debian, debian:PACKAGE,..., host, dir:/path, tar:/path or oci:/path.")] = (
        "debian"
    )
    install: Annotated[
        list[_Command], Field(max_length=STEP_LIMIT, description="Run once, as root, when it is built.")
    ] = []
    start: Annotated[list[_Command], Field(max_length=STEP_LIMIT, description="Services of every machine of it.")] = []
    env: dict[str, str] = {}
    limits: NewLimits = NewLimits()
    ports: Annotated[
        list[Annotated[int, Field(ge=1, le=65_535)]], Field(description="Where its services listen when they are up.")
    ] = []
    egress: Annotated[list[str], Field(description="host:port that its machines may reach; nothing else.")] = []
    user: User = "agent"
    read_only: bool = False
    warm: Annotated[int, Field(ge=0, le=64, description="Machines that are kept ready.")] = 0

    @model_validator(mode="after")
    def _is_a_definition(self) -> "NewEnvironment":
        try:
            self.to_definition()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
        return self

    def to_definition(self) -> EnvironmentDefinition:
        return EnvironmentDefinition.model_validate(self.model_dump())


class LogQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[int, Field(ge=0, le=2**53, description="Bytes of it that you have already.")] = 0


class EnvironmentShown(BaseModel):
    name: str
    digest: str
    state: Literal["building", "ready", "failed"]
    reason: str | None
    definition: dict[str, Any]
    checkpoint: str | None
    warm: int
    tries: int
    has_log: bool
    created_at: str
    changed_at: str


class EnvironmentPage(BaseModel):
    items: list[EnvironmentShown]
    next: str | None


def environment_json(found: Environment) -> dict[str, Any]:
    return {
        "name": found.name,
        "digest": found.digest,
        "state": found.state,
        "reason": found.reason,
        "definition": {**found.definition, "name": found.name, "warm": found.warm},
        "checkpoint": found.checkpoint,
        "warm": found.warm,
        "tries": found.tries,
        "has_log": found.log_key is not None,
        "created_at": to_text(found.created_at),
        "changed_at": to_text(found.changed_at),
    }
