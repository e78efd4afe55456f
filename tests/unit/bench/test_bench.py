"""Cases, results, comparison and bands of `provision bench`, and the runner with an interpreter that stands in."""

from __future__ import annotations

import ast
import json
import os
import random
import stat
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import combinations
from math import exp
from pathlib import Path

import pytest

from provision.bench.bands import find_unjudged, judge
from provision.bench.cases import choose
from provision.bench.compare import compare, run_noise
from provision.bench.results import Figure, Results, read_results, summarise
from provision.bench.roofline import roofline_svg
from provision.bench.runner import Environment, Run, find_device, run_cases
from provision.errors import ActionFailedError, MissingDependencyError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.predict.hardware import Hardware
from provision.records import replace

PAYLOAD = Path(summarise.__code__.co_filename).with_name("payloads") / "workloads.py"
RUN = Run(device="cpu", seconds=0.01, warmup=1)
MATRIX = Matrix()


def _figure(name="gemm/1/bf16", seconds=1.0, spread=0.0, repeats=10, **more):
    case = {"id": name, "kind": name.split("/")[0], "precision": "bf16"} | more.pop("case", {})
    return Figure(
        id=name, kind=case["kind"], status="ok", case=case, seconds=seconds, spread_seconds=spread, repeats=repeats,
        rate=1 / seconds, unit="FLOP/s", **more,
    )  # fmt: skip


def _results(*figures, **machine):
    return Results(machine={"device": "cuda"} | machine, settings={}, figures=figures)


class TestCases:
    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    @pytest.mark.parametrize("suite", ["quick", "standard", "full"])
    def test_ids_are_unique(self, suite, device):
        ids = [case.id for case in choose(suite, device)]
        assert len(ids) == len(set(ids))

    def test_the_standard_suite_is_a_part_of_the_full_one(self):
        standard, full = choose("standard", "cuda"), choose("full", "cuda")
        assert {case.id for case in standard} < {case.id for case in full}
        assert len(standard) < len(full) / 3

    def test_every_pair_of_values_occurs_in_the_standard_suite(self):
        fields = ("batch", "size", "optimizer", "precision")
        for kind in ("cnn", "rnn", "transformer"):
            part = [case for case in choose("standard", "cuda") if case.kind == kind]
            whole = [case for case in choose("full", "cuda") if case.kind == kind]
            assert len(part) < len(whole)
            for one, two in combinations(fields, 2):
                pairs = {(getattr(case, one), getattr(case, two)) for case in whole}
                assert {(getattr(case, one), getattr(case, two)) for case in part} == pairs

    def test_a_processor_is_spared_half_precision(self):
        assert not {"fp16", "tf32"} & {case.precision for case in choose("full", "cpu")}

    def test_kinds_can_be_chosen_and_must_exist(self):
        assert {case.kind for case in choose("quick", "cpu", ("gemm", "rnn"))} == {"gemm", "rnn"}
        with pytest.raises(UsageError, match="gem"):
            choose("quick", "cpu", ("gem",))


class TestResults:
    def test_the_median_and_its_deviation_are_deaf_to_one_slow_repetition(self):
        figure = summarise({"id": "x", "kind": "gemm"}, [1.0, 1.0, 1.0, 1.0, 90.0], {"work": 8.0, "unit": "FLOP/s"})
        assert (figure.seconds, figure.spread_seconds, figure.rate, figure.repeats) == (1.0, 0.0, 8.0, 5)

    def test_what_is_written_is_read_again(self, tmp_path):
        results = replace(_results(_figure(), torch="2.9"), lock_digest="sha256:0")
        (tmp_path / "a.json").write_text(json.dumps(results.to_json()))
        assert read_results(tmp_path / "a.json") == results

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{}",
            '{"schema_version": 2, "machine": {}, "settings": {}, "figures": []}',
            '{"schema_version": 1, "machine": {}, "settings": {}, "figures": [{}]}',
            '{"schema_version": 1, "machine": {}, "settings": {}, "figures": [3]}',
            '{"schema_version": 1, "machine": {}, "settings": {}, "figures": '
            '[{"id": "x", "kind": "gemm", "status": "ok", "case": {}, "seconds": 0}]}',
            '{"schema_version": 1, "machine": {}, "settings": {}, "figures": '
            '[{"id": "x", "kind": "gemm", "status": "fine", "case": {}}]}',
        ],
    )
    def test_other_files_are_refused(self, tmp_path, text):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(UsageError, match=r"a\.json"):
            read_results(tmp_path / "a.json")

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_results(tmp_path / "a.json")


