"""Development containers: images, Dockerfiles and commands, in JSON with comments."""

from __future__ import annotations

import pytest

from provision.audit.engine import Report, audit
from provision.audit.model import Options, Source
from provision.errors import UsageError
from provision.matrix.load import Matrix

MATRIX = Matrix()
NAME = ".devcontainer/devcontainer.json"
IMAGE = """// a comment with "quotes" and a brace {
{
\t"image": "python:3.11-slim-bookworm", /* https://example.com */
\t"postCreateCommand": "pip install \\"torch==2.4.1\\" torchvision==0.18.1",
}
"""
DOCKERFILE = "FROM python:3.11-slim-bookworm\nCOPY requirements.txt /\nRUN pip install -r /requirements.txt\n"
BUILD = '{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"A": "${localEnv:A}"}}}'


def check(text: str, files: dict[str, str] | None = None) -> Report:
    read = {name: Source(name, content) for name, content in (files or {}).items()}
    return audit([Source(NAME, text)], read.get, MATRIX, Options())


def found(report: Report) -> list[tuple[str, str]]:
    """Return the rules of the errors and the words that they point at."""
    return [
        (item.rule, report.sources[item.span.file].cut(item.span))
        for item in report.findings
        if item.severity == "error"
    ]


def test_a_command_on_an_image_is_judged_where_it_is_written() -> None:
    assert found(check(IMAGE)) == [("C03", "torchvision==0.18.1")]


def test_commands_by_name_run_too() -> None:
    command = "pip install torch==2.4.1 torchvision==0.18.1"
    text = f'{{"image": "python:3.11", "onCreateCommand": {{"a": "true", "b": "{command}"}}}}'
    assert found(check(text)) == [("C03", "torchvision==0.18.1")]


@pytest.mark.parametrize(("features", "rules"), [("", ["B09"]), ('"features": {"python": {}},', [])])
def test_a_feature_may_install_a_python(features: str, rules: list[str]) -> None:
    image = "nvidia/cuda:12.4.1-devel-ubuntu22.04"
    text = f'{{{features} "image": "{image}", "postCreateCommand": "pip install einops"}}'
    assert [rule for rule, _ in found(check(text))] == rules


def test_the_dockerfile_is_built_in_the_context_that_is_named() -> None:
    files = {
        ".devcontainer/Dockerfile": DOCKERFILE,
        "requirements.txt": "torch==2.4.1\ntorchvision==0.18.1\n",
    }
    report = check(BUILD, files)
    assert found(report) == [("C03", "torchvision==0.18.1")]
    assert report.documents[0].reads == (".devcontainer/Dockerfile",)


@pytest.mark.parametrize("text", [BUILD, '{"dockerComposeFile": "compose.yaml", "service": "app"}', "{}"])
def test_what_is_not_here_is_not_judged(text: str) -> None:
    assert check(text).environments == ()


@pytest.mark.parametrize("text", ["[]", '{"image": ', "// nothing"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"devcontainer\.json"):
        check(text)


def test_a_bracket_in_a_comment_ends_nothing() -> None:
    text = IMAGE.replace("\n}", '\n\t// "forwardPorts": [],\n\t"name": "x",\n}')
    assert found(check(text)) == [("C03", "torchvision==0.18.1")]
