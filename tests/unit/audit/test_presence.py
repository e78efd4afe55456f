"""What a walk through the commands leaves: what is kept, moved, brought, taken out, and what is sure."""

from __future__ import annotations

import pytest

from provision.audit.documents import parse_document
from provision.audit.engine import audit
from provision.audit.model import Environment, Options, Source
from provision.audit.presence import origin_of, taken_of_all, walks_of
from provision.audit.surroundings import complete
from provision.matrix.load import Matrix

MATRIX = Matrix()
PY = "FROM python:3.11-slim-bookworm\n"
CU126 = "--index-url https://download.pytorch.org/whl/cu126"


def environment(text: str, name: str = "Dockerfile", at: int = -1) -> Environment:
    document = parse_document(Source(name, text), {}.get, Options())
    return complete(document.environments[at], MATRIX, Options())


def end(text: str, name: str = "Dockerfile") -> dict[str, str | None]:
    (walk,) = walks_of(environment(text, name), MATRIX, Options())
    return {package: item.version for package, item in walk.end.items()}


def test_what_will_do_is_kept_and_the_newest_is_taken_else() -> None:
    there = end(f"{PY}RUN pip install numpy==1.26.4\nRUN pip install pandas==2.2.3")
    assert there["numpy"] == "1.26.4"
    assert end(f"{PY}RUN pip install pandas==2.2.3")["numpy"] != "1.26.4"


def test_what_a_later_command_needs_moves_what_is_there() -> None:
    there = end(f"{PY}RUN pip install transformers==4.40.0\nRUN pip install tokenizers==0.20.0")
    assert (there["transformers"], there["tokenizers"]) == ("4.40.0", "0.20.0")


@pytest.mark.parametrize(
    ("flag", "is_kept"),
    [("-U", True), ("--upgrade", True), ("--force-reinstall", False), ("-U --upgrade-strategy eager", False)],
)
def test_an_upgrade_takes_the_newest_of_what_it_names_and_of_the_rest_only_if_told(flag: str, is_kept: bool) -> None:
    before = "RUN pip install requests==2.30.0 certifi==2024.2.2"
    there = end(f"{PY}{before}\nRUN pip install {flag} requests")
    assert there["requests"] != "2.30.0"
    assert (there["certifi"] == "2024.2.2") is is_kept


def test_what_is_taken_out_is_gone_and_what_comes_after_takes_its_place() -> None:
    assert "numpy" not in end(f"{PY}RUN pip install numpy==1.26.4\nRUN pip uninstall -y numpy")
    there = end(f"{PY}RUN pip install numpy==1.26.4\nRUN pip uninstall -y numpy\nRUN pip install pandas==2.2.3")
    assert there["numpy"] != "1.26.4"


def test_without_dependencies_only_what_is_named_comes() -> None:
    there = end(f"{PY}RUN pip install --no-deps pandas==2.2.3")
    assert there == {"pandas": "2.2.3"}


def test_a_constraint_holds_what_nobody_names() -> None:
    sources = {
        "Dockerfile": Source("Dockerfile", f"{PY}COPY c.txt .\nRUN pip install -c c.txt pandas==2.2.3\n"),
        "c.txt": Source("c.txt", "numpy<2\n"),
    }
    document = parse_document(sources["Dockerfile"], sources.get, Options())
    (walk,) = walks_of(complete(document.environments[0], MATRIX, Options()), MATRIX, Options())
    assert (walk.end["numpy"].version or "").startswith("1.")


def test_the_framework_of_a_base_is_there_and_what_else_it_holds_is_not_known() -> None:
    text = "FROM pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime\nRUN pip install pandas==2.2.3"
    walk = walks_of(environment(text), MATRIX, Options())[0]
    assert (walk.end["torch"].version, walk.end["torch"].step) == ("2.4.1", None)
    assert walk.end["numpy"].version is None
    assert not walk.end["pandas"].is_sure


def test_what_conda_brings_is_there_and_not_replaced() -> None:
    text = "name: x\ndependencies:\n  - python=3.11\n  - pytorch=2.1.2\n  - pip\n  - pip:\n    - accelerate==0.34.2\n"
    there = end(text, "environment.yml")
    assert there["torch"] == "2.1.2"
    assert there["accelerate"] == "0.34.2"


