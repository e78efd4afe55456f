"""The operating system around the GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.probe.output import Unreadable
from provision.probe.parse.recorded import (
    bounded,
    frozen,
    kept,
    pairs_of,
    read_integer,
    read_lines,
    read_number,
    read_switch,
)
from provision.records import record

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OS_ID = re.compile(r"[a-z0-9][a-z0-9._-]*")
_RELEASE = re.compile(r"[0-9][A-Za-z0-9._+~-]*")
_LIMIT = re.compile(r"[a-z_]+")
_SIZE = re.compile(r"-|-?[0-9]+")
_SHARE = re.compile(r"-|[0-9]+%")
_SUFFIX = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)*)$")
_ESCAPED = re.compile(r"\\(.)")
_LDCONFIG_HEADING = re.compile(r"[0-9]+ libs found in cache")
_PERMISSIONS = re.compile(r"[bcdlps-][r-][w-][xsS-][r-][w-][xsS-][r-][w-][xtT-][.+@]?")
_STAMP = re.compile(r"(?:[A-Z][a-z]{2} [0-9]{1,2} [0-9:]{4,5}|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+(?: [+-][0-9]{4})?) ")
_KINDS = {
    "c": "character",
    "b": "block",
    "l": "link",
    "d": "directory",
    "-": "file",
    "p": "pipe",
    "s": "socket",
}
_LEAPS = {"normal": True, "insert second": True, "delete second": True, "not synchronised": False}
_VIRTUALIZATION_KEYS = frozenset({"kind", "container", "vendor", "product"})
_SECURE_BOOT = {
    "secureboot enabled": True,
    "secureboot disabled": False,
    "efi-variable 1": True,
    "efi-variable 0": False,
}


@record
class OsRelease:
    """``/etc/os-release``; ``like`` holds the words of ``ID_LIKE``."""

    id: str
    version: str | None = None
    name: str | None = None
    like: tuple[str, ...] = ()

    @property
    def is_debian_family(self) -> bool:
        """Whether apt is its package manager."""
        return bool({"debian", "ubuntu"} & {self.id, *self.like})


@record
class Uname:
    """``uname -srm``."""

    system: str
    release: str
    machine: str


@record
class SecureBoot:
    """``mokutil --sb-state``, or the firmware's own variable: ``is_enabled`` is ``None`` on a machine without EFI."""

    is_enabled: bool | None = None
    is_setup_mode: bool = False


@record
class Virtualization:
    """What a machine runs in.

    ``kind`` as systemd-detect-virt says (``none``, ``kvm``, ``docker``, ``wsl``); the machine's maker and product.
    """

    kind: str | None = None
    is_container: bool = False
    vendor: str | None = None
    product: str | None = None

    @property
    def is_virtual_machine(self) -> bool:
        """Whether a hypervisor stands between this and the hardware."""
        return not self.is_container and self.kind not in (None, "none")


@record
class DeviceNode:
    """A node below ``/dev``: owner and mode as numbers and words, ``target`` where it is a link."""

    path: str
    kind: str
    mode: int | None = None
    owner: str | None = None
    group: str | None = None
    major: int | None = None
    minor: int | None = None
    target: str | None = None


@record
class FileSystem:
    """A line of ``df -kP``."""

    mount: str
    size_kib: int
    used_kib: int
    free_kib: int
    source: str = ""


@record
class Library:
    """A shared library that programs can find.

    Attributes:
        soname: ``libcudnn.so.9``.
        path: Where the loader would take it from.
        file: Name of the file behind the links (``libcudnn.so.9.1.0``).
        version: What that name ends with; ``None`` where it tells no more than the soname.
        origin: ``ldconfig``, ``LD_LIBRARY_PATH``, ``compat`` (a folder of cuda-compat) or ``python`` (inside a wheel).
    """

    soname: str
    path: str
    file: str
    version: str | None = None
    origin: str = "ldconfig"

    @property
    def is_stub(self) -> bool:
        """Whether it lies in a ``stubs`` folder, which is for linking only."""
        return "/stubs/" in self.path


@record
class Clock:
    """Whether the clock is kept: ``is_synchronised``, the tool's own ``offset_seconds``, and the target's time."""

    is_synchronised: bool | None = None
    offset_seconds: float | None = None
    epoch_seconds: float | None = None


def parse_os_release(text: str) -> OsRelease:
    """Read ``/etc/os-release``.

    Raises:
        Unreadable: It has no ``ID``.
    """
    values: dict[str, str] = {}
    for line in read_lines(text, "os-release"):
        key, equals, value = line.strip().partition("=")
        if equals and _VARIABLE.fullmatch(key):
            values[key] = kept(_unquoted(value))
    name = values.get("ID", "").lower()
    if not _OS_ID.fullmatch(name):
        raise Unreadable("os-release names no system: it has no `ID`")
    return OsRelease(
        id=name,
        version=values.get("VERSION_ID") or None,
        name=values.get("PRETTY_NAME") or values.get("NAME") or None,
        like=tuple(values.get("ID_LIKE", "").lower().split()),
    )


