"""The HTTP API: its routes, and the order in which a request passes through.

errors nobody foresaw -> 500  >  count  >  gate (host, origin, token, body)  >  known errors  >  route
"""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from outlive.api.errors import (
    answer_anything,
    answer_http_exception,
    answer_outlive_error,
    answer_validation_error,
)
from outlive.api.gate import Gate
from outlive.api.metrics import CountRequests
from outlive.api.openapi import openapi_route
from outlive.api.parts import ApiParts, ApiState
from outlive.api.routes import (
    agents,
    approvals,
    artifacts,
    blobs,
    budgets,
    compaction,
    conversations,
    environments,
    events,
    health,
    machine_exec,
    machine_files,
    machine_ports,
    machines,
    messages,
    principals,
    queue,
    races,
    replays,
    steering,
    subagents,
    terminal_attach,
    terminal_history,
    terminals,
)
from outlive.base import OutliveError

_ROUTES = (
    health,
    conversations,
    messages,
    replays,
    steering,
    compaction,
    events,
    blobs,
    artifacts,
    agents,
    approvals,
    budgets,
    environments,
    machines,
    machine_exec,
    machine_files,
    machine_ports,
    principals,
    queue,
    subagents,
    terminals,
    terminal_attach,
    terminal_history,
    races,
)


def create_app(parts: ApiParts) -> FastAPI:
    """The API over `parts`. It opens nothing and needs no lifespan."""
    state = ApiState(parts)
    app = FastAPI(
        title="Outlive",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(CountRequests, metrics=state.metrics), Middleware(Gate, parts=parts)],
        exception_handlers={
            OutliveError: answer_outlive_error,
            RequestValidationError: answer_validation_error,
            HTTPException: answer_http_exception,
            Exception: answer_anything,
        },
    )
    app.state.outlive = state
    for module in _ROUTES:
        # Not `include_router`: it would build each route a second time, for every app, when the first request comes.
        # So a router has nothing but routes: what it said of dependencies or of its life would not be heard.
        app.router.routes += module.router.routes
    app.router.routes.append(openapi_route(app))
    return app
