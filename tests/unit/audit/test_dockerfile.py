from __future__ import annotations

from collections.abc import Mapping

import pytest

from provision.audit.dockerfile import Dockerfile, parse_dockerfile
from provision.audit.model import Environment, Source
from provision.errors import UsageError
from provision.matrix.query import split_reference


def parse(text: str, files: Mapping[str, str] | None = None, **settings: object) -> Dockerfile:
    def read(name: str) -> Source | None:
        return Source(name, files[name]) if files and name in files else None

    return parse_dockerfile(Source("Dockerfile", text), read, **settings)  # type: ignore[arg-type]


def last(text: str, files: Mapping[str, str] | None = None, **settings: object) -> Environment:
    return parse(text, files, **settings).stages[-1]


def asked(environment: Environment) -> list[str]:
    return [item.text for install in environment.installs for item in install.requirements]


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("FROM a:1\n", "a:1"),
        ("ARG V=1\nFROM a:${V}\n", "a:1"),
        ("ARG V=1\nARG W=${V}.2\nFROM a:$W\n", "a:1.2"),
        ("ARG V\nFROM a:${V:-3}\n", None),
        ("FROM a:${V:-3}\n", "a:3"),
        ("FROM --platform=linux/arm64 a:1 AS x\n", "a:1"),
        ("from a:1 as x\n", "a:1"),
        ("# syntax=x\n# escape=`\nFROM `\n  a:1\n", "a:1"),
        ("\ufeffFROM a:1\r\nRUN x\r\n", "a:1"),
        ("ARG V\nFROM a:$V\n", None),
    ],
)
def test_the_base_is_followed_through_arguments(text: str, reference: str | None) -> None:
    base = last(text).base
    assert base is not None
    assert base.reference == reference


def test_build_arguments_stand_before_defaults() -> None:
    text = "ARG V=1\nFROM a:$V\nARG P=x\nRUN pip install $P\n"
    found = last(text, build_args={"V": "2", "P": "torch"})
    assert found.base is not None
    assert found.base.tag == "2"
    assert asked(found) == ["torch"]


def test_an_argument_before_from_is_only_seen_where_it_is_named_again() -> None:
    assert asked(last("ARG P=torch\nFROM a\nRUN pip install $P\n")) == []
    assert asked(last("ARG P=torch\nFROM a\nARG P\nRUN pip install $P\n")) == ["torch"]


def test_env_stands_before_arg() -> None:
    assert asked(last("FROM a\nENV P=numpy\nARG P=torch\nRUN pip install $P\n")) == ["numpy"]
    assert asked(last("FROM a\nENV P=numpy\nARG P=torch\nENV Q=$P\nRUN pip install $Q\n")) == ["numpy"]


def test_a_stage_inherits_installs_variables_and_user() -> None:
    found = parse("FROM a AS x\nENV P=torch\nUSER 1\nRUN pip install one\nFROM x\nRUN pip install $P\n").stages[1]
    assert asked(found) == ["one", "torch"]
    assert [item.text for install in found.own_installs for item in install.requirements] == ["torch"]
    assert found.user is not None
    assert found.user.text == "1"
    assert not found.own_base


def test_another_stage_is_not_inherited_but_copied_from() -> None:
    found = last("FROM a AS x\nRUN pip install one\nFROM b\nCOPY --from=x /v /v\nCOPY --from=img:1 /w /w\n")
    assert asked(found) == []
    assert found.copies_from == ("0", "img:1")


def test_the_target_is_the_last_stage_or_the_named_one() -> None:
    text = "FROM a AS x\nFROM b AS y\n"
    assert [stage.is_target for stage in parse(text).stages] == [False, True]
    assert [stage.is_target for stage in parse(text, target="x").stages] == [True, False]
    with pytest.raises(UsageError, match="has no stage `z`"):
        parse(text, target="z")


@pytest.mark.parametrize(
    "run",
    [
        "RUN pip install torch\n",
        "RUN apt-get update && \\\n    # why\n\n    pip install torch\n",
        'RUN ["pip", "install", "torch"]\n',
        'RUN ["bash", "-c", "pip install \\"torch\\""]\n',
        "RUN --mount=type=cache,target=/root/.cache --network=none pip install torch\n",
        "RUN <<EOF\nset -e\npip install torch\nEOF\n",
        "RUN <<-'EOF'\n\tpip install torch\n\tEOF\n",
        "RUN bash <<EOF\npip install torch\nEOF\n",
        "RUN FOO=1 BAR=2 pip install torch\n",
        "RUN /opt/venv/bin/pip install torch\n",
        'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]\nRUN pip install torch\n',
        "RUN if true; then pip install torch; fi\n",
    ],
)
def test_an_install_is_found_in_every_form_of_run(run: str) -> None:
    text = f"FROM a\n{run}"
    found = last(text)
    assert asked(found) == ["torch"]
    assert Source("Dockerfile", text).cut(found.installs[0].requirements[0].span) == "torch"