def _noisy_run(rng: random.Random, deviations: Sequence[tuple[str, float]], slower: float = 0.0) -> Results:
    """A run whose times scatter from run to run by a deviation a case; the last case is slower by a share."""
    figures = [
        _figure(f"{kind}/{number}", seconds=exp(rng.gauss(0, deviation)), spread=0.004)
        for number, (kind, deviation) in enumerate(deviations)
    ]
    last = figures[-1]
    return _results(*figures[:-1], replace(last, seconds=last.seconds * (1 + slower)))


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "deviations",
    [
        [("gemm", 0.019)] * 16,
        [("gemm", 0.019)] * 60,
        [("loader", 0.04)] * 4 + [("cnn", 0.01)] * 12,
        [("cnn", 0.01)] * 8 + [("loader", 0.03)] * 8,
    ],
    ids=["16", "60", "few-noisy", "half-noisy"],
)
def test_equal_environments_raise_few_alarms(runs: int, deviations: list[tuple[str, float]]) -> None:
    rng, trials = random.Random(7), 150  # noqa: S311
    alarms = sum(
        bool(compare([_noisy_run(rng, deviations) for _ in range(runs)], _noisy_run(rng, deviations), 0.05).slower)
        for _ in range(trials)
    )
    # One in twenty is the aim; the noise itself is estimated, and so is this share.
    assert alarms / trials <= 0.1


@pytest.mark.parametrize("runs", [1, 3])
def test_a_case_that_is_a_sixth_slower_is_found_among_noise(runs: int) -> None:
    rng, trials, deviations = random.Random(7), 60, [("gemm", 0.019)] * 16  # noqa: S311
    found = 0
    for _ in range(trials):
        baseline = [_noisy_run(rng, deviations) for _ in range(runs)]
        found += "gemm/15" in {row.id for row in compare(baseline, _noisy_run(rng, deviations, 0.18), 0.05).slower}
    assert found / trials >= 0.9


class TestCompare:
    @pytest.mark.parametrize(
        ("seconds", "spread", "verdict"),
        [
            (1.0, 0.0, "same"),
            (1.04, 0.0, "same"),
            (1.08, 0.0, "slower"),
            (0.9, 0.0, "faster"),
            (1.08, 0.1, "same"),
            (1.4, 0.1, "slower"),
            (1.4, 0.6, "unsure"),
        ],
    )
    def test_a_difference_counts_beyond_tolerance_and_noise(self, seconds, spread, verdict):
        found = compare([_results(_figure())], _results(_figure(seconds=seconds, spread=spread)), 0.05)
        assert found.differences[0].verdict == verdict

    def test_what_is_gone_or_failed_makes_it_worse(self):
        old = _results(_figure("gemm/1"), _figure("gemm/2"), _figure("gemm/3"))
        failed = replace(_figure("gemm/2"), status="failed", seconds=None, reason="out of memory")
        found = compare([old], _results(_figure("gemm/1"), failed), 0.05)
        assert [row.verdict for row in found.differences] == ["same", "unknown", "gone"]
        assert found.is_worse
        assert not found.slower

    def test_new_cases_and_other_machines_are_said(self):
        old = _results(_figure("gemm/1"), gpu="A", torch="2.8")
        new = _results(_figure("gemm/1"), _figure("gemm/2"), gpu="A", torch="2.9")
        found = compare([old], new, 0.05)
        assert [row.verdict for row in found.differences] == ["same", "new"]
        assert found.machines == ("torch: 2.8 → 2.9",)
        assert not found.is_worse

    def test_nothing_in_common_is_refused(self):
        with pytest.raises(UsageError, match="no case in common"):
            compare([_results(_figure("gemm/1"))], _results(_figure("gemm/2")), 0.05)

    def test_throttling_is_the_reason_beside_a_difference(self):
        slow = _figure(seconds=2.0, clocks={"after": {"throttled": ["thermal"]}})
        assert compare([_results(_figure())], _results(slow), 0.05).differences[0].reason == "throttled: thermal"


def _runs(*runs, kind="gemm"):
    """Return a run for each row of times, of which every case has one."""
    return [_results(*(_figure(f"{kind}/{place}", seconds) for place, seconds in enumerate(run))) for run in runs]


