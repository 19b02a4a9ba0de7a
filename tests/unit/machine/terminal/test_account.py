"""An account of what happened: all that an agent has to know after a person has had its terminal."""

import pytest

from outlive.base import EffectId
from outlive.machine.terminal.account import PARTS_LIMIT, TEXT_LIMIT, TYPED_LIMIT, Account, Accounting
from outlive.machine.terminal.journal import Input, Record, Resize
from unit.machine.terminal.journals import ADA, AT, BOT, SINCE_2, after, gap, held_by, printed, seam, typed


def account_of(*records: Record, start: int = 0) -> Account:
    accounting = Accounting(start)
    for record in records:
        accounting.take(record)
    return accounting.account()


def test_what_a_person_did_meanwhile_is_told_as_one_piece() -> None:
    output = (
        b"\x1b]133;A\x07$ \x1b]133;B\x07make\r\n\x1b]633;E;make\x07\x1b]133;C\x07"
        b"\x1b[31mno rule\x1b[0m\r\n\x1b]133;D;2\x07\x1b]133;A\x07$ \x1b]133;B\x07"
    )
    account = account_of(
        held_by(ADA, 100),
        printed(100, output[:17]),
        typed(117, 0, b"make\r"),
        printed(117, output[17:]),
        held_by(None, 200),
    )
    assert account.text == "$ make\nno rule\n$ "
    assert [(one.operator, one.kind, one.text, one.offset) for one in account.typed] == [
        (ADA.id, "person", "make\n", 117)
    ]
    assert [one.lease.name if one.lease else None for one in account.leases] == ["ada", None]
    [command] = account.commands
    assert (command.command_line, command.exit_code) == ("make", 2)
    assert output[command.output_start - 100 :].startswith(b"\x1b[31mno rule")
    assert not account.is_cut


def test_it_says_from_where_to_where_in_the_words_of_the_wire() -> None:
    told = account_of(printed(7, b"abc"), gap(10, 20), seam(15, 40), start=7).model_dump(by_alias=True)
    assert (told["from"], told["to"]) == (7, 40)
    assert told["missing"] == (
        {"kind": "gap", "from": 10, "to": 20},
        {"kind": "seam", "from": 15, "to": 40},
    )


def test_keys_of_one_go_are_one_text_and_others_are_not() -> None:
    effect = EffectId("eff_1")
    account = account_of(
        *(typed(0, place, bytes([key]), at=place * 0.3) for place, key in enumerate(b"ls -l\r")),
        typed(0, 6, b"\x03", at=60),
        typed(0, 7, b"x", at=60, by=BOT),
        Input(after(60), 0, 8, BOT, b"y", effect),
        held_by(ADA, 0, at=60),
        Input(after(60), 0, 9, BOT, b"z", effect),
    )
    assert [(one.name, one.text, one.effect_id) for one in account.typed] == [
        *(("ada", "ls -l\n", None), ("ada", "^C", None), ("bot", "x", None)),
        *(("bot", "y", effect), ("bot", "z", effect)),
    ]
    assert account.typed[0].at == AT


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"\x1b[A", "^[[A"), (b"\x7f", "^?"), (b"\x00\x1f", "^@^_"), (b"\tx\r\n", "\tx\n"), ("ä\x9b".encode(), "ä")],
)
def test_keys_that_print_nothing_are_shown_as_people_write_them(data: bytes, shown: str) -> None:
    assert [one.text for one in account_of(typed(0, 0, data)).typed] == [shown]


def test_of_too_much_the_newest_is_told_and_it_says_so() -> None:
    line = b"\x1b[32m%08d\x1b[0m\r\n"
    size = len(line % 0)
    account = account_of(
        *(printed(n * size * 100, b"".join(line % (n * 100 + m) for m in range(100))) for n in range(500))
    )
    assert account.is_cut
    assert account.text.endswith("00049999\n")
    assert len(account.text) <= TEXT_LIMIT
    assert all(len(one) == 8 and one.isdigit() for one in account.text.split("\n")[:-1])


def test_what_was_typed_is_bounded_in_number_and_in_length() -> None:
    many = account_of(*(typed(0, n, b"k", at=n * 10) for n in range(PARTS_LIMIT + 5)))
    assert (len(many.typed), many.is_cut) == (PARTS_LIMIT, True)
    long = account_of(*(typed(0, n * 1000, b"x" * 1000, at=n * 10) for n in range(200)), typed(0, 0, b"end", at=9000))
    assert sum(len(one.text) for one in long.typed) <= TYPED_LIMIT
    assert long.is_cut
    assert long.typed[-1].text == "end"
    one_go = account_of(typed(0, 0, b"y" * TYPED_LIMIT), typed(0, TYPED_LIMIT, b"end"))
    assert (len(one_go.typed[0].text), one_go.typed[0].text[-4:], one_go.is_cut) == (TYPED_LIMIT, "yend", True)


def test_changes_of_the_lease_are_bounded() -> None:
    account = account_of(*(held_by(ADA, n) for n in range(PARTS_LIMIT + 1)))
    assert (len(account.leases), account.is_cut, account.leases[-1].offset) == (PARTS_LIMIT, True, PARTS_LIMIT)


def test_signals_are_told_with_who_sent_them_and_what_was_typed_in_vain_too() -> None:
    told = account_of(typed(0, 4, b"abcde"), *SINCE_2[:3]).model_dump(by_alias=True)
    [signal] = told["signals"]
    assert (signal["operator"], signal["name"], signal["signal"], signal["offset"]) == (BOT.id, "bot", 15, 1010)
    assert [(each["from"], each["to"]) for each in told["given_up"]] == [(4, 9), (None, 9)]
    assert told["typed"][0]["input_offset"] == 4


def test_sizes_are_told_when_they_change_and_whose_window_it_was() -> None:
    account = account_of(
        Resize(AT, 0, 80, 24), Resize(AT, 5, 80, 24), Resize(after(1), 9, 132, 43, ADA), Resize(after(2), 9, 132, 43)
    )
    assert [(one.offset, one.cols, one.rows, one.operator) for one in account.sizes] == [
        (0, 80, 24, None),
        (9, 132, 43, ADA.id),
    ]
