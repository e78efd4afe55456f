"""Conda environments, projects, locks and compose files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from provision.audit.documents import find_kind, parse_document
from provision.audit.engine import audit
from provision.audit.model import Environment, Options, Source
from provision.errors import UsageError
from provision.matrix.load import Matrix

MATRIX = Matrix()


def read(name: str, text: str, files: Mapping[str, str] | None = None) -> list[Environment]:
    known = files or {}
    return parse_document(
        Source(name, text), lambda path: Source(path, known[path]) if path in known else None, Options()
    ).environments


def asked(environment: Environment) -> list[str]:
    return [item.text for install in environment.installs for item in install.requirements]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("Dockerfile", "", "dockerfile"),
        ("docker/Dockerfile.gpu", "", "dockerfile"),
        ("gpu.dockerfile", "", "dockerfile"),
        ("Containerfile", "", "dockerfile"),
        ("image", "# x\nFROM a\n", "dockerfile"),
        ("requirements-gpu.txt", "", "requirements"),
        ("dev.txt", "", "requirements"),
        ("constraints.txt", "", "constraints"),
        ("environment.gpu.yml", "", "conda"),
        ("x.yaml", "dependencies:\n", "conda"),
        ("x.yaml", "services:\n", "compose"),
        ("docker-compose.override.yml", "", "compose"),
        ("pyproject.toml", "", "pyproject"),
        ("uv.lock", "", "lock"),
    ],
)
def test_the_kind_is_told_by_name_or_beginning(name: str, text: str, kind: str) -> None:
    assert find_kind(Source(name, text)) == kind


@pytest.mark.parametrize("name", ["x.py", "Dockerfile.dockerignore", "package.json", "notes", "x.yaml"])
def test_other_files_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a file that can be checked"):
        find_kind(Source(name, "hello\n"))


CONDA = """name: gpu
channels:
  - pytorch   # first
  - conda-forge
dependencies:
  - python=3.10
  - "pytorch=2.1.2=py3.10_cuda11.8*"
  - pip:
      - torchmetrics>=1  # note
      - -r more.txt
