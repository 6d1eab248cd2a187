"""A local stand-in for the on-call service and the bank's repair desk.

    python oncall.py --port 8098

POST /pages     page somebody; a second page with the same "key" opens no second incident
POST /repairs   request a repair with a "token". Answers 409 if it has seen a higher token for the
                same "deadline"
GET  /journal   incidents, repeated pages, repairs and refused repairs
POST /hold, /release   hold back answers to pages, then send them. This shows what happens to a
                caller that dies in between
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Desk:
    """The pages and repairs that were received. Thread-safe."""

    def __init__(self) -> None:
        self.incidents: dict[str, dict] = {}
        self.repeated: list[dict] = []
        self.repairs: list[dict] = []
        self.refused: list[dict] = []
        self.waiting: list[dict] = []
        self.answering = threading.Event()
        self.answering.set()
        self._tokens: dict[str, int] = {}
        self._lock = threading.Lock()

    def page(self, page: dict) -> tuple[int, dict]:
        with self._lock:
            known = page["key"] in self.incidents
            if known:
                self.repeated.append(page)
            else:
                self.incidents[page["key"]] = page
            self.waiting.append(page)
        self.answering.wait()
        with self._lock:
            self.waiting.remove(page)
        return (200, {"incident": "known"}) if known else (201, {"incident": "opened"})

    def repair(self, repair: dict) -> tuple[int, dict]:
        with self._lock:
            seen = self._tokens.get(repair["deadline"], -1)
            if repair["token"] < seen:
                self.refused.append(repair)
                return 409, {"error": f"token {seen} was here before"}
            if repair["token"] > seen:
                self._tokens[repair["deadline"]] = repair["token"]
                self.repairs.append(repair)
            return 200, {}

    def journal(self) -> dict:
        with self._lock:
            return {
                "incidents": list(self.incidents.values()),
                "repeated": self.repeated,
                "repairs": self.repairs,
                "refused": self.refused,
                "waiting": self.waiting,
            }


class Handler(BaseHTTPRequestHandler):
    desk: Desk

    def do_GET(self) -> None:
        self._answer(200, self.desk.journal())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        match self.path:
            case "/pages":
                self._answer(*self.desk.page(body))
            case "/repairs":
                self._answer(*self.desk.repair(body))
            case "/hold":
                self.desk.answering.clear()
                self._answer(200, {})
            case "/release":
                self.desk.answering.set()
                self._answer(200, {})
            case _:
                self._answer(404, {"error": "no such page"})

    def _answer(self, status: int, body: dict) -> None:
        text = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except ConnectionError:
            print("the caller went away before its answer", flush=True)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8098, help="0 takes any free port")
    options = parser.parse_args()
    Handler.desk = Desk()
    with Server(("127.0.0.1", options.port), Handler) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
