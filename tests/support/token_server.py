"""A bearer token issuer that answers every request with the same JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


@dataclass(slots=True)
class TokenServer:
    url: str = ""
    body: str = ""
    authorization: str = ""


@contextmanager
def token_server(answer: Mapping[str, str], status: int = 200) -> Iterator[TokenServer]:
    received = TokenServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.authorization = self.headers["Authorization"]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}/token"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