"""


def test_a_conda_environment_has_its_packages_and_its_pip_part() -> None:
    (found,) = read("environment.yml", CONDA, {"more.txt": "numpy<2\n"})
    conda, pip = found.installs
    assert found.python == conda.python == pip.python == "3.10"
    assert [(item.name, item.specifier, item.build) for item in conda.requirements] == [
        ("python", "==3.10.*", ""),
        ("pytorch", "==2.1.2", "py3.10_cuda11.8*"),
    ]
    assert [item.text for item in pip.requirements] == ["torchmetrics>=1", "numpy<2"]
    assert [item.url for item in conda.indexes] == ["pytorch", "conda-forge"]
    source = Source("environment.yml", CONDA)
    assert source.cut(conda.requirements[1].specifier_span) == "=2.1.2=py3.10_cuda11.8*"
    assert source.cut(pip.requirements[0].span) == "torchmetrics>=1"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("environment.yml", "a: [\n", "environment.yml:2:1: it is not YAML"),
        ("environment.yml", "- a\n", "environment.yml is not an environment of conda"),
        ("environment.yml", "dependencies:\n- pip:\n  - a = b\n", "environment.yml:3: "),
        ("compose.yaml", "x: 1\n", "compose.yaml is not a compose file"),
        ("pyproject.toml", "[project\n", "pyproject.toml:1:9: it is not TOML"),
        ("pyproject.toml", '[project]\ndependencies = [\n "a = b",\n]\n', "pyproject.toml:3:2: `a = b`"),
        ("uv.lock", "a = \n", "uv.lock:1:"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(name, text)
    assert caught.value.message.startswith(message)


def test_an_alias_that_holds_itself_ends() -> None:
    with pytest.raises(UsageError, match="not YAML"):
        read("environment.yml", "dependencies: &a\n- *a\n")


PYPROJECT = """[project]
name = "x"
requires-python = ">=3.11,<3.12"
dependencies = [
  "torch==2.1.2",  # note
  'numpy<2 ; python_version < "3.13"',
]
[project.optional-dependencies]
gpu = ["flash-attn"]
[dependency-groups]
dev = ["pytest", {include-group = "docs"}]
[[tool.uv.index]]
name = "cu118"
url = "https://mirror.example/whl/cu118"
explicit = true
[tool.uv.sources]
torch = [
  { index = "cu118", marker = "sys_platform != 'darwin'" },
  { index = "cpu", marker = "sys_platform == 'darwin'" },
]
"""


def test_a_project_has_an_environment_for_each_set_that_is_installed_together() -> None:
    found = {item.name: item for item in read("pyproject.toml", PYPROJECT)}
    assert list(found) == ["dependencies", "extra gpu", "group dev"]
    assert asked(found["extra gpu"]) == ["torch==2.1.2", 'numpy<2 ; python_version < "3.13"', "flash-attn"]
    assert found["dependencies"].python == "3.11"
    torch = found["dependencies"].installs[0].requirements[0]
    assert torch.index == "https://mirror.example/whl/cu118"
    assert torch.is_literal
    assert Source("pyproject.toml", PYPROJECT).cut(torch.specifier_span) == "==2.1.2"
    assert [(item.name, item.is_explicit) for item in found["dependencies"].installs[0].indexes] == [("cu118", True)]
    assert not found["group dev"].own_installs[0].is_complete


@pytest.mark.parametrize(
    ("version", "specifier"),
    [
        ("^2.1", ">=2.1,<3"),
        ("^0.3.1", ">=0.3.1,<0.4"),
        ("~2.1.2", ">=2.1.2,<2.2"),
        ("2.1.2", "==2.1.2"),
        ("*", ""),
        (">=2,<3", ">=2,<3"),
        ("2.1.*", "==2.1.*"),
    ],
)
def test_poetry_versions_become_clauses(version: str, specifier: str) -> None:
    (found,) = read("pyproject.toml", f'[tool.poetry.dependencies]\npython = "^3.10"\ntorch = "{version}"\n')
    assert [item.specifier for item in found.installs[0].requirements] == [specifier]


def test_a_poetry_requirement_is_bound_to_its_source() -> None:
    text = (
        '[[tool.poetry.source]]\nname = "t"\nurl = "https://mirror.example/t"\npriority = "explicit"\n'
        '[tool.poetry.dependencies]\ntorch = {version = "2.1.2", source = "t", extras = ["opt"]}\n'
    )
    (found,) = read("pyproject.toml", text)
    (torch,) = found.installs[0].requirements
    assert (torch.index, torch.extras, torch.version) == ("t", ("opt",), "2.1.2")
    assert Source("pyproject.toml", text).cut(torch.span) == '"2.1.2"'


def test_a_lock_has_exact_versions_with_their_lines() -> None:
    text = (
        'version = 1\nrequires-python = "==3.11.*"\n'
        '[[package]]\nname = "x"\nversion = "0"\nsource = { editable = "." }\n'
        '[[package]]\nname = "torch"\nversion = "2.1.2+cu118"\nsource = { registry = "https://mirror.example/cu118" }\n'
    )
    (found,) = read("uv.lock", text)
    (torch,) = found.installs[0].requirements
    assert (torch.name, torch.version, torch.index, torch.is_locked) == (
        "torch",
        "2.1.2+cu118",
        "https://mirror.example/cu118",
        True,
    )
    assert found.python == "3.11"
    assert Source("uv.lock", text).cut(torch.span) == 'version = "2.1.2+cu118"'


COMPOSE = """services:
  train:
    build:
      context: app
      dockerfile: Dockerfile.gpu
      target: run
      args: {V: "2.1.2"}
    platform: linux/arm64
    environment:
      - NVIDIA_VISIBLE_DEVICES=all
      - EMPTY
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 2
              capabilities: [gpu]
  db:
    image: "postgres:${PG:-16}"
    runtime: nvidia
    environment: {A: b}
