"""Files for other tools: read back as what they are, with what the row says."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import yaml

from provision.matrix.load import Matrix
from provision.planner.catalogue import list_offers, read_rates
from provision.planner.chart import html_text, svg_text, terminal_text
from provision.planner.cost import Extras
from provision.planner.handoff import dstack_text, inventory_text, skypilot_text, terraform_text
from provision.planner.job import Job
from provision.planner.plan import Plan, Terms, make_plan
from provision.planner.shape import find_shape
from provision.planner.speed import Speeds

MATRIX = Matrix()


def plan(**where):
    job = Job(
        task="finetune", shape=find_shape(MATRIX, "llama-3.1-8b"), tokens=1e9, sequence=4096, **where.pop("job", {})
    )
    terms = Terms(purchases=("on-demand", "spot"), rates=read_rates(MATRIX, {}), extras=Extras())
    return make_plan(job, list_offers(MATRIX, **where), terms, MATRIX, speeds=Speeds(MATRIX))


WHOLE = plan()
NOTHING = Plan(rows=(), missed=(), fallbacks=(), rejected=())


def test_the_inventory_has_a_host_for_every_node():
    row = plan(job={"nodes": 2}, providers=["aws"]).winner
    hosts = yaml.safe_load(inventory_text(row))["gpu_nodes"]["hosts"]
    assert list(hosts) == ["gpu-plan-01", "gpu-plan-02"]
    assert all(host["ansible_host"].startswith("192.0.2.") for host in hosts.values())


def test_skypilot_tries_the_fall_backs_in_their_order():
    document = yaml.safe_load(skypilot_text(WHOLE.winner, WHOLE.fallbacks))
    first = document["resources"]["ordered"][0]
    instance = WHOLE.winner.offer.instance
    assert first == {
        "infra": f"{instance.provider}/{instance.region}",
        "instance_type": instance.type,
        "use_spot": WHOLE.winner.purchase == "spot",
    }
    assert document["num_nodes"] == WHOLE.winner.nodes


def test_a_provider_a_tool_does_not_know_gets_no_file():
    row = plan(providers=["aliyun"]).winner
    assert skypilot_text(row, ()) is None
    assert dstack_text(row) is None
    assert json.loads(terraform_text(row))["provider_name"] == "alicloud"


def test_dstack_and_terraform_say_what_the_row_says():
    row = plan(job={"nodes": 2}, providers=["aws"]).winner
    fleet = yaml.safe_load(dstack_text(row))
    assert (fleet["type"], fleet["nodes"], fleet["placement"]) == ("fleet", 2, "cluster")
    assert fleet["instance_types"] == [row.offer.instance.type]
    variables = json.loads(terraform_text(row))
    assert variables["node_count"] == 2
    assert variables["instance_type"] == row.offer.instance.type
    assert variables["use_spot"] is (row.purchase == "spot")


def test_the_picture_is_xml_with_a_mark_for_every_row():
    tree = ET.fromstring(svg_text(WHOLE))
    titles = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    providers = {row.offer.instance.provider for row in WHOLE.rows}
    assert len(titles) == 1 + len(WHOLE.rows) + len(providers)
    assert any(WHOLE.winner.offer.name in title for title in titles)


def test_the_line_falls_from_fast_and_dear_to_slow_and_cheap():
    tree = ET.fromstring(svg_text(WHOLE))
    line = tree.find("{http://www.w3.org/2000/svg}polyline").attrib["points"]
    points = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert len(points) > 1
    assert points == sorted(points)
    assert [y for _, y in points] == sorted(y for _, y in points)


def test_the_page_needs_nothing_from_elsewhere():
    page = html_text(WHOLE, "a <job>", (("machine", lambda row: row.offer.name),), 3)
    assert page.count("<tr>") == 4
    assert "a &lt;job&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_picture_in_characters_names_what_nothing_beats():
    text = terminal_text(WHOLE, columns=60, lines=12)
    assert max(len(line) for line in text.splitlines()[:14]) <= 70
    assert f"a  {WHOLE.winner.nodes} × {WHOLE.winner.offer.name}" in text


def test_nothing_is_drawn_of_nothing():
    assert terminal_text(NOTHING) == "nothing to draw"
    assert "nothing to draw" in svg_text(NOTHING)


def test_one_row_alone_is_drawn_too():
    one = Plan(rows=WHOLE.rows[:1], missed=(), fallbacks=(), rejected=())
    ET.fromstring(svg_text(one))
    assert "a  " in terminal_text(one)
