"""The machine of a conversation, on demand: made when the first tool needs it, kept between turns, and what happens to
it said in the log.

Rule 1: which machine is the conversation's is in its log (`machine.attached`). The first is made by an operation that
        the conversation's id gives; one that is lost for good, or was deleted, is followed by one that its id gives.
        One that a person made for the conversation comes first, and what was made beside it meanwhile is let go; so is
        what was made for a turn that is over in a conversation that is.
Rule 2: what happened to the machine is read from its own history and appended once, by the number it has there: so it
        does not matter who notices first, nor how often.
Rule 3: what this process remembers of a machine it could find again; it only saves looking.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import anyio

from outlive.base import (
    Clock,
    ConflictError,
    ConversationId,
    EffectId,
    FencedError,
    MachineId,
    NotFoundError,
    OperationId,
    OutliveError,
    PrincipalId,
    TurnId,
    UnavailableError,
    to_text,
)
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import EventData, MachineAttached, NewEvent
from outlive.conversation.log import HAS_MACHINE, Append, Conversation
from outlive.loop.attaching import Attacher
from outlive.loop.machine_forks import MachineForks, Source, attached_key, machine_of
from outlive.loop.spare_machines import after, first_of
from outlive.loop.tools.checkout import Repo, checkout_id, ensure_checkout, repo_of, tell_failure
from outlive.loop.tools.notices import notice_of
from outlive.loop.tools.port import ToolContext
from outlive.loop.tools.reach import ReadOutput, ToolMachine
from outlive.loop.unnamed_machines import let_go_unnamed
from outlive.machine.caller import MachineCaller
from outlive.machine.environment import DEFAULT_NAME
from outlive.machine.environments import Environments
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import Records
from outlive.machine.status import Effect, Machine
from outlive.machine.terminal.door import TerminalDoor

BUILD_WITHIN_S = 900.0  # that an environment may take until it is built
MACHINES_LIMIT = 20  # that were lost or deleted one after the other
_BUILD_LOOK_S = 5.0
_REMEMBERED = 1_024
_PAGE = 500


class _Place(NamedTuple):
    """Whose log it is that something is said in."""

    conversation: ConversationId
    turn: TurnId


@dataclass(slots=True)
class _Seen:
    """What this process has seen of a machine."""

    events: int = 0  # of its history, that are said in the log
    checkout: int = 1  # the one that counts
    is_checked_out: bool = False


class ConversationMachines:
    def __init__(
        self,
        conversations: Conversations,
        environments: Environments,
        keeper: MachineKeeper,
        caller: MachineCaller,
        terminals: TerminalDoor | None,
        records: Records,
        read_output: ReadOutput,
        clock: Clock,
    ) -> None:
        self._conversations = conversations
        self._environments = environments
        self._keeper = keeper
        self._caller = caller
        self._terminals = terminals
        self._records = records
        self._read_output = read_output
        self._clock = clock
        self._forks = MachineForks(conversations, keeper, records, clock)
        self._attacher = Attacher(conversations, keeper, records)
        self._seen: OrderedDict[tuple[ConversationId, MachineId], _Seen] = OrderedDict()

    async def ensure(self, context: ToolContext) -> ToolMachine:
        """The conversation's machine, awake, with its repository, and all that happened to it said in the log. For a
        call that was begun in one that is gone: that one, and its journal says what came of it."""
        conversation = await self._conversations.get(context.conversation)
        repo = repo_of(conversation.metadata)
        machine = await self._current(conversation, context)
        before = context.machines - {machine.id if machine is not None else ""}
        if (begun := await self._begun(conversation.id, before, context.effect_id)) is not None:
            return begun[0]
        machine = machine or await self._make(conversation, context)
        if machine is None:
            return await self.ensure(context)
        await self._keeper.ensure_awake(machine.id)
        seen = await self._notice(context, machine.id)
        found = self._reach(machine, conversation.id)
        if repo is not None and not seen.is_checked_out:
            if await self._forks.origin_of(machine) is None:  # a copy has what it is a copy of
                await self._check_out(context, found, repo, seen)
            seen.is_checked_out = True
        return found

    async def find(self, conversation: ConversationId) -> ToolMachine | None:
        """Its machine, as it is: neither made nor woken."""
        attached = (await self._conversations.get(conversation)).machine
        if attached is None:
            return None
        return self._reach(await self._records.machines.get(MachineId(attached)), conversation)

    async def forestall(
        self, conversation: ConversationId, effect: EffectId, before: Collection[str] = ()
    ) -> tuple[ToolMachine, Effect] | None:
        """What its machine, or one `before` it, has begun under this id; or, from now on, nothing ever begins under it.
        In this order: who attaches a machine after we looked finds the id used up there."""
        now = self._clock.now()
        await self._records.effects.use_up(effect, at=now)
        if (begun := await self._begun(conversation, before, effect)) is not None:
            return begun
        machine = await self.find(conversation)
        if machine is None:
            return None
        found = await self._records.effects.forestall(machine.id, effect, at=now)
        return None if found is None else (machine, found)

    async def _begun(
        self, conversation: ConversationId, machines: Collection[str], effect: EffectId
    ) -> tuple[ToolMachine, Effect] | None:
        """Which of these machines has begun something under this id."""
        for each in machines:
            machine = await self._records.machines.get(MachineId(each))
            found = await self._records.effects.find(machine.id, effect)
            if found is not None and not found.is_forestalled:
                return self._reach(machine, conversation), found
        return None

    async def notice(self, context: ToolContext) -> None:
        """Say in the log what happened to the conversation's machine since somebody looked."""
        attached = (await self._conversations.get(context.conversation)).machine
        if attached is not None:
            await self._notice(context, MachineId(attached))

    async def rest(self, conversation: ConversationId, turn: TurnId) -> None:
        """Let its machine sleep, and say so in the log: the turn waits, and nothing of it needs one. Not one that a
        person has stopped, or types into: when they are done, its node lets it sleep."""
        found = await self.find(conversation)
        if found is None:
            return
        record = await self._records.machines.get(found.id)
        is_up = record.state == "running" and record.desired == "running"
        is_own = record.conversation == conversation  # a subagent's may be its parent's
        if is_up and is_own and not await self._is_typed_into(found.id):
            await self._keeper.do(found.id, "hibernate")
        await self._notice(_Place(conversation, turn), found.id)

    async def copy(self, machine: MachineId, child: Conversation) -> None:
        """A copy of a machine, as it is now, for a subagent: once, and up."""
        if child.machine is None:
            try:
                made = await self._records.machines.get(machine_of(child.id))
                source = None if made.origin is None else Source(made.id, made.origin)
            except NotFoundError:
                source = None
            if source is None:
                checkpoint = await self._keeper.checkpoint(machine)
                source = Source(machine, checkpoint)
            await self._forks.give_machine(child, source)

    async def _lent_at(self, conversation: ConversationId, machine: MachineId) -> str | None:
        """Since when a subagent has its parent's machine: what happened to it before is not its business."""
        owner = (await self._records.machines.get(machine)).conversation
        return None if owner == conversation else (await self._conversations.get(conversation)).created_at

    async def _is_typed_into(self, machine: MachineId) -> bool:
        terminals = await self._records.terminals.list(machine, include_ended=False)
        return any(each.lease is not None and each.lease.kind == "person" for each in terminals)

    async def save(self, conversation: ConversationId) -> None:
        """A checkpoint of its machine, if that is up and something was begun in it, or has ended, since the last one.
        That of a subagent that is done sleeps, or is let go."""
        found = await self.find(conversation)
        if found is not None and await self._forks.end_with_child(await self._conversations.get(conversation)):
            return
        record = None if found is None else await self._records.machines.get(found.id)
        if record is None or record.state != "running" or record.desired != "running":
            return
        if not await self._is_saved(record):
            await self._keeper.checkpoint(record.id)

    async def _is_saved(self, record: Machine) -> bool:
        """Whether its newest checkpoint holds all that was done in it: also the end of what ran while it was made."""
        saved = None if record.checkpoint is None else await self._records.checkpoints.get(record.checkpoint)
        if await self._records.effects.mark(record.id) > (0 if saved is None else saved.effects_mark):
            return False
        across = () if saved is None else saved.effects_under_way or ()
        found = [await self._records.effects.find(record.id, effect) for effect in across]
        return not any(each is not None and each.is_over for each in found)

    # ── which one ──

    async def _current(self, conversation: Conversation, context: ToolContext) -> Machine | None:
        """The one that the log names, unless it is gone for good: then that is said."""
        if conversation.machine is None:
            return None
        found = await self._records.machines.get(MachineId(conversation.machine))
        if not found.is_gone:
            return found
        await self._notice(context, found.id)
        return None

    async def _make(self, conversation: Conversation, context: ToolContext) -> Machine | None:
        """The next one that is not gone. Those before it were made by nobody else: the way is the same each time.
        None if the conversation was given another meanwhile."""
        last = conversation.machine
        operation = first_of(conversation) if last is None else after(MachineId(last))
        environment = conversation.environment or context.environment or DEFAULT_NAME
        for _ in range(MACHINES_LIMIT):
            try:
                made = await self._create(operation, conversation, environment)
            except OutliveError:
                if (await self._conversations.get(conversation.id)).machine == last:
                    raise
                return None  # whoever gave the other let this one go
            if not made.is_gone:
                break
            operation = after(made.id)
        else:
            raise ConflictError("machine.lost", f"{MACHINES_LIMIT} machines were lost one after the other.")
        # A copy that was made for a fork, and that its log was not told of, has more to say.
        news = await self._forks.news_of(conversation, made)
        try:
            await self._say(context, attached_key(made.id), made.id, *news, instead_of=last)
        except FencedError:  # the next turn may have it, if there ever is one
            await self._attacher.delete_spare(conversation.id)
            raise
        except ConflictError as error:
            if error.code != HAS_MACHINE:
                raise
            await let_go_unnamed(self._keeper, self._records, self._clock, made)
            return None
        return made

    async def _create(self, operation: OperationId, conversation: Conversation, environment: str) -> Machine:
        deadline = anyio.current_time() + BUILD_WITHIN_S
        while True:
            try:
                return await self._environments.create_machine(
                    operation,
                    environment=environment,
                    owner=PrincipalId(conversation.created_by),
                    conversation=conversation.id,
                )
            except UnavailableError as error:
                if error.code != "environment.building" or anyio.current_time() > deadline:
                    raise
            await anyio.sleep(_BUILD_LOOK_S)

    # ── what is said in the log ──

    async def _attach(self, context: ToolContext, machine: MachineId) -> int:
        """Said once; the seq that it has."""
        return await self._say(context, attached_key(machine), machine, MachineAttached(machine=machine))

    async def _notice(self, context: ToolContext | _Place, machine: MachineId) -> _Seen:
        seen = self._remember(context.conversation, machine)
        since = await self._lent_at(context.conversation, machine) if seen.events == 0 else None
        while page := await self._records.machines.events(machine, after=seen.events, limit=_PAGE):
            for n, event in page:
                if n <= seen.events:
                    continue  # somebody in this process was here meanwhile
                is_before = since is not None and to_text(event.at) < since
                if not is_before and (news := notice_of(machine, event)):
                    await self._say(context, f"machine/{machine}/{n}", machine, *news)
                gone = event.data.get("effects", ()) if event.kind == "rolled_back" else ()
                if checkout_id(context.conversation, seen.checkout) in gone:
                    seen.checkout += 1
                    seen.is_checked_out = False
                seen.events = max(seen.events, n)
        return seen

    async def _say(
        self,
        context: ToolContext | _Place,
        key: str,
        machine: MachineId,
        *news: EventData,
        instead_of: str | None = None,
    ) -> int:
        at = to_text(self._clock.now())
        appended = await self._conversations.append(
            Append(
                context.conversation,
                tuple(NewEvent(each, at) for each in news),
                key=key,
                actor=machine,
                turn=context.turn,
                instead_of=instead_of,
            )
        )
        return appended.seqs[0]

    # ── the checkout ──

    async def _check_out(self, context: ToolContext, machine: ToolMachine, repo: Repo, seen: _Seen) -> None:
        while True:
            effect = checkout_id(context.conversation, seen.checkout)
            ended = await ensure_checkout(self._conversations, machine, repo, effect)
            if ended.state != "lost" or seen.checkout >= MACHINES_LIMIT:
                break
            seen.checkout += 1  # it went down with the machine: what is there now is older
        if ended.state != "finished" or ended.exit_code != 0:
            attached = await self._attach(context, machine.id)
            await tell_failure(self._conversations, context, repo, ended, attached)

    # ── inside ──

    def _reach(self, machine: Machine, conversation: ConversationId) -> ToolMachine:
        own = ToolMachine(machine.id, machine.owner, self._caller, self._terminals, self._records, self._read_output)
        return own if machine.conversation in (None, conversation) else replace(own, seat=conversation)

    def _remember(self, conversation: ConversationId, machine: MachineId) -> _Seen:
        seen = self._seen.setdefault((conversation, machine), _Seen())
        self._seen.move_to_end((conversation, machine))
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return seen
