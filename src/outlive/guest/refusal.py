"""What the guest says when it does not do what was asked. The kinds are those of the host's error tree.

How a code of ours is called towards clients is in the host's table (`machine/guest_link/refusals.py`): a new one needs
a row there.
"""

import errno
import os


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
_BY_NUMBER: dict[int, tuple[str, str]] = {
    **dict.fromkeys((errno.E2BIG, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG), ("invalid", "bad_request")),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), ("exhausted", "disk_full")),
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE), ("exhausted", "no_room")),
    errno.ENOEXEC: ("invalid", "not_a_program"),
    errno.ENOTEMPTY: ("conflict", "not_empty"),
    errno.EROFS: ("denied", "read_only"),
    errno.EXDEV: ("conflict", "another_filesystem"),
    errno.ETXTBSY: ("conflict", "busy"),
    errno.EBUSY: ("conflict", "busy"),
}


def refusal_of(error: OSError) -> RefusalError:
    """An error of the machine's own system, in words."""
    what = f"{error.strerror or 'it failed'}"
    if error.filename is not None:
        what += f": {os.fsdecode(error.filename)!r}" if isinstance(error.filename, str | bytes) else ""
    for kind_of_error, kind, code in _BY_ERROR:
        if isinstance(error, kind_of_error):
            return RefusalError(kind, code, what)
    kind, code = _BY_NUMBER.get(error.errno or 0, ("unavailable", "system_error"))
    return RefusalError(kind, code, what)
