"""The shapes of the API about what a machine reached, and was refused. As in `shapes`."""

from typing import Any

from pydantic import BaseModel

from outlive.base import to_text
from outlive.governance.egress_records import EgressDecision, Verdict


class EgressShown(BaseModel):
    """`method` and `host` are what something in the machine wrote: text of a stranger."""

    n: int
    at: str
    connection: int
    method: str
    host: str
    port: int
    verdict: Verdict
    reason: str
    address: str | None
    bytes_up: int
    bytes_down: int


class EgressPage(BaseModel):
    items: list[EgressShown]
    next: int | None


def egress_json(n: int, decision: EgressDecision) -> dict[str, Any]:
    told = decision._asdict()
    del told["machine"]
    return {"n": n, **told, "at": to_text(decision.at)}
