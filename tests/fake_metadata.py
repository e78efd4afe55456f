"""A stand-in for the metadata services of five providers, on loopback: answers by path, tokens, waits for changes.

It knows what a handler has to send (a token, a header) and refuses what lacks it, as the providers' services do.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN_PATH = "/latest/api/token"
AWS_ACTION = "/latest/meta-data/spot/instance-action"
AWS_ADVICE = "/latest/meta-data/events/recommendations/rebalance"
AZURE_EVENTS = "/metadata/scheduledevents"
AZURE_NAME = "/metadata/instance/compute/name"
GCP_FLAG = "/computeMetadata/v1/instance/preempted"
ALIYUN_TIME = "/latest/meta-data/instance/spot/termination-time"
TENCENT_TIME = "/latest/meta-data/spot/termination-time"


class FakeMetadata:
    """One machine's metadata.

    Attributes:
        texts: Path → what is answered; a path that is absent is not found.
        needs: Header → value that every request has to carry.
        has_tokens: Whether requests need a token that was put out here and is still valid.
        delay_seconds: How long every answer takes.
        status: Answered to everything in place of 200, while it is set.
        lapses: Path → how many times more it is not found, whatever its text.
        seen: Method and path of every request, in order.
        posted: Bodies that were posted.
        token_lifetimes: What was asked for with each token.
        clock_ahead_seconds: How far the service's clock is ahead.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.needs: dict[str, str] = {}
        self.has_tokens = False
        self.tokens: set[str] = set()
        self.token_lifetimes: list[str] = []
        self.delay_seconds = 0.0
        self.status: int | None = None
        self.lapses: dict[str, int] = {}
        self.seen: list[tuple[str, str]] = []
        self.posted: list[str] = []
        self.clock_ahead_seconds = 0.0
        self.version = 0
        self.changed = threading.Condition()
        self.address = ""

    def say(self, path: str, text: str | dict[str, object] | None) -> None:
        """Answer with a text, or no longer."""
        with self.changed:
            if text is None:
                self.texts.pop(path, None)
            else:
                self.texts[path] = text if isinstance(text, str) else json.dumps(text)
            self.version += 1
            self.changed.notify_all()

    def wait(self, version: str, seconds: float) -> None:
        """Return once something differs from a version, or after some seconds."""
        with self.changed:
            self.changed.wait_for(lambda: str(self.version) != version, timeout=seconds)


@contextlib.contextmanager
def serve_metadata() -> Iterator[FakeMetadata]:
    """Serve it on a free port of loopback."""
    fake = FakeMetadata()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Say nothing."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(time.time() + fake.clock_ahead_seconds)

        def give(self, status: int, text: str) -> None:
            body = text.encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", str(fake.version))
                self.end_headers()
                self.wfile.write(body)

        def refuse(self) -> bool:
            time.sleep(fake.delay_seconds)
            if fake.status is not None:
                self.give(fake.status, "no")
                return True
            if any(self.headers.get(name) != value for name, value in fake.needs.items()):
                self.give(403, "a header is missing")
                return True
            if fake.has_tokens and self.headers.get("X-aws-ec2-metadata-token") not in fake.tokens:
                self.give(401, "Unauthorized")
                return True
            return False

        def do_PUT(self) -> None:
            fake.seen.append(("PUT", self.path))
            time.sleep(fake.delay_seconds)
            lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            if self.path != TOKEN_PATH or lifetime is None:
                self.give(400, "no")
                return
            fake.token_lifetimes.append(lifetime)
            token = f"token{len(fake.token_lifetimes)}"
            fake.tokens.add(token)
            self.give(200, token)

        def do_GET(self) -> None:
            fake.seen.append(("GET", self.path))
            if self.refuse():
                return
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            if query.get("wait_for_change") == ["true"]:
                fake.wait(query["last_etag"][0], float(query["timeout_sec"][0]))
            text = fake.texts.get(parts.path)
            if fake.lapses.get(parts.path, 0) > 0:
                fake.lapses[parts.path] -= 1
                text = None
            self.give(*((404, "<html>Not Found</html>") if text is None else (200, text)))

        def do_POST(self) -> None:
            fake.seen.append(("POST", self.path))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if not self.refuse():
                fake.posted.append(body)
                self.give(200, "")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
