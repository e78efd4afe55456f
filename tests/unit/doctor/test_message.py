"""Messages as data: what their groups and the facts write into the steps, and what is shown of an unknown text."""

from __future__ import annotations

import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.doctor.message import fill
from provision.doctor.suspect import find_suspect, name_versions
from provision.matrix.load import Matrix

MATRIX = Matrix()


def first(text: str) -> tuple[str, str]:
    report = diagnose(Case(MATRIX, texts=[("pasted", text)]))
    finding = (*report.causes, *report.notes)[0]
    return finding.diagnosis.id, "\n".join(finding.fix)


def test_step_without_its_value_is_left_out() -> None:
    assert fill(("Take {what}.", "Take another."), {}) == ("Take another.",)


def test_filled_step_takes_the_place_of_those_behind_it() -> None:
    steps = ("Take the {what}.", "Take the {kind}.", "Take the other.", "Look.")
    assert fill(steps, {"what": "first", "kind": "second"}) == ("Take the first.", "Look.")
    assert fill(steps, {"kind": "second"}) == ("Take the second.", "Look.")


def test_wheel_of_an_extension_is_named_for_a_python_that_the_text_tells_alone() -> None:
    _, steps = first(
        "torch_scatter/_version_cuda.so: undefined symbol: _ZN3c1017RegisterOperatorsD1Ev\ntorch 2.1.0+cu121"
    )
    assert ".whl" not in steps


@pytest.mark.parametrize(
    ("text", "diagnosis", "part"),
    [
        (
            "libcudnn.so.9: cannot open shared object file\ntorch==2.4.0+cu124",
            "cudnn.missing",
            "'nvidia-cudnn-cu12==9.1.0.70'",
        ),
        ("libcudart.so.13: cannot open shared object file", "cuda.library-missing", "'nvidia-cuda-runtime'"),
        ("operator torchvision::nms does not exist\ntorch==2.4.0", "torchvision.mismatch", "torchvision==0.19.0"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_89'", "nvcc.arch-unknown", "CUDA 11.8 or newer"),
        ("unsupported GNU version! gcc versions later than 13 are not supported!", "nvcc.host-compiler", "g++-13"),
        ("kernel headers for kernel 6.8.0-49-generic cannot be found", "driver.no-headers", "headers-6.8.0-49-generic"),
        (
            "ImportError: site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
            "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcE\ntorch 2.6.0+cu124",
            "torch.extension-abi",
            "+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl'`",
        ),
        (
            "OSError: lib/python3.10/site-packages/torch_scatter/_version_cuda.so: undefined symbol: "
            "_ZN3c1017RegisterOperatorsD1Ev\nPyTorch version: 2.1.0+cu121",
            "torch.extension-abi",
            "torch-2.1.0%2Bcu121/torch_scatter-2.1.2%2Bpt21cu121-cp310-cp310-linux_x86_64.whl'`",
        ),
    ],
)  # fmt: skip
def test_facts_are_named(text: str, diagnosis: str, part: str) -> None:
    name, steps = first(text)
    assert name == diagnosis
    assert part in steps
    assert "{" not in steps


@pytest.mark.parametrize(
    "text",
    [
        "ImportError: libcudnn.so.9: cannot open shared object file",
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed.",
    ],
)  # fmt: skip
def test_fix_does_not_make_it_worse(text: str) -> None:
    _, steps = first(text)
    assert "unset LD_LIBRARY_PATH" not in steps
    assert "uninstall torch" not in steps


def test_link_of_a_disk_is_no_link_of_a_network() -> None:
    lines = "".join(f"[ 1.{port}] ata{port}: SATA link down (SStatus 0 SControl 300)\n" for port in range(1, 9))
    report = diagnose(Case(MATRIX, texts=[("boot", lines)]))
    assert (report.causes, report.notes) == ((), ())


def test_bandwidth_of_a_network_card_is_not_a_gpus() -> None:
    line = (
        "[ 3.5] mlx5_core 0000:c1:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at "
        "0000:c0:01.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
    )
    report = diagnose(Case(MATRIX, texts=[("boot", line)]))
    assert "pci.width" not in {finding.diagnosis.id for finding in (*report.causes, *report.notes)}
    report = diagnose(Case(MATRIX, texts=[("boot", line.replace("mlx5_core", "pci"))]))
    assert "pci.width" in {finding.diagnosis.id for finding in (*report.causes, *report.notes)}


def test_many_xids_take_linear_time() -> None:
    def calls(count: int) -> int:
        import sys

        lines = "".join(
            f"[ {at}.0] NVRM: Xid (PCI:0000:{at % 8 + 1:02x}:00): {(13, 31, 43, 79)[at % 4]}, Ch {at}\n"
            for at in range(count)
        )
        seen = 0

        def count_call(*_: object) -> None:
            nonlocal seen
            seen += 1

        sys.setprofile(count_call)
        try:
            diagnose(Case(MATRIX, texts=[("log", lines)]))
        finally:
            sys.setprofile(None)
        return seen

    calls(10)
    assert calls(400) - calls(200) < 3 * (calls(200) - calls(100))


def test_suspect_is_the_error_that_began_the_chain() -> None:
    text = (
        "Traceback (most recent call last):\nzork.MyError: no GPU\n"
        "During handling of the above exception, another exception occurred:\n"
        "Traceback (most recent call last):\nRuntimeError: worker died\n"
    )
    found = find_suspect(text)
    assert found is not None
    assert (found.number, found.line) == (2, "zork.MyError: no GPU")


@pytest.mark.parametrize(
    ("text", "line", "layer"),
    [
        ("ok\n[ 3.1] NVRM: frob failed\n[ 3.2] NVRM: loading NVIDIA\n", "[ 3.1] NVRM: frob failed", "the driver"),
        ("x.cu(3): error: it is undefined\nninja: stopped: failed\n", "x.cu(3): error: it is undefined", "a build"),
        ("all is well\nepoch 3\n", None, None),
    ],
)  # fmt: skip
def test_suspect_of_other_texts(text: str, line: str | None, layer: str | None) -> None:
    found = find_suspect(text)
    assert (found.line if found else None) == line
    assert layer is None or (found is not None and found.where.endswith(layer))


def test_versions_are_named() -> None:
    case = Case(MATRIX, texts=[("log", "torch==2.4.0+cu121\nDriver Version: 550.54.15")])
    assert name_versions(case) == ("driver 550.54.15", "torch 2.4.0 for CUDA 12.1")