@pytest.mark.parametrize(
    "run",
    [
        "ONBUILD RUN pip install torch\n",
        "RUN echo pip install torch\n",
        "RUN cat <<EOF > notes\npip install torch\nEOF\n",
        "RUN python3 <<EOF\npip install torch\nEOF\n",
        "# RUN pip install torch\n",
        "CMD pip install torch\n",
        'SHELL ["powershell", "-Command"]\nRUN pip install torch\n',
    ],
)
def test_what_only_looks_like_an_install_is_none(run: str) -> None:
    assert last(f"FROM a\n{run}").installs == ()


@pytest.mark.parametrize(
    "text",
    [
        "COPY requirements.txt .\nRUN pip install -r requirements.txt\n",
        "WORKDIR /app\nCOPY . .\nRUN pip install -r requirements.txt\n",
        "COPY requirements.txt /tmp/r.txt\nRUN pip install -r /tmp/r.txt\n",
        "COPY req*.txt /tmp/\nRUN pip install -r /tmp/requirements.txt\n",
        'ADD --chown=1:1 ["requirements.txt", "/x/"]\nRUN cd /x && pip install -r requirements.txt\n',
        "RUN --mount=type=bind,source=requirements.txt,target=/r.txt pip install -r /r.txt\n",
        "COPY . /src\nWORKDIR /src\nRUN pip install -rrequirements.txt\n",
    ],
)
def test_a_requirements_file_is_found_through_what_brought_it(text: str) -> None:
    parsed = parse(f"FROM a\n{text}", {"requirements.txt": "torch==2.1\n"})
    (install,) = parsed.stages[0].installs
    assert [item.text for item in install.requirements] == ["torch==2.1"]
    assert install.requirements[0].span.file == "requirements.txt"
    assert install.is_complete
    assert parsed.reads == ("requirements.txt",)


def test_a_file_copied_between_stages_is_found() -> None:
    text = (
        "FROM a AS x\nCOPY requirements.txt /r/\nFROM b\nCOPY --from=x /r /s\nRUN pip install -r /s/requirements.txt\n"
    )
    assert asked(last(text, {"requirements.txt": "torch\n"})) == ["torch"]


def test_a_heredoc_can_be_the_requirements_file() -> None:
    text = "FROM a\nCOPY <<EOF /r.txt\ntorch==2.1\nEOF\nRUN pip install -r /r.txt\n"
    (install,) = last(text).installs
    assert Source("Dockerfile", text).cut(install.requirements[0].span) == "torch==2.1"


@pytest.mark.parametrize(
    "text", ["RUN pip install -r /nowhere.txt\n", "COPY --from=img /r.txt /\nRUN pip install -r /r.txt\n"]
)
def test_a_file_that_is_not_found_leaves_the_install_incomplete(text: str) -> None:
    (install,) = last(f"FROM a\n{text}", {"r.txt": "torch\n"}).installs
    assert not install.is_complete
    assert install.requirements == ()


def test_nothing_outside_the_build_context_is_read() -> None:
    seen: list[str] = []

    def read(name: str) -> Source | None:
        seen.append(name)
        return None

    text = "FROM a\nCOPY ../../etc/x.txt /r.txt\nRUN pip install -r /r.txt\n"
    parse_dockerfile(Source("d/Dockerfile", text), read)
    assert seen == []


def test_variables_and_configuration_name_indexes_too() -> None:
    text = (
        "FROM a\nENV PIP_EXTRA_INDEX_URL=https://one\nRUN pip config set global.index-url https://two\n"
        "COPY pip.conf /etc/pip.conf\nRUN pip install torch\n"
    )
    (install,) = last(text).installs
    assert [(item.kind, item.url) for item in install.indexes] == [
        ("extra", "https://one"),
        ("index", "https://two"),
        ("extra", None),
    ]
    assert not install.has_default_index


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("RUN x\n", "Dockerfile:1:1: RUN stands before the first FROM"),
        ("FROM a\nFOO b\n", "Dockerfile:2:1: `FOO` is not an instruction"),
        ("FROM a\nRUN <<EOF\nx\n", "Dockerfile:2:1: the heredoc `EOF` has no end"),
        ("", "Dockerfile has no FROM"),
        ("FROM a b\n", "Dockerfile:1:1: FROM takes"),
        ("FROM a\nONBUILD FROM b\n", "Dockerfile:2:1: ONBUILD does not go with FROM"),
    ],
)
def test_what_is_no_dockerfile_is_refused_with_its_line(text: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.message.startswith(where)


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("a", ("a", "", "")),
        ("docker.io/library/a:1", ("docker.io/library/a", "1", "")),
        ("localhost:5000/a", ("localhost:5000/a", "", "")),
        ("r.example:5000/a:1@sha256:00", ("r.example:5000/a", "1", "sha256:00")),
    ],
)
def test_a_reference_is_split(reference: str, parts: tuple[str, str, str]) -> None:
    assert split_reference(reference) == parts


def test_spans_of_variables_are_their_values() -> None:
    text = 'FROM a\nENV A=b \\\n    C="d e" F\\\nG=h\nENV OLD some words\n'
    source = Source("Dockerfile", text)
    found = {item.name: source.cut(item.span) for item in last(text).own_variables}
    assert found["A"] == "b"
    assert found["C"] == "d e"
    assert found["OLD"] == "some words"
