"""Whatever happens to a machine, in whatever order, its record stays true and finds the way.

Hypothesis plays everybody: people who ask, steps that come late, end, fail or stop in the middle, nodes that are gone
for good and come back, and zombies: steps of old generations that end long after somebody else took over. Of one
generation only one step is under way at a time, as on a node.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outlive.base import CheckpointId, ConflictError, FencedError, NodeId, OutliveError
from outlive.machine import lifecycle
from outlive.machine.backends.documents import apply_change
from outlive.machine.lifecycle import Change, Step, Verb
from outlive.machine.status import Machine
from outlive.testing.machine_records import a_machine

NOW = datetime(2031, 1, 1, tzinfo=UTC)
NODES = (NodeId("node_a"), NodeId("node_b"), NodeId("node_c"))
LAST_NODE = NODES[-1]  # is never gone
ROUNDS = 12
VERBS: list[Verb] = [verb for verb in get_args(Verb) if verb != "delete"]


class Underway(NamedTuple):
    """A step that was begun: by whom, and in which generation."""

    step: Step
    node: NodeId
    generation: int
    number: int = 0  # of the wishes that a checkpoint which was begun fulfils
    began: int = 0  # the moment


class Life(RuleBasedStateMachine):
    machine: Machine

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[NodeId] = set()
        self.planned: list[Step] = []
        self.underway: list[Underway] = []
        self.is_stopped = False  # it was paused, and nobody asked to resume it since
        self.checkpoints = 0
        self.moment = 0
        self.asked: dict[int, int] = {}  # the number of a wish for a checkpoint -> when it was last uttered

    @initialize()
    def create(self) -> None:
        self.machine = a_machine()

    # ── people ──

    @rule(verb=st.sampled_from(VERBS), rounds=st.integers(0, 3))
    def ask(self, verb: Verb, rounds: int) -> None:
        self.utter(verb)
        self.work(rounds)

    def utter(self, verb: Verb) -> None:
        try:
            self.apply(lifecycle.ask(self.machine, verb, NOW))
        except OutliveError:
            return
        self.moment += 1
        if verb in ("checkpoint", "fork"):
            self.asked[self.machine.checkpoints_wanted] = self.moment
        if verb == "resume":
            self.is_stopped = False

    @precondition(lambda self: self.checkpoints > 2 and self.machine.state != "deleted")  # a life of some length first
    @rule()
    def delete(self) -> None:
        self.apply(lifecycle.ask(self.machine, "delete", NOW))

    # ── nodes and workers ──

    @rule()
    def plan(self) -> None:
        step = self.next_step()
        if step == "declare_lost":
            self.lose("its node is gone")
        elif step is not None:
            self.planned.append(step)

    @precondition(lambda self: self.planned)
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def begin(self, data: st.DataObject, node: NodeId) -> None:
        """Maybe late: a plan may be old, and some are carried out twice."""
        step = data.draw(st.sampled_from(self.planned[-4:]))
        if step not in lifecycle.PLACED_STEPS and not lifecycle.is_due(self.machine, step):
            return
        with suppress(ConflictError):
            self.begin_step(step, LAST_NODE if node in self.gone else node)

    @rule(rounds=st.integers(1, 3))
    def work(self, rounds: int) -> None:
        """All goes well for a while."""
        for _ in range(rounds):
            step = self.next_step()
            if step is None:
                return
            if step == "declare_lost":
                self.lose("its node is gone")
            else:
                self.begin_step(step, LAST_NODE)
                self.end_step(self.underway.pop(), is_cold=False)

    @precondition(lambda self: (self.machine.state, self.machine.desired) == ("running", "running"))
    @rule(first=st.sampled_from(["checkpoint", "hibernate"]), verbs=st.lists(st.sampled_from(VERBS), max_size=3))
    def save_while_somebody_asks(self, first: Verb, verbs: list[Verb]) -> None:
        self.utter(first)
        step = self.next_step()
        if step not in ("checkpoint", "hibernate"):
            return
        self.begin_step(step, LAST_NODE)
        for verb in verbs:
            self.utter(verb)
        self.end_step(self.underway.pop(), is_cold=False)

    def begin_step(self, step: Step, node: NodeId) -> None:
        if step in lifecycle.PLACED_STEPS:
            self.apply(lifecycle.begin_up(self.machine, node, NOW))
        at = (self.machine.node or LAST_NODE, self.machine.generation)
        self.underway = [each for each in self.underway if each[1:3] != at]  # what was under way there is dead
        if step in ("checkpoint", "hibernate") and self.machine.node is not None:
            self.apply(lifecycle.begin_checkpoint(self.machine, *at))
        self.moment += 1
        self.underway.append(Underway(step, *at, self.machine.checkpoints_begun, self.moment))

    @precondition(lambda self: self.underway)
    @rule(data=st.data(), is_cold=st.booleans())
    def end(self, data: st.DataObject, is_cold: bool) -> None:
        step = self.take(data)
        self.as_holder(step, lambda: self.end_step(step, is_cold=is_cold))

    @precondition(lambda self: self.underway)
    @rule(data=st.data(), memory=st.booleans(), is_for_good=st.booleans())
    def fail(self, data: st.DataObject, memory: bool, is_for_good: bool) -> None:
        step = self.take(data)
        if step.step in lifecycle.PLACED_STEPS:
            self.as_holder(step, lambda: self.fail_up(step, memory=memory))
        if is_for_good:  # a run gives up what it could not do, however late it hears of it
            self.apply(lifecycle.give_up(self.machine, step.step, NOW, reason="why"))

    @rule(node=st.sampled_from(NODES[:-1]))
    def node_goes_or_comes_back(self, node: NodeId) -> None:
        self.gone ^= {node}

    @rule()
    def sandbox_dies(self) -> None:
        self.lose("its sandbox died")

    def lose(self, reason: str) -> None:
        if self.machine.node is not None:
            self.apply(lifecycle.declare_lost(self.machine, self.machine.node, NOW, reason=reason))

    # ── what they share ──

    def next_step(self) -> Step | None:
        return lifecycle.next_step(self.machine, is_node_gone=self.machine.node in self.gone)

    def take(self, data: st.DataObject) -> Underway:
        return self.underway.pop(data.draw(st.integers(0, len(self.underway) - 1)))

    def as_holder(self, step: Underway, act: Callable[[], None]) -> None:
        """Do it; if it is a zombie's, nothing may come of it."""
        before = self.machine
        is_zombie = (before.node, before.generation) != (step.node, step.generation) and step.step != "remove"
        try:
            act()
        except FencedError:
            assert is_zombie
        if is_zombie:
            assert self.machine == before

    def end_step(self, step: Underway, *, is_cold: bool) -> None:
        holder = (self.machine, step.node, step.generation)
        match step.step:
            case "boot" | "wake":
                self.apply(lifecycle.end_up(*holder, NOW, base_key="key", is_cold=is_cold))
            case "freeze":
                self.apply(lifecycle.end_freeze(*holder, NOW))
            case "thaw":
                self.apply(lifecycle.end_thaw(*holder, NOW))
            case "checkpoint":
                self.save(step)
            case "hibernate":
                checkpoint = self.save(step)
                self.apply(lifecycle.end_hibernate(self.machine, step.node, step.generation, checkpoint, NOW))
            case "remove":
                self.apply(lifecycle.end_remove(self.machine, NOW))

    def fail_up(self, step: Underway, *, memory: bool) -> None:
        holder = (self.machine, step.node, step.generation)
        self.apply(lifecycle.fail_up(*holder, NOW, was=self.machine.state, reason="why", memory=memory))

    def save(self, step: Underway) -> CheckpointId:
        self.checkpoints += 1
        checkpoint = CheckpointId(f"ckpt_{self.checkpoints}")
        holder = (self.machine, step.node, step.generation)
        made = self.machine.checkpoints_made
        self.apply(lifecycle.end_checkpoint(*holder, checkpoint, NOW, number=step.number, has_memory=True))
        for number in range(made + 1, self.machine.checkpoints_made + 1):
            assert self.asked.get(number, 0) < step.began, "what was done before it was asked for may not be in it"
        return checkpoint

    def apply(self, change: Change) -> None:
        before, after = self.machine, apply_change(self.machine, change) or self.machine
        assert after.generation >= before.generation
        assert before.state != "deleted" or after == before, "deleted is for ever"
        assert before.desired != "deleted" or after.desired == "deleted", "nobody takes a deletion back"
        assert all(event.generation <= after.generation for event in change.events)
        if after.state == "paused" != before.state:
            self.is_stopped = True
        self.machine = after

    @invariant()
    def what_a_person_stopped_does_not_run(self) -> None:
        if hasattr(self, "machine"):
            assert not (self.is_stopped and self.machine.state == "running")

    @invariant()
    def a_machine_has_a_node_while_it_is_up_or_coming_up(self) -> None:
        if hasattr(self, "machine"):
            is_up = self.machine.state in ("running", "paused")
            assert self.machine.is_on_node == (is_up or self.machine.is_booting)

    def teardown(self) -> None:
        """From here on every step works, and no node goes: it comes to rest where it is wanted, or says why not."""
        if not hasattr(self, "machine"):
            return
        self.work(ROUNDS)
        assert self.next_step() is None
        self.what_a_person_stopped_does_not_run()
        # Lost is a rest only for one that cannot come back, or that nobody wants up.
        is_lost = self.machine.state == "lost"
        assert self.machine.is_settled or (
            is_lost and (not self.machine.checkpoint or self.machine.desired != "running")
        )


def test_a_machines_record_stays_true_whatever_happens() -> None:
    run_state_machine_as_test(Life, settings=settings(max_examples=200, stateful_step_count=40))
