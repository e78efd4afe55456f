"""An upstream of our own on the loopback interface: an index, an archive, manifests, and every way they can fail."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import struct
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

JSON = "application/vnd.pypi.simple.v1+json"
FEW = ("torch", "torchvision", "torchaudio", "triton", "cuda-toolkit")


class _Server(ThreadingHTTPServer):
    """A server that says nothing when a client has read enough and goes away: that is what range reads do."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@dataclass
class Reply:
    """One answer; ``claimed`` is a Content-Length that is not true."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    claimed: int | None = None
    has_ranges: bool = True


class Upstream:
    """A server whose every address can be set, and spoiled for the first few requests."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.faults: dict[str, list[Reply]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.sent = 0
        self.busy = self.busiest = 0
        self.hook: Callable[[str], None] | None = None
        self.pages: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                with upstream._lock:
                    upstream.busy += 1
                    upstream.busiest = max(upstream.busiest, upstream.busy)
                try:
                    upstream._answer(self)
                finally:
                    with upstream._lock:
                        upstream.busy -= 1

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, part = handler.path, handler.headers.get("Range")
        self.asked.append((path, part))
        if self.hook is not None:
            self.hook(path)
        waiting = self.faults.get(path)
        reply = waiting.pop(0) if waiting else self._reply(path)
        body, status, headers = reply.body, reply.status, dict(reply.headers)
        if headers.get("ETag") and handler.headers.get("If-None-Match") == headers["ETag"]:
            body, status = b"", 304
        elif part and status == 200 and reply.has_ranges:
            start, _, end = part.removeprefix("bytes=").partition("-")
            first = max(0, len(body) - int(end)) if not start else int(start)
            last = len(body) if not start or not end else min(len(body), int(end) + 1)
            headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(body)}"
            body, status = body[first:last], 206
        handler.send_response(status)
        handler.send_header("Content-Type", reply.kind)
        handler.send_header("Content-Length", str(len(body) if reply.claimed is None else reply.claimed))
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.end_headers()
        try:
            handler.wfile.write(body)
            self.sent += len(body)
        except OSError:
            pass
        if reply.claimed is not None:
            handler.close_connection = True

    def _reply(self, path: str) -> Reply:
        if path in self.replies:
            return self.replies[path]
        name = path.removeprefix("/simple/").strip("/")
        if path.startswith("/simple/") and name in self.pages:
            return Reply(json.dumps(self.pages[name]).encode(), kind=JSON)
        return Reply(b"nothing here", 404, "text/plain")

    # the index

    @property
    def index(self) -> str:
        return f"{self.url}/simple"

    def recall(self, folder: Path, *names: str) -> None:
        """Serve the pages that the facts were read from: every known wheel, its metadata beside it."""
        for name in names:
            document = json.loads((folder / "wheels" / f"{name}.json").read_text(encoding="utf-8"))
            page = self.page(name)
            for release in document["releases"]:
                if release["index"] != "pypi":
                    continue
                for wheel in release["wheels"]:
                    row = self._row(wheel["file"], wheel["sha256"], wheel.get("size"), wheel.get("uploaded"))
                    row["requires-python"] = release.get("requires_python")
                    row["yanked"] = bool(release.get("yanked"))
                    row["core-metadata"] = True
                    page["files"].append(row)
                    path = f"/files/{wheel['file']}.metadata"
                    self.replies[path] = Reply(metadata_of(name, release["version"], release.get("requires", [])))

    def page(self, name: str) -> dict[str, Any]:
        return self.pages.setdefault(name, {"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": []})

    def _row(self, file: str, sha256: str, size: int | None, uploaded: str | None) -> dict[str, Any]:
        row: dict[str, Any] = {"filename": file, "url": f"{self.url}/files/{file}", "hashes": {"sha256": sha256}}
        if size is not None:
            row["size"] = size
        if uploaded is not None:
            row["upload-time"] = uploaded
        return row | {"yanked": False, "requires-python": None}

    def row(self, file: str) -> dict[str, Any]:
        """Return the row of a file on its page, to spoil it."""
        for page in self.pages.values():
            for row in page["files"]:
                if row["filename"] == file:
                    return row
        raise AssertionError(file)

    def rows(self, name: str, version: str) -> list[dict[str, Any]]:
        stem = f"{name.replace('-', '_')}-{version}-"
        return [row for row in self.pages[name]["files"] if row["filename"].startswith(stem)]

    def publish(
        self,
        name: str,
        version: str,
        tag: str,
        requires: tuple[str, ...] = (),
        members: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Put a wheel onto the index."""
        stem = name.replace("-", "_")
        file = f"{stem}-{version}-{tag}.whl"
        content = wheel_of(name, version, requires, members or {})
        self.replies[f"/files/{file}"] = Reply(content)
        row = self._row(file, hashlib.sha256(content).hexdigest(), len(content), "2026-11-21T08:00:00Z") | fields
        self.page(name)["files"].append(row)
        return row

    def publish_torch(self, version: str, requires: tuple[str, ...], pythons: tuple[str, ...] = ("312",)) -> None:
        """Put a torch with a CUDA build for both machines onto the index."""
        for machine, targets in (("x86_64", "sm_80 sm_90 compute_90"), ("aarch64", "sm_90 sm_100")):
            for python in pythons:
                tag = f"cp{python}-cp{python}-manylinux_2_28_{machine}"
                self.publish("torch", version, tag, requires, torch_members(targets), **{"requires-python": ">=3.11"})


def metadata_of(name: str, version: str, requires: list[list[str]]) -> bytes:
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    for target, bound, marker, extra in requires:
        conditions = [f"({marker})"] if marker else []
        conditions += [f'extra == "{extra}"'] if extra else []
        lines.append(f"Requires-Dist: {target}{bound}" + (f" ; {' and '.join(conditions)}" if conditions else ""))
    return "\n".join(lines).encode() + b"\n\nA description.\n"


def wheel_of(name: str, version: str, requires: tuple[str, ...] = (), members: dict[str, bytes] | None = None) -> bytes:
    stem = f"{name.replace('-', '_')}-{version}"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {row}" for row in requires)]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in {
            **(members or {}),
            f"{stem}.dist-info/METADATA": "\n".join(lines).encode() + b"\n",
        }.items():
            info = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return packed.getvalue()


def torch_members(targets: str) -> dict[str, bytes]:
    return {
        "torch/version.py": b"from typing import Optional\n__version__ = 'x'\ncuda: Optional[str] = '13.2'\n",
        "torch/lib/libc10.so": b"\x7fELF\x00GLIBC_2.14\x00GLIBC_2.17\x00GLIBC_2.2.5\x00",
        "torch/lib/libtorch_python.so": b"\x7fELF" + b"\x01" * 3_000_000 + b"\x00" + targets.encode() + b"\x00rest",
        "torch/share/cmake/Torch/TorchConfig.cmake": b"set(TORCH_CXX_FLAGS)\n",
    }


def fatbin_of(*targets: str, code: bytes = b"code" * 9) -> bytes:
    """Return a container as nvcc puts it into compiled files; what is called `other_80` is of no kind that runs."""
    entries = b""
    for target in targets:
        kind, _, number = target.partition("_")
        flags = 0x11 | (1 << 20 if number.endswith("a") else 1 << 21 if number.endswith("f") else 0)
        which = {"sm": 2, "compute": 1}.get(kind, 16)
        padded = code + b"\0" * (-len(code) % 8)
        entries += struct.pack("<HHIQ12xI8xQ16x", which, 257, 64, len(padded), int(number.rstrip("af")), flags) + padded
    return b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(entries)) + entries


# an archive for apt


def stanza(package: str, version: str, **fields: str) -> str:
    rows = {"Package": package, "Architecture": "amd64", "Version": version, **fields}
    return "".join(f"{key}: {value}\n" for key, value in rows.items()) + "\n"


def archive(upstream: Upstream, root: str, suite: str, lists: dict[str, str]) -> None:
    """Serve one suite: packed lists, and an InRelease that names their hashes."""
    lines = []
    for component, text in lists.items():
        packed = gzip.compress(text.encode(), mtime=0)
        path = f"{component}/binary-amd64/Packages.gz"
        upstream.replies[f"/{root}/dists/{suite}/{path}"] = Reply(packed)
        lines.append(f" {hashlib.sha256(packed).hexdigest()} {len(packed)} {path}")
    text = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n"
    text += f"Origin: test\nSuite: {suite}\nSHA256:\n" + "\n".join(lines)
    text += (
        "\n-----BEGIN PGP SIGNATURE-----\n\n" + base64.b64encode(b"x" * 30).decode() + "\n-----END PGP SIGNATURE-----\n"
    )
    upstream.replies[f"/{root}/dists/{suite}/InRelease"] = Reply(text.encode(), kind="text/plain")
