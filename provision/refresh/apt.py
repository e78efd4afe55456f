"""Driver versions in the archives of Debian and Ubuntu, from the lists that apt itself reads."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from provision.records import record
from provision.refresh.client import AbsentError, Client, UnreachableError, number_of

_LIST_BYTES_MAX = 64 * 1024 * 1024
_UNPACKED_BYTES_MAX = 1024 * 1024 * 1024
_OPENERS: dict[str, Callable[[io.BytesIO], Any]] = {
    ".xz": lzma.LZMAFile,
    ".gz": lambda packed: gzip.GzipFile(fileobj=packed),
    ".bz2": bz2.BZ2File,
    "": lambda plain: plain,
}
_UBUNTU = re.compile(r"nvidia-driver-([0-9]{3})(-server)?")
_DEBIAN = re.compile(r"nvidia-(tesla-)?(?:[0-9]{3}-)?driver")
_NEEDED = ("Package", "Version", "Architecture")


@record
class Driver:
    """A driver branch in an archive; ``version`` is absent for a transitional package."""

    branch: int
    flavour: str
    component: str
    package: str
    package_version: str
    version: str | None = None
    transition_to: int | None = None


def host_mirrors(system: Path = Path("/etc/apt")) -> dict[str, str]:
    """Return distribution → mirror that apt on this machine is configured for.

    Args:
        system: Folder with ``sources.list`` and ``sources.list.d``.
    """
    found: dict[str, str] = {}
    paths = [system / "sources.list", *sorted((system / "sources.list.d").glob("*"))]
    for path in paths:
        text = ""
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
        for url, suites, components in _lines(text) if path.suffix == ".list" else _deb822(text):
            # A security or third-party archive holds other things: only a whole archive has `main` and the plain suite.
            last = url.rstrip("/").rsplit("/", 1)[-1]
            if last in ("debian", "ubuntu", "ubuntu-ports") and "main" in components:
                if all("-security" in suite for suite in suites):
                    continue
                found.setdefault("ubuntu" if last.startswith("ubuntu") else "debian", url.rstrip("/"))
    return found


def _lines(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", "", line.partition("#")[0]).split()
        if len(words) >= 3 and words[0] == "deb":
            yield words[1], [words[2]], words[3:]


def _deb822(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for stanza in parse_stanzas(text.splitlines()):
        if "deb" in stanza.get("Types", "").split() and stanza.get("Enabled", "yes") != "no":
            for url in stanza.get("URIs", "").split():
                yield url, stanza.get("Suites", "").split(), stanza.get("Components", "").split()


def parse_stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Return the paragraphs of a control file, one after the other; continued lines are joined, comments dropped."""
    stanza: dict[str, str] = {}
    key = ""
    for raw in lines:
        line = raw.rstrip("\r\n")
        if line.startswith("#"):
            continue
        if not line.strip():
            if stanza:
                yield stanza
            stanza, key = {}, ""
        elif line[0] in " \t":
            if key:
                stanza[key] += "\n" + line.strip()
        else:
            key, colon, value = line.partition(":")
            if colon:
                stanza[key] = value.strip()
    if stanza:
        yield stanza


def release_hashes(text: str) -> dict[str, tuple[str, int]]:
    """Return path → (sha256, size) of the lists that a ``Release`` or ``InRelease`` file names."""
    body = text
    if text.startswith("-----BEGIN PGP SIGNED MESSAGE"):
        body = text.partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]
    found: dict[str, tuple[str, int]] = {}
    for stanza in parse_stanzas(body.splitlines()):
        for line in stanza.get("SHA256", "").splitlines():
            words = line.split()
            if len(words) != 3 or not re.fullmatch(r"[0-9a-f]{64}", words[0]):
                continue
            size = number_of(words[1])
            if size is not None:
                found[words[2]] = (words[0], size)
    return found


def read_drivers(
    client: Client, mirror: str, suites: Iterable[str], components: Iterable[str], distribution: str
) -> dict[tuple[int, str], Driver]:
    """Return the drivers of one system, newest package first of several suites.

    Args:
        client: Who asks.
        mirror: Root of the archive (``https://mirror.example/debian``).
        suites: Suites of the system; the first must be there, the others may be missing.
        components: Parts of the archive to look into.
        distribution: ``debian`` or ``ubuntu``, which name their packages differently.

    Returns:
        (branch, flavour) → driver.

    Raises:
        UnreachableError: A list cannot be read, or is not the one that the archive's own index names.
    """
    found: dict[tuple[int, str], Driver] = {}
    for number, suite in enumerate(suites):
        base = f"{mirror.rstrip('/')}/dists/{suite}"
        try:
            text = client.get(f"{base}/InRelease").content.decode("utf-8", "replace")
        except AbsentError:
            if number == 0:
                raise
            continue
        hashes = release_hashes(text)
        if not hashes:
            raise UnreachableError(f"{base}/InRelease names no list", because=("it has no SHA256 part",))
        for component in components:
            part = "experimental" if suite == "experimental" else component
            for driver in drivers_of(_list(client, base, component, hashes), part, distribution):
                key = (driver.branch, driver.flavour)
                if key not in found or _order(driver.package_version) > _order(found[key].package_version):
                    found[key] = driver
    return found


