"""What is made of the facts is made once for each Matrix and each key."""

from __future__ import annotations

from provision.assets import asset_dir
from provision.matrix.load import Matrix
from provision.resolve.options import offer
from provision.resolve.request import parse_request


def test_a_value_is_made_once_for_each_key_and_matrix() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    one, other = Matrix(), Matrix(asset_dir("compat"))
    assert one.keep(("a",), lambda: make("first")) == "first"
    assert one.keep(("a",), lambda: make("again")) == "first"
    assert one.keep(("a", 1), lambda: make("more")) == "more"
    assert other.keep(("a",), lambda: make("other")) == "other"
    assert made == ["first", "more", "other"]


def test_options_that_are_kept_depend_on_version_and_platform_and_cannot_be_changed_by_who_got_them() -> None:
    matrix = Matrix()
    asked = [("2.4", "linux/amd64"), ("2.4", "linux/arm64"), ("2.5", "linux/amd64"), ("2.4+cu121", "linux/amd64")]
    for _ in range(2):
        for torch, platform in asked:
            options = offer(matrix, "torch", parse_request({"torch": torch}), platform)
            assert options
            assert options == offer(Matrix(), "torch", parse_request({"torch": torch}), platform)
            options.clear()
