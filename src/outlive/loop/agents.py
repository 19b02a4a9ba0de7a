"""Agents: who answers. A definition is data (instructions, model, tools, environment); applying it makes a version.

    name = "reviewer"
    model = "anthropic:claude-sonnet-5-5"
    instructions = "Review the newest commit. Change nothing."
    tools = ["shell", "read_file", "search"]
    environment = "web"
    fallbacks = ["openai:gpt-5.5"]

Rule 1: a version never changes, and versions of a name are dense from 1. The newest one counts; what it was before can
        be applied again, as a newer version.
Rule 2: a turn is bound to one version when it begins. So the built-in agent is a version too, made when it is first
        asked for: a later release that changes it makes another.
Rule 3: an agent that somebody applied takes precedence over a built-in one of the same name, from then on.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from outlive.base import Clock, InvalidError, NotFoundError, SystemClock, to_text
from outlive.loop.binding import Persona
from outlive.loop.budgets.amounts import Budget, budget_of
from outlive.loop.budgets.room import unknown_price
from outlive.loop.compacting import RULES, CompactionRules
from outlive.loop.holds import HOLD_LIMIT_S
from outlive.loop.models.fallbacks import FALLBACKS_LIMIT
from outlive.loop.models.prices import price_of
from outlive.loop.models.registry import parse_model
from outlive.loop.state import Binding
from outlive.loop.tools.facts import RUNS
from outlive.loop.tools.mcp.listing import server_of
from outlive.loop.tools.mcp.server import SERVERS_LIMIT, McpServer
from outlive.loop.tools.own.offers import ToolOffers

DEFAULT_AGENT = "coder"
INSTRUCTIONS_LIMIT = 256 * 1024  # characters
OBJECT_LIMIT = 32 * 1024  # bytes of a budget or a policy, as JSON
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"
_NAME = re.compile(NAME_PATTERN)
_BUILDER = "outlive"  # who made a version that is built in
_REMEMBERED = 256  # versions
_ASK_ANYWAY = frozenset({"wait", "ask_human"})  # they do nothing but wait


class AgentPolicy(BaseModel):
    """What an agent may not do by itself. `approve`: the tools that are run only if a person approves of exactly that
    call; `approve_expires_s`: how long people have for an answer, to its own questions too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approve: tuple[str, ...] = Field((), max_length=100)
    approve_expires_s: float | None = Field(None, ge=1, le=HOLD_LIMIT_S)


class AgentDefinition(BaseModel):
    """What an agent is. Without a `model` it is the default one of the process that runs its turn: only what is built
    in goes without."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    model: str | None = Field(max_length=200)
    instructions: str = Field(min_length=1, max_length=INSTRUCTIONS_LIMIT)
    tools: tuple[str, ...] = Field(max_length=100)
    mcp: tuple[McpServer, ...] = Field((), max_length=SERVERS_LIMIT)
    environment: str | None = Field(None, min_length=1, max_length=200)
    budget: dict[str, JsonValue] | None = None
    policy: dict[str, JsonValue] | None = None
    fallbacks: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field((), max_length=FALLBACKS_LIMIT)
    compaction: CompactionRules | None = None

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("a name has 1 to 64 of a-z, 0-9 and '-', and begins and ends with a letter or digit")
        return name

    @field_validator("tools")
    @classmethod
    def _are_different(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(tools)) < len(tools):
            raise ValueError("a tool is named twice")
        return tools

    @field_validator("mcp")
    @classmethod
    def _have_names_of_their_own(cls, servers: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
        if len({each.name for each in servers}) < len(servers):
            raise ValueError("two servers have the same name")
        return servers

    @field_validator("fallbacks")
    @classmethod
    def _are_different_models(cls, fallbacks: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(fallbacks)) < len(fallbacks):
            raise ValueError("a model is named twice")
        return fallbacks

    @field_validator("budget", "policy")
    @classmethod
    def _is_small(cls, given: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if given is not None and len(json.dumps(given)) > OBJECT_LIMIT:
            raise ValueError(f"is larger than {OBJECT_LIMIT} bytes")
        return given

    def digest(self) -> str:
        """Of all of it: the same definition has the same digest, however it was written down."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


class Agent(NamedTuple):
    """One version of an agent."""

    definition: AgentDefinition
    version: int
    is_builtin: bool
    created_by: str
    created_at: str

    @property
    def name(self) -> str:
        return self.definition.name


class AgentRecords(Protocol):
    """Versions of agents. Nothing in it is ever changed or deleted."""

    async def put(self, definition: AgentDefinition, *, is_builtin: bool, by: str, at: str) -> Agent:
        """The next version of its name; the newest one, if that is the same (`follows`)."""
        ...

    async def newest(self, name: str) -> Agent | None: ...

    async def get(self, name: str, version: int) -> Agent | None: ...

    async def list(self) -> Sequence[Agent]:
        """The newest version of each name, by name."""
        ...


async def check_known(definition: AgentDefinition, offers: ToolOffers | None = None) -> None:
    """Refuse what nothing here could run. Asked when it is applied, not when it is read: what was once applied stays
    readable, whatever a later release, or a user's worker, still has."""
    budget = budget_of(definition.budget)
    for model in (definition.model, *definition.fallbacks):
        if model is not None:
            parse_model(model)
            _check_price(budget, model)
    if definition.model in definition.fallbacks:
        raise InvalidError("agent.fallbacks", f"{definition.model!r} cannot stand in for itself: name other fallbacks.")
    policy = policy_of(definition)
    servers = {server.name for server in definition.mcp}
    own = {*definition.tools, *(name for name in policy.approve if server_of(name) in servers)}
    foreign = [name for name in policy.approve if name not in own or name in _ASK_ANYWAY]
    if foreign:
        raise InvalidError(
            "agent.policy", f"policy.approve names {foreign[0][:100]!r}: name tools of this agent that do something."
        )
    others = [name for name in definition.tools if name not in RUNS]
    offered = await offers.find(others) if offers is not None and others else {}
    unknown = [name for name in others if name not in offered]
    if unknown:
        raise InvalidError(
            "agent.unknown_tool",
            f"There is no tool {unknown[0][:100]!r}; there are: {', '.join(RUNS)}. Tools of your own are offered by a "
            "worker: outlive worker --tools MODULE.",
        )


