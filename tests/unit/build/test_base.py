"""A base that somebody named is asked for its Python and its glibc before the build."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import pytest

from provision.build.base import check_base
from provision.build.engine import Completed, ImageInfo
from provision.errors import ActionFailedError, IncompatibleError


@dataclass
class _Engine:
    environment: tuple[str, ...] | None = ()
    returncode: int = 0
    libc: str = "glibc 2.36"

    def inspect(self, image):
        if self.environment is None:
            raise ActionFailedError("no such image")
        return ImageInfo(id="sha256:1", size_bytes=1, environment=self.environment)

    def run(self, image, command, *, entrypoint=None):
        assert (command[0], entrypoint) == ("-c", "python3.11")
        said = "a warning\npython3.11: not found\n"
        return Completed(returncode=self.returncode, stdout=f"{self.libc}\n", stderr=said)


@pytest.mark.parametrize("exact", ["3.11.9", "3.11"])
def test_the_python_of_the_stack_will_do(exact):
    check_base(_Engine((f"PYTHON_VERSION={exact}",)), "base:1", "3.11")
    check_base(_Engine(), "base:1", "3.11")


@pytest.mark.parametrize("exact", ["3.1.2", "3.12.0", "2.7.18"])
def test_another_python_is_refused_by_what_the_image_says(exact):
    with pytest.raises(IncompatibleError) as caught:
        check_base(_Engine((f"PYTHON_VERSION={exact}",)), "base:1", "3.11")
    assert exact in caught.value.because[0]
    assert f"--python {'.'.join(exact.split('.')[:2])}`" in caught.value.hints[0]


def test_a_base_without_that_python_is_refused_because_it_was_run():
    with pytest.raises(IncompatibleError) as caught:
        check_base(_Engine(returncode=127), "base:1", "3.11")
    assert "python3.11: not found" in caught.value.because[0]


@pytest.mark.parametrize(
    ("libc", "has"),
    [("", "no glibc"), ("musl 1.2", "no glibc"), ("glibc 2.27", "glibc 2.27"), ("glibc 2.28", None), ("glibc", None)],
)
def test_a_base_without_the_glibc_of_the_wheels_is_refused(libc, has):
    files = [
        "torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.manylinux_2_34_x86_64.whl",
        "pure-1-py3-none-any.whl",
    ]
    check_base(_Engine(libc=libc), "base:1", "3.11", files[2:])
    if has is None:
        check_base(_Engine(libc=libc), "base:1", "3.11", files)
        return
    with pytest.raises(IncompatibleError) as caught:
        check_base(_Engine(libc=libc), "base:1", "3.11", files)
    assert caught.value.because == (f"it has {has}, and a wheel of the stack needs glibc 2.28",)


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        ('{"config": {"Env": ["PATH=/bin", "PYTHON_VERSION=3.9.2"]}}', True),
        ('{"linux/amd64": {"config": {"Env": ["PYTHON_VERSION=3.9.2"]}}}', True),
        ('{"linux/amd64": {"config": {"Env": ["PYTHON_VERSION=3.11.2"]}}}', False),
        ('{"config": {}}', False),
        ("[]", False),
        ("no such manifest", False),
    ],
)
def test_of_a_base_that_is_not_here_the_registry_is_asked(monkeypatch, said, is_refused):
    def run(words, **_):
        assert words[-1] == "base:1"
        return subprocess.CompletedProcess(words, 0, said, "")

    monkeypatch.setattr(subprocess, "run", run)
    engine = _Engine(environment=None, returncode=127)
    if is_refused:
        with pytest.raises(IncompatibleError):
            check_base(engine, "base:1", "3.11")
    else:
        check_base(engine, "base:1", "3.11")
