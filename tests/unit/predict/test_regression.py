"""What was learnt is evaluated as it was trained, held where it was not, and honest about it."""

from __future__ import annotations

import json

import pytest

from provision.errors import DataError
from provision.predict.regression import Regression, read_regression

DOCUMENT = {
    "schema_version": 1,
    "features": ["a", "b"],
    "centre": [1.0, 0.0],
    "scale": [2.0, 1.0],
    "weights": [0.5, -1.0],
    "intercept": 0.25,
    "low": [0.0, -1.0],
    "high": [4.0, 1.0],
    "trees": [[[0, 2.0, 1, 2], [-1, 0.1], [-1, -0.2]]],
    "offsets": {"gpu": {"x": 0.05}},
    "intervals": {"gpu": [-0.1, 0.2], "none": [-0.4, 0.4], "any": [-0.4, 0.4]},
}


def test_line_trees_and_offset_add_up():
    estimate = Regression(DOCUMENT).estimate(2.0, {"a": 3.0, "b": 0.5}, {"gpu": "x"})
    assert estimate.middle == pytest.approx(2.0 + 0.25 + (3 - 1) / 2 * 0.5 - 0.5 - 0.2 + 0.05)
    assert estimate.known == ("gpu",)
    assert (estimate.low - estimate.middle, estimate.high - estimate.middle) == pytest.approx((-0.1, 0.2))


def test_what_is_unknown_gets_the_wider_interval():
    estimate = Regression(DOCUMENT).estimate(0.0, {"a": 1.0, "b": 0.0}, {"gpu": "never seen"})
    assert estimate.known == ()
    assert estimate.high - estimate.low == pytest.approx(0.8)


def test_beyond_the_range_the_line_is_held_and_it_is_said():
    regression = Regression(DOCUMENT)
    far = regression.estimate(0.0, {"a": 1e9, "b": 0.0}, {})
    edge = regression.estimate(0.0, {"a": 5.0, "b": 0.0}, {})
    assert far.middle == pytest.approx(edge.middle)
    assert far.outside == ("a",)
    assert regression.estimate(0.0, {"a": 4.0, "b": 0.0}, {}).outside == ()


def test_intervals_widen_with_distance_where_the_model_says_how():
    spread = {"alike": 4.0, "spread": [[0.5], [0.25, 1.0]]}
    regression = Regression(DOCUMENT | spread)
    at_centre = regression.estimate(0.0, {"a": 1.0, "b": 0.0}, {})
    apart = regression.estimate(0.0, {"a": 3.0, "b": 1.0}, {})
    assert at_centre.high - at_centre.low == pytest.approx(0.8)
    # z = (1, 1): 0.5 + 2 · 0.25 + 1.0 = 2.0, and √(1 + 4 · 2) = 3.
    assert apart.high - apart.low == pytest.approx(0.8 * 3)


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 9}', "{", "null"])
def test_a_broken_model_is_refused(tmp_path, text):
    path = tmp_path / "vision.json"
    path.write_text(text)
    with pytest.raises(DataError, match="vision"):
        read_regression(path)


def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"vision\.json"):
        read_regression(tmp_path / "vision.json")


def test_the_document_survives_json():
    again = Regression(json.loads(json.dumps(DOCUMENT)))
    assert again.estimate(1.0, {"a": 0.0, "b": 0.0}, {}) == Regression(DOCUMENT).estimate(1.0, {"a": 0.0, "b": 0.0}, {})


@pytest.mark.parametrize(("value", "leaf"), [(1.9, 0.1), (2.0, 0.1), (2.1, -0.2)])
def test_a_tree_sends_the_threshold_itself_to_the_left(value, leaf):
    tree_only = DOCUMENT | {"weights": [0.0, 0.0], "intercept": 0.0}
    assert Regression(tree_only).estimate(0.0, {"a": value, "b": 0.0}, {}).middle == pytest.approx(leaf)
