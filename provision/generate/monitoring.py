"""Facts to monitoring: rules for Prometheus, routes for Alertmanager, dashboards for Grafana.

All three are data that another program reads, so they are written by a YAML or JSON dumper, never by a template. Text
that Prometheus takes for a Go template stands only where a fact says so: in summaries. Remedies are quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from provision.errors import DataError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import Alert, Notifier, Panel

DASHBOARDS = {"fleet": "GPU fleet", "node": "GPU nodes", "job": "GPU jobs", "health": "GPU health"}
"""Id of a dashboard → its title, in the order in which people look at them."""

_RECORDING = "provision-recording"
_INTERVAL = "30s"
_LIMIT = re.compile(r"\blimit\(([a-z0-9._-]+)\)")
_XIDS = re.compile(r"\bxids\(([a-z]+)\)")
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?\[\]!$&'()*+,;=%-]+")
_HOST = re.compile(r"https?://(?:[^/?#]*@)?([^/?#:\[\]]+)")
_PATH = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._-]+)+")
_KEY = re.compile(r"[A-Za-z0-9_+-]{16,128}")
# Slack is told nothing but a title otherwise.
_FORMS: Mapping[str, Mapping[str, str]] = {
    "slack": {"text": "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ .Annotations.remedy }}\n{{ end }}"}
}
_HEADER = "# Written by `provision fleet` from facts of {dated}; edit compat/, not this file.\n"
# A dumper breaks no line of its own and indents no list.
_FOR_YAMLLINT = "# yamllint disable rule:line-length rule:indentation\n"
_NODE, _OF_CLUSTER = "{{ $labels.node }}", "{{ with $labels.cluster }}{{ . }}/{{ end }}"
_SCHEMA_VERSION = 39
_DATASOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's grid has 24 columns.
_SIZES = {"stat": (6, 4), "table": (12, 8), "timeseries": (12, 8)}
_GRID = 24


def alert_name(key: str) -> str:
    """Return the name that Prometheus knows an alert by: ``gpu-lost`` is ``GpuLost``."""
    return "".join(part.capitalize() for part in key.split("-"))


def expand(text: str, matrix: Matrix) -> str:
    """Put values in the place of ``limit(ID)`` and ``xids(SEVERITY)``.

    Raises:
        DataError: A limit is missing, or no Xid has that severity.
    """
    text = _LIMIT.sub(lambda match: f"{matrix.limit(match[1]):.15g}", text)
    return _XIDS.sub(lambda match: _codes(match[1], matrix), text)


def rule_groups(matrix: Matrix, runbooks: str | None = None) -> list[dict[str, Any]]:
    """Return the groups of a Prometheus rule file: computed series first, then the alerts by what they are about.

    Args:
        matrix: Rules, limits and remedies.
        runbooks: Address of the published page of runbooks, for ``runbook_url``; without it an alert names its page.

    Raises:
        UsageError: That is not an address.
    """
    if runbooks is not None and not _URL.fullmatch(runbooks):
        raise UsageError(
            f"--runbooks {runbooks[:80]!a} is not an address of a page",
            hints=("write it as in `--runbooks https://docs.example/provision/runbooks`",),
        )
    recordings = [{"record": row.name, "expr": expand(row.expression, matrix)} for row in matrix.recordings]
    groups: dict[str, list[dict[str, Any]]] = {}
    for alert in matrix.alerts.values():
        groups.setdefault(f"provision-{alert.group}", []).append(_rule(alert, matrix, runbooks))
    return [
        {"name": _RECORDING, "interval": _INTERVAL, "rules": recordings},
        *({"name": name, "rules": groups[name]} for name in sorted(groups)),
    ]


def render_rules(matrix: Matrix, runbooks: str | None = None) -> str:
    """Return the text of a Prometheus rule file; the same facts give the same bytes.

    Raises:
        DataError: A rule points to a limit, a check or a diagnosis that the facts do not have.
        UsageError: As of :func:`rule_groups`.
    """
    return _yaml({"groups": rule_groups(matrix, runbooks)}, matrix)


def render_counters(matrix: Matrix) -> str:
    """Return the list of fields for dcgm-exporter's ``--collectors``: what rules and dashboards ask for, no more.

    Source: dcgm-exporter's ``counter_config.go``. A line has three parts; an unknown field keeps it from starting.
    """
    lines = [f"{row.name}, {row.kind}, {row.title}\n" for row in matrix.counters]
    return _HEADER.format(dated=matrix.dated) + "".join(lines)


def remedies(alert: Alert, matrix: Matrix) -> tuple[str, ...]:
    """Return what to do about an alert, the likeliest first: the sentences of its checks and diagnoses, or its own.

    Raises:
        DataError: Its runbook names neither a check nor a diagnosis.
    """
    if alert.remedy is not None:
        return (alert.remedy,)
    found: list[str] = []
    for key in alert.runbook:
        check, diagnosis = matrix.checks.get(key), matrix.diagnoses.get(key)
        if check is None and diagnosis is None:
            raise DataError(
                f"alerts.toml: the alert `{alert.id}` names the runbook `{key}`",
                because=("neither a check nor a diagnosis has this id",),
                hints=("run `provision data check` for every fault of the data at once",),
            )
        found += diagnosis.fix if diagnosis is not None else (check.remedy,) if check is not None else ()
    return tuple(dict.fromkeys(found))


def receivers(matrix: Matrix) -> tuple[str, ...]:
    """Return the names of Alertmanager's receivers: one for each thing that may be done, and the rest."""
    actions = {alert.action for alert in matrix.alerts.values() if alert.action}
    return ("default", *sorted(actions), "watchdog")


