"""The shapes of the API about agents: what may be sent, and what is answered. As in `shapes`."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from outlive.api.shapes import Metadata, Name
from outlive.loop.agents import INSTRUCTIONS_LIMIT, NAME_PATTERN, Agent, AgentDefinition, AgentRegistry
from outlive.loop.compacting import CompactionRules
from outlive.loop.models.fallbacks import FALLBACKS_LIMIT
from outlive.loop.tools.mcp.server import NAME_PATTERN as MCP_NAME_PATTERN
from outlive.loop.tools.mcp.server import SERVERS_LIMIT, McpServer


class NewMcpServer(BaseModel):
    """An MCP server: a command that runs in the machine, or an address."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, StringConstraints(pattern=MCP_NAME_PATTERN)]
    command: Annotated[list[str] | None, Field(min_length=1, max_length=100)] = None
    env: dict[str, str] = {}
    url: Annotated[str | None, StringConstraints(max_length=2_000)] = None
    headers: dict[str, str] = {}
    timeout_s: Annotated[float, Field(gt=0, le=3_600, strict=False)] = 120.0


class NewAgent(BaseModel):
    """Who answers, as in its TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
    model: Annotated[Name, Field(description="provider:name")]
    instructions: Annotated[str, StringConstraints(min_length=1, max_length=INSTRUCTIONS_LIMIT)]
    tools: Annotated[list[Name], Field(max_length=100, description="Names of tools that it may use.")]
    mcp: Annotated[list[NewMcpServer], Field(max_length=SERVERS_LIMIT, description="MCP servers that it may use.")] = []
    environment: Annotated[Name | None, Field(description="Of its machines, where a conversation names none.")] = None
    budget: Metadata | None = None
    policy: Metadata | None = None
    fallbacks: Annotated[
        list[Name], Field(max_length=FALLBACKS_LIMIT, description="Models that stand in for `model` when it is away.")
    ] = []
    compaction: Annotated[
        CompactionRules | None, Field(strict=False, description="When what is old is summarised; as built in without.")
    ] = None

    @model_validator(mode="after")
    def _is_a_definition(self) -> "NewAgent":
        try:
            self.to_definition()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
        return self

    def to_definition(self) -> AgentDefinition:
        return AgentDefinition.model_validate(self.model_dump())


class AgentsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str | None, StringConstraints(pattern=NAME_PATTERN)] = None


class AgentShown(BaseModel):
    name: str
    version: int
    model: str
    instructions: str
    tools: list[str]
    mcp: list[McpServer]
    environment: str | None
    budget: dict[str, Any] | None
    policy: dict[str, Any] | None
    fallbacks: list[str]
    compaction: CompactionRules | None
    builtin: bool
    created_by: str
    created_at: str


class AgentPage(BaseModel):
    items: list[AgentShown]
    next: str | None


def agent_json(agents: AgentRegistry, agent: Agent) -> dict[str, Any]:
    return {
        **agent.definition.model_dump(mode="json"),
        "version": agent.version,
        "model": agents.model_of(agent),
        "builtin": agent.is_builtin,
        "created_by": agent.created_by,
        "created_at": agent.created_at,
    }
