"""The HTTP APIs of Prometheus and Alertmanager, with TLS and basic auth: queries, silences; what is known of hosts.

Sources: Prometheus documentation, "HTTP API", expression queries; Alertmanager's OpenAPI document, version 2.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.request import HTTPRedirectHandler, Request

from provision.errors import MissingDependencyError, ProvisionError, UsageError
from provision.generate.fleet_page import Line
from provision.probe.clean import clean_line
from provision.probe.output import FAILED, OK, Output

PROBE = "prometheus"

_ANSWER_SECONDS = 30
_ANSWER_BYTES_MAX = 256 * 1024 * 1024


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the password to whoever is named there."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        del req, fp, code, msg, headers, newurl
        return None


class _Server:
    """One server.

    Args:
        address: ``https://prometheus.example:9090``; a path before ``/api`` is kept.
        user: For basic auth, with ``password``.
        password: Sent over https, or to this machine.
        authority: File with the certificates that the server's must be signed by; the system's unless given.

    Raises:
        UsageError: The address is none that can be asked, the file of certificates cannot be read, or a password
            would be sent over the network as plain text.
    """

    TITLE: str
    EXAMPLE: str
    TRY: str
    """Path of a question that shows whether it answers."""

    def __init__(
        self, address: str, *, user: str | None = None, password: str | None = None, authority: Path | None = None
    ) -> None:
        from ssl import create_default_context
        from urllib.parse import urlsplit
        from urllib.request import HTTPSHandler, build_opener

        try:
            parts = urlsplit(address)
            host = parts.hostname
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or "@" in parts.netloc:
            # What stands before an @ is a password, and is repeated nowhere.
            said = "an address with a password in it" if "@" in address else f"`{clean_line(address)}`"
            raise UsageError(
                f"{said} is not an address of {self.TITLE}",
                hints=(f"write it as in `{self.EXAMPLE}`; name the user with --user and --password-file",),
            )
        if user is not None and parts.scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
            port = self.EXAMPLE.rpartition(":")[2]
            raise UsageError(
                "a password is not sent over plain http",
                hints=(f"ask for https, or through a tunnel to this machine: `ssh -L {port}:localhost:{port} HOST`",),
            )
        self.address = address.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if user is not None:
            pair = base64.b64encode(f"{user}:{password or ''}".encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {pair}"
        try:
            context = create_default_context(cafile=authority)
        except OSError as error:
            raise UsageError(f"--ca: {authority} holds no certificates", because=(str(error),)) from error
        self._opener = build_opener(HTTPSHandler(context=context), _NoRedirect())

    def read(self, path: str, document: Any = None, *, method: str | None = None) -> Any:
        """Return the JSON of an answer, ``None`` where there is none; a document is sent with POST.

        Raises:
            MissingDependencyError: The server does not answer, or not with JSON.
        """
        from http.client import HTTPException
        from urllib.error import HTTPError

        headers, data = self._headers, None
        if document is not None:
            headers, data = {**headers, "Content-Type": "application/json"}, json.dumps(document).encode()
        # http or https, as the constructor saw.
        request = Request(f"{self.address}{path}", data, headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                text = answer.read(_ANSWER_BYTES_MAX)
            return json.loads(text) if text.strip() else None
        except HTTPError as error:
            with error:
                why, hints = self._word(error)
            raise MissingDependencyError(f"{self.address} gave no answer", because=(why,), hints=hints) from None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise self.failure(error) from None

    def failure(self, error: Exception) -> MissingDependencyError:
        """Return what is raised for an answer that is none."""
        return MissingDependencyError(
            f"{self.address} gave no answer",
            because=(clean_line(str(getattr(error, "reason", error))) or type(error).__name__,),
            hints=(f"see whether it answers: `curl ADDRESS{self.TRY}`",),
        )

    @staticmethod
    def _word(error: Any) -> tuple[str, tuple[str, ...]]:
        if error.code in (401, 403):
            return "it asks for a user and a password", ("name them with `--user NAME --password-file FILE`",)
        if 300 <= error.code < 400:
            return "it sends us elsewhere", ("name the address that it answers at",)
        try:
            said = clean_line(str(json.loads(error.read(65536))["error"]))
        except (OSError, ValueError, KeyError, TypeError):
            said = clean_line(str(error.reason))
        return f"status {error.code}: {said}", ()


class Prometheus(_Server):
    """A server of Prometheus, or of one that answers its queries; see the base for what it takes and raises."""

    TITLE = "a Prometheus server"
    EXAMPLE = "https://prometheus.example:9090"
    TRY = "/api/v1/query?query=up"

    def ask(self, expression: str, *, at: float | None = None) -> tuple[Line, ...]:
        """Return what an expression is at one time, now unless given: lines of one point, in the server's order.

        Raises:
            MissingDependencyError: The server does not answer, or not as Prometheus does.
        """
        return self._get("query", {"query": expression} | ({"time": f"{at:.3f}"} if at is not None else {}))

    def ask_span(self, expression: str, *, start: float, end: float, step: float) -> tuple[Line, ...]:
        """Return what an expression was over a time.

        Args:
            expression: PromQL.
            start: First time, seconds since the epoch.
            end: Last time.
            step: Seconds between points.

        Raises:
            MissingDependencyError: The server does not answer, or not as Prometheus does.
        """
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._get("query_range", {"query": expression, **times})

    def _get(self, what: str, parameters: Mapping[str, str]) -> tuple[Line, ...]:
        from urllib.parse import urlencode

        document = self.read(f"/api/v1/{what}?{urlencode(parameters)}")
        try:
            return tuple(_line(row) for row in document["data"]["result"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self.failure(error) from None


class Alertmanager(_Server):
    """A server of Alertmanager, whose silences are read, made and ended; see the base for what it takes and raises."""

    TITLE = "an Alertmanager"
    EXAMPLE = "https://alertmanager.example:9093"
    TRY = "/api/v2/status"

    def silences(self, author: str) -> list[dict[str, Any]]:
        """Return the silences that an author made and that have not ended, as the server writes them.

        Raises:
            MissingDependencyError: The server does not answer, or not as Alertmanager does.
        """
        rows = self.read("/api/v2/silences")
        try:
            return [row for row in rows if row["createdBy"] == author and row["status"]["state"] != "expired"]
        except (LookupError, TypeError) as error:
            raise self.failure(error) from None

    def silence(self, document: Mapping[str, Any]) -> None:
        """Make a silence, or change the one whose ``id`` is in the document."""
        self.read("/api/v2/silences", document)

    def end_silence(self, identity: str) -> None:
        """End a silence."""
        self.read(f"/api/v2/silence/{identity}", method="DELETE")


def _line(row: Mapping[str, Any]) -> Line:
    labels = {clean_line(str(key)): clean_line(str(value)) for key, value in row["metric"].items()}
    points = row["values"] if "values" in row else [row["value"]]
    pairs = ((float(when), float(value)) for when, value in points)
    return Line(labels=labels, points=tuple(pair for pair in pairs if math.isfinite(pair[1])))


def ask_prometheus(address: str, hosts: Sequence[str]) -> dict[str, Output]:
    """Ask whether the targets of hosts are up: one query for all of them.

    Args:
        address: Of the server, ``http://prometheus.example:9090``.
        hosts: Names or addresses; a target belongs to one when its label ``node``, or its ``instance`` without the
            port, is that name.

    Returns:
        Host → what the server said of it, or why it said nothing.
    """
    try:
        lines = Prometheus(address).ask("up")
    except ProvisionError as error:
        why = "; ".join((error.message, *error.because))
        return {host: Output(probe=PROBE, status=FAILED, code=1, error=why) for host in hosts}
    return {host: Output(probe=PROBE, status=OK, code=0, text=_write(lines, host)) for host in hosts}


def _write(lines: Sequence[Line], host: str) -> str:
    """Return the lines of a host as the server's answer has them."""
    rows = [
        {"metric": dict(line.labels), "value": [when, f"{value:g}"]}
        for line in lines
        if _is_of(line.labels, host)
        for when, value in line.points
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


def _is_of(labels: Mapping[str, str], host: str) -> bool:
    instance = labels.get("instance", "")
    name, _, port = instance.rpartition(":")
    return host in (labels.get("node"), instance, name.strip("[]") if port.isdecimal() else instance)
