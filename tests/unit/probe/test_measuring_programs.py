"""nccl-tests and nvbandwidth on a target: found, built or not, and run. Every program here is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from provision.errors import UsageError
from provision.probe.catalogue import PROBES
from provision.probe.compose import CollectOptions, compose
from provision.probe.output import Output
from provision.probe.snapshot import Snapshot
from provision.probe.stream import decode_stream

NONCE = "abcdef0123456789"
SHELLS = {"dash": ("dash",), "bash": ("bash",), "busybox": ("busybox",)}
BASE = """
awk base64 basename cat chmod cp cut date dd df dirname echo env expr false find grep gzip head id kill ln ls make mkdir
mktemp mv nproc od readlink rm rmdir sed setsid sleep sort stat stdbuf tail tee timeout touch tr true uname wc
"""
HEADER = "# size count type redop root " + "time algbw busbw #wrong " * 2
ROW = "  {size}  {count}     float     sum      -1   4012.1  267.63  {bus}      0   4010.7  267.72  {bus}      0"
GIB = 1 << 30


def table(*sizes: int, bus: str = "468.35") -> list[str]:
    """Return lines of a script that prints what all_reduce_perf prints."""
    return [f"echo '{line}'" for line in (HEADER, *(ROW.format(size=size, count=size // 4, bus=bus) for size in sizes))]


ALL_REDUCE = [
    'echo "$*" >"$ASKED/all_reduce_perf"',
    'echo "order=${CUDA_DEVICE_ORDER:-} debug=${NCCL_DEBUG:-}" >>"$ASKED/all_reduce_perf"',
    *table(GIB, 2 * GIB, 4 * GIB, 8 * GIB),
    "echo '# Out of bounds values : 0 OK'",
]
NVBANDWIDTH = [
    'echo "$*" >"$ASKED/nvbandwidth"',
    """echo '{"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed",
"bandwidth_matrix": [["55.3", "55.2"]], "sum": 110.5}]}}'""",
]


