"""The page of a fleet: what it shows, and that nothing a machine says becomes markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from provision.generate.fleet_page import Line, Shown, Survey, name_line, render_fleet_page, word_value
from provision.matrix.load import Matrix

PANELS = {panel.id: panel for panel in Matrix().panels}


def page_of(*shown: Shown) -> str:
    return render_fleet_page(Survey(address="http://prometheus.example", asked=1.8e9, hours=6.0, shown=shown))


def line(*points: float, **labels: str) -> Line:
    return Line(labels=labels, points=tuple((1.8e9 + 60 * place, value) for place, value in enumerate(points)))


HEAT = PANELS["node.temperature"]


def test_a_label_becomes_no_markup():
    bad = "<script>alert(1)</script>\"'"
    shown = [Shown(panel=panel, lines=(line(1, 2, node=bad, gpu=bad),)) for panel in PANELS.values()]
    page = page_of(*shown)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_an_address_becomes_no_markup():
    survey = Survey(address="http://x/<b>", asked=0.0, hours=1.0, shown=())
    assert "<b>" not in render_fleet_page(survey)


def test_the_same_survey_gives_the_same_bytes():
    shown = Shown(panel=HEAT, lines=(line(60, 70, node="n1", gpu="0"),), warn=85.0)
    assert page_of(shown) == page_of(shown)


def test_every_line_is_drawn():
    page = page_of(Shown(panel=HEAT, lines=tuple(line(60, 61, node="n1", gpu=str(gpu)) for gpu in range(8))))
    assert page.count('<polyline class="ln"') == 8


def test_a_drawing_is_whole_and_stays_inside():
    page = page_of(Shown(panel=HEAT, lines=(line(-5, 900, 12, node="n1", gpu="0"),), warn=85.0))
    drawing = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    _, _, width, height = (float(text) for text in drawing.attrib["viewBox"].split())
    for path in drawing.iter("polyline"):
        for pair in path.attrib["points"].split():
            x, y = (float(text) for text in pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


@pytest.mark.parametrize(("value", "is_hot"), [(85.0, False), (85.5, True)])
def test_what_is_over_its_limit_is_marked(value, is_hot):
    page = page_of(Shown(panel=HEAT, lines=(line(60, value, node="n1", gpu="0"),), warn=85.0))
    assert ('<td class="hot">' in page) == is_hot
    assert ('<polyline class="ln over"' in page) == is_hot


def test_the_highest_line_is_named():
    lines = (line(60, 61, node="n1", gpu="0"), line(60, 72, node="n2", gpu="5"))
    assert "the highest n2 5 at 72 °C" in page_of(Shown(panel=HEAT, lines=lines))


@pytest.mark.parametrize("lines", [(), (Line(labels={}, points=()),)], ids=["no lines", "no points"])
def test_nothing_is_no_zero(lines):
    assert "no data" in page_of(Shown(panel=HEAT, lines=lines))
    assert "no data" in page_of(Shown(panel=PANELS["fleet.gpus-visible"], lines=lines))


def test_a_table_says_how_much_it_leaves_out():
    rows = tuple(line(1, node=f"n{number}", alertname="X", severity="critical") for number in range(60))
    page = page_of(Shown(panel=PANELS["fleet.alerts"], lines=rows))
    assert "10 more" in page
    assert 'class="critical"' in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "short", "no data"),
        (0.0, "short", "0"),
        (208.0, "short", "208"),
        (10_079.0, "short", "10,079"),
        (10_080.0, "short", "10,080"),
        (12_345_678.0, "short", "12,345,678"),
        (12_345.5, "short", "12.35 k"),
        (14_560.0, "watt", "14.56 kW"),
        (0.5, "percentunit", "50 %"),
        (2.5e9, "Bps", "2.5 GB/s"),
        (61300.4, "mbytes", "61300 MiB"),
        (85.0, "celsius", "85 °C"),
    ],
)
def test_values_are_worded(value, unit, text):
    assert word_value(value, unit) == text


def test_two_clusters_may_have_a_node_of_one_name():
    assert name_line(line(1, node="n1", gpu="0"), HEAT) == "n1 0"
    assert name_line(line(1, cluster="b", node="n1", gpu="0"), HEAT) == "b n1 0"


def test_a_line_without_a_legend_is_called_by_all_its_labels():
    assert name_line(line(1, version="580.1"), PANELS["fleet.drivers"]) == "version=580.1"
