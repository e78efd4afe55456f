"""Bridge from the play to ``provision``: the collector's program out, its judgement back. Runs on the controller.

``judge.py compose LEVEL [PYTHON]`` prints ``{"nonce": …, "program": …}``; ``judge.py verdict`` reads one JSON document
from standard input (``nonce``, ``answer`` in base64, ``level``, ``expect``, ``host``, ``folder``) and prints what
``provision verify`` says of it. There is no check here: the checks are those of the command.

Where the ``provision`` package is not in Ansible's own environment, the interpreter of the ``provision`` command on the
``PATH`` is taken. Exit code 7: neither is there.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ABSENT = 7


def find_package() -> None:
    """Make sure that ``provision`` can be imported, if need be by becoming its command's interpreter."""
    if importlib.util.find_spec("provision") is not None:
        return
    command = shutil.which("provision")
    if command and "PROVISION_JUDGE" not in os.environ:
        with open(command, "rb") as file:
            first = file.readline(4096)
        words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
        if words and "python" in words[0] and os.access(words[0], os.X_OK):
            os.environ["PROVISION_JUDGE"] = "1"
            os.execv(words[0], [words[0], *sys.argv])  # noqa: S606
    print("the `provision` command is not on the controller", file=sys.stderr)
    raise SystemExit(ABSENT)


def compose_program(level: str, python: str | None) -> dict[str, str]:
    """Return the collector's program and the word that its answer must carry."""
    from provision.probe.compose import CollectOptions, compose, new_nonce

    options = CollectOptions(nonce=new_nonce(), level=level, python=python or None)
    return {"nonce": options.nonce, "program": compose(options).decode()}


def give_verdict(request: dict[str, Any]) -> dict[str, Any]:
    """Return the report of ``provision verify`` on one answer of the collector."""
    from provision.cli.main import main
    from provision.probe.bundle import write_bundle
    from provision.probe.snapshot import Snapshot
    from provision.probe.stream import StreamError, decode_stream

    try:
        outputs = decode_stream(base64.b64decode(request["answer"]), request["nonce"])
    except StreamError as error:
        return {"code": 6, "error": str(error.reason), "document": None}
    snapshot = Snapshot(request["host"], {output.probe: output for output in outputs})
    with tempfile.TemporaryDirectory() as folder:
        bundle, expect = Path(folder, "node.tar.gz"), Path(folder, "expect.toml")
        write_bundle(bundle, [snapshot])
        if request.get("folder"):
            kept = Path(request["folder"])
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle, kept / (request["host"] + ".tar.gz"))
        expect.write_text(write_toml(request["expect"]), encoding="utf-8")
        words = ["verify", "--from", str(bundle), "--expect", str(expect), "--level", request["level"], "--json"]
        words += [word for name in request.get("skip") or [] for word in ("--skip", name)]
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                code = main(words)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
    try:
        document = json.loads(output.getvalue())
    except ValueError:
        return {"code": code or 1, "error": errors.getvalue().strip()[-2000:], "document": None}
    return {"code": code, "error": "", "document": document}


def write_toml(values: dict[str, Any]) -> str:
    """Return a mapping of scalars, lists and tables of text as TOML; JSON's strings are TOML's."""
    plain = [(key, value) for key, value in sorted(values.items()) if not isinstance(value, dict) and value is not None]
    tables = [(key, value) for key, value in sorted(values.items()) if isinstance(value, dict) and value]
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain]
    for key, table in tables:
        lines.append(f"[{key}]")
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in sorted(table.items())]
    return "\n".join(lines) + "\n"


def run(words: list[str]) -> int:
    """Do what the command line says."""
    find_package()
    if words[:1] == ["compose"]:
        json.dump(compose_program(words[1], words[2] if len(words) > 2 else None), sys.stdout)
    else:
        json.dump(give_verdict(json.load(sys.stdin)), sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
