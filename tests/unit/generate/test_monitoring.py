"""Rules, routes and dashboards: what they say, that Prometheus and Alertmanager take them, and that tests hold them.

Prometheus' promtool and Alertmanager's amtool come from the packages ``prometheus`` and ``prometheus-alertmanager`` of
the system; without them those tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from alert_cases import CASES, INTERVAL, Case, Moment

from provision.errors import DataError, UsageError
from provision.generate.monitoring import (
    DASHBOARDS,
    alert_name,
    expand,
    receivers,
    remedies,
    render_alertmanager,
    render_counters,
    render_dashboard,
    render_rules,
    rule_groups,
)
from provision.matrix.load import Matrix
from provision.records import replace

MATRIX = Matrix()
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")


def bare_rules() -> list[dict[str, Any]]:
    """Return the groups without annotations, which promtool would compare word by word."""
    groups = rule_groups(MATRIX)
    for group in groups:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return groups


def play(folder: Path, groups: list[dict[str, Any]], cases: list[Case]) -> str:
    """Run promtool on rules and cases; return what it complains of, nothing when all is well."""
    wanted = {alert_name(case.alert) for case in cases}
    groups = [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert", "") in {"", *wanted}]}
        for group in groups
    ]
    groups = [group for group in groups if group["rules"]]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": INTERVAL,
        "group_eval_order": [group["name"] for group in groups],
        "tests": [
            {
                "name": f"{case.alert} {case.name}",
                "interval": INTERVAL,
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [
                    {
                        "eval_time": moment.at,
                        "alertname": alert_name(case.alert),
                        "exp_alerts": [{"exp_labels": labels} for labels in moment.fires],
                    }
                    for moment in case.moments
                ],
            }
            for case in cases
        ],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


class TestRules:
    def test_a_fact_becomes_a_number(self):
        assert expand("x > limit(gpu.temp.active)", MATRIX) == "x > 85"

    def test_a_changed_limit_changes_rule_and_summary(self, tmp_path):
        shutil.copytree(MATRIX.data_dir, tmp_path / "compat")
        file = tmp_path / "compat" / "checks.toml"
        text = file.read_text(encoding="utf-8")
        changed = text.replace('id = "gpu.temp.active"\nvalue = 85', 'id = "gpu.temp.active"\nvalue = 77')
        assert changed != text
        file.write_text(changed, encoding="utf-8")
        rules = render_rules(Matrix(tmp_path / "compat"))
        assert "expr: gpu:temperature:celsius > 77\n" in rules
        assert "over 77 C" in rules

    def test_a_limit_that_is_no_fact_is_named(self):
        with pytest.raises(DataError, match=r"gpu\.nothing"):
            expand("x > limit(gpu.nothing)", MATRIX)

    def test_a_severity_that_no_xid_has_is_named(self):
        with pytest.raises(DataError, match="dreadful"):
            expand('x{xid=~"xids(dreadful)"}', MATRIX)

    def test_xids_of_a_severity_are_those_of_the_catalogue(self):
        codes = {int(code) for code in expand("xids(fatal)", MATRIX).split("|")}
        assert codes == {code for code, row in MATRIX.xids.items() if row.severity == "fatal"}
        assert 79 in codes

    def test_nothing_is_left_to_be_filled_in(self):
        assert re.search(r"\b(limit|xids)\(", render_rules(MATRIX)) is None

    def test_the_same_facts_give_the_same_bytes(self):
        assert render_rules(MATRIX) == render_rules(Matrix())

    def test_the_text_is_the_remedy_of_doctor(self):
        assert remedies(MATRIX.alerts["gpu-lost"], MATRIX) == tuple(MATRIX.diagnoses["gpu.lost"].fix)

    def test_the_text_is_the_remedy_of_verify_where_doctor_has_none(self):
        assert remedies(MATRIX.alerts["textfile-stale"], MATRIX) == (MATRIX.checks["mon.textfile"].remedy,)

    def test_a_runbook_that_is_not_there_is_named(self):
        alert = replace(MATRIX.alerts["gpu-lost"], runbook=("gpu.nowhere",))
        with pytest.raises(DataError, match=r"gpu\.nowhere"):
            remedies(alert, MATRIX)

    def test_every_alert_says_what_to_do(self):
        rules = {rule["alert"]: rule for group in rule_groups(MATRIX)[1:] for rule in group["rules"]}
        assert set(rules) == {alert_name(key) for key in MATRIX.alerts}
        assert [name for name, rule in rules.items() if not rule["annotations"]["remedy"]] == []

    def test_alerts_are_joined_on_nodes_alone(self):
        """What exporters call a host differs between them and between their releases."""
        wrong = re.compile(r"\b(on|by|ignoring) ?\([^)]*\b([Hh]ostname|instance)\b")
        assert [row.id for row in MATRIX.alerts.values() if wrong.search(row.expression)] == []

    def test_what_is_of_a_node_is_of_a_cluster_as_well(self):
        """Two clusters may have a node of one name, and one Prometheus."""
        wrong = re.compile(r"\b(on|by) \((?![^)]*\bcluster\b)[^)]*\bnode\b")
        rows = (*MATRIX.recordings, *MATRIX.alerts.values(), *MATRIX.panels)
        assert [row for row in rows if wrong.search(row.expression)] == []
        assert [row.id for row in MATRIX.inhibitions if row.equal[:2] != ("cluster", "node")] == []

    def test_a_runbook_is_an_address_where_the_page_is_published(self):
        said = yaml.safe_load(render_rules(MATRIX, "https://docs.example/runbooks"))
        rules = {rule["alert"]: rule["annotations"] for group in said["groups"][1:] for rule in group["rules"]}
        for alert in MATRIX.alerts.values():
            page = [row for key in alert.runbook if (row := MATRIX.diagnoses.get(key) or MATRIX.checks.get(key))]
            url = rules[alert_name(alert.id)].get("runbook_url")
            assert url == (f"https://docs.example/runbooks#{page[0].runbook.partition('#')[2]}" if page else None)
        assert rules["GpuLost"]["runbook_url"].startswith("https://docs.example/runbooks#gpu")

    @pytest.mark.parametrize("address", ["docs/runbooks.md", "ftp://x", "https://a b", ""])
    def test_and_what_is_no_address_is_refused(self, address):
        with pytest.raises(UsageError, match="--runbooks"):
            render_rules(MATRIX, address)

    @needs_promtool
    def test_promtool_takes_them(self, tmp_path):
        (tmp_path / "rules.yml").write_text(render_rules(MATRIX), encoding="utf-8")
        subprocess.run(["promtool", "check", "rules", "--lint-fatal", "rules.yml"], cwd=tmp_path, check=True)


def test_every_alert_has_a_case_that_fires_and_one_that_does_not():
    fired = {case.alert for case in CASES for moment in case.moments if moment.fires}
    silent = {case.alert for case in CASES for moment in case.moments if not moment.fires}
    assert fired == set(MATRIX.alerts)
    assert set(MATRIX.alerts) - silent == {"watchdog"}


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert} {case.name}".strip())
def test_an_alert_fires_when_it_should_and_not_before(tmp_path, case):
    assert play(tmp_path, bare_rules(), [case]) == ""


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert} {case.name}".strip())
def test_two_clusters_with_nodes_of_the_same_names_are_told_apart(tmp_path, case):
    """In each the same is told, with its name; joined over both, many would be told of nothing or find two."""
    if case.alert == "watchdog":
        pytest.skip("it is of no cluster")
    series = {}
    for name, values in case.series.items():
        metric, _, labels = name.removesuffix("}").partition("{")
        for cluster in ("a", "b"):
            series[f"{metric}{{{','.join(filter(None, (labels, f'cluster={chr(34)}{cluster}{chr(34)}')))}}}"] = values
    moments = tuple(
        Moment(item.at, tuple({**labels, "cluster": cluster} for labels in item.fires for cluster in ("a", "b")))
        for item in case.moments
    )
    assert play(tmp_path, bare_rules(), [Case(case.alert, series, moments)]) == ""


@needs_promtool
def test_a_gpu_that_is_lost_in_one_cluster_is_not_replaced_by_one_of_another(tmp_path):
    heat = {
        f'DCGM_FI_DEV_GPU_TEMP{{cluster="{cluster}",node="n1",gpu="{gpu}",UUID="{cluster}{gpu}"}}': values
        for cluster, gpu, values in (
            ("a", 0, "40x59"),
            ("a", 1, "40x19 _x40"),
            ("b", 0, "40x59"),
            ("b", 1, "40x59"),
            # It comes while the other goes: over both clusters the number stays.
            ("b", 2, "_x19 40x40"),
        )
    }
    fires = ({"cluster": "a", "node": "n1", "severity": "critical"},)
    assert play(tmp_path, bare_rules(), [Case("gpu-lost", heat, (Moment("9m"), Moment("20m", fires)))]) == ""


@needs_promtool
def test_no_case_makes_another_alert_fire_that_means_something_else(tmp_path):
    """A GPU that is hot is not lost: what one alert is about, no other is told of."""
    case = next(case for case in CASES if case.alert == "gpu-temperature-high")
    others = [replace_alert(case, key) for key in MATRIX.alerts if key not in ("gpu-temperature-high", "watchdog")]
    assert play(tmp_path, bare_rules(), others) == ""


@needs_promtool
def test_a_summary_reads_as_a_sentence(tmp_path):
    case = next(case for case in CASES if case.alert == "gpu-temperature-high")
    groups = rule_groups(MATRIX)
    for group in groups:
        for rule in group["rules"]:
            if "annotations" in rule:
                rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    said = play(tmp_path, groups, [case])
    assert '"n1 GPU 0: 86 C, over 85 C' in said
    named = {name.replace("{", '{cluster="prod",', 1): values for name, values in case.series.items()}
    assert '"prod/n1 GPU 0: 86 C, over 85 C' in play(tmp_path, groups, [Case(case.alert, named, case.moments)])


@needs_promtool
def test_a_node_that_is_down_is_told_of_before_its_exporter_is(tmp_path):
    """The one inhibits the other, which it does once it fires: both at one moment may be told the wrong way round."""
    all_down = {f'up{{node="n1",job="{job}",instance="n1:{port}"}}': "0x49" for job, port in (("node", 1), ("gpu", 2))}
    is_down = Moment("3m30s", ({"node": "n1", "severity": "critical"},))
    cases = [Case("node-down", all_down, (is_down,)), Case("gpu-exporter-down", all_down, (Moment(is_down.at),))]
    assert play(tmp_path, bare_rules(), cases) == ""
    inhibition = next(row for row in MATRIX.inhibitions if row.id == "node-down")
    assert "gpu-exporter-down" in inhibition.targets


def replace_alert(case: Case, alert: str) -> Case:
    """Return the series of a case with the expectation that another alert stays silent."""
    return Case(alert, case.series, tuple(Moment(moment.at) for moment in case.moments))


_FLIPS = {"=~": "!~", "!~": "=~", "==": "!=", ">=": "<", "<=": ">", ">": "<=", "<": ">=", "=": "!="}
_OPERATOR = re.compile(r'"[^"]*"|=~|!~|==|!=|>=|<=|>|<|=')


def series_of(alert: str) -> set[str]:
    """Return the computed series that an alert rests on, and those that these rest on."""
    text, found = MATRIX.alerts[alert].expression, set[str]()
    while more := {row.name for row in MATRIX.recordings if row.name in text} - found:
        found |= more
        text = " ".join(row.expression for row in MATRIX.recordings if row.name in found)
    return found


def flipped(expression: str) -> Iterator[str]:
    """Yield the expression with one comparison turned round, each in turn."""
    for match in _OPERATOR.finditer(expression):
        if match[0].startswith('"'):
            continue
        is_matcher = expression[: match.start()].count("{") > expression[: match.start()].count("}")
        other = ("=" if is_matcher else "==") if match[0] == "!=" else _FLIPS[match[0]]
        yield expression[: match.start()] + other + expression[match.end() :]


def mutants() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield alert or series, what is wrong, and the rule's fields that say so."""
    texts = {alert_name(row.id): row.expression for row in MATRIX.alerts.values()}
    judged = " ".join([*texts.values(), *(row.expression for row in MATRIX.recordings)])
    texts |= {row.name: row.expression for row in MATRIX.recordings if row.name in judged}
    for name, text in texts.items():
        for number, wrong in enumerate(flipped(text)):
            yield name, f"comparison {number}", {"expr": expand(wrong, MATRIX)}
        for number, match in enumerate(re.finditer(r"limit\(([^)]*)\)", text)):
            if match[1] == "dcgm.blank-int32":
                continue
            value = MATRIX.limit(match[1])
            # A limit of nothing at all is moved as far as a whole count can be.
            for other in (value * 0.8, value * 1.25) if value else (-1, 1):
                wrong = text[: match.start()] + f"{other:.15g}" + text[match.end() :]
                yield name, f"number {number}, {match[1]} is {other:g}", {"expr": expand(wrong, MATRIX)}
    for row in MATRIX.alerts.values():
        for key, seconds in (("for", row.pending_seconds), ("keep_firing_for", row.kept_seconds)):
            if seconds is not None:
                yield alert_name(row.id), f"no {key}", {key: "0s"}
                yield alert_name(row.id), f"{key} twice as long", {key: f"{2 * seconds}s"}


