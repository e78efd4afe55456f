"""Every file against the engine's own description of what it takes, and every number of a policy somewhere in it.

Kubernetes' schemas come with kubernetes-validate, AWS' with botocore, Tencent Cloud's with its SDK; where one is not
installed, its tests are skipped.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from provision.errors import UsageError
from provision.generate.scaling.kubernetes import quantity
from provision.generate.scaling.options import ENGINES, ScalingOptions
from provision.generate.scaling.policy import Policy
from provision.generate.scaling.render import ScalingFiles, render_policy
from provision.matrix.load import Matrix
from provision.records import fields_of, replace

MATRIX = Matrix()
BUSY = Policy(
    minimum=2,
    maximum=9,
    metric="utilisation",
    target=70,
    out_above=84,
    in_below=28,
    out_after_seconds=120,
    in_after_seconds=600,
    out_cooldown_seconds=240,
    in_cooldown_seconds=900,
    idle_after_seconds=3600,
    out_step=3,
    in_step=2,
    may_drain=True,
    handles_spot=True,
)
QUEUE = replace(
    BUSY,
    metric="queue",
    minimum=0,
    target=1.0,
    out_above=1.0,
    in_below=0.75,
    waiting_expression="sum(vllm:num_requests_waiting)",
    running_expression="sum(vllm:num_requests_running)",
)
PLAIN = replace(BUSY, may_drain=False, handles_spot=False, out_step=None, in_step=None)
LONG = replace(
    BUSY,
    out_after_seconds=90_000,
    in_after_seconds=90_000,
    out_cooldown_seconds=90_000,
    in_cooldown_seconds=90_000,
)
AT_ONCE = replace(BUSY, out_after_seconds=0, in_after_seconds=0, out_cooldown_seconds=0, in_cooldown_seconds=0)
POLICIES = {"busy": BUSY, "queue": QUEUE, "plain": PLAIN, "long": LONG, "at once": AT_ONCE}
OPTIONS = {
    "k8s": ScalingOptions(engine="k8s", name="chat", namespace="serving"),
    "aws": ScalingOptions(
        engine="aws",
        name="gpu-workers",
        launch_template="gpu-nodes",
        instance_types=("p4d.24xlarge", "p4de.24xlarge"),
    ),
    "tencent": ScalingOptions(engine="tencent", name="asg-1a2b3c4d"),
}


def render(engine: str, policy: Policy, level: float | None = 91.5) -> ScalingFiles:
    return render_policy(policy, OPTIONS[engine], MATRIX, level)


def load(files: ScalingFiles, path: str) -> Any:
    (text,) = [artifact.text for artifact in files.artifacts if artifact.path == path]
    return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Policy:
    return POLICIES[request.param]


class TestKubernetes:
    def test_the_autoscaler_is_what_kubernetes_takes(self, policy: Policy) -> None:
        validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
        validator.validate(load(render("k8s", policy), "autoscaler.yaml"), validator.latest_version(), strict=True)

    def test_a_fault_would_be_seen(self) -> None:
        validator = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
        document = load(render("k8s", BUSY), "autoscaler.yaml")
        document["spec"]["behavior"]["scaleUp"]["stabilisationWindowSeconds"] = 1
        with pytest.raises(validator.ValidationError):
            validator.validate(document, validator.latest_version(), strict=True)

    def test_thresholds_are_tolerances_about_the_target(self) -> None:
        behavior = load(render("k8s", BUSY), "autoscaler.yaml")["spec"]["behavior"]
        assert behavior["scaleUp"]["tolerance"] == "200m"
        assert behavior["scaleDown"]["tolerance"] == "600m"

    def test_waiting_steps_and_cool_downs_are_there(self) -> None:
        spec = load(render("k8s", BUSY), "autoscaler.yaml")["spec"]
        assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 9)
        up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
        assert (up["stabilizationWindowSeconds"], down["stabilizationWindowSeconds"]) == (120, 600)
        assert up["policies"] == [{"type": "Pods", "value": 3, "periodSeconds": 240}]
        assert down["policies"] == [{"type": "Pods", "value": 2, "periodSeconds": 900}]

    def test_what_is_too_long_is_cut_and_said(self) -> None:
        files = render("k8s", LONG)
        up = load(files, "autoscaler.yaml")["spec"]["behavior"]["scaleUp"]
        assert up["stabilizationWindowSeconds"] == 3600
        assert up["policies"][0]["periodSeconds"] == 1800
        assert {"k8s.cooldown-length", "k8s.window-length"} <= set(files.gaps)
        assert not {"k8s.cooldown-length", "k8s.window-length"} & set(render("k8s", BUSY).gaps)

    def test_nothing_is_taken_away_where_work_would_be_lost(self) -> None:
        files = render("k8s", PLAIN)
        assert load(files, "autoscaler.yaml")["spec"]["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}
        assert "k8s.idle" in files.gaps

    def test_the_adapter_serves_the_metric_that_is_asked_for(self) -> None:
        files = render("k8s", BUSY)
        (rule,) = load(files, "prometheus-adapter.yaml")["rules"]
        (metric,) = load(files, "autoscaler.yaml")["spec"]["metrics"]
        assert rule["name"]["as"] == metric["pods"]["metric"]["name"]
        assert metric["pods"]["target"]["averageValue"] == "70"
        # Every series is asked for of the Pods alone, and activity is computed as the alerts compute it.
        selectors = re.findall(r"DCGM_\w+(\{.*?\})?", rule["metricsQuery"])
        assert selectors == ["{<<.LabelMatchers>>}"] * 2
        assert "PROF_GR_ENGINE_ACTIVE" in rule["metricsQuery"]
        assert "DEV_GPU_UTIL" in rule["metricsQuery"]

    def test_a_queue_is_counted_by_one_rule_and_served_from_it(self) -> None:
        files = render("k8s", QUEUE)
        (rule,) = load(files, "prometheus.rules.yaml")["groups"][0]["rules"]
        (served,) = load(files, "prometheus-adapter.yaml")["externalRules"]
        (metric,) = load(files, "autoscaler.yaml")["spec"]["metrics"]
        assert rule["expr"] == "(sum(vllm:num_requests_waiting)) + (sum(vllm:num_requests_running))"
        assert f'__name__="{rule["record"]}"' in served["seriesQuery"]
        assert served["resources"] == {"namespaced": False}
        assert metric["external"]["metric"]["name"] == served["name"]["as"]
        assert "k8s.zero" in files.gaps

    def test_a_queue_that_is_seen_nowhere_is_refused(self) -> None:
        with pytest.raises(UsageError, match="where the queue is seen"):
            render("k8s", replace(QUEUE, waiting_expression=None))

    @pytest.mark.parametrize(
        ("number", "text"), [(70, "70"), (0.9, "900m"), (0.214286, "214286u"), (0, "0"), (1.5, "1500m")]
    )
    def test_numbers_are_written_as_kubernetes_reads_them(self, number: float, text: str) -> None:
        assert quantity(number) == text


AWS_CALLS = {
    "update-auto-scaling-group.json": ("autoscaling", "UpdateAutoScalingGroup"),
    "put-scaling-policy-out.json": ("autoscaling", "PutScalingPolicy"),
    "put-scaling-policy-in.json": ("autoscaling", "PutScalingPolicy"),
    "put-metric-alarm-in.json": ("cloudwatch", "PutMetricAlarm"),
    "put-metric-data.json": ("cloudwatch", "PutMetricData"),
}


def aws_faults(path: str, document: Any) -> str:
    """Return what AWS' own description of the call has against a document."""
    loaders = pytest.importorskip("botocore.loaders", reason="botocore is not installed")
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    service, call = AWS_CALLS[path]
    described = ServiceModel(loaders.Loader().load_service_model(service, "service-2"), service)
    report = ParamValidator().validate(document, described.operation_model(call).input_shape)
    return str(report.generate_report())


