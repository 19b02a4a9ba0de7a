"""The error tree: one root, closed kinds, and the kind alone decides on a retry."""

import pytest

from outlive.base import KINDS, OutliveError, UnavailableError
from outlive.base import errors as module

CONCRETE = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, OutliveError)]
CONCRETE.remove(OutliveError)


def below(cls: type[OutliveError]) -> set[type[OutliveError]]:
    return {cls} | {leaf for child in cls.__subclasses__() for leaf in below(child)}


def test_the_root_is_abstract() -> None:
    with pytest.raises(TypeError):
        OutliveError("some.code", "Some message.")


def test_every_kind_has_its_class_and_every_class_its_kind() -> None:
    assert {cls.kind for cls in CONCRETE} == set(KINDS)
    assert len(CONCRETE) == len(KINDS)
    for cls in below(OutliveError) - {OutliveError}:
        assert cls.kind in KINDS, cls


def test_every_class_is_exported_and_drawn_in_the_tree() -> None:
    import outlive.base

    assert module.__doc__ is not None
    for cls in CONCRETE:
        assert cls.__name__ in outlive.base.__all__
        assert f" {cls.__name__} " in module.__doc__
        assert cls.__name__ == "".join(word.capitalize() for word in cls.kind.split("_")) + "Error"


@pytest.mark.parametrize("cls", CONCRETE, ids=lambda cls: cls.__name__)
def test_only_what_may_pass_by_itself_is_worth_another_try(cls: type[OutliveError]) -> None:
    error = cls("some.code", "Some message.")
    assert error.is_retryable == (error.kind in ("unavailable", "deadline"))


def test_an_error_carries_its_code_its_sentence_and_its_facts() -> None:
    error = UnavailableError("store.away", "The store is away.", retry_after_s=2.5, attempt=3, place="here")
    assert str(error) == error.message == "The store is away."
    assert (error.code, error.retry_after_s, error.facts) == ("store.away", 2.5, {"attempt": 3, "place": "here"})
    assert UnavailableError("store.away", "The store is away.").retry_after_s is None
