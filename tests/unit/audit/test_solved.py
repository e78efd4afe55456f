"""Commands as problems: what is solved together, for which Python, and when nothing is said."""

from __future__ import annotations

import pytest

from provision.audit.documents import parse_document
from provision.audit.engine import audit
from provision.audit.model import Finding, Options, Source
from provision.audit.presence import taken_of_all
from provision.audit.solved import asked_of
from provision.audit.surroundings import complete
from provision.matrix.load import Matrix

MATRIX = Matrix()
PY = "FROM python:3.11-slim-bookworm\n"
CLASH = "transformers==4.30.0 huggingface-hub==0.10.0"
INDEX = "--index-url https://download.pytorch.org/whl/cu121"


def find(text: str, name: str = "Dockerfile", python: str | None = None, **others: str) -> list[Finding]:
    sources = {name: Source(name, text), **{other: Source(other, words) for other, words in others.items()}}
    found = audit([sources[name]], sources.get, MATRIX, Options(python=python)).findings
    return [finding for finding in found if finding.rule in ("C17", "C18", "C19", "C20", "C21")]


def environment(text: str):
    return complete(parse_document(Source("Dockerfile", text), {}.get, Options()).environments[0], MATRIX, Options())


@pytest.mark.parametrize(
    "text",
    [
        f"{PY}RUN pip install {CLASH}",
        f"{PY}RUN uv pip install --system {CLASH}",
        f"{PY}RUN pip install {CLASH} a-package-of-our-own",
        f"{PY}RUN pip install --extra-index-url https://mirror.example/simple {CLASH}",
        f"{PY}RUN pip download nothing-else && pip install {CLASH}",
        f"FROM scratch\nRUN pip install {CLASH}",
    ],
)
def test_what_one_command_asks_for_is_solved(text):
    (finding,) = find(text)
    assert (finding.rule, finding.severity) == ("C17", "error")
    assert finding.reasons == ("transformers 4.30.0 needs huggingface-hub<1.0,>=0.14.1",)


@pytest.mark.parametrize(
    "text",
    [
        f"{PY}RUN pip install transformers==4.30.0\nRUN pip install huggingface-hub==0.10.0",
        f"{PY}RUN pip install --no-index --find-links /wheels {CLASH}",
        f"{PY}RUN pip download {CLASH}",
        f"{PY}RUN test -e x || pip install {CLASH}",
        f"{PY}RUN pip install transformers==4.30.0 'huggingface-hub==0.10.0; python_version < \"3.9\"'",
        f"{PY}RUN pip install transformers==4.30.0 'huggingface-hub @ https://mirror.example/huggingface_hub.zip'",
    ],
)
def test_what_may_be_met_is_left_alone(text):
    assert find(text) == []


def test_a_constraint_takes_part():
    (finding,) = find(
        f"{PY}COPY c.txt .\nRUN pip install -c c.txt transformers==4.30.0", **{"c.txt": "tokenizers==0.19.0"}
    )
    assert finding.message == "transformers==4.30.0 cannot be installed"
    assert "transformers 4.30.0 needs tokenizers" in finding.reasons[0]
    assert finding.reasons[1] == "a constraint asks tokenizers==0.19.0"


def test_a_python_that_is_not_known_is_any():
    assert find("numpy==2.3.1\n", "requirements.txt") == []
    assert [item.rule for item in find("numpy==2.3.1\n", "requirements.txt", python="3.10")] == ["C17"]


def test_pins_for_pythons_that_do_not_meet_are_refused():
    (finding,) = find("faiss-gpu==1.7.2\nnumpy==2.3.1\n", "requirements.txt")
    assert finding.message == "faiss-gpu==1.7.2 and numpy==2.3.1 cannot be installed together"
    assert finding.reasons == (
        "faiss-gpu==1.7.2 installs on Python 3.6 to 3.10",
        "numpy==2.3.1 installs on Python 3.11 to 3.15",
    )


def test_a_conflict_on_every_python_is_told_of_the_newest_that_each_is_for():
    (finding,) = find("openai-whisper==20231117\ntorch==2.4.1\n", "requirements.txt")
    assert finding.reasons == (
        "on Python 3.12: openai-whisper 20231117 needs triton<3,>=2.0.0",
        "on Python 3.12: torch 2.4.1 needs triton==3.0.0",
    )


def test_an_error_that_says_what_it_means_is_not_told_twice():
    text = "torch==2.4.1\ntorchvision==0.18.0\n"
    assert find(text, "requirements.txt", python="3.11") == []
    assert [item.rule for item in find("torch==2.1.2\n", "requirements.txt", python="3.14")] == []


def test_the_pythons_of_a_project_count():
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = "{}"\ndependencies = ["numpy==2.3.1"]\n'
    assert find(project.format(">=3.9"), "pyproject.toml") == []
    assert [item.rule for item in find(project.format("<3.11"), "pyproject.toml")] == ["C17"]


def test_a_withdrawn_release_of_another_index_is_a_withdrawn_release():
    assert [item.rule for item in find("huggingface-hub==0.26.4\n", "requirements.txt")] == ["C19"]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (f"{PY}RUN pip install torch==2.1.2 timm 'numpy<1.25'", ("1.24.4",)),
        (f"{PY}RUN pip install torch==2.1.2 {INDEX}\nRUN pip install 'numpy<1.25'\nRUN pip install timm", ("1.24.4",)),
        (f"{PY}RUN pip install 'numpy<1.25'\nRUN pip install numba==0.58.1 timm", ("1.24.4",)),
        (f"{PY}RUN pip install 'numpy<1.25'\nRUN pip install --upgrade numpy", ()),
        (f"{PY}RUN pip install 'numpy<1.25'\nRUN pip install 'numpy>=1.26'", ("2.4.6",)),
        (f"{PY}RUN pip install 'numpy<1.25' a-package-of-our-own", ()),
        (f"{PY}RUN pip install 'numpy<1.25' $MORE", ()),
        (f"{PY}RUN pip install 'numpy<1.25' {INDEX}", ()),
        ("FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime\nRUN pip install 'numpy<1.25'", ()),
        (f"{PY}RUN pip install flask", ()),
    ],
)
def test_what_is_there_at_the_end_is_told_only_where_it_is_sure(text, taken):
    versions, is_sure = taken_of_all(environment(text), MATRIX, Options(), "numpy")
    assert (versions if is_sure else ()) == taken


def test_nothing_is_read_for_files_that_ask_for_nothing_with_a_version():
    assert asked_of(environment(f"{PY}RUN pip install torch transformers"), MATRIX, Options()) == ()
