"""What is installed: dpkg and rpm listings, held packages, DKMS, kernels on disk, the initial RAM disk."""

from __future__ import annotations

import re

from provision.probe.output import Unreadable
from provision.probe.parse.recorded import kept, read_lines, read_switch
from provision.records import record

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~@-]*")
_VERSION = re.compile(r"[A-Za-z0-9(][A-Za-z0-9.+~:_^()-]*")
_STATES = {
    "n": "not-installed",
    "c": "config-files",
    "H": "half-installed",
    "U": "unpacked",
    "F": "half-configured",
    "W": "triggers-awaited",
    "t": "triggers-pending",
    "i": "installed",
}
_MARKS = re.compile(r"[uirph][ncHUFWti]R?")
_KERNEL = re.compile(r"[0-9]+\.[0-9]+[A-Za-z0-9._+~-]*")
_MODULE_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}")
_DIGITS = re.compile(r"([0-9]+)")
_DKMS_STATES = ("added", "built", "installed", "broken")


@record
class Package:
    """An installed package; ``state`` is ``installed``, ``half-configured``, ``config-files``… as dpkg says."""

    name: str
    version: str
    architecture: str = ""
    state: str = "installed"


@record
class DkmsModule:
    """A line of ``dkms status``; ``state`` is ``installed``, ``built``, ``added`` or ``broken``.

    ``kernel`` is ``None`` for a module that was only added. ``warning`` is what dkms warns of in the same line: the
    module that is installed may not be the one that was built.
    """

    name: str
    version: str
    kernel: str | None = None
    state: str
    warning: str | None = None


@record
class Holds:
    """What keeps packages from being upgraded on their own.

    Attributes:
        held: Packages on hold (apt-mark, dnf versionlock), as written.
        excluded: Patterns that unattended upgrades or dnf leave out.
        has_unattended_upgrades: Whether automatic upgrades are switched on; ``None`` when nothing tells.
    """

    held: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    has_unattended_upgrades: bool | None = None


def parse_packages(text: str) -> tuple[Package, ...]:
    """Read ``dpkg-query`` or ``rpm`` output in the collector's form: name, version, architecture, state by tabs.

    Empty where a package manager answered and nothing that matters is installed. The state may be missing, and may be
    dpkg's three words (``install ok installed``) or letters (``ii``). What dpkg only remembers by name is left out.

    Raises:
        Unreadable: A line has another form.
    """
    found = []
    for line in read_lines(text, "packages"):
        if not line.strip():
            continue
        fields = [kept(field) for field in line.split("\t")]
        if len(fields) not in (3, 4) or not _NAME.fullmatch(fields[0]):
            raise Unreadable(f"packages has a line of another form: `{kept(line, 80)}`")
        state = _state_of(fields[3]) if len(fields) == 4 else "installed"
        if state is None:
            raise Unreadable(f"packages has a state that is not known: `{kept(line, 80)}`")
        if state == "not-installed":
            continue
        if not _VERSION.fullmatch(fields[1]):
            raise Unreadable(f"packages has a line of another form: `{kept(line, 80)}`")
        found.append(Package(name=fields[0], version=fields[1], architecture=fields[2], state=state))
    return tuple(found)


def parse_dpkg_list(text: str) -> tuple[Package, ...]:
    """Read ``dpkg -l``, whole or lines picked out of it.

    Raises:
        Unreadable: It has neither dpkg's heading nor a package, or a line of another form.
    """
    lines = [line for line in read_lines(text, "dpkg -l") if line.strip()]
    heading = next((number for number, line in enumerate(lines) if line.startswith("+++-")), None)
    found = []
    for line in lines if heading is None else lines[heading + 1 :]:
        words = line.split()
        if len(words) < 3 or not _MARKS.fullmatch(words[0]) or line[0].isspace():
            raise Unreadable(f"dpkg -l has a line of another form: `{kept(line, 80)}`")
        name, version = words[1].partition(":")[0], words[2]
        state = _STATES[words[0][1]]
        if not _NAME.fullmatch(name):
            raise Unreadable(f"dpkg -l has a line of another form: `{kept(line, 80)}`")
        if state == "not-installed":
            continue
        if not _VERSION.fullmatch(version) or len(words) < 4:
            raise Unreadable(f"dpkg -l has a line of another form: `{kept(line, 80)}`")
        found.append(Package(name=name, version=version, architecture=kept(words[3]), state=state))
    if not found and heading is None:
        raise Unreadable("dpkg -l lists no package")
    return tuple(found)


