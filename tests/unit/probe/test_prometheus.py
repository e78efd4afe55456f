"""One query tells of all hosts, and no answer is told as such."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from provision.probe.prometheus import ask_prometheus


@pytest.fixture
def server():
    """A stand-in for Prometheus that answers one query with what the test put in."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        body = b""

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()

    def answer(*rows, body=None):
        document = {"status": "success", "data": {"resultType": "vector", "result": list(rows)}}
        Handler.body = json.dumps(document).encode() if body is None else body
        return f"http://127.0.0.1:{running.server_port}"

    yield answer, asked
    running.shutdown()
    running.server_close()
    thread.join()


def row(value, **labels):
    return {"metric": labels, "value": [1795262400.0, value]}


def found(output):
    return [entry["metric"] for entry in json.loads(output.text)["data"]["result"]]


def test_one_query_tells_of_all_hosts_by_node_or_instance(server) -> None:
    answer, asked = server
    address = answer(
        row("1", job="dcgm", node="gpu001", instance="10.0.0.1:9400"),
        row("0", job="node", instance="gpu002:9100"),
        row("1", job="node", instance="[fd00::3]:9100"),
        row("1", job="node", instance="gpu0020:9100"),
    )
    outputs = ask_prometheus(address + "/", ["gpu001", "gpu002", "fd00::3", "gpu004"])
    assert asked == ["/api/v1/query?query=up"]
    assert [len(found(outputs[host])) for host in ("gpu001", "gpu002", "fd00::3", "gpu004")] == [1, 1, 1, 0]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": {}}', b'{"data": {"result": [1]}}'])
def test_other_answers_are_no_answer(server, body) -> None:
    answer, _ = server
    output = ask_prometheus(answer(body=body), ["gpu001"])["gpu001"]
    assert output.status == "failed"
    assert "gave no answer" in output.error


def test_server_that_is_not_there_is_told() -> None:
    output = ask_prometheus("http://127.0.0.1:1", ["gpu001"])["gpu001"]
    assert (output.status, "refused" in output.error) == ("failed", True)


@pytest.mark.parametrize("address", ["file:///etc/passwd", "prometheus.example", ""])
def test_only_web_addresses_are_asked(address) -> None:
    assert "not an address" in ask_prometheus(address, ["gpu001"])["gpu001"].error


@pytest.mark.parametrize("address", ["http://prometheus:abc", "http://a b:9090", "http://[::1"])
def test_address_that_is_none_is_told(address) -> None:
    assert ask_prometheus(address, ["gpu001"])["gpu001"].status == "failed"


def test_password_is_repeated_nowhere() -> None:
    output = ask_prometheus("http://user:hunter2@127.0.0.1:1", ["gpu001"])["gpu001"]
    assert (output.status, "hunter2" in output.error) == ("failed", False)