def parse_uname(text: str) -> Uname:
    """Read ``uname -srm``.

    Raises:
        Unreadable: It has not three words.
    """
    words = [kept(word) for line in read_lines(text, "uname") for word in line.split()]
    if len(words) != 3:
        raise Unreadable(f"uname printed {len(words)} words instead of system, release and machine")
    system, release, machine = words
    if not _RELEASE.fullmatch(release):
        raise Unreadable(f"uname names a kernel release that begins with no digit: `{release}`")
    return Uname(system=system, release=release, machine=machine)


def parse_command_line(text: str) -> Mapping[str, str]:
    """Read ``/proc/cmdline``: parameter → value, empty for a bare word; of repeated ones the last.

    Raises:
        Unreadable: It is empty or binary.
    """
    joined = " ".join(read_lines(text, "the kernel's command line")).strip()
    if not joined:
        raise Unreadable("the kernel's command line is empty")
    parameters: dict[str, str] = {}
    for word in bounded(_split_quoted(joined), "the kernel's command line"):
        name, _, value = word.partition("=")
        parameters[kept(name)] = kept(value, 4000)
    return frozen(parameters)


def parse_secure_boot(text: str) -> SecureBoot:
    """Read the ``secure-boot`` probe: what mokutil says, or ``efi-variable N``, or ``no-efi``.

    Where shim was told not to validate, the kernel takes unsigned modules although the firmware checks what it boots.

    Raises:
        Unreadable: It is something else.
    """
    said = {kept(line).lower() for line in read_lines(text, "secure-boot") if line.strip()}
    is_setup_mode = any("platform is in setup mode" in line for line in said)
    if said & {"no-efi", "efi variables are not supported on this system"} or any(
        "doesn't support secure boot" in line for line in said
    ):
        return SecureBoot(is_enabled=None)
    answers = {_SECURE_BOOT[line] for line in said if line in _SECURE_BOOT}
    if len(answers) != 1:
        raise Unreadable(f"secure-boot says neither enabled nor disabled: `{kept(text, 80)}`")
    is_enabled = answers.pop() and not any("validation is disabled in shim" in line for line in said)
    return SecureBoot(is_enabled=is_enabled, is_setup_mode=is_setup_mode)


def parse_reboot_required(text: str) -> tuple[str, ...] | None:
    """Read the ``reboot-required`` probe: ``no`` (``None``), or ``yes`` and the packages that ask for it.

    Raises:
        Unreadable: It begins with another word.
    """
    lines = [kept(line) for line in read_lines(text, "reboot-required") if line.strip()]
    if lines == ["no"]:
        return None
    if not lines or lines[0] != "yes":
        raise Unreadable(f"reboot-required begins with neither yes nor no: `{lines[0] if lines else ''}`")
    return tuple(dict.fromkeys(lines[1:]))


def parse_virtualization(text: str) -> Virtualization:
    """Read the ``virtualization`` probe: ``key=value`` lines, keys kind, container, vendor, product.

    Raises:
        Unreadable: A line has another form.
    """
    values = pairs_of(read_lines(text, "virtualization"), "virtualization", _VIRTUALIZATION_KEYS)
    if "container" not in values:
        raise Unreadable("the virtualization type does not say whether this is a container")
    return Virtualization(
        kind=values.get("kind") or None,
        is_container=read_switch(values["container"], "virtualization: container"),
        vendor=values.get("vendor") or None,
        product=values.get("product") or None,
    )


def parse_limits(text: str) -> Mapping[str, int | None]:
    """Read the ``limits`` probe: ``memlock_kib N``, ``nofile N``, ``shm_kib N``; ``None`` for unlimited.

    Raises:
        Unreadable: A line has another form.
    """
    limits: dict[str, int | None] = {}
    for line in read_lines(text, "limits"):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not _LIMIT.fullmatch(words[0]):
            raise Unreadable(f"limits has a line of another form: `{kept(line, 80)}`")
        limits[words[0]] = None if words[1] == "unlimited" else read_integer(words[1], f"limits: {words[0]}")
    if not limits:
        raise Unreadable("limits is empty")
    return frozen(limits)