def _check_price(budget: Budget | None, model: str) -> None:
    if budget is not None and budget.has_money and not price_of(model):
        raise unknown_price(model)


def policy_of(definition: AgentDefinition, *, is_strict: bool = True) -> AgentPolicy:
    """As it was written down. `agent.policy` (invalid) if it says what nobody here knows: who misspells a rule must not
    go without it. Not strict: of one that was applied when a policy was only kept, what is known today."""
    given = definition.policy or {}
    if not is_strict:
        given = {name: value for name, value in given.items() if name in AgentPolicy.model_fields}
    try:
        return AgentPolicy.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("policy", *(str(part) for part in first["loc"])))
        raise InvalidError("agent.policy", f"{where}: {first['msg']}.") from None


def _kept_budget(definition: AgentDefinition) -> Budget | None:
    """None for one of a shape that was only kept when it was applied: nothing acted on it."""
    try:
        return budget_of(definition.budget)
    except InvalidError:
        return None


def follows(newest: Agent | None, definition: AgentDefinition, *, is_builtin: bool) -> int | None:
    """The version that a definition makes; None if the newest one stays. Pure."""
    if newest is None:
        return 1
    if is_builtin and not newest.is_builtin:
        return None
    is_same = newest.is_builtin == is_builtin and newest.definition.digest() == definition.digest()
    return None if is_same else newest.version + 1


CODER = AgentDefinition(
    name=DEFAULT_AGENT,
    model=None,
    instructions="""\
You are a software engineer with a machine of your own: a Linux computer whose working directory is /workspace, where \
the project is, if there is one. Nobody sits beside you: find out what you need to know yourself, with your tools.

Look before you change anything. Make the smallest change that does what was asked, in the style of the code that is \
there. Run what shows that it works, and read what it says. When something fails, find the cause before you try again.

If a result says that its outcome is unknown, look at what is there before you do it again. If the machine was rolled \
back, what you did since is gone: do it again where it is still needed.

When you have changed a project, publish the diff. Say at the end, briefly, what you did and how you know that it \
works; if you could not do it, say that and why.""",
    tools=tuple(RUNS),
)


class AgentRegistry:
    """Agents as the API and the loop ask for them: an `Agents` of `binding.py`. `model`: of agents that name none."""

    def __init__(
        self,
        records: AgentRecords,
        model: str,
        clock: Clock | None = None,
        built_in: Sequence[AgentDefinition] = (CODER,),
        offers: ToolOffers | None = None,
    ) -> None:
        self._records = records
        self._model = model
        self._clock = clock or SystemClock()
        self._offers = offers
        self._built_in = {each.name: each for each in built_in}
        self._remembered: OrderedDict[tuple[str, int], Persona] = OrderedDict()

    async def apply(self, definition: AgentDefinition, *, by: str) -> Agent:
        """Make it the newest version of its name. The same again changes nothing."""
        await check_known(definition, self._offers)
        return await self._records.put(definition, is_builtin=False, by=by, at=to_text(self._clock.now()))

    async def get(self, name: str) -> Agent:
        """The newest version."""
        found = await self._records.newest(name)
        own = self._built_in.get(name)
        if own is not None and follows(found, own, is_builtin=True) is not None:
            found = await self._records.put(own, is_builtin=True, by=_BUILDER, at=to_text(self._clock.now()))
        if found is None:
            raise unknown_agent(name)
        return found

    async def version(self, name: str, version: int) -> Agent:
        found = await self._records.get(name, version)
        if found is None and version == 1:
            found = await self.get(name)  # built in, and never asked for
        if found is None or found.version != version:
            raise unknown_agent(name, version)
        return found

    async def list(self) -> Sequence[Agent]:
        """The newest version of each, by name."""
        for name in self._built_in:
            await self.get(name)
        return await self._records.list()

    def model_of(self, agent: Agent) -> str:
        return agent.definition.model or self._model

    async def bind(self, agent: str | None, model: str | None) -> Binding:
        """The newest version of `agent` (None: the default one) and the model that it uses, unless `model` is asked
        for."""
        found = await self.get(agent or DEFAULT_AGENT)
        return Binding(found.name, found.version, model or self.model_of(found))

    async def persona(self, bound: Binding) -> Persona:
        """The version of the agent that the turn was bound to."""
        key = (bound.agent, bound.version)
        persona = self._remembered.get(key)
        if persona is None:
            found = (await self.version(*key)).definition
            policy = policy_of(found, is_strict=False)
            persona = Persona(
                found.instructions,
                found.tools,
                found.environment,
                approve=frozenset(policy.approve),
                approve_expires_s=policy.approve_expires_s,
                mcp=found.mcp,
                budget=_kept_budget(found),
                fallbacks=found.fallbacks,
                compaction=found.compaction or RULES,
            )
            self._remembered[key] = persona
            while len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return persona


def unknown_agent(name: str, version: int | None = None) -> NotFoundError:
    what = f"version {version} of agent" if version is not None else "agent"
    return NotFoundError("agent.unknown", f"There is no {what} {name[:64]!r}. `outlive agents` lists them.")