"""


def test_a_compose_file_has_services_and_the_stages_they_build() -> None:
    files = {"app/Dockerfile.gpu": "FROM a AS run\nARG V\nRUN pip install torch==$V\nFROM b\n"}
    found = read("compose.yaml", COMPOSE, files)
    stage = next(item for item in found if item.kind == "stage" and item.is_target)
    assert (stage.name, stage.gpus, stage.platform) == ("run", "2", "linux/arm64")
    assert asked(stage) == ["torch==2.1.2"]
    services = {item.name: item for item in found if item.kind == "service"}
    assert not services["train"].own_base
    assert services["train"].variables["NVIDIA_VISIBLE_DEVICES"].value == "all"
    assert services["train"].variables["EMPTY"].value is None
    database = services["db"]
    assert database.base is not None
    assert (database.base.reference, database.base.is_literal, database.runtime) == ("postgres:16", False, "nvidia")
    assert Source("c", COMPOSE).cut(database.base.span) == "postgres:${PG:-16}"
    assert database.gpus is None


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [("gpus: all", "all"), ("gpus: [{count: 1, capabilities: [gpu]}]", "1"), ("runtime: runc", None)],
)
def test_every_way_to_reserve_gpus_is_known(lines: str, gpus: str | None) -> None:
    (found,) = read("compose.yaml", f"services:\n  a:\n    image: b\n    {lines}\n")
    assert found.gpus == gpus


def test_a_constraints_file_says_nothing_of_where_packages_come_from() -> None:
    (found,) = read("constraints.txt", "torch==2.1.2+cu118\n")
    assert not found.installs[0].is_complete


INLINE = """services:
  a:
    build:
      args:
        TORCH: ${TORCH:-2.1.0}
      dockerfile_inline: |
        # a comment
        FROM nvidia/cuda:${CUDA:-12.1.1}-devel-ubuntu22.04
        ARG TORCH=2.2.0
        RUN pip install \\
            torch==$${TORCH} einops==0.8.0

        RUN <<EOF
        pip install numpy==1.26.4
        EOF