class TestRunNoise:
    def test_it_is_the_deviation_of_runs_by_kind(self):
        first, second = _runs([1.0, 1.0, 1.0, 1.0], [1.01, 1.01, 1.01, 1.01])
        copies = [_figure(f"copy/{place}", 1.0 + 0.05 * place) for place in (0, 1)]
        noise = run_noise(
            [replace(first, figures=(*first.figures, *copies)), replace(second, figures=(*second.figures, *copies))]
        )
        assert noise["gemm"] == pytest.approx(1.4826 * 0.00995 / 2**0.5, rel=1e-3)

    def test_one_bad_case_of_a_kind_does_not_tell_the_noise_of_all(self):
        noise = run_noise(_runs([1.0, 1.0, 1.0, 1.0, 1.0], [1.01, 1.01, 1.01, 1.01, 9.0]))
        assert noise["gemm"] < 0.02

    def test_it_is_that_of_values_drawn_with_it(self):
        draw = random.Random(0)  # noqa: S311 - the same values each time
        runs = _runs(*([draw.gauss(1, 0.02) for _ in range(30)] for _ in range(6)))
        assert run_noise(runs)["gemm"] == pytest.approx(0.02, rel=0.15)

    def test_a_lucky_pair_of_a_kind_with_one_case_gives_no_zero(self):
        first, second = _runs([1.0, 1.0, 1.0], [1.03, 1.03, 1.03])
        lone = _figure("stream/fp32", 1.0)
        noise = run_noise(
            [replace(first, figures=(*first.figures, lone)), replace(second, figures=(*second.figures, lone))]
        )
        assert noise["stream"] == noise["gemm"] > 0

    def test_what_no_two_runs_have_is_absent(self):
        assert run_noise(_runs([1.0])) == {}
        assert run_noise([_results(_figure("gemm/1")), _results(_figure("copy/1"))]) == {}


class TestBaselineOfSeveralRuns:
    def test_the_median_of_the_runs_is_the_baseline(self):
        found = compare(_runs([1.0], [1.0], [7.0]), _results(_figure("gemm/0", 1.0)), 0.05)
        assert found.differences[0].old_seconds == 1.0
        assert found.baseline_runs == 3

    @pytest.mark.parametrize(
        ("second", "verdict"), [([1.0, 1.0, 1.0], "slower"), ([1.08, 1.08, 1.08], "same")], ids=["calm", "noisy"]
    )
    def test_the_scatter_between_runs_is_noise(self, second, verdict):
        baseline = _runs([1.0, 1.0, 1.0], second)
        found = compare(baseline, _results(*(_figure(f"gemm/{place}", 1.15) for place in range(3))), 0.05)
        assert {row.verdict for row in found.differences} == {verdict}
        assert (found.run_noise["gemm"] > 0.02) is (verdict == "same")

    def test_with_two_runs_a_case_that_was_lucky_takes_the_noise_of_its_kind(self):
        found = compare(_runs([1.0, 1.0, 1.0], [1.0, 1.08, 1.08]), _results(_figure("gemm/0", 1.1)), 0.05)
        lucky = next(row for row in found.differences if row.id == "gemm/0")
        assert lucky.verdict == "same"
        assert lucky.limit > 0.1

    def test_with_more_runs_a_case_is_judged_by_its_own_scatter_too(self):
        runs = [[1.0, 1.0, 1.0, wild] for wild in (1.0, 1.2, 1.4, 1.1, 1.3)]
        new = _results(*(_figure(f"gemm/{place}", 1.3) for place in range(4)))
        found = {row.id: row for row in compare(_runs(*runs), new, 0.05).differences}
        assert found["gemm/0"].verdict == "slower"
        assert found["gemm/3"].limit > 3 * found["gemm/0"].limit

    def test_one_run_is_judged_as_ever(self):
        found = compare(_runs([1.0]), _results(_figure("gemm/0", 1.08)), 0.05)
        assert (found.differences[0].limit, dict(found.run_noise), found.baseline_runs) == (0.05, {}, 1)

    def test_a_case_that_failed_in_one_run_has_the_figure_of_the_others(self):
        first, second = _runs([1.0, 1.0], [1.0, 1.0])
        failed = replace(first.figures[0], status="failed", seconds=None)
        found = compare([replace(first, figures=(failed, first.figures[1])), second], second, 0.05)
        assert [row.verdict for row in found.differences] == ["same", "same"]

    def test_machines_that_differ_within_the_baseline_are_said(self):
        runs = [_results(_figure(), driver=driver) for driver in ("570", "570", "580")]
        assert compare(runs[:2], runs[1], 0.05).machines == ()
        assert compare([runs[0], runs[2]], runs[2], 0.05).machines == ("driver: 570 → 580",)

    def test_a_run_without_a_case_in_common_is_refused(self):
        with pytest.raises(UsageError, match="a run of the baseline"):
            compare([_results(_figure("gemm/1")), _results(_figure("gemm/2"))], _results(_figure("gemm/1")), 0.05)


