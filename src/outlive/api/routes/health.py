"""Whether the process lives, whether it can serve, and what it counted."""

from typing import Annotated

import anyio
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_answer, to_response
from outlive.api.metrics import CONTENT_TYPE
from outlive.api.once import json_answer
from outlive.api.openapi import problems
from outlive.api.parts import parts_of, state_of
from outlive.api.shapes import Health, NoQuery, Ready
from outlive.base import UnavailableError

router = APIRouter()

READY_WITHIN_S = 5.0


@router.get("/healthz", response_model=Health, responses=problems())
async def show_health(_: Annotated[NoQuery, Query()]) -> Response:
    """The process answers."""
    return to_response(json_answer(200, {"status": "ok"}))


@router.get("/readyz", response_model=Ready, responses=problems())
async def show_readiness(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """Every part behind the API is there; if not, `parts` says which."""
    parts = parts_of(request)
    there: dict[str, bool] = {"answer in time": False}
    with anyio.move_on_after(READY_WITHIN_S):
        there = dict(await parts.readiness())
    if parts.closing.is_set():
        there["open"] = False
    if all(there.values()):
        return to_response(json_answer(200, {"ready": True, "parts": there}))
    away = ", ".join(name for name, is_there in there.items() if not is_there)
    refusal = UnavailableError("api.not_ready", f"Not ready: {away}.", retry_after_s=1)
    return to_response(to_answer(refusal, {"ready": False, "parts": there}))


@router.get(
    "/metrics",
    response_class=Response,
    responses=problems()
    | {200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def show_metrics(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """What this process counted, for Prometheus."""
    return Response(state_of(request).metrics.to_text(), headers={"content-type": CONTENT_TYPE})