class TestAws:
    @pytest.mark.parametrize("path", AWS_CALLS)
    def test_each_call_is_what_aws_takes(self, path: str, policy: Policy) -> None:
        assert aws_faults(path, load(render("aws", policy), path)) == ""

    def test_a_fault_would_be_seen(self) -> None:
        document = load(render("aws", BUSY), "put-scaling-policy-out.json")
        document["TargetTrackingConfiguration"]["TargetVale"] = document["TargetTrackingConfiguration"].pop(
            "TargetValue"
        )
        assert "TargetValue" in aws_faults("put-scaling-policy-out.json", document)

    def test_words_are_among_those_that_aws_knows(self) -> None:
        loaders = pytest.importorskip("botocore.loaders", reason="botocore is not installed")
        model = loaders.Loader().load_service_model("cloudwatch", "service-2")
        alarm = load(render("aws", BUSY), "put-metric-alarm-in.json")
        assert alarm["ComparisonOperator"] in model["shapes"]["ComparisonOperator"]["enum"]
        assert alarm["Unit"] in model["shapes"]["StandardUnit"]["enum"]
        assert load(render("aws", QUEUE), "put-metric-alarm-in.json")["Unit"] in model["shapes"]["StandardUnit"]["enum"]
        assert alarm["Statistic"] in model["shapes"]["Statistic"]["enum"]
        described = str(loaders.Loader().load_service_model("autoscaling", "service-2")["shapes"])
        group = load(render("aws", BUSY), "update-auto-scaling-group.json")
        assert group["MixedInstancesPolicy"]["InstancesDistribution"]["SpotAllocationStrategy"] in described
        for path in ("put-scaling-policy-out.json", "put-scaling-policy-in.json"):
            assert load(render("aws", BUSY), path)["PolicyType"] in described

    def test_target_tracking_adds_only(self) -> None:
        document = load(render("aws", BUSY), "put-scaling-policy-out.json")
        tracking = document["TargetTrackingConfiguration"]
        assert tracking["DisableScaleIn"] is True
        assert tracking["TargetValue"] == 70
        assert document["EstimatedInstanceWarmup"] == 240

    def test_what_takes_away_has_the_threshold_and_the_times_that_were_asked_for(self) -> None:
        files = render("aws", BUSY)
        alarm, simple = load(files, "put-metric-alarm-in.json"), load(files, "put-scaling-policy-in.json")
        assert alarm["Threshold"] == 28
        assert alarm["Period"] * alarm["EvaluationPeriods"] == 600
        assert (simple["ScalingAdjustment"], simple["Cooldown"]) == (-2, 900)

    def test_an_alarm_without_figures_takes_nothing_away(self) -> None:
        assert load(render("aws", BUSY), "put-metric-alarm-in.json")["TreatMissingData"] == "notBreaching"

    def test_an_alarm_looks_back_a_day_at_most(self) -> None:
        files = render("aws", LONG)
        alarm = load(files, "put-metric-alarm-in.json")
        assert alarm["Period"] * alarm["EvaluationPeriods"] == 86_400
        assert "aws.span" in files.gaps

    def test_all_speak_of_the_same_metric(self) -> None:
        files = render("aws", BUSY)
        spec = load(files, "put-scaling-policy-out.json")["TargetTrackingConfiguration"][
            "CustomizedMetricSpecification"
        ]
        alarm, data = load(files, "put-metric-alarm-in.json"), load(files, "put-metric-data.json")
        (datum,) = data["MetricData"]
        keys = ("MetricName", "Dimensions", "Unit")
        assert [spec[key] for key in keys] == [alarm[key] for key in keys] == [datum[key] for key in keys]
        assert spec["Namespace"] == alarm["Namespace"] == data["Namespace"]
        assert datum["Value"] == 91.5

    def test_a_level_that_nobody_saw_is_not_published(self) -> None:
        assert "put-metric-data.json" not in [artifact.path for artifact in render("aws", BUSY, None).artifacts]

    def test_nodes_with_work_are_protected(self) -> None:
        assert load(render("aws", PLAIN), "update-auto-scaling-group.json")["NewInstancesProtectedFromScaleIn"] is True
        assert load(render("aws", BUSY), "update-auto-scaling-group.json")["NewInstancesProtectedFromScaleIn"] is False
        assert "aws.idle" in render("aws", PLAIN).gaps

    def test_spot_nodes_come_on_top_of_those_that_must_be_there(self) -> None:
        group = load(render("aws", BUSY), "update-auto-scaling-group.json")
        mixed = group["MixedInstancesPolicy"]
        assert group["CapacityRebalance"] is True
        assert mixed["InstancesDistribution"]["OnDemandBaseCapacity"] == BUSY.minimum
        assert [row["InstanceType"] for row in mixed["LaunchTemplate"]["Overrides"]] == [
            "p4d.24xlarge",
            "p4de.24xlarge",
        ]
        assert "MixedInstancesPolicy" not in load(render("aws", PLAIN), "update-auto-scaling-group.json")

    def test_spot_nodes_without_a_template_are_refused(self) -> None:
        with pytest.raises(UsageError, match="launch template") as caught:
            render_policy(BUSY, ScalingOptions(engine="aws", name="gpu-workers"), MATRIX)
        assert "--launch-template" in caught.value.hints[0]


