"""Files that commands change between the COPY and the install."""

from __future__ import annotations

import pytest

from provision.audit.dockerfile import parse_dockerfile
from provision.audit.model import Source

FILES = {"requirements.txt": "torch==2.1.2\n"}


def asked(run: str) -> tuple[list[str], bool]:
    """Return what the last install of a Dockerfile asks for, and whether that is all."""
    text = f"FROM a\nCOPY requirements.txt .\nRUN {run}\n"

    def read(name: str) -> Source | None:
        return Source(name, FILES[name]) if name in FILES else None

    install = parse_dockerfile(Source("Dockerfile", text), read).stages[-1].installs[-1]
    return [item.text for item in install.requirements], install.is_complete


INSTALL = "pip install -r requirements.txt"


@pytest.mark.parametrize(
    "before",
    [
        "sed -i '/torch/d' requirements.txt",
        "sed -i '/torch/d' /requirements.txt",
        "mv requirements.txt old.txt",
        "echo '--index-url https://mirror.example/simple' >> requirements.txt",
        "echo numpy > requirements.txt",
        "pip freeze > requirements.txt",
        "cat > requirements.txt",
        "if x; then sed -i s/a/b/ requirements.txt; fi",
        "cd / && python fix.py requirements.txt",
        "cat <<EOF > requirements.txt\ntorch==$V\nEOF\ntrue",
        "cat <<EOF >> requirements.txt\nnumpy\nEOF\ntrue",
    ],
)
def test_what_a_changed_file_holds_is_not_known(before: str) -> None:
    joined = f"<<END\n{before}\n{INSTALL}\nEND" if "<<EOF" in before else f"{before} && {INSTALL}"
    assert asked(joined) == ([], False)
    assert asked(f"{joined.replace(INSTALL, 'true')}\nRUN {INSTALL}") == ([], False)


@pytest.mark.parametrize(
    "before",
    [
        "cat requirements.txt",
        "test -f requirements.txt",
        "sed -i s/a/b/ /etc/apt/sources.list",
        "sed -i s/a/b/ sub/requirements.txt",
        "cd /tmp && sed -i s/a/b/ requirements.txt && cd /",
        "pip install -r requirements.txt",
        "echo done > log",
    ],
)
def test_a_file_that_nothing_changes_is_read(before: str) -> None:
    assert asked(f"{before} && {INSTALL}") == (["torch==2.1.2"], True)


@pytest.mark.parametrize("delimiter", ["EOF", "'EOF'", '"EOF"'])
def test_a_file_that_cat_writes_is_read(delimiter: str) -> None:
    document = f"cat <<{delimiter} > made.txt\ntorch==2.2.0\nnumpy\nEOF\n"
    assert asked(f"{document}RUN pip install -r made.txt") == (["torch==2.2.0", "numpy"], True)
    assert asked(f"<<END\n{document}pip install -r /made.txt\nEND") == (["torch==2.2.0", "numpy"], True)
