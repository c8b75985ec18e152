"""An HTTP or HTTPS server with one document. A test can replace the document, or make the server slow or
unavailable."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType

DRIP_S = 0.02


class KeyServer:
    """A server, used as a context manager.

    answer   sends the response; by default it sends `text`
    stopped  set when the server stops; slow answers wait for it
    """

    def __init__(self, text: bytes, context: ssl.SSLContext | None = None) -> None:
        self.text = text
        self.status = 200
        self.request_count = 0
        self.stopped = Event()
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self._send_text
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.request_count += 1
                served.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """Ignores errors, because some tests make clients close their connections."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}/keys"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> KeyServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the server. Afterwards nothing listens on the port."""
        if not self.stopped.is_set():
            self.stopped.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def drip(self, request: BaseHTTPRequestHandler) -> None:
        """Sends a header that slowly grows byte by byte and never ends. For use as `answer`."""
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.stopped.wait(DRIP_S):
            request.wfile.write(b"x")

    def say_nothing(self, request: BaseHTTPRequestHandler) -> None:
        """Sends nothing. For use as `answer`."""
        self.stopped.wait()

    def _send_text(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(self.status)
        request.end_headers()
        request.wfile.write(self.text)