TENCENT_CALLS = {
    "modify-auto-scaling-group.json": "ModifyAutoScalingGroupRequest",
    "create-scaling-policy-out.json": "CreateScalingPolicyRequest",
    "create-scaling-policy-in.json": "CreateScalingPolicyRequest",
}


class TestTencent:
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("path", TENCENT_CALLS)
    def test_each_call_is_what_the_sdk_takes(self, path: str, policy: Policy) -> None:
        models = pytest.importorskip("tencentcloud.autoscaling.v20180419.models", reason="its SDK is not installed")
        document = load(render("tencent", policy), path)
        request = getattr(models, TENCENT_CALLS[path])()
        # The SDK warns of a field that it does not know, on the standard error alone.
        known = {name for name in dir(type(request)) if name[0].isupper()}
        assert set(document) <= known
        request._deserialize(document)
        for key, kind in (("MetricAlarm", "MetricAlarm"), ("SpotMixedAllocationPolicy", "SpotMixedAllocationPolicy")):
            if key in document:
                assert set(document[key]) <= {name for name in dir(getattr(models, kind)) if name[0].isupper()}

    def test_the_group_has_the_bounds(self) -> None:
        group = load(render("tencent", BUSY), "modify-auto-scaling-group.json")
        assert (group["MinSize"], group["MaxSize"], group["DefaultCooldown"]) == (2, 9, 900)
        assert group["SpotMixedAllocationPolicy"]["BaseCapacity"] == 2
        assert "SpotMixedAllocationPolicy" not in load(render("tencent", PLAIN), "modify-auto-scaling-group.json")

    def test_policies_step_and_never_fire_by_themselves(self) -> None:
        out, back = (load(render("tencent", BUSY), f"create-scaling-policy-{way}.json") for way in ("out", "in"))
        assert (out["AdjustmentValue"], back["AdjustmentValue"]) == (3, -2)
        assert (out["Cooldown"], back["Cooldown"]) == (240, 900)
        for document in (out, back):
            alarm = document["MetricAlarm"]
            assert (alarm["MetricName"], alarm["ComparisonOperator"], alarm["Threshold"]) == (
                "CPU_UTILIZATION",
                "GREATER_THAN",
                100,
            )

    def test_more_nodes_than_a_group_may_have_are_refused(self) -> None:
        with pytest.raises(UsageError, match="2000 nodes"):
            render("tencent", replace(BUSY, maximum=2001))

    def test_what_is_too_long_is_cut_and_said(self) -> None:
        files = render("tencent", LONG)
        assert load(files, "modify-auto-scaling-group.json")["DefaultCooldown"] == 3600
        assert "tencent.cooldown-length" in files.gaps