def parse_file_systems(text: str) -> tuple[FileSystem, ...]:
    """Read ``df -kP``.

    Raises:
        Unreadable: It has no heading, no row, or a row of another form.
    """
    lines = [line for line in read_lines(text, "df") if line.strip()]
    if not lines or not lines[0].startswith("Filesystem") or "Mounted on" not in lines[0]:
        raise Unreadable("df printed no heading")
    found = []
    for line in lines[1:]:
        words = line.split()
        start = _where_sizes_begin(words)
        if start is None:
            raise Unreadable(f"df has a line of another form: `{kept(line, 80)}`")
        if words[start] == "-":
            # A pseudo file system that has no size.
            continue
        size, used, free = (read_integer(word, "df: a size") for word in words[start : start + 3])
        mount = kept(" ".join(words[start + 4 :]))
        source = kept(" ".join(words[:start]))
        found.append(FileSystem(mount=mount, size_kib=size, used_kib=used, free_kib=free, source=source))
    if not found:
        raise Unreadable("df lists no file system")
    return tuple(found)


def parse_environment(text: str) -> Mapping[str, str]:
    """Read the ``environment`` probe: lines ``NAME=value``; empty where none of the variables is set.

    Raises:
        Unreadable: A line has another form.
    """
    found: dict[str, str] = {}
    for line in read_lines(text, "environment"):
        name, equals, value = line.partition("=")
        if not line:
            continue
        if not equals or not _VARIABLE.fullmatch(name):
            raise Unreadable(f"environment has a line of another form: `{kept(line, 80)}`")
        found[name] = kept(value, 32_768)
    return frozen(found)


def parse_libraries(text: str) -> tuple[Library, ...]:
    """Read the ``libraries`` probe: soname, path, file and origin by tabs; empty where the loader finds none.

    Raises:
        Unreadable: A line has another form.
    """
    found = []
    for line in read_lines(text, "libraries"):
        if not line.strip():
            continue
        fields = [kept(field) for field in line.split("\t")]
        if len(fields) != 4 or not all(fields) or not fields[1].startswith("/"):
            raise Unreadable(f"libraries has a line of another form: `{kept(line, 80)}`")
        soname, path, file, origin = fields
        found.append(_library(soname, path, file.rpartition("/")[2], origin))
    return tuple(found)


def parse_ldconfig(text: str) -> tuple[Library, ...]:
    """Read ``ldconfig -p``; the links are not followed, so ``file`` is the name that the cache holds.

    Raises:
        Unreadable: Its heading is missing, or a line has another form.
    """
    lines = [line for line in read_lines(text, "ldconfig") if line.strip()]
    if not lines or not _LDCONFIG_HEADING.match(lines[0]):
        raise Unreadable("ldconfig printed no heading")
    found = []
    for line in lines[1:]:
        if line.startswith("Cache generated by:"):
            continue
        name, arrow, path = line.partition(" => ")
        words = name.split()
        if not arrow or not words or not path.startswith("/"):
            raise Unreadable(f"ldconfig has a line of another form: `{kept(line, 80)}`")
        path = kept(path)
        found.append(_library(kept(words[0]), path, path.rpartition("/")[2], "ldconfig"))
    return tuple(found)


def parse_device_nodes(text: str) -> tuple[DeviceNode, ...]:
    """Read ``ls -ln`` of device nodes and of links to them; empty where there is none.

    ``kind`` is ``character``, ``block``, ``link``, ``directory``, ``file``, ``pipe`` or ``socket``. Below the heading
    of a folder (``/dev/nvidia-caps:``) names are completed to paths.

    Raises:
        Unreadable: A line has another form.
    """
    folder = ""
    found = []
    for line in read_lines(text, "ls"):
        words = line.split()
        if not words or (len(words) == 2 and words[0] == "total"):
            continue
        if len(words) == 1 and line.startswith("/") and line.endswith(":"):
            folder = kept(line[:-1]) + "/"
            continue
        found.append(_device_node(words, folder))
    return tuple(found)


def parse_clock(text: str) -> Clock:
    """Read the ``clock`` probe: what timedatectl and chronyc say as ``key=value``, and ``epoch=``.

    What ``timedatectl show`` and ``chronyc tracking`` print on their own is read as well. An offset is positive where
    the clock is ahead.

    Raises:
        Unreadable: A line has another form, or none tells of the clock.
    """
    values: dict[str, str] = {}
    for line in read_lines(text, "clock"):
        if line.strip():
            key, value = _clock_pair(line)
            values[key] = value
    marks = [
        read_switch(values[key], "clock: synchronised") for key in ("NTPSynchronized", "synchronised") if key in values
    ]
    leaps = [_leap(values[key]) for key in ("chrony_leap", "Leap status") if key in values]
    offset_seconds: float | None = None
    if "chrony_offset_seconds" in values:
        offset_seconds = read_number(values["chrony_offset_seconds"], "clock: offset")
    elif "System time" in values:
        offset_seconds = _chrony_offset(values["System time"])
    epoch_seconds = read_number(values["epoch"], "clock: epoch") if "epoch" in values else None
    if not marks and not leaps and epoch_seconds is None:
        raise Unreadable("clock tells nothing that is known")
    return Clock(
        # Something beside chrony may keep the clock, and tells the kernel so.
        is_synchronised=any(marks + leaps) if marks or leaps else None,
        offset_seconds=offset_seconds,
        epoch_seconds=epoch_seconds,
    )


