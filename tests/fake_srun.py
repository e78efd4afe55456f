"""A stand-in for `sinfo` and `srun`: a cluster of any size whose nodes give a recorded answer of the collector.

``install`` puts both into a folder that goes on the PATH. The answers lie there as bodies of the collector's stream;
the word that an answer must carry is put in as srun gets the collector's program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.probe.output import Output

_SINFO = """#!/bin/sh
[ -z "$SINFO_STATUS" ] || exit "$SINFO_STATUS"
cat "${0%/*}/nodes"
"""
_SRUN = """#!{python} -SE
import base64, gzip, json, re, sys
from pathlib import Path

here = Path(sys.argv[0]).parent
nonce = re.search(r"END-([0-9a-f]{{16}})", sys.stdin.read())[1].encode()
said = json.loads((here / "plan.json").read_text())
with (here / "calls").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
names = next(word for word in sys.argv if word.startswith("--nodelist=")).split("=", 1)[1].split(",")
lines = {{}}
for task, name in enumerate(names):
    kind = said.get(name, "healthy")
    if kind == "silent":
        print(f"srun: error: {{name}}: task {{task}}: Exited with exit code 1", file=sys.stderr)
        continue
    if kind not in lines:
        body = (here / kind).read_bytes().replace(b"NONCE", nonce)
        packed = gzip.compress(body, 1, mtime=0)
        text = base64.encodebytes(b"@provision-collector " + nonce + b" 1 gzip\\n" + packed).decode()
        lines[kind] = text.splitlines()
    label = f"{{task:5}}: "
    sys.stdout.write("".join([label + "@node " + name + "\\n", *(label + line + "\\n" for line in lines[kind])]))
    if kind != "cut":
        sys.stdout.write(label + "@end\\n")
"""


def install(
    folder: Path,
    states: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Output]],
    plan: Mapping[str, str],
    *,
    python: str,
) -> None:
    """Make the two programs and what they answer.

    Args:
        folder: Where; it goes on the PATH.
        states: Node → state and reason as sinfo writes them (``idle|none``).
        answers: Kind → what the collector brings; ``healthy`` is what a node has that the plan does not name.
        plan: Node → kind; ``silent`` nodes say nothing.
        python: The interpreter of the stand-in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("sinfo", _SINFO), ("srun", _SRUN.format(python=python))):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "nodes").write_text("".join(f"{name}|{state}\n" for name, state in states.items()), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(dict(plan)), encoding="utf-8")
    for kind, outputs in answers.items():
        (folder / kind).write_bytes(encode(outputs))


def encode(outputs: Mapping[str, Output]) -> bytes:
    """Return the body of the collector's stream, with NONCE where the word of the call goes."""
    parts = []
    for name, row in outputs.items():
        text, error = row.text.encode(), row.error.encode()
        code = "-" if row.code is None else str(row.code)
        header = f"@record NONCE {name} {row.status} {code} {round(row.seconds * 1000)} {len(text)} {len(error)}\n"
        parts += [header.encode(), text, error, b"\n"]
    return b"".join([*parts, f"@end NONCE {len(outputs)}\n".encode()])
