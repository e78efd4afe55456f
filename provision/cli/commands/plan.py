"""Choose machines for a job: what fits, how fast it runs, what it costs.

Every machine in the catalogue is compared with the job: memory, precision of its GPUs, a software stack that supports
them, and a published price. The machines that fit are ranked by cost, time and risk of interruption. No cloud is
contacted: prices come from the facts and carry their date. A machine without a published price is never treated as
free.

A deadline or budget that no machine meets ends with exit code 3 and names the nearest one that does. If only an
unpublished price or speed is missing, the exit code is 4.

Examples:
  provision plan --task finetune --model llama-3.1-8b --method lora --tokens 1e8
  provision plan --task pretrain --params 8b --tokens 1e12 --deadline 720 --providers aws,gcp
  provision plan --task inference --model llama-3.1-70b --qps 5 --hours 730 --precision fp8 --tpot-ms 50
  provision plan --task finetune --model llama-3.1-8b --hours 10 --spot --apply site
"""

from __future__ import annotations

import argparse
import datetime
import math

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_switch, add_value, parse_path
from provision.cli.plan.job import STACK_FLAGS, add_job_flags, list_words, read_job, read_terms
from provision.cli.request import read_matrix
from provision.cli.text.paragraph import columns_of
from provision.cli.text.plan import duration, money, plan_document, show_plan, stale_prices
from provision.errors import IncompatibleError, ProvisionError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.planner.catalogue import list_offers
from provision.planner.job import Job
from provision.planner.plan import Plan, Row, make_plan
from provision.planner.speed import Speeds
from provision.resolve.request import Request, parse_request
from provision.resolve.stack import Refusal, Stack

_TOP = 12
_CHARTS = ("terminal",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job_flags(parser)
    group = parser.add_argument_group("output")
    add_value(group, "--top", "N", f"number of rows to show (default: {_TOP})", whole("--top", example="8"))
    add_value(group, "--chart", "FILE", "draw a chart: FILE.svg, FILE.html or `terminal`", parse_path)
    add_value(
        group,
        "--apply",
        "DIR",
        "write the lock, an inventory and files for SkyPilot, dstack and Terraform for the first choice",
        parse_path,
    )
    add_switch(group, "--list-models", "list the known models and exit")


def run(options: argparse.Namespace, output: Output) -> int:
    """Make a plan."""
    matrix = read_matrix(options)
    if options.list_models:
        return _list_models(matrix, output)
    _check_chart(options)
    job = read_job(options, matrix)
    terms = read_terms(options, matrix)
    offers = list_offers(
        matrix,
        providers=list_words(options.providers),
        regions=list_words(options.region),
        gpus=options.gpu or (),
    )
    if not offers:
        raise _refuse_empty(options)
    stacks = _Stacks(options, job, matrix)
    plan = make_plan(job, offers, terms, matrix, speeds=Speeds(matrix), no_stack=stacks.no_stack)
    if plan.winner is None:
        raise _refuse(plan, job, len(offers))
    top = options.top or _TOP
    _warn_of_age(plan, matrix, output)
    if options.chart is not None and str(options.chart) not in _CHARTS:
        _write_chart(plan, job, options, output, top)
    if options.apply is not None:
        from provision.cli.plan.apply import apply_row

        apply_row(plan, stacks.stack_of(plan.winner.offer.gpu), options.apply, output)
    output.note(f"facts of {matrix.dated}")
    text = show_plan(plan, job, output, top=top)
    if str(options.chart) in _CHARTS:
        from provision.planner.chart import terminal_text

        text = f"{terminal_text(plan, columns=columns_of(output))}\n\n{text}"
    output.give(plan_document(plan, job, top=top), text)
    return 0


class _Stacks:
    """Software stacks by GPU, each solved once."""

    def __init__(self, options: argparse.Namespace, job: Job, matrix: Matrix) -> None:
        from provision.cli.request import read_request

        values = {name: getattr(options, name) for name in STACK_FLAGS if getattr(options, name) is not None}
        if not any(name in values for name in ("torch", "tensorflow", "jax")) and job.name:
            # A model runs on a framework; which version is the resolver's choice.
            values["torch"] = ">0"
        elif not values:
            values["cuda"] = ">0"
        self._request: Request = read_request(values)
        self._matrix = matrix
        self._found: dict[str, Stack | Refusal] = {}

    def _solve(self, gpu: Gpu) -> Stack | Refusal:
        from provision.records import replace
        from provision.resolve.solve import solve

        if gpu.id not in self._found:
            platform = "linux/arm64" if gpu.host == "arm64" else None
            wanted = parse_request({"gpu": [gpu.id], "platform": platform})
            request = replace(self._request, gpus=wanted.gpus, platform=wanted.platform)
            self._found[gpu.id] = solve(request, self._matrix)
        return self._found[gpu.id]

    def no_stack(self, gpu: Gpu) -> str | None:
        """Return why no stack serves a GPU; ``None`` when one does."""
        found = self._solve(gpu)
        if isinstance(found, Stack):
            return None
        return found.because[0].because if found.because else found.message

    def stack_of(self, gpu: Gpu) -> Stack:
        """Return the stack of a GPU that has one."""
        found = self._solve(gpu)
        assert isinstance(found, Stack)  # noqa: S101 - rows exist only where one was found
        return found


def _refuse_empty(options: argparse.Namespace) -> UnknownError:
    """Return that no machine of the catalogue is of these GPUs, providers and regions, which proves nothing."""
    asked = [
        f"--{flag} {','.join(words)}"
        for flag, words in (
            ("gpu", list_words(options.gpu)),
            ("providers", list_words(options.providers)),
            ("region", list_words(options.region)),
        )
        if words
    ]
    return UnknownError(
        f"the catalogue has no machine for `{' '.join(asked)}`",
        because=("it holds a few regions of each provider, not all there are",),
        hints=("leave one of these flags out",),
    )


def _refuse(plan: Plan, job: Job, offers: int) -> ProvisionError:
    """Return why there is no row: a limit that nothing keeps, or nothing that fits at all."""
    if plan.missed:
        cheapest = plan.missed[0]
        fastest = min(plan.missed, key=lambda row: (row.hours[2], row.cost.usd))
        limits = []
        if job.deadline_hours is not None:
            limits.append(f"within {duration(job.deadline_hours)}")
        if job.budget_usd is not None:
            limits.append(f"for {money(job.budget_usd)} USD")
        return IncompatibleError(
            f"nothing does it {' and '.join(limits)}",
            because=(f"the cheapest is {_brief(cheapest)}", f"the fastest is {_brief(fastest)}"),
            hints=_hints(job, cheapest, fastest),
            details={"cheapest": _limits_of(cheapest), "fastest": _limits_of(fastest)},
        )
    counts: dict[str, int] = {}
    for item in plan.rejected:
        said = f"{item.kind}: {item.why}"
        counts[said] = counts.get(said, 0) + 1
    often = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:4]
    # What nobody states is no proof that it cannot be done.
    is_proved = not any(item.kind in ("price", "speed") for item in plan.rejected)
    kind = IncompatibleError if is_proved else UnknownError
    return kind(
        f"none of {offers} machines does it" if is_proved else f"of {offers} machines none is known to do it",
        because=[f"{why} ({count} of them)" for why, count in often],
        hints=("fewer conditions, more providers, `--spot` or `--max-nodes` widen the choice",),
        details={"rejected": len(plan.rejected)},
    )


