"""What a lock holds for another CUDA than its stack is found, and the line that has it for this CUDA is named."""

from __future__ import annotations

import pytest

from provision.build.majors import find_misfit, fit_cuda, line_hint
from provision.matrix.load import Matrix
from provision.matrix.query import distribution_of
from provision.records import replace
from provision.resolve.request import parse_request
from provision.resolve.requirements import requirement_of
from provision.resolve.rules import side_holds
from provision.resolve.solve import solve
from provision.resolve.stack import LockedPackage, Stack
from provision.versions import spec_of

MATRIX = Matrix()


def _locked(line: str, *packages: str, is_built: bool = False, url: str | None = None, **wish: object) -> Stack:
    """Return a stack whose lock holds more packages (``cupy==14.2.0``) by a line of the user."""
    found = solve(parse_request({"torch": "2.8", **wish}), MATRIX)
    assert isinstance(found, Stack)
    assert found.image is not None
    more = tuple(
        LockedPackage(
            name=name,
            version=version,
            index="pypi",
            file=f"{name}-{version}.tar.gz" if is_built else f"{name}-{version}-py3-none-any.whl",
            layer="user",
            why="your requirements file",
            is_source=is_built,
            url=url,
        )
        for name, _, version in (text.partition("==") for text in packages)
    )
    request = replace(found.request, requirements=(line,))
    image = replace(found.image, packages=(*found.image.packages, *more))
    packages_of = {**found.packages, **{item.name: item.version for item in more}}
    return replace(found, request=request, image=image, packages=packages_of)


@pytest.mark.parametrize(
    ("line", "packages", "name", "bounds", "hint"),
    [
        (
            "tensorrt",
            ("tensorrt==11.4.0.106", "tensorrt-cu13==11.4.0.106"),
            "tensorrt-cu13",
            ("cuda>=13",),
            "tensorrt-cu12",
        ),
        ("cupy-cuda13x", ("cupy-cuda13x==14.2.0",), "cupy-cuda13x", ("cuda>=13",), "cupy-cuda12x"),
        ("cudf-cu13", ("cudf-cu13==26.10.2",), "cudf-cu13", ("cuda>=13",), "cudf-cu12"),
        (
            "nvidia-dali-cuda130",
            ("nvidia-dali-cuda130==2.4.0",),
            "nvidia-dali-cuda130",
            ("cuda>=13",),
            "nvidia-dali-cuda120",
        ),
        (
            "cuda-python",
            ("cuda-python==13.4.4",),
            "cuda-python",
            ("cuda-python<13,>=12", "cuda>=13"),
            "cuda-python>=12,<13",
        ),
        # An extra, or a part in the lock, tells the CUDA where releases are for several.
        ("numba-cuda[cu13]", ("numba-cuda==0.30.4",), "numba-cuda", ("cuda>=13",), "numba-cuda[cu12]>=0.4"),
        (
            "transformer_engine[core_cu13]",
            ("transformer-engine==2.20.2",),
            "transformer-engine",
            ("cuda>=13",),
            "transformer-engine[core-cu12]>=1.11",
        ),
        (
            "transformer-engine",
            ("transformer-engine==2.20.2", "transformer-engine-cu13==2.20.2"),
            "transformer-engine",
            ("cuda>=13",),
            "transformer-engine[core-cu12]>=1.11",
        ),
    ],
)
def test_what_is_for_another_cuda_is_found_with_its_ways_and_the_line_that_works(
    line: str, packages: tuple[str, ...], name: str, bounds: tuple[str, ...], hint: str
) -> None:
    stack = _locked(line, *packages)
    misfit = find_misfit(stack, MATRIX)
    assert misfit is not None
    assert (misfit.name, misfit.bounds) == (name, bounds)
    assert misfit.because.endswith("does not go with CUDA 12.8")
    (said,) = line_hint(stack, MATRIX, name)
    assert said.startswith(f"write `{hint}` in place of `{line}`: ")


@pytest.mark.parametrize(
    "package",
    [
        "tensorrt-cu12==11.4.0.106",
        "cupy-cuda12x==14.2.0",
        "cuda-python==12.9.10",
        "numba-cuda==0.30.4",
        "xgboost==3.2.0",
    ],
)
def test_what_is_for_the_cuda_of_the_stack_or_for_any_stands(package: str) -> None:
    assert find_misfit(_locked(package, package), MATRIX) is None


def test_what_one_cuda_alone_has_leads_to_it() -> None:
    misfit = find_misfit(_locked("faiss-gpu-cu12", "faiss-gpu-cu12==1.14.1.post1", torch="2.15"), MATRIX)
    assert misfit is not None
    assert misfit.bounds == ("cuda<13",)


def test_a_source_with_wheels_under_other_names_is_no_answer_where_nothing_compiles() -> None:
    stack = _locked("cupy", "cupy==14.2.0", is_built=True)
    misfit = find_misfit(stack, MATRIX)
    assert misfit is not None
    assert "as source alone" in misfit.because
    assert [*line_hint(stack, MATRIX, "cupy")] == ["write `cupy-cuda12x` in place of `cupy`: it is CuPy for CUDA 12"]
    # Who pins it, or brings nvcc, knows.
    assert find_misfit(_locked("cupy==14.2.0", "cupy==14.2.0", is_built=True), MATRIX) is None
    assert find_misfit(_locked("cupy", "cupy==14.2.0", is_built=True, flavor="devel"), MATRIX) is None


