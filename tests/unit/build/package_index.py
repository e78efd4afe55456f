"""A package index on loopback: wheels of metadata alone, with the dates and hashes that a real one tells."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import re
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

DAY = "2024-01-01T00:00:00Z"


@dataclass
class Index:
    """What the index holds; ``asked`` are the projects that somebody wanted, ``account`` who may.

    ``has_parts`` says whether parts of files are sent.
    """

    files: dict[str, dict[str, tuple[bytes, str | None]]] = field(default_factory=dict)
    pythons: dict[str, str] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""
    account: str | None = None
    has_parts: bool = True

    def add(
        self,
        name: str,
        version: str,
        *requires: str,
        tag: str = "py3-none-any",
        day: str | None = DAY,
        requires_python: str | None = None,
        code: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Publish a wheel; ``code`` is path → text of the files in it."""
        stem = f"{name.replace('-', '_')}-{version}"
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr(f"{stem}.dist-info/METADATA", _metadata(name, version, requires))
            archive.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
            archive.writestr(f"{stem}.dist-info/RECORD", "")
            for path, text in code.items():
                archive.writestr(path, text)
        self.files.setdefault(name, {})[f"{stem}-{tag}.whl"] = (content.getvalue(), day)
        if requires_python is not None:
            self.pythons[f"{stem}-{tag}.whl"] = requires_python

    def add_source(
        self,
        name: str,
        version: str,
        *requires: str,
        script: str | None = None,
        builders: Sequence[str] = (),
        files: Mapping[str, str] = MappingProxyType({}),
        requires_python: str | None = None,
        day: str | None = DAY,
    ) -> None:
        """Publish a source distribution that says what it needs, or one whose script must be run to tell.

        Args:
            name: Of it.
            version: Of it.
            requires: What it needs.
            script: Tells what it needs, when it is run.
            builders: What it asks for to be built.
            files: Name → text of more files.
            requires_python: What the page says of the Pythons that it is for.
            day: When it was uploaded.
        """
        stem = f"{name.replace('-', '_')}-{version}"
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            texts = {
                "PKG-INFO": _metadata(name, version, requires),
                "pyproject.toml": f'[build-system]\nrequires = {json.dumps(list(builders))}\nbuild-backend = "none"\n',
                **files,
            }
            if script is not None:
                texts["PKG-INFO"] = texts["PKG-INFO"].replace("2.3", "1.0", 1)
                texts["pyproject.toml"] += 'backend-path = ["."]\n'
                texts["none.py"] = script
            for path, text in texts.items():
                info = tarfile.TarInfo(f"{stem}/{path}")
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
        self.files.setdefault(name, {})[f"{stem}.tar.gz"] = (content.getvalue(), day)
        if requires_python is not None:
            self.pythons[f"{stem}.tar.gz"] = requires_python

    def page(self, name: str) -> bytes:
        """Return the page of a project, as JSON."""
        files = [
            {
                "filename": file,
                "url": f"{self.url}/{name}/{file}",
                "hashes": {"sha256": self.stated.get(file) or hashlib.sha256(content).hexdigest()},
                "size": len(content),
                **({"upload-time": day} if day else {}),
                **({"requires-python": self.pythons[file]} if file in self.pythons else {}),
            }
            for file, (content, day) in self.files[name].items()
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()


def _metadata(name: str, version: str, requires: tuple[str, ...]) -> str:
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return f"Metadata-Version: 2.3\nName: {name}\nVersion: {version}\n{needs}"


@contextmanager
def serve(certificate: Path | None = None) -> Iterator[Index]:
    """Serve an index that can still be filled; over https, where there is a certificate with its key (PEM)."""
    index = Index()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = self.headers.get("Authorization", "").removeprefix("Basic ")
            if index.account is not None and base64.b64decode(told).decode() != index.account:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="index"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            parts = self.path.strip("/").split("/")[1:]
            content: bytes | None = None
            if len(parts) == 1 and parts[0] in index.files:
                index.asked.append(parts[0])
                content, kind = index.page(parts[0]), "application/vnd.pypi.simple.v1+json"
            elif len(parts) == 2 and parts[1] in index.files.get(parts[0], {}):
                content, kind = index.files[parts[0]][parts[1]][0], "application/octet-stream"
            if content is None:
                self.send_error(404)
                return
            whole = len(content)
            part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")) if index.has_parts else None
            if part is not None:
                start = int(part[1]) if part[1] else max(0, whole - int(part[2]))
                end = min(int(part[2]) + 1, whole) if part[1] and part[2] else whole
                content = content[start:end]
            self.send_response(206 if part is not None else 200)
            if part is not None:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{whole}")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    index.url = f"{scheme}://127.0.0.1:{server.server_port}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
