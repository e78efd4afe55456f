"""One installs the driver: the lock decides who, and two are refused."""

from __future__ import annotations

import pytest

from provision.errors import IncompatibleError, UnknownError
from provision.generate.cluster.options import ClusterOptions
from provision.generate.cluster.owner import decide_owner
from provision.generate.subject import Subject
from provision.matrix.load import Matrix
from provision.records import replace


def test_the_lock_of_an_image_gives_the_driver_to_the_operator(image_lock: Subject, matrix: Matrix) -> None:
    owned = decide_owner(image_lock, ClusterOptions(), matrix)
    assert owned.owner == "operator"
    assert owned.driver == matrix.driver_images[-1].version


def test_the_lock_of_nodes_keeps_it_with_the_nodes(node_lock: Subject, matrix: Matrix) -> None:
    owned = decide_owner(node_lock, ClusterOptions(), matrix)
    assert (owned.owner, owned.driver) == ("node", None)
    assert owned.warnings == ()


def test_a_second_driver_over_that_of_the_nodes_is_refused(node_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(IncompatibleError) as caught:
        decide_owner(node_lock, ClusterOptions(owner="operator"), matrix)
    assert "580.95.05 on ubuntu24.04" in caught.value.because[0]


def test_nodes_that_bring_a_driver_nobody_locked_get_a_warning(image_lock: Subject, matrix: Matrix) -> None:
    owned = decide_owner(image_lock, ClusterOptions(owner="node"), matrix)
    assert owned.owner == "node"
    assert "525.60.13" in owned.warnings[0]


def test_a_branch_without_an_image_is_unknown(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UnknownError, match="470"):
        decide_owner(replace(image_lock, driver_branch="470"), ClusterOptions(), matrix)


def test_an_image_below_what_the_stack_needs_is_refused(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(IncompatibleError, match="too old"):
        decide_owner(replace(image_lock, driver_minimum="999.10"), ClusterOptions(), matrix)


def test_an_image_for_no_such_system_is_unknown(image_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UnknownError, match="debian12"):
        decide_owner(image_lock, ClusterOptions(system="debian12"), matrix)


def test_a_system_that_the_lock_of_nodes_lacks_is_unknown(node_lock: Subject, matrix: Matrix) -> None:
    with pytest.raises(UnknownError, match="rhel9"):
        decide_owner(node_lock, ClusterOptions(system="rhel9"), matrix)