MUTANTS = list(mutants())


@needs_promtool
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant[0]}: {mutant[1]}")
def test_a_wrong_rule_is_seen(tmp_path, mutant):
    name, _, fields = mutant
    groups = bare_rules()
    rule = next(rule for group in groups for rule in group["rules"] if name in (rule.get("alert"), rule.get("record")))
    rule.update(fields)
    cases = [case for case in CASES if name in (alert_name(case.alert), *series_of(case.alert))]
    assert play(tmp_path, groups, cases) != ""


class TestCounters:
    def test_what_is_asked_for_is_collected_and_nothing_else(self):
        """A field that nobody collects makes an alert that never fires."""
        rows = (*MATRIX.recordings, *MATRIX.alerts.values(), *MATRIX.panels)
        asked = {name for row in rows for name in re.findall(r"\bDCGM_(?!FR_)[A-Z0-9_]+", row.expression)}
        assert {row.name for row in MATRIX.counters} == asked

    def test_a_line_has_three_parts(self):
        lines = [line for line in render_counters(MATRIX).splitlines() if not line.startswith("#")]
        assert {line.count(",") for line in lines} == {2}

    def test_only_what_never_falls_is_taken_a_rate_of(self):
        rows = (*MATRIX.recordings, *MATRIX.alerts.values(), *MATRIX.panels)
        grown = {name for row in rows for name in re.findall(r"\b(?:rate|increase)\((DCGM_\w+)", row.expression)}
        assert grown
        assert {row.kind for row in MATRIX.counters if row.name in grown} == {"counter"}