MIB = 2**20
HEALTHY = {
    # What others measured at the sizes of bench: BF16 products in TFLOPS by edge, a sum of 256 MiB over eight GPUs
    # and copies in GB/s. The products are the lowest of three tables of aiconfigurator, or their median where the
    # lowest was throttled; the A100's sum is that of NVSentinel's sample.
    "h200": ("NVIDIA H200", 5, {4096: 780, 8192: 670}, 444.9, 55),
    "h100": ("NVIDIA H100 80GB HBM3", 5, {4096: 767, 8192: 657}, 429.9, 55),
    "a100": ("NVIDIA A100-SXM4-80GB", 4, {4096: 250, 8192: 257}, 197.9, 24),
    "b200": ("NVIDIA B200", 5, {4096: 1495, 8192: 1492}, 646.1, 55),
}


def _gpu_run(name, generation, products, bus, copies, share=1.0, **machine):
    """Return what bench keeps of a machine with eight GPUs that reaches a share of some rates."""
    figures = [
        replace(_figure(f"gemm/{edge}/bf16", case={"size": edge}), rate=share * rate * 1e12)
        for edge, rate in products.items()
    ]
    figures += [
        replace(_figure(f"copy/{mode}", case={"mode": mode, "size": 1024 * MIB}), rate=share * copies * 1e9)
        for mode in ("h2d", "d2h")
    ]
    summed = _figure("allreduce", case={"size": 256 * MIB, "workers": 8}, bytes=256.0 * MIB)
    slot = {"pcie_generation": generation, "pcie_lanes": 16}
    return _results(*figures, replace(summed, rate=share * bus * 1e9), **({"gpu": name, "gpus": 8} | slot | machine))


