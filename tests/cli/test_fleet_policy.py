"""`provision fleet policy`: decisions from figures and from a server, and policies written down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fake_prometheus import answering

POLICY = """minimum = 2
maximum = 8
metric = "utilisation"
out_step = 3
may_drain = true
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture
def prometheus() -> Iterator[str]:
    """STAND-IN: four nodes of eight GPUs; one does nothing, the others 95 %, for as long as anyone asks."""
    now = 1.8e9

    def vector(values: dict[str, float]) -> list[dict[str, Any]]:
        return [{"metric": {"node": node}, "value": [now, str(value)]} for node, value in values.items()]

    def answer(query: str) -> list[dict[str, Any]]:
        each = {"n1": 95.0, "n2": 95.0, "n3": 95.0, "n4": 1.0}
        if query == "vector(time())":
            return [{"metric": {}, "value": [now, str(now)]}]
        if query.startswith("avg("):
            return [{"metric": {}, "value": [now, "93"]}]
        if "bool" in query:
            return vector({"n1": 2.0, "n2": 0.0, "n3": 0.0, "n4": 8.0})
        if "avg_over_time" in query or "max_over_time" in query:
            return vector(each)
        if "gpu_visible" in query or "count_over_time" in query:
            return vector(dict.fromkeys(each, 8.0))
        if "memory_used" in query:
            return vector({**dict.fromkeys(each, 70_000.0), "n4": 3.0})
        return []

    def look(path: str) -> list[dict[str, Any]]:
        parts = urlsplit(path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if not parts.path.endswith("query_range"):
            return answer(asked["query"])
        start, end, step = (float(asked[key]) for key in ("start", "end", "step"))
        times = [start + number * step for number in range(int((end - start) / step) + 1)]
        value = "4" if asked["query"].startswith("count(") else str(4 * 93)
        return [{"metric": {}, "values": [[when, value] for when in times]}]

    with answering(look) as address:
        yield address


class TestDecision:
    def test_figures_by_hand_decide(self, provision, policy):
        answer = provision("fleet", "policy", policy, "--observe", "nodes=4,utilisation=93,above_for=120")
        assert answer.code == 0
        assert answer.out.startswith("add 2 nodes\n")
        assert "utilisation of 93 % is over 85 %" in answer.out

    def test_a_figure_without_a_past_waits_and_says_what_is_missing(self, provision, policy):
        answer = provision("fleet", "policy", policy, "--observe", "nodes=4,utilisation=93")
        assert answer.out.startswith("hold\n")
        assert "above_for=SECONDS" in answer.err

    def test_a_server_tells_figures_and_past(self, provision, policy, prometheus):
        answer = provision("fleet", "policy", policy, "--prometheus", prometheus, "--json")
        assert answer.code == 0
        decision = answer.document["result"]["decision"]
        assert (decision["action"], decision["count"]) == ("out", 2)
        assert answer.document["result"]["observation"]["idle"] == 1
        assert "booting=N" in answer.err, "nodes that start would be asked for twice"
        answer = provision("fleet", "policy", policy, "--prometheus", prometheus, "--observe", "booting=2")
        assert answer.out.startswith("hold")
        assert "booting=N" not in answer.err

    def test_what_is_seen_by_hand_counts_before_the_server(self, provision, policy, prometheus):
        words = ("--prometheus", prometheus, "--observe", "utilisation=12,below_for=9999", "--json")
        result = provision("fleet", "policy", policy, *words).document["result"]
        assert result["decision"]["action"] == "in"
        words = ("--in-step", "1", "--prometheus", prometheus, "--observe", "utilisation=12,below_for=9999")
        answer = provision("fleet", "policy", policy, *words)
        assert answer.out.startswith("release 1 node\n")
        assert "n4" in answer.out

    def test_a_load_that_is_not_known_is_no_success(self, provision, policy):
        answer = provision("fleet", "policy", policy, "--observe", "nodes=4", "--json")
        assert answer.code == 7
        assert answer.document["ok"] is False
        assert "not known" in answer.document["result"]["decision"]["reason"]

    def test_flags_count_before_the_file_and_say_so(self, provision, policy):
        words = ("--out-above", "95", "--observe", "nodes=4,utilisation=93,above_for=120")
        answer = provision("fleet", "policy", policy, *words)
        assert answer.out.startswith("hold\n")
        answer = provision("fleet", "policy", policy, "--maximum", "5", *words[2:])
        assert answer.out.startswith("add 1 node\n")
        assert "--maximum counts before" in answer.err

    def test_flags_alone_are_a_policy(self, provision):
        words = ("--minimum", "0", "--maximum", "4", "--metric", "queue")
        seen = ("--observe", "nodes=0,waiting=3,running=0,above_for=600", "--json")
        result = provision("fleet", "policy", *words, *seen).document["result"]
        assert (result["decision"]["action"], result["decision"]["count"]) == ("out", 3)
        assert result["decision"]["level"] is None, "no number of jobs for each of no nodes"

    def test_the_result_goes_where_it_is_told(self, provision, policy, tmp_path):
        words = ("--observe", "nodes=4,utilisation=60", "-o", tmp_path / "said")
        assert provision("fleet", "policy", policy, *words).out == ""
        assert (tmp_path / "said").read_text(encoding="utf-8").startswith("hold")


class TestRender:
    @pytest.mark.parametrize(("engine", "name"), [("k8s", "chat"), ("aws", "gpu-workers"), ("tencent", "asg-1a2b")])
    def test_files_are_written_once_and_checked(self, provision, policy, tmp_path, engine, name):
        words = ("fleet", "policy", policy, "--render", engine, "--name", name, "-o", tmp_path / "out")
        answer = provision(*words)
        assert answer.code == 0
        assert "what this engine cannot be told:" in answer.out
        assert provision(*words, "--check").code == 0
        assert provision(*words, "--maximum", "9", "--check").code == 8
        assert provision(*words, "--json").document["result"]["written"] == []

    def test_a_dry_run_writes_nothing(self, provision, policy, tmp_path):
        words = ("--render", "k8s", "--name", "chat", "-o", tmp_path / "out", "--dry-run")
        assert provision("fleet", "policy", policy, *words).code == 0
        assert not (tmp_path / "out").exists()

    def test_what_was_seen_is_published(self, provision, policy, tmp_path, prometheus):
        words = ("--render", "aws", "--name", "gpu-workers", "-o", tmp_path / "out", "--prometheus", prometheus)
        assert provision("fleet", "policy", policy, *words).code == 0
        data = json.loads((tmp_path / "out" / "put-metric-data.json").read_text(encoding="utf-8"))
        assert data["MetricData"][0]["Value"] == 93


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("minimum = 2", "lacks `maximum`"),
        ("minimum = ", "is not TOML"),
        ('minimum = 2\nmaximum = 1\nmetric = "queue"', "`minimum` 2 is more than `maximum` 1"),
        ('minimum = 1\nmaximum = 2\nmetric = "cpu"', "`metric` cannot be `cpu`"),
        ('minimum = 1\nmaximum = 2\nmetric = "utilisation"\ntarget = -5', "`target` -5"),
        ('minimum = 1\nmaximum = 2\nmetric = "utilisation"\nin_below = 90', "`in_below` 90"),
        ('minimum = 1\nmaximum = 2\nmetric = "utilisation"\nscale = 1', "`scale` is not a key"),
    ],
)
def test_a_policy_that_cannot_be_names_its_file(provision, tmp_path, text, said):
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    answer = provision("fleet", "policy", path, "--observe", "nodes=1,utilisation=5")
    assert answer.code == 2
    assert said in answer.err
    assert "policy.toml" in answer.err
    assert "hint" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--observe", "utilisation=5"),
        ("--observe", "nodes=4.5"),
        ("--observe", "nodes=4,nodes=5"),
        ("--observe", "nods=4"),
        ("--observe", "nodes=-4"),
        ("--observe", "nodes=4,utilisation=101"),
        ("--observe", "nodes=4,utilisation=nan"),
        ("--observe", "nodes=4,idle=5"),
        ("--observe", "nodes"),
        ("--maximum", "many", "--observe", "nodes=4"),
        ("--target", "nan", "--observe", "nodes=4"),
        ("--render", "k8s", "-o", "out"),
        ("--render", "k8s", "--name", "chat"),
        ("--render", "azure", "--name", "chat", "-o", "out"),
        ("--render", "tencent", "--name", "chat", "-o", "out"),
        ("--name", "chat", "--observe", "nodes=4"),
        ("--check", "--observe", "nodes=4"),
        ("--prometheus", "prometheus.example"),
    ],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_wrong_words_are_usage(provision, policy, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    answer = provision("fleet", "policy", policy, *words)
    assert answer.code == 2
    assert "hint" in answer.err or "because" in answer.err or "--name" in answer.err
    assert not (tmp_path / "out").exists()


class TestIdle:
    def test_idle_nodes_are_named_with_what_they_cost(self, provision, prometheus):
        words = ("fleet", "idle", "--prometheus", prometheus, "--price", "20")
        answer = provision(*words)
        assert answer.code == 0
        assert "1 of 4 nodes may be released (8 GPUs), which saves 20.00 USD an hour" in answer.out
        assert "n4" in answer.out
        assert "n1" not in answer.out, "busy ones are only counted"
        assert "n1" in provision(*words, "-v").out
        assert "3 busy nodes not shown" in answer.out
        assert "on other nodes 2 GPUs did as little" in answer.out

    def test_the_facts_know_what_a_machine_costs(self, provision, prometheus):
        words = ("--instance", "aws/p4d.24xlarge/us-east-1", "--json")
        result = provision("fleet", "idle", "--prometheus", prometheus, *words).document["result"]
        assert result["released_nodes"] == 1
        assert result["usd_per_hour"] == result["usd_per_node_hour"] > 0
        assert "aws p4d.24xlarge us-east-1 on-demand" in result["price"]

    def test_without_a_price_nothing_is_said_of_money(self, provision, prometheus):
        answer = provision("fleet", "idle", "--prometheus", prometheus, "--json")
        assert answer.document["result"]["usd_per_hour"] is None

    def test_a_server_that_is_not_there_is_absent(self, provision):
        assert provision("fleet", "idle", "--prometheus", "http://127.0.0.1:9").code == 7

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("--minutes", "1"), 2),
            (("--minutes", "soon"), 2),
            (("--price", "-1"), 2),
            (("--price", "1", "--instance", "aws/p4d.24xlarge"), 2),
            (("--purchase", "spot"), 2),
            (("--instance", "p4d.24xlarge"), 2),
            (("--instance", "nobody/p4d.24xlarge"), 2),
            (("--instance", "aws/nothing.large"), 4),
            (("--instance", "aws/p4d.24xlarge/mars-1"), 4),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, provision, prometheus, words, code):
        answer = provision("fleet", "idle", "--prometheus", prometheus, *words)
        assert answer.code == code
        assert "hint" in answer.err


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ("nodes=4,utilisation=193", "--observe utilisation `193` is not from 0 to 100"),
        ("nodes=4,utilisation=93%", "--observe utilisation `93%` is not a number"),
        ("nodes=4.5", "--observe nodes `4.5` is not a whole number"),
    ],
)
def test_what_cannot_have_been_seen_is_named_as_it_was_typed(provision, policy, seen, said):
    answer = provision("fleet", "policy", policy, "--observe", seen)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {said}\n")
    assert "hint: write a" in answer.err
