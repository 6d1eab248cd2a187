"""A local stand-in for an external store, which no database transaction covers.

    python store.py --port 8098

PUT /fenced/NAME     {"token": 7, "value": …}: keeps the value, or answers 409 if the store has seen
                     a higher token
PUT /trusting/NAME   the same without the check: the last write wins
GET /fenced/NAME     the value that the store keeps, or 404
GET /journal         every write, and whether it was accepted
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Store:
    """The documents that the store received. Thread-safe."""

    def __init__(self) -> None:
        self.kept: dict[str, dict] = {}
        self.journal: list[dict] = []
        self._lock = threading.Lock()

    def put(self, path: str, document: dict) -> bool:
        """Compare and write in one step. The receiver only has to remember the highest token of
        each name and refuse a lower one. An equal token is a retry by the same writer."""
        with self._lock:
            seen = self.kept.get(path, {"token": -1})["token"]
            accepted = path.startswith("/trusting/") or document["token"] >= seen
            if accepted:
                self.kept[path] = document
            self.journal.append({"path": path, **document, "accepted": accepted})
            return accepted


class Handler(BaseHTTPRequestHandler):
    store: Store

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        accepted = self.store.put(self.path, json.loads(body))
        self._answer(200 if accepted else 409, {"accepted": accepted})

    def do_GET(self) -> None:
        if self.path == "/journal":
            self._answer(200, self.store.journal)
        elif self.path in self.store.kept:
            self._answer(200, self.store.kept[self.path])
        else:
            self._answer(404, {})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8098)
    Handler.store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
