"""A lock of an image and one of nodes, as the commands hand them down."""

from __future__ import annotations

import pytest

from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.records import replace

DIGEST = "sha256:" + "0123456789ab" + "c" * 52


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return Matrix()


@pytest.fixture
def image_lock(matrix: Matrix) -> Subject:
    newest = matrix.driver_images[-1]
    return Subject(
        name="torch-cu128",
        digest=DIGEST,
        facts_date="2026-11-22",
        driver_minimum="525.60.13",
        driver_branch=str(newest.branch),
        gpus=("H100",),
        libraries={"nccl": "2.26.2", "torch": "2.7.1"},
    )


@pytest.fixture
def node_lock(image_lock: Subject) -> Subject:
    return replace(image_lock, name="nodes", node_drivers={"ubuntu24.04": "580.95.05"})
