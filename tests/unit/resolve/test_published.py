"""Sets of requirements over an index of a few releases: what is taken, what is refused and why, what stays unknown."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.matrix.load import Matrix
from provision.resolve import published
from provision.resolve.published import Clash, Picks, Problem, Want, is_on_index, is_satisfiable, solve_published

ALL = "any 3.0+"


def index(folder: Path, packages: dict[str, dict[str, dict]]) -> Matrix:
    """Write an index: package → version → ``needs`` by extra, ``python``, ``files``, ``yanked``; newest first."""
    (folder / "published").mkdir(parents=True, exist_ok=True)
    for name, releases in packages.items():
        asks: list[list[str]] = []
        files: list[str] = []
        groups = []
        for version, row in releases.items():
            group: dict = {"versions": [version]}
            if "python" in row:
                group["requires_python"] = row["python"]
            if row.get("needs") is not None or "needs" not in row:
                places = []
                for extra, lines in {"": [], **row.get("needs", {})}.items():
                    asks.append([extra, *lines])
                    places.append(str(len(asks) - 1))
                group["requires"] = " ".join(places)
            files.append(row.get("files", ALL))
            group["files"] = len(files) - 1
            if row.get("yanked"):
                group["yanked"] = [version]
            groups.append(group)
        head = {"schema_version": 1, "package": name, "dated": "2026-11-24", "source": ["pypi-simple-index"]}
        document = {**head, "scope": "0" * 12, "requires": asks, "files": files, "releases": groups}
        (folder / "published" / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return Matrix(folder)


def want(text: str) -> Want:
    head, _, rest = text.partition("[")
    if rest:
        extras, _, specifier = rest.partition("]")
        return Want(name=head, extras=tuple(extras.split(",")), specifier=specifier)
    at = next((place for place, char in enumerate(text) if char in "<>=!~"), len(text))
    return Want(name=text[:at], specifier=text[at:])


def solve(matrix: Matrix, *texts: str, python: str | None = "3.11", **more):
    return solve_published(matrix, Problem(wants=tuple(map(want, texts)), python=python, **more))


SMALL = {
    "torch": {
        "2.2.0": {"needs": {"": ["triton==2.2.0", "numpy"]}},
        "2.1.0": {"needs": {"": ["triton==2.1.0", "numpy"], "opt": ["old>=1"]}},
        "2.0.1": {"needs": {"": ["triton==2.0.0", 'old<2; python_version < "3.10"']}},
    },
    "triton": {"2.2.0": {}, "2.1.0": {}, "2.0.0": {}},
    "numpy": {"2.3.1": {"python": ">=3.11"}, "2.2.0": {"python": ">=3.10", "files": "any 3.10 3.11"}, "1.26.0": {}},
    "old": {"2.0": {"files": "x86_64 3.9; sdist"}, "1.5": {"yanked": True}, "1.0": {"files": "x86_64 3.9"}},
    "middle": {"1.1": {"needs": {"": ["torch==2.1.0"]}}, "1.0": {"needs": {"": ["torch==2.0.1"]}}},
    "blank": {"1.0": {"needs": None}},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Matrix:
    return index(tmp_path_factory.mktemp("index"), SMALL)


def test_the_newest_of_everything_is_taken(small):
    assert solve(small, "torch").versions == {"torch": "2.2.0", "triton": "2.2.0", "numpy": "2.3.1"}


def test_newest_is_what_the_rest_leaves_and_not_the_newest_of_all(small):
    answer = solve(small, "torch>=2.0.1", "triton==2.0.0")
    assert isinstance(answer, Picks)
    assert answer.versions["torch"] == "2.0.1"


@pytest.mark.parametrize(
    ("text", "version"),
    [("many", "20.0"), ("many<17", "16.0"), ("many<9", "8.0"), ("many<9,!=8.0", "6.0"), ("many>=11,<13", "12.0")],
)
def test_of_many_releases_the_newest_that_fits_is_taken(text, version, tmp_path):
    many = {f"{number}.0": {"python": ">=3.12"} if number % 2 else {} for number in range(20, 0, -1)}
    assert solve(index(tmp_path, {"many": many}), text).versions == {"many": version}


def test_two_pins_that_exclude_each_other_are_refused_with_the_reason(small):
    answer = solve(small, "numpy", "torch==2.1.0", "triton==2.0.0", "old==2.0")
    assert answer == Clash(
        wants=(want("torch==2.1.0"), want("triton==2.0.0")), reasons=("torch 2.1.0 needs triton==2.1.0",)
    )


def test_a_reason_names_how_a_package_comes_in(small):
    answer = solve(small, "middle", "triton==2.2.0")
    assert isinstance(answer, Clash)
    assert answer.wants == (want("middle"), want("triton==2.2.0"))
    assert any("middle" in reason and "torch==" in reason for reason in answer.reasons)
    assert any("torch" in reason and "triton==" in reason for reason in answer.reasons)


@pytest.mark.parametrize(
    ("text", "python", "reason"),
    [
        ("numpy==2.3.1", "3.10", "numpy 2.3.1 needs Python >=3.11"),
        ("numpy==2.2.0", "3.12", "numpy 2.2.0 has no file for Python 3.12, its wheels are for 3.10, 3.11"),
        ("old==1.0", "3.11", "old 1.0 has no file for Python 3.11, its wheels are for 3.9"),
    ],
)
def test_a_python_that_a_release_is_not_for(small, text, python, reason):
    assert solve(small, text, python=python) == Clash(wants=(want(text),), reasons=(reason,))


def test_a_source_distribution_will_do(small):
    assert solve(small, "old==2.0", python="3.12").versions == {"old": "2.0"}


def test_another_machine_has_other_wheels(small):
    assert isinstance(solve(small, "old==1.0", python="3.9"), Picks)
    assert isinstance(solve(small, "old==1.0", python="3.9", machine="aarch64"), Clash)


def test_without_a_python_none_is_a_reason_and_markers_on_it_count_for_nothing(small):
    assert isinstance(solve(small, "numpy==2.3.1", python=None), Picks)
    assert isinstance(solve(small, "torch==2.0.1", "old==2.0", python=None), Picks)
    assert isinstance(solve(small, "torch==2.0.1", "old==2.0", python="3.9"), Clash)


def test_extras_bring_their_own_needs(small):
    assert "old" not in solve(small, "torch==2.1.0").versions
    assert solve(small, "torch[opt]==2.1.0").versions["old"] == "2.0"
    assert isinstance(solve(small, "torch[opt]==2.1.0", "old<1"), Clash)


def test_a_withdrawn_release_is_taken_by_its_pin_alone(small):
    assert solve(small, "old==1.5", python="3.9").versions == {"old": "1.5"}
    assert solve(small, "old<2", python="3.9").versions == {"old": "1.0"}


def test_bounds_limit_what_is_taken_and_ask_for_nothing(small):
    answer = solve(small, "torch", bounds=(want("triton<2.1"), want("old<1")))
    assert (answer.versions["torch"], "old" in answer.versions) == ("2.0.1", False)


@pytest.mark.parametrize(
    "texts",
    [
        ("stranger==1", "stranger>=1"),
        ("torch==2.1.0", "blank==1.0"),
        ("numpy>=3",),
        ("numpy==2.9.0",),
        ("numpy==2.0.0rc1",),
        ("numpy>=2.9.dev0",),
    ],
    ids=" ".join,
)
def test_what_nobody_knows_is_never_a_reason(small, texts):
    assert isinstance(solve(small, *texts), Picks)


def test_pins_of_what_nobody_knows_exclude_each_other(small):
    assert isinstance(solve(small, "stranger==1", "stranger==2"), Clash)
    assert isinstance(solve(small, "stranger==1", "stranger==2", opaque=("stranger",)), Picks)
    assert solve(small, "stranger==1").versions == {"stranger": "1"}
    assert solve(small, "stranger").versions == {"stranger": None}


def test_an_opaque_distribution_meets_everything(small):
    assert isinstance(solve(small, "torch==2.1.0", "triton==2.0.0", opaque=("triton",)), Picks)


def test_another_index_may_have_what_is_not_known_but_not_what_is(small):
    assert isinstance(solve(small, "numpy>=1,<1.20"), Clash)
    assert isinstance(solve(small, "numpy>=1,<1.20", is_open=True), Picks)
    assert isinstance(solve(small, "torch==2.1.0", "triton==2.0.0", is_open=True), Clash)
    assert isinstance(solve(small, "numpy==1.26.0", "numpy>2", is_open=True), Clash)


def test_a_search_that_takes_too_long_stays_unknown(tmp_path, monkeypatch):
    packages = {"b": {"2": {}, "1": {}}, "a": {"2": {"needs": {"": ["b<2"]}}, "1": {}}}
    matrix = index(tmp_path, packages)
    assert isinstance(solve(matrix, "b", "a"), Picks)
    monkeypatch.setattr(published, "_ROUNDS_MAX", -5)
    published._search.cache_clear()
    assert solve(matrix, "b", "a") is None
    published._search.cache_clear()


@pytest.mark.parametrize(
    ("version", "answer"),
    [("2.2", True), ("2.2.0", True), ("2.1", False), ("1.99", False), ("9", None), ("2.0rc1", None), ("2.2+cu1", True)],
)
def test_a_version_is_on_the_index_or_not_or_may_have_come_since(small, version, answer):
    assert is_on_index(small, "numpy", version) is answer
    assert is_on_index(small, "stranger", version) is None


def test_a_pin_of_which_nothing_is_known_takes_part_in_a_search(tmp_path):
    needs = {"3": ["stranger==2", "low"], "2": ["stranger>1", "low"], "1": ["stranger<2"]}
    packages = {
        "high": {version: {"needs": {"": row}} for version, row in needs.items()},
        "low": {"1": {"needs": {"": ["stranger!=2"]}}},
    }
    matrix = index(tmp_path, packages)
    taken = solve(matrix, "stranger==1.0", "another", "high")
    assert isinstance(taken, Picks)
    assert taken.versions == {"stranger": "1.0", "another": None, "high": "1"}
    refused = solve(matrix, "another", "high", "stranger==2")
    assert isinstance(refused, Clash)
    assert [item.text for item in refused.wants] == ["high", "stranger==2"]
    assert not any("constraint" in line for line in refused.reasons)
    assert isinstance(solve(matrix, "high", "stranger==2", opaque=("stranger",)), Picks)


def test_a_set_without_a_conflict_imports_no_resolver():
    program = (
        "import sys; from provision.matrix.load import Matrix; from provision.resolve.published import *;"
        "wants = (Want(name='torch', specifier='==2.4.1'), Want(name='numpy'));"
        "answer = solve_published(Matrix(), Problem(wants=wants, python='3.11'));"
        "print(type(answer).__name__, 'resolvelib' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["Picks", "False"]


def test_what_pins_decide_needs_no_search(small, monkeypatch):
    """A round of a search costs as much as there are names, and lists of pins have hundreds."""
    monkeypatch.setitem(sys.modules, "resolvelib", None)
    assert isinstance(solve(small, "middle==1.1", "torch==2.0.1", "numpy"), Clash)
    # torch 2.1 is all that middle leaves, though others are newer.
    answer = solve(small, "torch", "middle==1.1")
    assert isinstance(answer, Picks)
    assert answer.versions["torch"] == "2.1.0"


def test_a_refusal_names_all_that_exclude_a_release_and_nobody_else(tmp_path):
    needs = {"a": ["base>=2"], "b": ["base>=3"], "c": ["base"], "d": ["base>=1", "base<9"]}
    packages = {name: {"1": {"needs": {"": row}}} for name, row in needs.items()}
    packages["base"] = {version: {} for version in ("3", "2", "1")}
    answer = solve(index(tmp_path, packages), "base==1", "a==1", "b==1", "c==1", "d==1")
    assert isinstance(answer, Clash)
    assert all("needs base>=" in line for line in answer.reasons)
    assert not any(line.startswith(("c ", "d ")) for line in answer.reasons)


def test_what_may_have_come_since_is_not_settled(tmp_path):
    needs = {"a": ["b>=5"], "c": ["d"], "d": ["b>=6"], "e": ["x"], "f": ["x==3"]}
    packages = {name: {"1": {"needs": {"": row}}} for name, row in needs.items()}
    packages |= {"b": {"5": {}, "4": {}}, "y": {"2": {}, "1": {}}, "z": {"2": {"needs": {"": ["y==1"]}}, "1": {}}}
    matrix = index(tmp_path, packages)
    for wants in (["a", "c"], ["b>=5", "c"], ["b>=5", "c", "z", "y==2"]):
        answer = solve(matrix, *wants)
        assert isinstance(answer, Picks), wants
        assert answer.versions["b"] is None
    assert isinstance(solve(matrix, "b==5", "c"), Clash)
    answer = solve(matrix, "e", "f", "z", "y==2")
    assert isinstance(answer, Picks)
    assert answer.versions["x"] == "3"


def test_a_search_that_goes_back_far_calls_nothing_impossible_that_is_not():
    """The quick way back of resolvelib forgot a state, and refused this; pip and uv take an older grpcio."""
    wants = ("scikit-image==0.24.0", "grpcio[protobuf]<=1.78.0", "typing-extensions<=4.6.3")
    assert isinstance(solve(Matrix(), *wants), Picks)


def test_distributions_that_ask_for_each_other_end_a_search(tmp_path):
    """The search took `b` and `c`, which ask for each other, before it went back to a release that needs neither."""
    needs = {
        "a": {"3": ["b", "d==3"], "2": [], "1": ["c<3"]},
        "b": {"3": ["c==2", "d==3"], "2": [], "1": ["c<3", "d==2"]},
        "c": {"3": ["b==3"], "2": ["b>1", "a<3"], "1": ["b==3"]},
        "d": {"3": [], "2": [], "1": []},
    }
    packages = {name: {at: {"needs": {"": row}} for at, row in rows.items()} for name, rows in needs.items()}
    answer = solve(index(tmp_path, packages), "a")
    assert isinstance(answer, Picks)
    assert answer.versions == {"a": "2"}


_NAMES = "abcd"
_VERSIONS = ("3", "2", "1")
_CLAUSES = st.sampled_from(["", "==1", "==2", "==3", "<2", "<3", ">=2", ">1", "!=2"])
_NEEDS = st.dictionaries(st.sampled_from(_NAMES), _CLAUSES, max_size=2)
_INDEXES = st.fixed_dictionaries({name: st.fixed_dictionaries(dict.fromkeys(_VERSIONS, _NEEDS)) for name in _NAMES})


@given(_INDEXES, st.lists(st.tuples(st.sampled_from(_NAMES), _CLAUSES), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_it_refuses_exactly_what_no_choice_of_releases_meets(tmp_path_factory, universe, roots):
    packages = {
        name: {
            # Newest first: a drawn dictionary may have any order.
            version: {"needs": {"": [f"{need}{clause}" for need, clause in releases[version].items() if need != name]}}
            for version in _VERSIONS
        }
        for name, releases in universe.items()
    }
    matrix = index(tmp_path_factory.mktemp("index"), packages)
    answer = solve(matrix, *(f"{name}{clause}" for name, clause in roots))
    choices = [dict(zip(_NAMES, picked, strict=True)) for picked in itertools.product(_VERSIONS, repeat=len(_NAMES))]
    if answer is None:
        # Given up: two releases that each ask for another of the other keep a search going.
        return
    assert isinstance(answer, Picks) == any(_is_met(universe, roots, choice) for choice in choices)
    whole = Problem(wants=tuple(want(f"{name}{clause}") for name, clause in roots), python="3.11")
    assert is_satisfiable(matrix, whole) == isinstance(answer, Picks)
    if isinstance(answer, Picks):
        assert _is_met(universe, roots, {**dict.fromkeys(_NAMES, "1"), **answer.versions})
    elif isinstance(answer, Clash):
        # None of the requirements can be left out, and what is left is refused.
        for left in answer.wants:
            rest = [item.text for item in answer.wants if item is not left]
            assert not rest or not isinstance(solve(matrix, *rest), Clash)


def _is_met(universe, roots, choice):
    reached, queue = set(), list(roots)
    while queue:
        name, clause = queue.pop()
        if not published._admits(clause, choice[name]):
            return False
        if name not in reached:
            reached.add(name)
            queue += [item for item in universe[name][choice[name]].items() if item[0] != name]
    return True
