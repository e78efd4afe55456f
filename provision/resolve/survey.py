"""What the solver says of every candidate, axis by axis: the tables of a page that answers like the solver.

The space of questions (versions × CUDA × GPUs × drivers × Pythons × systems) is far too large to be listed, but the
solver's rules look at one axis each, and an environment depends on the build, its Python, the system's glibc and at
most the CUDA that was asked for. So each rule is asked once for every candidate and every value of its axis, each
environment is closed once, and whoever holds the tables finds an answer by looking cells up, in the solver's order.
What a rule says of GPUs it says of a class of them; the name stands in its words as :data:`GPU`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu, OsRelease
from provision.matrix.query import cuda_releases, find_first_branch, find_gpus, newest_release, secure_minimums
from provision.records import record, replace
from provision.resolve.assemble import Solution, assemble
from provision.resolve.bases import Base, choose_base
from provision.resolve.environment import MACHINES, glibc_floors
from provision.resolve.explain import (
    ALTERNATIVES_MAX,
    GROUPS_SHOWN,
    PAIR_TRIALS_MAX,
    PAIR_VALUES_MAX,
    PARTS,
    PLURAL,
    SUBJECTS_SHOWN,
    TRIALS_MAX,
    changes_of,
)
from provision.resolve.fit import Bound, open_bounds
from provision.resolve.options import Option, demands_of, fact_of, index_of, offer
from provision.resolve.request import FRAMEWORKS, PLATFORMS, Request, is_askable_os
from provision.resolve.rules import (
    OPTION_RULES,
    Rejection,
    Wish,
    driver_floor,
    excluded_pair,
    insecure_driver,
    reject_wish,
    taken,
)
from provision.resolve.solve import open_ends, order_pythons, reject_python, reject_version, try_python
from provision.resolve.stack import FactRef, Reason, Stack
from provision.versions import parse

__all__ = ["ANY", "CANDIDATE", "DRIVER", "GPU", "PYTHON", "SYSTEM", "Report", "survey"]

Report = Callable[[str, int, int], None]
"""Takes what is worked at, how many are done, and how many there are."""

ANY = ">=0"
"""The wish that every version meets: how a question asks for a framework and leaves its version open."""

GPU, DRIVER, PYTHON, CANDIDATE, SYSTEM = "\x01", "\x02", "\x03", "\x04", "\x05"
"""What stands in a sentence for the name that a question gives; no fact and no name can hold such a character."""

OWN_FACT, GPU_FACT = -1, -2
"""In a list of facts: the candidate's own, and that of the question's GPU."""

_KINDS = (*FRAMEWORKS, "cuda")


class _Table:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


@record
class _GpuClass:
    """GPUs of which every rule says the same; ``row`` is one of them, nameless."""

    row: Gpu
    platform: str


def survey(matrix: Matrix, report: Report | None = None) -> dict[str, Any]:
    """Return the tables as plain data, in one fixed order.

    Args:
        matrix: The facts.
        report: Told after each build how many are solved; solving all of them takes seconds.
    """
    return _Survey(matrix, report).take()


class _Survey:
    def __init__(self, matrix: Matrix, report: Report | None = None) -> None:
        self.matrix = matrix
        self.report = report
        self.solved = 0
        self.texts = _Table()
        self.facts = _Table()
        self.rejections = _Table()
        self.cells = _Table()
        self.cells.add(())
        self.rows = _Table()
        self.packages = _Table()
        self.environments = _Table()
        self.stands = _Table()
        self.needs = _Table()
        # What the grammar of a request cannot spell nobody can ask.
        asked = (row for row in matrix.os_releases if is_askable_os(row.id))
        self.systems: tuple[OsRelease | None, ...] = (None, *asked)
        self.cudas = self._cudas()
        self.pythons = self._pythons()
        self.gpus, self.classes = self._gpus()
        self.bases: dict[Any, Base | Rejection] = {}
        self.base_rows: dict[Any, int] = {}
        self.steps = {kind: _glibc_steps(matrix, kind) for kind in _KINDS}
        self.kept: dict[tuple[Any, ...], Any] = {}

    def take(self) -> dict[str, Any]:
        matrix = self.matrix
        candidates = {platform: self._candidates(platform) for platform in PLATFORMS}
        wishes = {kind: self._wishes(kind) for kind in _KINDS}
        lines = [self._line(class_) for class_ in self.classes]
        return {
            "dated": matrix.dated,
            "any": ANY,
            "limits": {
                "alternatives": ALTERNATIVES_MAX,
                "groups": GROUPS_SHOWN,
                "subjects": SUBJECTS_SHOWN,
                "trials": TRIALS_MAX,
                "pairs": PAIR_TRIALS_MAX,
                "near": PAIR_VALUES_MAX,
            },
            "parts": [part for part in PARTS if part in _PAGE_PARTS],
            "plural": dict(PLURAL),
            "platforms": list(PLATFORMS),
            "cudas": list(self.cudas),
            "pythons": [[text, self._end_of_life(text)] for text in self.pythons],
            "systems": [[row.id, row.name, self._fact(fact_of("os", row.id, row))] for row in self.systems if row],
            "gpus": self.gpus,
            "classes": lines,
            "wishes": wishes,
            "candidates": {platform: rows for platform, (rows, _) in candidates.items()},
            "offers": {platform: offers for platform, (_, offers) in candidates.items()},
            "complete": [
                [row.version, self._fact(fact_of("torch", row.version, row))]
                for row in matrix.torch_releases
                if row.is_variants_complete
            ],
            "near": self._near(),
            "drivers": self._drivers(),
            "branches": self._branches(),
            "security": self._security(),
            "rejections": self.rejections.values,
            "cells": self.cells.values,
            "rows": self.rows.values,
            "environments": self.environments.values,
            "stands": self.stands.values,
            "needs": self.needs.values,
            "packages": self.packages.values,
            "texts": self.texts.values,
            **self._fact_tables(),
        }

    # The axes

    def _cudas(self) -> tuple[str, ...]:
        minors = {".".join(row.version.split(".")[:2]) for row in self.matrix.cuda}
        minors |= {row.cuda for row in self.matrix.torch_builds}
        minors |= {".".join(row.cuda.split(".")[:2]) for row in self.matrix.tensorflow}
        return tuple(sorted(minors, key=parse, reverse=True))

    def _pythons(self) -> tuple[str, ...]:
        known = {row.version for row in self.matrix.pythons}
        for rows in (self.matrix.torch_builds, self.matrix.tensorflow, self.matrix.jax):
            known |= {python for row in rows for python in row.pythons}
        return tuple(sorted(known, key=lambda text: (parse(text.rstrip("t")), not text.endswith("t")), reverse=True))

    def _end_of_life(self, python: str) -> str | None:
        return next((row.end_of_life for row in self.matrix.pythons if row.version == python.rstrip("t")), None)

    def _gpus(self) -> tuple[list[list[Any]], list[_GpuClass]]:
        """Return every GPU (name, flag, architecture, capability, memory, class, fact) and the classes."""
        classes: dict[Any, int] = {}
        rows: list[_GpuClass] = []
        gpus = []
        for gpu in self.matrix.gpus:
            known = find_first_branch(matrix=self.matrix, gpu=gpu)
            traits = (
                parse(gpu.compute_capability),
                (known[0], known[2], known[1].id if known[1] is not gpu else "") if known else None,
                gpu.first_cuda,
                gpu.last_cuda,
                gpu.first_driver_branch,
                gpu.last_driver_branch,
                gpu.host,
                gpu.segment == "embedded",
                gpu.architecture,
            )
            if traits not in classes:
                classes[traits] = len(rows)
                platform = f"linux/{gpu.host}" if gpu.host else PLATFORMS[0]
                rows.append(_GpuClass(row=replace(gpu, id=GPU, name=GPU), platform=platform))
            gpus.append(
                [
                    gpu.name,
                    self._flag(gpu),
                    gpu.architecture,
                    gpu.compute_capability,
                    gpu.memory_gb,
                    classes[traits],
                    self._fact(fact_of("gpu", gpu.id, gpu)),
                    gpu.segment,
                ]
            )
        return gpus, rows

    def _flag(self, gpu: Gpu) -> str:
        """Return what to write after ``--gpu``: the id, unless that means something else."""
        try:
            found = find_gpus(self.matrix, gpu.id)
        except ProvisionError:
            return gpu.name
        return gpu.id if found == (gpu,) else gpu.name

    def _line(self, class_: _GpuClass) -> dict[str, Any]:
        """Return what holds of a class whatever the framework."""
        row = class_.row
        by_platform = []
        for platform in PLATFORMS:
            wish = self._wish(Request(gpus=(GPU,)), platform, gpu=row)
            by_platform.append([self._rejection(item) for item in reject_wish(self.matrix, wish)])
        ends = []
        first = find_first_branch(self.matrix, row)
        for branch in (row.last_driver_branch, first[0] if first is not None else None):
            driver = str((branch or 0) + (1 if branch == row.last_driver_branch else -1))
            ends.append([branch, self._driver_end(row, class_.platform, driver)] if branch is not None else None)
        return {"platform": PLATFORMS.index(class_.platform), "wish": by_platform, "last": ends[0], "first": ends[1]}

    def _driver_end(self, row: Gpu, platform: str, driver: str) -> int:
        wish = self._wish(Request(gpus=(GPU,), driver=driver), platform, gpu=row)
        found = next(item for item in reject_wish(self.matrix, wish) if item.rule == "gpu-driver")
        return self._rejection(
            replace(found, because=found.because.replace(f"driver {driver} ", f"driver {DRIVER} ", 1))
        )

    def _drivers(self) -> list[list[Any]]:
        """Return drivers worth suggesting, newest first, with what they are."""
        named: dict[str, str] = {}
        for branch in self.matrix.driver_branches:
            if branch.last_release is not None:
                named[branch.last_release] = f"the newest of branch {branch.branch}"
        for row in reversed(self.matrix.cuda):
            if row.bundled_driver is not None:
                named.setdefault(row.bundled_driver, f"released with CUDA {row.version}")
        return [[version, named[version]] for version in sorted(named, key=parse, reverse=True)]

    def _branches(self) -> dict[str, list[Any]]:
        """Return the release that each driver branch stands for, what is said of it, and the branch's fact."""
        found = {}
        for row in self.matrix.driver_branches:
            name = str(row.branch)
            release = newest_release(self.matrix, row.branch)
            if release is not None:
                found[name] = [release, self._text(taken(name, release)), self._fact(fact_of("driver", name, row))]
        return found

    def _security(self) -> dict[str, Any]:
        """Return the lowest secure driver of each branch, and what is said of drivers below it."""
        floors = secure_minimums(self.matrix)
        last = max(floors, default=0)
        below = {}
        for branch, (floor, _) in floors.items():
            said = insecure_driver(self.matrix, str(branch))
            if said is not None:
                below[branch] = [floor, self._text(said[0].replace(f"driver {branch} ", f"driver {DRIVER} ", 1))]
        old = insecure_driver(self.matrix, "1")
        text = old[0].replace("driver branch 1 ", f"driver branch {DRIVER} ", 1) if old else ""
        return {"below": below, "last": last, "old": self._text(text)}

    def _near(self) -> dict[str, Any]:
        """Return the changes that the solver tries when a part cannot be met, nearest first."""
        near: dict[str, Any] = {}
        for framework in FRAMEWORKS:
            near[framework] = {
                wish: [getattr(other, framework) for other in self._changed(framework, _asking(framework, wish))]
                for wish in self._wishes(framework)
            }
        near["cuda"] = {
            wish: [other.cuda for other in self._changed("cuda", Request(cuda=wish))] for wish in self.cudas
        }
        near["cuda"][ANY] = [other.cuda for other in self._changed("cuda", Request(cuda=ANY))]
        near["python"] = {
            wish: [other.python for other in self._changed("python", Request(python=wish))] for wish in self.pythons
        }
        # Drivers above the lowest, in order: those above any other are its end, those below it the rest, backwards.
        near["driver"] = [other.driver for other in self._changed("driver", Request(driver="0"))]
        near["platform"] = [other.platform for other in self._changed("platform", Request(platform=PLATFORMS[-1]))]
        return near

    def _changed(self, part: str, request: Request) -> list[Request]:
        return [other for other, _ in changes_of(part, request, self.matrix)]

    def _wishes(self, kind: str) -> list[str]:
        """Return what can be asked of a framework: anything, a minor, a version; the newest first."""
        if kind == "cuda":
            return [ANY, *self.cudas]
        rows: Iterable[Any] = {
            "torch": self.matrix.torch_releases,
            "tensorflow": self.matrix.tensorflow,
            "jax": self.matrix.jax,
        }[kind]
        versions = {row.version for row in rows}
        minors = {".".join(version.split(".")[:2]) for version in versions} - versions
        return [ANY, *sorted(versions | minors, key=lambda text: (parse(text), -text.count(".")), reverse=True)]

    # The candidates

    def _candidates(self, platform: str) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Return every candidate of a platform, and for every wish the numbers of those it admits, best first."""
        numbers: dict[str, int] = {}
        rows: list[dict[str, Any]] = []
        offers: dict[str, dict[str, Any]] = {}
        all_offered = {kind: tuple(offer(self.matrix, kind, _asking(kind, ANY), platform)) for kind in _KINDS}
        # The platforms offer much the same; the bar need not be exact, but it ends where the work does.
        rest = PLATFORMS[PLATFORMS.index(platform) :]
        total = self.solved + len(rest) * sum(map(len, all_offered.values()))
        for kind in _KINDS:
            for option in all_offered[kind]:
                numbers[option.label] = len(rows)
                rows.append(self._candidate(option, platform))
                self.solved += 1
                if self.report is not None:
                    self.report("builds", self.solved, total)
            offers[kind] = {}
            for wish in self._wishes(kind):
                request = _asking(kind, wish)
                found = [numbers[option.label] for option in offer(self.matrix, kind, request, platform)]
                offers[kind][wish] = (
                    self.rows.add(tuple(found))
                    if found
                    else {"none": self._rejection(reject_version(self.matrix, kind, request))}
                )
        return rows, offers

    def _candidate(self, option: Option, platform: str) -> dict[str, Any]:
        kind = option.framework
        asked = _asking(kind, option.version)
        plain = self._wish(asked, platform)
        fixed = self._verdicts(plain, option)
        floor = driver_floor(self.matrix, option)
        cuda_key = ("cuda", platform, fixed, kind, option.cuda, option.cuda_major)
        cuda = self._kept(
            cuda_key,
            lambda: [
                self._verdicts(self._wish(replace(asked, cuda=wish), platform), option, fixed) for wish in self.cudas
            ],
        )
        code = (
            fixed,
            kind,
            option.sm,
            option.ptx,
            option.sm_min,
            option.is_known,
            floor,
            kind == "cuda" and option.cuda,
            *_libraries(option),
        )
        gpu = self._kept(
            ("gpu", *code),
            lambda: [
                self._verdicts(self._wish(replace(asked, gpus=(GPU,)), platform, item.row), option, fixed)
                for item in self.classes
            ],
        )
        os = self._kept(
            ("os", fixed, option.glibc),
            lambda: [self._verdicts(replace(plain, os=row), option, fixed) for row in self.systems],
        )
        line: dict[str, Any] = {
            "kind": _KINDS.index(kind),
            "version": option.version,
            "label": option.label,
            "fact": self._fact(option.fact),
            "fixed": self._cell(fixed),
            "cuda": self._cells(cuda if kind != "cuda" else []),
            "gpu": self._cells(gpu),
            "os": self._cells(os),
            "open": [self._rejection(item, option) for item in open_ends([option], [], [_refused(option)])],
            "pair": self._cells([self._pair(option, None), *(self._pair(option, item.row) for item in self.classes)]),
        }
        older = self._kept(("older", cuda_key, *code), lambda: self._older(asked, platform, option, cuda, gpu))
        if older:
            line["older"] = older
        if floor is not None:
            low = self._verdicts(self._wish(replace(asked, driver="0"), platform), option, fixed)
            line["driver"] = [floor[0], self._cell(low)]
            jit = self._kept(
                ("jit", option.cuda, *code),
                lambda: [self._jit(option, platform, item.row, floor[0]) for item in self.classes],
            )
            line["jit"] = self._cells(jit)
            line["branch"] = self._jit_branch(option)
        line["no_python"] = self._rejection(
            reject_python(replace(plain, request=replace(asked, python=PYTHON)), (option,)), option
        )
        if fixed:
            return line
        order = order_pythons(self.matrix, plain, (option,))
        can = [
            python
            for python in self.pythons
            if order_pythons(self.matrix, self._wish(replace(asked, python=python), platform), (option,))
        ]
        tried = [*order, *(python for python in can if python not in order)]
        line["order"] = len(order)
        line["pythons"] = [self.pythons.index(python) if python is not None else -1 for python in tried]
        line["bases"] = [self._base_row(option, platform, python) for python in tried]
        wishes: dict[str, str | None] = {"": None}
        if kind != "cuda" and not option.cuda:
            wishes |= {str(number): wish for number, wish in enumerate(self.cudas) if not cuda[number]}
        answers = {
            number: [self._answers(option, platform, python, wish) for python in tried]
            for number, wish in wishes.items()
        }
        held = self._held(option, gpu)
        for suffix, row in held.items():
            for number, wish in wishes.items():
                answers[number + suffix] = [self._answers(option, platform, python, wish, row) for python in tried]
            line.setdefault("held_bases", {})[suffix] = [
                self._base_row(option, platform, python, row, suffix) for python in tried
            ]
        line["held"] = {
            str(number): _suffix(open_bounds(self.matrix, option, item.row))
            for number, item in enumerate(self.classes)
            if held and not gpu[number] and open_bounds(self.matrix, option, item.row)
        }
        line["environments"] = {number: [self.rows.add(row) for row in rows] for number, rows in answers.items()}
        runtimes = {
            self.environments.values[number][0]
            for rows in answers.values()
            for row in rows
            for number in row
            if number >= 0
        }
        rows = (None, *(None if cell else item.row for item, cell in zip(self.classes, gpu, strict=True)))
        line["need"] = {
            minor: self.rows.add(
                tuple(
                    self._kept(
                        ("need", minor, number, *code[1:]),
                        partial(self._need, option, platform, row, minor),
                    )
                    if row is not None or not number
                    else -1
                    for number, row in enumerate(rows)
                )
            )
            for minor in sorted(runtimes, key=parse)
        }
        return line

    def _kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what was made for this key before: candidates that no rule can tell apart share their cells."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def _wish(self, request: Request, platform: str, gpu: Gpu | None = None) -> Wish:
        gpus = ((GPU, (gpu,)),) if gpu is not None else ()
        return Wish(request=request, platform=platform, gpus=gpus, os=None, flavor="runtime", driver=request.driver)

    def _verdicts(
        self, wish: Wish, option: Option, besides: tuple[tuple[int, int], ...] = ()
    ) -> tuple[tuple[int, int], ...]:
        """Return the rules that reject an option, by number, with their words; those known already left out."""
        found = []
        for slot, rule in enumerate(OPTION_RULES):
            rejection = rule(self.matrix, wish, option)
            if rejection is not None:
                found.append((slot, self._rejection(rejection, option)))
        return tuple(item for item in found if item not in besides)

    def _pair(self, option: Option, gpu: Gpu | None) -> tuple[tuple[int, int], ...]:
        named = {option.framework: option.version, "cuda": option.cuda or str(option.cuda_major)}
        found = excluded_pair(self.matrix, named, gpu)
        return ((0, self._rejection(replace(found, subject=option.label))),) if found is not None else ()

    def _older(
        self,
        asked: Request,
        platform: str,
        option: Option,
        cuda: list[tuple[tuple[int, int], ...]],
        gpu: list[tuple[tuple[int, int], ...]],
    ) -> dict[str, int]:
        """Return, for each CUDA asked of a build that leaves its own open, what is said of it and a GPU together."""
        found: dict[str, int] = {}
        if option.framework == "cuda" or option.cuda:
            return found
        fixed = self._verdicts(self._wish(asked, platform), option)
        for number, wish in enumerate(self.cudas):
            if cuda[number]:
                continue
            together = replace(asked, cuda=wish, gpus=(GPU,))
            cells = [
                self._verdicts(self._wish(together, platform, item.row), option, (*fixed, *known))
                for item, known in zip(self.classes, gpu, strict=True)
            ]
            if any(cells):
                found[str(number)] = self._cells(cells)
        return found

    def _jit(self, option: Option, platform: str, gpu: Gpu, floor: str) -> tuple[tuple[int, int], ...]:
        """Return what is said of the lowest driver where the GPU needs code that the driver compiles."""
        request = Request(gpus=(GPU,), driver=floor)
        alone = self._verdicts(self._wish(Request(gpus=(GPU,)), platform, gpu), option)
        return self._verdicts(self._wish(request, platform, gpu), option, alone)

    def _jit_branch(self, option: Option) -> int:
        newest = next(iter(cuda_releases(self.matrix, option.cuda)), None) if option.cuda else None
        return (newest.matching_driver_branch or 0) if newest is not None else 0

    # The environments

    def _held(self, option: Option, gpu: Sequence[tuple[tuple[int, int], ...]]) -> dict[str, Gpu]:
        """Return a GPU for each set of libraries that some GPUs hold back, by how the set is called."""
        found: dict[str, Gpu] = {}
        for item, cell in zip(self.classes, gpu, strict=True):
            bounds = open_bounds(self.matrix, option, item.row)
            if bounds and not cell:
                found.setdefault(_suffix(bounds), item.row)
        return found

    def _answers(
        self, option: Option, platform: str, python: str | None, cuda: str | None, gpu: Gpu | None = None
    ) -> tuple[int, ...]:
        """Return the environment for each step of glibc, or what is wrong below zero; one where all are the same."""
        asked = _asking(option.framework, option.version)
        if option.framework == "cuda":
            asked = replace(asked, python=python)
        elif cuda is not None:
            asked = replace(asked, cuda=cuda)
        wish = self._wish(asked, platform)
        found: dict[int, int] = {}
        for step, system in self._steps(wish, option, python):
            held = () if gpu is None else ((GPU, (gpu,)),)
            closed = try_python(self.matrix, replace(wish, os=system, gpus=held), (option,), python)
            if isinstance(closed, Rejection):
                found[step] = ~self._rejection(closed, option)
            else:
                found[step] = self._environment(replace(closed, wish=wish))
        if len(set(found.values())) == 1:
            return tuple(set(found.values()))
        return tuple(found.get(step, 0) for step in range(len(self.steps[option.framework]) + 1))

    def _steps(self, wish: Wish, option: Option, python: str | None) -> list[tuple[int, OsRelease | None]]:
        """Return each step of glibc that some base has, with the first system that has it."""
        first: dict[int, OsRelease | None] = {}
        key = ("steps", self._base_key(option), python, wish.platform)
        if key not in self.kept:
            for system in self.systems:
                base = self._base(replace(wish, os=system), option, python)
                if not isinstance(base, Rejection):
                    first.setdefault(self._step(option, base.glibc), system)
            self.kept[key] = list(first.items())
        found: list[tuple[int, OsRelease | None]] = self.kept[key]
        return found

    def _step(self, option: Option, glibc: str | None) -> int:
        """Return how many steps a glibc has climbed: the same wheels are installable on all of one step."""
        steps = self.steps[option.framework]
        return len(steps) if glibc is None else sum(step <= parse(glibc).release for step in steps)

    def _base(self, wish: Wish, option: Option, python: str | None, suffix: str = "") -> Base | Rejection:
        key = (self._base_key(option), python, wish.os.id if wish.os else None, wish.platform, suffix)
        if key not in self.bases:
            self.bases[key] = choose_base(self.matrix, wish, (option,), python)
        return self.bases[key]

    def _base_key(self, option: Option) -> tuple[Any, ...]:
        """Return what of an option a base depends on."""
        system = (option.framework, option.version, option.cuda, option.cudnn) if _needs_image(option) else None
        return system, option.glibc, option.framework

    def _base_row(
        self, option: Option, platform: str, python: str | None, gpu: Gpu | None = None, suffix: str = ""
    ) -> int:
        """Return the number of a row with the base on every system, or what is wrong below zero."""
        key = (self._base_key(option), python, platform, suffix)
        if key not in self.base_rows:
            asked = _asking(option.framework, option.version)
            if option.framework == "cuda":
                asked = replace(asked, python=python)
            wish = self._wish(asked, platform)
            held = () if gpu is None else ((GPU, (gpu,)),)
            row = []
            for system in self.systems:
                base = self._base(replace(wish, os=system, gpus=held), option, python, suffix)
                if isinstance(base, Rejection):
                    because = base.because.replace(f" on {system.id} ", f" on {SYSTEM} ") if system else base.because
                    row.append(~self._rejection(replace(base, subject=option.label, because=because), option))
                else:
                    tags = tuple(image and image.tag for image in (base.python_image, base.cuda_image))
                    stand = ("stand", *key, tags, self._step(option, base.glibc))
                    row.append(self._kept(stand, partial(self._stand, base, option, wish, python)))
            self.base_rows[key] = self.rows.add(_packed(row))
        return self.base_rows[key]

    def _stand(self, base: Base, option: Option, wish: Wish, python: str | None) -> int:
        """Write down what a stack stands on."""
        solution = _solution(wish, option, option.cuda or "0", python)
        bare = self._kept(
            ("bare", option.label, wish.platform, python), lambda: set(assemble(solution, self.matrix).warnings)
        )
        stack = assemble(replace(solution, python_image=base.python_image, cuda_image=base.cuda_image), self.matrix)
        has_image = base.cuda_image is not None
        image = stack.image
        return self.stands.add(
            (
                (image.base.ref, image.base.size_mb) if image else None,
                image.cuda_base.ref if image and image.cuda_base else None,
                stack.os,
                self._step(option, base.glibc),
                stack.cudnn if has_image else None,
                stack.nccl if has_image else None,
                self._reasons(item for item in stack.reasons if item.subject in _OF_THE_BASE),
                tuple(self._text(text) for text in stack.warnings if text not in bare),
            )
        )

    def _environment(self, solution: Solution) -> int:
        """Write down a closed environment, as far as neither a GPU, a driver nor a system changes it."""
        option = solution.options[0]
        wish = solution.wish
        known = self._kept(
            ("known", option.label, wish.platform, wish.request.python, wish.request.cuda, solution.cuda),
            lambda: set(assemble(_solution(wish, option, solution.cuda, None), self.matrix).warnings),
        )
        stack = assemble(replace(solution, cuda_image=None), self.matrix)
        silent = (*_OF_THE_QUESTION, *_OF_THE_BASE, *(("cuda", "cudnn") if _needs_image(option) else ()))
        sizes = [pick.wheel.size if pick.wheel else None for pick in solution.picks]
        return self.environments.add(
            (
                solution.cuda,
                None if _needs_image(option) else stack.cudnn,
                None if _needs_image(option) else stack.nccl,
                self.rows.add(tuple(self.packages.add(item) for item in stack.packages.items())),
                (sum(size for size in sizes if size), sum(size is None for size in sizes)),
                self.rows.add(tuple(map(self._text, self._install(solution)))) if solution.picks else -1,
                self._reasons((item for item in stack.reasons if item.subject not in silent), option),
                tuple(self._text(text) for text in stack.warnings if text not in known),
            )
        )

    def _install(self, solution: Solution) -> list[str]:
        """Return the words that install the same roots with pip, under the same hidden constraints, quoted."""
        option, python = solution.options[0], str(solution.python)
        machine = MACHINES[solution.wish.platform]
        roots, _ = demands_of(self.matrix, option, python, machine)
        wanted: dict[str, list[str]] = {}
        for root in roots:
            wanted.setdefault(root.name, []).append(root.specifier)
        names = {pick.name for pick in solution.picks}
        for row in solution.constraints:
            for name, bound in row.requires.items():
                if name in names:
                    wanted.setdefault(name, []).append(bound)
        words = ["pip", "install"]
        words += [name + ",".join(dict.fromkeys(item for item in bounds if item)) for name, bounds in wanted.items()]
        urls = self.matrix.settings("frameworks/torch.toml").get("wheel_index")
        if (
            option.framework == "torch"
            and index_of(option.row, machine) != "pypi"
            and urls is not None
            and urls.value is not None
        ):
            words += ["--extra-index-url", urls.value.replace("{variant}", option.variant)]
        legacy = self.matrix.settings("frameworks/jax.toml").get("legacy_index")
        if option.framework == "jax" and option.row.delivery == "legacy" and legacy is not None and legacy.value:
            words += ["--find-links", legacy.value]
        return [shlex.quote(word) for word in words]

    def _need(self, option: Option, platform: str, gpu: Gpu | None, cuda: str) -> int:
        """Write down what a GPU changes: the driver, and how the code gets onto it."""
        wish = self._wish(_asking(option.framework, option.version), platform, gpu)
        bare = _solution(wish, option, cuda, None)
        stack: Stack = assemble(bare, self.matrix)
        need = stack.driver
        reasons = [item for item in stack.reasons if item.subject.startswith(("driver", "gpu "))]
        return self.needs.add(
            (
                need.minimum,
                need.recommended_branch,
                need.native,
                need.maximum_branch,
                self._reasons(reasons, option),
                tuple(self._text(text.replace(option.label, CANDIDATE)) for text in stack.warnings),
                (" ".join(stack.sm), " ".join(stack.ptx)),
            )
        )

    # The parts that tables are made of

    def _text(self, text: str) -> int:
        return self.texts.add(text)

    def _fact(self, fact: FactRef, option: Option | None = None) -> int:
        if option is not None and fact == option.fact:
            return OWN_FACT
        if fact.id == f"gpu/{GPU}":
            return GPU_FACT
        return self.facts.add(fact)

    def _reasons(self, reasons: Iterable[Reason], option: Option | None = None) -> tuple[Any, ...]:
        return tuple(
            (reason.subject, self._text(reason.because), tuple(self._fact(fact, option) for fact in reason.facts))
            for reason in reasons
        )

    def _rejection(self, rejection: Rejection, option: Option | None = None) -> int:
        """Return the number of a rejection; its subject is the candidate, its version, or neither."""
        subject = 0
        if rejection.subject:
            subject = 1 if option is None or rejection.subject == option.label else 2
        if rejection.rule == "open-list":
            subject = 2
        return self.rejections.add(
            (
                rejection.rule,
                int(rejection.is_proved),
                subject,
                self._text(rejection.because),
                tuple(self._fact(fact, option) for fact in rejection.facts),
            )
        )

    def _cell(self, verdicts: tuple[tuple[int, int], ...]) -> int:
        return self.cells.add(verdicts)

    def _cells(self, verdicts: Sequence[tuple[tuple[int, int], ...]]) -> int:
        """Return the number of a row of cells; none where all are empty."""
        return self.rows.add(tuple(self._cell(item) for item in verdicts)) if any(verdicts) else -1

    def _fact_tables(self) -> dict[str, Any]:
        sources, places = _Table(), _Table()
        facts = [
            [fact.id, places.add(fact.where), fact.status, [sources.add(name) for name in fact.source]]
            for fact in self.facts.values
        ]
        found = [(name, self.matrix.sources.get(name)) for name in sources.values]
        return {
            "facts": facts,
            "places": places.values,
            "sources": [
                [row.title, row.publisher, row.url, row.retrieved] if row is not None else [name, "", "", ""]
                for name, row in found
            ],
        }


_PAGE_PARTS = ("os", "platform", "gpus", "driver", "python", "cuda", "jax", "tensorflow", "torch")
_OF_THE_QUESTION = ("torch", "tensorflow", "jax", "python", "driver", "driver branch")
_OF_THE_BASE = ("base", "cuda image")


def _asking(kind: str, wish: str) -> Request:
    """Return a request for one framework, or for CUDA alone."""
    asked: dict[str, Any] = {kind: wish}
    return Request(**asked)


def _suffix(bounds: Sequence[Bound]) -> str:
    """Return what to call the environments that hold libraries back; two sets of bounds never share a name."""
    return " ".join(("", *(bound.name + bound.specifier for bound in bounds)))


def _libraries(option: Option) -> tuple[Any, ...]:
    """Return what of an option its fit to a GPU depends on beside its own code."""
    pins = getattr(option.row, "pins", None) or {}
    cudnn = tuple((name, bound) for name, bound in pins.items() if "cudnn" in name)
    return option.cuda_major, option.cuda, option.system_cuda, option.cudnn, cudnn, getattr(option.row, "triton", None)


def _needs_image(option: Option) -> bool:
    return option.system_cuda or option.framework == "cuda"


def _solution(wish: Wish, option: Option, cuda: str, python: str | None) -> Solution:
    """Return a solution that stands on nothing and holds nothing."""
    return Solution(
        wish=wish,
        options=(option,),
        python=python,
        cuda=cuda,
        picks=(),
        constraints=(),
        python_image=None,
        cuda_image=None,
        extras=(),
    )


def _refused(option: Option) -> Rejection:
    """Return a rejection of an option's version for a reason that other builds of it need not share."""
    return Rejection(
        rule="cuda", is_proved=True, subject=option.label, version=(option.framework, option.version), because=""
    )


