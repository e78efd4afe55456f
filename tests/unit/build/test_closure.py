"""What the user's lines need is resolved by a real uv, from an index on loopback, beside a stack of the real facts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.build.age import find_age
from provision.build.closure import Opened, lock_whole, needs_lock
from provision.build.uv import NoSolution, Place, Question, Uv, find_uv
from provision.build.ways import Trials
from provision.errors import ActionFailedError, IncompatibleError, MissingDependencyError, UnknownError
from provision.generate.image import ImageOptions, render_image, unlocked_lines
from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.halves import is_open
from provision.resolve.request import Request, parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import LockedPackage, Refusal, Stack

_SPEC = importlib.util.spec_from_file_location("package_index", Path(__file__).with_name("package_index.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
package_index = importlib.util.module_from_spec(_SPEC)
sys.modules["package_index"] = package_index
_SPEC.loader.exec_module(package_index)

MATRIX = Matrix()
OPENED = Opened(moment="2026-11-01T00:00:00Z")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[package_index.Index]:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    for name in ("UV_OFFLINE", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with package_index.serve() as served:
        yield served


def trials_of(uv: Uv, opened: Opened = OPENED) -> Trials:
    """Return who tries what this module asks for."""

    def answer(request: Request) -> Stack | Refusal:
        return solve(request, MATRIX, is_image=True)

    def locked(request: Request, stack: Stack) -> Stack:
        return lock_whole(request, MATRIX, stack, uv, opened)

    return Trials(answer, locked, uv, ("-r", "own.txt"))


def lock(
    index: package_index.Index, *lines: str, opened: Opened = OPENED, uv: Uv | None = None, **wish: object
) -> Stack:
    """Answer a request whole; the index has what the stack itself needs, in the versions of the facts and others."""
    request = parse_request({"requirements": list(lines), **wish})
    stack = solve(request, MATRIX)
    assert isinstance(stack, Stack)
    assert stack.image is not None
    for package in stack.image.packages:
        if is_open(package.name):
            index.add(package.name, package.version)
    for version in ("2.2.2", "2.3.1", "2.4.1"):
        index.add("torch", version)
    uv = uv or Uv(find_uv(), index_url=index.url)
    return lock_whole(request, MATRIX, stack, uv, opened, trials_of(uv, opened))


def solved(**wish: object) -> Stack:
    """Return what the facts answer."""
    stack = solve(parse_request(wish), MATRIX)
    assert isinstance(stack, Stack)
    assert stack.image is not None
    return stack


def packages(stack: Stack) -> dict[str, LockedPackage]:
    assert stack.image is not None
    return {package.name: package for package in stack.image.packages}


def test_every_need_of_a_line_is_locked_by_hash(index: package_index.Index) -> None:
    index.add("demo", "1.0", "helper>=2")
    index.add("helper", "2.1")
    stack = lock(index, "demo", torch="2.4.1")
    demo, helper = packages(stack)["demo"], packages(stack)["helper"]
    assert (demo.version, demo.layer, demo.why) == ("1.0", "user", "your requirements")
    assert (helper.version, helper.layer, helper.why) == ("2.1", "user", "a need of your requirements")
    assert demo.sha256
    assert demo.url is None  # the lock does not depend on where the index stands
    assert stack.image is not None
    assert stack.image.resolved_before == OPENED.moment
    assert unlocked_lines(stack.image) == ()
    assert stack.packages["helper"] == "2.1"
    files = {item.path: item.text for item in render_image(stack, ImageOptions())}
    assert f"helper==2.1 --hash=sha256:{helper.sha256}" in files["requirements.user.txt"]
    assert "provision-uv" not in files["Dockerfile"]  # nothing is resolved while it is built
    assert '"helper"' not in files["expect.json"]  # or the frameworks would be proved again with each of the user's
    assert Stack.from_lock(files["provision.lock"]) == stack


def test_what_the_facts_chose_stays_where_nothing_speaks_against_it(index: package_index.Index) -> None:
    index.add("demo", "1.0", "filelock")
    index.add("filelock", "99.0")
    before = solve(parse_request({"torch": "2.4.1"}), MATRIX)
    assert isinstance(before, Stack)
    after = packages(lock(index, "demo", torch="2.4.1"))
    assert {name: after[name] for name in packages(before)} == packages(before)


def test_a_version_that_the_facts_do_not_list_is_taken_from_the_index(index: package_index.Index) -> None:
    index.add("filelock", "3.4.99")
    found = packages(lock(index, "filelock==3.4.99", torch="2.4.1"))["filelock"]
    assert found.version == "3.4.99"
    assert found.sha256


def test_a_bounded_line_keeps_its_newest_release_where_an_open_one_excludes_it(index: package_index.Index) -> None:
    index.add("alpha", "1.0")
    index.add("alpha", "2.0", "zeta<2")
    index.add("zeta", "1.0")
    index.add("zeta", "2.0")
    found = packages(lock(index, "alpha", "zeta<3", torch="2.4.1"))
    assert (found["alpha"].version, found["zeta"].version) == ("1.0", "2.0")


def test_what_no_metadata_says_is_asked_for_with_the_frameworks(
    index: package_index.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("accelerate", "0.31.0"), ("peft", "0.14.0"), ("peft", "0.15.0")):
        index.add(name, version)
    asked = []
    ask = Uv.ask
    monkeypatch.setattr(Uv, "ask", lambda self, question: asked.append(question) or ask(self, question))
    found = packages(lock(index, "accelerate<0.32", "peft", torch=">=2.2,<2.5"))
    assert found["peft"].version == "0.14.0"
    assert len(asked) == 2, "once for the frameworks, and once with what accelerate bounds and does not say"
    assert asked[1].preferred["accelerate"] == "0.31.0"


def test_a_package_that_pins_the_framework_chooses_its_version(index: package_index.Index) -> None:
    index.add("demo", "2.0", "torch==2.3.1")
    index.add("demo", "1.0")
    stack = lock(index, "demo", torch=">=2.2,<2.5")
    assert stack.frameworks["torch"] == "2.3.1"
    assert packages(stack)["demo"].version == "2.0"
    assert stack.request.torch == "<2.5,>=2.2"  # the lock answers what was asked
    reason = next(item for item in stack.reasons if item.subject == "torch")
    assert reason.because == "what your requirements need goes with this one; 2.4.1 is newer"


def test_a_framework_that_was_named_exactly_is_never_moved(index: package_index.Index) -> None:
    index.add("demo", "2.0", "torch==2.3.1")
    index.add("demo", "1.0")
    stack = lock(index, "demo", torch="2.4.1")
    assert stack.frameworks["torch"] == "2.4.1"
    assert packages(stack)["demo"].version == "1.0"


def test_what_cannot_be_met_is_refused_with_a_way_that_was_tried(index: package_index.Index) -> None:
    index.add("demo", "2.0", "torch==2.3.1")
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "demo==2.0", torch="2.4.1")
    assert "torch 2.4.1 on Python" in refusal.value.message
    assert any("torch is 2.4.1 here" in reason for reason in refusal.value.because)
    assert refusal.value.hints[0] == "`provision image --torch 2.3.1 -r own.txt` works: torch 2.3.1"
    assert "it works without `demo==2.0`" in refusal.value.hints


def test_no_way_out_is_named_that_fails_with_the_index(index: package_index.Index) -> None:
    index.add("demo", "2.0", "torch==2.3.1", "gone>=9")
    index.add("gone", "1.0")
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "demo==2.0", torch="2.4.1")
    assert refusal.value.hints == (
        "it works without `demo==2.0`",
        "also tried, without success: any version of torch, any version of demo",
    )
    assert refusal.value.to_json()["alternatives"] == [{"change": "without `demo==2.0`"}]


def test_another_release_and_another_python_are_named_once_they_were_locked(index: package_index.Index) -> None:
    index.add("demo", "2.0", "helper<2")
    index.add("demo", "1.0")
    index.add("helper", "2.1")
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "demo==2.0", "helper==2.1", torch="2.4.1")
    assert refusal.value.hints[0] == "it works with `demo==1.0` in place of `demo==2.0`"
    index.add("late", "1.0", requires_python=">=3.12")
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "late", torch="2.4.1", python="3.11")
    assert refusal.value.hints[0] == "`provision image --torch 2.4.1 --python 3.12 -r own.txt` works: Python 3.12"


def test_a_refusal_by_the_facts_names_what_was_locked_with_the_lines_too(index: package_index.Index) -> None:
    """A driver or CUDA that the facts exclude leaves versions of torch that the lines do not go with."""
    for version in ("2.2.2", "2.3.1", "2.4.1"):
        for package in solved(torch=version).image.packages:
            if is_open(package.name):
                index.add(package.name, package.version)
        index.add("torch", version)
    index.add("demo", "1.0", "torch<2.4")
    request = parse_request({"requirements": ["demo"], "torch": "2.3", "cuda": "12.4"})
    plain = solve(request, MATRIX, is_image=True)
    assert isinstance(plain, Refusal)
    assert [item.change for item in plain.alternatives] == ["torch 2.4", "CUDA 12.1"]
    trials = trials_of(Uv(find_uv(), index_url=index.url))
    tried = solve(request, MATRIX, is_image=True, proof=lambda other, change: trials(other, change) is not None)
    assert isinstance(tried, Refusal)
    assert "torch 2.4" not in [item.change for item in tried.alternatives]
    assert "CUDA 12.1" in [item.change for item in tried.alternatives]
    assert "torch 2.4" in next(trials.said())


def test_tries_are_bounded_by_number_and_time(index: package_index.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("demo", "2.0", "torch==2.3.1")
    monkeypatch.setattr("provision.build.ways.TRIES_MAX", 1)
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "demo==2.0", torch="2.4.1")
    assert refusal.value.hints == ("loosen the lines that the reasons name",)  # one try tells no exact version
    monkeypatch.setattr("provision.build.ways.SECONDS_MAX", 0)
    trials = trials_of(Uv(find_uv(), index_url=index.url))
    assert trials(parse_request({"requirements": ["demo==2.0"], "torch": "2.3.1"}), "torch 2.3.1") is None
    assert trials.is_spent


def test_a_bound_that_stands_in_no_metadata_holds_for_the_users_packages(index: package_index.Index) -> None:
    for version in ("5.12.0", "5.30.0"):
        index.add("transformers", version)
    assert packages(lock(index, "transformers", torch="2.4.1"))["transformers"].version == "5.12.0"
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "transformers==5.30.0", torch="2.4.1")
    assert any("its metadata does not say" in reason for reason in refusal.value.because)


def test_an_older_python_is_taken_where_a_wheel_exists_for_it_alone(index: package_index.Index) -> None:
    newest = solve(parse_request({"torch": "2.14.1"}), MATRIX)
    assert isinstance(newest, Stack)
    assert newest.python == "3.12"
    index.add("demo", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    index.add_source("demo", "1.0")
    stack = lock(index, "demo", torch="2.14.1")
    assert stack.python == "3.11"
    assert not packages(stack)["demo"].is_source


def test_a_python_past_its_end_is_taken_only_where_nothing_else_answers(index: package_index.Index) -> None:
    index.add("demo", "1.0", tag="cp310-cp310-manylinux_2_17_x86_64")
    assert lock(index, "demo", torch="2.4.1").python == "3.10"
    index.add_source("demo", "1.0")
    assert lock(index, "demo", torch="2.4.1").python == "3.11"


def test_the_pythons_that_a_package_has_wheels_for_are_tried_before_the_others(
    index: package_index.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provision.build.closure._OLDER_PYTHONS_MAX", 1)
    index.add("demo", "1.0", tag="cp38-cp38-manylinux_2_17_x86_64")
    assert lock(index, "demo==1.0", torch="2.4.1").python == "3.8"


def test_a_build_that_fails_is_told_by_the_error_of_its_script(index: package_index.Index) -> None:
    index.add_source("demo", "1.0", script="import absent_module\n")
    with pytest.raises(ActionFailedError, match=r"`demo==1\.0`") as refusal:
        lock(index, "demo", torch="2.4.1")
    assert refusal.value.because == ("its build ended with: ModuleNotFoundError: No module named 'absent_module'",)


def test_a_name_that_the_index_does_not_have_is_no_conflict(index: package_index.Index) -> None:
    with pytest.raises(UnknownError, match="no package `demmo`"):
        lock(index, "demmo", torch="2.4.1")


def test_all_the_names_that_the_index_does_not_have_are_told_up_to_a_bound(index: package_index.Index) -> None:
    index.add("demo", "1.0")
    with pytest.raises(UnknownError) as refusal:
        lock(index, "gone-a", "demo", "gone-b", torch="2.4.1")
    assert refusal.value.message == "the index has none of these packages: `gone-a`, `gone-b`"
    with pytest.raises(UnknownError) as refusal:
        lock(index, *(f"gone-{number}" for number in range(500)), torch="2.4.1")
    assert len(refusal.value.to_json()["absent"]) == 10
    assert refusal.value.hints[0] == "correct their names"


def test_a_file_that_is_not_the_one_of_its_hash_is_told_in_one_sentence(index: package_index.Index) -> None:
    index.add_source("demo", "1.0", script="raise SystemExit")
    index.stated["demo-1.0.tar.gz"] = "0" * 64
    with pytest.raises(ActionFailedError) as refusal:
        lock(index, "demo", torch="2.4.1")
    assert refusal.value.message == "the index serves another file of demo 1.0 than the one that it names"
    assert f"sha256:{'0' * 64}" in refusal.value.because[0]


def test_the_cause_of_a_build_that_failed_is_its_own_last_line(index: package_index.Index) -> None:
    index.add_source("demo", "1.0", script="import no_such_module\n")
    with pytest.raises(ActionFailedError) as refusal:
        lock(index, "demo", torch="2.4.1")
    assert refusal.value.because == ("its build ended with: ModuleNotFoundError: No module named 'no_such_module'",)
    assert refusal.value.exit_code == 5
    assert refusal.value.hints[0] == "it works without `demo`"


def test_what_a_source_needs_is_taken_from_the_facts_and_its_build_is_not_run(index: package_index.Index) -> None:
    releases, needs = next(iter(MATRIX.setting("constraints.toml", "source_needs").entries.items()))
    name, version, *_ = releases.split()
    index.add_source(name, version, script="import torch\n")
    for need in needs.split():
        index.add(need, "1.0")
    stack = lock(index, f"{name}=={version}", torch="2.4.1")
    assert packages(stack)[name].is_source
    assert set(needs.split()) <= set(packages(stack))
    assert stack.frameworks["torch"] == "2.4.1"


@pytest.mark.parametrize(("torch", "major"), [("2.4.1", 12), ("2.12.0", 13)])
def test_transformer_engine_brings_the_core_of_its_cuda(index: package_index.Index, torch: str, major: int) -> None:
    for name in ("transformer-engine-torch", "transformer-engine-cu12", "transformer-engine-cu13"):
        index.add(name, "99.0")
    index.add("transformer-engine", "99.0", "transformer-engine-torch==99.0; extra == 'pytorch'")
    found = packages(lock(index, "transformer-engine[pytorch]", torch=torch))
    assert {f"transformer-engine-cu{other}" for other in (12, 13)} & set(found) == {f"transformer-engine-cu{major}"}


@pytest.mark.parametrize("name", ["tensorrt-cu12-libs", "tensorrt-cu13-libs"])
def test_the_libraries_of_tensorrt_are_locked_where_their_wheel_cannot_be_fetched(
    index: package_index.Index, name: str
) -> None:
    index.add_source(name, "11.4.0.106", script="raise SystemExit('nvidia-smi command not found')\n")
    assert packages(lock(index, name, torch="2.4.1"))[name].is_source


def test_variables_of_uv_do_not_change_the_answer(index: package_index.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "2.0"):
        index.add("demo", version)
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    assert packages(lock(index, "demo", torch="2.4.1"))["demo"].version == "2.0"


def test_a_package_chooses_the_framework_before_the_newest_one_is_looked_at(index: package_index.Index) -> None:
    # The newest torch needs a typing-extensions that the newest demo does not admit.
    index.add("demo", "2.0", "torch==2.3.1", "typing-extensions<4")
    index.add("demo", "1.0")
    index.add("typing-extensions", "3.10.0")
    stack = lock(index, "demo", torch=">=2.2,<2.5")
    assert packages(stack)["demo"].version == "1.0"  # torch 2.3.1 needs a newer one too, so it was tried and given up


def test_what_exists_as_source_alone_is_built_in_a_stage_of_its_own(index: package_index.Index) -> None:
    index.add_source("demo", "1.0", "helper")
    index.add("helper", "2.1")
    stack = lock(index, "demo", torch="2.4.1")
    assert packages(stack)["demo"].is_source
    assert stack.image is not None
    assert stack.image.build_base is not None
    assert stack.image.build_base.ref == "python:3.11-bookworm"
    files = {item.path: item.text for item in render_image(stack, ImageOptions())}
    assert "demo==1.0 --hash=sha256:" in files["requirements.build.txt"]
    assert "demo" not in files["requirements.user.txt"]
    stage, last = files["Dockerfile"].split("\nFROM framework AS runtime\n")
    assert "-r /build/requirements.build.txt" in stage
    assert "--no-deps /wheels/*.whl" in last


def test_an_index_that_does_not_answer_is_named_with_the_way_without_it(index: package_index.Index) -> None:
    request = parse_request({"torch": "2.4.1", "requirements": ["demo"]})
    stack = solve(request, MATRIX)
    assert isinstance(stack, Stack)
    with pytest.raises(MissingDependencyError) as refusal:
        lock_whole(request, MATRIX, stack, Uv(find_uv(), index_url="http://127.0.0.1:9/simple"), OPENED)
    assert any("--offline" in hint for hint in refusal.value.hints)


def test_a_branch_that_a_repository_has_not_is_named_and_proves_no_conflict(
    index: package_index.Index, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "repository")], check=True)
    line = f"demo @ git+file://{tmp_path}/repository@absent"
    question = Question(lines=(line,), place=Place(python="3.11", machine="x86_64", glibc="2.28"))
    with pytest.raises(MissingDependencyError) as refusal:
        Uv(find_uv(), index_url=index.url).ask(question)
    assert f"the repository file://{tmp_path}/repository@absent cannot be read" in refusal.value.message


def test_a_repository_is_named_where_its_line_has_no_name(index: package_index.Index) -> None:
    address = "https://127.0.0.1:9/somebody/demo.git"
    question = Question(lines=(f"git+{address}",), place=Place(python="3.11", machine="x86_64", glibc="2.28"))
    with pytest.raises(MissingDependencyError) as refusal:
        Uv(find_uv(), index_url=index.url).ask(question)
    assert f"the repository {address}" in refusal.value.message


def test_a_long_proof_is_told_by_what_it_stands_on_and_not_by_each_step(index: package_index.Index) -> None:
    for minor in range(20):
        index.add("tool", f"1.{minor}", f"library=={minor}.0")
        index.add("library", f"{minor}.0")
    index.add("demo", "1.0", "tool>=1")
    lines = ("demo", "library==99.0")
    index.add("library", "99.0")
    found = Uv(find_uv(), index_url=index.url).ask(
        Question(lines=lines, place=Place(python="3.11", machine="x86_64", glibc="2.28"))
    )
    assert isinstance(found, NoSolution)
    assert 3 <= len(found.because) <= 9
    assert "library==99.0" in " ".join(found.because)
    assert not any("we can conclude" in text or "we know from" in text for text in found.because)
    assert any("more steps" in text for text in found.because)


@pytest.mark.parametrize("day", [None, "2026-12-01T00:00:00Z"])
def test_what_is_too_new_or_has_no_date_counts_only_now(index: package_index.Index, day: str | None) -> None:
    index.add("demo", "1.0", day=day)
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "demo", torch="2.4.1")
    assert "`--exclude-newer now` works" in refusal.value.hints[0]
    with pytest.raises(IncompatibleError) as refusal:
        lock(index, "demo>1", torch="2.4.1")
    assert not any("`--exclude-newer now` works" in hint for hint in refusal.value.hints)
    stack = lock(index, "demo", torch="2.4.1", opened=Opened(moment="2026-12-02T00:00:00Z", is_dated=False))
    assert packages(stack)["demo"].version == "1.0"


def test_versions_that_are_kept_stay_and_the_others_move(index: package_index.Index) -> None:
    for name in ("demo", "other"):
        index.add(name, "1.0")
        index.add(name, "2.0")
    opened = Opened(moment=OPENED.moment, kept={"demo": "1.0"})
    found = packages(lock(index, "demo", "other", torch="2.4.1", opened=opened))
    assert (found["demo"].version, found["other"].version) == ("1.0", "2.0")


def test_a_stack_without_lines_needs_nothing() -> None:
    plain = solve(parse_request({"torch": "2.4.1"}), MATRIX)
    own = solve(parse_request({"torch": "2.4.1", "requirements": ["torch>=2"]}), MATRIX)
    lines = solve(parse_request({"torch": "2.4.1", "requirements": ["einops"]}), MATRIX)
    assert [isinstance(item, Stack) and needs_lock(item) for item in (plain, own, lines)] == [False, False, True]


def test_an_override_stands_for_what_others_ask(index: package_index.Index) -> None:
    index.add("demo", "1.0", "helper<2", "torch==2.3.1")
    index.add("helper", "1.0")
    index.add("helper", "2.1")
    found = lock(index, "demo", torch="2.4.1", overrides=["helper>=2", "torch>=2.4"])
    assert packages(found)["helper"].version == "2.1"
    assert found.frameworks["torch"] == "2.4.1"  # decided by the facts, and not asked of the index


def test_what_is_excluded_is_brought_by_nothing(index: package_index.Index) -> None:
    index.add("demo", "1.0", "helper")
    index.add("helper", "1.0")
    assert "helper" not in packages(lock(index, "demo", torch="2.4.1", excludes=["helper"]))


def test_an_index_of_one_package_serves_no_other(index: package_index.Index) -> None:
    index.add("demo", "1.0", "helper")
    index.add("helper", "1.0")
    with package_index.serve() as other:
        for name in ("demo", "helper"):
            other.add(name, "2.0", *(["helper"] if name == "demo" else []))
        found = packages(lock(index, "demo", torch="2.4.1", sources=[f"demo @ own={other.url}"]))
        assert (found["demo"].version, found["helper"].version) == ("2.0", "1.0")
        assert found["demo"].url == f"{other.url}/demo/demo-2.0-py3-none-any.whl"
        assert found["helper"].url is None
        assert other.asked == ["demo"]


def test_a_bound_on_a_framework_that_stands_in_no_metadata_chooses_its_version(index: package_index.Index) -> None:
    index.add("basicsr", "1.4.2", "torchvision")
    for torch, torchvision in (("2.1.2", "0.16.2"), ("2.4.1", "0.19.1")):
        index.add("torch", torch)
        index.add("torchvision", torchvision, f"torch=={torch}")
    older = solve(parse_request({"torch": "2.1.2", "python": "3.11"}), MATRIX)
    assert isinstance(older, Stack)
    for package in packages(older).values():
        if is_open(package.name):
            index.add(package.name, package.version)
    stack = lock(index, "basicsr", torch=">=2.1,<2.5", python="3.11")
    assert stack.frameworks["torch"] == "2.1.2"


def test_pins_that_are_much_older_than_an_open_framework_are_told_with_their_day(index: package_index.Index) -> None:
    index.add("accelerate", "0.21.0", "torch>=1.10", day="2023-07-13T00:00:00Z")
    index.add("demo", "1.0", day="2023-07-20T00:00:00Z")
    lines = ("accelerate==0.21.0", "demo==1.0")
    uv = Uv(find_uv(), index_url=index.url)
    stack = lock(index, *lines, torch=">=2.2", uv=uv)
    age = find_age(stack.request, stack, MATRIX, uv.uploaded)
    assert age is not None
    assert (age.pins, age.newest, age.day) == (("accelerate 0.21.0",), "2023-07-13", "2023-07-20")
    assert age.framework == f"torch {stack.frameworks['torch']}"
    exact = replace(stack.request, torch=f"=={stack.frameworks['torch']}")
    assert find_age(exact, stack, MATRIX, uv.uploaded) is None  # whoever names it means it
    loose = replace(stack.request, requirements=("accelerate", "demo==1.0"))
    assert find_age(loose, stack, MATRIX, uv.uploaded) is None  # the newest that goes with it is taken
    young = {**uv.uploaded, ("accelerate", "0.21.0"): "2024-08-01T00:00:00Z"}
    assert find_age(stack.request, stack, MATRIX, young) is None


def test_a_pin_of_the_user_holds_where_the_facts_would_take_another_version(index: package_index.Index) -> None:
    index.add("demo", "1.0")
    index.add("filelock", "3.4.99")
    index.add("demo", "2.0", "filelock>=3.9")
    # The newest of what is asked for would take another version of it.
    found = packages(lock(index, "demo", "filelock<3.5", torch="2.4.1"))
    assert (found["demo"].version, found["filelock"].version) == ("1.0", "3.4.99")
    with pytest.raises(IncompatibleError):
        lock(index, "demo==2.0", "filelock==3.4.99", torch="2.4.1")


def test_a_release_that_is_known_to_fail_with_the_cuda_gives_way_to_one_that_does_not(
    index: package_index.Index,
) -> None:
    index.add("onnxruntime-gpu", "1.26.0")
    index.add("onnxruntime-gpu", "1.31.1")
    found = packages(lock(index, "onnxruntime-gpu", torch="2.4.1", cuda="12.1"))
    assert found["onnxruntime-gpu"].version == "1.26.0"
    with pytest.raises(IncompatibleError) as caught:
        lock(index, "onnxruntime-gpu==1.31.1", torch="2.4.1", cuda="12.1")
    assert "onnxruntime-gpu 1.31.1 does not work with cuda<13" in caught.value.because[0]


def test_what_a_line_brings_for_another_cuda_chooses_the_cuda_where_it_is_open(index: package_index.Index) -> None:
    index.add("demo", "1.0", "ctranslate2")
    index.add("ctranslate2", "4.8.5")
    for package in solved(torch="2.14.1", cuda="<13").image.packages:
        index.add(package.name, package.version)
    stack = lock(index, "demo", torch="2.14.1")
    assert stack.cuda.startswith("12.")
    assert packages(stack)["ctranslate2"].version == "4.8.5"
    assert any(item.subject == "ctranslate2" and "cuda>=13" in item.because for item in stack.reasons)
    with pytest.raises(IncompatibleError) as caught:
        lock(index, "demo", torch="2.14.1", cuda="13.0")
    assert "ctranslate2 4.8.5 does not work with cuda>=13" in caught.value.because[0]


def test_what_a_line_brings_is_for_the_cuda_of_the_stack_or_the_line_that_is_gets_named(
    index: package_index.Index,
) -> None:
    index.add("tensorrt", "11.4.0.106", "tensorrt-cu13")
    index.add("tensorrt-cu13", "11.4.0.106")
    with pytest.raises(IncompatibleError) as caught:
        lock(index, "tensorrt", torch="2.8.0")
    assert caught.value.because[0] == "tensorrt-cu13 11.4.0.106 is TensorRT for CUDA 13, and does not go with CUDA 12.8"
    assert "write `tensorrt-cu12` in place of `tensorrt`: it is TensorRT for CUDA 12" in caught.value.hints
    for version in ("12.9.10", "13.4.4"):
        index.add("cuda-python", version)
    assert packages(lock(index, "cuda-python", torch="2.8.0"))["cuda-python"].version == "12.9.10"
    assert packages(lock(index, "cuda-python", torch="2.14.1"))["cuda-python"].version == "13.4.4"


def test_numba_cuda_without_an_extra_comes_with_that_of_the_cuda_of_the_stack(index: package_index.Index) -> None:
    for version in ("12.9.10", "13.5.0"):
        index.add("cuda-bindings", version)
    index.add("cuda-toolkit-parts", "12.8")
    index.add(
        "numba-cuda",
        "0.30.4",
        "cuda-bindings>=12.9.1,<14",
        'cuda-bindings>=12.9.1,<13; extra == "cu12"',
        'cuda-toolkit-parts==12.*; extra == "cu12"',
    )
    stack = lock(index, "numba-cuda", torch="2.8.0")
    held = {name: item.version for name, item in packages(stack).items()}
    assert held["cuda-bindings"] == "12.9.10"
    assert held["cuda-toolkit-parts"] == "12.8"
    assert any("`numba-cuda[cu12]>=0.4` is for that" in item.because for item in stack.reasons)
    assert stack.request.requirements == ("numba-cuda",)
    # What the user binds to the other CUDA is refused, and the line that works is named.
    with pytest.raises(IncompatibleError) as caught:
        lock(index, "numba-cuda", "cuda-bindings>=13", torch="2.8.0", cuda="12.8")
    assert any(hint.startswith("write `numba-cuda[cu12]>=0.4` in place of `numba-cuda`") for hint in caught.value.hints)
    assert packages(lock(index, "numba-cuda", torch="2.14.1"))["cuda-bindings"].version == "13.5.0"


def test_a_bound_of_the_facts_on_what_a_line_brings_is_told_with_its_reason(index: package_index.Index) -> None:
    index.add("transformers", "4.57.6")
    index.add("transformers-stream-generator", "0.0.5", "transformers>=4.26.1")
    with pytest.raises(IncompatibleError) as caught:
        lock(index, "transformers==4.57.6", "transformers_stream_generator", torch="2.4.1")
    assert "transformers-stream-generator <=0.0.5 needs transformers<4.57" in "\n".join(caught.value.because)


def test_a_line_is_held_to_the_gpus_as_an_extra_is(index: package_index.Index) -> None:
    index.add("vllm", "0.11.0")
    with pytest.raises(IncompatibleError) as caught:
        lock(index, "vllm", torch="2.4.1", gpu=["p100"])
    assert "vllm 0.11.0 does not run on Pascal GPUs" in caught.value.because[0]
    assert packages(lock(index, "vllm", torch="2.4.1", gpu=["a100"]))["vllm"].version == "0.11.0"


def test_a_bound_on_what_is_decided_chooses_the_release_that_goes_with_it(index: package_index.Index) -> None:
    for version in ("0.0.3", "0.7.0", "0.17.0"):
        index.add("torchcodec", version)
    assert packages(lock(index, "torchcodec", torch="2.4.1"))["torchcodec"].version == "0.0.3"


def test_a_release_is_the_one_that_the_facts_pair_with_this_torch(index: package_index.Index) -> None:
    for version in ("0.2.5", "0.6.3.post1", "0.9.0"):
        index.add("vllm", version)
    stack = lock(index, "vllm", torch="2.4.0")
    pin = next(line for extra in solved(torch="2.4.0", **{"with": "vllm"}).image.extras for line in extra.requires)
    assert f"vllm=={packages(stack)['vllm'].version}" == pin


def test_a_release_that_only_its_metadata_admits_is_told(index: package_index.Index) -> None:
    index.add("vllm", "0.2.5")
    stack = lock(index, "vllm", torch="2.12.0")
    assert packages(stack)["vllm"].version == "0.2.5"
    assert any(text.startswith("no release of vllm is known to go with torch 2.12.0") for text in stack.warnings)


@pytest.mark.parametrize(("torch", "is_taken"), [("2.9.1", True), ("2.4.1", False)])
def test_a_base_of_an_unknown_system_is_thought_as_new_as_the_wheels_of_the_stack_need(
    index: package_index.Index, torch: str, is_taken: bool
) -> None:
    # torch 2.9 is built for glibc 2.28, torch 2.4 for 2.17; no base that runs the one lacks what the newer demo needs.
    index.add("demo", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    index.add("demo", "2.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    index.add("torch", torch)
    stack = lock(index, "demo", torch=torch, python="3.11", base="registry.example/own/python:1")
    assert packages(stack)["demo"].version == ("2.0" if is_taken else "1.0")


def test_packages_that_write_the_same_files_are_told(index: package_index.Index) -> None:
    index.add("onnxruntime", "1.20.0")
    index.add("onnxruntime-gpu", "1.20.0")
    assert lock(index, "onnxruntime-gpu", torch="2.4.1").warnings == ()
    told = lock(index, "onnxruntime-gpu", "onnxruntime", torch="2.4.1").warnings
    assert [text for text in told if "onnxruntime and onnxruntime-gpu write the same files" in text]


def test_lines_that_need_cuda_are_told_where_none_was_asked_for(index: package_index.Index) -> None:
    index.add("demo", "1.0")
    index.add("xformers", "0.0.28")
    index.add("nvidia-nvtx-cu12", "12.4.127")
    index.add("torch", "2.4.1+cpu")
    assert lock(index, "demo", torch="2.4.1", cpu=True).warnings == ()
    told = lock(index, "xformers", "nvidia-nvtx-cu12", torch="2.4.1", cpu=True).warnings
    assert [text for text in told if text.startswith("xformers is in your lines, and `--cpu` asks for no CUDA")]
    assert "your lines bring nvidia-nvtx-cu12, and `--cpu` asks for no CUDA" in told
