"""What is asked of a server, what is made of its answers, and that passwords stay where they belong."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from provision.errors import MissingDependencyError, UsageError
from provision.probe.prometheus import Prometheus


class Server:
    """STAND-IN: answers what a test sets, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: object = {"status": "success", "data": {"resultType": "vector", "result": []}}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        self.address = ""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            state.asked.append((parts.path, parse_qs(parts.query), self.headers.get("Authorization")))
            body = state.answer if isinstance(state.answer, bytes) else json.dumps(state.answer).encode()
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            del words

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        state.address = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield state
        http.shutdown()
        thread.join()


def vector(*rows: tuple[dict[str, str], str]) -> dict[str, object]:
    result = [{"metric": labels, "value": [10.0, value]} for labels, value in rows]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_an_answer_becomes_lines(server):
    server.answer = vector(({"node": "n1"}, "85"), ({"node": "n2"}, "40.5"))
    lines = Prometheus(server.address).ask("x > 1", at=12.5)
    assert [(line.labels, line.last) for line in lines] == [({"node": "n1"}, 85.0), ({"node": "n2"}, 40.5)]
    path, asked, _ = server.asked[0]
    assert (path, asked) == ("/api/v1/query", {"query": ["x > 1"], "time": ["12.500"]})


def test_a_span_is_asked_for_with_its_ends(server):
    row = {"metric": {}, "values": [[1, "2"], [2, "3"]]}
    server.answer = {"data": {"result": [row]}}
    lines = Prometheus(f"{server.address}/prom/").ask_span("x", start=0, end=60, step=15)
    assert lines[0].points == ((1.0, 2.0), (2.0, 3.0))
    path, asked, _ = server.asked[0]
    assert path == "/prom/api/v1/query_range"
    assert (asked["start"], asked["end"], asked["step"]) == (["0.000"], ["60.000"], ["15.000"])


def test_what_is_no_number_is_no_point(server):
    server.answer = vector(({"node": "n1"}, "NaN"), ({"node": "n2"}, "+Inf"))
    assert [line.last for line in Prometheus(server.address).ask("x")] == [None, None]


def test_control_characters_of_a_label_reach_no_terminal(server):
    server.answer = vector(({"node": "n1\x1b[31m"}, "1"))
    assert "\x1b" not in Prometheus(server.address).ask("x")[0].labels["node"]


def test_user_and_password_are_sent(server):
    Prometheus(server.address, user="gpu", password="hidden").ask("x")
    assert server.asked[0][2] == "Basic " + base64.b64encode(b"gpu:hidden").decode()


def test_a_password_is_not_sent_over_plain_http():
    with pytest.raises(UsageError, match="plain http"):
        Prometheus("http://prometheus.example:9090", user="gpu", password="hidden")


def test_a_password_does_not_follow_a_redirect(server):
    server.status, server.headers = 302, {"Location": f"{server.address}/elsewhere"}
    with pytest.raises(MissingDependencyError, match="no answer"):
        Prometheus(server.address, user="gpu", password="hidden").ask("x")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "address",
    ["prometheus.example", "file:///etc/passwd", "http://", "https://gpu:hidden@prometheus.example", "http://[::1"],
)
def test_an_address_that_cannot_be_asked_is_refused(address):
    with pytest.raises(UsageError) as caught:
        Prometheus(address)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [b"<html>", b"[]", b"{}", {"data": {"result": [{"metric": 1, "value": [1, "2"]}]}}, {"data": {"result": 3}}],
    ids=str,
)
def test_what_is_no_answer_is_worded(server, answer):
    server.answer = answer
    with pytest.raises(MissingDependencyError, match="no answer") as caught:
        Prometheus(server.address).ask("x")
    assert caught.value.because


@pytest.mark.parametrize(
    "row",
    [{"metric": {}}, {"metric": {}, "value": 3}, {"metric": {}, "value": [1]}, {"metric": {}, "value": [1, "x"]}],
    ids=str,
)
def test_a_row_that_is_none_is_worded(server, row):
    server.answer = {"data": {"result": [row]}}
    with pytest.raises(MissingDependencyError, match="no answer"):
        Prometheus(server.address).ask("x")


def test_a_locked_door_names_the_flags(server):
    server.status = 401
    with pytest.raises(MissingDependencyError) as caught:
        Prometheus(server.address).ask("x")
    assert "--password-file" in caught.value.hints[0]


def test_a_file_without_certificates_is_named(tmp_path):
    with pytest.raises(UsageError, match="certificates"):
        Prometheus("https://prometheus.example", authority=tmp_path / "none.pem")
