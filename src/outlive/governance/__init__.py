"""Who may do what. Nothing here runs an agent. See ARCHITECTURE.md."""

from outlive.governance.egress import EgressRules
from outlive.governance.egress import parse_rules as parse_egress_rules
from outlive.governance.egress_dial import Dialer, DirectDialer
from outlive.governance.egress_proxy import EgressLimits, EgressProxy, listen_for_egress
from outlive.governance.egress_records import EgressDecision, EgressDecisions, open_egress_recording
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
from outlive.governance.identity import (
    ALL_RIGHTS,
    CachedPrincipals,
    Principal,
    PrincipalKind,
    Principals,
    Right,
    Rights,
    hash_token,
    rights_of,
)

__all__ = [
    "ALL_RIGHTS",
    "Answer",
    "CachedPrincipals",
    "Claim",
    "Dialer",
    "DirectDialer",
    "EgressDecision",
    "EgressDecisions",
    "EgressLimits",
    "EgressProxy",
    "EgressRules",
    "Idempotency",
    "IdempotencyKeys",
    "KeyRow",
    "KeyScope",
    "Principal",
    "PrincipalKind",
    "Principals",
    "Right",
    "Rights",
    "decide_claim",
    "hash_token",
    "listen_for_egress",
    "open_egress_recording",
    "open_idempotency",
    "parse_egress_rules",
    "rights_of",
]
