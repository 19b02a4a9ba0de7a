"""What is asked of a terminal is checked where it enters, and comes over the wire as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from outlive.base import EffectId, PrincipalId, new_principal_id, new_terminal_id
from outlive.machine.door import COMMAND_LIMIT, ExecRequest
from outlive.machine.terminal.door import (
    ACT,
    INPUT_LIMIT,
    Act,
    AttachTerminal,
    Close,
    Grant,
    Input,
    OpenTerminal,
    Resize,
    RunInTerminal,
    Signal,
    Take,
    Yield,
)
from outlive.machine.terminal.status import Operator

ADA = Operator(id=PrincipalId("prin_ada"), name="ada", kind="person", rights=frozenset({"observe", "type"}))
OWNED = {"terminal": new_terminal_id(), "owner": new_principal_id()}


@pytest.mark.parametrize(
    "act",
    [Take(), Yield(), Grant(operator=ADA), Resize(cols=1, rows=1000), Signal(number=2), Close()],
    ids=lambda act: act.verb,
)
def test_an_act_comes_over_the_wire_as_it_was(act: Act) -> None:
    assert ACT.validate_json(ACT.dump_json(act)) == act


@given(st.binary(max_size=200))
def test_whatever_bytes_are_typed_come_over_the_wire_as_they_were(data: bytes) -> None:
    assert ACT.validate_json(ACT.dump_json(Input(data=data))) == Input(data=data)


def test_one_input_is_bounded() -> None:
    assert len(Input(data=bytes(INPUT_LIMIT)).data) == INPUT_LIMIT
    longest = ACT.dump_json(Input(data=bytes(INPUT_LIMIT)))
    assert ACT.validate_json(longest) == Input(data=bytes(INPUT_LIMIT))
    with pytest.raises(ValidationError):
        Input(data=bytes(INPUT_LIMIT + 1))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"verb": "dance"}, {}, {"verb": "take", "force": True}, {"verb": "grant"}, {"verb": "input"}),
        *({"verb": "resize", "cols": 0, "rows": 24}, {"verb": "resize", "cols": 80, "rows": 1001}),
        *({"verb": "signal", "number": 0}, {"verb": "signal", "number": 65}),
    ],
)
def test_what_is_no_act_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ACT.validate_python(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"command": "ls", "argv": ["ls"]}, {"argv": []}, {"argv": [""]}, {"command": "a\0b"}, {"cwd": "\0"}),
        *({"env": {"": "x"}}, {"env": {"A=B": "x"}}, {"env": {"A": "\0"}}, {"command": "x" * (COMMAND_LIMIT + 1)}),
        *({"cols": 0}, {"rows": 1001}, {"user": "nobody"}, {"shell": "zsh"}),
    ],
)
def test_a_terminal_that_cannot_be_opened_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OpenTerminal.model_validate(OWNED | wrong)


@pytest.mark.parametrize("right", [{}, {"command": "ls"}, {"argv": ["ls", ""]}, {"cols": 1000, "rows": 1}])
def test_a_terminal_runs_a_shell_a_command_or_a_program(right: dict[str, object]) -> None:
    opened = OpenTerminal.model_validate(OWNED | right)
    assert OpenTerminal.model_validate_json(opened.model_dump_json()) == opened


def test_an_attachment_begins_at_an_offset_or_with_the_screen() -> None:
    assert AttachTerminal(operator=ADA).offset is None
    assert AttachTerminal(operator=ADA, offset=0, mode="type").offset == 0
    for wrong in ({"offset": -1}, {"mode": "take"}, {"client": "x" * 1000}):
        with pytest.raises(ValidationError):
            AttachTerminal.model_validate({"operator": ADA, **wrong})


def test_a_command_that_is_typed_fits_into_one_input() -> None:
    asked = RunInTerminal(effect_id=EffectId("eff-1"), command="cd /tmp\nls", operator=ADA)
    assert RunInTerminal.model_validate_json(asked.model_dump_json()) == asked
    for wrong in ({"command": ""}, {"command": "a\0"}, {"command": "ö" * (INPUT_LIMIT // 2 + 1)}, {"effect_id": "a b"}):
        with pytest.raises(ValidationError):
            RunInTerminal.model_validate({**asked.model_dump(), **wrong})


def test_a_command_outside_of_a_terminal_is_checked_the_same() -> None:
    for wrong in ({"command": "a\0"}, {"argv": [""]}, {"command": "ls", "env": {"A=": ""}}, {}):
        with pytest.raises(ValidationError):
            ExecRequest.model_validate({"effect_id": "eff-1", **wrong})