def _list(client: Client, base: str, component: str, hashes: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    stem = f"{component}/binary-amd64/Packages"
    ending = next((ending for ending in _OPENERS if f"{stem}{ending}" in hashes), None)
    if ending is None:
        return
    digest, size = hashes[f"{stem}{ending}"]
    url = f"{base}/{stem}{ending}"
    if size > _LIST_BYTES_MAX:
        raise UnreachableError(f"{url} is too large", because=(f"its index gives {size} bytes",))
    content = client.get(url, bytes_max=size).content
    if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
        raise UnreachableError(f"{url} is not the list that InRelease names", because=("its hash is another",))
    yield from _unpacked(content, ending, url)


def _unpacked(content: bytes, ending: str, url: str) -> Iterator[str]:
    """Return the lines of a packed list; at no time all of it is in memory."""
    done = 0
    try:
        with _OPENERS[ending](io.BytesIO(content)) as stream:
            for line in stream:
                done += len(line)
                if done > _UNPACKED_BYTES_MAX:
                    raise UnreachableError(f"{url} is too large", because=("it unpacks to more than 1 GiB",))
                yield line.decode("utf-8", "replace")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UnreachableError(f"{url} cannot be unpacked", because=(str(error),)) from error


def drivers_of(lines: Iterable[str], component: str, distribution: str) -> Iterator[Driver]:
    """Return the driver packages of one list.

    Raises:
        UnreachableError: A paragraph lacks what each has.
    """
    for stanza in parse_stanzas(_wanted(lines)):
        package = stanza.get("Package", "")
        missing = [key for key in _NEEDED if not stanza.get(key)]
        if missing:
            raise UnreachableError(
                f"the list of {component} has another shape than expected",
                because=(f"`{package[:60] or 'a package'}` has no {', '.join(missing)}",),
            )
        driver = (_ubuntu if distribution == "ubuntu" else _debian)(stanza, component)
        if driver is not None:
            yield driver


def _wanted(lines: Iterable[str]) -> Iterator[str]:
    """Drop the paragraphs of other packages before they are parsed: lists are long."""
    is_wanted = False
    is_start = True
    for line in lines:
        if not line.strip():
            is_start = True
            if is_wanted:
                yield line
            is_wanted = False
            continue
        if is_start:
            # Each paragraph of such a list begins with its name.
            is_wanted = not line.startswith("Package:") or line.startswith("Package: nvidia-")
            is_start = False
        if is_wanted:
            yield line


def _ubuntu(stanza: Mapping[str, str], component: str) -> Driver | None:
    named = _UBUNTU.fullmatch(stanza["Package"])
    if named is None:
        return None
    # A description says "transitional" too where only the flavour moved; what it pulls in says it of all.
    needs = [_UBUNTU.match(part.strip()) for part in stanza.get("Depends", "").split(",")]
    others = {int(found[1]) for found in needs if found is not None} - {int(named[1])}
    target = max(others, default=None)
    return Driver(
        branch=int(named[1]),
        flavour="server" if named[2] else "desktop",
        component=component,
        package=stanza["Package"],
        package_version=stanza["Version"],
        version=None if target is not None else _upstream(stanza["Version"]),
        transition_to=target,
    )


def _debian(stanza: Mapping[str, str], component: str) -> Driver | None:
    named = _DEBIAN.fullmatch(stanza["Package"])
    if named is None or "ransitional" in stanza.get("Description", "").partition("\n")[0]:
        return None
    version = _upstream(stanza["Version"])
    if version is None:
        return None
    return Driver(
        branch=int(version.partition(".")[0]),
        flavour="tesla" if named[1] else "desktop",
        component=component,
        package=stanza["Package"],
        package_version=stanza["Version"],
        version=version,
    )


def _upstream(version: str) -> str | None:
    found = re.match(r"(?:[0-9]+:)?([0-9]{3}\.[0-9]+(?:\.[0-9]+)?)(?:[-+~]|$)", version)
    return found[1] if found else None


_Part = tuple[tuple[int, ...], int, str]


def _order(version: str) -> tuple[tuple[_Part, ...], ...]:
    """Return what orders two versions of a package as Debian's policy does: epoch, upstream version, revision."""
    epoch, colon, rest = version.partition(":")
    upstream, _, revision = (rest if colon else version).rpartition("-")
    upstream, revision = (upstream, revision) if upstream else (revision, "")
    return _parts(epoch if colon else ""), _parts(upstream), _parts(revision)


def _parts(text: str) -> tuple[_Part, ...]:
    """Cut a text into words and numbers, each word ended by a 0, so that a tilde comes before the end of all."""
    found: list[_Part] = []
    for word, digits in re.findall(r"([^0-9]*)([0-9]*)", text):
        number = digits.lstrip("0")
        found.append(((*(_weight(letter) for letter in word), 0), len(number), number))
    while found and found[-1] == _END:
        found.pop()
    return (*found, _END)


_END: _Part = ((0,), 0, "")


def _weight(letter: str) -> int:
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 0x110000
