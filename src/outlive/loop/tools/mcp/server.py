"""An MCP server as an agent's definition names it: a command for the machine, or an address. Pure."""

import hashlib
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

NAME_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9-]{0,22}[A-Za-z0-9])?$"
SERVERS_LIMIT = 10  # of one agent
_HEADER = r"^[A-Za-z0-9-]{1,100}$"
# Set by the protocol itself, or by HTTP.
_NOT_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "accept-encoding"}
)

Word = Annotated[str, StringConstraints(max_length=4_096, pattern=r"^[^\x00]*$")]
HeaderName = Annotated[str, StringConstraints(pattern=_HEADER)]
HeaderValue = Annotated[str, StringConstraints(max_length=4_096, pattern=r"^[\x20-\x7e]*$")]
Variable = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class McpServer(BaseModel):
    """`command` runs in the machine, for each call anew; `url` is asked from outside, if the settings allow its host.
    Headers and variables are part of the definition, and so for everybody to read who may read that."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=NAME_PATTERN)
    command: tuple[Word, ...] | None = Field(None, min_length=1, max_length=100)
    env: dict[Variable, Word] = Field({}, max_length=50)
    url: str | None = Field(None, max_length=2_000)
    headers: dict[HeaderName, HeaderValue] = Field({}, max_length=20)
    timeout_s: float = Field(120.0, gt=0, le=3_600)  # of one call

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        try:
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("is no http or https address")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ValueError("holds a name, a password or a fragment; put credentials into headers")
        return url

    @field_validator("headers")
    @classmethod
    def _are_the_servers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if name.lower() in _NOT_HEADERS or name.lower().startswith("mcp-"):
                raise ValueError(f"{name} is not for a definition to set")
        return headers

    @model_validator(mode="after")
    def _is_one_kind(self) -> "McpServer":
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.command is not None and (self.headers or not self.command[0]):
            raise ValueError("a command names a program, and has no headers")
        if self.url is not None and self.env:
            raise ValueError("an address has no variables; env goes with a command")
        return self

    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