class TestBands:
    def _run(self, tflops, **machine):
        figure = replace(_figure("gemm/8192/bf16", case={"size": 8192}), rate=tflops * 1e12)
        return judge(_results(figure, **({"gpu": "NVIDIA H200", "gpus": 1} | machine)), MATRIX)

    @pytest.mark.parametrize("kind", HEALTHY)
    def test_a_healthy_machine_meets_every_floor_at_the_sizes_of_bench(self, kind):
        results = _gpu_run(*HEALTHY[kind])
        bands = {band.measure: band.is_met for band in judge(results, MATRIX)}
        assert bands == dict.fromkeys(("gemm-bf16", "h2d", "d2h", "allreduce"), True)
        assert not find_unjudged(results, MATRIX)

    @pytest.mark.parametrize("kind", HEALTHY)
    def test_each_product_alone_meets_the_floor(self, kind):
        name, generation, products, *others = HEALTHY[kind]
        for edge, rate in products.items():
            bands = judge(_gpu_run(name, generation, {edge: rate}, *others), MATRIX)
            assert [band.is_met for band in bands if band.measure == "gemm-bf16"] == [True]

    @pytest.mark.parametrize("kind", HEALTHY)
    def test_half_of_it_meets_none(self, kind):
        bands = {band.measure: band.is_met for band in judge(_gpu_run(*HEALTHY[kind], share=0.5), MATRIX)}
        assert bands == dict.fromkeys(("gemm-bf16", "h2d", "d2h", "allreduce"), False)

    @pytest.mark.parametrize("kind", HEALTHY)
    def test_copies_of_three_gigabytes_a_second_are_below(self, kind):
        name, generation, products, bus, _ = HEALTHY[kind]
        bands = {band.measure: band.is_met for band in judge(_gpu_run(name, generation, products, bus, 3), MATRIX)}
        assert bands == {"gemm-bf16": True, "h2d": False, "d2h": False, "allreduce": True}

    def test_a_gpu_below_its_floor_fails(self):
        assert [band.is_met for band in self._run(700)] == [True]
        assert [band.is_met for band in self._run(70)] == [False]

    def test_a_processor_has_no_floor_and_is_not_said_to_lack_one(self):
        assert judge(_results(_figure()), MATRIX) == find_unjudged(_results(_figure()), MATRIX) == ()

    def test_the_best_of_the_large_products_counts(self):
        figures = [
            replace(_figure(f"gemm/{edge}/bf16", case={"size": edge}), rate=rate * 1e12)
            for edge, rate in ((1024, 370), (4096, 780), (8192, 500))
        ]
        (band,) = judge(_results(*figures, gpu="NVIDIA H200"), MATRIX)
        assert (band.id, band.value, band.is_met) == ("gemm/4096/bf16", 780, True)

    def test_a_product_too_small_to_fill_the_gpu_is_not_judged(self):
        small = replace(_figure("gemm/1024/bf16", case={"size": 1024}), rate=370e12)
        results = _results(small, gpu="NVIDIA H200")
        assert judge(results, MATRIX) == ()
        assert [row.why for row in find_unjudged(results, MATRIX)] == [
            "the floor of 569 TFLOPS holds from an edge of 4096 on"
        ]

    @pytest.mark.parametrize(("lanes", "is_met"), [(16, False), (8, True), (None, False)])
    def test_a_slot_with_fewer_lanes_is_held_against_its_share(self, lanes, is_met):
        results = _gpu_run(*HEALTHY["h100"][:4], 27, pcie_lanes=lanes)
        assert [band.is_met for band in judge(results, MATRIX) if band.measure == "h2d"] == [is_met]

    @pytest.mark.parametrize(
        ("generation", "why"),
        [
            (None, "the PCIe generation of the slot is unknown: nvidia-smi reported none"),
            (2, "no floor is known for PCIe 2"),
        ],
    )
    def test_copies_over_an_unknown_slot_are_said_to_be_unjudged(self, generation, why):
        name, _, products, bus, _ = HEALTHY["h200"]
        results = _gpu_run(name, generation, products, bus, 3)
        assert {band.measure for band in judge(results, MATRIX)} == {"gemm-bf16", "allreduce"}
        assert {row.measure: row.why for row in find_unjudged(results, MATRIX)} == {"h2d": why, "d2h": why}

    def test_an_allreduce_is_held_against_its_number_of_gpus_and_its_size(self):
        def ask(count, mib):
            summed = _figure("allreduce", case={"size": mib * MIB, "workers": count})
            summed = replace(summed, rate=340e9)
            results = _results(summed, gpu="NVIDIA H100 80GB HBM3", gpus=8)
            (row,) = [*judge(results, MATRIX), *find_unjudged(results, MATRIX)]
            return row

        assert (ask(8, 256).floor_id, ask(8, 256).is_met) == ("allreduce-h100-sxm-256mib", False)
        assert (ask(8, 1024).floor_id, ask(8, 1024).is_met) == ("allreduce-h100-sxm", False)
        assert (ask(4, 256).floor_id, ask(4, 256).is_met) == ("allreduce-h100-sxm-4-256mib", True)
        assert ask(3, 256).why == "no floor is known for 3 NVIDIA H100 80GB HBM3 over nvlink"
        assert ask(8, 64).why == "the floor of 386 GB/s holds from 256 MiB on, and the message has 64 MiB"

    def test_an_allreduce_between_cards_is_not_judged_by_a_floor_of_larger_messages(self):
        results = _gpu_run("NVIDIA L40S", 4, {8192: 207}, 20, 24)
        (row,) = find_unjudged(results, MATRIX)
        assert row.measure == "allreduce"
        assert row.why.endswith("holds from 1 GiB on, and the message has 256 MiB")

    def test_of_an_unknown_gpu_only_the_slot_is_judged(self):
        results = _gpu_run("Quantum 9000", 5, {8192: 700}, 400, 55)
        assert {band.measure for band in judge(results, MATRIX)} == {"h2d", "d2h"}
        assert {row.why for row in find_unjudged(results, MATRIX) if row.measure == "gemm-bf16"} == {
            "the facts do not know `Quantum 9000`"
        }

    def test_a_part_of_a_divided_gpu_is_not_judged(self):
        results = _gpu_run("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 5, {8192: 90}, 400, 6)
        assert judge(results, MATRIX) == ()
        assert len(find_unjudged(results, MATRIX)) == 4

    def test_the_suites_have_what_the_floors_are_for(self):
        for suite in ("quick", "standard", "full"):
            cases = choose(suite, "cuda")
            assert {4096, 8192} <= {case.size for case in cases if (case.kind, case.precision) == ("gemm", "bf16")}
            assert [case.size for case in cases if case.kind == "allreduce"] == [256 * MIB]


class TestRoofline:
    def test_points_lie_under_the_ceilings_of_the_gpu(self):
        figures = [
            _figure("gemm/8192/bf16", seconds=1e-3, flop=6e11, bytes=4e8),
            _figure("stream/fp32", seconds=1e-3, flop=3e8, bytes=4e9),
        ]
        root = ET.fromstring(roofline_svg(_results(*figures, gpu="NVIDIA H200"), Hardware(Matrix())))
        said = [node.text for node in root.iter() if node.tag.endswith("title")]
        assert said[0] == "Roofline of H200 SXM" or "H200" in said[0]
        assert any("gemm/8192/bf16: 600 TFLOPS, 61 % of the roof" in text for text in said)
        assert any("83 % of the roof" in text for text in said)

    def test_an_unknown_machine_is_its_own_ceiling(self):
        svg = roofline_svg(_results(_figure(seconds=1e-3, flop=1e9, bytes=1e7), gpu=None), Hardware(Matrix()))
        assert "100 % of the roof" in svg

    def test_nothing_to_draw_is_said(self):
        with pytest.raises(UnknownError, match="operations and its bytes"):
            roofline_svg(_results(_figure()), Hardware(Matrix()))


def _stand_in(folder, body):
    """Write an interpreter that stands in: it prints events and measures nothing."""
    path = folder / "python-stand-in"
    text = f"""\
    #!{sys.executable}
    import json, sys, time, os
    def tell(**event):
        print("@provision-payload " + json.dumps(event), flush=True)
    if sys.argv[2].endswith("torch_nccl.py"):
        tell(tool="torch-nccl", error=None, together={{"allreduce": "ok"}},
             figures={{"allreduce_bus_gb_s": 2.0, "allreduce_spread": 0.25, "allreduce_rounds": 7, "ranks": 2}})
        sys.exit()
    plan = json.loads(sys.argv[3])
    def ok(case):
        tell(event="case", id=case["id"], seconds=[1.0, 2.0, 3.0], facts={{"work": 4.0, "unit": "samples/s"}})
    """
    path.write_text(textwrap.dedent(text) + textwrap.dedent(body))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return Environment(python=str(path))


FINE = """
tell(event="machine", machine={"device": "cpu"})
for case in plan["cases"]:
    tell(event="begin", id=case["id"])
    ok(case)
tell(event="end")
"""


def _collect(environment, cases):
    figures = []
    run_cases(environment, RUN, cases, figures.append, lambda name: None)
    return figures


class TestRunner:
    def test_figures_come_in_the_order_of_the_cases(self, tmp_path):
        cases = choose("quick", "cpu")
        figures = _collect(_stand_in(tmp_path, FINE), cases)
        assert [figure.id for figure in figures] == [case.id for case in cases]
        assert (figures[0].seconds, figures[0].rate, figures[0].noise) == (2.0, 2.0, pytest.approx(0.7413))
        assert (figures[-1].kind, figures[-1].rate) == ("allreduce", 2e9)
        # A sum whose noise nobody kept would be called slower for any hiccup.
        assert (figures[-1].noise, figures[-1].repeats) == (pytest.approx(1.4826 * 0.25), 7)

    def test_an_interpreter_that_dies_fails_one_case_and_goes_on(self, tmp_path):
        dies = FINE.replace("    ok(case)", "    if case['kind'] == 'rnn': os._exit(9)\n    ok(case)")
        figures = _collect(_stand_in(tmp_path, dies), choose("quick", "cpu"))
        assert [figure.status for figure in figures if figure.kind == "rnn"] == ["failed", "failed"]
        assert all(figure.status == "ok" for figure in figures if figure.kind != "rnn")

    def test_a_case_that_raises_is_failed_with_its_reason(self, tmp_path):
        raises = FINE.replace("    ok(case)", "    tell(event='failed', id=case['id'], reason='out of memory')")
        figures = _collect(_stand_in(tmp_path, raises), choose("quick", "cpu", ("gemm",)))
        assert {(figure.status, figure.reason) for figure in figures} == {("failed", "out of memory")}

    def test_a_case_that_does_not_fit_is_skipped_with_its_reason(self, tmp_path):
        full = FINE.replace("    ok(case)", "    tell(event='skipped', id=case['id'], reason='does not fit')")
        figures = _collect(_stand_in(tmp_path, full), choose("quick", "cpu", ("gemm",)))
        assert {(figure.status, figure.reason) for figure in figures} == {("skipped", "does not fit")}

    def test_a_case_that_hangs_is_failed(self, tmp_path, monkeypatch):
        monkeypatch.setattr("provision.bench.runner._CASE_SECONDS_MAX", 0.5)
        hangs = FINE.replace("    ok(case)", "    if case['size'] == 256: time.sleep(60)\n    ok(case)")
        figures = _collect(_stand_in(tmp_path, hangs), choose("quick", "cpu", ("gemm",)))
        assert {figure.case["size"]: figure.status for figure in figures} == {256: "failed", 512: "ok"}
        assert "nothing was heard" in next(figure.reason for figure in figures if figure.status == "failed")

    def test_an_environment_without_a_usable_gpu_is_refused(self, tmp_path):
        body = "tell(event='refused', reason='there is a GPU, but PyTorch sees no GPU')"
        with pytest.raises(MissingDependencyError) as caught:
            find_device(_stand_in(tmp_path, body), replace(RUN, device="auto"))
        assert "there is a GPU" in caught.value.because[0]

    @pytest.mark.parametrize("body", ["sys.exit('no such thing')", "print('hello')", "os._exit(3)"])
    def test_silence_is_an_error(self, tmp_path, body):
        with pytest.raises(ActionFailedError):
            find_device(_stand_in(tmp_path, body), RUN)

    def test_a_program_that_is_not_there_is_said(self):
        with pytest.raises(MissingDependencyError, match="cannot be started"):
            find_device(Environment(python="/no/such/python"), RUN)

    def test_an_image_gets_the_script_the_gpus_and_no_network(self):
        words = Environment(python="python3", image="me/torch:1", has_gpu=True).command(Path("/a/b.py"), "{}")
        assert words[:2] == ["docker", "run"]
        assert words[words.index("--network") :][:2] == ["--network", "none"]
        assert words[words.index("--gpus") :][:2] == ["--gpus", "all"]
        assert words[-4:] == ["me/torch:1", "-B", "/provision-bench/b.py", "{}"]


class TestPayload:
    def test_it_keeps_to_the_grammar_of_old_interpreters(self):
        ast.parse(PAYLOAD.read_text(encoding="utf-8"), feature_version=(3, 7))

    def test_pytorch_runs_the_cases_for_real(self):
        pytest.importorskip("torch", reason="PyTorch is not installed here: no workload is run for real")
        cases = [case for case in choose("quick", "cpu") if case.kind in {"gemm", "stream", "rnn", "transformer"}]
        figures = _collect(Environment(python=sys.executable), cases)
        assert [(figure.id, figure.status) for figure in figures] == [(case.id, "ok") for case in cases]
        gemm = next(figure for figure in figures if figure.id == "gemm/256/fp32")
        assert gemm.flop == 2 * 256**3
        assert gemm.rate == pytest.approx(gemm.flop / gemm.seconds)
        trained = next(figure for figure in figures if figure.id.startswith("transformer/train"))
        # Four layers, 768 wide: at least 6 operations a weight and token.
        assert trained.flop > 6 * 4 * 7e6 * 2 * 32

    def test_without_pytorch_it_says_so(self, tmp_path):
        (tmp_path / "torch.py").write_text("raise ImportError('stand-in: there is no torch')")
        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{path}"
        try:
            with pytest.raises(MissingDependencyError) as caught:
                find_device(Environment(python=sys.executable), RUN)
        finally:
            os.environ["PYTHONPATH"] = path
        assert "there is no torch" in caught.value.because[0]


def test_a_file_of_another_kind_is_told_in_words(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"schema_version": 1, "machine": {}, "figures": []}')
    with pytest.raises(UsageError) as caught:
        read_results(path)
    assert caught.value.because == ("`settings` is missing",)