@pytest.mark.parametrize("url", ["file:///build/local/cupy-14.2.0.tar.gz", "https://mirror.example/cupy-14.2.0.tar.gz"])
def test_a_source_that_is_named_by_its_path_or_address_is_chosen_as_by_a_pin(url: str) -> None:
    assert find_misfit(_locked(f"cupy @ {url}", "cupy==14.2.0", is_built=True, url=url), MATRIX) is None


@pytest.mark.parametrize("line", ["numba-cuda[cu12]", "numba-cuda", 'numba-cuda[cu13]; sys_platform == "win32"'])
def test_an_extra_for_this_cuda_or_another_system_stands(line: str) -> None:
    assert find_misfit(_locked(line, "numba-cuda==0.30.4"), MATRIX) is None


def test_a_package_without_the_extra_of_its_cuda_is_given_it_where_its_bindings_are_for_another() -> None:
    misfit = find_misfit(_locked("numba-cuda", "numba-cuda==0.30.4", "cuda-bindings==13.5.0"), MATRIX)
    assert misfit is not None
    assert (misfit.name, misfit.bounds) == ("numba-cuda", ("numba-cuda[cu12]>=0.4",))
    assert "brings cuda-bindings 13.5.0, and the stack has CUDA 12.8" in misfit.because
    assert find_misfit(_locked("numba-cuda", "numba-cuda==0.30.4", "cuda-bindings==12.9.10"), MATRIX) is None
    of_cuda13 = _locked("numba-cuda", "numba-cuda==0.30.4", "cuda-bindings==13.5.0", torch="2.14", cuda="13")
    assert find_misfit(of_cuda13, MATRIX) is None
    # What brings the bindings beside it is not its doing.
    assert find_misfit(_locked("xgboost", "xgboost==3.2.0", "cuda-bindings==13.5.0"), MATRIX) is None


def _fitted(*lines: str, **wish: object) -> Stack:
    """Return the answer for lines of which no lock says what they take."""
    found = solve(replace(parse_request({"torch": ">=2.14", **wish}), requirements=lines), MATRIX)
    assert isinstance(found, Stack)
    return fit_cuda(found, MATRIX)


@pytest.mark.parametrize(
    "lines",
    [
        ("cupy-cuda12x",),
        ("faiss-gpu-cu12>=1.9",),
        ("onnxruntime-gpu==1.22.0",),
        ("numpy", "onnxruntime-gpu<1.27", "cudf-cu12"),
        ("numba-cuda[cu12]",),
    ],
)
def test_lines_for_one_cuda_lead_to_it_without_a_lock(lines: tuple[str, ...]) -> None:
    stack = _fitted(*lines)
    assert stack.cuda.startswith("12.")
    assert stack.request.cuda is None
    assert any(f"`{line}` is " in reason.because for reason in stack.reasons for line in lines)


@pytest.mark.parametrize(
    "line",
    [
        "cupy-cuda13x",
        "onnxruntime-gpu",
        "numpy",
        'cupy-cuda12x; sys_platform == "win32"',
        "cupy-cuda12x @ https://mirror.example/cupy_cuda12x-14.2.0-cp312-cp312-linux_x86_64.whl",
    ],
)
def test_lines_that_go_with_the_newest_or_bind_nothing_here_leave_it(line: str) -> None:
    assert _fitted(line).cuda.startswith("13.")


def test_a_cuda_that_is_asked_for_and_lines_for_two_are_left_as_they_are() -> None:
    assert _fitted("cupy-cuda12x", cuda="13").cuda.startswith("13.")
    assert _fitted("cupy-cuda12x", "cudf-cu13").cuda.startswith("13.")


def test_a_line_that_is_for_the_cuda_already_is_not_named_in_its_own_place() -> None:
    assert [*line_hint(_locked("tensorrt-cu12", "tensorrt-cu12==10.0.1"), MATRIX, "tensorrt-cu12")] == []


def test_a_stack_without_cuda_has_no_other() -> None:
    assert find_misfit(_locked("cupy-cuda13x", "cupy-cuda13x==14.2.0", cpu=True), MATRIX) is None


def test_every_line_that_is_named_is_for_the_cuda() -> None:
    names = {name for row in MATRIX.extras for name in row.by_cuda}
    hints = {name: [*line_hint(_locked(name), MATRIX, name)] for name in names}
    assert {name: len(said) for name, said in hints.items()} == dict.fromkeys(names, 1)
    for name, (said,) in hints.items():
        line = requirement_of(said.split("`")[1])
        rows = [row for row in MATRIX.extras if distribution_of(row) == line.name and name in row.by_cuda]
        assert any(not any(side_holds(text, {"cuda": "12.8"}) for text in row.conflicts) for row in rows), said
        assert spec_of(line.specifier) is not None
