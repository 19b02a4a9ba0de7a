"""A web server that webhooks are posted to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Takes what is posted, but not the first `refusals` times."""

    def __init__(self, refusals: int = 1) -> None:
        self.refusals = refusals
        self.posted: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    @contextmanager
    def listening(self) -> Iterator["Receiver"]:
        posted, refusals = self.posted, self.refusals

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                posted.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(503 if len(posted) <= refusals else 204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/hook"
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