def parse_lines(text: str) -> tuple[str, ...]:
    """Read a plain list: its lines, stripped, without the empty ones.

    Raises:
        Unreadable: It is binary.
    """
    return tuple(kept(line) for line in read_lines(text, "the list") if line.strip())


def parse_number(text: str) -> float:
    """Read one number.

    Raises:
        Unreadable: It is something else.
    """
    return read_number(" ".join(read_lines(text, "the number")).strip(), "what was read")


def _unquoted(value: str) -> str:
    """Take a shell word's quotes off."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return _ESCAPED.sub(r"\1", value)


def _split_quoted(line: str) -> list[str]:
    """Split at blanks that stand outside double quotes, as the kernel does."""
    words: list[str] = []
    word: list[str] = []
    for number, part in enumerate(line.split('"')):
        if number % 2:
            word.append(part)
            continue
        first, *rest = part.split(" ")
        word.append(first)
        for following in rest:
            words.append("".join(word))
            word = [following]
    words.append("".join(word))
    return [word for word in words if word]


def _where_sizes_begin(words: list[str]) -> int | None:
    """Find the first of the three sizes in a row of df; names before and after them may hold blanks."""
    for start in range(1, len(words) - 4):
        sizes, share = words[start : start + 3], words[start + 3]
        is_size = all(_SIZE.fullmatch(word) for word in sizes)
        if is_size and _SHARE.fullmatch(share) and words[start + 4].startswith("/"):
            return start
    return None


def _library(soname: str, path: str, file: str, origin: str) -> Library:
    version = _SUFFIX.search(file)
    told = _SUFFIX.search(soname)
    is_more = version is not None and (told is None or version[1] != told[1])
    return Library(
        soname=soname, path=path, file=file, version=version[1] if version and is_more else None, origin=origin
    )


def _device_node(words: list[str], folder: str) -> DeviceNode:
    line = " ".join(words)
    refusal = Unreadable(f"ls has a line of another form: `{kept(line, 80)}`")
    if len(words) < 7 or not _PERMISSIONS.fullmatch(words[0]) or not words[1].isdigit():
        raise refusal
    kind = _KINDS[words[0][0]]
    major = minor = None
    rest = words[4:]
    if kind in ("character", "block"):
        first, _, second = rest[0].partition(",")
        if not second:
            # The minor number stands in a column of its own.
            second, rest = rest[1], rest[1:]
        major, minor = read_integer(first, "ls: a major number"), read_integer(second, "ls: a minor number")
    elif not rest[0].isdigit():
        raise refusal
    stamp = _STAMP.match(" ".join(rest[1:]))
    if not stamp:
        raise refusal
    name, arrow, target = " ".join(rest[1:])[stamp.end() :].partition(" -> ")
    if not name or bool(arrow) != (kind == "link"):
        raise refusal
    return DeviceNode(
        path=kept(name if name.startswith("/") else folder + name),
        kind=kind,
        mode=_mode_of(words[0]),
        owner=kept(words[2]),
        group=kept(words[3]),
        major=major,
        minor=minor,
        target=kept(target) if arrow else None,
    )


def _mode_of(permissions: str) -> int:
    mode = 0
    for place, letter in enumerate(permissions[1:10]):
        if letter not in "-ST":
            mode |= 0o400 >> place
        if letter in "sStT":
            mode |= {2: 0o4000, 5: 0o2000, 8: 0o1000}[place]
    return mode


def _clock_pair(line: str) -> tuple[str, str]:
    for sign in ("=", " : ", ": "):
        key, found, value = line.partition(sign)
        if found and key.strip():
            return key.strip(), kept(value)
    raise Unreadable(f"clock has a line of another form: `{kept(line, 80)}`")


def _leap(value: str) -> bool:
    if (answer := _LEAPS.get(value.lower())) is None:
        raise Unreadable(f"clock: chronyc names a state that is not known: `{kept(value, 40)}`")
    return answer


def _chrony_offset(value: str) -> float:
    words = value.split()
    if len(words) < 3 or words[1] != "seconds" or words[2] not in ("fast", "slow"):
        raise Unreadable(f"clock: chronyc tells no offset: `{kept(value, 80)}`")
    offset = read_number(words[0], "clock: offset")
    return offset if words[2] == "fast" else -offset
