"""Offsets of a terminal: whatever happens to its machine and its nodes, they never go back and never stand for two."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import BrokenError, new_machine_id, new_principal_id, new_terminal_id
from outlive.machine.terminal import epochs
from outlive.machine.terminal.epochs import RESERVE_STEP, decide_up, to_guest, to_offset
from outlive.machine.terminal.status import SEAM_LIMIT, Epoch, Seam, Terminal

AT = datetime(2030, 1, 2, tzinfo=UTC)


def a_terminal(**fields: object) -> Terminal:
    terminal = new_terminal_id()
    known = {"id": terminal, "machine": new_machine_id(), "name": terminal, "owner": new_principal_id()}
    return Terminal.model_validate(
        {**known, "created_at": AT, "changed_at": AT, "epoch": Epoch(generation=1), **fields}
    )


# ── one by one ──


def test_an_epoch_maps_both_ways_from_its_anchor_on() -> None:
    epoch = Epoch(generation=2, base=1000, anchor=30)
    assert (to_offset(epoch, 30), to_offset(epoch, 45)) == (1000, 1015)
    assert (to_guest(epoch, 1000), to_guest(epoch, 1015)) == (30, 45)
    assert to_guest(epoch, 999) is None, "only the recording has it"
    with pytest.raises(BrokenError):
        to_offset(epoch, 29)


def test_offsets_are_reserved_before_they_are_needed() -> None:
    reserved = epochs.reserve(a_terminal(), 0).reserved_to
    assert reserved == RESERVE_STEP
    assert not epochs.wants_reservation(reserved, RESERVE_STEP // 2)
    assert epochs.wants_reservation(reserved, RESERVE_STEP // 2 + 1)
    assert not epochs.needs_reservation(reserved, RESERVE_STEP)
    assert epochs.needs_reservation(reserved, RESERVE_STEP + 1)
    assert epochs.reserve(a_terminal(reserved_to=10 * RESERVE_STEP), 5).reserved_to == 10 * RESERVE_STEP


def test_a_machine_that_slept_goes_on_without_a_seam() -> None:
    slept = epochs.settle(a_terminal(reserved_to=RESERVE_STEP, recorded_to=500), 500)
    assert slept.reserved_to == 500
    woken, seam = decide_up(slept, 0, 500, 2)
    assert seam is None
    assert woken == slept.model_copy(update={"epoch": Epoch(generation=2)})


def test_a_machine_that_was_rolled_back_goes_on_after_all_that_may_have_been_shown() -> None:
    running = a_terminal(reserved_to=RESERVE_STEP, recorded_to=800)
    restored, seam = decide_up(running, 0, 500, 2, now=AT)
    assert seam == Seam(start=500, at=RESERVE_STEP, generation=2)
    assert restored.epoch == Epoch(generation=2, base=RESERVE_STEP, anchor=500)
    assert restored.seams == (seam,)


def test_what_is_not_in_the_recording_and_still_in_the_guest_comes_after_the_seam() -> None:
    running = a_terminal(reserved_to=RESERVE_STEP, recorded_to=450)
    restored, seam = decide_up(running, 0, 500, 2)
    assert seam == Seam(start=450, at=RESERVE_STEP, generation=2)
    assert restored.epoch.anchor == 450
    dropped, seam = decide_up(running, 480, 500, 2)
    assert seam is not None
    assert (seam.start, dropped.epoch.anchor) == (480, 480), "what the guest holds no more is gone"


def test_up_again_for_the_same_generation_is_the_same() -> None:
    restored, seam = decide_up(a_terminal(reserved_to=RESERVE_STEP, recorded_to=800), 0, 500, 2)
    running = epochs.reserve(restored, restored.reserved_to + 5)
    assert decide_up(running, 0, 505, 2) == (running, seam)
    assert decide_up(running, 0, 505, 1) == (running, None)
    woken, _ = decide_up(epochs.settle(a_terminal(reserved_to=9), 5), 0, 5, 2)
    running = epochs.reserve(woken, 100)
    assert decide_up(running, 0, 100, 2) == (running, None)


def test_a_fork_of_a_checkpoint_from_before_a_seam_is_read_by_the_epoch_of_then() -> None:
    once, _ = decide_up(a_terminal(reserved_to=1000, recorded_to=1000), 0, 400, 2)
    twice, _ = decide_up(epochs.reserve(once, 1100).model_copy(update={"recorded_to": 1100}), 0, 450, 3)
    for guest_end, offset in {300: 300, 400: 1000, 430: 1030, 450: twice.epoch.base}.items():
        child = epochs.forked(
            twice,
            terminal=new_terminal_id(),
            machine=new_machine_id(),
            guest_end=guest_end,
            generation=1,
            now=AT,
        )
        assert (child.reserved_to, to_offset(child.epoch, guest_end)) == (offset, offset)
        assert (child.origin, child.name, child.epoch.generation) == (twice.id, twice.name, 1)


def test_a_guest_that_says_less_than_can_be_true_moves_nothing_back() -> None:
    restored, seam = decide_up(a_terminal(reserved_to=1000, epoch=Epoch(generation=1, base=0, anchor=50)), 0, 3, 2)
    assert seam == Seam(start=0, at=1000, generation=2)
    assert to_offset(restored.epoch, 3) == 1000


def test_a_record_keeps_the_newest_seams() -> None:
    terminal = a_terminal()
    for generation in range(2, SEAM_LIMIT + 10):
        terminal, _ = decide_up(epochs.reserve(terminal, terminal.reserved_to), 0, 5, generation)
    assert [seam.generation for seam in terminal.seams] == list(range(10, SEAM_LIMIT + 10))


# ── over any history ──


class Guest:
    """A terminal in a machine: every byte that it ever printed is another one, and a ring holds the newest."""

    def __init__(self) -> None:
        self.printed: list[int] = []
        self.ring_start = 0


class History:
    """A terminal, its machine and its nodes. Whatever happens takes a number: how much of it."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.guest, self.generation, self.next_byte = Guest(), 1, 0
        self.terminal = a_terminal()
        self.saved = [deepcopy(self.guest)]
        self.read_to = 0  # by the host, as the guest counts
        self.shown: dict[int, int] = {}  # what each offset stands for
        self.shown_to = 0

    def print(self, size: int) -> None:
        self.guest.printed += range(self.next_byte, self.next_byte + size)
        self.next_byte += size

    def show(self, size: int) -> None:
        end = min(self.read_to + size, len(self.guest.printed))
        reach = to_offset(self.terminal.epoch, end)
        if epochs.needs_reservation(self.terminal.reserved_to, reach):
            self.terminal = epochs.reserve(self.terminal, reach, step=self.step)
        for at in range(self.read_to, end):
            offset = to_offset(self.terminal.epoch, at)
            is_new = offset not in self.shown
            assert self.shown.setdefault(offset, self.guest.printed[at]) == self.guest.printed[at], "stands for two"
            assert not is_new or offset >= self.shown_to, "went back"
        self.read_to = end
        self.shown_to = max(self.shown_to, reach)

    def drop_from_ring(self, size: int) -> None:
        self.guest.ring_start = max(self.guest.ring_start, min(self.guest.ring_start + size, self.read_to))

    def record(self, _: int = 0) -> None:
        reach = to_offset(self.terminal.epoch, self.read_to)
        self.terminal = self.terminal.model_copy(update={"recorded_to": max(self.terminal.recorded_to, reach)})

    def checkpoint(self, _: int = 0) -> None:
        self.saved.append(deepcopy(self.guest))

    def hibernate_and_wake(self, size: int) -> None:
        more = size // 4
        self.show(len(self.guest.printed))
        self.record()
        self.terminal = epochs.settle(self.terminal, to_offset(self.terminal.epoch, self.read_to))
        if more:
            self.print(more)  # until it is frozen
        self.checkpoint()
        assert self._come_up() is None, "nothing was rolled back"
        assert self.read_to == len(self.guest.printed) - more, "nothing is missing"

    def lose_the_node(self, _: int = 0) -> None:
        """With the machine, and with whatever the node knew and did not record."""
        self._come_up()

    def restart_the_node(self, _: int = 0) -> None:
        """The machine runs on. The new process does not know whether the old one had written that it is up."""
        again, seam = decide_up(self.terminal, self.guest.ring_start, len(self.guest.printed), self.generation)
        assert again == self.terminal
        assert seam is None or seam == self.terminal.seams[-1]

    def fork(self, of: int) -> None:
        """From any checkpoint."""
        born = self.saved[of % len(self.saved)]
        guest_end = len(born.printed)
        child = epochs.forked(
            self.terminal,
            terminal=new_terminal_id(),
            machine=new_machine_id(),
            guest_end=guest_end,
            generation=1,
            now=AT,
        )
        assert child.reserved_to == to_offset(child.epoch, guest_end)
        for at in range(max(child.epoch.anchor, 0), guest_end):
            offset = to_offset(child.epoch, at)
            assert self.shown.get(offset, born.printed[at]) == born.printed[at], "the parent's recording is the child's"

    def _come_up(self) -> Seam | None:
        self.guest = deepcopy(self.saved[-1])
        self.generation += 1
        before = self.terminal
        start, end = self.guest.ring_start, len(self.guest.printed)
        self.terminal, seam = decide_up(before, start, end, self.generation)
        if seam is None:
            known = to_guest(self.terminal.epoch, max(before.recorded_to, before.epoch.base))
            assert known is not None
            self.read_to = max(known, start)
        else:
            self._check_seam(before, seam)
            self.read_to = self.terminal.epoch.anchor
        return seam

    def _check_seam(self, before: Terminal, seam: Seam) -> None:
        anchor = self.terminal.epoch.anchor
        assert self.shown_to <= seam.at, "after all that was shown"
        # The recording up to the seam, and the guest from there on, are what the machine remembers.
        if before.epoch.base < seam.start <= self.shown_to and anchor > 0:
            assert self.shown[seam.start - 1] == self.guest.printed[anchor - 1]
        assert seam.start <= max(before.recorded_to, before.epoch.base) or anchor == self.guest.ring_start, "lost one"


HAPPENINGS = [
    *(History.print, History.print, History.show, History.show, History.drop_from_ring, History.record),
    *(History.checkpoint, History.hibernate_and_wake, History.lose_the_node, History.restart_the_node, History.fork),
]


@settings(max_examples=200)
@given(
    step=st.integers(0, 12),
    happenings=st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(1, 12)), min_size=20, max_size=60),
)
def test_over_any_history_no_offset_goes_back_or_stands_for_two_bytes(
    step: int, happenings: list[tuple[Callable[[History, int], None], int]]
) -> None:
    history = History(step)
    for happen, size in happenings:
        happen(history, size)
        assert history.shown_to <= history.terminal.reserved_to, "shown, and not reserved"
    history.show(len(history.guest.printed))  # and what there is can be read to its end
