"""What was found so far: each line is one that a request can hold, or is refused with its place and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from provision.errors import IncompatibleError, UnknownError, UsageError, without_secrets
from provision.index.account import Accounts
from provision.matrix.load import Matrix
from provision.project.inputs import Inputs
from provision.project.pins import Pin
from provision.project.pythons import python_bound, pythons_of
from provision.resolve.environment import MACHINES
from provision.resolve.named import FrameworkLine
from provision.resolve.request import FIND_LINKS
from provision.resolve.requirements import LOCAL, SECRETS_HINT, is_local_name, normalise_name, parse_line

if TYPE_CHECKING:
    from provision.audit.model import Index, Span
    from provision.project.files import Files

_LENGTH_MAX = 2000  # addresses of wheels are long
_TORCH_FAMILY = ("torch", "torchvision", "torchaudio")
_ARCHIVE = re.compile(
    r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?P<extras>\[[^\]]*\])?\s+@\s+)?"
    r"(?P<place>(?:file:|(?![a-z+]+://))[^\s;#]+?\.(?:whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz))"
    r"(?P<behind>\[[^\]]*\])?(?:#[^\s;]*)?(?P<marker>\s+;.*)?"
)
"""A wheel or archive by its path, with what may stand around it."""
_INSTALLABLE = ("pyproject.toml", "setup.py", "setup.cfg")


class Collector:
    """What was found so far.

    Args:
        matrix: The facts.
        platform: What the image is for.
        accounts: Where users and passwords go that stand in addresses.
        read_member: Takes what a folder of this machine needs, with some of its extras.
    """

    def __init__(
        self,
        matrix: Matrix,
        platform: str,
        accounts: Accounts,
        read_member: Callable[[Collector, Path, Sequence[str]], None],
    ) -> None:
        self._read_member = read_member
        self.matrix = matrix
        self.accounts = accounts
        self.platform = platform
        self.lines: list[FrameworkLine] = []
        self.constraints: list[FrameworkLine] = []
        self.overrides: list[FrameworkLine] = []
        self.excludes: list[str] = []
        self.indexes: list[str] = []
        self.sources: dict[str, str] = {}
        self.defaults: list[str] = []
        self.cuda: list[tuple[str, str]] = []
        self.cpu: list[str] = []
        self.pythons: list[tuple[str, str]] = []
        self.pins: tuple[Pin, ...] = ()
        self.folders: set[Path] = set()
        self.files: dict[str, tuple[Path, str]] = {}
        self.hashes: dict[str, tuple[str, set[str]]] = {}
        self.pages: dict[Path, None] = {}
        self.projects: list[Path] = []
        self.empty: str | None = None
        self.read: list[str] = []
        self.warnings: list[str] = []

    def result(self, project: Path | None) -> Inputs:
        """Return all of it as one record."""
        places = {}
        self._override()
        self._check_variants()
        if self.cuda:
            places["cuda"] = self.cuda[0][1]
        if self.cpu:
            places["cpu"] = self.cpu[0]
        python = self._join_pythons(places)
        return Inputs(
            lines=tuple(self.lines),
            constraints=tuple(self.constraints),
            overrides=tuple(line.requirement.text for line in self.overrides),
            excludes=tuple(self.excludes),
            # The one in place of PyPI stands where PyPI would: behind those that are asked beside it.
            indexes=tuple(dict.fromkeys([*self.indexes, *self.defaults])),
            sources=tuple(f"{name} @ {source}" for name, source in self.sources.items()),
            cuda=self.cuda[0][0] if self.cuda else None,
            is_cpu=bool(self.cpu),
            python=python,
            code=project,
            empty=self.empty,
            pins=self.pins,
            files={name: path for name, (path, _) in self.files.items()},
            hashes={name: (where, frozenset(hashes)) for name, (where, hashes) in self.hashes.items()},
            folders=tuple(self.pages),
            projects=tuple(folder for folder in self.projects if _is_built(folder)),
            read=tuple(self.read),
            warnings=tuple(dict.fromkeys(self.warnings)),
            places=places,
        )

    def _override(self) -> None:
        """Put overrides in the place of the lines that they stand for, and take out what is excluded."""
        overrides: dict[str, list[FrameworkLine]] = {}
        for line in self.overrides:
            overrides.setdefault(line.requirement.name, []).append(line)
        lines: dict[FrameworkLine, None] = {}
        for line in self.lines:
            if line.requirement.name not in self.excludes:
                lines |= dict.fromkeys(overrides.get(line.requirement.name, [line]))
        self.lines = list(lines)
        # The facts hold what they decide to them too.
        self.constraints += [line for line in self.overrides if " @ " not in line.requirement.text]

    def _check_variants(self) -> None:
        """Refuse two places that ask for different CUDA, or for one and for none.

        Raises:
            IncompatibleError: There are two.
        """
        from provision.audit.wanted import cuda_of

        asked = list(self.cuda)
        if asked:
            for line in self.lines:
                local = re.search(r"==[^,]*\+([a-z0-9]+)", line.requirement.specifier)
                cuda = cuda_of(local[1]) if local and line.requirement.name in _TORCH_FAMILY else None
                if cuda is not None and ";" not in line.requirement.text:
                    asked.append((cuda, f"`{line.requirement.text}` in {line.where}"))
        for cuda, said in asked[:1]:
            for other in self.cpu[:1]:
                raise IncompatibleError(
                    f"{said} and {other} cannot be met together",
                    because=(f"the one asks for CUDA {cuda}, the other for builds without CUDA",),
                    hints=("change one of the two, or leave it out",),
                    details={"conflict": [said.replace("`", ""), other.replace("`", "")]},
                )
        first, said = asked[0] if asked else ("", "")
        for cuda, other in asked[1:]:
            if not _is_same_cuda(first, cuda):
                raise IncompatibleError(
                    f"{said} and {other} cannot be met together",
                    because=(f"the one asks for CUDA {first}, the other for CUDA {cuda}",),
                    hints=("change one of the two, or leave it out",),
                    details={"conflict": [said.replace("`", ""), other.replace("`", "")]},
                )

    def _join_pythons(self, places: dict[str, str]) -> str | None:
        """Return the bounds on Python as one; a pin that the others admit stands for them."""
        bounds = [(bound, said) for text, said in self.pythons if (bound := python_bound(text)) is not None]
        if not bounds:
            return None
        for index, (left, said) in enumerate(bounds):
            for right, other in bounds[index + 1 :]:
                if not pythons_of(left) & pythons_of(right):
                    raise IncompatibleError(
                        f"{said} and {other} cannot be met together",
                        because=("no Python is both",),
                        hints=("change one of the two, or leave it out",),
                    )
        pin = next(((bound, said) for bound, said in bounds if bound[0].isdigit()), None)
        if pin is not None:
            places["python"] = pin[1]
            return pin[0]
        places["python"] = " and ".join(dict.fromkeys(said for _, said in bounds))
        return ",".join(dict.fromkeys(clause for bound, _ in bounds for clause in bound.split(",")))

    def add(self, text: str, where: str, *, to: list[FrameworkLine] | None = None) -> None:
        """Take a requirement; ``to`` is where it goes, to those that are installed unless given."""
        text = self.accounts.take(" ".join(text.split()), where)
        if len(text) > _LENGTH_MAX:
            raise UsageError(
                f"{where}: the requirement is {len(text)} characters long",
                because=(f"more than {_LENGTH_MAX} are not taken",),
            )
        text = self.take_archive(text, where)
        name, _, address = text.partition(" @ ")
        if LOCAL not in address and address.startswith(("file:", ".", "/")) and to is None:
            extras = re.search(r"\[.*\]", name)
            if self.take_path(f"{address}{extras[0] if extras else ''}", where):
                return
        text = self._real(self._named(text, where), where)
        line = FrameworkLine(where=where, requirement=parse_line(text, where))
        (self.lines if to is None else to).append(line)

    def take_folder(self, folder: Path, extras: Sequence[str], said: str) -> bool:
        """Take what a project on this machine needs, if there is one in a folder; ``said`` is what asks for it."""
        try:
            place = folder.resolve()
            if not place.is_dir():
                return False
        except OSError:
            return False
        if place not in self.folders:
            self._read_member(self, folder, extras)
            way_out = f"only `--install-project` or `--copy {folder}` puts its code into the image"
            self.warnings.append(f"{said}: what {folder} needs is installed; {way_out}")
        return True

    def take_archive(self, text: str, where: str) -> str:
        """Return a requirement of a wheel or archive of this machine as one of its copy, fixed by hash.

        Raises:
            UsageError: Its name does not say what it holds, or is that of another file.
            IncompatibleError: It is a wheel for another platform.
        """
        match = _ARCHIVE.fullmatch(text)
        path = _place_of(match["place"], where, Path.is_file) if match is not None else None
        if match is None or path is None:
            return text
        if not is_local_name(path.name):
            raise UsageError(
                f"{where}: {path.name!r} has a name that cannot be copied as it is",
                hints=("rename it: letters, digits and `.`, `_`, `+`, `!`, `-` are taken",),
            )
        import hashlib

        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if self.files.setdefault(path.name, (path, sha256))[1] != sha256:
            raise UsageError(
                f"{where}: {path} and {self.files[path.name][0]} have one name and are two files",
                hints=("leave one of the two out",),
            )
        name = match["name"] or self._name_of(path, where)
        if path.suffix == ".whl":
            self._check_wheel(path, where)
        extras, marker = match["extras"] or match["behind"] or "", match["marker"] or ""
        return f"{name}{extras} @ {LOCAL}{path.name}#sha256={sha256}{marker}"

    def _name_of(self, path: Path, where: str) -> str:
        from packaging.utils import (
            InvalidSdistFilename,
            InvalidWheelFilename,
            parse_sdist_filename,
            parse_wheel_filename,
        )

        try:
            return str((parse_wheel_filename if path.suffix == ".whl" else parse_sdist_filename)(path.name)[0])
        except (InvalidSdistFilename, InvalidWheelFilename) as error:
            raise UsageError(
                f"{where}: the name of {path} does not say what it holds",
                hints=(f"say it before the path: `NAME @ ./{path.name}`",),
            ) from error

    def _check_wheel(self, path: Path, where: str) -> None:
        """Refuse a wheel for another platform, and hold the Python to those that it is for."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        try:
            tags = parse_wheel_filename(path.name)[3]
        except InvalidWheelFilename as error:
            raise UsageError(
                f"{where}: {path.name} is not a wheel name", hints=("give it its own name back",)
            ) from error
        machine = MACHINES[self.platform]
        fitting = [tag for tag in tags if tag.platform == "any" or re.fullmatch(rf".*linux.*_{machine}", tag.platform)]
        if not fitting:
            platforms = ", ".join(sorted({tag.platform for tag in tags}))
            raise IncompatibleError(
                f"{where}: {path.name} is a wheel for {platforms}, and the image is for {self.platform}",
                hints=("name a wheel for Linux on that machine, its source, or a release",),
            )
        found = {re.fullmatch(r"(?:cp|py)3([0-9]+)", tag.interpreter) for tag in fitting}
        if None in found or any(tag.abi == "none" for tag in fitting):
            return
        minors = sorted({int(match[1]) for match in found if match is not None})
        if any(tag.abi == "abi3" for tag in fitting):
            bound = f">=3.{minors[0]}"
        else:
            bound = f">=3.{minors[0]},<3.{minors[-1] + 1}" if minors[1:] else f"==3.{minors[0]}"
        self.pythons.append((bound, f"{path.name} in {where}"))

    def take_path(self, written: str, where: str) -> bool:
        """Take what a project on this machine needs, where a requirement names its folder."""
        address, _, rest = written.partition("[")
        folder = _folder_of(address.partition(" ;")[0].partition("#")[0].strip(), where)
        extras = [name.strip() for name in rest.partition("]")[0].split(",") if name.strip()]
        if folder is None or not any((folder / name).is_file() for name in _INSTALLABLE):
            return False
        return self.take_folder(folder, extras, where)

    def _named(self, text: str, where: str) -> str:
        """Return a requirement whose address says what it holds by name, and by version for PyTorch's own wheels."""
        from provision.audit.requirement import parse_requirement
        from provision.audit.shell import Text
        from provision.audit.wanted import is_pytorch_index

        if "://" not in text:
            return text
        # Behind a bare address pip takes a marker that touches it too.
        parts = re.split(" ;" if " @ " in text else " ;|; ", text, maxsplit=1)
        address, marker = (part.strip() for part in (*parts, "")[:2])
        behind = f" ; {marker}" if marker else ""
        found = parse_requirement(Text(address, [-1] * len(address)), "")
        if found is None or found.url is None:
            return text
        if found.version and found.name in _TORCH_FAMILY and is_pytorch_index(self.matrix, found.url):
            self.warnings.append(f"{where}: the wheel of {found.name} is taken as `{found.name}=={found.version}`")
            if not marker:
                self._check_wheel(Path(unquote(urlsplit(found.url).path)), where)
            return f"{found.name}=={found.version}{behind}"
        if " @ " in address:
            return text
        if address.partition("#")[0].endswith(".whl"):
            return f"{found.name} @ {address}{behind}"
        if (egg := re.search(r"([#&])egg=([A-Za-z0-9._-]+(?:\[[A-Za-z0-9._,-]+\])?)&?", address)) is not None:
            rest = address[: egg.start()] + egg[1] + address[egg.end() :]
            return f"{egg[2]} @ {rest.rstrip('#&')}{behind}"
        return text

    def _real(self, text: str, where: str) -> str:
        """Return a requirement under the name of the framework, where it has that of its placeholder on the index."""
        named = re.match(r"[A-Za-z0-9._-]+", text)
        real = self.matrix.settings("audit_rules.toml")["placeholders"].entries
        if named is None or " @ " in text or (name := normalise_name(named[0])) not in real:
            return text
        self.warnings.append(f"{where}: {name} is taken as {real[name]}, which is the framework's name on the index")
        return real[name] + text[named.end() :]

    def add_index(self, index: Index, where: str, *, is_default: bool = False, package: str | None = None) -> None:
        """Take an index, or the wish for a build of PyTorch that its address is.

        Args:
            index: It.
            where: Its place.
            is_default: It stands in the place of PyPI.
            package: The one package that it is asked for; any, unless given.

        Raises:
            UsageError: It is none that a request can hold.
            UnknownError: It has builds that the facts do not cover.
        """
        from provision.audit.wanted import CPU, cuda_of, index_variant, is_pytorch_index

        flag = {"index": "--index-url", "extra": "--extra-index-url"}.get(index.kind, "--find-links")
        url = index.url or ""
        if not url or "$" in url:
            raise UsageError(
                f"{where}: the address after `{flag}` holds a variable that is not set",
                hints=("set it, or write the address itself", f"a password: {SECRETS_HINT}"),
            )
        url = self.accounts.take(url, where)
        self.accounts.take_named(index.name, url)
        said = f"`{flag} {without_secrets(url)}` in {where}"
        page = re.sub(r"/[A-Za-z0-9_.-]+\.html$", "", url)
        if (variant := index_variant(self.matrix, page)) == CPU:
            self.cpu.append(said)
            return
        if variant is not None and (cuda := cuda_of(variant)) is not None:
            self.cuda.append((cuda, said))
            return
        if is_pytorch_index(self.matrix, url):
            root = (self.matrix.setting("frameworks/torch.toml", "wheel_index").value or "").partition("{")[0]
            if page.rstrip("/") == root.rstrip("/"):
                return
            raise UnknownError(
                f"{said}: the facts do not cover the builds of that index",
                hints=("leave the line out, so that a released build for a GPU is chosen",),
            )
        legacy = self.matrix.settings("frameworks/jax.toml").get("legacy_index")
        if legacy is not None and url == legacy.value:
            return
        if index.kind == "find-links" and ("://" not in url or url.startswith("file:")):
            folder = _folder_of(url, where)
            if folder is None:
                raise UsageError(f"{said} is not a folder here", hints=("correct it, or leave the line out",))
            self.pages[folder] = None
            return
        if not url.startswith("https://") and not re.match(r"http://(localhost|127\.0\.0\.1)[:/]", url):
            raise UsageError(f"{said}: only https addresses are used", hints=("write the address with `https://`",))
        if package is not None:
            name = f"{index.name}=" if re.fullmatch(r"[A-Za-z0-9._-]+", index.name) else ""
            flat = FIND_LINKS if index.kind == "find-links" else ""
            self.sources[package] = f"{flat}{name}{url.rstrip('/')}"
        elif index.kind == "find-links":
            self.indexes.append(f"{FIND_LINKS}{url}")
        elif is_default:
            self.defaults.append(url.rstrip("/"))
        else:
            self.indexes.append(url.rstrip("/"))

    def where(self, span: Span | None, files: Files) -> str:
        """Return the place of a piece of a file, for a message."""
        source = files.sources.get(span.file) if span is not None else None
        if span is None or source is None:
            return span.file if span is not None else ""
        return f"{span.file}, line {source.position(span).line}"


def _folder_of(address: str, where: str) -> Path | None:
    return _place_of(address, where, Path.is_dir)


def _place_of(address: str, where: str, is_meant: Callable[[Path], bool]) -> Path | None:
    """Return what an address of a requirement names, relative to its file or to where this program runs."""
    path = Path(unquote(re.sub(r"^file:(?://(?:localhost)?(?=/))?", "", address)))
    with suppress(OSError, ValueError):
        for place in (Path(where.rpartition(", line ")[0]).parent / path, path):
            if is_meant(place):
                return place
    return None


def _is_built(folder: Path) -> bool:
    """Tell whether a folder says how a wheel is made of it; without a build system that is setuptools, as for pip."""
    with suppress(OSError, UnicodeDecodeError):
        if (folder / "setup.py").is_file():
            return True
        text = (folder / "pyproject.toml").read_text("utf-8")
        return re.search(r"^\[(?:build-system|tool\.setuptools)\b", text, re.MULTILINE) is not None
    return False


def _is_same_cuda(left: str, right: str) -> bool:
    return left == right or left.startswith(f"{right}.") or right.startswith(f"{left}.")
