"""Other forms of a stack than a Dockerfile, compared byte for byte with those in tests/golden_formats."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden_cases import CASES

from provision.generate.bake import BakeOptions, BakeStack, render_bake
from provision.generate.formats import FORMATS, render_format
from provision.generate.image import ImageOptions, render_image
from provision.generate.sbom import render_sbom
from provision.records import replace
from provision.resolve.stack import Stack

GOLDEN = Path(__file__).with_name("golden_formats")
BAKED = ("torch-cu121", "torch-user-requirements", "torch-devel-sources", "jax-cuda13", "cuda-only")


def _whole(name: str) -> Stack:
    """A case whose wheels all have a file name, as a pylock needs them."""
    stack = CASES[name].stack
    packages = tuple(
        replace(item, file=f"{item.name.replace('-', '_')}-{item.version}-py3-none-any.whl", size=1000)
        for item in stack.image.packages
    )
    return replace(stack, image=replace(stack.image, packages=packages))


def _bake() -> str:
    stacks = tuple(
        BakeStack(name=name, stack=CASES[name].stack, artifacts=render_image(CASES[name].stack)) for name in BAKED
    )
    options = BakeOptions(registry="registry.example/ml", cache="registry.example/ml/cache", compression="zstd")
    return next(item.text for item in render_bake(stacks, options) if item.path == FORMATS["bake"])


def _first(form: str, stack: Stack) -> str:
    artifacts = render_format(form, stack, ImageOptions())
    return next(item.text for item in artifacts if item.path == FORMATS[form])


MADE = {
    "docker-bake.hcl": _bake,
    "torch.def": lambda: _first("apptainer", CASES["torch-user-requirements"].stack),
    "tensorflow-cuda-base.def": lambda: _first("apptainer", CASES["tensorflow-cuda-base"].stack),
    "cuda-only.def": lambda: _first("apptainer", CASES["cuda-only"].stack),
    "devcontainer.json": lambda: _first("devcontainer", CASES["torch-user-requirements"].stack),
    "requirements.lock.txt": lambda: _first("requirements", CASES["torch-cu118"].stack),
    "pylock.toml": lambda: _first("pylock", _whole("torch-cu121")),
    "sbom.cdx.json": lambda: render_sbom(CASES["torch-jit"].stack)[0].text,
}


@pytest.mark.parametrize("name", sorted(MADE))
def test_golden_format(name: str, update_golden: bool) -> None:
    path = GOLDEN / name
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(MADE[name](), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == MADE[name](), f"{name}: look at it, then run pytest --update-golden"


def test_no_golden_format_is_an_orphan() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(MADE)


def test_hadolint_finds_nothing_in_shared_stages(tmp_path: Path) -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed: install the extra `test`")
    stacks = tuple(
        BakeStack(name=name, stack=CASES[name].stack, artifacts=render_image(CASES[name].stack)) for name in BAKED
    )
    shared = [item for item in render_bake(stacks) if item.path.startswith("shared/") and "Dockerfile" in item.path]
    for number, item in enumerate(shared):
        (tmp_path / f"{number}.Dockerfile").write_text(item.text, encoding="utf-8")
    assert shared
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run([program, *files], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
