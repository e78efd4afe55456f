"""The page of a replay: every fleet drawn, nothing of anybody's text taken as code."""

from __future__ import annotations

from html.parser import HTMLParser

from provision.generate.replay_page import Curve, render_replay_page

CURVES = (
    Curve(name="fixed", points=((0.0, 4),), end=7200.0),
    Curve(name="<b>day", points=((0.0, 1), (60.0, 3), (3600.0, 0)), end=7200.0),
)
ROWS = (("fleet", "USD"), ("fixed", "1"), ("<b>day", "2"))


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_fleet_has_a_line_and_a_row() -> None:
    page = render_replay_page("load.csv", CURVES, ROWS, ["a & b"])
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.tags.count("path") == 2
    assert reader.tags.count("tr") == 3
    assert "b" not in reader.tags
    assert "a &amp; b" in page
    assert page == render_replay_page("load.csv", CURVES, ROWS, ["a & b"])


def test_line_steps_where_the_number_changes_and_ends_with_the_record() -> None:
    path = render_replay_page("x", CURVES[1:], ROWS, []).split('<path d="')[1].split('"')[0]
    assert path.count("V") == 2
    # From the left edge to the right one.
    assert path.startswith("M40.0,")
    assert path.endswith("H750.0")


def test_fleet_without_any_node_is_drawn_as_none() -> None:
    assert "up to 0 nodes" in render_replay_page("x", (Curve(name="n", points=((0.0, 0),), end=0.0),), ROWS, [])