def _brief(row: Row) -> str:
    cost = f"{money(row.cost.usd)} USD in {duration(row.hours[1])} (at worst {duration(row.hours[2])})"
    return f"{cost}: {row.nodes} × {row.offer.name} {row.purchase}"


def _limits_of(row: Row) -> dict[str, object]:
    from provision.cli.text.plan import row_document

    return row_document(row)


def _hints(job: Job, cheapest: Row, fastest: Row) -> tuple[str, ...]:
    hints = []
    if job.budget_usd is not None and cheapest.cost.usd > job.budget_usd:
        hints.append(f"`--budget {_ceil(cheapest.cost.usd):.2f}` is enough for the cheapest")
    if job.deadline_hours is not None and fastest.hours[2] > job.deadline_hours:
        hints.append(f"`--deadline {_ceil(fastest.hours[2]):.2f}` is enough for the fastest")
    return tuple(hints) or ("either the deadline or the budget alone can be kept",)


def _ceil(value: float) -> float:
    """Return the next hundredth above a value, so that a limit of it is kept."""
    return math.ceil(value * 100) / 100


def _warn_of_age(plan: Plan, matrix: Matrix, output: Output) -> None:
    """Warn of old prices among the rows that are shown first; the clock decides, so it goes to the standard error."""
    days = next((row.value for row in matrix.rows("planning.toml", "limit") if row.id == "price_age_days"), None)
    if days is None or plan.winner is None:
        return
    today = datetime.datetime.now(tz=datetime.UTC).date()
    old = stale_prices((plan.winner, *plan.fallbacks), today, days)
    if old:
        said = ", ".join(sorted({f"{price.as_of} ({price.source[0]})" for price in old}))
        output.warn(f"prices older than a year are among these: {said}; ask for them before you rely on them")


def _check_chart(options: argparse.Namespace) -> None:
    chart = options.chart
    if chart is not None and str(chart) not in _CHARTS and chart.suffix not in (".svg", ".html"):
        raise UsageError(f"--chart: {chart} is neither SVG nor HTML", hints=("name FILE.svg, FILE.html or `terminal`",))


def _write_chart(plan: Plan, job: Job, options: argparse.Namespace, output: Output, top: int) -> None:
    from provision.cli.text.plan import COLUMNS
    from provision.planner.chart import html_text, svg_text

    heading = f"{job.task} of {job.name}" if job.name else job.task
    if options.chart.suffix == ".svg":
        output.save(options.chart, svg_text(plan))
    else:
        output.save(options.chart, html_text(plan, heading, COLUMNS, top))


def _list_models(matrix: Matrix, output: Output) -> int:
    from provision.cli.text.screen import align

    rows = matrix.rows("models.toml", "model")
    table = [
        (
            row.id,
            f"{row.parameters / 1e9:.3g}b",
            f"{row.active_parameters / 1e9:.3g}b",
            str(row.layers),
            str(row.hidden),
            ", ".join(row.aliases),
        )
        for row in rows
    ]
    heading = ("model", "parameters", "active", "layers", "width", "also called")
    lines = align([heading, *table], columns=output.terminal_columns())
    output.give({"models": [{"id": row.id, "parameters": row.parameters} for row in rows]}, "\n".join(lines))
    return 0
