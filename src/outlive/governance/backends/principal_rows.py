"""Principals as rows: which columns, in which order, and what they mean. Shared by every database."""

from collections.abc import Sequence
from typing import Any

from outlive.governance.identity import ALL_RIGHTS, RIGHTS, Principal, Rights

COLUMNS = "p.id, p.name, p.kind, p.rights, p.created_at, p.is_owner, p.deleted_at"


def to_principal(row: Sequence[Any]) -> Principal:
    """From the values of `COLUMNS`. The owner may do all there is, also what did not exist when it was made."""
    id, name, kind, rights, created_at, is_owner, deleted_at = row
    known = ALL_RIGHTS if is_owner else frozenset(right for right in RIGHTS if right in rights.split())
    return Principal(id, name, kind, known, created_at, bool(is_owner), deleted_at)


def rights_text(rights: Rights) -> str:
    return " ".join(right for right in RIGHTS if right in rights)
