"""provision.generate.engine: jinja2's bytes without jinja2, and values that stay values."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.assets import asset_dir
from provision.errors import ProvisionError, UsageError
from provision.generate import engine, image

if TYPE_CHECKING:
    from pathlib import Path


def test_compiled_templates_give_jinja2s_bytes(golden_case, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def render(template: str, values: dict) -> str:
        seen.append((template, values))
        return ""

    monkeypatch.setattr(image, "render", render)
    image.render_image(golden_case.stack, golden_case.options)
    for template, values in seen:
        expected = engine.make_environment().get_template(template).render(values)
        monkeypatch.setattr(engine, "make_environment", None)
        assert engine.render(template, values) == expected
        monkeypatch.undo()
    assert seen


def test_every_template_is_compiled_as_it_stands() -> None:
    for path in asset_dir("images").glob("*.j2"):
        module = __import__(f"provision.generate.compiled.{engine.module_name(path.name)}", fromlist=["SOURCE_DIGEST"])
        digest = engine.source_digest(path.read_text(encoding="utf-8"))
        assert digest == module.SOURCE_DIGEST, "run tools/compile_templates.py"


def test_rendering_does_not_import_jinja2() -> None:
    code = (
        "import sys; from provision.generate import engine; import provision.generate.compiled.dockerfile; "
        "import provision.generate.image; sys.exit('jinja2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of images/ that may be edited."""
    folder = tmp_path / "images"
    shutil.copytree(asset_dir("images"), folder)
    monkeypatch.setattr(engine, "asset_dir", lambda _: folder)
    return folder


def test_an_edited_template_takes_effect_at_once(templates: Path) -> None:
    (templates / "Dockerfile.j2").write_text("{{ word | sh }}\n{{ word | dq }}\n", encoding="utf-8")
    assert engine.render("Dockerfile.j2", {"word": "a $b"}) == "'a $b'\n\"a \\$b\"\n"


@pytest.mark.parametrize(
    "text", ["{{ absent }}", "{% if absent %}x{% endif %}", "{{ none }}", "{{ flag }}", "{{ many }}"]
)
def test_a_template_cannot_print_what_is_no_text(templates: Path, text: str) -> None:
    (templates / "Dockerfile.j2").write_text(text, encoding="utf-8")
    with pytest.raises(ProvisionError):
        engine.render("Dockerfile.j2", {"none": None, "flag": True, "many": ["a"]})


def test_a_name_without_a_value_is_refused_by_the_compiled_template() -> None:
    with pytest.raises(ProvisionError, match="has no value"):
        engine.render("Dockerfile.j2", {})


@pytest.mark.parametrize("text", ["a\nRUN x", "a\rb", "a\x00", "a\x1b[0m", "a\u2028b", "a\u202eb"])
def test_no_value_starts_a_line(text: str) -> None:
    for function in (engine.finalize, engine.quote_shell, engine.quote_dockerfile):
        with pytest.raises(UsageError, match="control character"):
            function(text)


@given(st.text().filter(str.isprintable))
def test_quoted_words_stay_one_word(text: str) -> None:
    assert shlex.split(engine.quote_shell(text)) == [text]
    quoted = engine.quote_dockerfile(text)
    assert quoted[0] == quoted[-1] == '"'
    inner = quoted[1:-1]
    assert inner.replace("\\\\", "").replace('\\"', "").replace("\\$", "").count('"') == 0
    assert "$" not in inner.replace("\\\\", "").replace("\\$", "")
