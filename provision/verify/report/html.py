"""One HTML page that needs nothing from anywhere: no script, no font, no picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.probe.clean import clean
from provision.verify.engine import way_on

__all__ = ["write_html"]

_TEMPLATE = Path(__file__).with_name("report.html.j2")


def write_html(document: Mapping[str, Any], *, title: str = "GPU verification") -> str:
    """Return the page for what :func:`provision.verify.report.document.write_document` made; all text is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(report=_cleaned(document), title=title, way_on=way_on)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, (list, tuple)) else value