class Target:
    """A machine with nothing but the tools that are named, and two GPUs of 80 GB."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.temporary = folder / "temporary"
        for name in ("tools", "temporary", "asked", "cuda/bin", "cuda/include"):
            (folder / name).mkdir(parents=True)
        for name in BASE.split():
            path = shutil.which(name)
            if path is not None:
                (self.tools / name).symlink_to(path)
        (self.tools / "sh").symlink_to(shell)
        self.environment = {
            "PATH": str(self.tools),
            "TMPDIR": str(self.temporary),
            "HOME": str(folder),
            "ASKED": str(folder / "asked"),
        }
        self.set_gpus(2)

    def add(self, path: str, *lines: str) -> Path:
        """Write a program, below the folder of tools unless its path says otherwise."""
        target = self.tools / path if "/" not in path else self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        target.chmod(0o755)
        return target

    def set_gpus(self, count: int, *, free_mib: int = 80000, more: str = "") -> None:
        """Put a stand-in of nvidia-smi there."""
        listed = [f"echo 'GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-{number})'" for number in range(count)]
        self.add(
            "nvidia-smi",
            'case "$*" in',
            "-L)",
            *(listed or [":"]),
            more,
            ";;",
            f"*memory.free*) echo {free_mib} ;;",
            "*compute_cap*) echo 9.0; echo 9.0 ;;",
            "esac",
        )

    def add_compilers(self, *, without: str = "") -> None:
        """Put stand-ins of the compilers there; the one for C++ finds every header."""
        for name in ("nvcc", "g++", "cmake"):
            if name != without:
                self.add(name, "exit 0") if name != "nvcc" else self.add("cuda/bin/nvcc", "exit 0")
        self.environment["CUDA_HOME"] = str(self.folder / "cuda")

    def add_sources(self, *recipe: str) -> Path:
        """Write a tree like that of nccl-tests, whose Makefile runs the recipe for the program."""
        tree = self.folder / "sources" / "nccl-tests"
        (tree / "src").mkdir(parents=True)
        (tree / "src" / "all_reduce.cu").write_text("", encoding="utf-8")
        made = self.add("made/all_reduce_perf", *ALL_REDUCE)
        lines = recipe or (
            "@mkdir -p $(BUILDDIR)",
            f"@cp {made} $@",
            '@echo "MPI=$(MPI) CUDA=$(CUDA_HOME) CODE=$(NVCC_GENCODE)" >"$$ASKED/make"',
        )
        (tree / "src" / "Makefile").write_text(
            "$(BUILDDIR)/all_reduce_perf:\n" + "".join(f"\t{line}\n" for line in lines), encoding="utf-8"
        )
        return tree

    def asked(self, program: str) -> str:
        """Return what a stand-in was called with."""
        path = self.folder / "asked" / program
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def collect(self, probe: str, **options: object) -> Output:
        """Run one probe, with the places of this machine out of sight."""
        text = compose(CollectOptions(nonce=NONCE, probes=(probe,), **options)).decode()
        for old, new in (
            (
                ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib",
                "",
            ),
            ("/usr/local/cuda/", f"{self.folder}/none/"),
            ("/opt/nccl-tests/", f"{self.folder}/opt/nccl-tests/"),
            ("/opt/provision/nccl-tests/", f"{self.folder}/opt/provision/nccl-tests/"),
            ("/opt/nvidia/nvbandwidth/", f"{self.folder}/opt/nvidia/nvbandwidth/"),
        ):
            assert old in text
            text = text.replace(old, new)
        done = subprocess.run(
            [str(self.tools / "sh"), "-s"],
            input=text.encode(),
            capture_output=True,
            env=self.environment,
            check=False,
            timeout=120,
        )
        assert done.stderr == b""
        (output,) = decode_stream(done.stdout, NONCE)
        assert list(self.temporary.iterdir()) == []
        return output


@pytest.fixture(params=sorted(SHELLS))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    shell = next((path for name in SHELLS[request.param] if (path := shutil.which(name))), None)
    if shell is None:
        pytest.skip(f"{request.param} is not installed here")
    return Target(shell, tmp_path)


@pytest.fixture
def any_target(tmp_path: Path) -> Target:
    return Target(shutil.which("dash") or shutil.which("sh") or "/bin/sh", tmp_path)


def needs_make() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed here")


# ---------------------------------------------------------------------------------------------------------- finding


@pytest.mark.parametrize(
    ("probe", "place", "lines"),
    [
        pytest.param("nccl-tests", "all_reduce_perf", ALL_REDUCE, id="nccl-tests-on-the-path"),
        pytest.param("nccl-tests", "opt/nccl-tests/build/all_reduce_perf", ALL_REDUCE, id="nccl-tests-in-opt"),
        pytest.param(
            "nccl-tests",
            "opt/provision/nccl-tests/current/build/all_reduce_perf",
            ALL_REDUCE,
            id="nccl-tests-that-the-play-built",
        ),
        pytest.param("nccl-tests", "nccl-tests/build/all_reduce_perf", ALL_REDUCE, id="nccl-tests-at-home"),
        pytest.param("nvbandwidth", "nvbandwidth", NVBANDWIDTH, id="nvbandwidth-on-the-path"),
        pytest.param("nvbandwidth", "opt/nvidia/nvbandwidth/nvbandwidth", NVBANDWIDTH, id="nvbandwidth-in-opt"),
    ],
)
def test_a_program_is_found_where_vendors_put_it(target: Target, probe: str, place: str, lines: list[str]) -> None:
    target.add(place, *lines)
    found = target.collect(probe)
    assert (found.status, found.error) == ("ok", "")
    snapshot = Snapshot("host", {probe: found})
    if probe == "nccl-tests":
        assert (snapshot.nccl_tests.largest.size_bytes, snapshot.nccl_tests.largest.bus_gb_s) == (8 * GIB, 468.35)
    else:
        assert snapshot.nvbandwidth[0].cells == {(0, 0): 55.3, (0, 1): 55.2}


def test_a_program_in_the_environment_of_conda_is_found(any_target: Target) -> None:
    any_target.add("conda/bin/all_reduce_perf", *ALL_REDUCE)
    any_target.environment["CONDA_PREFIX"] = str(any_target.folder / "conda")
    assert any_target.collect("nccl-tests").status == "ok"


def test_the_path_comes_before_the_usual_places(any_target: Target) -> None:
    any_target.add("opt/nccl-tests/build/all_reduce_perf", "echo never")
    any_target.add("all_reduce_perf", *ALL_REDUCE)
    assert "468.35" in any_target.collect("nccl-tests").text


@pytest.mark.parametrize("probe", ["nccl-tests", "nvbandwidth"])
def test_a_program_that_is_nowhere_is_absent(target: Target, probe: str) -> None:
    found = target.collect(probe)
    program = "all_reduce_perf" if probe == "nccl-tests" else probe
    assert (found.status, found.text) == ("absent", "")
    assert found.error == f"{program} is neither on the PATH nor in a usual place\n"


@pytest.mark.parametrize(
    ("named", "status", "said"),
    [
        pytest.param("my program/all_reduce_perf", "ok", "", id="program"),
        pytest.param("my program", "ok", "", id="folder-with-it"),
        pytest.param("made-elsewhere", "absent", "is not on the target", id="nothing"),
        pytest.param("empty", "absent", "neither all_reduce_perf nor the sources of nccl-tests", id="folder-without"),
        pytest.param("notes", "denied", "may not be run", id="no-program"),
    ],
)
def test_what_was_named_is_taken_or_refused(target: Target, named: str, status: str, said: str) -> None:
    target.add("my program/all_reduce_perf", *ALL_REDUCE)
    target.add("all_reduce_perf", "echo this one was not named")
    (target.folder / "empty").mkdir()
    (target.folder / "notes").write_text("", encoding="utf-8")
    found = target.collect("nccl-tests", all_reduce_perf=str(target.folder / named))
    assert found.status == status
    assert said in found.error
    assert "not named" not in found.text


@pytest.mark.parametrize("path", ["-b", "a\nb", "a\0b"], ids=["dash", "line-end", "null"])
def test_what_a_shell_must_not_see_is_refused(path: str) -> None:
    for program in ("all_reduce_perf", "nvbandwidth"):
        with pytest.raises(UsageError):
            CollectOptions(nonce=NONCE, **{program: path})


# ---------------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize(
    ("free_mib", "sizes"),
    [
        pytest.param(80000, "-b 1024M -e 8192M -f 2", id="80-gb"),
        pytest.param(22000, "-b 1024M -e 4096M -f 2", id="24-gb"),
        pytest.param(6000, "-b 512M -e 512M -f 2", id="nearly-full"),
        pytest.param(0, "-b 8M -e 8M -f 2", id="full"),
    ],
)
def test_sizes_fit_into_the_memory_that_is_free(any_target: Target, free_mib: int, sizes: str) -> None:
    any_target.set_gpus(2, free_mib=free_mib)
    any_target.add("all_reduce_perf", *ALL_REDUCE)
    any_target.collect("nccl-tests")
    assert any_target.asked("all_reduce_perf").startswith(f"{sizes} -g 2 -T ")


def test_the_program_has_a_limit_of_its_own_below_that_of_the_probe(any_target: Target) -> None:
    any_target.add("all_reduce_perf", *ALL_REDUCE)
    any_target.environment["NCCL_DEBUG"] = "WARN"
    any_target.collect("nccl-tests")
    words = any_target.asked("all_reduce_perf").split()
    assert 0 < int(words[words.index("-T") + 1]) < PROBES["nccl-tests"].seconds
    assert words[-2:] == ["order=PCI_BUS_ID", "debug=WARN"]


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        pytest.param("0,1,2", 3, id="three"),
        pytest.param("GPU-0,GPU-3", 2, id="uuids"),
        pytest.param("0,1,-1,2", 2, id="up-to-the-first-that-is-none"),
        pytest.param("0,1,2,3,4,5,6,7,8", 4, id="more-than-there-are"),
        pytest.param("2", 1, id="one"),
        pytest.param("", 0, id="none"),
    ],
)
def test_as_many_gpus_take_part_as_a_program_sees(target: Target, visible: str, count: int) -> None:
    target.set_gpus(4)
    target.add("all_reduce_perf", *ALL_REDUCE)
    target.environment["CUDA_VISIBLE_DEVICES"] = visible
    found = target.collect("nccl-tests")
    if count > 1:
        assert f" -g {count} " in target.asked("all_reduce_perf")
    else:
        assert (found.status, found.error) == ("not-run", "one GPU has nobody to talk to\n")


def test_gpus_that_mig_divides_are_not_asked(target: Target) -> None:
    target.set_gpus(2, more="echo '  MIG 1g.10gb     Device  0: (UUID: MIG-1)'")
    target.add("all_reduce_perf", *ALL_REDUCE)
    found = target.collect("nccl-tests")
    assert (found.status, found.text) == ("not-run", "")
    assert "MIG divides the GPUs" in found.error


def test_what_was_printed_before_the_time_was_over_is_kept(target: Target) -> None:
    if shutil.which("stdbuf") is None:
        pytest.skip("stdbuf is not installed here")
    target.add("all_reduce_perf", *table(GIB, 2 * GIB), "sleep 60", *table(8 * GIB))
    found = target.collect("nccl-tests", seconds_scale=2 / PROBES["nccl-tests"].seconds)
    assert (found.status, found.code) == ("hung", None)
    assert str(2 * GIB) in found.text
    assert str(8 * GIB) not in found.text


def test_a_table_is_the_answer_though_the_program_ends_with_an_error(target: Target) -> None:
    target.add("all_reduce_perf", *ALL_REDUCE, "exit 1")
    found = target.collect("nccl-tests")
    assert (found.status, found.code) == ("ok", 1)


def test_a_failure_is_told_with_its_code(target: Target) -> None:
    target.add("all_reduce_perf", "echo 'host: Test NCCL failure common.cu:958 unhandled cuda error'", "exit 3")
    found = target.collect("nccl-tests")
    assert (found.status, found.code) == ("failed", 3)
    assert "Test NCCL failure" in found.text


def test_only_copies_that_are_judged_are_measured(any_target: Target) -> None:
    any_target.add(
        "nvbandwidth",
        *NVBANDWIDTH,
        'echo "order=$CUDA_DEVICE_ORDER visible=${CUDA_VISIBLE_DEVICES-all}" >>"$ASKED/nvbandwidth"',
    )
    any_target.environment["CUDA_VISIBLE_DEVICES"] = "1"
    assert any_target.collect("nvbandwidth").status == "ok"
    # Its numbers must be those of nvidia-smi, whatever this shell may see.
    assert any_target.asked("nvbandwidth").split()[-2:] == ["order=PCI_BUS_ID", "visible=all"]
    assert any_target.asked("nvbandwidth").split()[:3] == ["-j", "-t", "host_to_device_memcpy_ce"]
    assert "device_to_device_memcpy_write_ce" in any_target.asked("nvbandwidth")


def test_an_old_nvbandwidth_prints_text(target: Target) -> None:
    target.add(
        "nvbandwidth",
        'case "$*" in *-j*) echo "ERROR: Invalid Arguments"; exit 1 ;; esac',
        "printf 'Running host_to_device_memcpy_ce.\\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\\n'",
        "printf '           0         1\\n 0     55.30     55.20\\n\\nSUM host_to_device_memcpy_ce 110.50\\n'",
    )
    found = target.collect("nvbandwidth")
    assert found.status == "ok"
    assert Snapshot("host", {"nvbandwidth": found}).nvbandwidth[0].cells == {(0, 0): 55.3, (0, 1): 55.2}


# --------------------------------------------------------------------------------------------------------- building


def test_sources_are_built_aside_and_run(target: Target) -> None:
    needs_make()
    target.add_compilers()
    tree = target.add_sources()
    before = sorted(path.name for path in tree.rglob("*"))
    found = target.collect("nccl-tests", all_reduce_perf=str(tree))
    assert (found.status, found.error) == ("ok", "")
    assert "468.35" in found.text
    assert target.asked("make") == f"MPI=0 CUDA={target.folder}/cuda CODE=-gencode=arch=compute_90,code=sm_90\n"
    assert sorted(path.name for path in tree.rglob("*")) == before


@pytest.mark.parametrize(
    ("without", "said"),
    [
        pytest.param("g++", "to build it these are missing: a C++ compiler", id="compiler"),
        pytest.param("nvcc", "to build it these are missing: nvcc", id="nvcc"),
        pytest.param("make", "to build it these are missing: make", id="make"),
    ],
)
def test_what_is_missing_to_build_is_named(target: Target, without: str, said: str) -> None:
    target.add_compilers(without=without)
    tree = target.add_sources()
    (target.tools / without).unlink(missing_ok=True)
    found = target.collect("nccl-tests", all_reduce_perf=str(tree))
    assert found.status == "absent"
    assert found.error == f"nccl-tests lies on the target as sources, and {said}\n"


def test_a_missing_header_is_named(any_target: Target) -> None:
    if Path("/usr/include/nccl.h").exists() or Path("/usr/local/include/nccl.h").exists():
        pytest.skip("NCCL's header is installed here")
    any_target.add_compilers()
    any_target.add("g++", "cat >/dev/null; exit 1")
    found = any_target.collect("nccl-tests", all_reduce_perf=str(any_target.add_sources()))
    assert (found.status, "nccl.h is missing" in found.error) == ("absent", True)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        pytest.param(
            ["Compiling all_reduce.cu", 'all_reduce.cu(7): error: identifier "ncclRedOp_t" is undefined', "1 note"],
            'all_reduce.cu(7): error: identifier "ncclRedOp_t" is undefined',
            id="compiler",
        ),
        pytest.param(
            ["/usr/bin/ld: cannot find -lnccl", "collect2: error: ld returned 1 exit status"],
            "/usr/bin/ld: cannot find -lnccl",
            id="linker",
        ),
        pytest.param(["nothing that is known", ""], "nothing that is known", id="other-words"),
    ],
)
def test_a_build_that_fails_tells_its_last_error(target: Target, printed: list[str], told: str) -> None:
    needs_make()
    target.add_compilers()
    tree = target.add_sources(*(f"@echo '{line}' >&2" for line in printed), "@exit 2")
    found = target.collect("nccl-tests", all_reduce_perf=str(tree))
    assert (found.status, found.code, found.text) == ("failed", 2, "")
    assert found.error == f"nccl-tests could not be built from {tree}: {told}\n"


def test_a_build_that_hangs_is_given_up_and_ended(target: Target) -> None:
    needs_make()
    target.add_compilers()
    mark = f"{os.getpid()}.{target.folder.name}"
    target.add("endless", f"exec sleep 300 # {mark}")
    tree = target.add_sources(f"@{target.tools}/endless {mark}")
    found = target.collect("nccl-tests", all_reduce_perf=str(tree), seconds_scale=4 / PROBES["nccl-tests"].seconds)
    assert (found.status, found.code, found.text) == ("hung", None, "")
    assert found.error == f"building nccl-tests from {tree} did not end within 3 seconds\n"


def test_a_build_without_a_program_is_told(target: Target) -> None:
    needs_make()
    target.add_compilers()
    found = target.collect("nccl-tests", all_reduce_perf=str(target.add_sources("@true")))
    assert (found.status, "is not among the result" in found.error) == ("absent", True)


def test_nvbandwidth_is_built_with_cmake(target: Target) -> None:
    needs_make()
    target.add_compilers()
    made = target.add("made/nvbandwidth", *NVBANDWIDTH)
    target.add(
        "cmake",
        'echo "$*" >>"$ASKED/cmake"',
        'case $1 in --build) mkdir -p "$2"; cat <"'
        + str(made)
        + '" >"$2/nvbandwidth"; chmod +x "$2/nvbandwidth" ;; esac',
    )
    tree = target.folder / "sources"
    tree.mkdir()
    for name in ("CMakeLists.txt", "nvbandwidth.cpp"):
        (tree / name).write_text("", encoding="utf-8")
    found = target.collect("nvbandwidth", nvbandwidth=str(tree))
    assert (found.status, found.error) == ("ok", "")
    assert "-DCMAKE_CUDA_ARCHITECTURES=90\n" in target.asked("cmake")


def test_what_cmake_misses_is_told(any_target: Target) -> None:
    needs_make()
    any_target.add_compilers()
    any_target.add(
        "cmake",
        "echo 'CMake Error at CMakeLists.txt:1 (cmake_minimum_required):' >&2",
        "echo '  CMake `3.20` or higher is required.  You are running version `3.16`' >&2",
        "echo '-- Configuring incomplete, errors occurred!'",
        "exit 1",
    )
    tree = any_target.folder / "sources"
    tree.mkdir()
    for name in ("CMakeLists.txt", "nvbandwidth.cpp"):
        (tree / name).write_text("", encoding="utf-8")
    found = any_target.collect("nvbandwidth", nvbandwidth=str(tree))
    assert found.status == "failed"
    assert found.error.endswith(": CMake `3.20` or higher is required.  You are running version `3.16`\n")


def test_what_may_have_to_be_built_is_given_time() -> None:
    found, named = (CollectOptions(nonce=NONCE, nvbandwidth=path) for path in ("", "/opt/src/nvbandwidth"))
    assert named.seconds("nvbandwidth") > found.seconds("nvbandwidth") == PROBES["nvbandwidth"].seconds
