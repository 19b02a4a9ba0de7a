"""What the API is made of, and where a handler finds it. No globals: everything hangs on the app."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast

import anyio
from starlette.requests import Request

from outlive.api.frames import FrameCache
from outlive.api.metrics import Metrics
from outlive.base import Clock, UnavailableError
from outlive.conversation.approvals import Approvals
from outlive.conversation.artifacts import Artifacts
from outlive.conversation.conversations import Conversations
from outlive.governance import Idempotency, Principal, Principals
from outlive.loop.agents import AgentRegistry
from outlive.loop.budgets.raising import Budgets
from outlive.loop.client import LoopClient
from outlive.loop.races.race import RaceRecords
from outlive.machine.caller import MachineCaller
from outlive.machine.egress_log import EgressRecords
from outlive.machine.environments import Environments
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import Records
from outlive.machine.terminal.door import TerminalDoor
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.screen import Screens

FOLLOWERS_LIMIT = 10_000

Readiness = Callable[[], Awaitable[Mapping[str, bool]]]


@dataclass(frozen=True, slots=True)
class TerminalParts:
    """The terminals of those machines."""

    records: TerminalRecords
    door: TerminalDoor
    recordings: Recordings
    screens: Screens


@dataclass(frozen=True, slots=True)
class MachineParts:
    """The machines behind an API."""

    keeper: MachineKeeper
    caller: MachineCaller
    records: Records
    environments: Environments
    read_output: Callable[[str], Awaitable[bytes]]
    """The whole of what a command printed, by the name that its effect has for it."""
    egress: EgressRecords
    terminals: TerminalParts | None = None
    """None: these machines have no terminals."""


@dataclass(frozen=True, slots=True)
class ApiParts:
    """Made by wiring, owned by the process: the app opens and closes nothing of it."""

    conversations: Conversations
    approvals: Approvals
    budgets: Budgets
    artifacts: Artifacts
    principals: Principals
    idempotency: Idempotency
    clock: Clock
    allowed_hosts: frozenset[str]
    """What a `Host` header may say: `name` (with any port) or `name:port`, in lower case."""
    is_loopback: bool
    """Whether only this host can connect: then health, metrics and the OpenAPI document need no token."""
    readiness: Readiness
    """Which of the parts behind us are there. Called by `/readyz`."""
    closing: anyio.Event
    """Set when the process is about to end: streams end, so that their clients go elsewhere."""
    machines: MachineParts | None = None
    """None: this API has no machines."""
    agents: AgentRegistry | None = None
    """None: nobody answers here, and any name of an agent is taken."""
    loop: LoopClient | None = None
    """None: nothing answers here; messages are only recorded."""
    races: RaceRecords | None = None
    """None: there are no races here."""
    followers_limit: int = FOLLOWERS_LIMIT
    stall_s: float = 60.0
    """How long a follower may take nothing of what waits for it, before its stream ends."""
    ping_s: float = 15.0
    body_silence_s: float = 15.0
    body_deadline_s: float = 300.0
    recheck_s: float = 10.0
    """How often it is asked whether the token of a request that lasts is still somebody's."""


class ApiState:
    """The parts, and what one app counts and remembers."""

    def __init__(self, parts: ApiParts) -> None:
        self.parts = parts
        self.metrics = Metrics()
        self.frames = FrameCache(self.metrics, parts.clock)
        self.followers = 0


def state_of(request: Request) -> ApiState:
    return cast("ApiState", request.app.state.outlive)


def parts_of(request: Request) -> ApiParts:
    return state_of(request).parts


def agents_of(request: Request) -> AgentRegistry:
    """The agents, or a refusal that says that there are none."""
    agents = parts_of(request).agents
    if agents is None:
        raise UnavailableError("agents.off", "This server has no agents: it was set up without.")
    return agents


def machines_of(request: Request) -> MachineParts:
    """The machines, or a refusal that says that there are none."""
    machines = parts_of(request).machines
    if machines is None:
        raise UnavailableError(
            "machines.off", "This server has no machines: it was set up without. `outlive doctor` says what is missing."
        )
    return machines


def terminals_of(request: Request) -> TerminalParts:
    terminals = machines_of(request).terminals
    if terminals is None:
        raise UnavailableError("terminals.off", "This server has no terminals: it was set up without.")
    return terminals


def principal_of(request: Request) -> Principal:
    """Who asks. The gate has put it there; a route without it is a bug."""
    return cast("Principal", request.scope["outlive.principal"])
