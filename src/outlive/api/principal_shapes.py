"""The shapes of principals: what may be sent, and what is answered. See `shapes`."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from outlive.governance import Principal, PrincipalKind, Right
from outlive.governance.identity import NAME_LIMIT, RIGHTS

_PLAIN = r"^[^\x00-\x1f\x7f]*$"
PrincipalName = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LIMIT, pattern=_PLAIN)]


class NewPrincipal(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: PrincipalName
    kind: PrincipalKind
    rights: Annotated[
        list[Right] | None,
        Field(
            min_length=1,
            max_length=len(RIGHTS),
            description="Left out: what its kind usually has. `type` brings `observe`; the others bring both.",
        ),
    ] = None


class PrincipalsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str | None, Field(max_length=100)] = None
    name: Annotated[PrincipalName | None, Field(description="Only the one of this name.")] = None


class PrincipalShown(BaseModel):
    id: str
    name: str
    kind: PrincipalKind
    rights: list[Right]
    is_owner: bool
    created_at: str
    deleted_at: str | None


class PrincipalMade(PrincipalShown):
    token: Annotated[str | None, Field(description="Told once: null when the same Idempotency-Key asks again.")]
    hint: str | None


class PrincipalPage(BaseModel):
    items: list[PrincipalShown]
    next: str | None


def principal_json(principal: Principal) -> dict[str, Any]:
    return principal._asdict() | {"rights": [right for right in RIGHTS if right in principal.rights]}
