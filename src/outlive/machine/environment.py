"""What an environment is: the recipe from which machines are made. Pure.

    name = "web"
    base = "debian"                      # or host, dir:/path, tar:/path, oci:/path
    install = ["apt-get update", "apt-get install -y nodejs"]   # run once, as root, when it is built
    start = ["python3 -m http.server 8000"]                      # services: run with every machine
    ports = [8000]
    egress = ["mirror.example:80"]
    user = "agent"                       # or root
    read_only = false
    warm = 2                             # machines kept ready
    [env]
    LANG = "C.UTF-8"
    [limits]
    memory_mib = 2048

The digest of what it is made from is its key: the same definition is built once, whatever it is called.
"""

import hashlib
import json
import re
import tomllib
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from outlive.base import InvalidError
from outlive.governance.egress import parse_rules
from outlive.machine.spec import Limits, MachineSpec, User

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEFAULT_NAME = "default"
STEP_LIMIT = 64
COMMAND_BYTES = 64 * 1024


class EnvironmentDefinition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    base: str = "debian"
    install: tuple[str, ...] = Field((), max_length=STEP_LIMIT)
    start: tuple[str, ...] = Field((), max_length=STEP_LIMIT)
    env: dict[str, str] = {}
    limits: Limits = Limits()
    ports: tuple[int, ...] = ()
    egress: tuple[str, ...] = ()
    user: User = "agent"
    read_only: bool = False
    warm: int = Field(0, ge=0, le=64)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                "a name has 1 to 64 of a-z, 0-9, '.', '_', '-', and begins and ends with a letter or digit"
            )
        if _DIGEST.fullmatch(name):
            raise ValueError("a name does not look like a digest")
        return name

    @field_validator("install", "start")
    @classmethod
    def _are_commands(cls, commands: tuple[str, ...]) -> tuple[str, ...]:
        if any(not text.strip() or "\0" in text or len(text.encode()) > COMMAND_BYTES for text in commands):
            raise ValueError(f"a command is not empty, holds no NUL and has at most {COMMAND_BYTES} bytes")
        return commands

    @field_validator("egress")
    @classmethod
    def _are_rules(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        try:
            parse_rules(rules)
        except InvalidError as error:
            raise ValueError(error.message) from None
        return rules

    @field_validator("env")
    @classmethod
    def _are_variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} is no name of an environment variable, or its value holds NUL")
        return env

    @field_validator("ports")
    @classmethod
    def _are_ports(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= port <= 65_535 for port in ports):
            raise ValueError("a port is between 1 and 65535")
        return ports

    @property
    def needs_build(self) -> bool:
        """Whether machines start from a checkpoint of it instead of from its base."""
        return bool(self.install or self.start)

    def to_spec(self) -> MachineSpec:
        return MachineSpec(
            base=self.base,
            limits=self.limits,
            egress=self.egress,
            env=self.env,
            user=self.user,
            start=self.start,
            ports=self.ports,
            is_read_only=self.read_only,
        )

    def digest(self) -> str:
        """Of all that decides what a machine of it looks like: not its name, not how many are kept warm."""
        made_from = self.model_dump(mode="json", exclude={"name", "warm"})
        return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]


def parse_environment(text: str) -> EnvironmentDefinition:
    """From TOML, with errors that name the line or the field."""
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidError("environment.toml", f"This is not TOML: {error}.") from None
    try:
        return EnvironmentDefinition.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "environment"
        raise InvalidError("environment.invalid", f"{place}: {first['msg']}.") from None
