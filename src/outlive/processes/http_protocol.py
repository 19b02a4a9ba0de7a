"""What our server says to bytes that are no HTTP: a problem, like every other error of the API.

uvicorn answers those itself, in plain text, before any application sees them.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outlive.api import UNREADABLE


class ProblemProtocol(HttpToolsProtocol):
    def send_400_response(self, msg: str) -> None:
        headers = [*UNREADABLE.headers, ("content-length", str(len(UNREADABLE.body))), ("connection", "close")]
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(f"HTTP/1.1 {UNREADABLE.status} Bad Request\r\n{lines}\r\n".encode() + UNREADABLE.body)
        self.transport.close()
