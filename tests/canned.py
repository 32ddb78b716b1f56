"""A real HTTP server on loopback that answers what a test wrote down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    body: Any = ""
    """Text as it is; anything else becomes JSON."""
    status: int = 200
    breaks_off: bool = False
    """Announce more bytes than are sent, then close the connection."""
    location: str = ""


@dataclass
class CannedServer:
    replies: dict[str, Reply]
    base_url: str = ""
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    """What came in: method, path with query, body."""


@contextmanager
def canned_server(replies: dict[str, Reply]) -> Iterator[CannedServer]:
    """Serve `replies`, by path; any other path is a 404 in FastAPI's shape."""
    canned = CannedServer(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            self.answer(json.loads(self.rfile.read(length) or "null"))

        def answer(self, body: Any) -> None:
            canned.requests.append((self.command, self.path, body))
            unknown = Reply({"detail": "Not Found"}, status=404)
            reply = canned.replies.get(self.path.partition("?")[0], unknown)
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            content = text.encode()
            self.send_response(reply.status)
            self.send_header("content-length", str(len(content) + 10 * reply.breaks_off))
            if reply.location:
                self.send_header("location", reply.location)
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = reply.breaks_off

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    canned.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield canned
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