@pytest.mark.parametrize("engine", ENGINES)
class TestAll:
    def test_the_same_policy_gives_the_same_bytes(self, engine: str, policy: Policy) -> None:
        assert render(engine, policy) == render(engine, policy)

    def test_nothing_is_dropped_without_a_word(self, engine: str) -> None:
        """Change one number of a policy: a file or what is said must change, or the number is decided by elsewhere."""
        elsewhere = {
            # What is idle is judged before an engine hears of it.
            "k8s": {"idle_after_seconds", "waiting_expression", "running_expression"},
            "aws": {"idle_after_seconds", "waiting_expression", "running_expression", "out_above", "out_after_seconds"},
            "tencent": {
                "idle_after_seconds",
                "waiting_expression",
                "running_expression",
                "target",
                "out_above",
                "in_below",
                "out_after_seconds",
                "in_after_seconds",
                "metric",
            },
        }
        moved: dict[str, Any] = {
            "minimum": 3,
            "maximum": 8,
            "metric": "queue",
            "target": 60,
            "out_above": 80,
            "in_below": 20,
            "out_after_seconds": 60,
            "in_after_seconds": 1200,
            "out_cooldown_seconds": 300,
            "in_cooldown_seconds": 1000,
            "out_step": None,
            "in_step": None,
            "may_drain": False,
            "handles_spot": False,
        }
        silent = set(fields_of(Policy)) - set(moved)
        spelt = {"waiting_expression": "sum(a)", "running_expression": "sum(b)"}
        for field, value in moved.items():
            before = replace(BUSY, **spelt)
            if render(engine, before) == render(engine, replace(before, **{field: value})):
                silent.add(field)
        assert silent == elsewhere[engine]
        said = " ".join(render(engine, BUSY).gaps.values())
        if engine == "aws":
            assert "out_above and out_after_seconds are not said" in said
        if engine == "tencent":
            assert "thresholds, waiting times and the target are not in these files" in said

    def test_what_is_not_expressed_is_in_the_folder_too(self, engine: str, policy: Policy) -> None:
        files = render(engine, policy)
        (notes,) = [artifact.text for artifact in files.artifacts if artifact.path == "SCALING.md"]
        assert files.gaps
        for key, sentence in files.gaps.items():
            assert sentence in notes
            assert key.startswith(f"{engine}.")
        for command in files.commands:
            assert command in notes

    def test_every_file_is_sent_by_a_command_or_read_by_a_person(self, engine: str) -> None:
        files = render(engine, BUSY)
        for artifact in files.artifacts:
            if artifact.path not in ("SCALING.md", "prometheus-adapter.yaml", "prometheus.rules.yaml"):
                assert any(artifact.path in command for command in files.commands)