def test_a_project_and_its_extra_are_solved_together() -> None:
    project = (
        '[project]\nname = "x"\nversion = "1"\nrequires-python = "==3.11.*"\ndependencies = ["torch"]\n'
        '[project.optional-dependencies]\nold = ["torch==2.1.2"]\n'
    )
    (walk,) = walks_of(environment(project, "pyproject.toml"), MATRIX, Options())
    assert len(walk.steps) == 1
    assert walk.end["torch"].version == "2.1.2"


def test_uv_takes_torch_from_its_first_index_and_pip_the_newest_of_all() -> None:
    extra = CU126.replace("--index-url", "--extra-index-url")
    plain = end(f"{PY}RUN pip install torch")["torch"]
    of_index = end(f"{PY}RUN pip install torch {CU126}")["torch"]
    assert of_index not in (None, plain)
    assert end(f"{PY}RUN pip install torch {extra}")["torch"] == plain
    assert end(f"{PY}RUN uv pip install --system torch {extra}")["torch"] == of_index


def test_an_index_of_which_nothing_is_known_leaves_only_what_pins_say() -> None:
    text = f"{PY}RUN pip install numpy==1.26.4\nRUN pip install --index-url https://mirror.example/own pandas==2.2.3"
    there = end(text)
    assert there == {"numpy": None, "pandas": "2.2.3"}


def test_a_wheel_says_for_which_python_it_is() -> None:
    wheel = "https://mirror.example/torch-0.4.0-cp35-cp35m-linux_x86_64.whl"
    assert walks_of(environment(f"RUN-less\n{wheel}\nnumpy\n", "requirements.txt"), MATRIX, Options()) == ()


def test_one_walk_for_each_python_that_a_list_may_be_for() -> None:
    walks = walks_of(environment("numpy\n", "requirements.txt"), MATRIX, Options())
    assert len(walks) > 1
    versions, is_sure = taken_of_all(environment("numpy\n", "requirements.txt"), MATRIX, Options(), "numpy")
    assert is_sure
    assert set(versions) == {walk.end["numpy"].version for walk in walks}


def test_what_excludes_itself_is_still_read_and_never_sure() -> None:
    text = "torch==2.4.1\ntorchvision==0.18.0\nnumpy==1.26.4\n"
    walks = walks_of(environment(text, "requirements.txt"), MATRIX, Options())
    assert [walk.end["numpy"].version for walk in walks] == ["1.26.4"]
    assert not any(item.is_sure for item in walks[0].end.values())


@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        (f"{PY}RUN pip install pandas", True),
        (f"{PY}RUN pip install pandas a-package-of-our-own", False),
        (f"{PY}RUN pip install a-package-of-our-own\nRUN pip install pandas", False),
        ("FROM registry.example/base:1\nRUN pip install pandas", False),
    ],
)
def test_it_is_sure_only_where_nothing_unknown_could_bring_another(text: str, is_sure: bool) -> None:
    for walk in walks_of(environment(text), MATRIX, Options()):
        assert walk.end["numpy"].is_sure is is_sure


def test_the_requirement_that_comes_to_a_package_is_named() -> None:
    (walk,) = walks_of(environment(f"{PY}RUN pip install requests 'pandas==2.2.3'"), MATRIX, Options())
    by = origin_of(MATRIX, walk.steps[0], "numpy")
    assert by is not None
    assert by.name == "pandas"
    assert origin_of(MATRIX, walk.steps[0], "no-such-package") is None


def test_commands_into_different_places_are_not_walked() -> None:
    text = f"{PY}RUN pip install pandas\nRUN pip install --target /opt/x numpy"
    assert walks_of(environment(text), MATRIX, Options()) == ()


def rules(text: str, name: str = "Dockerfile") -> set[str]:
    found = audit([Source(name, text)], {}.get, MATRIX, Options()).findings
    return {finding.rule for finding in found if finding.severity != "info"}


@pytest.mark.parametrize("torch", ["torch torchvision==0.16.0", "torch xformers==0.0.22.post7"])
def test_an_index_whose_newest_does_not_go_with_the_rest_says_nothing_of_torch(torch: str) -> None:
    cu118 = "--index-url https://download.pytorch.org/whl/cu118"
    assert "C10" not in rules(f'{PY}RUN pip install {torch} "numpy<2" {cu118}')


