from __future__ import annotations

import json

from provision.audit.image import parse_image
from provision.audit.model import Options
from provision.audit.surroundings import complete
from provision.matrix.load import Matrix

DOCUMENT = {
    "Os": "linux",
    "Architecture": "arm64",
    "RepoDigests": ["a@sha256:00"],
    "Config": {
        "Env": ["PATH=/bin", "CUDA_VERSION=12.1.1", "LD_LIBRARY_PATH=/usr/local/cuda/lib64"],
        "User": "",
        "Labels": {"org.opencontainers.image.base.name": "docker.io/nvidia/cuda:12.1.1-base-ubuntu22.04"},
    },
}
HISTORY = ({"CreatedBy": "RUN b"}, {"CreatedBy": "RUN a\x1b[31m"})
SAID = "noise\n@provision-payload " + json.dumps(
    {"version": "3.10.12", "packages": {"torch": "2.1.2+cu121", "numpy": "1.26.4"}}
)


def test_an_image_has_its_variables_packages_and_base() -> None:
    source, found = parse_image("a:1", DOCUMENT, HISTORY, SAID)
    assert (found.kind, found.platform, found.python) == ("image", "linux/arm64", "3.10")
    base = complete(found, Matrix(), Options()).base
    assert base is not None
    assert (base.repository, base.cuda) == ("nvidia/cuda", "12.1.1")
    assert [(item.name, item.version) for item in found.installs[0].requirements] == [
        ("numpy", "1.26.4"),
        ("torch", "2.1.2+cu121"),
    ]
    assert source.cut(found.installs[0].requirements[1].span) == "torch==2.1.2+cu121"
    assert source.cut(found.variables["LD_LIBRARY_PATH"].span) == "/usr/local/cuda/lib64"
    assert found.user is not None
    assert source.cut(found.user.span) == "root"


def test_what_an_image_says_cannot_steer_a_terminal() -> None:
    source, _ = parse_image("a", DOCUMENT, HISTORY, "")
    assert "\x1b" not in source.text


def test_an_image_without_python_or_configuration_is_no_crash() -> None:
    _, found = parse_image("a", {}, (), "@provision-payload {broken")
    assert found.installs == ()
    assert found.base is None
    assert found.platform is None
