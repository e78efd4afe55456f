"""`provision fleet`: rules to a folder, a fleet on a page, and every way to ask for neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_prometheus import answering

FILES = {
    "alertmanager.yml",
    "dashboards/provision-fleet.json",
    "dashboards/provision-health.json",
    "dashboards/provision-job.json",
    "dashboards/provision-node.json",
    "dcgm-counters.csv",
    "provision-gpu.rules.yml",
    "systemd/provision-verify.service",
    "systemd/provision-verify.timer",
}


@pytest.fixture
def prometheus() -> Iterator[str]:
    """STAND-IN: says 85.5 of one node to every question."""
    row = {"metric": {"node": "n1", "gpu": "0", "alertname": "GpuLost", "severity": "critical"}}

    def answer(asked: str) -> list[dict[str, Any]]:
        found = {**row, "value": [1.8e9, "85.5"], "values": [[1.8e9 - 60, "60"], [1.8e9, "85.5"]]}
        found.pop("values" if "query?" in asked else "value")
        return [found]

    with answering(answer) as address:
        yield address


@pytest.mark.parametrize("action", ["rules", "show", "idle", "usage", "policy"])
def test_each_action_has_a_help_of_its_own(provision, action):
    answer = provision("fleet", action, "--help")
    assert answer.code == 0
    assert f"provision fleet {action}" in answer.out


class TestRules:
    def test_every_file_is_written(self, provision, tmp_path):
        answer = provision("fleet", "rules", "-o", tmp_path / "m", "--json")
        assert answer.code == 0
        written = {str(path.relative_to(tmp_path / "m")) for path in (tmp_path / "m").rglob("*") if path.is_file()}
        assert written == FILES == set(answer.document["result"]["written"])

    def test_a_second_time_writes_nothing(self, provision, tmp_path):
        provision("fleet", "rules", "-o", tmp_path)
        answer = provision("fleet", "rules", "-o", tmp_path, "--json")
        assert answer.document["result"]["written"] == []

    def test_what_was_changed_by_hand_is_drift(self, provision, tmp_path):
        provision("fleet", "rules", "-o", tmp_path)
        assert provision("fleet", "rules", "-o", tmp_path, "--check").code == 0
        rules = tmp_path / "provision-gpu.rules.yml"
        rules.write_text(rules.read_text(encoding="utf-8").replace("> 85", "> 95"), encoding="utf-8")
        answer = provision("fleet", "rules", "-o", tmp_path, "--check")
        assert answer.code == 8
        assert "provision-gpu.rules.yml differs" in answer.err

    def test_a_monitor_that_is_named_no_more_is_told(self, provision, tmp_path):
        words = ("fleet", "rules", "-o", tmp_path, "--slack", "default=/etc/alertmanager/slack")
        words += ("--monitor", "10.0.0.5")
        provision(*words, "--monitor", "10.0.0.6")
        compose = (tmp_path / "monitors/10.0.0.5/compose.yaml").read_text(encoding="utf-8")
        assert "source: /etc/alertmanager/slack" in compose
        assert provision(*words, "--monitor", "10.0.0.6", "--check").code == 0
        answer = provision(*words, "--monitor", "10.0.0.7", "--check")
        assert answer.code == 8
        assert "monitors/10.0.0.6/compose.yaml is left over of another request" in answer.err
        answer = provision(*words, "--monitor", "10.0.0.7")
        assert answer.code == 0
        assert "warning: monitors/10.0.0.6/prometheus.yml is left over" in answer.err

    def test_a_dry_run_writes_nothing(self, provision, tmp_path):
        assert provision("fleet", "rules", "-o", tmp_path / "m", "--dry-run").code == 0
        assert not (tmp_path / "m").exists()

    def test_a_webhook_is_for_no_eyes_but_its_own(self, provision, tmp_path):
        provision("fleet", "rules", "-o", tmp_path, "--webhook", "default=https://hooks.example/token")
        file = tmp_path / "alertmanager.yml"
        assert "https://hooks.example/token" in file.read_text(encoding="utf-8")
        assert file.stat().st_mode & 0o777 == 0o640

    def test_each_service_is_told_in_its_own_form(self, provision, tmp_path):
        answer = provision(
            "fleet", "rules", "-o", tmp_path, "--slack", "default=/etc/slack", "--pagerduty", f"default={'k' * 32}"
        )
        assert answer.code == 0
        text = (tmp_path / "alertmanager.yml").read_text(encoding="utf-8")
        assert "api_url_file: /etc/slack" in text
        assert f"routing_key: {'k' * 32}" in text

    @pytest.mark.parametrize(
        "words",
        [
            ("--webhook", "https://token.example"),
            ("--webhook", "default=https://a", "--webhook", "default=https://token"),
            ("--webhook", "nobody=https://token"),
            ("--webhook", "default=token"),
            ("--webhook", "default=https://hooks.slack.com/services/token"),
            ("--slack", "https://token.example"),
            ("--slack", "default=token"),
            ("--pagerduty", "default=to ken"),
        ],
        ids=" ".join,
    )
    def test_a_webhook_that_cannot_be_is_refused_and_not_repeated(self, provision, tmp_path, words):
        answer = provision("fleet", "rules", "-o", tmp_path, *words)
        assert answer.code == 2
        assert "token" not in answer.err.split("hint")[0]
        assert list(tmp_path.iterdir()) == []

    def test_what_the_unit_runs_writes_the_metrics(self, provision, tmp_path):
        """The words of the unit are given to the program itself, with paths of this test."""
        folder, expect = tmp_path / "textfiles", tmp_path / "expect.toml"
        folder.mkdir()
        expect.write_text("gpus = 8\n", encoding="utf-8")
        provision("fleet", "rules", "-o", tmp_path / "m", "--textfiles", folder)
        unit = (tmp_path / "m" / "systemd" / "provision-verify.service").read_text(encoding="utf-8")
        words = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split()
        assert words[:2] == ["ExecStart=/usr/bin/env", "provision"]
        answer = provision(*(str(expect) if word == "/etc/provision/expect.toml" else word for word in words[2:]))
        # A machine without GPUs is not what was expected; the unit takes that for a success.
        assert answer.code in (0, 6)
        metrics = (folder / "provision.prom").read_text(encoding="utf-8")
        assert 'provision_gpu_expected{target="local"} 8' in metrics
        assert [path.name for path in folder.iterdir()] == ["provision.prom"]

    @pytest.mark.parametrize("folder", ["relative", "/a b", "/a%n", "/a/../etc", "/a\nExecStart=/bin/sh"])
    def test_a_folder_becomes_no_line_of_a_unit(self, provision, tmp_path, folder):
        answer = provision("fleet", "rules", "-o", tmp_path / "m", "--textfiles", folder)
        assert answer.code == 2
        assert not (tmp_path / "m").exists()

    def test_a_folder_must_be_named(self, provision):
        answer = provision("fleet", "rules")
        assert answer.code == 2
        assert "-o DIR" in answer.err

    def test_flags_of_the_other_action_are_refused(self, provision, tmp_path):
        answer = provision("fleet", "rules", "-o", tmp_path, "--hours", "3")
        assert answer.code == 2
        assert "--hours" in answer.err


class TestShow:
    def test_what_matters_is_said_first(self, provision, prometheus):
        answer = provision("fleet", "show", "--prometheus", prometheus)
        assert answer.code == 0
        assert "n1  critical  GpuLost" in answer.out
        assert "Hottest GPU of a node, over 85 °C: 1" in answer.out

    def test_no_gpu_is_rounded_away_and_no_cluster_left_out(self, provision):
        """10,079 and 10,080 GPUs are not the same, nor is a node of two clusters."""

        def answer(asked: str) -> list[dict[str, Any]]:
            row = {"metric": {"cluster": "west", "node": "n1", "alertname": "GpuLost", "severity": "critical"}}
            value = "10079" if "visible" in asked else "10080"
            key = ("value", [1.8e9, value]) if "query?" in asked else ("values", [[1.8e9, value]])
            return [row | dict([key])]

        with answering(answer) as address:
            told = provision("fleet", "show", "--prometheus", address).out
        assert "10,079" in told
        assert "10,080" in told
        assert "west/n1  critical  GpuLost" in told

    def test_the_page_is_written_whole(self, provision, prometheus, tmp_path):
        answer = provision("fleet", "show", "--prometheus", prometheus, "--html", tmp_path / "fleet.html")
        assert answer.code == 0
        assert (tmp_path / "fleet.html").read_text(encoding="utf-8").endswith("</html>\n")

    def test_json_has_every_panel(self, provision, prometheus, tmp_path):
        answer = provision("fleet", "show", "--prometheus", prometheus, "--json")
        ids = [row["panel"]["id"] for row in answer.document["result"]["shown"]]
        assert ids[0] == "fleet.gpus-visible"
        assert len(ids) == len(set(ids))

    def test_the_text_goes_where_it_is_told(self, provision, prometheus, tmp_path):
        answer = provision("fleet", "show", "--prometheus", prometheus, "-o", tmp_path / "fleet.txt")
        assert answer.out == ""
        assert "GpuLost" in (tmp_path / "fleet.txt").read_text(encoding="utf-8")

    def test_a_server_that_is_not_there_is_absent(self, provision, tmp_path):
        page = tmp_path / "fleet.html"
        answer = provision("fleet", "show", "--prometheus", "http://127.0.0.1:9", "--html", page)
        assert answer.code == 7
        assert "Traceback" not in answer.err
        assert not page.exists()

    @pytest.mark.parametrize(
        "words",
        [
            (),
            ("--prometheus", "prometheus.example"),
            ("--prometheus", "http://127.0.0.1:9", "--hours", "soon"),
            ("--prometheus", "http://127.0.0.1:9", "--hours", "nan"),
            ("--prometheus", "http://127.0.0.1:9", "--hours", "-1"),
            ("--prometheus", "http://127.0.0.1:9", "--user", "gpu"),
            ("--prometheus", "http://127.0.0.1:9", "--user", "gpu", "--password-file", "/nowhere"),
            ("--prometheus", "http://127.0.0.1:9", "--check"),
        ],
        ids=lambda words: " ".join(words) or "nothing",
    )
    def test_wrong_words_are_usage(self, provision, words):
        answer = provision("fleet", "show", *words)
        assert answer.code == 2
        assert "hint" in answer.err or "because" in answer.err


class TestUsage:
    JOBS = """JobID|User|Account|Start|End|ElapsedRaw|AllocTRES
