"""STAND-IN for whoever is told of alerts: write each message of Alertmanager to a file, one JSON document a line.

Usage: receiver.py PORT FILE
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    """Takes what is posted, and says nothing of it but that it came."""

    def do_POST(self) -> None:
        """Write the message with the address that it came to."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"path": self.path, **message}) + "\n")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Keep the journal for what matters."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
