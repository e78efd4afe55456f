"""`provision slurm` as people run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

IMAGE = "registry.example/team/train:1"
REQUEST = ("--torch", "2.8", "--gpu", "h100")
TRAIN = ("--image", IMAGE, "--nodes", "2", "--gpus", "8")


def write(provision, folder: Path, *words: str) -> dict[str, str]:
    """Return file → text of what it writes, which a shell can read."""
    answer = provision("slurm", *REQUEST, "-o", folder, *words)
    assert answer.code == 0, answer.err
    texts = {path.name: path.read_text() for path in sorted(folder.glob("*.sbatch"))}
    for name in texts:
        subprocess.run(["bash", "-n", str(folder / name)], check=True)
    return texts


def flags(text: str) -> list[str]:
    return [line.split(" ", 1)[1] for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_a_request_and_its_lock_give_the_same_files(provision, tmp_path):
    assert provision("image", *REQUEST, "-o", tmp_path / "image").code == 0
    lock = tmp_path / "image/provision.lock"
    one = write(provision, tmp_path / "one", *TRAIN, "--", "train.py")
    answer = provision("slurm", "--lock", lock, *TRAIN, "-o", tmp_path / "two", "--", "train.py")
    assert answer.code == 0, answer.err
    assert list(one) == ["train.sbatch", "verify.sbatch"]
    assert all((tmp_path / "two" / name).read_text() == text for name, text in one.items())
    again = provision("slurm", *REQUEST, *TRAIN, "-o", tmp_path / "one", "--check", "--", "train.py")
    assert again.code == 0
    assert provision("slurm", *REQUEST, *TRAIN, "-o", tmp_path / "one", "--check", "--", "other.py").code == 8


def test_a_training_runs_torchrun_once_a_node_and_is_requeued_when_its_time_is_over(provision, tmp_path):
    text = write(
        provision, tmp_path / "out", *TRAIN, "--time", "12:00:00", "--save-seconds", "300", "--", "t.py", "a b"
    )["train.sbatch"]
    assert {"--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8", "--time=12:00:00"} <= {*flags(text)}
    assert {"--requeue", "--open-mode=append", "--signal=B:USR1@300"} <= {*flags(text)}
    assert "torchrun --nnodes=2 --nproc-per-node=8 " in text
    assert " t.py 'a b' &" in text
    assert '--rdzv-endpoint="$head:$port"' in text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((*TRAIN, "--mount", "/data"), "'--container-image=registry.example#team/train:1'"),
        ((*TRAIN, "--mount", "/data"), "--container-mounts=/data:/data"),
        (("--image", "pytorch:1"), "--container-image=pytorch:1"),
        ((*TRAIN, "--runtime", "apptainer", "--mount", "/data:/mnt"), f"apptainer exec --nv --bind /data:/mnt docker://{IMAGE}"),
        (("--runtime", "apptainer", "--image", "/images/a.sif"), "apptainer exec --nv /images/a.sif"),
        (("--runtime", "host", "--env-dir", "/opt/envs/a b".replace(" ", "-")), ". /opt/envs/a-b/bin/activate"),
        (("--image", IMAGE, "--gpu-type", "h100", "--gpus", "4"), "--gpus-per-node=h100:4"),
        (("--image", IMAGE, "--memory-gib", "0"), "#SBATCH --mem=0\n"),
        (("--image", IMAGE, "--env", "NCCL_DEBUG=WARN"), "export NCCL_DEBUG=WARN\n"),
    ],
)  # fmt: skip
def test_each_word_has_its_place(provision, tmp_path, words, line):
    assert line in write(provision, tmp_path / "out", *words, "--", "t.py")["train.sbatch"]


def test_a_service_runs_on_one_node_and_a_measurement_on_all(provision, tmp_path):
    words = ("--serve", "vllm serve 'my model' --port 8000", "--nccl-tests-image", "registry.example/nccl:1")
    texts = write(provision, tmp_path / "out", *TRAIN, *words)
    assert list(texts) == ["bench.sbatch", "serve.sbatch", "verify.sbatch"]
    assert "--nodes=1" in flags(texts["serve.sbatch"])
    assert "vllm serve 'my model' --port 8000 &" in texts["serve.sbatch"]
    assert "--nodes=2" in flags(texts["bench.sbatch"])
    assert "all_reduce_perf" in texts["bench.sbatch"]
    assert "--requeue" not in flags(texts["bench.sbatch"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_worker_is_told_to_save_and_the_job_is_put_back(provision, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    worker = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (open('saved', 'w').write('yes'), sys.exit(0)))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(60)\n"
    )
    (tmp_path / "worker.py").write_text(worker)
    stand_ins = {
        "scontrol": '#!/bin/sh\n[ "$1" = show ] && echo node1\necho "$*" >>asked\n',
        # It hands signals on to what it runs, as srun does.
        "srun": "#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n\"$@\" & c=$!\ntrap 'kill -USR1 $c' USR1\n"
        "while :; do wait $c; r=$?; kill -0 $c 2>/dev/null || exit $r; done\n",
        # It hands none to its worker, as torchrun does.
        "torchrun": f"#!/bin/bash\n{sys.executable} worker.py &\nwait\n",
    }
    for name, text in stand_ins.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    write(provision, tmp_path / "out", "--runtime", "host", "--", "t.py")
    child = subprocess.Popen(
        [
            "bash",
            "-c",
            "bash out/train.sbatch & job=$!; while [ ! -e ready ]; do sleep 0.1; done; kill -USR1 $job; wait $job",
        ],
        cwd=tmp_path,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1"},
        start_new_session=True,
    )
    assert child.wait(timeout=60) == 0
    os.killpg(child.pid, 9)
    assert (tmp_path / "saved").read_text() == "yes"
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "requeue 7"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "there is nothing to write"),
        (("--", "t.py"), 2, "needs --image to run in"),
        (("--image", IMAGE, "--", "torchrun", "t.py"), 2, "write `-- t.py`"),
        (("--image", IMAGE, "--time", "soon"), 2, "is not a valid limit of Slurm"),
        (("--image", IMAGE, "--partition", "a\nb"), 2, "is not a valid name"),
        (("--image", IMAGE, "--gpus", "99"), 2, "is not from 1 to 16"),
        (("--image", IMAGE, "--runtime", "host"), 2, "has no effect with --runtime host"),
        (("--image", IMAGE, "--mount", "data"), 2, "is not a valid mount"),
        (("--image", IMAGE, "--serve", "a 'b"), 2, "has a quote without its other half"),
        (("--image", IMAGE, "--env", "NCCL_ALGO=Ring"), 3, "NCCL_ALGO"),
        (("--runtime", "apptainer", "--image", "/images/a"), 2, "it ends in `.sif`"),
    ],
)
def test_each_fault_is_named_and_writes_nothing(provision, tmp_path, words, code, said):
    answer = provision("slurm", *REQUEST, "-o", tmp_path / "out", *words)
    assert answer.code == code
    assert said in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("echo 'sbatch: Job 9 to start at 2026-11-24T20:00:00 on nodes n[1-2]' >&2", 0, "Job 9 to start"),
        ("echo 'sbatch: error: invalid partition: x' >&2; exit 1", 6, "not take train.sbatch: invalid partition"),
    ],
)
def test_slurm_is_asked_about_each_file(provision, tmp_path, monkeypatch, script, code, said):
    (tmp_path / "sbatch").write_text(f'#!/bin/sh\n[ "$1" = --test-only ] || exit 9\n{script}\n')
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = provision("slurm", *REQUEST, "--runtime", "host", "-o", tmp_path / "out", "--test-only", "--", "t.py")
    assert answer.code == code
    assert said in answer.out


def test_without_slurm_it_ends_with_7_and_the_files_are_there(provision, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = provision("slurm", *REQUEST, "--runtime", "host", "-o", tmp_path / "out", "--test-only", "--", "t.py")
    assert answer.code == 7
    assert "`sbatch` is not on this machine" in answer.err
    assert (tmp_path / "out/train.sbatch").exists()
