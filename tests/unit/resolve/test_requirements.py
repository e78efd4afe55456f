"""provision.resolve.requirements: which lines of a requirements file are taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.requirements import parse_requirements
from provision.resolve.solve import solve
from provision.resolve.stack import Stack


def test_requirements_comments_and_blank_lines() -> None:
    text = "\ufeff# head\n\nTorch.Geometric [full] >=2.3,<3  # why\r\nrequests; python_version < '3.13'\n"
    found = parse_requirements(text, "r.txt")
    assert [(item.name, item.specifier, item.line) for item in found] == [
        ("torch-geometric", "<3,>=2.3", 3),
        ("requests", "", 4),
    ]
    assert found[1].text == "requests; python_version < '3.13'"


def test_an_https_address_is_a_requirement() -> None:
    line = "pkg @ https://wheels.example/pkg-1.0-py3-none-any.whl"
    assert parse_requirements(line, "r.txt")[0].name == "pkg"


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "--editable=git+https://x.example/y",
        "-r other.txt",
        "--index-url https://x.example",
        "numpy --hash=sha256:00",
        "./wheel.whl",
        "/srv/wheel.whl",
        "../up",
        "~/x",
        "wheel-1.0-py3-none-any.whl",
        "file:///srv/x",
        "pkg @ http://x.example/p.whl",
        "pkg @ file:///srv/p.whl",
        "pkg @ git+https://x.example/p",
        "https://x.example/p.whl",
        "numpy==1.0 \\",
        "numpy==${VERSION}",
        "numpy==$(id)",
        "numpy`id`",
        "{{ numpy }}",
        "numpy; rm -rf",
        "numpy\x0bpandas",
        "numpy\x00",
        "num\u0440y",
        "numpy\u2028pandas",
        "numpy =! 1",
        "==1.0",
    ],
)
def test_anything_else_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"r\.txt, line 3"):
        parse_requirements(f"requests\n# two\n{line}\n", "r.txt")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-e .", "editable"),
        ("-c other.txt", "options"),
        ("numpy --hash=sha256:00", "options"),
        ("./wheel.whl", "a path"),
        ("numpy==1.0 \\", "one line"),
        ("numpy==${VERSION}", "not expanded"),
        ("num\u0440y", "printable ASCII"),
        ("pkg @ http://x.example/p.whl", "only https"),
    ],
)
def test_the_refusal_says_why(line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_requirements(line, "r.txt")


@given(st.text(max_size=60))
def test_never_a_traceback_and_never_another_line(text: str) -> None:
    try:
        found = parse_requirements(text, "r.txt")
    except UsageError:
        return
    for item in found:
        assert "\n" not in item.text
        Requirement(item.text)


def test_a_local_part_holds_the_build_and_is_met_by_the_one_without() -> None:
    facts = Matrix()
    for variant, version in (("cu121", "2.4.1"), ("cu118", "2.4.1+cu118")):
        found = solve(parse_request({"torch": "2.4.1", "requirements": [f"torch==2.4.1+{variant}"]}), facts)
        assert isinstance(found, Stack)
        assert found.packages["torch"] == version