def parse_rpm_list(text: str) -> tuple[Package, ...]:
    """Read ``rpm -qa``: ``NAME-VERSION-RELEASE.ARCHITECTURE`` a line; the version keeps its release.

    Raises:
        Unreadable: A line has another form, or there is none.
    """
    found = []
    for line in read_lines(text, "rpm -qa"):
        if not line.strip():
            continue
        whole, dot, architecture = line.strip().rpartition(".")
        if not dot or not architecture.replace("_", "").isalnum() or architecture[0].isdigit():
            # Keys are listed as packages, and belong to no architecture.
            whole, architecture = line.strip(), ""
        parts = whole.rsplit("-", 2)
        if len(parts) != 3 or not _NAME.fullmatch(parts[0]) or not all(_VERSION.fullmatch(part) for part in parts[1:]):
            raise Unreadable(f"rpm -qa has a line of another form: `{kept(line, 80)}`")
        found.append(Package(name=parts[0], version=f"{parts[1]}-{parts[2]}", architecture=kept(architecture)))
    if not found:
        raise Unreadable("rpm -qa lists no package")
    return tuple(found)


def parse_dkms(text: str) -> tuple[DkmsModule, ...]:
    """Read ``dkms status``, of dkms 2 (``nvidia, 535, kernel, arch: installed``) and 3 (``nvidia/535, …``).

    Empty where DKMS has no module. A module of which built parts are missing counts as broken.

    Raises:
        Unreadable: A line has neither form.
    """
    found = []
    for line in read_lines(text, "dkms status"):
        if not line.strip() or line.startswith("Deprecated feature:"):
            continue
        module = _dkms_module(kept(line))
        if module is None:
            raise Unreadable(f"dkms status has a line of another form: `{kept(line, 80)}`")
        found.append(module)
    return tuple(found)


def parse_holds(text: str) -> Holds:
    """Read the ``holds`` probe: lines ``held NAME``, ``excluded PATTERN``, ``unattended yes|no``.

    Raises:
        Unreadable: A line has another form.
    """
    held: list[str] = []
    excluded: list[str] = []
    has_unattended_upgrades: bool | None = None
    for line in read_lines(text, "holds"):
        word, _, rest = line.partition(" ")
        rest = kept(rest)
        if not line:
            continue
        if word == "held" and rest:
            held.append(rest)
        elif word == "excluded" and rest:
            excluded.append(rest)
        elif word == "unattended":
            has_unattended_upgrades = read_switch(rest, "holds: unattended")
        else:
            raise Unreadable(f"holds has a line of another form: `{kept(line, 80)}`")
    return Holds(
        held=tuple(dict.fromkeys(held)),
        excluded=tuple(dict.fromkeys(excluded)),
        has_unattended_upgrades=has_unattended_upgrades,
    )


def parse_kernels(text: str) -> tuple[str, ...]:
    """Read the ``kernels`` probe: releases that can be booted, one a line, lowest first.

    Raises:
        Unreadable: A line is not a kernel release, or there is none.
    """
    releases = {line.strip() for line in read_lines(text, "kernels") if line.strip()}
    for release in releases:
        if not _KERNEL.fullmatch(release):
            raise Unreadable(f"kernels has a line that is not a kernel release: `{kept(release, 80)}`")
    if not releases:
        raise Unreadable("kernels lists none that can be booted")
    return tuple(sorted(releases, key=_natural))


def parse_initramfs(text: str) -> tuple[str, ...]:
    """Read the ``initramfs`` probe: versions of nvidia modules inside the initial RAM disk (empty: it holds none).

    Raises:
        Unreadable: A line has another form, or the version of the only module could not be read.
    """
    lines = dict.fromkeys(line.strip() for line in read_lines(text, "initramfs") if line.strip())
    versions = [line for line in lines if line != "unknown"]
    for version in versions:
        if not _MODULE_VERSION.fullmatch(version):
            raise Unreadable(f"initramfs has a line that is not a version: `{kept(version, 80)}`")
    if lines and not versions:
        raise Unreadable("the initial RAM disk holds an nvidia module whose version cannot be read")
    return tuple(versions)


def _state_of(word: str) -> str | None:
    """Return dpkg's word for a state that may be written in letters or with the wish before it."""
    if _MARKS.fullmatch(word):
        return _STATES[word[1]]
    last = word.rpartition(" ")[2]
    return last if last in _STATES.values() else None


def _dkms_module(line: str) -> DkmsModule | None:
    before, colon, said = line.partition(": ")
    fields = [field.strip() for field in before.split(",")]
    if "/" in fields[0]:
        fields[:1] = fields[0].split("/", 1)
    if not colon or len(fields) not in (2, 4) or not all(_VERSION.fullmatch(field) for field in fields):
        return None
    state, _, remark = said.partition(" ")
    if state.startswith("installed-"):
        state = "installed"
    if state not in _DKMS_STATES:
        return None
    warning = None
    if "WARNING!" in remark:
        warning = " ".join(remark.replace("(", " ").replace(")", " ").replace("WARNING!", " ").split())
    if warning and "Missing" in warning:
        state = "broken"
    return DkmsModule(
        name=fields[0],
        version=fields[1],
        kernel=fields[2] if len(fields) == 4 else None,
        state=state,
        warning=warning,
    )


def _natural(release: str) -> tuple[tuple[int, int, str], ...]:
    """Return what orders kernel releases: numbers by value, everything else by letter."""
    parts = [part for part in _DIGITS.split(release) if part]
    key = [(1, int(part[:18]), "") if part.isdigit() else (0, 0, part) for part in parts]
    return tuple(key)
