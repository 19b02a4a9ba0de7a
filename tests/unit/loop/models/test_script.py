"""The pretend provider does what a script says, and needs no memory to know where it stands."""

from outlive.testing.pretend_provider.script import Item, plan_answer, read_script, trouble_of


def test_an_answer_ends_with_its_calls() -> None:
    script = (
        'Please. [[say I look.]] [[tool shell {"command": "[[ -f x ]] && echo a"}]] [[also tool ls {"a": [[1]]}]]'
        "[[think hm]] [[say Done.]] thanks"
    )
    first, second = read_script(script)
    assert first.text == "I look."
    assert [(call.name, call.arguments) for call in first.calls] == [
        ("shell", '{"command": "[[ -f x ]] && echo a"}'),
        ("ls", '{"a": [[1]]}'),
    ]
    assert (second.thinking, second.text, second.calls) == ("hm", "Done.", ())


def test_repeated_calls_count() -> None:
    answers = read_script('[[repeat 3 tool shell {"command": "echo {{n}}"}]] [[say Done.]]')
    assert [answer.calls[0].arguments for answer in answers[:3]] == [f'{{"command": "echo {n}"}}' for n in (1, 2, 3)]
    assert answers[3].text == "Done."


def test_brackets_of_a_shell_are_no_script() -> None:
    planned = plan_answer([Item("user", "why does [[ -f x ]] fail?")], "call")
    assert planned.text == "You said: why does [[ -f x ]] fail?"


def test_where_a_script_stands_is_read_from_the_calls_that_were_made() -> None:
    script = Item("user", "[[repeat 2 tool a {}]] [[say Done.]]")
    items = [script]
    for number in (0, 1):
        planned = plan_answer(items, "call")
        assert planned.number == number
        # Of a long conversation only the newest exchange may be left.
        items = [script, Item("assistant", "", tuple(call.id for call in planned.calls)), Item("result", "ok")]
    assert plan_answer(items, "call").text == "Done."
    behind = [*items, Item("assistant", "Done."), Item("user", "thanks")]
    assert plan_answer(behind, "call").text == "You said: thanks"


def test_the_same_words_in_a_later_turn_make_other_calls() -> None:
    script = Item("user", "[[tool a {}]] [[say Done.]]")
    first = plan_answer([script], "call")
    later = plan_answer([script, Item("assistant", "Done."), script], "call")
    assert first.number == later.number == 0
    assert first.calls[0].id != later.calls[0].id


def test_troubles_come_one_after_another_and_end() -> None:
    (answer,) = read_script("[[error 529 x2 retry-after=3]] [[cut after=4]] [[say ok]]")
    met = [trouble_of(answer.troubles, nth) for nth in (1, 2, 3, 4)]
    assert [trouble and (trouble.kind, trouble.status, trouble.after) for trouble in met] == [
        ("error", 529, 0),
        ("error", 529, 0),
        ("cut", 500, 4),
        None,
    ]
    (for_ever,) = read_script('[[error 400 always message="no such thing"]] [[say never]]')
    trouble = trouble_of(for_ever.troubles, 1000)
    assert trouble is not None
    assert trouble.message == "no such thing"