def test_an_index_does_not_move_what_is_there_already() -> None:
    cu118 = "--index-url https://download.pytorch.org/whl/cu118"
    first = f'RUN pip install torch==2.1.0 torchvision==0.16.0 "numpy<2" {cu118}'
    assert not rules(f"{PY}{first}\nRUN pip install torch {cu118}") & {"C10", "C22"}


@pytest.mark.parametrize(
    "lines",
    [
        "numpy===1.26.4\nopencv-python===4.8.0.76\n",
        "tensorflow==2.15.*\ntorch==2.0.1,<3\nnumpy==2.0.0,<3\n",
        "tensorflow==2.15.0,!=2.15.1\nnumpy==2.0.0\n",
        "numpy==1.26.4\nnumpy==2.0.0\ntorch==2.4.1\ntorchvision==0.18.0\n",
    ],
)
def test_pins_of_every_form_are_read_where_they_exclude_each_other(lines: str) -> None:
    assert len(walks_of(environment(lines, "requirements.txt"), MATRIX, Options())) >= 1


def test_a_pin_that_a_later_command_moves_is_not_what_breaks() -> None:
    text = f"{PY}RUN pip install numpy==1.26.4 opencv-python==4.8.0.76\nRUN pip install pandas"
    (finding,) = (
        item for item in audit([Source("Dockerfile", text)], {}.get, MATRIX, Options()).findings if item.rule == "N01"
    )
    assert finding.message == "opencv-python 4.8.0.76 does not work with the numpy it gets"
    assert "`pandas` puts numpy" in finding.reasons[0]
    assert "in the place of numpy==1.26.4" in finding.reasons[0]


def test_uv_leaves_nothing_as_it_is_where_it_upgrades_and_only_what_is_named_with_its_own_flag() -> None:
    before = "RUN uv pip install --system requests==2.30.0 certifi==2024.2.2"
    assert end(f"{PY}{before}\nRUN uv pip install --system -U requests")["certifi"] != "2024.2.2"
    there = end(f"{PY}{before}\nRUN uv pip install --system -P certifi requests")
    assert (there["requests"], there["certifi"] == "2024.2.2") == ("2.30.0", False)


def test_uv_pip_sync_begins_anew() -> None:
    text = f"{PY}COPY r.txt .\nRUN uv pip install --system torch==2.1.0\nRUN uv pip sync --system r.txt\n"
    sources = {"Dockerfile": Source("Dockerfile", text), "r.txt": Source("r.txt", "numpy==1.26.4\n")}
    document = parse_document(sources["Dockerfile"], sources.get, Options())
    (walk,) = walks_of(complete(document.environments[0], MATRIX, Options()), MATRIX, Options())
    assert set(walk.end) == {"numpy"}


def test_two_pythons_are_two_places() -> None:
    text = f"{PY}RUN python3.9 -m pip install transformers==4.30.0\nRUN python3.10 -m pip install tokenizers==0.21.0"
    assert walks_of(environment(text), MATRIX, Options()) == ()


def test_a_wheel_for_the_stable_interface_is_for_later_pythons_too() -> None:
    wheel = "https://mirror.example/foo-1.0-cp38-abi3-manylinux2014_x86_64.whl"
    assert len(walks_of(environment(f"{wheel}\nnumpy\n", "requirements.txt"), MATRIX, Options())) > 1


@pytest.mark.parametrize(
    "line",
    ["RUN apt-get update && apt-get install -y python3-numpy", "RUN ./install.sh", "COPY --from=other /a /b"],
)
def test_what_may_put_packages_there_unseen_leaves_nothing_sure(line: str) -> None:
    text = f"FROM debian:12 AS other\nFROM python:3.11-slim-bookworm\n{line}\nRUN pip install pandas\n"
    for walk in walks_of(environment(text), MATRIX, Options()):
        assert not walk.end["numpy"].is_sure


def test_a_removal_that_may_not_run_leaves_the_release_unknown() -> None:
    text = f"{PY}RUN pip install numpy==1.26.4\nRUN if test -e x; then pip uninstall -y numpy; fi"
    (walk,) = walks_of(environment(text), MATRIX, Options())
    assert (walk.end["numpy"].version, walk.end["numpy"].is_sure) == (None, False)