1|ann|vision|2026-11-20T08:00:00|2026-11-20T10:00:00|7200|gres/gpu=4
2|bob|chem|2026-11-20T08:00:00|2026-11-20T10:00:00|7200|cpu=4
"""

    def test_hours_and_money_are_counted(self, provision, tmp_path):
        (tmp_path / "jobs.txt").write_text(self.JOBS)
        answer = provision("fleet", "usage", tmp_path / "jobs.txt", "--gpus", "8", "--gpu-price", "2", "--json")
        assert answer.code == 0
        result = answer.document["result"]
        assert (result["usd"], result["idle_usd"], result["without_gpu"]) == (16, 16, 1)
        told = provision("fleet", "usage", tmp_path / "jobs.txt", "--by", "user").out
        assert "8.0 GPU-hours by 1 user" in told

    def test_a_server_is_asked(self, provision):
        def answer(asked: str) -> list[dict[str, Any]]:
            del asked
            return [{"metric": {"cluster": "c", "namespace": "a"}, "value": [1.8e9, "12"]}]

        with answering(answer) as address:
            told = provision("fleet", "usage", "--prometheus", address, "--hours", "1")
        assert told.code == 0
        assert "c/a" in told.out

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            ((), "what is to be counted is missing"),
            (("jobs.txt", "--by", "pod"), "sacct does not count by pod"),
            (("jobs.txt", "--prometheus", "http://127.0.0.1:9"), "exclude each other"),
            (("--prometheus", "http://127.0.0.1:9", "--by", "user"), "do not name the user"),
            (("--prometheus", "http://127.0.0.1:9", "--gpus", "4"), "--gpus is for FILE"),
            (("jobs.txt", "--gpu-price", "much"), "--gpu-price"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, provision, tmp_path, monkeypatch, flags, said):
        (tmp_path / "jobs.txt").write_text(self.JOBS)
        monkeypatch.chdir(tmp_path)
        answer = provision("fleet", "usage", *flags)
        assert answer.code == 2
        assert said in answer.err
        assert "hint:" in answer.err
