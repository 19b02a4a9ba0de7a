"""Take what a request says apart, with a refusal for what is not as it should be."""

from outlive.guest.refusal import RefusalError
from outlive.guest.wire import Words


def _wrong(name: str, wanted: str) -> RefusalError:
    return RefusalError("invalid", "bad_request", f"{name!r} must be {wanted}.")


def text(words: Words, name: str, default: str | None = None) -> str:
    value = words.get(name, default)
    if not isinstance(value, str):
        raise _wrong(name, "text")
    if "\0" in value:
        raise _wrong(name, "without NUL")
    return value


def maybe_text(words: Words, name: str) -> str | None:
    return None if words.get(name) is None else text(words, name)


def whole(words: Words, name: str, default: int | None = None) -> int:
    value = words.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(name, "a whole number")
    return value


def maybe_whole(words: Words, name: str) -> int | None:
    return None if words.get(name) is None else whole(words, name)


def number(words: Words, name: str) -> float:
    value = words.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise _wrong(name, "a number")
    return float(value)


def maybe_number(words: Words, name: str) -> float | None:
    return None if words.get(name) is None else number(words, name)


def flag(words: Words, name: str) -> bool:
    value = words.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def texts(words: Words, name: str) -> list[str]:
    value = words.get(name)
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(part, str) and "\0" not in part for part in value)
    ):
        raise _wrong(name, "a list of texts")
    return value


def table(words: Words, name: str) -> dict[str, str]:
    value = words.get(name) or {}
    if not isinstance(value, dict) or not all(
        isinstance(word, str) and "\0" not in word and "=" not in name for name, word in value.items()
    ):
        raise _wrong(name, "a table of texts")
    return value


def signal_number(words: Words) -> int:
    found = whole(words, "signal")
    if not 0 < found < 65:
        raise RefusalError("invalid", "bad_request", f"There is no signal {found}.")
    return found