def test_every_gap_of_the_facts_is_said_somewhere() -> None:
    said = {key for engine in ENGINES for policy in POLICIES.values() for key in render(engine, policy).gaps}
    assert said == {row.id for row in MATRIX.rows("scaling.toml", "gap")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"engine": "azure", "name": "a"}, "not an engine"),
        ({"engine": "k8s", "name": "Chat"}, "--name `Chat`"),
        ({"engine": "k8s", "name": "a\nb"}, r"--name `a\\nb`"),
        ({"engine": "k8s", "name": "a" * 60}, "--name"),
        ({"engine": "k8s", "name": "a", "namespace": "A"}, "--namespace"),
        ({"engine": "aws", "name": "a:b"}, "--name `a:b`"),
        ({"engine": "aws", "name": "$(reboot)"}, "--name"),
        ({"engine": "aws", "name": "a", "namespace": "b"}, "--namespace has no effect"),
        ({"engine": "aws", "name": "a", "instance_types": ("p4d",)}, "--instance-type `p4d`"),
        ({"engine": "aws", "name": "a", "instance_types": ("g5.xlarge", "g5.xlarge")}, "twice"),
        ({"engine": "aws", "name": "a", "launch_template": "a b"}, "--launch-template"),
        ({"engine": "k8s", "name": "a", "launch_template": "abc"}, "have no effect"),
        ({"engine": "tencent", "name": "gpu"}, "--name `gpu`"),
    ],
    ids=str,
)
def test_a_name_that_cannot_be_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScalingOptions(**words)
