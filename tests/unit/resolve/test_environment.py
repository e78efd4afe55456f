import json

import pytest

from provision.matrix.load import Matrix
from provision.resolve.environment import Clash, Demand, Environment, Given, solve_environment, wheel_rank


@pytest.fixture
def universe(tmp_path):
    """Return a function that adds a distribution: version → (requires, wheel files)."""
    (tmp_path / "wheels").mkdir()

    def add(name, releases):
        rows = [
            {
                "version": version,
                "index": "pypi",
                "requires": [list(need) for need in needs],
                "wheels": [{"file": file, "sha256": "0" * 64} for file in files],
            }
            for version, (needs, files) in releases.items()
        ]
        (tmp_path / "wheels" / f"{name}.json").write_text(json.dumps({"releases": rows}))

    add.matrix = Matrix(tmp_path)
    return add


def pure(name, version):
    return [f"{name}-{version}-py3-none-any.whl"]


def want(name, specifier="", *, part="torch", is_bound=False):
    return Demand(name=name, specifier=specifier, why="the request", part=part, is_bound=is_bound)


def solve(universe, *demands, python="3.11", machine="x86_64", glibc="2.36", given=None):
    return solve_environment(universe.matrix, demands, python=python, machine=machine, glibc=glibc, given=given or {})


def require_python(universe, name, version, bound):
    path = universe.matrix.data_dir / "wheels" / f"{name}.json"
    document = json.loads(path.read_text())
    next(row for row in document["releases"] if row["version"] == version)["requires_python"] = bound
    path.write_text(json.dumps(document))


def versions(environment):
    assert isinstance(environment, Environment), environment
    return {pick.name: pick.version for pick in environment.picks}


def test_newest_that_fits_is_taken(universe):
    universe("a", {"2.0": ([], pure("a", "2.0")), "1.0": ([], pure("a", "1.0"))})
    assert versions(solve(universe, want("a"))) == {"a": "2.0"}
    assert versions(solve(universe, want("a", "<2"))) == {"a": "1.0"}


def test_older_release_is_taken_when_the_newest_clashes_deeper_down(universe):
    universe(
        "a", {"2.0": ([("c", "==2", "", "")], pure("a", "2.0")), "1.0": ([("c", "==1", "", "")], pure("a", "1.0"))}
    )
    universe("b", {"1.0": ([("c", "<2", "", "")], pure("b", "1.0"))})
    universe("c", {"2": ([], pure("c", "2")), "1": ([], pure("c", "1"))})
    assert versions(solve(universe, want("a"), want("b"))) == {"a": "1.0", "b": "1.0", "c": "1"}


def test_pins_that_exclude_each_other_are_a_proved_clash(universe):
    universe("a", {"1": ([("c", "==1", "", "")], pure("a", "1"))})
    universe("b", {"1": ([("c", ">=2", "", "")], pure("b", "1"))})
    universe("c", {"2": ([], pure("c", "2")), "1": ([], pure("c", "1"))})
    clash = solve(universe, want("a"), want("b"))
    assert isinstance(clash, Clash)
    assert clash.is_proved
    assert clash.sentence == "a 1 needs c==1 and b 1 needs c>=2"


def test_a_pick_that_another_one_mends_is_not_the_reason_that_is_told(universe):
    universe("a", {"1": ([("n", "", "", ""), ("c", "==1", "", "")], pure("a", "1"))})
    universe("b", {"1": ([("n", "<2", "", ""), ("c", "==2", "", "")], pure("b", "1"))})
    universe("c", {"2": ([], pure("c", "2")), "1": ([], pure("c", "1"))})
    universe("n", {"2": ([], pure("n", "2")), "1": ([], pure("n", "1"))})
    clash = solve(universe, want("a"), want("b"))
    assert isinstance(clash, Clash)
    assert clash.is_proved
    assert clash.sentence == "a 1 needs c==1 and b 1 needs c==2"


def test_missing_wheel_is_unknown_and_not_proved(universe):
    universe("a", {"1": ([("gone", ">=1", "", "")], pure("a", "1"))})
    clash = solve(universe, want("a"))
    assert isinstance(clash, Clash)
    assert not clash.is_proved
    assert clash.sentence.endswith("of which the facts know no wheel for this Python and machine")


def test_bound_limits_what_is_there_and_adds_nothing(universe):
    universe("a", {"1": ([("n", "", "", "")], pure("a", "1"))})
    universe("n", {"2": ([], pure("n", "2")), "1": ([], pure("n", "1"))})
    bound = want("n", "<2", is_bound=True)
    assert versions(solve(universe, want("a"), bound)) == {"a": "1", "n": "1"}
    assert versions(solve(universe, want("n", "==2"), want("x", "<1", is_bound=True))) == {"n": "2"}


def test_extras_asked_for_later_still_bring_their_needs(universe):
    universe("kit", {"1": ([("blas", "", "", "blas"), ("fft", "", "", "fft")], pure("kit", "1"))})
    universe("a", {"1": ([("kit[fft]", "", "", "")], pure("a", "1"))})
    for name in ("blas", "fft"):
        universe(name, {"1": ([], pure(name, "1"))})
    assert set(versions(solve(universe, want("kit[blas]")))) == {"kit", "blas"}
    assert set(versions(solve(universe, want("kit[blas]"), want("a")))) == {"kit", "a", "blas", "fft"}