"""


def test_a_dockerfile_inside_a_compose_file_is_read_in_its_place() -> None:
    source = Source("compose.yaml", INLINE)
    stage = next(item for item in read("compose.yaml", INLINE) if item.kind == "stage")
    assert stage.base is not None
    assert stage.base.reference == "nvidia/cuda:12.1.1-devel-ubuntu22.04"
    assert asked(stage) == ["torch==2.1.0", "einops==0.8.0", "numpy==1.26.4"]
    spans = [item.span for install in stage.installs for item in install.requirements]
    assert [source.cut(span) for span in spans[1:]] == ["einops==0.8.0", "numpy==1.26.4"]
    assert [source.position(span).line for span in (stage.base.span, *spans)] == [8, 11, 11, 14]


@pytest.mark.parametrize(
    "build",
    [
        "{dockerfile_inline: 'FROM a'}",
        "\n      dockerfile_inline: |\n        FROM a:${TAG}\n",
    ],
    ids=["one line", "a variable without a value"],
)
def test_an_inline_dockerfile_is_judged_only_where_its_text_is_known(build: str) -> None:
    kinds = [item.kind for item in read("compose.yaml", f"services:\n  a:\n    build: {build}\n")]
    assert kinds == (["stage", "service"] if build.startswith("{") else ["service"])


@pytest.mark.parametrize(
    "written",
    [
        '"FROM nvidia/cuda:${CUDA:-12.1.1}-devel-ubuntu22.04\\nRUN pip install torch==2.1.0 \\"einops==0.8.0\\"\\n"',
        '"FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\\nRUN pip \\\n        install torch==2.1.0\n        einops==0.8.0"',
        '"FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n\n        RUN\\x20pip\\tinstall torch==2.1.0 einops==0.8.0"',
        "'FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n\n        RUN pip install torch==2.1.0 ''einops==0.8.0'''",
        ">\n        FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n\n        RUN pip install torch==2.1.0\n"
        "        einops==0.8.0\n",
        ">-\n        FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n          RUN pip install torch==2.1.0 einops==0.8.0\n",
        "&made |\n        FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n        RUN pip install torch==2.1.0 \\\n"
        "            einops==0.8.0\n",
        "FROM nvidia/cuda:12.1.1-devel-ubuntu22.04\n\n        RUN pip install torch==2.1.0\n        einops==0.8.0",
    ],
    ids=["escapes", "a broken line", "codes", "single quotes", "folded", "folded and deeper", "anchored", "plain"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_an_inline_dockerfile_is_read_in_every_style_of_yaml(written: str, end: str) -> None:
    text = f"services:\n  a:\n    build:\n      dockerfile_inline: {written}\n".replace("\n", end)
    source = Source("compose.yaml", text)
    stage = next(item for item in read("compose.yaml", text) if item.kind == "stage")
    assert stage.base is not None
    base = source.cut(stage.base.span)
    assert base.startswith("nvidia/cuda:")
    assert base.endswith("-devel-ubuntu22.04")
    asked_for = [item for install in stage.installs for item in install.requirements]
    assert [source.cut(item.span) for item in asked_for] == ["torch==2.1.0", "einops==0.8.0"]


def test_lines_that_folding_joins_are_one_instruction() -> None:
    text = "services:\n  a:\n    build:\n      dockerfile_inline: >\n        FROM a\n        RUN b\n"
    with pytest.raises(UsageError, match=r"compose\.yaml:5:9: FROM takes"):
        read("compose.yaml", text)


@pytest.mark.parametrize(("target", "name"), [("${STAGE:-one}", "one"), ("${STAGE}", "two"), ("two", "two")])
def test_the_target_of_a_build_may_be_a_variable(target: str, name: str) -> None:
    files = {"Dockerfile": "FROM a AS one\nFROM b AS two\n"}
    text = f"services:\n  x:\n    build: {{context: ., target: '{target}'}}\n"
    stages = [item for item in read("compose.yaml", text, files) if item.kind == "stage"]
    assert [stage.name for stage in stages if stage.is_target] == [name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", 'version = 1\nrequires-python = ">=3.12"\n'),
        ("poetry.lock", '[metadata]\npython-versions = ">=3.12"\n'),
    ],
)
def test_a_lock_tells_the_pythons_that_it_is_for(name: str, text: str) -> None:
    (found,) = read(name, f'{text}\n[[package]]\nname = "a"\nversion = "1"\n')
    assert found.pythons == ">=3.12"


@pytest.mark.parametrize("version", ["2.${1.2", "2.*"])
def test_a_lock_entry_without_a_version_is_left_out(version: str) -> None:
    rows = [f'[[package]]\nname = "{name}"\nversion = "{text}"\n' for name, text in (("torch", version), ("a", "1"))]
    text = "\n".join(["version = 1\n", *rows])
    (found,) = read("uv.lock", text)
    assert asked(found) == ["a==1"]


def test_a_script_is_judged_with_the_files_that_its_installs_name() -> None:
    texts = {"gpu/install.sh": "pip install -r req/base.txt\n", "gpu/req/base.txt": "torch==2.1.0+cu118\n"}
    sources = {name: Source(name, text) for name, text in texts.items()}
    report = audit([sources["gpu/install.sh"]], sources.get, MATRIX, Options())
    assert [(item.rule, item.span.file) for item in report.findings if item.severity == "error"] == [
        ("C04", "gpu/req/base.txt")
    ]
