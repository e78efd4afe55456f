"""Browse known builds, toolkits, drivers, GPUs and images.

Each flag narrows the table to the rows that can still be part of an answer. A row that the facts neither exclude nor
confirm is kept and marked. --json prints the rows with their sources.

--html writes an interactive page to a file: it answers every question about one framework like `provision resolve`,
shows which versions exclude each other, and needs no network and no server.

Examples:
  provision matrix --torch 2.8
  provision matrix --framework gpu
  provision matrix --framework driver --cuda 12.8
  provision matrix --html matrix.html
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from provision import __version__
from provision.cli.facts import describe_sources, fact_document
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_value, parse_path
from provision.cli.request import FLAG_HELP, read_matrix, read_request
from provision.cli.text.screen import align
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import CudaRelease, DriverBranch, Gpu
from provision.matrix.query import driver_release, drives, find_gpus
from provision.records import record
from provision.resolve.options import Option, offer
from provision.resolve.request import FRAMEWORKS, PLATFORMS, Request, is_askable_os, matches
from provision.resolve.rules import Wish, driver_floor, reject_option, reject_wish
from provision.versions import branch_of, parse

_FILTERS: dict[str, tuple[str, ...]] = {
    **{name: (name, "cuda", "python", "os", "platform", "gpu", "driver") for name in FRAMEWORKS},
    "cuda": ("cuda", "gpu", "driver"),
    "driver": ("driver", "cuda", "gpu"),
    "gpu": ("gpu", "cuda", "driver"),
    "image": ("cuda", "python", "os", "platform"),
}
"""Table → the flags that say something about its rows."""


@record
class _Row:
    """One line of a table, and the same as plain data."""

    cells: tuple[str, ...]
    document: dict[str, Any]


@record
class _Table:
    header: tuple[str, ...]
    rows: tuple[_Row, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_choice(
        parser,
        "--framework",
        tuple(_FILTERS),
        help="table to show (default: all frameworks, or those whose version is given)",
    )
    add_value(parser, "--html", "FILE", "write an interactive HTML page", parse_path)
    group = parser.add_argument_group("filters")
    for name in (*FRAMEWORKS, "cuda", "python", "os", "driver"):
        metavar, text = FLAG_HELP[name]
        add_value(group, f"--{name}", metavar, text)
    add_value(group, "--gpu", "NAME", "GPU the row must support; may be repeated", action="append")
    add_value(group, "--platform", "PLATFORM", " or ".join(PLATFORMS))


def run(options: argparse.Namespace, output: Output) -> int:
    """Print one table."""
    names = (*FRAMEWORKS, "cuda", "python", "os", "driver", "gpu", "platform")
    values = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    asked = [name for name in FRAMEWORKS if name in values]
    if options.html is not None:
        return _write_page(options, values, output)
    kinds = [options.framework] if options.framework else asked or list(FRAMEWORKS)
    for name in values:
        silent = [kind for kind in kinds if name not in _FILTERS[kind] and name not in asked]
        wrong = [kind for kind in kinds if options.framework and name not in _FILTERS[kind]]
        for kind in silent or wrong:
            raise UsageError(
                f"--{name} has no effect on the table `{kind}`",
                hints=(f"its rows are narrowed by {', '.join(f'--{item}' for item in _FILTERS[kind])}",),
            )
    matrix = read_matrix(options)
    request = read_request(values, can_be_empty=True)
    if kinds[0] in FRAMEWORKS:
        table = _frameworks(matrix, request, kinds, output)
    else:
        table = _TABLES[kinds[0]](matrix, request)
    output.note(f"facts of {matrix.dated}")
    if not table.rows:
        output.note("no row is left")
    rows = [table.header, *(row.cells for row in table.rows)] if table.rows else []
    text = "\n".join(align(rows, columns=output.terminal_columns()))
    output.give({"facts_date": matrix.dated, "rows": [row.document for row in table.rows]}, text)
    return 0


def _write_page(options: argparse.Namespace, values: Mapping[str, Any], output: Output) -> int:
    if values or options.framework or output.target is not None:
        raise UsageError(
            "--html takes neither a table, rows to keep nor -o",
            because=("the page holds every table, and a question is asked in it",),
            hints=("leave the other flags out; what the page is asked goes into its address",),
        )
    if str(options.html) == "-":
        raise UsageError("--html takes the name of a file", hints=("write `--html matrix.html`",))
    if options.html.is_dir():
        raise UsageError(f"{options.html} is a folder", hints=("name a file in it: `--html DIR/matrix.html`",))
    matrix = read_matrix(options)
    output.note(f"facts of {matrix.dated}")
    result: dict[str, Any] = {"facts_date": matrix.dated, "file": str(options.html)}
    page = ""
    if not output.is_dry_run:
        from provision.cli.text.bar import Bar
        from provision.generate.page import render_page

        output.note("solving every build on every Python and system; this takes a while")
        with Bar(output) as report:
            page = render_page(matrix, __version__, report)
        result["bytes"] = len(page.encode())
    output.save(options.html, page)
    output.give(result, str(options.html))
    return 0


def _frameworks(matrix: Matrix, request: Request, kinds: Sequence[str], output: Output) -> _Table:
    os_row = matrix.os_release(request.os)
    if request.os is not None and os_row is None:
        raise UsageError(
            f"--os `{request.os}` is not in the facts",
            hints=(f"known are {', '.join(row.id for row in matrix.os_releases if is_askable_os(row.id))}",),
        )
    wish = Wish(
        request=request,
        platform=request.platform or PLATFORMS[0],
        gpus=tuple((name, find_gpus(matrix, name)) for name in request.gpus),
        os=os_row,
        flavor="runtime",
        driver=driver_release(matrix, request.driver) if request.driver is not None else None,
    )
    header = ("framework", "version", "build", "CUDA", "driver", "Python", "GPU code", "")
    rejections = list(reject_wish(matrix, wish))
    for rejection in rejections:
        output.note(rejection.because)
    if any(rejection.is_proved for rejection in rejections):
        return _Table(header=header, rows=())
    rows = []
    for kind in kinds:
        for option in offer(matrix, kind, request, wish.platform):
            open_question = _open_question(matrix, wish, option)
            if open_question is not None:
                rows.append(_framework_row(matrix, option, open_question))
    return _Table(header=header, rows=tuple(rows))


def _open_question(matrix: Matrix, wish: Wish, option: Option) -> str | None:
    """Return what is open about an option, empty where nothing is; ``None`` when the facts exclude it."""
    rejection = reject_option(matrix, wish, option)
    if rejection is not None:
        return None if rejection.is_proved else rejection.because
    wanted = wish.request.python
    if wanted is None or any(_is_python(wanted, have) for have in option.pythons):
        return ""
    return None if option.is_pythons_complete else f"may have wheels for Python {wanted}"


def _is_python(wanted: str, have: str) -> bool:
    if wanted.endswith("t") or have.endswith("t"):
        return wanted == have
    return matches(wanted, have)


def _framework_row(matrix: Matrix, option: Option, open_question: str) -> _Row:
    floor = driver_floor(matrix, option)
    code = (*(option.sm or ()), *option.ptx)
    cells = (
        option.framework,
        option.version,
        option.variant,
        option.cuda or f"{option.cuda_major}.*",
        f"≥ {floor[0]}" if floor else "unknown",
        _range(option.pythons),
        _range(code) if code else "unknown",
        open_question,
    )
    document = {
        "id": option.fact.id,
        "framework": option.framework,
        "version": option.version,
        "variant": option.variant,
        "cuda": option.cuda or None,
        "cuda_major": option.cuda_major,
        "driver_minimum": floor[0] if floor else None,
        "pythons": list(option.pythons),
        "sm": list(option.sm) if option.sm is not None else None,
        "ptx": list(option.ptx),
        "cudnn": option.cudnn,
        "nccl": option.nccl,
        "released": option.released or None,
        "open": open_question or None,
        "status": option.fact.status,
        "where": option.fact.where,
        "sources": describe_sources(matrix, option.fact.source),
    }
    return _Row(cells=cells, document=document)


def _range(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{items[0]} … {items[-1]}" if items else ""


def _toolkits(matrix: Matrix, request: Request) -> list[CudaRelease]:
    return [row for row in matrix.cuda if matches(request.cuda, row.version)]


def _cuda(matrix: Matrix, request: Request) -> _Table:
    gpus = [gpu for name in request.gpus for gpu in find_gpus(matrix, name)[:1]]
    rows = [
        _Row(
            cells=(
                row.version,
                row.released or "",
                f"≥ {row.minimum_driver}",
                row.bundled_driver or "",
                _range([f"sm_{number}" for number in row.sm or ()]),
                str(row.gcc_max or ""),
            ),
            document=fact_document(matrix, f"cuda/{row.version}", row),
        )
        for row in _toolkits(matrix, request)
        if all(_spans(gpu, row.version) for gpu in gpus)
        and (request.driver is None or parse(driver_release(matrix, request.driver)) >= parse(row.minimum_driver))
    ]
    return _Table(header=("CUDA", "released", "driver", "released with", "GPU code", "gcc up to"), rows=tuple(rows))


def _spans(gpu: Gpu, cuda: str) -> bool:
    """Tell whether a toolkit compiles for a GPU, as far as the facts say."""
    minor = parse(cuda).release[:2]
    starts = gpu.first_cuda is None or parse(gpu.first_cuda).release[:2] <= minor
    return starts and (gpu.last_cuda is None or minor <= parse(gpu.last_cuda).release[:2])


def _drivers(matrix: Matrix, request: Request) -> _Table:
    gpus = [gpu for name in request.gpus for gpu in find_gpus(matrix, name)[:1]]
    toolkits = _toolkits(matrix, request) if request.cuda else []
    rows = [
        _Row(
            cells=(
                str(row.branch),
                row.kind or "",
                row.last_release or "",
                row.end_of_life or "",
                row.max_cuda or "",
                row.open_modules,
                ", ".join(row.architectures),
            ),
            document=fact_document(matrix, f"driver/{row.branch}", row),
        )
        for row in matrix.driver_branches
        if (request.driver is None or branch_of(request.driver) == row.branch)
        and all(drives(matrix, row, gpu) for gpu in gpus)
        and (request.cuda is None or any(_runs(row, toolkit) for toolkit in toolkits))
    ]
    header = ("branch", "kind", "newest", "end of life", "CUDA up to", "open modules", "architectures")
    return _Table(header=header, rows=tuple(rows))


def _runs(branch: DriverBranch, toolkit: CudaRelease) -> bool:
    if parse(toolkit.version).release[0] in branch.cuda_majors:
        return True
    return branch.max_cuda is not None and parse(branch.max_cuda).release[:2] >= parse(toolkit.version).release[:2]


def _gpus(matrix: Matrix, request: Request) -> _Table:
    named = {gpu.id for name in request.gpus for gpu in find_gpus(matrix, name)}
    toolkits = _toolkits(matrix, request) if request.cuda else []
    branch = next(
        (row for row in matrix.driver_branches if request.driver and row.branch == branch_of(request.driver)), None
    )
    rows = [
        _Row(
            cells=(
                gpu.name,
                gpu.architecture,
                f"sm_{gpu.compute_capability.replace('.', '')}",
                f"{gpu.memory_gb:g} GB" if gpu.memory_gb else "",
                f"{gpu.first_cuda or '?'} … {gpu.last_cuda or ''}".rstrip(),
                f"{gpu.first_driver_branch or '?'} … {gpu.last_driver_branch or ''}".rstrip(),
            ),
            document=fact_document(matrix, f"gpu/{gpu.id}", gpu),
        )
        for gpu in matrix.gpus
        if (not request.gpus or gpu.id in named)
        and (request.cuda is None or any(_spans(gpu, row.version) for row in toolkits))
        and (request.driver is None or (branch is not None and drives(matrix, branch, gpu)))
    ]
    return _Table(header=("GPU", "architecture", "code", "memory", "CUDA", "driver branch"), rows=tuple(rows))


def _images(matrix: Matrix, request: Request) -> _Table:
    return _Table(
        header=("tag", "CUDA", "Python", "system", "flavour", "cuDNN", "platforms", "lifecycle"),
        rows=tuple(_image_rows(matrix, request)),
    )


def _image_rows(matrix: Matrix, request: Request) -> Iterator[_Row]:
    def fits(os: str, platforms: tuple[str, ...]) -> bool:
        return request.os in (None, os) and (request.platform is None or request.platform in platforms)

    for image in matrix.python_images if request.cuda is None else ():
        if (request.python is None or _is_python(request.python, image.python)) and fits(image.os, image.platforms):
            cells = (image.tag, "", image.python, image.os, image.flavour, "", " ".join(image.platforms), "")
            yield _Row(cells=cells, document=fact_document(matrix, f"image/{image.tag}", image))
    for tag in matrix.cuda_images if request.python is None else ():
        if matches(request.cuda, tag.cuda) and fits(tag.os, tag.platforms):
            cudnn = (tag.cudnn or "some") if tag.has_cudnn else ""
            platforms = " ".join(tag.platforms)
            cells = (tag.tag, tag.cuda, "", tag.os, tag.flavour, cudnn, platforms, tag.lifecycle)
            yield _Row(cells=cells, document=fact_document(matrix, f"image/{tag.tag}", tag))


_TABLES: dict[str, Callable[[Matrix, Request], _Table]] = {
    "cuda": _cuda,
    "driver": _drivers,
    "gpu": _gpus,
    "image": _images,
}
