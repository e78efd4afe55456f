"""One HTML page that needs nothing from anywhere: no script, no font, no picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.errors import first_of
from provision.probe.clean import clean
from provision.verify.engine import way_on

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_WHOLE_MAX = 32
"""So many targets are shown with every answer. A browser is slow with some 10,000 rows."""
_FULL_MAX = 8
_KINDS_MAX = 200
_GROUPS_MAX = 200
_NAMES_MAX = 200
_VALUES_MAX = 20
_SAID_MAX = 4


def write_html(document: Mapping[str, Any], *, title: str = "GPU verification") -> str:
    """Return the page for what :func:`provision.verify.report.document.write_document` made; all text is escaped.

    Of more than 32 targets it shows those that failed first, those alike together, and one of each kind in full.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    targets = document["targets"]
    is_whole = len(targets) <= _WHOLE_MAX
    kinds = [] if is_whole else _sort_kinds(targets)
    shown = targets if is_whole else [rows[0] for rows in kinds[:_FULL_MAX]]
    if not is_whole and kinds and not kinds[0][0]["ok"] and kinds[-1][0]["ok"] and kinds[-1][0] not in shown:
        # What passed looks like this: one of them, whatever failed.
        shown = [*shown, kinds[-1][0]]
    return template.render(
        report=_cleaned({**document, "targets": ()}),
        title=title,
        way_on=way_on,
        is_whole=is_whole,
        shown=_cleaned(shown),
        kinds=_cleaned([_describe(rows) for rows in kinds[:_KINDS_MAX]]),
        more_kinds=sum(map(len, kinds[_KINDS_MAX:])),
        groups_max=_GROUPS_MAX,
        names_max=_NAMES_MAX,
        values_max=_VALUES_MAX,
    )


def _sort_kinds(targets: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return targets of which the same checks failed or have no answer together, those that failed first."""
    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for target in targets:
        kinds.setdefault((target["ok"], *_troubles(target)), []).append(target)
    return sorted(kinds.values(), key=lambda rows: (rows[0]["ok"], -len(rows)))


def _troubles(target: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((row["status"], row["id"]) for row in target["checks"] if row["status"] in ("fail", "unknown"))


def _describe(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    troubles = [f"{status} {check}" for status, check in _troubles(rows[0])]
    said = first_of(troubles, _SAID_MAX)
    return {"ok": rows[0]["ok"], "targets": [row["target"] for row in rows], "said": said or "nothing to tell"}


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, (list, tuple)) else value
