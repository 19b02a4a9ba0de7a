"""What the guest says when it does not do what was asked. The kinds are those of the host's error tree."""

import os

WIRE_KINDS = ("invalid", "denied", "not_found", "conflict", "exhausted", "unavailable", "broken")


class RefusalError(Exception):
    def __init__(self, kind: str, code: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = f"machine.{code}"
        self.message = message


_BY_ERROR: tuple[tuple[type[OSError], str, str], ...] = (
    (FileNotFoundError, "not_found", "no_such_file"),
    (NotADirectoryError, "not_found", "no_such_file"),
    (PermissionError, "denied", "permission_denied"),
    (FileExistsError, "conflict", "file_exists"),
    (IsADirectoryError, "conflict", "is_a_directory"),
)


def refusal_of(error: OSError) -> RefusalError:
    """An error of the machine's own system, in words."""
    what = f"{error.strerror or 'it failed'}"
    if error.filename is not None:
        what += f": {os.fsdecode(error.filename)!r}" if isinstance(error.filename, str | bytes) else ""
    for kind_of_error, kind, code in _BY_ERROR:
        if isinstance(error, kind_of_error):
            return RefusalError(kind, code, what)
    return RefusalError("unavailable", "system_error", what)
