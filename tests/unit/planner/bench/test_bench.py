"""Cases, results, comparison and bands of `provision bench`, and the runner with an interpreter that stands in."""

from __future__ import annotations

import ast
import json
import os
import stat
import sys
import textwrap
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest

from provision.errors import ActionFailedError, MissingDependencyError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.planner.bench.bands import judge
from provision.planner.bench.cases import choose
from provision.planner.bench.compare import compare
from provision.planner.bench.results import Figure, Results, read_results, summarise
from provision.planner.bench.roofline import roofline_svg
from provision.planner.bench.runner import Environment, Run, find_device, run_cases
from provision.planner.predict.hardware import Hardware
from provision.records import replace

PAYLOAD = Path(summarise.__code__.co_filename).with_name("payloads") / "workloads.py"
RUN = Run(device="cpu", seconds=0.01, warmup=1)


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
        found = compare(_results(_figure()), _results(_figure(seconds=seconds, spread=spread)), 0.05)
        assert found.differences[0].verdict == verdict

    def test_what_is_gone_or_failed_makes_it_worse(self):
        old = _results(_figure("gemm/1"), _figure("gemm/2"), _figure("gemm/3"))
        failed = replace(_figure("gemm/2"), status="failed", seconds=None, reason="out of memory")
        found = compare(old, _results(_figure("gemm/1"), failed), 0.05)
        assert [row.verdict for row in found.differences] == ["same", "unknown", "gone"]
        assert found.is_worse
        assert not found.slower

    def test_new_cases_and_other_machines_are_said(self):
        old = _results(_figure("gemm/1"), gpu="A", torch="2.8")
        new = _results(_figure("gemm/1"), _figure("gemm/2"), gpu="A", torch="2.9")
        found = compare(old, new, 0.05)
        assert [row.verdict for row in found.differences] == ["same", "new"]
        assert found.machines == ("torch: 2.8 → 2.9",)
        assert not found.is_worse

    def test_nothing_in_common_is_refused(self):
        with pytest.raises(UsageError, match="no case in common"):
            compare(_results(_figure("gemm/1")), _results(_figure("gemm/2")), 0.05)

    def test_throttling_is_the_reason_beside_a_difference(self):
        slow = _figure(seconds=2.0, clocks={"after": {"throttled": ["thermal"]}})
        assert compare(_results(_figure()), _results(slow), 0.05).differences[0].reason == "throttled: thermal"


class TestBands:
    def _run(self, tflops, **machine):
        figure = replace(_figure("gemm/8192/bf16"), rate=tflops * 1e12)
        return judge(_results(figure, **({"gpu": "NVIDIA H200", "gpus": 1} | machine)), Matrix())

    def test_a_healthy_gpu_meets_its_floor_and_a_sick_one_does_not(self):
        assert [band.is_met for band in self._run(700)] == [True]
        assert [band.is_met for band in self._run(70)] == [False]

    def test_a_processor_and_an_unknown_gpu_have_no_floor(self):
        assert judge(_results(_figure()), Matrix()) == ()
        assert self._run(700, gpu="Quantum 9000") == ()

    def test_an_allreduce_is_held_against_its_number_of_gpus(self):
        figure = replace(_figure("allreduce"), kind="allreduce", rate=100e9)
        eight = judge(_results(figure, gpu="NVIDIA H100 80GB HBM3", gpus=8), Matrix())
        assert [band.is_met for band in eight if band.measure == "allreduce"] == [False]
        assert not judge(_results(figure, gpu="NVIDIA H100 80GB HBM3", gpus=3), Matrix())


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

    def test_a_case_that_hangs_is_failed(self, tmp_path, monkeypatch):
        monkeypatch.setattr("provision.planner.bench.runner._CASE_SECONDS_MAX", 0.5)
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
