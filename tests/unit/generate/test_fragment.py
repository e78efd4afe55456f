"""The GPU half of a stack: what is taken from it, and how Pythons and requirements are held to it."""

from __future__ import annotations

import tomllib

import pytest

from provision.errors import UsageError
from provision.generate.fragment import write_fragment
from provision.generate.fragment.edit import Edit, narrow_pythons, rewrite_requirement
from provision.generate.fragment.half import take_gpu_half
from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.solve import solve


def _half(**values):
    matrix = Matrix()
    return take_gpu_half(solve(parse_request(values), matrix), matrix)


@pytest.fixture(scope="module")
def half():
    return _half(torch="2.6", cuda="11.8")


def test_torch_holds_no_library_since_its_metadata_does(half):
    assert half.held == ()
    assert [pin.exact_line for pin in half.pins] == [
        "torch==2.6.0+cu118",
        "torchvision==0.21.0+cu118",
        "torchaudio==2.6.0+cu118",
    ]
    assert {pin.index.rpartition("/")[2] for pin in half.cpu_pins} == {"cpu"}


def test_an_extra_that_asks_for_tensorrt_is_not_taken():
    old, new = _half(tensorflow="2.14"), _half(tensorflow="2.21")
    assert old.pins[0].line == "tensorflow==2.14.1"
    assert any(pin.name == "nvidia-cudnn-cu11" for pin in old.pins)
    assert new.pins[0].line == "tensorflow[and-cuda]==2.21.0"


def test_an_early_jax_names_its_build_and_libraries_itself():
    half = _half(jax="0.4.20", cuda="12")
    lines = [pin.line for pin in half.pins]
    assert "jaxlib==0.4.20+cuda12.cudnn89" in lines
    assert any(line.startswith("nvidia-cudnn-cu12==8.9.") for line in lines)
    assert {pin.line for pin in half.cpu_pins} == {"jax==0.4.20", "jaxlib==0.4.20"}
    edit = write_fragment("uv", half, None, "pyproject.toml")
    assert 'format = "flat"' in edit.text
    assert write_fragment("uv", half, edit.text, "pyproject.toml") == Edit(text=edit.text)
    for form in ("poetry", "pixi"):
        with pytest.raises(UsageError, match="one page of links"):
            write_fragment(form, half, None, "file")


def test_a_bound_on_a_library_of_cuda_is_no_dependency_of_a_project_without():
    half = _half(torch="2.4.1", cuda="12.1")
    assert ("nvidia-nvjitlink-cu12", "==12.1.105") in half.bounds
    project = tomllib.loads(write_fragment("poetry", half, None, "pyproject.toml").text)["project"]
    assert not any(line.startswith("nvidia-") for line in project["dependencies"])
    assert "nvidia-nvjitlink-cu12==12.1.105; sys_platform == 'linux'" in project["optional-dependencies"]["cu121"]


def test_two_frameworks_share_what_the_stack_holds():
    both = _half(torch="2.6", jax="0.5")
    assert both.build.startswith("cu12")
    assert {pin.name for pin in both.cpu_pins} == {"torch", "torchvision", "torchaudio", "jax"}
    assert dict(both.held)["nvidia-cudnn-cu12"]


@pytest.mark.parametrize(
    ("existing", "narrowed"),
    [
        (None, ">=3.9,<3.14"),
        (">=3.10,<3.13", ">=3.10,<3.13"),
        ("==3.11.*", "==3.11.*"),
        (">=3.8", ">=3.9,<3.14"),
        (">=3.10.4", ">=3.10.4,<3.14"),
        (">=3.13", ">=3.9,<3.14"),  # without the Python of the stack
        ("~=3.10", ">=3.10,<3.14"),
        ("nonsense", ">=3.9,<3.14"),
    ],
)
def test_pythons_are_held_to_those_with_wheels(half, existing, narrowed):
    assert narrow_pythons(existing, half) == narrowed


@pytest.mark.parametrize(
    ("line", "rewritten"),
    [
        ("numpy", None),
        ("torch>=2", None),
        ("torch==2.6.0", None),
        ("torch<2", "torch==2.6.0"),
        ("Torch[opt-einsum]==1.0", "torch[opt-einsum]==2.6.0"),
        ("torch==2.6.0+cu124", "torch==2.6.0"),
        ("torch @ https://mirror.example/torch.whl", "torch==2.6.0"),
        ("torch<2; sys_platform == 'win32'", None),
        ("torch<2; python_version < '3.11'", 'torch==2.6.0 ; python_version < "3.11"'),
        ("-e .", None),
    ],
)
def test_a_requirement_gives_way_only_where_the_version_does_not_fit(half, line, rewritten):
    assert rewrite_requirement(line, half) == rewritten


def test_an_extra_with_cuda_leaves_the_dependencies():
    assert rewrite_requirement("jax[cuda12]==0.6.2", _half(jax="0.6")) == "jax==0.6.2"
