"""What is pinned, and how much of it there may be."""

import pytest

from outlive.base import ConflictError, ExhaustedError, NotFoundError
from outlive.conversation.events import Attachment, MessagePinned, MessageSent, MessageUnpinned, MessageWithdrawn
from outlive.loop.pinning import PINS_LIMIT, PINS_TOKENS, PinFold
from unit.loop.logs import Log


def fold_of(log: Log) -> PinFold:
    fold = PinFold()
    for event in log.events:
        fold.take(event)
    return fold


def say(log: Log, name: str, text: str = "Hi", pictures: int = 0) -> None:
    attached = [Attachment(name="a.png", media_type="image/png", size=1, blob=f"b{n}") for n in range(pictures)]
    log.append(MessageSent(message=name, text=text, attachments=attached))


def test_pins_are_in_the_order_in_which_they_were_said() -> None:
    log = Log()
    for name in ("one", "two", "three"):
        say(log, name)
    assert fold_of(log).pin("two") == MessagePinned(message="two")
    log.append(MessagePinned(message="three"))
    log.append(MessagePinned(message="one"))
    assert [pin.message for pin in fold_of(log).pins] == ["one", "three"]
    assert fold_of(log).pin("one") is None
    assert fold_of(log).unpin("two") is None
    assert fold_of(log).unpin("one") == MessageUnpinned(message="one")
    log.append(MessageUnpinned(message="one"))
    assert [pin.message for pin in fold_of(log).pins] == ["three"]


def test_what_was_withdrawn_is_not_pinned_and_a_pin_ends_with_its_message() -> None:
    log = Log()
    for name in ("one", "two"):
        say(log, name)
    log.append(MessagePinned(message="one"))
    for name in ("one", "two"):
        log.append(MessageWithdrawn(message=name))
    assert fold_of(log).pins == []
    for name in ("one", "two"):
        with pytest.raises(ConflictError, match=r"was withdrawn"):
            fold_of(log).pin(name)
    assert fold_of(log).unpin("one") is None


def test_what_is_no_message_is_not_pinned() -> None:
    with pytest.raises(NotFoundError, match=r"no message 'msg_x'"):
        fold_of(Log()).pin("msg_x")


def test_pins_are_bounded_in_number_and_in_length() -> None:
    log = Log()
    for number in range(PINS_LIMIT + 1):
        say(log, str(number))
    for number in range(PINS_LIMIT):
        log.append(MessagePinned(message=str(number)))
    with pytest.raises(ExhaustedError, match="unpin one first"):
        fold_of(log).pin(str(PINS_LIMIT))
    long = Log()
    say(long, "long", "x" * 4 * (PINS_TOKENS + 1))
    with pytest.raises(ExhaustedError, match="shorter message"):
        fold_of(long).pin("long")
    say(long, "pictures", pictures=6)
    with pytest.raises(ExhaustedError, match="shorter message"):
        fold_of(long).pin("pictures")