class TestAlertmanager:
    def config(self, tmp_path: Path, webhooks: dict[str, str] | None = None) -> Path:
        path = tmp_path / "alertmanager.yml"
        path.write_text(render_alertmanager(MATRIX, webhooks), encoding="utf-8")
        return path

    @needs_amtool
    def test_amtool_takes_it(self, tmp_path):
        webhooks = dict.fromkeys(receivers(MATRIX), "https://hooks.example/gpu")
        subprocess.run(["amtool", "check-config", self.config(tmp_path, webhooks)], check=True)

    @needs_amtool
    @pytest.mark.parametrize("place", ["https://hooks.example/gpu", "/etc/alertmanager/secret"])
    def test_amtool_takes_slack_and_pagerduty(self, tmp_path, place):
        """Teams is left out: the Alertmanager of the system is older than its form."""
        key = place if place.startswith("/") else "k" * 32
        text = render_alertmanager(MATRIX, None, {"slack": {"default": place}, "pagerduty": {"release": key}})
        (tmp_path / "alertmanager.yml").write_text(text, encoding="utf-8")
        subprocess.run(["amtool", "check-config", tmp_path / "alertmanager.yml"], check=True)

    @pytest.mark.parametrize(
        ("service", "place", "field"),
        [
            ("slack", "https://hooks.example/gpu", "api_url"),
            ("slack", "/etc/slack", "api_url_file"),
            ("teams", "https://hooks.example/gpu", "webhook_url"),
            ("pagerduty", "k" * 32, "routing_key"),
            ("pagerduty", "/etc/pagerduty", "routing_key_file"),
        ],
    )
    def test_a_service_is_told_in_its_own_form(self, service, place, field):
        document = yaml.safe_load(render_alertmanager(MATRIX, None, {service: {"default": place}}))
        rows = {row["name"]: row for row in document["receivers"]}
        (told,) = rows["default"][MATRIX.notifiers[service].config]
        assert told[field] == place
        # Slack's form leaves the end of an alert out unless it is asked for.
        assert told["send_resolved"] is True
        assert rows["release"] == {"name": "release"}

    @pytest.mark.parametrize(
        ("address", "flag"),
        [
            ("https://hooks.slack.com/services/T0/B0/token", "--slack default=URL"),
            ("https://x.webhook.office.com/webhookb2/token", "--teams default=URL"),
            ("https://prod-1.westeurope.logic.azure.com:443/workflows/token", "--teams default=URL"),
            ("https://events.pagerduty.com/v2/enqueue", "--pagerduty default=KEY"),
        ],
    )
    def test_an_address_of_a_service_is_no_webhook(self, address, flag):
        with pytest.raises(UsageError) as caught:
            render_alertmanager(MATRIX, {"default": address})
        assert flag in caught.value.hints[0]
        assert "token" not in str(caught.value) + " ".join(caught.value.because)

    @pytest.mark.parametrize(
        "address", ["https://myhooks.slack.com.example/x", "https://hooks.example/hooks.slack.com"]
    )
    def test_an_address_that_only_looks_like_one_is_taken(self, address):
        assert address in render_alertmanager(MATRIX, {"default": address})

    @pytest.mark.parametrize(
        "notifiers",
        [
            {"slack": {"nobody": "https://hooks.example"}},
            {"slack": {"default": "token"}},
            {"slack": {"default": "/etc/../token"}},
            {"pagerduty": {"default": "https://token"}},
        ],
        ids=str,
    )
    def test_what_a_service_cannot_be_told_by_is_refused_and_not_repeated(self, notifiers):
        with pytest.raises(UsageError) as caught:
            render_alertmanager(MATRIX, None, notifiers)
        assert "token" not in str(caught.value) + " ".join(caught.value.hints)

    @needs_amtool
    @pytest.mark.parametrize("alert", MATRIX.alerts.values(), ids=lambda alert: alert.id)
    def test_every_alert_reaches_its_receiver(self, tmp_path, alert):
        labels = [f"alertname={alert_name(alert.id)}", f"severity={alert.severity}", "node=n1"]
        labels += [f"action={alert.action}"] if alert.action else []
        done = subprocess.run(
            ["amtool", "config", "routes", "test", f"--config.file={self.config(tmp_path)}", *labels],
            capture_output=True,
            text=True,
            check=True,
        )
        wanted = "watchdog" if alert.severity == "none" else alert.action or "default"
        assert done.stdout.strip() == wanted

    def test_a_webhook_reaches_the_receiver_that_it_is_for(self):
        document = yaml.safe_load(render_alertmanager(MATRIX, {"release": "https://hooks.example/x"}))
        told = {row["name"]: row.get("webhook_configs") for row in document["receivers"]}
        assert told["release"] == [{"url": "https://hooks.example/x", "send_resolved": True}]
        assert told["default"] is None

    @pytest.mark.parametrize(
        "webhooks",
        [{"nobody": "https://hooks.example"}, {"default": "file:///etc/passwd"}, {"default": "https://a b"}],
        ids=str,
    )
    def test_a_webhook_that_cannot_be_is_refused(self, webhooks):
        with pytest.raises(UsageError):
            render_alertmanager(MATRIX, webhooks)

    def test_an_address_that_is_refused_is_not_repeated(self):
        with pytest.raises(UsageError) as caught:
            render_alertmanager(MATRIX, {"default": "ftp://token-1234"})
        assert "1234" not in str(caught.value) + " ".join(caught.value.hints)

    def test_what_is_silenced_shares_the_labels_that_decide(self):
        """An alert without the label would be silenced by every other alert without it."""
        for row in MATRIX.inhibitions:
            for key in (*row.sources, *row.targets):
                summary = MATRIX.alerts[key].summary
                named = [label for label in row.equal if label != "cluster" and f"$labels.{label}" not in summary]
                assert named == [], (row.id, key)

    def test_nothing_silences_itself(self):
        assert [row.id for row in MATRIX.inhibitions if set(row.sources) & set(row.targets)] == []


