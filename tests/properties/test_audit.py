"""Dockerfiles and requirements made of anything: never a crash, and every span is the text it claims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PackagingRequirement
from packaging.utils import canonicalize_name

from provision.audit.dockerfile import Dockerfile, parse_dockerfile, split_instructions
from provision.audit.model import Command, Environment, Requirement, Source, Span
from provision.audit.places import read_yaml
from provision.audit.requirement import parse_conda, parse_requirement
from provision.audit.requirements_file import read_listing
from provision.audit.shell import Text, content_of
from provision.errors import UsageError

_PIECES = st.sampled_from(
    [
        *"\\\n\t \"'`$(){}[]<>;&|#=,:@!*?~-",
        "\\\n",
        "\r\n",
        "\n# note\n",
        "<<EOF\n",
        "<<-'END'\n",
        "\nEOF\n",
        "\nEND\n",
        "FROM ",
        "FROM a AS b\n",
        "ARG X=1\n",
        'ENV A=b C="d e"\n',
        "RUN ",
        "\nRUN ",
        "COPY ",
        "COPY --from=b x /y\n",
        "USER 1\n",
        'SHELL ["/bin/bash", "-c"]\n',
        "ONBUILD ",
        'CMD ["a", "b\\u00e9"]\n',
        "# escape=`\n",
        "--mount=type=bind,source=.,target=/x ",
        "pip install ",
        "python3.11 -m pip install -U ",
        "uv pip install --system ",
        "conda install -y -c x ",
        "torch==2.1.2+cu118 ",
        "'torch >= 2, <3' ",
        '"jax[cuda12]" ',
        "-r requirements.txt ",
        "--index-url https://x/y ",
        'sh -c "pip install torch" ',
        "${X}",
        "$X",
        "${X:-1}",
        "$(cat f)",
        "`cat f`",
        " && ",
        " || ",
        "if true; then ",
        "; fi",
        "for a in b; do ",
        "; done",
        "case a in b) ",
        ";; esac",
        "é",
        "界",
        "\ufeff",
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=3), max_size=40).map("".join)
_BODIES = _TEXTS.map(lambda text: f"FROM ubuntu\nRUN {text}")
_LINES = st.text(alphabet="torch[]()<>=!~,;. 0123456789+cu*\"'@#-_\\\n", max_size=40)


def _parse(text: str) -> tuple[Source, Dockerfile] | None:
    source = Source("Dockerfile", text)

    def read(name: str) -> Source | None:
        return Source(name, "torch==2.1.2\n-i https://x\n") if name == "requirements.txt" else None

    try:
        return source, parse_dockerfile(source, read)
    except UsageError:
        return None


def _commands(commands: tuple[Command, ...]) -> Iterator[Command]:
    for command in commands:
        yield command
        yield from _commands(command.substitutes)


def _spans(environment: Environment) -> Iterator[Span]:
    yield environment.span
    for command in _commands((*environment.commands, *environment.start)):
        yield command.span
        yield command.instruction_span
        for word in command.words:
            yield word.span
        for variable in command.assignments:
            yield from (variable.span, variable.name_span)
    for variable in environment.own_variables:
        yield from (variable.span, variable.name_span)
    for install in environment.installs:
        yield install.span
        if install.flags_at is not None:
            yield install.flags_at
        for index in install.indexes:
            yield index.span
        for requirement in install.requirements:
            yield from (requirement.span, requirement.name_span, requirement.specifier_span)


@settings(max_examples=400)
@given(_TEXTS | _BODIES)
def test_a_dockerfile_of_anything_is_read_or_refused_and_spans_lie_inside_the_file(text: str) -> None:
    parsed = _parse(text)
    if parsed is None:
        return
    source, dockerfile = parsed
    for environment in dockerfile.stages:
        for span in _spans(environment):
            if span.file == source.file:
                assert 0 <= span.start <= span.end <= len(text)
                place = source.position(span)
                assert place.line >= 1
                assert place.column >= 1


@settings(max_examples=400)
@given(_TEXTS | _BODIES)
def test_a_literal_word_stands_in_the_file_as_it_is(text: str) -> None:
    parsed = _parse(text)
    if parsed is None:
        return
    source, dockerfile = parsed
    for environment in dockerfile.stages:
        for command in _commands((*environment.commands, *environment.start)):
            for word in command.words:
                if word.is_literal and word.text is not None:
                    assert word.text in source.cut(word.span)
        for install in environment.installs:
            for requirement in install.requirements:
                if requirement.is_literal and requirement.span.file == source.file:
                    _assert_is_its_text(source, requirement)


def _assert_is_its_text(source: Source, requirement: Requirement) -> None:
    written = source.cut(requirement.span)
    assert written.strip() == requirement.text
    assert canonicalize_name(written[: len(requirement.name)]) == requirement.name or requirement.ecosystem == "conda"
    if requirement.specifier and requirement.ecosystem == "pypi":
        cut = source.cut(requirement.specifier_span)
        assert "".join(cut.split()).strip("()") == requirement.specifier


@settings(max_examples=300)
@given(_TEXTS)
def test_instructions_cover_the_file_in_order(text: str) -> None:
    source = Source("Dockerfile", text)
    try:
        instructions, comments, _ = split_instructions(source)
    except UsageError:
        return
    last = 0
    for item in instructions:
        assert last <= item.start <= item.end <= len(text)
        assert source.cut(item.span).upper() == item.keyword
        last = item.end
    assert all(text[offset] == "#" for offset in comments)


@settings(max_examples=500)
@given(_LINES)
def test_a_requirement_reads_as_packaging_reads_it(text: str) -> None:
    found = parse_requirement(Text.of(text, 0, len(text)), "requirements.txt")
    try:
        expected = PackagingRequirement(text)
    except InvalidRequirement:
        return
    if expected.url is not None or "===" in text:
        return
    assert found is not None, text
    assert found.name == canonicalize_name(expected.name)
    assert set(found.extras) == {canonicalize_name(extra) for extra in expected.extras}
    assert {clause.strip() for clause in found.specifier.split(",") if clause} == {
        f"{item.operator}{item.version}" for item in expected.specifier
    }


@settings(max_examples=300)
@given(_LINES)
def test_a_requirements_file_of_anything_is_read_or_refused(text: str) -> None:
    source = Source("requirements.txt", text)
    try:
        listing = read_listing(content_of(source), source, lambda _: None)
    except UsageError as error:
        assert error.message.startswith("requirements.txt:")
        return
    for requirement in listing.requirements:
        if requirement.is_literal:
            assert source.cut(requirement.span).strip() == requirement.text


@settings(max_examples=300)
@given(st.text(alphabet="pytorch:=<>!,|* 0123456789.cuda[]/_", max_size=30))
def test_a_conda_specification_of_anything_is_read_or_refused(text: str) -> None:
    found = parse_conda(Text.of(text, 0, len(text)), "environment.yml")
    if found is not None and found.specifier:
        PackagingRequirement(f"x{found.specifier}")


@settings(max_examples=400)
@given(
    st.text(st.sampled_from("ab#:'\"\\\t\n  é\u2028\x07"), min_size=1, max_size=60),
    st.sampled_from(["'", '"', ">", "|", None]),
    st.integers(min_value=5, max_value=40),
)
def test_a_text_of_yaml_is_found_where_it_stands(value: str, style: str | None, width: int) -> None:
    written = yaml.safe_dump({"a": {"b": value}}, default_style=style, width=width, allow_unicode=True)
    placed = read_yaml(Source("c.yaml", written))
    assert placed.data == {"a": {"b": value}}
    found = placed.text("a", "b")
    assert found.text == value
    assert found.at == sorted(found.at)
    if found.at[0] < 0:
        # Only the rarer ends of lines, in a block that keeps its lines.
        assert style == "|"
        assert "\u2028" in value
        return
    for char, at in zip(found.text, found.at, strict=True):
        # Blanks may come from folding; what is escaped begins with the sign that escapes.
        assert char.isspace() or written[at] in (char, "\\")


@pytest.mark.parametrize("size", [10, 2000])
def test_deep_nesting_is_no_crash(size: int) -> None:
    for opening in ("$(", "(", "{ ", "`", '"$(', "if ", "case a in "):
        _parse(f"FROM a\nRUN {opening * size}\n")
