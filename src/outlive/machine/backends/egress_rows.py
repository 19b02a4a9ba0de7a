"""Decisions on egress as rows. Pure, the same for both databases; `?` stands for a value."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlive.base import to_text
from outlive.governance.egress_records import EgressDecision

INSERT = """
INSERT INTO egress_decisions (machine, n, at, connection, verdict, doc)
VALUES (?, (SELECT COALESCE(MAX(n), 0) + 1 FROM egress_decisions WHERE machine = ?), ?, ?, ?, ?)
ON CONFLICT (machine, at, connection, verdict) DO NOTHING
"""
SELECT = "SELECT n, doc FROM egress_decisions WHERE machine = ? AND n > ? ORDER BY n LIMIT ?"


def to_rows(decisions: Sequence[EgressDecision]) -> list[tuple[Any, ...]]:
    """The values of `INSERT`. What comes twice has the same machine, moment, connection and verdict."""
    return [
        (each.machine, each.machine, to_text(each.at), each.connection, each.verdict, _to_doc(each))
        for each in decisions
    ]


def _to_doc(decision: EgressDecision) -> str:
    return json.dumps({**decision._asdict(), "at": to_text(decision.at)})


def to_decision(doc: str) -> EgressDecision:
    fields = json.loads(doc)
    return EgressDecision(**fields | {"at": datetime.fromisoformat(fields["at"])})
