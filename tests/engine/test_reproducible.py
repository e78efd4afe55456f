"""Two builds of one context at two times: equal layers where the engine can rewrite time stamps."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.build.engine import BuildRequest
from provision.build.export import CONTAINERD
from provision.build.oci.codec import open_layer

EPOCH = 1_600_000_000


def read_layers(archive: Path) -> list[tuple[str, bytes]]:
    """Return digest and tar of each layer."""
    with tarfile.open(archive) as tar:

        def read(digest: str) -> bytes:
            file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert file is not None
            return file.read()

        index = tar.extractfile("index.json")
        assert index is not None
        document = json.load(index)
        while "layers" not in document:
            document = json.loads(read(document["manifests"][0]["digest"]))
        digests = [row["digest"] for row in document["layers"]]
        return [(digest, open_layer(io.BytesIO(read(digest))).read()) for digest in digests]


def test_two_builds_at_two_times_have_equal_layers(start_engine, make_context, python_base, tag, tmp_path):
    own = start_engine(size_mb=2000, has_containerd_store=True)
    if own.engine.image_store != CONTAINERD:
        pytest.skip("this engine has no containerd store, so it cannot rewrite time stamps")
    # The steps of our Dockerfile whose result a clock could decide.
    context = make_context(
        f"FROM {python_base}",
        "RUN python3.11 -m venv --without-pip /opt/venv",
        "RUN cd /opt/venv/lib/python3.11/site-packages && \\",
        "    for number in 1 2 3 4 5 6 7 8; do echo \"x = ['$number', {1, 2}]\" > module_$number.py; done && \\",
        "    /opt/venv/bin/python /build/compile_bytecode.py",
        "COPY entrypoint.sh /usr/local/bin/",
    )
    (context / "compile_bytecode.py").write_bytes((asset_dir("images") / "compile_bytecode.py").read_bytes())
    (context / "entrypoint.sh").write_bytes((asset_dir("images") / "entrypoint.sh").read_bytes())
    dockerfile = context / "Dockerfile"
    mount = "RUN --mount=type=bind,source=compile_bytecode.py,target=/build/compile_bytecode.py cd /opt"
    dockerfile.write_text(dockerfile.read_text().replace("RUN cd /opt", mount))

    def build(name: str, epoch: int | None) -> list[tuple[str, bytes]]:
        (context / "entrypoint.sh").touch()
        archive = tmp_path / name
        request = BuildRequest(
            tags=(tag,),
            network="none",
            purpose="file",
            archive=archive,
            source_date_epoch=epoch,
            is_cached=False,
        )
        own.engine.build(context, request, lambda *_: None)
        return read_layers(archive)

    first = build("first.tar", EPOCH)
    undated = build("undated.tar", None)
    time.sleep(2)
    second = build("second.tar", EPOCH)

    assert [digest for digest, _ in first] == [digest for digest, _ in second]
    assert len(first) == 4
    for _, data in first[1:]:
        with tarfile.open(fileobj=io.BytesIO(data)) as layer:
            assert max(item.mtime for item in layer) <= EPOCH
    # The clock does show where it is not rewritten, so the equality above is not for lack of a difference.
    assert undated[1][0] != first[1][0]
    assert undated[2][0] != first[2][0]
