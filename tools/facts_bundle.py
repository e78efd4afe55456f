"""Pack compat/ for `provision data update`: the same facts give the same bytes.

usage: python -m tools.facts_bundle FILE.tar.gz [--key PRIVATE_KEY]

With a key the archive is signed by `ssh-keygen -Y sign`, and FILE.tar.gz.sig lies beside it.
"""

from __future__ import annotations

import argparse
import gzip
import io
import subprocess
import sys
import tarfile
from pathlib import Path

from provision.refresh.bundle import NAMESPACE

COMPAT = Path(__file__).resolve().parents[1] / "compat"


def pack(folder: Path) -> bytes:
    """Return a folder of facts as a gzipped tar, sorted by name, without times and owners."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def main(words: list[str] | None = None) -> int:
    """Write the archive, and its signature where there is a key."""
    parser = argparse.ArgumentParser(description="Pack the facts for `provision data update`.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--key", type=Path, help="private key of OpenSSH to sign it with")
    parser.add_argument("--folder", type=Path, default=COMPAT, help="facts to pack, compat/ unless named")
    options = parser.parse_args(words)
    options.file.write_bytes(pack(options.folder))
    if options.key is not None:
        signature = Path(f"{options.file}.sig")
        signature.unlink(missing_ok=True)
        words = ["ssh-keygen", "-q", "-Y", "sign", "-f", options.key, "-n", NAMESPACE, options.file]
        return subprocess.run(words, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
