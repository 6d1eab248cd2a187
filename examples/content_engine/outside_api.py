"""A local stand-in for the external API that publishes posts.

    python outside_api.py --port 8099 --limit 2 --per 1.0

POST /posts          publish a post. A call that repeats an Idempotency-Key gets the first result.
                     More than --limit posts in --per seconds get 429 with Retry-After.
GET  /journal        published posts, repeated calls and refused calls
GET  /models/NAME    whether a model is available
POST /hold, /release hold back answers after posts have arrived, then send them. This shows what
                     happens to a client that dies in between
"""

import argparse
import json
import math
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Api:
    """What the API received. Thread-safe."""

    def __init__(self, limit: int, per_seconds: float) -> None:
        self.limit = limit
        self.per_seconds = per_seconds
        self.posts: list[dict] = []
        self.replayed: list[str] = []
        self.refused = 0
        self.waiting = 0
        self.answering = threading.Event()
        self.answering.set()
        self._results: dict[str, dict] = {}
        self._recent: deque[float] = deque()
        self._lock = threading.Lock()

    def publish(self, key: str, post: dict, client: str) -> tuple[int, dict, dict[str, str]]:
        """Status, body and headers."""
        with self._lock:
            if key in self._results:
                self.replayed.append(key)
                return 200, self._results[key], {"Idempotent-Replayed": "true"}
            wait = self._wait_seconds()
            if wait > 0:
                self.refused += 1
                return 429, {"error": "too many posts"}, {"Retry-After": str(math.ceil(wait))}
            self._recent.append(time.monotonic())
            result = {"id": f"remote-{len(self.posts) + 1}"}
            self.posts.append({"key": key, "client": client, "post": post, **result})
            self._results[key] = result
            return 201, result, {}

    def _wait_seconds(self) -> float:
        now = time.monotonic()
        while self._recent and self._recent[0] <= now - self.per_seconds:
            self._recent.popleft()
        full = len(self._recent) >= self.limit
        return self._recent[0] + self.per_seconds - now if full else 0.0

    def hold_back(self) -> None:
        with self._lock:
            self.waiting += 1
        self.answering.wait()
        with self._lock:
            self.waiting -= 1

    def journal(self) -> dict:
        with self._lock:
            return {
                "posts": self.posts,
                "replayed": self.replayed,
                "refused": self.refused,
                "waiting": self.waiting,
            }


class Handler(BaseHTTPRequestHandler):
    api: Api

    def do_GET(self) -> None:
        if self.path == "/journal":
            self._answer(200, self.api.journal())
        elif self.path.startswith("/models/"):
            self._answer(200, {"ready": True})
        else:
            self._answer(404, {"error": "no such page"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.path:
            case "/posts":
                key = self.headers["Idempotency-Key"]
                client = self.headers.get("User-Agent", "")
                answer = self.api.publish(key, json.loads(body), client)
                self.api.hold_back()
                self._answer(*answer)
            case "/hold":
                self.api.answering.clear()
                self._answer(200, {})
            case "/release":
                self.api.answering.set()
                self._answer(200, {})
            case _:
                self._answer(404, {"error": "no such page"})

    def _answer(self, status: int, body: dict, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except ConnectionError:
            print("the client went away before its answer", flush=True)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8099, help="0 takes any free port")
    parser.add_argument("--limit", type=int, default=2, help="posts accepted in --per seconds")
    parser.add_argument("--per", type=float, default=1.0, help="period of --limit in seconds")
    options = parser.parse_args()
    Handler.api = Api(options.limit, options.per)
    with Server(("127.0.0.1", options.port), Handler) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
