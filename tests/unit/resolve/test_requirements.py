"""provision.resolve.requirements: which lines of a requirements file are taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.requirements import parse_requirements, requirement_of
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
        "pkg @ git+ssh://git:word@x.example/p",
        "pkg @ ./p",
        "git+https://user:word@x.example/p",
        "pkg @ git+https://user@x.example/p",
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
        ("-e .", "an option"),
        ("numpy --hash=sha256:00", "is not a requirement"),
        ("./wheel.whl", "no such file or project is here"),
        ("numpy==${VERSION}", "not expanded"),
        ("num\u0440y", "printable ASCII"),
        ("pkg @ http://x.example/p.whl", "only https"),
        ("pkg @ git+ssh://git:word@x.example/p", "is named without a password"),
        ("pkg @ file:///srv/p.whl", "may lie on the machine that wrote the line"),
    ],
)
def test_the_refusal_says_why(line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_requirements(line, "r.txt")


@pytest.mark.parametrize(
    ("line", "name", "is_named"),
    [
        ("Pkg @ git+https://x.example/y/z.git@v1#subdirectory=a", "pkg", True),
        ("git+https://x.example/y/Some_Name.git@v1", "some-name", False),
        ("git+https://x.example/y/z.git#egg=other&subdirectory=a", "other", False),
        ("https://x.example/y/name/archive/main.zip", "name", False),
        ("git+https://x.example/y/z ; sys_platform == 'linux'", "z", False),
    ],
)
def test_an_address_has_a_name_or_suggests_one(line: str, name: str, is_named: bool) -> None:
    (found,) = parse_requirements(line, "r.txt")
    assert (found.name, found.is_named, found.text) == (name, is_named, line)


def test_a_refused_address_does_not_repeat_its_password() -> None:
    with pytest.raises(UsageError) as caught:
        parse_requirements("pkg @ http://me:word@x.example/p.whl", "r.txt")
    assert "word" not in caught.value.message


@given(st.text(max_size=60))
def test_never_a_traceback_and_never_another_line(text: str) -> None:
    try:
        found = parse_requirements(text, "r.txt")
    except UsageError:
        return
    for item in found:
        assert "\n" not in item.text
        requirement_of(item.text)


def test_a_local_part_holds_the_build_and_is_met_by_the_one_without() -> None:
    facts = Matrix()
    for variant, version in (("cu121", "2.4.1"), ("cu118", "2.4.1+cu118")):
        found = solve(parse_request({"torch": "2.4.1", "requirements": [f"torch==2.4.1+{variant}"]}), facts)
        assert isinstance(found, Stack)
        assert found.packages["torch"] == version


def test_a_constraint_binds_a_framework_and_asks_for_none() -> None:
    facts = Matrix()
    bounded = solve(parse_request({"torch": ">=2.0", "constraints": ["torch<2.4", "numpy<2"]}), facts)
    assert isinstance(bounded, Stack)
    assert bounded.frameworks == {"torch": "2.3.1"}
    assert bounded.packages["numpy"].startswith("1.")
    assert bounded.request.constraints == ("numpy<2", "torch<2.4")
    alone = solve(parse_request({"cuda": "12.4", "python": "3.11", "constraints": ["torch<2.4"]}), facts)
    assert isinstance(alone, Stack)
    assert "torch" not in alone.frameworks


def test_a_refusal_names_the_constraint() -> None:
    found = solve(parse_request({"torch": "2.4", "constraints": ["torch<2.4"]}), Matrix())
    assert not isinstance(found, Stack)
    assert "constraint torch<2.4" in found.conflict


@pytest.mark.parametrize(("line", "framework"), [("vllm==0.11.0", "torch"), ("peft", "torch"), ("xformers", "torch")])
def test_a_package_that_needs_a_framework_brings_it(line: str, framework: str) -> None:
    found = solve(parse_request({"requirements": [line]}), Matrix())
    assert isinstance(found, Stack)
    assert set(found.frameworks) == {framework}


def test_of_thousands_of_lines_a_refusal_names_those_in_conflict() -> None:
    lines = [f"package-{number}=={number}.0" for number in range(1000)]
    found = solve(parse_request({"torch": "2.4.1", "requirements": [*lines, "triton<1"]}), Matrix())
    assert not isinstance(found, Stack)
    assert "requirement triton<1" in found.conflict
    assert len(found.conflict) < 4


def test_a_refusal_beside_a_framework_that_a_package_brings_names_what_conflicts() -> None:
    found = solve(parse_request({"python": "3.14", "requirements": ["peft", "triton==0.0.1"]}), Matrix())
    assert not isinstance(found, Stack)
    assert "requirement triton==0.0.1" in found.conflict
    assert "names no framework" not in str(found)
