"""Ids sort by the moment they were made, say what they are of, and never come twice."""

import threading
import time
import uuid
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import ids
from outlive.base.ids import derive, is_id, new_conversation_id, new_event_id, new_operation_id, new_turn_id

MAKERS: dict[str, Callable[[], str]] = {
    "conv": ids.new_conversation_id,
    "evt": ids.new_event_id,
    "msg": ids.new_message_id,
    "turn": ids.new_turn_id,
    "step": ids.new_step_id,
    "eff": ids.new_effect_id,
    "prin": ids.new_principal_id,
    "op": ids.new_operation_id,
    "mach": ids.new_machine_id,
    "ckpt": ids.new_checkpoint_id,
    "env": ids.new_environment_id,
    "node": ids.new_node_id,
    "term": ids.new_terminal_id,
}


def test_every_kind_of_id_is_tested_here() -> None:
    makers = {maker for name, maker in vars(ids).items() if name.startswith("new_")}
    assert makers == set(MAKERS.values())


@pytest.mark.parametrize("prefix", MAKERS)
def test_an_id_says_its_kind_and_is_no_other(prefix: str) -> None:
    made = MAKERS[prefix]()
    assert [other for other in MAKERS if is_id(made, other)] == [prefix]


def test_an_id_holds_a_uuid_of_version_7_with_the_present_time() -> None:
    before = time.time_ns() // 1_000_000
    value = uuid.UUID(new_conversation_id().removeprefix("conv_"))
    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    # Ids that were made faster than the clock ticks run ahead of it, by far less than a second.
    assert before <= value.int >> 80 <= time.time_ns() // 1_000_000 + 1_000


def test_ids_are_strictly_increasing() -> None:
    made = [new_event_id() for _ in range(20_000)]
    assert all(earlier < later for earlier, later in pairwise(made))


def test_ids_are_strictly_increasing_in_each_thread_and_never_come_twice() -> None:
    threads = 8
    made: list[list[str]] = [[] for _ in range(threads)]
    together = threading.Barrier(threads)

    def make(mine: list[str]) -> None:
        together.wait()
        mine.extend(new_event_id() for _ in range(3_000))

    running = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for mine in made:
        assert mine == sorted(mine)
    assert len({id for mine in made for id in mine}) == threads * 3_000


def test_an_id_made_after_another_threads_id_is_greater() -> None:
    made: list[str] = []
    for _ in range(200):
        thread = threading.Thread(target=lambda: made.append(new_event_id()))
        thread.start()
        thread.join()
        made.append(new_event_id())
    assert made == sorted(set(made))


def test_ids_go_on_increasing_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_event_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    assert before < new_event_id() < new_event_id()


@settings(deadline=None)  # the machine may be busy
@given(st.text())
def test_text_that_is_no_id_is_not_taken_for_one(text: str) -> None:
    assert not is_id(text, "conv")


@pytest.mark.parametrize(
    "text",
    [
        "conv_",
        "conv_" + "0" * 31,
        "conv_" + "0" * 33,
        "conv_" + "A" * 32,
        "conv_" + "٠" * 32,
        "conv_" + "0" * 32 + "\n",
        " conv_" + "0" * 32,
        "Conv_" + "0" * 32,
        "0" * 32,
    ],
)
def test_text_that_is_nearly_an_id_is_not_one(text: str) -> None:
    assert is_id("conv_" + "0" * 32, "conv")
    assert not is_id(text, "conv")


def test_what_an_operation_makes_has_the_same_id_each_time_it_is_run() -> None:
    operation, other = new_operation_id(), new_operation_id()
    made = derive("conv", operation)
    assert is_id(made, "conv")
    assert made == derive("conv", operation)
    assert made != derive("conv", other)
    assert derive("msg", operation) != made


def test_the_nth_thing_of_an_origin_has_an_id_of_its_own_that_keeps_the_origins_moment() -> None:
    turn, other = new_turn_id(), new_turn_id()
    made = [derive("step", turn, n) for n in range(1, 200)]
    assert len(set(made)) == len(made)
    assert made == [derive("step", turn, n) for n in range(1, 200)]
    assert all(is_id(each, "step") and each[5:20] == turn[5:20] and uuid.UUID(each[5:]).version == 7 for each in made)
    assert derive("step", other, 1) not in made
