"""Nothing grows until review stops."""

from style.sizes import HARD_FILE_LINES, HARD_FUNCTION_LINES, file_sizes, function_sizes


def test_no_file_is_longer_than_the_hard_limit() -> None:
    sizes = file_sizes()
    assert sizes
    assert [size for size in sizes if size.lines > HARD_FILE_LINES] == []


def test_no_function_is_longer_than_the_hard_limit() -> None:
    sizes = function_sizes()
    assert sizes
    assert [size for size in sizes if size.lines > HARD_FUNCTION_LINES] == []
