"""Says at the end of a run which files and functions have outgrown the soft limits; the hard ones are tests."""

import pytest

from style.sizes import SOFT_FILE_LINES, SOFT_FUNCTION_LINES, file_sizes, function_sizes


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    grown = [f"{size.lines:5} {size.name}" for size in file_sizes() if size.lines > SOFT_FILE_LINES]
    grown += [f"{size.lines:5} {size.name}" for size in function_sizes() if size.lines > SOFT_FUNCTION_LINES]
    if grown:
        terminalreporter.write_line(
            f"over the soft limits (file {SOFT_FILE_LINES}, function {SOFT_FUNCTION_LINES} lines):"
        )
        for line in grown:
            terminalreporter.write_line(line)
