"""Ray: real clusters of several raylets, where Ray is installed, and a stand-in for what goes wrong.

Ray is no dependency of the tests, for it takes 214 MB. `make ray` installs it into .build/ray; one on the PATH comes
before that. The clusters take about a minute of one processor and 1.5 GB of memory.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.errors import MissingDependencyError, UsageError
from provision.probe.transports import Node, ray

CLUSTER = Path(__file__).parents[1] / "ray_cluster.py"
OWN = Path(__file__).parents[2] / ".build/ray/bin"
RAY = shutil.which("ray") or shutil.which("ray", path=str(OWN))
PYTHON = Path(RAY).resolve().with_name("python") if RAY else None
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": ""}
START_SECONDS = 180
WHO = b'echo "$STANDIN_NODE:$CUDA_VISIBLE_DEVICES"\n'
needs_ray = pytest.mark.skipif(RAY is None, reason="Ray is neither on the PATH nor in .build/ray: `make ray`")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Yield the address of a real cluster: a head, and two nodes with two and four GPUs that are a count alone."""
    with subprocess.Popen(
        [str(PYTHON), CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | QUIET,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            if not select.select([child.stdout], [], [], START_SECONDS)[0]:
                pytest.fail(f"Ray did not start within {START_SECONDS} s")
            yield child.stdout.readline().decode().strip()
        finally:
            child.stdin.close()
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()


@pytest.fixture
def address(cluster: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    monkeypatch.setenv("PATH", f"{Path(str(PYTHON)).parent}:{os.environ['PATH']}")
    return cluster


@needs_ray
def test_each_node_is_asked_in_a_task_with_all_its_gpus(address: str) -> None:
    names = [node.name for node in ray.list_nodes([])]
    assert len(names) == len(set(names)) == 3
    told = {name: (answer, why) for name, answer, why in ray.ask_nodes(names, WHO, seconds=60)}
    assert set(told) == set(names)
    assert sorted(told.values()) == [(b"head:\n", ""), (b"one:0,1\n", ""), (b"two:0,1,2,3\n", "")]


@needs_ray
def test_a_node_whose_gpus_are_in_use_is_no_pass_and_holds_up_no_other(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four GPUs are on one node alone, so that the task is there.
    holds = (
        "import ray, sys; ray.init(log_to_driver=False)\n"
        "task = ray.remote(lambda: __import__('time').sleep(600)).options(num_gpus=4, num_cpus=0).remote()\n"
        "ray.wait([task], timeout=5); print('held', flush=True); sys.stdin.read(); ray.cancel(task, force=True)"
    )
    with subprocess.Popen(
        [str(PYTHON), "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"held\n"
        monkeypatch.setattr(ray, "_START_SECONDS", 10)
        names = [node.name for node in ray.list_nodes([])]
        told = list(ray.ask_nodes(names, WHO, seconds=10))
        assert job.stdin is not None
        job.stdin.close()
        job.wait(60)
    assert {answer for _, answer, why in told if not why} == {b"head:\n", b"one:0,1\n"}
    assert [why for _, _, why in told if why] == [
        "its GPUs did not become free in time, and it is asked only when it is idle"
    ]


@needs_ray
def test_verify_gives_each_node_its_verdict(address: str, provision) -> None:
    answer = provision("verify", "--via", "ray", "--only", "host", "--only", "gpu", "--json")
    rows = answer.document["result"]["targets"]
    assert {row["target"] for row in rows} == {node.name for node in ray.list_nodes([])}
    assert all(row["checks"] for row in rows)
    one = rows[0]["target"]
    answer = provision("verify", one, "--via", "ray", "--only", "gpu", "--json")
    assert [row["target"] for row in answer.document["result"]["targets"]] == [one]


# What `provision cluster --ray-up` writes, as Ray itself reads it


POLICY = """\
minimum = 0
maximum = 2
metric = "queue"
idle_after_seconds = 6
"""
READ = """
    import sys, yaml
    from ray.autoscaler._private.util import prepare_config, validate_config
    document = yaml.safe_load(open(sys.argv[1]))
    validate_config(prepare_config(document))
    print("taken")
"""


@pytest.fixture
def written(tmp_path: Path, provision) -> Path:
    """Write a Ray cluster of two machines at most; return its file for `ray up`."""
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    words = ["--torch", "2.8", "--gpu", "h100-sxm5-80gb", "--with", "ray", "--image", "registry.example/team/ray:1"]
    words += ["--runner", "raycluster"]
    words += ["--gpus", "8", "--policy", str(tmp_path / "policy.toml"), "--ray-up", "aws/p5.48xlarge/us-east-1"]
    answer = provision("cluster", *words, "-o", str(tmp_path / "cluster"))
    assert answer.code == 0, answer.err
    assert "takes minimum, maximum and idle_after_seconds" in answer.err
    return tmp_path / "cluster/ray-up.yaml"


def run_in_ray(program: str, file: Path, seconds: float) -> list[str]:
    done = subprocess.run(
        [str(PYTHON), "-c", textwrap.dedent(program), str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=os.environ | QUIET | {"PATH": f"{Path(str(PYTHON)).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@needs_ray
def test_ray_takes_the_file_and_refuses_one_with_another_key(written: Path) -> None:
    assert run_in_ray(READ, written, 60)[-1] == "taken"
    written.write_text(written.read_text(encoding="utf-8") + "gpus: 8\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="gpus"):
        run_in_ray(READ, written, 60)


# What goes wrong, with a stand-in


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """STAND-IN for the Python beside `ray`: it prints rows in place of the driver."""

    def make(rows: list[dict[str, object]], code: int = 0, said: str = "") -> None:
        (tmp_path / "ray").write_text("#!/bin/sh\n", encoding="utf-8")
        text = "\n".join(json.dumps(row) for row in rows)
        program = f"#!{sys.executable} -SE\nimport sys\nsys.stdin.read()\nprint({text!r})\n"
        program += f"print({said!r}, file=sys.stderr)\nsys.exit({code})\n"
        (tmp_path / "python").write_text(program, encoding="utf-8")
        for name in ("ray", "python"):
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return make


LISTED = [
    {"name": "n2", "id": "b", "gpus": 8, "is_alive": False},
    {"name": "n1\u001b[31m", "id": "a", "gpus": 8, "is_alive": True},
]


def test_a_dead_node_is_named_and_no_node_colours_a_terminal(standin) -> None:
    standin(LISTED)
    first, second = ray.list_nodes([])
    assert "\x1b" not in first.name
    assert (first.why, second) == ("", Node(name="n2", why="Ray has it as dead"))


def test_a_node_that_ray_does_not_know_is_refused(standin) -> None:
    standin(LISTED)
    with pytest.raises(UsageError, match="knows no node `n9`") as caught:
        ray.list_nodes(["n9"])
    assert "n2" in caught.value.hints[0]


def test_without_a_cluster_it_is_said_so(standin) -> None:
    standin([], 1, "Traceback\nConnectionError: Could not find any running Ray instance")
    with pytest.raises(MissingDependencyError) as caught:
        ray.list_nodes([])
    assert "Could not find any running Ray instance" in caught.value.because[0]


def test_without_ray_it_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="`ray` is not on this machine"):
        ray.list_nodes([])


def test_a_node_that_gives_no_answer_has_a_reason(standin) -> None:
    standin([{"name": "n1", "answer": "aGk="}, {"name": "n2", "why": "it died"}, {"name": "n9", "answer": ""}])
    told = list(ray.ask_nodes(["n1", "n2", "n3"], b"", seconds=5))
    assert told == [("n1", b"hi", ""), ("n2", b"", "it died"), ("n3", b"", "Ray's task ended before it answered")]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--partition", "x"), "--partition"), (("--hosts", "x"), "--hosts has no effect with --via ray")],
)
def test_flags_of_other_ways_are_refused(provision, words: tuple[str, ...], said: str) -> None:
    answer = provision("verify", "--via", "ray", *words)
    assert answer.code == 2
    assert said in answer.err
