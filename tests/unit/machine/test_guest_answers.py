"""How a guest may call its refusals: by its own codes, and by none that the host acts on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import outlive.guest
from outlive.base import OutliveError
from outlive.guest import refusal
from outlive.machine.caller import MOVED
from outlive.machine.guest_link.answers import open_answer


def _codes_of_the_guest() -> Iterator[str]:
    yield from (code for _, _, code in refusal._BY_ERROR)
    yield from (code for _, code in refusal._BY_NUMBER.values())
    yield "system_error"
    for path in Path(outlive.guest.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="RefusalError"), args=[_, ast.Constant(value=str(code)), *_]):
                    yield code


def _told(code: str) -> str:
    answer = open_answer({"error": {"kind": "conflict", "code": code, "message": "no"}})
    assert isinstance(answer, OutliveError)
    return answer.code


def test_every_code_of_the_guest_is_told_and_none_that_callers_act_on() -> None:
    told = {code: _told(f"machine.{code}") for code in _codes_of_the_guest()}
    assert len(told) > 20
    assert "machine.guest_refused" not in told.values()
    assert not MOVED & set(told.values())
    for code in MOVED | {"machine.hibernated", "machine.stream_closed"}:
        assert _told(code) not in MOVED | {code}
