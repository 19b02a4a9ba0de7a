"""Who may do what. Nothing here runs an agent. See ARCHITECTURE.md."""

from outlive.governance.idempotency import (
    Answer,
    Claim,
    Idempotency,
    IdempotencyKeys,
    KeyRow,
    KeyScope,
    decide_claim,
    open_idempotency,
)
from outlive.governance.identity import CachedPrincipals, Principal, PrincipalKind, Principals, hash_token

__all__ = [
    "Answer",
    "CachedPrincipals",
    "Claim",
    "Idempotency",
    "IdempotencyKeys",
    "KeyRow",
    "KeyScope",
    "Principal",
    "PrincipalKind",
    "Principals",
    "decide_claim",
    "hash_token",
    "open_idempotency",
]
