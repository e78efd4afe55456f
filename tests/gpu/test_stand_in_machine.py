"""The stand-in of a machine with an H100: well when left alone, ill in the way that was planted, gone afterwards."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROVISION = f"{sys.executable} -m provision"


def load():
    """Import the stand-in by its path, as all tests of this folder do."""
    if "stand_in" not in sys.modules:
        spec = importlib.util.spec_from_file_location("stand_in", HERE / "stand_in.py")
        sys.modules["stand_in"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["stand_in"])
    return sys.modules["stand_in"]


stand_in = load()
REASON = stand_in.reason_not_here()
needs_namespaces = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell on a machine that was built."""
    return subprocess.run(
        stand_in.command(folder, ["sh", "-c", script]),
        env=stand_in.environment(folder),
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def checks(folder: Path, words: str = "") -> dict[str, tuple[str, str]]:
    """Return check → its severity and status, of verify with PyTorch."""
    done = run(folder, f"{PROVISION} verify --python python3 --json {words}")
    (target,) = json.loads(done.stdout)["result"]["targets"]
    return {row["id"]: (row["severity"], row["status"]) for row in target["checks"]}


def causes(folder: Path, before: str = "") -> list[str]:
    """Return what doctor names with PyTorch."""
    done = run(folder, f"{before} {PROVISION} doctor --python python3 --json")
    (target,) = json.loads(done.stdout)["result"]["targets"]
    return [row["diagnosis"] for row in target["causes"]]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine without a fault."""
    folder = tmp_path_factory.mktemp("stand-in")
    stand_in.build(folder)
    return folder


@pytest.fixture
def plant(tmp_path: Path):
    """Make a machine with faults."""

    def build(*names: str) -> Path:
        folder = tmp_path / "machine"
        folder.mkdir()
        stand_in.build(folder, names)
        return folder

    return build


@needs_namespaces
def test_doctor_names_nothing_on_it(healthy: Path) -> None:
    assert causes(healthy) == []


@needs_namespaces
@pytest.mark.parametrize("level", ["standard", "deep"])
def test_every_check_of_verify_that_applies_passes_on_it(healthy: Path, level: str) -> None:
    found = checks(healthy, f"--level {level}")
    assert {name: row for name, row in found.items() if row[1] not in ("pass", "skip")} == {}
    assert [name for name in ("cuda.smoke", "perf.gemm", "perf.h2d", "gpu.xid") if found[name][1] != "pass"] == []


@needs_namespaces
def test_bench_reaches_on_it_what_a_healthy_gpu_does(healthy: Path) -> None:
    done = run(healthy, f"{PROVISION} bench run --python python3 --suite quick --seconds 0.05 --json")
    result = json.loads(done.stdout)["result"]
    assert done.returncode == 0
    assert {band["measure"]: band["is_met"] for band in result["bands"]}.items() >= {("gemm-bf16", True)}
    assert all(band["is_met"] for band in result["bands"])
    assert {row["status"] for row in result["figures"]} == {"ok", "skipped"}
    assert result["machine"]["gpu"] == "NVIDIA H100 80GB HBM3"


@needs_namespaces
def test_planted_faults_fail_their_checks_and_no_others(plant) -> None:
    found = checks(plant("wrong-sum", "slow-gemm", "sick"), "--level standard")
    assert {name for name, row in found.items() if row[1] not in ("pass", "skip")} == {
        "cuda.smoke",
        "perf.gemm",
        "gpu.ecc.uncorrected",
        "gpu.remap.pending",
    }


@needs_namespaces
@pytest.mark.parametrize("name", ["unknown-answer", "unknown-unit"])
def test_an_answer_in_a_form_that_nobody_knows_is_not_passed(plant, name: str) -> None:
    assert checks(plant(name), "--only gpu.lost")["gpu.lost"][1] in ("unknown", "fail")


@needs_namespaces
@pytest.mark.parametrize(("name", "code"), [(None, 0), ("noisy-bench", 6)])
def test_only_planted_noise_makes_two_runs_of_bench_differ(healthy: Path, plant, tmp_path: Path, name, code) -> None:
    folder = plant(name) if name else healthy
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    words = "bench run --python python3 --suite quick --only cnn,stream --seconds 0.05 --quiet --save"
    runs = " && ".join(f"{PROVISION} {words} {path} >&2" for path in (first, second))
    done = run(folder, f"{runs} && exec {PROVISION} bench compare {first} {second}")
    assert (done.returncode, first.exists(), second.exists()) == (code, True, True), done.stderr
    assert ("slower" in done.stdout) is bool(code)


@needs_namespaces
def test_a_variable_that_hides_the_gpu_is_seen_unless_it_is_planted_that_it_is_not(healthy: Path, plant) -> None:
    hiding = "CUDA_VISIBLE_DEVICES=-1"
    assert causes(healthy, hiding) == ["cuda.hidden-devices"]
    assert causes(plant("ignores-visible"), hiding) == []


@needs_namespaces
def test_libraries_and_nodes_in_the_way_show_as_on_a_real_machine(healthy: Path, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.535.104.05").touch()
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.535.104.05")
    done = run(healthy, f"LD_LIBRARY_PATH={tmp_path} nvidia-smi -L")
    assert done.returncode == 18
    assert done.stdout.endswith("NVML library version: 535.104\n")
    done = run(healthy, f"mount --bind {tmp_path}/libnvidia-ml.so.1 /dev/nvidia0 && nvidia-smi -L")
    assert (done.returncode, done.stdout) == (6, "No devices were found\n")
    ask = "python3 -c 'import torch; print(torch.__version__, torch.cuda.is_available())'"
    done = run(healthy, f"{ask} && CUDA_VISIBLE_DEVICES=99 {ask}")
    assert done.stdout == "2.11.0+cu130 True\n2.11.0+cu130 False\n"


HOLD = """
import ctypes, sys
driver, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(100 << 30)) == 2
assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(78 << 30)) == 0
print("held", flush=True)
sys.stdin.read()
"""


@needs_namespaces
def test_memory_that_one_program_holds_is_missing_for_another_until_it_is_killed(healthy: Path, tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HOLD, encoding="utf-8")
    (tmp_path / "need_memory.py").write_text("import torch\n", encoding="utf-8")
    need = f"python3 {tmp_path}/need_memory.py; echo $?"
    script = f"""
        mkfifo {tmp_path}/held {tmp_path}/end
        python3 {tmp_path}/hold.py <{tmp_path}/end >{tmp_path}/held &
        exec 3>{tmp_path}/end
        read -r _ <{tmp_path}/held
        {need}
        nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits
        ls -l /proc/$!/fd | grep -c nvidia
        kill -9 $!
        wait $!
        {need}
    """
    done = run(healthy, script)
    code, used, nodes, words, freed = done.stdout.split()
    assert (code, words, freed, nodes) == ("1", "ok", "0", "2"), done.stderr
    assert int(used) > 78 * 1024
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB" in done.stderr


@needs_namespaces
def test_it_leaves_nothing_behind_and_gives_the_exit_code_back(tmp_path: Path) -> None:
    def look() -> tuple[object, ...]:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        return (
            [line for line in mounts if "stand-in" in line],
            sorted(Path("/dev").glob("nvidia*")),
            [*tmp_path.iterdir()],
        )

    before = look()
    marks = "test -c /dev/nvidia0 -a -e /proc/driver/nvidia/version -a ! -e /.dockerenv"
    command = [
        sys.executable,
        str(HERE / "stand_in.py"),
        "--",
        "sh",
        "-c",
        f"{marks} && echo $PROVISION_STAND_IN && exit 3",
    ]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, b"1\n"), done.stderr
    assert look() == before


def test_where_it_cannot_run_it_says_why_in_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(stand_in, "reason_not_here", lambda: "no mount namespace can be made: not permitted")
    assert stand_in.main(["--", "true"]) == 77
    assert capsys.readouterr().err == "stand-in: no mount namespace can be made: not permitted\n"


def test_a_fault_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="wrong-some"):
        stand_in.build(tmp_path, ["wrong-some"])
    assert list(tmp_path.iterdir()) == []
