"""`provision bench`: measuring with an interpreter that stands in, keeping, going on, comparing, bad input."""

from __future__ import annotations

import json
import stat
import sys
import textwrap

import pytest


@pytest.fixture
def stand_in(tmp_path):
    """An interpreter that stands in for one with PyTorch: it prints events and measures nothing."""

    def make(gpu=None, seconds=1.0, failing=(), slot=None):
        path = tmp_path / "python-stand-in"
        machine = {"device": "cuda" if gpu else "cpu", "torch": "2.9.0"} | ({"gpu": gpu, "gpus": 1} if gpu else {})
        machine |= slot or {}
        text = f"""\
        #!{sys.executable}
        import json, sys
        def tell(**event):
            print("@provision-payload " + json.dumps(event), flush=True)
        if sys.argv[2].endswith("torch_nccl.py"):
            tell(tool="torch-nccl", error=None, together={{"allreduce": "skipped: there is one GPU"}}, figures={{}})
            sys.exit()
        tell(event="machine", machine={machine!r})
        for case in json.loads(sys.argv[3])["cases"]:
            tell(event="begin", id=case["id"])
            if case["kind"] in {tuple(failing)!r}:
                tell(event="failed", id=case["id"], reason="out of memory")
            else:
                facts = {{"work": 2.0 * case["size"] ** 3, "unit": "FLOP/s", "flop": 1e12, "bytes": 1e9}}
                tell(event="case", id=case["id"], seconds=[{seconds}] * 5, facts=facts)
        """
        path.write_text(textwrap.dedent(text))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return path

    return make


def _measure(provision, python, *words):
    return provision("bench", "run", "--python", python, "--only", "gemm,rnn", *words)


def test_a_processor_is_measured_where_there_is_no_gpu(provision, stand_in):
    answer = _measure(provision, stand_in())
    assert answer.code == 0
    assert "there is no GPU: the processor is measured" in answer.err
    assert "gemm/256/fp32" in answer.out


def test_results_are_kept_and_gone_on_with(provision, stand_in, tmp_path):
    kept = tmp_path / "bench.json"
    assert _measure(provision, stand_in(failing=("rnn",)), "--save", kept).code == 0
    statuses = {figure["id"]: figure["status"] for figure in json.loads(kept.read_text())["figures"]}
    assert {"ok", "failed"} == set(statuses.values())
    assert _measure(provision, stand_in(), "--save", kept).code == 2
    again = _measure(provision, stand_in(seconds=9.0), "--save", kept, "--resume")
    assert "4 of 6 cases are measured already" in again.err
    seconds = {figure["kind"]: figure["seconds"] for figure in json.loads(kept.read_text())["figures"]}
    assert seconds == {"gemm": 1.0, "rnn": 9.0}


def test_results_of_another_environment_are_not_mixed_in(provision, stand_in, tmp_path):
    kept = tmp_path / "bench.json"
    _measure(provision, stand_in(), "--save", kept)
    answer = _measure(provision, stand_in(gpu="NVIDIA H200"), "--save", kept, "--resume")
    assert answer.code == 2
    assert "another environment" in answer.err


def test_a_gpu_below_its_floor_fails(provision, stand_in):
    sick = _measure(provision, stand_in(gpu="NVIDIA H200"), "--json")
    assert sick.code == 6
    bands = sick.document["result"]["bands"]
    assert [(band["measure"], band["is_met"]) for band in bands] == [("gemm-bf16", False)]
    assert _measure(provision, stand_in(gpu="NVIDIA H200", seconds=1.5e-3)).code == 0


