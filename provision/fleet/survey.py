"""Every panel of the dashboards, asked of one Prometheus at one time."""

from __future__ import annotations

from collections.abc import Callable

from provision.errors import MissingDependencyError
from provision.generate.fleet_page import Shown, Survey
from provision.generate.monitoring import DASHBOARDS, expand
from provision.matrix.load import Matrix
from provision.probe.prometheus import Prometheus

_POINTS = 120
# Prometheus takes no step below a millisecond, and nobody sees what is shorter than a scrape.
_STEP_LEAST = 15.0


def survey_fleet(
    server: Prometheus, matrix: Matrix, *, hours: float, tell: Callable[[int, int], None] | None = None
) -> Survey:
    """Ask for every panel; the server's clock says when now is.

    Args:
        server: Who is asked.
        matrix: The panels.
        hours: How far back lines reach.
        tell: Called with how many panels are there, and how many there will be.

    Raises:
        MissingDependencyError: The server does not answer, or has no time.
    """
    clock = server.ask("vector(time())")
    if not clock or not clock[0].points:
        raise MissingDependencyError(f"{server.address} tells no time", hints=("is it a Prometheus server?",))
    now = clock[0].points[0][1]
    step = max(_STEP_LEAST, hours * 3600 / _POINTS)
    panels = sorted(matrix.panels, key=lambda panel: (list(DASHBOARDS).index(panel.dashboard), panel.order))
    shown = []
    for number, panel in enumerate(panels, 1):
        expression = expand(panel.expression, matrix).replace("$cluster", ".*").replace("$node", ".*")
        if panel.kind == "timeseries":
            lines = server.ask_span(expression, start=now - hours * 3600, end=now, step=step)
        else:
            lines = server.ask(expression, at=now)
        warn = matrix.limit(panel.warn) if panel.warn is not None else None
        shown.append(Shown(panel=panel, lines=lines, warn=warn))
        if tell is not None:
            tell(number, len(panels))
    return Survey(address=server.address, asked=now, hours=hours, shown=tuple(shown))
