"""Make stand-ins for the archive of nccl-tests, and tell the site where the whole one lies.

What they hold is not nccl-tests: a Makefile that writes down how make was called and makes a script that says so. They
lie beside the inventory of the scenario, each with its digest in ``stand-ins.json``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

import inventory

MAKEFILE = r"""# STAND-IN for nccl-tests, made by a scenario: it compiles nothing.
default: build/all_reduce_perf
build:
	@mkdir $@
build/all_reduce_perf: label | build
	@$(CUDA_HOME)/bin/nvcc --version >build/toolkit
	@$(file >build/flags,$(MAKEFLAGS))$(file >build/gencode,$(NVCC_GENCODE))
	@{ echo '#!/bin/sh'; echo "echo STAND-IN $$(cat label)"; } >$@
	@chmod +x $@
"""
BREAKS = MAKEFILE.replace(
    "\t@chmod", "\t@echo 'nvcc fatal   : STAND-IN has no such architecture' >&2; exit 1\n\t@chmod"
)
MAKES_ANOTHER = MAKEFILE.replace("build/all_reduce_perf", "build/another_perf")
OTHERS_NUMBER = 12345
"""Whom the files belong to in the archive; root is to own what root runs."""


def pack(label: str, makefile: str) -> bytes:
    """Return an archive with one folder, the same bytes for the same words."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in (("Makefile", makefile), ("label", label + "\n"), ("STAND-IN", "not nccl-tests\n")):
            member = tarfile.TarInfo(f"nccl-tests-stand-in/{name}")
            member.size, member.mode, member.uid, member.gid = len(text), 0o644, OTHERS_NUMBER, OTHERS_NUMBER
            archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(raw.getvalue(), mtime=0)


def main() -> int:
    """Write them; return the exit status."""
    folder = inventory.site().parent / "nccl-tests"
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, makefile in (("first", MAKEFILE), ("second", MAKEFILE), ("breaks", BREAKS), ("another", MAKES_ANOTHER)):
        content = pack(name, makefile)
        path = folder / f"{name}.tar.gz"
        path.write_bytes(content)
        made[name] = {"path": str(path), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "stand-ins.json").write_text(json.dumps(made) + "\n", encoding="utf-8")
    inventory.record([f"nccl-tests ({name})" for name in made])
    variables = {"gpu_nccl_tests_source": made["first"]["path"], "gpu_nccl_tests_sha256": made["first"]["sha256"]}
    inventory.dump(inventory.site() / "group_vars/gpu_nodes/nccl_tests.yml", variables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
