"""Serves one page on the loopback interface, for machines without a browser."""

from __future__ import annotations

import http.server
import secrets
from pathlib import Path

__all__ = ["PageServer"]


class PageServer(http.server.ThreadingHTTPServer):
    """A server for one page at `url`, to be run with `serve_forever`; close it after use.

    The address contains a random part, because a page may contain what other users of this machine must not see.
    Port 0 means any free one. Raises `OSError` if the port is in use.
    """

    daemon_threads = True

    def __init__(self, page: Path, port: int = 0) -> None:
        self.content, self.secret = page.read_bytes(), secrets.token_urlsafe(16)
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a reader may leave before it has the whole page."""

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.secret}/"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        """Send the page, or 404 without the random part of its address."""
        if not secrets.compare_digest(self.path.encode(), f"/{self.server.secret}/".encode()):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.server.content)))
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Nothing: requests would be mixed into the terminal."""