@pytest.mark.parametrize(
    ("marker", "python", "machine", "expected"),
    [
        ('python_version < "3.11"', "3.10", "x86_64", True),
        ('python_version < "3.11"', "3.11", "x86_64", False),
        ('python_version >= "3.9" and platform_machine == "x86_64"', "3.11", "aarch64", False),
        ('platform_machine == "aarch64" or python_version == "3.11"', "3.11", "x86_64", True),
        (
            '(python_version < "3.9" or python_version > "3.12") and platform_machine != "aarch64"',
            "3.13t",
            "x86_64",
            True,
        ),
        ('python_full_version < "3.11.3"', "3.11", "x86_64", False),
    ],
)
def test_markers_decide_needs(universe, marker, python, machine, expected):
    universe("a", {"1": ([("b", "", marker, "")], pure("a", "1"))})
    universe("b", {"1": ([], pure("b", "1"))})
    assert ("b" in versions(solve(universe, want("a"), python=python, machine=machine))) is expected


def test_a_given_wheel_stands_in_for_a_missing_row(universe):
    universe("n", {"1": ([], pure("n", "1"))})
    given = {"t": Given(version="2.1.2+cu118", requires=(("n", "", "", ""),))}
    found = solve(universe, want("t", "==2.1.2+cu118"), given=given)
    assert versions(found) == {"n": "1", "t": "2.1.2+cu118"}
    assert next(pick for pick in found.picks if pick.name == "t").wheel is None


def test_local_versions_are_taken_only_when_named(universe):
    universe("t", {"2.0+cu118": ([], pure("t", "2.0+cu118")), "2.0": ([], pure("t", "2.0"))})
    assert versions(solve(universe, want("t", "==2.0"))) == {"t": "2.0"}
    assert versions(solve(universe, want("t", "==2.0+cu118"))) == {"t": "2.0+cu118"}


@pytest.mark.parametrize(
    ("file", "python", "machine", "glibc", "fits"),
    [
        ("n-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "3.11", "x86_64", "2.17", True),
        ("n-1-cp311-cp311-manylinux_2_28_x86_64.whl", "3.11", "x86_64", "2.27", False),
        ("n-1-cp311-cp311-manylinux_2_28_x86_64.whl", "3.11", "x86_64", None, True),
        ("n-1-cp311-cp311-manylinux2014_aarch64.whl", "3.11", "x86_64", "2.36", False),
        ("n-1-cp310-cp310-linux_x86_64.whl", "3.11", "x86_64", "2.36", False),
        ("n-1-cp38-abi3-manylinux1_x86_64.whl", "3.11", "x86_64", "2.36", True),
        ("n-1-cp38-abi3-manylinux1_x86_64.whl", "3.13t", "x86_64", "2.36", False),
        ("n-1-cp313-cp313t-manylinux_2_28_x86_64.whl", "3.13t", "x86_64", "2.36", True),
        ("n-1-cp313-cp313t-manylinux_2_28_x86_64.whl", "3.13", "x86_64", "2.36", False),
        ("n-1-cp37-cp37m-manylinux1_x86_64.whl", "3.7", "x86_64", "2.36", True),
        ("n-1-py2.py3-none-any.whl", "3.11", "aarch64", "2.17", True),
        ("n-1-py3-none-manylinux1_x86_64.whl", "3.11", "x86_64", "2.36", True),
        ("n-1-cp311-cp311-musllinux_1_2_x86_64.whl", "3.11", "x86_64", "2.36", False),
        ("n-1-cp311-cp311-win_amd64.whl", "3.11", "x86_64", "2.36", False),
    ],
)
def test_wheel_fits_interpreter_and_platform(file, python, machine, glibc, fits):
    assert (wheel_rank(file, python, machine, glibc) is not None) is fits


def test_specific_wheel_is_preferred_to_a_pure_one(universe):
    universe("n", {"1": ([], ["n-1-py3-none-any.whl", "n-1-cp311-cp311-manylinux1_x86_64.whl"])})
    (pick,) = solve(universe, want("n")).picks
    assert pick.wheel.file == "n-1-cp311-cp311-manylinux1_x86_64.whl"


def test_rebuilt_wheel_is_preferred():
    old = wheel_rank("triton-2.0.0-1-cp310-cp310-manylinux1_x86_64.whl", "3.10", "x86_64", None)
    new = wheel_rank("triton-2.0.0-2-cp310-cp310-manylinux1_x86_64.whl", "3.10", "x86_64", None)
    assert new > old


@pytest.mark.parametrize(
    ("left", "right", "is_proved"),
    [(">=2", "<2", True), (">1", "<2", False), ("~=1.4", ">=2", True), ("==1.*", "==2.*", True), ("!=1", "==1", True)],
)
def test_ranges_without_a_common_version_are_a_proved_clash(universe, left, right, is_proved):
    universe("c", {"9": ([], pure("c", "9"))})
    clash = solve(universe, want("c", left), want("c", right))
    assert isinstance(clash, Clash)
    assert clash.is_proved is is_proved


def test_search_jumps_back_over_choices_that_had_no_part_in_the_failure(universe):
    many = [f"p{number}" for number in range(12)]
    for name in many:
        universe(name, {f"{version}.0": ([], pure(name, f"{version}.0")) for version in range(9, 0, -1)})
    universe("a", {"1": ([("gone", "==5", "", "")], pure("a", "1"))})
    clash = solve(universe, *(want(name) for name in many), want("a"))
    assert isinstance(clash, Clash)
    assert clash.name == "gone"


@pytest.mark.parametrize(
    ("bound", "python", "expected"),
    [(">=3.12", "3.11", "1.0"), (">=3.12", "3.12", "2.0"), (">=3.11.4", "3.11", "2.0"), (">=3.12", "3.13t", "2.0")],
)
def test_release_that_wants_a_newer_python_is_passed_over(universe, bound, python, expected):
    universe("a", {"2.0": ([], pure("a", "2.0")), "1.0": ([], pure("a", "1.0"))})
    require_python(universe, "a", "2.0", bound)
    assert versions(solve(universe, want("a"), python=python)) == {"a": expected}