def render_alertmanager(
    matrix: Matrix,
    webhooks: Mapping[str, str] | None = None,
    notifiers: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return the text of Alertmanager's configuration.

    Args:
        matrix: Which alerts there are, and which of them silence which.
        webhooks: Receiver (:func:`receivers`) → the address that its alerts are posted to in Alertmanager's own form. A
            receiver that is named nowhere tells nobody, and its alerts are seen in Alertmanager alone.
        notifiers: Id of a service (:attr:`Matrix.notifiers`) → receiver → its address or key, or the absolute path of
            the file on the monitor that holds it.

    Raises:
        UsageError: There is no such receiver; or an address or key is none, or is one of another service.
    """
    told: dict[str, dict[str, Any]] = {name: {"name": name} for name in receivers(matrix)}
    for name, address in (webhooks or {}).items():
        _check_receiver(name, told)
        _check_webhook(name, address, matrix)
        told[name]["webhook_configs"] = [{"url": address, "send_resolved": True}]
    for service, places in (notifiers or {}).items():
        for name, place in places.items():
            _check_receiver(name, told)
            told[name][matrix.notifiers[service].config] = [_notify(matrix.notifiers[service], name, place)]
    names = tuple(told)
    routes: list[dict[str, Any]] = [
        {"receiver": "watchdog", "matchers": ['severity="none"'], "repeat_interval": "5m"},
        *(
            {"receiver": name, "matchers": [f'action="{name}"'], "repeat_interval": "1d"}
            for name in names
            if name not in ("default", "watchdog")
        ),
    ]
    document = {
        "route": {
            "receiver": "default",
            "group_by": ["cluster", "node"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": routes,
        },
        "receivers": list(told.values()),
        "inhibit_rules": [
            {
                "source_matchers": [_any_of(row.sources)],
                "target_matchers": [_any_of(row.targets)],
                "equal": list(row.equal),
            }
            for row in matrix.inhibitions
        ],
    }
    return _yaml(document, matrix)


def _check_receiver(name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UsageError(f"`{name}` is not a receiver", hints=(f"receivers are {', '.join(known)}",))


def _check_webhook(name: str, address: str, matrix: Matrix) -> None:
    """Refuse what cannot be posted to; an address may hold a token, so that it is not repeated."""
    if not _URL.fullmatch(address):
        raise UsageError(
            f"the webhook of `{name}` is not an address that can be posted to",
            hints=(f"write `{name}=https://hooks.example/gpu`",),
        )
    host = _HOST.match(address)
    for service in matrix.notifiers.values():
        if host and any(f".{host[1].lower()}".endswith(f".{end}") for end in service.hosts):
            raise UsageError(
                f"the webhook of `{name}` is an address of {service.title}",
                because=(f"{service.title} refuses the form in which Alertmanager posts to a webhook",),
                hints=(f"write `--{service.id} {name}={'URL' if service.is_address else 'KEY'}`",),
            )


def _notify(service: Notifier, name: str, place: str) -> dict[str, Any]:
    """Return what a receiver says of a service; a place may be a secret, so that it is not repeated."""
    if place.startswith("/"):
        if not _PATH.fullmatch(place):
            raise UsageError(
                f"--{service.id} of `{name}` is not an absolute path", hints=("write a path without spaces or `..`",)
            )
        where = {f"{service.field}_file": place}
    elif not (_URL if service.is_address else _KEY).fullmatch(place):
        what = "an address" if service.is_address else "a key"
        raise UsageError(
            f"--{service.id} of `{name}` is not {what} of {service.title}",
            hints=(
                f"write `--{service.id} {name}={'https://hooks.example/gpu' if service.is_address else 'KEY'}`",
                f"or name a file on the monitor that holds it: `--{service.id} {name}=/etc/alertmanager/{service.id}`",
            ),
        )
    else:
        where = {service.field: place}
    return {**where, "send_resolved": True, **_FORMS.get(service.id, {})}


def render_dashboard(matrix: Matrix, name: str) -> str:
    """Return the JSON of one Grafana dashboard.

    Args:
        matrix: Its panels.
        name: A key of :data:`DASHBOARDS`.

    Raises:
        UsageError: No dashboard has that name.
    """
    if name not in DASHBOARDS:
        raise UsageError(f"`{name}` is not a dashboard", hints=(f"dashboards are {', '.join(DASHBOARDS)}",))
    panels = [panel for panel in matrix.panels if panel.dashboard == name]
    document = {
        "uid": f"provision-{name}",
        "title": DASHBOARDS[name],
        "description": f"From facts of {matrix.dated}",
        "tags": ["gpu", "provision"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": list(_variables(name))},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_panels(panels, matrix)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _rule(alert: Alert, matrix: Matrix, runbooks: str | None) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert_name(alert.id), "expr": expand(alert.expression, matrix)}
    if alert.pending_seconds is not None:
        rule["for"] = _duration(alert.pending_seconds)
    if alert.kept_seconds is not None:
        rule["keep_firing_for"] = _duration(alert.kept_seconds)
    rule["labels"] = {"severity": alert.severity} | ({"action": alert.action} if alert.action else {})
    rule["annotations"] = {
        # Where there is more than one cluster, a node's name alone does not say which is meant.
        "summary": expand(alert.summary.replace(_NODE, _OF_CLUSTER + _NODE, 1), matrix),
        "remedy": _quote(" ".join(remedies(alert, matrix))),
    }
    pages = [page for key in alert.runbook for page in _page(key, matrix)]
    if pages and runbooks is not None:
        rule["annotations"]["runbook_url"] = f"{runbooks}#{pages[0].partition('#')[2]}"
    elif pages:
        rule["annotations"]["runbook"] = pages[0]
    return rule


def _page(key: str, matrix: Matrix) -> Iterator[str]:
    row = matrix.diagnoses.get(key) or matrix.checks.get(key)
    if row is not None:
        yield row.runbook


def _quote(text: str) -> str:
    """Keep Prometheus from taking a remedy's braces for a template of its own."""
    return text.replace("{{", '{{ "{{" }}')


def _duration(seconds: int) -> str:
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _codes(severity: str, matrix: Matrix) -> str:
    codes = [str(code) for code, row in sorted(matrix.xids.items()) if row.severity == severity]
    if not codes:
        raise DataError(f"alerts.toml: no Xid has the severity `{severity}`")
    return "|".join(codes)


def _any_of(keys: Iterable[str]) -> str:
    return f'alertname=~"{"|".join(alert_name(key) for key in keys)}"'


def _yaml(document: dict[str, Any], matrix: Matrix) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, width=2**20, allow_unicode=True)
    return "---\n" + _HEADER.format(dated=matrix.dated) + _FOR_YAMLLINT + text


