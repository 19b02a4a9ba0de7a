"""What a guest refuses, as one of our errors: the only place where its words become codes that clients rely on.

A guest is a stranger, and may be older or newer than we are: it sleeps and wakes with its machine. So no code of its
own is passed on. It is looked up here, where the kind of the error stands too; what is not here is one and the same
refusal. So no guest speaks in our name (`machine.hibernated`, `machine.fenced`), on which those who ask would act.
"""

from typing import NamedTuple

from outlive.base import (
    ConflictError,
    DeniedError,
    ExhaustedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnavailableError,
)

MESSAGE_LIMIT = 1000


class Refusal(NamedTuple):
    error: type[OutliveError]
    code: str


KINDS = frozenset({"invalid", "denied", "not_found", "conflict", "exhausted", "unavailable", "broken"})
UNKNOWN = Refusal(ConflictError, "machine.guest_refused")
NOT_STARTED = "machine.not_started"

REFUSALS: dict[str, Refusal] = {
    # files
    "machine.no_such_file": Refusal(NotFoundError, "file.unknown"),
    "machine.permission_denied": Refusal(DeniedError, "file.denied"),
    "machine.read_only": Refusal(DeniedError, "file.read_only"),
    "machine.is_a_directory": Refusal(ConflictError, "file.is_a_directory"),
    "machine.not_a_directory": Refusal(ConflictError, "file.not_a_directory"),
    "machine.not_a_file": Refusal(ConflictError, "file.not_a_file"),
    "machine.file_exists": Refusal(ConflictError, "file.exists"),
    "machine.not_empty": Refusal(ConflictError, "file.not_empty"),
    "machine.another_filesystem": Refusal(ConflictError, "file.another_filesystem"),
    "machine.busy": Refusal(ConflictError, "file.busy"),
    "machine.withdrawn": Refusal(ConflictError, "file.cut_off"),
    # ports
    "machine.port_closed": Refusal(UnavailableError, "port.refused"),
    # commands
    "machine.effect_unknown": Refusal(NotFoundError, "effect.unknown"),
    "machine.command_over": Refusal(ConflictError, "effect.over"),
    "machine.command_runs": Refusal(ConflictError, "effect.under_way"),
    "machine.no_stdin": Refusal(ConflictError, "effect.no_stdin"),
    "machine.too_many_commands": Refusal(ExhaustedError, "machine.too_many_commands"),
    "machine.ledger_full": Refusal(ExhaustedError, "machine.ledger_full"),
    # programs
    NOT_STARTED: Refusal(InvalidError, "machine.not_started"),
    "machine.no_directory": Refusal(InvalidError, "machine.no_directory"),
    "machine.no_such_user": Refusal(InvalidError, "machine.no_such_user"),
    "machine.no_descriptors": Refusal(ExhaustedError, "machine.no_descriptors"),
    "machine.not_a_program": Refusal(InvalidError, "machine.not_started"),
    # terminals
    "machine.terminal_unknown": Refusal(NotFoundError, "machine.terminal_unknown"),
    "machine.terminal_over": Refusal(ConflictError, "machine.terminal_over"),
    "machine.too_many_terminals": Refusal(ExhaustedError, "machine.too_many_terminals"),
    "machine.too_many_attachments": Refusal(ExhaustedError, "machine.too_many_attachments"),
    # all of it
    "machine.disk_full": Refusal(ExhaustedError, "machine.disk_full"),
    "machine.no_room": Refusal(ExhaustedError, "machine.no_room"),
    "machine.system_error": Refusal(UnavailableError, "machine.system_error"),
    "machine.bad_request": Refusal(InvalidError, "machine.bad_request"),
    "machine.unknown_verb": Refusal(InvalidError, "machine.unknown_verb"),
}
# Why a program did not start is in the kind that the guest says.
NOT_STARTED_AS: dict[str, Refusal] = {
    "not_found": Refusal(InvalidError, "machine.no_such_program"),
    "exhausted": Refusal(ExhaustedError, "machine.no_process"),
}


def refused(kind: str, code: str, message: str) -> OutliveError:
    """The text is the machine's own word."""
    found = REFUSALS.get(code, UNKNOWN)
    if code == NOT_STARTED:
        found = NOT_STARTED_AS.get(kind, found)
    return found.error(found.code, message[:MESSAGE_LIMIT])
