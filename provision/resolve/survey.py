"""What the solver says of every candidate, as trees: the tables of a page that answers like the solver.

The space of questions (versions × CUDA × GPUs × drivers × Pythons × systems) is far too large to be listed. So each of
the solver's own functions is run with a question that knows none of its parts: where the function reads one, it is run
again with each value that part can have, and what it says becomes a tree that branches over the parts it really read.
Trees that are alike are one, and whoever holds them finds an answer by walking. What is said of GPUs is said of a class
of them; the name stands in the words as :data:`GPU`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import find_first_branch, find_gpus, newest_release, secure_minimums
from provision.records import replace
from provision.resolve import explain
from provision.resolve.assemble import Solution, assemble, base_reasons, base_warnings, package_warnings
from provision.resolve.bases import Base, choose_base
from provision.resolve.environment import MACHINES, wheel_rank
from provision.resolve.fit import open_bounds
from provision.resolve.options import Option, demands_of, fact_of, index_of, offer
from provision.resolve.request import ANY, FRAMEWORKS, PLATFORMS, Request, is_askable_os, parse_request
from provision.resolve.rules import OPTION_RULES, Rejection, Wish, excluded_pair, insecure_driver, reject_wish, taken
from provision.resolve.solve import complete, named_of, open_ends, order_pythons, reject_python, reject_version
from provision.resolve.stack import FactRef, Reason
from provision.versions import branch_of, parse

__all__ = ["BRANCH", "CANDIDATE", "DRIVER", "GPU", "Report", "survey"]

Report = Callable[[str, int, int], None]
"""Takes what is worked at, how many are done, and how many there are."""

GPU, DRIVER, BRANCH, CANDIDATE, SYSTEM = "\x01", "\x02", "\x03", "\x04", "\x05"
"""What stands in a sentence for the name that a question gives; no fact and no name can hold such a character."""

OWN_FACT, GPU_FACT = -1, -2
"""In a list of facts: the candidate's own, and that of the question's GPU."""

NOTHING_SAID = ~0
"""The leaf of a function that rejects nothing."""

_AXES = ("cuda", "python", "os", "gpus", "driver", "glibc")
_KINDS = (*FRAMEWORKS, "cuda")
_PARTS = tuple(part for part in explain.PARTS if part in {*_KINDS, "os", "platform", "gpus", "driver", "python"})
_OF_THE_QUESTION = ("torch", "tensorflow", "jax", "python", "driver", "driver branch")
_OWN = FactRef(id=CANDIDATE, source=(), where="", status="")

_PLAIN = Request(flavor="runtime")
_TRAITS = ("first_cuda", "last_cuda", "first_driver_branch", "last_driver_branch", "host", "architecture")

_KEY = ("platform", "python", "bounds")
"""What of the known parts a tree is kept by: rows of GPUs do not hash, and the libraries they bound say as much."""

_Known = Mapping[str, Any]
_Skipped = Collection[tuple[str, int]]


class _Unasked(Exception):  # noqa: N818 - no error: it says which part of a question is read
    """A part of the question was read that is not known yet."""


class _Question:
    """A wish and its request in one, whose parts are known or raise :class:`_Unasked` when they are read."""

    def __init__(self, known: _Known) -> None:
        self.known = known

    def __getattr__(self, name: str) -> Any:
        if name in ("request", "is_image"):
            return self if name == "request" else False
        if name in self.known:
            return self.known[name]
        if name in _AXES:
            raise _Unasked(name)
        return getattr(_PLAIN, name)


class _Seen:
    """An option without a name, which notes what is read of it."""

    def __init__(self, option: Option) -> None:
        self.option = option
        self.read: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "label" or (name == "version" and self.option.framework != "cuda"):
            return CANDIDATE
        if name == "fact":
            return _OWN
        return self.read.setdefault(name, getattr(self.option, name))


class _Driver(str):
    """A driver in whose place a mark stands in every sentence."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return DRIVER


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
        self.texts, self.facts, self.rejections, self.packages = _Table(), _Table(), _Table(), _Table()
        self.leaves, self.nodes, self.rows = _Table(), _Table(), _Table()
        self.leaves.add(())
        self.shared: dict[tuple[Any, ...], list[tuple[_Known, int]]] = {}
        self.children: dict[int, tuple[str, Sequence[int]]] = {}
        self.closed: dict[tuple[Any, ...], int] = {}
        # What the grammar of a request cannot spell nobody can ask.
        self.systems = tuple(row for row in matrix.os_releases if is_askable_os(row.id))
        self.cudas = self._cudas()
        self.pythons = self._pythons()
        self.gpus, classes = self._gpus()
        self.drivers = self._drivers()
        glibcs = {row.glibc for row in matrix.os_releases if row.glibc is not None}
        self.axes: dict[str, tuple[Any, ...]] = {
            "cuda": (None, *self.cudas),
            "python": (None, *self.pythons),
            "os": (None, *self.systems),
            "gpus": ((), *(((GPU, (row,)),) for row in classes)),
            "driver": (None, *map(_Driver, self.drivers)),
            "glibc": (*sorted(glibcs, key=parse), None),
        }

    def take(self) -> dict[str, Any]:
        matrix = self.matrix
        ends = {row.version: row.end_of_life for row in matrix.pythons}
        candidates = {platform: self._candidates(platform) for platform in PLATFORMS}
        return {
            "dated": matrix.dated,
            "any": ANY,
            "limits": {name: value for name, value in vars(explain).items() if name.endswith(("_MAX", "_SHOWN"))},
            "parts": _PARTS,
            "plural": explain.PLURAL,
            "axes": _AXES,
            "platforms": PLATFORMS,
            "cudas": self.cudas,
            "pythons": [[text, ends.get(text.rstrip("t"))] for text in self.pythons],
            "systems": [
                [row.id, row.name, self._fact(fact_of("os", row.id, row)), self.axes["glibc"].index(row.glibc)]
                for row in self.systems
            ],
            "gpus": self.gpus,
            "thresholds": self.drivers,
            "wishes": {kind: self._wishes(kind) for kind in _KINDS},
            "candidates": {platform: rows for platform, (rows, _) in candidates.items()},
            "offers": {platform: offers for platform, (_, offers) in candidates.items()},
            "unfit": {platform: self._trace(self._unfit, {"platform": platform}) for platform in PLATFORMS},
            "insecure": self._trace(self._insecure, {}),
            "complete": [
                [f"torch {row.version}", self._fact(fact_of("torch", row.version, row))]
                for row in matrix.torch_releases
                if row.is_variants_complete
            ],
            "near": self._near(),
            "drivers": self._suggested(),
            "branches": self._branches(),
            "rejections": self.rejections.values,
            "rows": self.rows.values,
            "nodes": self.nodes.values,
            "leaves": self.leaves.values,
            "packages": self.packages.values,
            "texts": self.texts.values,
            **self._fact_tables(),
        }

    # The values a part can have

    def _cudas(self) -> tuple[str, ...]:
        versions = [row.version for row in self.matrix.cuda]
        versions += [row.cuda for rows in (self.matrix.torch_builds, self.matrix.tensorflow) for row in rows]
        return tuple(sorted({".".join(text.split(".")[:2]) for text in versions}, key=parse, reverse=True))

    def _pythons(self) -> tuple[str, ...]:
        known = {row.version for row in self.matrix.pythons}
        for rows in (self.matrix.torch_builds, self.matrix.tensorflow, self.matrix.jax):
            known |= {python for row in rows for python in row.pythons}
        return tuple(sorted(known, key=lambda text: (parse(text.rstrip("t")), not text.endswith("t")), reverse=True))

    def _gpus(self) -> tuple[list[list[Any]], list[Gpu]]:
        """Return every GPU with its class, and of each class one row without a name."""
        classes: dict[Any, int] = {}
        rows: list[Gpu] = []
        gpus = []
        for gpu in self.matrix.gpus:
            known = find_first_branch(matrix=self.matrix, gpu=gpu)
            begins = (known[0], known[2], known[1].id if known[1] is not gpu else "") if known else None
            traits = (parse(gpu.compute_capability), gpu.segment == "embedded", begins)
            traits += tuple(getattr(gpu, name) for name in _TRAITS)
            if traits not in classes:
                classes[traits] = len(rows)
                rows.append(replace(gpu, id=GPU, name=GPU))
            row = [gpu.name, self._flag(gpu), gpu.architecture, gpu.compute_capability, gpu.memory_gb, classes[traits]]
            host = PLATFORMS.index(f"linux/{gpu.host}") if gpu.host else 0
            gpus.append([*row, self._fact(fact_of("gpu", gpu.id, gpu)), gpu.segment, host])
        return gpus, rows

    def _flag(self, gpu: Gpu) -> str:
        """Return what to write after ``--gpu``: the id, unless that means something else."""
        try:
            found = find_gpus(self.matrix, gpu.id)
        except ProvisionError:
            return gpu.name
        return gpu.id if found == (gpu,) else gpu.name

    def _drivers(self) -> tuple[str, ...]:
        """Return, oldest first, the drivers at which what a rule says of a driver can change."""
        matrix, floors = self.matrix, secure_minimums(self.matrix)
        branches = [row.matching_driver_branch for row in matrix.cuda]
        branches += [branch + more for branch in floors for more in (0, 1)]
        for row in matrix.gpus:
            known = find_first_branch(matrix, row)
            last = row.last_driver_branch
            branches += [row.first_driver_branch, known[0] if known else None, last + 1 if last else None]
        named = {str(branch) for branch in branches if branch} | {floor for floor, _ in floors.values()}
        named |= {row.minimum_driver for row in matrix.cuda}
        named |= {row.minimum_driver for row in matrix.jax if row.minimum_driver is not None}
        return ("0", *sorted(named, key=parse))

    def _wishes(self, kind: str) -> list[str]:
        """Return what can be asked of a framework: anything, a minor, a version; the newest first."""
        if kind == "cuda":
            return [ANY, *self.cudas]
        versions = {row.version for row in getattr(self.matrix, "torch_releases" if kind == "torch" else kind)}
        minors = {".".join(version.split(".")[:2]) for version in versions} - versions
        return [ANY, *sorted(versions | minors, key=lambda text: (parse(text), -text.count(".")), reverse=True)]

    def _near(self) -> dict[str, Any]:
        """Return the changes that the solver tries when a part cannot be met, nearest first, each with its words."""
        values: dict[str, Iterable[str]] = {kind: self._wishes(kind) for kind in _KINDS}
        values |= {"python": self.pythons, "platform": PLATFORMS, "os": [row.id for row in self.systems]}
        # Drivers above the lowest, in order: those above any other are its end, those below it the rest, backwards.
        values["driver"] = ["0"]

        def near(part: str, value: str) -> list[tuple[Any, str]]:
            changes = explain.changes_of(part, replace(Request(), **{part: value}), self.matrix)
            return [(getattr(other, part), change) for other, change in changes]

        return {part: {value: near(part, value) for value in of} for part, of in values.items()}

    def _suggested(self) -> list[list[Any]]:
        """Return drivers worth suggesting, newest first, with what they are."""
        cudas, branches = self.matrix.cuda, self.matrix.driver_branches
        named = {row.bundled_driver: f"released with CUDA {row.version}" for row in cudas if row.bundled_driver}
        named |= {row.last_release: f"the newest of branch {row.branch}" for row in branches if row.last_release}
        return [[version, named[version]] for version in sorted(named, key=parse, reverse=True)]

    def _branches(self) -> dict[str, list[Any]]:
        """Return the release that each driver branch stands for, what is said of it, and the branch's fact."""
        names = [(str(row.branch), row, newest_release(self.matrix, row.branch)) for row in self.matrix.driver_branches]
        return {
            name: [release, taken(name, release), self._fact(fact_of("driver", name, row))]
            for name, row, release in names
            if release is not None
        }

    # The trees

    def _trace(self, function: Callable[[Any], int], known: _Known, skipped: _Skipped = ()) -> int:
        """Return the tree of what a function says of a question.

        Args:
            function: Takes a question, returns a tree: most often a leaf.
            known: What is known of the question.
            skipped: Parts with positions at which nobody asks the function.
        """
        try:
            return function(_Question(known))
        except _Unasked as unasked:
            axis = str(unasked)
        children: list[int] = []
        for position, value in enumerate(self.axes[axis]):
            is_skipped = (axis, position) in skipped
            children.append(children[-1] if is_skipped else self._trace(function, {**known, axis: value}, skipped))
        return self._node(axis, children)

    def _node(self, axis: str, children: Sequence[int]) -> int:
        """Return a tree that branches, as position and child wherever the child is another than before it."""
        changes = [at for at, child in enumerate(children) if at == 0 or child != children[at - 1]]
        if len(changes) == 1:
            return children[0]
        tree = self.nodes.add((_AXES.index(axis), *(number for at in changes for number in (at, children[at]))))
        self.children[tree] = axis, children
        return tree

    def _leaf(self, value: Any) -> int:
        return ~self.leaves.add(value)

    def _shared(self, name: Any, option: Option, function: Callable[[Any, Any], int], known: _Known) -> int:
        """Return the tree of a function, traced once for all options of which it reads the same."""
        rows = self.shared.setdefault((name, option.framework, *map(known.get, _KEY)), [])
        for read, tree in rows:
            if all(getattr(option, field) == value for field, value in read.items()):
                return tree
        seen = _Seen(option)
        tree = self._trace(partial(function, seen), known)
        rows.append((seen.read, tree))
        return tree

    def _excluded(self, rules: Iterable[int]) -> _Skipped:
        """Return the parts with positions that are reason enough for some rule whatever else is asked."""
        found = (self.children[tree] for tree in rules if tree >= 0)
        return {(axis, at) for axis, children in found for at, child in enumerate(children) if child < NOTHING_SAID}

    def _unfit(self, question: Any) -> int:
        return self._refusal(reject_wish(self.matrix, question))

    def _insecure(self, question: Any) -> int:
        found = insecure_driver(self.matrix, question.driver) if question.driver is not None else None
        if found is None:
            return NOTHING_SAID
        text = found[0].replace(f"branch {branch_of(question.driver)} ", f"branch {BRANCH} ", 1)
        return self._leaf((self.texts.add(text),))

    # The candidates

    def _candidates(self, platform: str) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Return every candidate of a platform, and for every wish the numbers of those it admits, best first."""
        numbers: dict[str, int] = {}
        rows: list[dict[str, Any]] = []
        offers: dict[str, dict[str, Any]] = {}
        all_offered = {kind: tuple(offer(self.matrix, kind, parse_request({kind: ANY}), platform)) for kind in _KINDS}
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
                request = parse_request({kind: wish})
                found = [numbers[option.label] for option in offer(self.matrix, kind, request, platform)]
                refused = () if found else (reject_version(self.matrix, kind, request),)
                offers[kind][wish] = [self.rows.add(tuple(found)), self._refusal(refused)]
        return rows, offers

    def _rules(self, option: Option, platform: str) -> list[int]:
        """Return the tree of each rule that ever rejects an option."""

        def say(rule: Any, seen: Any, question: Any) -> int:
            found = rule(self.matrix, question, seen)
            return self._refusal((found,) if found is not None else ())

        trees = [self._shared(rule, option, partial(say, rule), {"platform": platform}) for rule in OPTION_RULES]
        return [tree for tree in trees if tree != NOTHING_SAID]

    def _candidate(self, option: Option, platform: str) -> dict[str, Any]:
        rules = self._rules(option, platform)
        version = (option.framework, option.version)
        rejected = Rejection(rule="cuda", is_proved=True, subject=option.label, version=version, because="")
        is_refused = min(rules, default=0) < 0
        return {
            "version": option.version,
            "label": option.label,
            "fact": self._fact(option.fact),
            "rules": self.rows.add(tuple(rules)),
            "open": self._refusal(open_ends([option], [], [rejected]), option),
            "tries": NOTHING_SAID if is_refused else self._tries(option, platform, self._excluded(rules)),
        }

    def _tries(self, option: Option, platform: str, skipped: _Skipped) -> int:
        """Return the tree of what is tried with a build, in order: the base on each system, and the environment."""
        known: dict[str, Any] = {"platform": platform, "gpus": ()}
        if option.framework != "cuda":
            known[option.framework] = ANY

        def plan(known: _Known, question: Any) -> int:
            pythons = order_pythons(self.matrix, question, (option,))
            if not pythons:
                return self._refusal([reject_python(question, (option,))], option)
            tries = []
            for python in pythons:
                given = {**known, "python": python}
                tries.append((self._base(option, given), self._closed(option, given, skipped), python))
            return self._leaf(tuple(tries))

        children: list[int] = []
        trees: dict[Any, int] = {}
        for position, gpus in enumerate(self.axes["gpus"]):
            if ("gpus", position) in skipped:
                children.append(children[-1])
                continue
            gpu = gpus[0][1][0] if gpus else None
            pair = excluded_pair(self.matrix, named_of((option,)), gpu)
            bounds = open_bounds(self.matrix, option, gpu) if gpu is not None else ()
            if (pair, bounds) not in trees:
                given = {**known, "gpus": gpus, "bounds": bounds} if bounds else known
                trees[pair, bounds] = (
                    self._refusal([replace(pair, subject=option.label)], option)
                    if pair is not None
                    else self._trace(partial(plan, given), given)
                )
            children.append(trees[pair, bounds])
        return self._node("gpus", children)

    def _base(self, option: Option, known: _Known) -> int:
        """Return the tree of what a stack stands on, by system."""
        python = known["python"]

        def stand(seen: Any, question: Any) -> int:
            base, system = choose_base(self.matrix, question, (seen,), python), question.os
            if isinstance(base, Rejection):
                because = base.because.replace(f" on {system.id} ", f" on {SYSTEM} ") if system else base.because
                return self._refusal([replace(base, subject=CANDIDATE, because=because)])
            image = base.cuda_image
            images: dict[str, Any] = {"python_image": base.python_image, "cuda_image": image}
            solution = Solution(wish=_wish(known), options=(seen,), python=python, cuda="", **images)
            bottom = base.python_image or (image if python is None else None)
            row = (
                (bottom.tag, bottom.size_mb) if bottom else None,
                image.tag if image and bottom and image is not bottom else None,
                None if system else bottom.os if bottom else image.os if image else "unknown",
                None if system and system.glibc == base.glibc else self.axes["glibc"].index(base.glibc),
                image.cudnn if image and image.has_cudnn else None,
                image.nccl if image else None,
                self._reasons(base_reasons(solution, self.matrix)),
                tuple(map(self.texts.add, base_warnings(solution, self.matrix))),
            )
            return self._leaf(row)

        return self._shared("base", option, stand, known)

    def _closed(self, option: Option, known: _Known, skipped: _Skipped) -> int:
        """Return the tree of the environment, by CUDA where the packages decide that, and by glibc."""
        python, machine = known["python"], MACHINES[known["platform"]]
        oldest, *between, newest = self.axes["glibc"]

        def is_steady(file: str) -> bool:
            return wheel_rank(file, python, machine, oldest) == wheel_rank(file, python, machine, newest)

        def say(question: Any) -> int:
            def close(glibc: str | None) -> Solution | Rejection:
                base = Base(python_image=None, cuda_image=None, glibc=glibc)
                return complete(self.matrix, question, (option,), python, base)

            def write(found: Solution | Rejection) -> int:
                if isinstance(found, Rejection):
                    return self._refusal([found], option)
                return self._environment(replace(found, wish=_wish(known)), option, skipped)

            found = close(newest)
            last = write(found)
            # The best of all wheels are the best of fewer too, if they are among them.
            wheels = [pick.wheel for pick in found.picks if pick.wheel] if isinstance(found, Solution) else None
            if wheels is not None and all(is_steady(wheel.file) for wheel in wheels):
                return last
            # What is the same with the fewest wheels and with all of them is the same with any number between.
            if (first := write(close(oldest))) == last:
                return last
            return self._node("glibc", [first, *(write(close(glibc)) for glibc in between), last])

        key = (option.label, *map(known.get, _KEY))
        if key not in self.closed:
            self.closed[key] = self._trace(say, known, skipped)
        return self.closed[key]

    def _environment(self, solution: Solution, option: Option, skipped: _Skipped) -> int:
        """Write down a closed environment, as far as neither a GPU, a driver nor a system changes it."""
        stack = assemble(solution, self.matrix)
        needs_image = option.system_cuda or option.framework == "cuda"
        silent = (*_OF_THE_QUESTION, *(("cuda", "cudnn") if needs_image else ()))
        sizes = [pick.wheel.size if pick.wheel else None for pick in solution.picks]
        return self._leaf(
            (
                solution.cuda,
                stack.cudnn,
                stack.nccl,
                self.rows.add(tuple(self.packages.add(item) for item in stack.packages.items())),
                (sum(size for size in sizes if size), sum(size is None for size in sizes)),
                self.rows.add(tuple(map(self.texts.add, self._install(solution)))) if solution.picks else -1,
                self._reasons((item for item in stack.reasons if item.subject not in silent), option),
                tuple(map(self.texts.add, package_warnings(solution))),
                self._need(option, solution, skipped),
            )
        )

    def _need(self, option: Option, solution: Solution, skipped: _Skipped) -> int:
        """Return the tree of what a GPU changes: the driver, and how the code gets onto it."""

        def say(question: Any) -> int:
            wish = replace(solution.wish, gpus=question.gpus)
            stack = assemble(replace(solution, wish=wish, python=None, picks=(), constraints=()), self.matrix)
            need = stack.driver
            reasons = [item for item in stack.reasons if item.subject.startswith(("driver", "gpu "))]
            return self._leaf(
                (
                    (need.minimum, need.recommended_branch, need.native, need.maximum_branch),
                    self._reasons(reasons, option),
                    tuple(self.texts.add(text.replace(option.label, CANDIDATE)) for text in stack.warnings),
                    (" ".join(stack.sm), " ".join(stack.ptx)),
                )
            )

        key = ("need", option.label, solution.wish.platform, solution.cuda)
        if key not in self.closed:
            self.closed[key] = self._trace(say, {}, skipped)
        return self.closed[key]

    def _install(self, solution: Solution) -> list[str]:
        """Return the words that install the same roots with pip, under the same hidden constraints, quoted."""
        option, machine = solution.options[0], MACHINES[solution.wish.platform]
        roots, _ = demands_of(self.matrix, option, str(solution.python), machine)
        wanted = {root.name: [item.specifier for item in roots if item.name == root.name] for root in roots}
        names = {pick.name for pick in solution.picks}
        for row in solution.constraints:
            for name, bound in row.requires.items():
                if name in names:
                    wanted.setdefault(name, []).append(bound)
        words = ["pip", "install"]
        words += [name + ",".join(dict.fromkeys(filter(None, bounds))) for name, bounds in wanted.items()]
        urls = self.matrix.settings("frameworks/torch.toml").get("wheel_index")
        if option.framework == "torch" and index_of(option.row, machine) != "pypi" and urls and urls.value:
            words += ["--extra-index-url", urls.value.replace("{variant}", option.variant)]
        legacy = self.matrix.settings("frameworks/jax.toml").get("legacy_index")
        if option.framework == "jax" and option.row.delivery == "legacy" and legacy and legacy.value:
            words += ["--find-links", legacy.value]
        return [shlex.quote(word) for word in words]

    # The parts that tables are made of

    def _fact(self, fact: FactRef, option: Option | None = None) -> int:
        if fact == (option.fact if option is not None else _OWN):
            return OWN_FACT
        return GPU_FACT if fact.id == f"gpu/{GPU}" else self.facts.add(fact)

    def _reasons(self, reasons: Iterable[Reason], option: Option | None = None) -> tuple[Any, ...]:
        return tuple(
            (reason.subject, self.texts.add(reason.because), tuple(self._fact(fact, option) for fact in reason.facts))
            for reason in reasons
        )

    def _refusal(self, rejections: Iterable[Rejection], option: Option | None = None) -> int:
        """Return the leaf of rejections, by number."""
        numbers = []
        for item in rejections:
            subject = CANDIDATE if option is not None and item.subject == option.label else item.subject
            facts = tuple(self._fact(fact, option) for fact in item.facts)
            row = (item.rule, int(item.is_proved), subject, self.texts.add(item.because), facts)
            numbers.append(self.rejections.add(row))
        return self._leaf(tuple(numbers))

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


def _wish(known: _Known) -> Wish:
    return Wish(request=Request(), platform=known["platform"], gpus=(), os=None, flavor="runtime")
