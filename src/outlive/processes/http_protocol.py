"""HTTP below the application: what uvicorn does, with bounds, and with our problems instead of its plain text.

Rule 1: what comes before the end of the headers is bounded in bytes and in time. Nobody has shown a token there yet.
Rule 2: a body that goes on after its answer is read and thrown away, so that its sender can read the answer; within
        bounds too. Closing a connection with bytes unread resets it, and the answer is lost.
Rule 3: an upgrade is taken up by whoever answers the request (`outlive.take_over`), or by nobody.
Rule 4: a connection that waits for its sender always has one timer: uvicorn's between requests, else ours.
"""

from asyncio import TimerHandle, Transport
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outlive.api import HEADERS_LIMIT, HEADERS_TOO_LARGE, HEADERS_TOO_SLOW, UNREADABLE, RawStream
from outlive.governance import Answer

HEADERS_S = 15.0  # from the first byte of a request, or from the start of the connection, to the end of its headers
DISCARD_LIMIT = 256 * 1024 * 1024  # bytes of a body after its answer
DISCARD_S = 60.0
LINGER_S = 2.0  # for the sender of what is no request to read what was wrong


class ProblemProtocol(HttpToolsProtocol):
    _timer: TimerHandle | None = None
    _unfinished = 0  # bytes that have not become headers or body yet
    _discarded = 0
    _is_in_body = False  # the headers are complete, the message is not
    _is_refused = False
    _refusal = UNREADABLE

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer(HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused or (self._is_in_body and self.cycle.response_complete):
            self._discarded += len(data)
            if self._discarded > DISCARD_LIMIT:
                self.transport.abort()
                return
            if self._is_refused:
                return
        self._unfinished += len(data)
        super().data_received(data)
        if self._is_refused:
            return
        if self._unfinished > HEADERS_LIMIT:
            self._refuse(HEADERS_TOO_LARGE)
        elif self._timer is None and not self._is_in_body and (self.cycle is None or self.cycle.response_complete):
            # Something came that is no request yet, and it ended uvicorn's timer.
            self._set_timer(HEADERS_S)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["outlive.connection"] = self.transport  # type: ignore[typeddict-unknown-key]
        self.scope["outlive.take_over"] = self._take_over  # type: ignore[typeddict-unknown-key]

    def _take_over(self) -> RawStream:
        """Hand the connection to whoever answers the present request: HTTP is over on it."""
        self._unset_timer()
        self._unset_keepalive_if_required()
        self.cycle.disconnected = True  # so that no answer is missed when the request ends
        self.scope["outlive.is_taken_over"] = True  # type: ignore[typeddict-unknown-key]
        self.connections.discard(self)
        return RawStream(self.transport)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade that nobody takes up is answered as if it had not been asked for."""

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a chunked body is no header: the request has been judged by then.
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # They may have come in one piece, with a body behind them; only then are they measured.
        if self._unfinished > HEADERS_LIMIT:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEADERS_LIMIT:
                self._refusal = HEADERS_TOO_LARGE
                raise _TooLargeError  # the parser stops, and uvicorn calls `send_400_response`
        self._unfinished = 0
        self._is_in_body = True
        self._unset_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = self._discarded = 0
        self._is_in_body = False
        self._unset_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._set_timer(DISCARD_S)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _refuse(self, answer: Answer) -> None:
        """Say what was wrong and hear no more of it."""
        self._is_refused = True
        self._unset_timer()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # in the middle of another answer
            return
        headers = [*answer.headers, ("content-length", str(len(answer.body))), ("connection", "close")]
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        status = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        self.transport.write(f"{status}{lines}\r\n".encode() + answer.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(LINGER_S)

    def _set_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._run_out)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_out(self) -> None:
        self._timer = None
        if self._unfinished and not self._is_in_body and not self._is_refused:
            self._refuse(HEADERS_TOO_SLOW)
        else:
            self.transport.close()


class _TooLargeError(Exception):
    pass
