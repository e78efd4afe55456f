"""What the solver says of every candidate, as trees: the tables of a page that answers like the solver.

The space of questions (versions × CUDA × GPUs × drivers × Pythons × systems) is far too large to be listed. So each of
the solver's own functions is run with a question that knows none of its parts: where the function reads one, it is run
again with each value that part can have, and what it says becomes a tree that branches over the parts it really read.
Trees that are alike are one, and whoever holds them finds an answer by walking. What is said of GPUs is said of a class
of them; the name stands in the words as :data:`GPU`.

A branching is a list: the part, then each position of its values from which another tree follows, with that tree.
Anything else is what is said.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from provision.errors import ProvisionError
from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import find_gpus, newest_release, secure_minimums
from provision.records import replace
from provision.resolve import explain
from provision.resolve.assemble import Solution, assemble, base_reasons, base_warnings, package_warnings
from provision.resolve.bases import Base, choose_base
from provision.resolve.environment import MACHINES, wheel_rank
from provision.resolve.fit import open_bounds
from provision.resolve.options import Option, demands_of, fact_of, index_of, offer
from provision.resolve.request import ANY, FRAMEWORKS, PLATFORMS, Request, is_askable_os, parse_request
from provision.resolve.rules import OPTION_RULES, Rejection, Wish, driver_warning, excluded_pair, reject_wish
from provision.resolve.solve import complete, named_of, open_ends, order_pythons, reject_python, reject_version
from provision.resolve.stack import FactRef
from provision.versions import branch_of, minor_of, parse

Report = Callable[[str, int, int], None]
"""Takes what is worked at, how many are done, and how many there are."""

GPU, DRIVER, BRANCH, CANDIDATE, SYSTEM = "\x01", "\x02", "\x03", "\x04", "\x05"
"""What stands in a sentence for the name that a question gives; no fact and no name can hold such a character."""

_AXES = ("cuda", "python", "os", "gpus", "driver", "glibc")
_KINDS = (*FRAMEWORKS, "cuda")
_PARTS = tuple(part for part in explain.PARTS if part in {*_KINDS, "os", "platform", "gpus", "driver", "python"})
_OF_THE_QUESTION = ("torch", "tensorflow", "jax", "python", "driver", "driver branch")
_OWN = FactRef(id=CANDIDATE, source=(), where="", status="")

_PLAIN = Request(flavor="runtime")
_TRAITS = (
    *("compute_capability", "architecture", "host", "first_cuda", "last_cuda"),
    *("first_driver_branch", "first_driver_branch_derived", "last_driver_branch"),
)

_SCALARS = frozenset((str, int, float, bool, type(None)))
_UNSAID = ("version", "secure_minimum")
"""Fields that no page shows."""

_KEY = ("platform", "python", "bounds")
"""What of the known parts a tree is kept by: rows of GPUs do not hash, and the libraries they bound say as much."""

_Known = Mapping[str, Any]
_Skipped = Collection[tuple[str, int]]


class _Number(int):
    """The place of a value in the tables."""


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


def survey(matrix: Matrix, report: Report | None = None) -> dict[str, Any]:
    """Return the tables as plain data, in one fixed order.

    Returns:
        ``values``: what is held more than once, then the whole; a negative number in them is the ``~position`` of an
        earlier one. ``shapes``: lists of names; ``{"3": [...]}`` in a value is a dict of the names of shape 3.

    Args:
        matrix: The facts.
        report: Told after each build how many are solved; solving all of them takes a minute.
    """
    found = _Survey(matrix, report)
    found.add(found.take())
    return found.pack()


class _Survey:
    def __init__(self, matrix: Matrix, report: Report | None = None) -> None:
        self.matrix = matrix
        self.report = report
        self.solved = 0
        self.values: list[Any] = []
        self.numbers: dict[Any, _Number] = {}
        self.facts: dict[FactRef, _Number] = {}
        self.shared: dict[tuple[Any, ...], list[tuple[_Known, _Number]]] = {}
        self.children: dict[_Number, tuple[str, Sequence[_Number]]] = {}
        self.own: Option | None = None
        self.nothing = self.add(())
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
        ends = {row.version: row.end_of_life for row in self.matrix.pythons}
        glibcs = self.axes["glibc"]
        return {
            "dated": self.matrix.dated,
            "any": ANY,
            "limits": {name: value for name, value in vars(explain).items() if name.endswith(("_MAX", "_SHOWN"))},
            "parts": _PARTS,
            "plural": explain.PLURAL,
            "of_builds": explain.OF_BUILDS,
            "platforms": PLATFORMS,
            "cudas": self.cudas,
            "pythons": [(text, ends.get(text.rstrip("t"))) for text in self.pythons],
            "systems": [
                (row.id, row.name, fact_of("os", row.id, row), glibcs.index(row.glibc)) for row in self.systems
            ],
            "gpus": self.gpus,
            "thresholds": self.drivers,
            "wishes": {kind: self._wishes(kind) for kind in _KINDS},
            "offers": {platform: self._offers(platform) for platform in PLATFORMS},
            "unfit": {platform: self._trace(self._unfit, {"platform": platform}) for platform in PLATFORMS},
            "driver_warning": self._trace(self._driver_warning, {}),
            "near": self._near(),
            "drivers": self._suggested(),
            "branches": self._branches(),
        }

    def add(self, value: Any) -> _Number:
        """Return the number of a value, which is written once; what it holds has a lower one."""
        if isinstance(value, _Number):
            return value
        if isinstance(value, FactRef):
            # Most of what is held is facts, and the same ones over and over.
            if self.own is not None and value == self.own.fact:
                value = _OWN
            if value not in self.facts:
                self.facts[value] = self._add_fact(value)
            return self.facts[value]
        if self.own is not None and isinstance(value, str):
            value = value.replace(self.own.label, CANDIDATE)
        elif fields := getattr(value, "__record_fields__", None):
            value = {name: getattr(value, name) for name in fields if name not in _UNSAID}
        row, key = value, (type(value), value)
        if type(value) in _SCALARS:
            pass
        elif isinstance(value, Mapping):
            row = {name: self.add(item) for name, item in value.items()}
            key = (dict, tuple(row.items()))
        elif isinstance(value, (tuple, list)):
            row = [self.add(item) for item in value]
            key = (list, tuple(row))
        number = self.numbers.setdefault(key, _Number(len(self.values)))
        if number == len(self.values):
            self.values.append(row)
        return number

    def _add_fact(self, fact: FactRef) -> _Number:
        rows = [(name, self.matrix.sources.get(name)) for name in fact.source]
        sources = [(row.title, row.publisher, row.url, row.retrieved) if row else (name,) for name, row in rows]
        return self.add({"id": fact.id, "where": fact.where, "status": fact.status, "sources": sources})

    def pack(self) -> dict[str, Any]:
        counts = Counter(number for row in self.values if isinstance(row, (list, dict)) for number in _held(row))
        places: dict[int, int] = {}
        shapes: dict[tuple[str, ...], int] = {}

        def write(number: int, *, is_own: bool = False) -> Any:
            row = self.values[number]
            if number in places and not is_own:
                return ~places[number]
            if isinstance(row, dict):
                return {shapes.setdefault(tuple(row), len(shapes)): [*map(write, row.values())]}
            return [*map(write, row)] if isinstance(row, list) else row

        values = []
        for number, row in enumerate(self.values):
            if number == len(self.values) - 1 or (counts[number] > 1 and row and isinstance(row, (list, dict, str))):
                places[number] = len(places)
                values.append(write(number, is_own=True))
        return {"shapes": [*shapes], "values": values}

    # The values a part can have

    def _cudas(self) -> tuple[str, ...]:
        versions = [row.version for row in self.matrix.cuda]
        versions += [row.cuda for rows in (self.matrix.torch_builds, self.matrix.tensorflow) for row in rows]
        return tuple(sorted({minor_of(text) for text in versions}, key=parse, reverse=True))

    def _pythons(self) -> tuple[str, ...]:
        known = {row.version for row in self.matrix.pythons}
        for rows in (self.matrix.torch_builds, self.matrix.tensorflow, self.matrix.jax):
            known |= {python for row in rows for python in row.pythons}
        return tuple(sorted(known, key=lambda text: (parse(text.rstrip("t")), not text.endswith("t")), reverse=True))

    def _gpus(self) -> tuple[list[tuple[Any, ...]], list[Gpu]]:
        """Return every GPU with its class, and of each class one row without a name."""
        rows: dict[Any, Gpu] = {}
        gpus = []
        for gpu in self.matrix.gpus:
            traits = (gpu.segment == "embedded", *(getattr(gpu, name) for name in _TRAITS))
            rows.setdefault(traits, replace(gpu, id=GPU, name=GPU))
            host = PLATFORMS.index(f"linux/{gpu.host}") if gpu.host else 0
            row = (gpu.name, self._flag(gpu), gpu.architecture, gpu.compute_capability, gpu.memory_gb)
            gpus.append((*row, [*rows].index(traits), fact_of("gpu", gpu.id, gpu), gpu.segment, host))
        return gpus, [*rows.values()]

    def _flag(self, gpu: Gpu) -> str:
        """Return what to write after ``--gpu``: the id, unless that means something else."""
        try:
            found = find_gpus(self.matrix, gpu.id)
        except ProvisionError:
            return gpu.name
        return gpu.id if found == (gpu,) else gpu.name

    def _drivers(self) -> tuple[str, ...]:
        """Return, oldest first, the drivers at which what a rule says of a driver can change."""
        secure = secure_minimums(self.matrix)
        branches = {row.matching_driver_branch for row in self.matrix.cuda} | {*secure}
        for row in self.matrix.gpus:
            branches |= {row.first_driver_branch, row.first_driver_branch_derived, row.last_driver_branch}
        branches.add(max(row.branch for row in self.matrix.driver_branches))
        named = {str(branch + more) for branch in branches if branch for more in (0, 1)}
        named |= {floor for floor, _ in secure.values()}
        named |= {row.minimum_driver for row in self.matrix.cuda}
        named |= {row.minimum_driver for row in self.matrix.jax if row.minimum_driver}
        return ("0", *sorted(named, key=parse))

    def _wishes(self, kind: str) -> list[str]:
        """Return what can be asked of a framework: anything, a minor, a version; the newest first."""
        if kind == "cuda":
            return [ANY, *self.cudas]
        versions = {row.version for row in getattr(self.matrix, "torch_releases" if kind == "torch" else kind)}
        minors = {minor_of(version) for version in versions} - versions
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

    def _suggested(self) -> list[tuple[str, str]]:
        """Return drivers worth suggesting, newest first, with what they are."""
        cudas, branches = self.matrix.cuda, self.matrix.driver_branches
        named = {row.bundled_driver: f"released with CUDA {row.version}" for row in cudas if row.bundled_driver}
        named |= {row.last_release: f"the newest of branch {row.branch}" for row in branches if row.last_release}
        return [(version, named[version]) for version in sorted(named, key=parse, reverse=True)]

    def _branches(self) -> dict[str, Any]:
        """Return the release that each driver branch stands for, and what is said of that."""
        names = [str(row.branch) for row in self.matrix.driver_branches]
        said = ((name, [*explain.taken_release(name, self.matrix)]) for name in names)
        return {name: (newest_release(self.matrix, int(name)), reasons) for name, reasons in said if reasons}

    # The trees

    def _trace(self, function: Callable[[Any], _Number], known: _Known, skipped: _Skipped = ()) -> _Number:
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
        children: list[_Number] = []
        for position, value in enumerate(self.axes[axis]):
            is_skipped = (axis, position) in skipped
            children.append(children[-1] if is_skipped else self._trace(function, {**known, axis: value}, skipped))
        return self._node(axis, children)

    def _node(self, axis: str, children: Sequence[_Number]) -> _Number:
        """Return a tree that branches wherever a child is another than before it, if any is."""
        changes = [at for at, child in enumerate(children) if at == 0 or child != children[at - 1]]
        if len(changes) == 1:
            return children[0]
        tree = self.add((axis, *(item for at in changes for item in (at, children[at]))))
        self.children[tree] = axis, children
        return tree

    def _shared(
        self,
        name: Any,
        option: Option,
        function: Callable[[Any, Any], _Number],
        known: _Known,
        skipped: _Skipped = (),
    ) -> _Number:
        """Return the tree of a named function, traced once for all options of which it reads the same."""
        rows = self.shared.setdefault((name, option.framework, *map(known.get, _KEY)), [])
        for read, tree in rows:
            if all(getattr(option, field) == value for field, value in read.items()):
                return tree
        seen = _Seen(option)
        tree = self._trace(partial(function, seen), known, skipped)
        rows.append((seen.read, tree))
        return tree

    def _excluded(self, rules: Iterable[_Number]) -> _Skipped:
        """Return the parts with positions that are reason enough for some rule whatever else is asked."""
        found = (self.children[tree] for tree in rules if tree in self.children)
        return {
            (axis, at)
            for axis, children in found
            for at, child in enumerate(children)
            if child not in self.children and child != self.nothing
        }

    def _unfit(self, question: Any) -> _Number:
        return self.add([*reject_wish(self.matrix, question)])

    def _driver_warning(self, question: Any) -> _Number:
        found = driver_warning(self.matrix, question.driver) if question.driver is not None else None
        if found is None:
            return self.nothing
        return self.add({"warning": found.replace(f"branch {branch_of(question.driver)} ", f"branch {BRANCH} ", 1)})

    # The candidates

    def _offers(self, platform: str) -> dict[str, dict[str, Any]]:
        """Return for every wish the candidates that it admits, best first, or the tree of why there are none."""
        matrix, candidates = self.matrix, {}
        offered = [option for kind in _KINDS for option in offer(matrix, kind, parse_request({kind: ANY}), platform)]
        # The platforms offer much the same; the bar need not be exact, but it ends where the work does.
        total = self.solved + len(PLATFORMS[PLATFORMS.index(platform) :]) * len(offered)
        for option in offered:
            self.own = option
            row = self._candidate(option, platform)
            self.own = None
            candidates[option.label] = self.add(row)
            self.solved += 1
            if self.report is not None:
                self.report("builds", self.solved, total)
        offers: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        for kind in _KINDS:
            for wish in self._wishes(kind):
                request = parse_request({kind: wish})
                found = [candidates[option.label] for option in offer(matrix, kind, request, platform)]
                offers[kind][wish] = (found, [] if found else [reject_version(matrix, kind, request)])
        return offers

    def _rules(self, option: Option, platform: str) -> list[_Number]:
        """Return the tree of each rule that ever rejects an option."""

        def say(rule: Any, seen: Any, question: Any) -> _Number:
            found = rule(self.matrix, question, seen)
            return self.add([found]) if found is not None else self.nothing

        trees = [self._shared(rule, option, partial(say, rule), {"platform": platform}) for rule in OPTION_RULES]
        return [tree for tree in trees if tree != self.nothing]

    def _candidate(self, option: Option, platform: str) -> dict[str, Any]:
        rules = self._rules(option, platform)
        version = (option.framework, option.version)
        rejected = Rejection(rule="cuda", is_proved=True, subject=option.label, version=version, because="")
        is_refused = any(tree not in self.children for tree in rules)
        return {
            "version": option.version,
            "label": option.label,
            "fact": option.fact,
            "complete": [fact for reason in explain.completeness([rejected], self.matrix) for fact in reason.facts],
            "rules": rules,
            "open": self.add(open_ends([option], [], [rejected])),
            "tries": None if is_refused else self._tries(option, platform, self._excluded(rules)),
        }

    def _tries(self, option: Option, platform: str, skipped: _Skipped) -> _Number:
        """Return the tree of what is tried with a build, in order: the base on each system, and the environment."""
        known: dict[str, Any] = {"platform": platform, "gpus": ()}
        if option.framework != "cuda":
            known[option.framework] = ANY

        def plan(known: _Known, _: Any, question: Any) -> _Number:
            tries = []
            for python in order_pythons(self.matrix, question, (option,)):
                given = {**known, "python": python}
                tries.append((python, self._base(option, given), self._closed(option, given, skipped)))
            return self.add({"tries": tries} if tries else [reject_python(question, (option,))])

        def fit(question: Any) -> _Number:
            gpu = question.gpus[0][1][0] if question.gpus else None
            pair = excluded_pair(self.matrix, named_of((option,)), gpu)
            if pair is not None:
                return self.add([replace(pair, subject=CANDIDATE)])
            bounds = open_bounds(self.matrix, option, gpu) if gpu is not None else ()
            given = {**known, "gpus": question.gpus, "bounds": bounds} if bounds else known
            return self._shared(("plan", option.label), option, partial(plan, given), given)

        return self._trace(fit, {}, skipped)

    def _base(self, option: Option, known: _Known) -> _Number:
        """Return the tree of what a stack stands on, by system."""
        python = known["python"]

        def stand(seen: Any, question: Any) -> _Number:
            base, system = choose_base(self.matrix, question, (seen,), python), question.os
            if isinstance(base, Rejection):
                because = base.because.replace(f" on {system.id} ", f" on {SYSTEM} ") if system else base.because
                return self.add([replace(base, subject=CANDIDATE, because=because)])
            image = base.cuda_image
            images: dict[str, Any] = {"python_image": base.python_image, "cuda_image": image}
            solution = Solution(wish=_wish(known), options=(seen,), python=python, cuda="", **images)
            bottom = base.python_image or (image if python is None else None)
            return self.add(
                {
                    "base": bottom.tag if bottom else None,
                    "cudaBase": image.tag if image and bottom and image is not bottom else None,
                    "os": None if system else bottom.os if bottom else image.os if image else "unknown",
                    "glibc": None if system and system.glibc == base.glibc else self.axes["glibc"].index(base.glibc),
                    "cudnn": image.cudnn if image and image.has_cudnn else None,
                    "nccl": image.nccl if image else None,
                    "reasons": base_reasons(solution, self.matrix),
                    "warnings": base_warnings(solution, self.matrix),
                }
            )

        return self._shared("base", option, stand, known)

    def _closed(self, option: Option, known: _Known, skipped: _Skipped) -> _Number:
        """Return the tree of the environment, by CUDA where the packages decide that, and by glibc."""
        python, machine = known["python"], MACHINES[known["platform"]]
        glibcs = self.axes["glibc"]

        def is_steady(file: str, glibc: str) -> bool:
            return wheel_rank(file, python, machine, glibc) == wheel_rank(file, python, machine, glibcs[-1])

        def write(found: Solution | Rejection) -> _Number:
            if isinstance(found, Rejection):
                return self.add([found])
            return self._environment(replace(found, wish=_wish(known)), option, skipped)

        def say(_: Any, question: Any) -> _Number:
            def close(at: int, newer: Solution | Rejection | None = None) -> Solution | Rejection:
                # The best of all wheels are the best of fewer too, if they are among them.
                files = [pick.wheel.file for pick in newer.picks if pick.wheel] if isinstance(newer, Solution) else None
                if newer and files is not None and all(is_steady(file, glibcs[at]) for file in files):
                    return newer
                base = Base(python_image=None, cuda_image=None, glibc=glibcs[at])
                return complete(self.matrix, question, (option,), python, base)

            def between(low: int, high: int, first: Any, last: Any) -> list[Solution | Rejection]:
                # What is the same with few wheels and with many is the same with any number between.
                if high - low == 1 or first == last:
                    return [first] * (high - low)
                middle = (low + high) // 2
                found = close(middle, last)
                return [*between(low, middle, first, found), *between(middle, high, found, last)]

            end = len(glibcs) - 1
            last = close(end)
            found = [*between(0, end, close(0, last), last), last]
            trees: dict[int, _Number] = {}
            for one in (last, *found):
                if id(one) not in trees:
                    trees[id(one)] = write(one)
            return self._node("glibc", [trees[id(one)] for one in found])

        return self._shared(("closed", option.label), option, say, known, skipped)

    def _environment(self, solution: Solution, option: Option, skipped: _Skipped) -> _Number:
        """Write down a closed environment, as far as neither a GPU, a driver nor a system changes it."""
        stack = assemble(solution, self.matrix)
        needs_image = option.system_cuda or option.framework == "cuda"
        silent = (*_OF_THE_QUESTION, *(("cuda", "cudnn") if needs_image else ()))
        sizes = [pick.wheel.size if pick.wheel else None for pick in solution.picks]
        return self.add(
            {
                "cuda": solution.cuda,
                "cudnn": stack.cudnn,
                "nccl": stack.nccl,
                "packages": [*stack.packages.items()],
                "size": (sum(size for size in sizes if size), sum(size is None for size in sizes)),
                "install": self._install(solution) if solution.picks else None,
                "reasons": [item for item in stack.reasons if item.subject not in silent],
                "warnings": package_warnings(solution),
                "need": self._need(option, solution, skipped),
            }
        )

    def _need(self, option: Option, solution: Solution, skipped: _Skipped) -> _Number:
        """Return the tree of what a GPU changes: the driver, and how the code gets onto it."""

        def say(_: Any, question: Any) -> _Number:
            wish = replace(solution.wish, gpus=question.gpus)
            stack = assemble(replace(solution, wish=wish, python=None, picks=(), constraints=()), self.matrix)
            return self.add(
                {
                    "driver": stack.driver,
                    "reasons": [item for item in stack.reasons if item.subject.startswith(("driver", "gpu "))],
                    "warnings": stack.warnings,
                    "sm": " ".join(stack.sm),
                    "ptx": " ".join(stack.ptx),
                }
            )

        known = {"platform": solution.wish.platform}
        return self._shared(("need", option.label, solution.cuda), option, say, known, skipped)

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


def _held(row: Any) -> Collection[int]:
    return row.values() if isinstance(row, dict) else row


def _wish(known: _Known) -> Wish:
    return Wish(request=Request(), platform=known["platform"], gpus=(), os=None, flavor="runtime")
