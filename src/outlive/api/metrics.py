"""What one app counts, in a Prometheus registry of its own; and the middleware that counts requests.

Labels come from closed sets only (route templates, known methods): nobody can fill our memory by asking odd things.
"""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
CONTENT_TYPE = CONTENT_TYPE_LATEST
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "outlive_http_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "outlive_http_request_seconds",
            "Time until a request was answered; streams are not counted.",
            ("route",),
            registry=self.registry,
        )
        self.messages = Counter("outlive_messages_appended", "Messages that were recorded.", registry=self.registry)
        self.followers = Gauge("outlive_followers", "Streams that are open now.", registry=self.registry)
        self.frames = Counter("outlive_stream_frames", "Frames that were sent to followers.", registry=self.registry)
        self.lag = Histogram(
            "outlive_stream_lag_seconds",
            "From the making of an event or delta to its first follower being sent it.",
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )

    def to_text(self) -> bytes:
        return generate_latest(self.registry)


class CountRequests:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = 500  # what the outermost frame answers if nobody else does

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            status = 101 if scope.get("outlive.is_taken_over") else status
            self._metrics.requests.labels(method, route, status).inc()
            if not route.endswith(("/stream", "/exec", "/attach")) and "/ports/" not in route:
                self._metrics.seconds.labels(route).observe(time.monotonic() - started)