def _packed(row: Sequence[int]) -> tuple[int, ...]:
    """Return a row as its most common value, then position and value of every other."""
    common = max(sorted(set(row)), key=row.count)
    return (common, *(part for number, value in enumerate(row) if value != common for part in (number, value)))


def _glibc_steps(matrix: Matrix, kind: str) -> tuple[tuple[int, ...], ...]:
    """Return every glibc that a wheel near a framework needs and some system lacks: between two nothing changes."""
    lowest = min(parse(row.glibc).release for row in matrix.os_releases if row.glibc is not None)
    steps: set[tuple[int, ...]] = set()
    seen: set[str] = set()
    queue = [kind, *_COMPANIONS.get(kind, ())]
    rows = {"torch": matrix.torch_builds, "tensorflow": matrix.tensorflow, "jax": matrix.jax}.get(kind, ())
    queue += [name for row in rows for name in getattr(row, "pins", None) or ()]
    queue += [name for row in matrix.constraints for name in row.requires]
    while queue:
        name = queue.pop().partition("[")[0]
        if name in seen:
            continue
        seen.add(name)
        package = matrix.package(name)
        for version in package.versions if package else ():
            release = package.release(version) if package else None
            if release is not None:
                queue += [need for need, *_ in release.requires]
                steps |= {floor for wheel in release.wheels for floor in glibc_floors(wheel.file)}
    return tuple(sorted(step for step in steps if step > lowest))


_COMPANIONS = {
    "torch": ("torchvision", "torchaudio", "triton", "numpy"),
    "jax": ("jaxlib",),
}