class TestDashboards:
    @pytest.fixture(params=DASHBOARDS)
    def board(self, request) -> dict[str, Any]:
        return json.loads(render_dashboard(MATRIX, request.param))

    def test_none_else_is_known(self):
        with pytest.raises(UsageError, match="nothing"):
            render_dashboard(MATRIX, "nothing")

    def test_every_panel_is_on_one(self):
        shown = [panel for name in DASHBOARDS for panel in json.loads(render_dashboard(MATRIX, name))["panels"]]
        assert len(shown) == len(MATRIX.panels)

    def test_every_panel_asks_the_data_source_that_was_chosen(self, board):
        assert board["templating"]["list"][0]["type"] == "datasource"
        for panel in board["panels"]:
            assert {panel["datasource"]["uid"], panel["targets"][0]["datasource"]["uid"]} == {"${datasource}"}

    def test_no_panel_is_of_a_kind_that_grafana_dropped(self, board):
        assert {panel["type"] for panel in board["panels"]} <= {"stat", "table", "timeseries"}
        assert board["schemaVersion"] >= 36

    def test_panels_lie_on_the_grid_and_on_no_other(self, board):
        cells: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            mine = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert max(x for x, _ in mine) < 24
            assert not mine & cells
            cells |= mine

    def test_every_panel_has_its_own_number(self, board):
        numbers = [panel["id"] for panel in board["panels"]]
        assert len(numbers) == len(set(numbers))

    def test_the_chosen_nodes_are_asked_for_wherever_they_can_be_chosen(self, board):
        names = {variable["name"] for variable in board["templating"]["list"]}
        for panel in board["panels"]:
            for name in ("node", "cluster"):
                assert (f"${name}" in panel["targets"][0]["expr"]) == (name in names), panel["title"]

    def test_a_line_is_named_by_labels_that_its_series_have(self):
        for panel in MATRIX.panels:
            for label in re.findall(r"{{(\w+)}}", panel.legend or ""):
                source = panel.expression + "".join(
                    row.expression for row in MATRIX.recordings if row.name in panel.expression
                )
                assert re.search(rf"\bby \([^)]*\b{label}\b", source), panel.id

    @needs_promtool
    def test_every_question_is_promql(self, tmp_path):
        rules = [
            {
                "record": f"panel:n{number}:x",
                "expr": panel["targets"][0]["expr"].replace("$node", ".*").replace("$cluster", ".*"),
            }
            for number, panel in enumerate(
                panel for name in DASHBOARDS for panel in json.loads(render_dashboard(MATRIX, name))["panels"]
            )
        ]
        (tmp_path / "rules.yml").write_text(
            yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8"
        )
        subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, check=True)
