"""The logs of conversations as a worker knows them: read once, then continued. They only save reading.

Several activities may hold the same view at once; what one of them adds, all of them see. Bounded: the least recently
wanted goes, and is read again when somebody asks.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from outlive.base import ConversationId, StepId, to_text
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import Event
from outlive.conversation.upcast import upcast
from outlive.loop.budgets.ledger import BudgetFold, Ledger
from outlive.loop.decide import LIMITS, Limits, Runs, decide
from outlive.loop.fold import TurnFold
from outlive.loop.plan import Plan
from outlive.loop.state import TurnState

VIEWS_LIMIT = 512
CHARACTERS_LIMIT = 64 * 1024 * 1024  # of payloads in all views
_REASONS = frozenset({"turn.recovered", "model.fallback"})  # for a further attempt of a step
_SURELY_ALL = 4 * 1024 * 1024  # a short page with fewer characters than this was not cut for its size


class View:
    """One conversation, from its first event to `seq`."""

    def __init__(self, conversation: ConversationId) -> None:
        self.conversation = conversation
        self.events: list[Event] = []
        self.size = 0
        self.pictures = 0  # attached
        self._fold = TurnFold(conversation)
        self._budget = BudgetFold()

    @property
    def seq(self) -> int:
        return self._fold.seq

    @property
    def state(self) -> TurnState:
        return self._fold.state()

    def ledger(self, now: str) -> Ledger:
        """What was used, at the moment `now`."""
        return self._budget.ledger(now)

    def take(self, events: Iterable[Event]) -> bool:
        """Go on with `events`; those that are known change nothing. False if some are missing before them."""
        for event in events:
            if event.seq <= self.seq:
                continue
            is_next = event.seq == self.seq + 1
            if not is_next or event.blob is not None:
                return False
            event = upcast(event)
            self._fold.take(event)
            self._budget.take(event)
            self.events.append(event)
            self.size += len(event.data_json)
            if event.type == "message.sent":
                self.pictures += event.data_json.count('"media_type":"image/')
        return True

    def has_recovery(self, step: StepId, attempt: int) -> bool:
        """Whether the log says why this attempt of the step was needed."""
        return any(
            event.type in _REASONS and (data := event.data)["step"] == step and data["attempt"] == attempt
            for event in reversed(self.events)
        )


class Views:
    def __init__(self, conversations: Conversations, runs: Mapping[str, Runs], limits: Limits = LIMITS) -> None:
        self._conversations = conversations
        self._runs = runs
        self._limits = limits
        self._views: OrderedDict[ConversationId, View] = OrderedDict()

    async def catch_up(self, conversation: ConversationId) -> View:
        """The view at the head of the log, as it is now."""
        view = self._views.get(conversation) or View(conversation)
        await self.refresh(view)
        self._keep(view)
        return view

    def recall(self, conversation: ConversationId) -> View | None:
        """The view as it was when somebody last looked, if it is kept. For who appends next, and is refused if what
        it knows is not so any more: it need not read first."""
        return self._views.get(conversation)

    async def refresh(self, view: View) -> None:
        """Read what the view does not have yet."""
        is_all = False
        while not is_all:
            events = await self._conversations.read(view.conversation, view.seq, PAGE)
            is_all = len(events) < PAGE and sum(len(event.data_json) for event in events) < _SURELY_ALL
            view.take(events)

    async def take(self, view: View, events: Iterable[Event]) -> None:
        """Go on with what was just appended; what others appended before is read."""
        if not view.take(events):
            await self.refresh(view)

    def decide(self, view: View) -> Plan:
        return decide(view.state, self._runs, self._limits, to_text(self._conversations.clock.now()))

    def _keep(self, view: View) -> None:
        views = self._views
        views[view.conversation] = view
        views.move_to_end(view.conversation)
        total = sum(each.size for each in views.values())
        while len(views) > VIEWS_LIMIT or (total > CHARACTERS_LIMIT and len(views) > 1):
            total -= views.popitem(last=False)[1].size