def _variables(name: str) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    if name != "fleet":
        for variable, label, query in (
            ("cluster", "Cluster", "label_values(node:gpu_visible:count, cluster)"),
            ("node", "Node", 'label_values(node:gpu_visible:count{cluster=~"$cluster"}, node)'),
        ):
            yield {
                "name": variable,
                "label": label,
                "type": "query",
                "datasource": _DATASOURCE,
                "definition": query,
                "query": {"query": query, "refId": f"{variable}s"},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }


def _panels(panels: Iterable[Panel], matrix: Matrix) -> Iterator[dict[str, Any]]:
    left = top = row_height = 0
    for number, panel in enumerate(panels, 1):
        width, height = _SIZES[panel.kind]
        if left + width > _GRID:
            left, top, row_height = 0, top + row_height, 0
        row_height = max(row_height, height)
        yield {
            "id": number,
            "type": panel.kind,
            "title": panel.title,
            "datasource": _DATASOURCE,
            "gridPos": {"x": left, "y": top, "w": width, "h": height},
            "fieldConfig": {"defaults": _field(panel, matrix), "overrides": []},
            "options": _options(panel),
            "targets": [_target(panel, matrix)],
        }
        left += width


def _field(panel: Panel, matrix: Matrix) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.warn is not None:
        steps.append({"color": "orange", "value": matrix.limit(panel.warn)})
    field: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        line = "line" if panel.warn is not None else "off"
        field["custom"] = {"thresholdsStyle": {"mode": line}}
    return field


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return {"showHeader": True}


def _target(panel: Panel, matrix: Matrix) -> dict[str, Any]:
    is_now = panel.kind != "timeseries"
    target: dict[str, Any] = {
        "refId": "A",
        "datasource": _DATASOURCE,
        "expr": expand(panel.expression, matrix),
        "instant": is_now,
        "range": not is_now,
    }
    if panel.legend is not None:
        target["legendFormat"] = panel.legend
    if panel.kind == "table":
        target["format"] = "table"
    return target