def test_comparing_tells_slower_from_noise(provision, stand_in, tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    _measure(provision, stand_in(), "--save", old)
    _measure(provision, stand_in(seconds=1.2), "--save", new)
    assert provision("bench", "compare", old, old).code == 0
    answer = provision("bench", "compare", old, new, "--json")
    assert (answer.code, answer.document["ok"]) == (6, False)
    assert len(answer.document["result"]["slower"]) == 6
    assert provision("bench", "compare", old, new, "--tolerance", "25").code == 0
    assert "6 slower" in provision("bench", "compare", old, new).out


def test_several_runs_of_a_baseline_make_their_scatter_noise(provision, stand_in, tmp_path):
    runs = []
    for seconds in (1.0, 1.08, 1.2):
        runs.append(tmp_path / f"{seconds}.json")
        _measure(provision, stand_in(seconds=seconds), "--save", runs[-1])
    assert provision("bench", "compare", runs[0], runs[2]).code == 6
    answer = provision("bench", "compare", *runs, "--json")
    assert answer.code == 0
    noise = answer.document["result"]["run_noise"]
    assert noise.keys() == {"gemm", "rnn"}
    assert answer.document["result"]["baseline_runs"] == 2
    said = provision("bench", "compare", *runs).out
    assert f"noise between the 2 runs of the baseline: gemm {100 * noise['gemm']:.1f} %, rnn" in said
    assert "noise between" not in provision("bench", "compare", *runs[:2]).out


def test_a_run_is_no_second_run_of_itself(provision, stand_in, tmp_path):
    run, other = tmp_path / "run.json", tmp_path / "other.json"
    _measure(provision, stand_in(), "--save", run)
    other.symlink_to(run)
    answer = provision("bench", "compare", run, other, run)
    assert answer.code == 2
    assert "is named twice in the baseline" in answer.err
    assert provision("bench", "compare", run, run).code == 0


def test_machines_that_differ_within_the_baseline_are_warned_of(provision, stand_in, tmp_path):
    runs = [tmp_path / f"{place}.json" for place in range(3)]
    for path, gpu in zip(runs, (None, "NVIDIA H200", "NVIDIA H200"), strict=True):
        _measure(provision, stand_in(gpu=gpu, seconds=1.5e-3), "--only", "rnn", "--save", path)
    answer = provision("bench", "compare", *runs)
    assert answer.code == 2
    assert "a run of the baseline and the last results have no case in common" in answer.err
    document = json.loads(runs[1].read_text())
    document["machine"]["gpu"] = "NVIDIA H100 80GB HBM3"
    runs[0].write_text(json.dumps(document))
    answer = provision("bench", "compare", *runs)
    assert answer.code == 0
    assert "the machines differ in gpu: NVIDIA H100 80GB HBM3 → NVIDIA H200" in answer.err


def test_what_no_floor_fits_is_named_and_fails_nothing(provision, stand_in):
    python = stand_in(gpu="NVIDIA H200", seconds=1.5e-3)
    words = ("bench", "run", "--python", python, "--only", "gemm,copy")
    answer = provision(*words, "--json")
    assert (answer.code, answer.document["ok"]) == (0, True)
    unjudged = answer.document["result"]["unjudged"]
    assert [row["measure"] for row in unjudged] == ["h2d", "d2h"]
    assert "PCIe generation of the slot" in unjudged[0]["why"]
    assert "not judged: the PCIe generation of the slot is unknown" in provision(*words).out


def test_a_copy_below_the_floor_of_its_slot_fails(provision, stand_in):
    slot = {"pcie_generation": 5, "pcie_lanes": 16}
    slow = provision(
        "bench", "run", "--python", stand_in(gpu="NVIDIA H200", seconds=1e18, slot=slot), "--only", "copy", "--json"
    )
    assert slow.code == 6
    bands = slow.document["result"]["bands"]
    assert [(band["measure"], band["floor"], band["is_met"]) for band in bands] == [
        ("h2d", 48.0, False),
        ("d2h", 48.0, False),
    ]


def test_results_are_shown_again_and_drawn(provision, stand_in, tmp_path):
    kept, svg = tmp_path / "a.json", tmp_path / "a.svg"
    _measure(provision, stand_in(), "--save", kept)
    assert "gemm/256/fp32" in provision("bench", "show", kept, "--roofline", svg).out
    assert svg.read_text().startswith("<svg")


def test_a_dry_run_writes_nothing(provision, stand_in, tmp_path):
    kept = tmp_path / "bench.json"
    assert _measure(provision, stand_in(), "--save", kept, "--dry-run").code == 0
    assert not kept.exists()


def test_cases_are_listed_without_an_environment(provision):
    answer = provision("bench", "run", "--list", "--suite", "standard", "--device", "cuda", "--only", "cnn")
    assert answer.out.startswith("cnn/train/")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("compare", "a.json"), 2, "takes two files or more"),
        (("compare",), 2, "takes two files or more"),
        (("show", "a.json", "b.json"), 2, "takes one file"),
        (("run", "a.json"), 2, "takes no file"),
        (("show", "absent.json"), 2, "cannot be read"),
        (("dance",), 2, "dance"),
        (("run", "--only", "dance", "--list"), 2, "dance"),
        (("run", "--only", "dance", "--python", "/no/such/python"), 2, "dance"),
        (("run", "--seconds", "0"), 2, "--seconds"),
        (("run", "--seconds", "nan"), 2, "--seconds"),
        (("run", "--warmup", "-1"), 2, "--warmup"),
        (("run", "--resume"), 2, "--save"),
        (("run", "--python", "a", "--image", "b"), 2, "two environments"),
        (("run", "--python", "/no/such/python"), 7, "cannot be started"),
    ],
)
def test_bad_input_is_worded(provision, words, code, says):
    answer = provision("bench", *words)
    assert answer.code == code
    assert says in answer.err


def test_without_an_action_only_the_action_is_missing(provision):
    answer = provision("bench")
    assert answer.code == 2
    assert "required: action\n" in answer.err


def test_the_wrong_number_of_files_is_told_with_an_example(provision):
    answer = provision("bench", "compare", "monday.json")
    assert answer.code == 2
    assert "hint: write it as in `provision bench compare monday.json friday.json`" in answer.err
