"""What is left of a batch, from its file and its record."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.client.batches.items import read_items
from outlive.client.batches.plan import Line, count, plan, to_retry

ITEMS = read_items("x.jsonl", "\n".join(f'{{"id": "{name}", "prompt": "Do {name}"}}' for name in "abcd"))
A, B, C, D = (item.key for item in ITEMS)


def line(key: str, outcome: str = "done", attempt: int = 1, **more: object) -> Line:
    return {"item": "x", "key": key, "outcome": outcome, "attempt": attempt, **more}


def left(results: list[Line], failures: list[Line]) -> list[tuple[str, int]]:
    return [task.name for task in plan(ITEMS, results, failures).tasks]


def test_what_is_done_or_has_failed_is_not_asked_for_again() -> None:
    assert left([], []) == [(A, 1), (B, 1), (C, 1), (D, 1)]
    assert left([line(A)], [line(C, "failed")]) == [(B, 1), (D, 1)]


def test_what_is_to_be_retried_is_the_next_attempt() -> None:
    failures = [line(A, "failed"), line(B, "refused", 3)]
    assert left([], to_retry(failures)) == [(A, 2), (B, 4), (C, 1), (D, 1)]


def test_in_results_and_in_failures_means_done() -> None:
    found = plan(ITEMS, [line(A)], [line(A, "failed", retrying=True)])
    assert (found.failures, [task.name for task in found.tasks]) == ([], [(B, 1), (C, 1), (D, 1)])


def test_what_was_edited_is_put_aside_and_asked_for_anew() -> None:
    found = plan(ITEMS, [line("old"), line(A)], [line("older", "failed")])
    assert found.superseded == [line("old"), line("older", "failed")]
    assert [each["key"] for each in found.results] == [A]
    assert len(found.tasks) == 3


def test_a_result_has_the_name_that_its_item_has_now() -> None:
    assert plan(ITEMS, [line(A)], []).results[0]["item"] == "a"


KEYS = st.sampled_from([A, B, C, D, "gone"])


@given(st.lists(KEYS), st.lists(st.tuples(KEYS, st.integers(1, 3), st.booleans())))
def test_each_item_is_in_one_place_whatever_the_record_says(
    done: list[str], failed: list[tuple[str, int, bool]]
) -> None:
    failures = [line(key, "failed", attempt, retrying=again) for key, attempt, again in failed]
    found = plan(ITEMS, [line(key) for key in done], failures)
    results = [each["key"] for each in found.results]
    over = results + [each["key"] for each in found.failures if not each["retrying"]]
    todo = [task.item.key for task in found.tasks]
    assert sorted(over + todo) == sorted([A, B, C, D])
    again = plan(ITEMS, found.results, found.failures)
    assert (again.results, again.failures, again.tasks) == (found.results, found.failures, found.tasks)


def test_what_it_cost_is_unknown_if_that_of_one_item_is() -> None:
    usage = {"input_tokens": 10, "output_tokens": 2}
    known = [line(A, turn="turn_1", usage=usage, cost=0.5), line(B, turn="turn_2", usage=usage, cost=0.25)]
    counted = count(4, known, [line(C, "refused", turn=None, cost=None)], [])
    assert (counted.done, counted.failed, counted.left, counted.cost) == (2, 1, 1, 0.75)
    assert counted.tokens["input_tokens"] == 20
    assert count(4, [*known, line(C, turn="turn_3", usage=usage, cost=None)], [], []).cost is None
