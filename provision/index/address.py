"""Which package index to read: the one that the installers of this machine are told to use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from provision.errors import MissingDependencyError
from provision.records import record

_SYSTEM = Path("/etc")
_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_EXTRA_VARIABLES = ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
_CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_SECTIONS = ("global", "install", "download")
"""Sections of pip's files that count, the weakest first."""


@record
class IndexAddress:
    """A package index.

    Attributes:
        url: Its root, without a slash at the end; it may hold a user and a password.
        told_by: What named it: a variable, a file, or pip's own default.
        ca_bundle: Certificates that pip is told to trust, a file or a folder.
        extra: Roots of the indexes to ask where this one does not have a file, in order.
        proxy: What pip is told to go through; where it is absent, what the environment says counts.
    """

    url: str
    told_by: str
    ca_bundle: str | None = None
    extra: tuple[str, ...] = ()
    proxy: str | None = None


def find_index(
    environment: Mapping[str, str] | None = None, *, home: Path | None = None, system: Path = _SYSTEM
) -> IndexAddress:
    """Return the index that pip, or else uv, is configured for.

    Args:
        environment: Variables; the process's own when absent.
        home: The user's home folder; the process's own when absent.
        system: Where the machine's configuration lies.

    Raises:
        MissingDependencyError: Nothing names an index, and pip is not there to know its default.
    """
    variables = os.environ if environment is None else environment
    home = home or Path.home()
    said = _from_pip(variables, home, system)
    found = _told(variables, said, home, system) or _default_of_pip()
    if found is None:
        raise MissingDependencyError(
            "no package index is known",
            because=("no variable and no configuration of pip or uv names one, and pip is not installed",),
            hints=(f"set {' or '.join(_VARIABLES)}", "or name one with `--index-url URL`"),
        )
    url, told_by = found
    extra = _extra(variables, said)
    bundle = next((variables[name] for name in _CERTIFICATES if variables.get(name)), said.get("cert", ("", ""))[0])
    proxy = variables.get("PIP_PROXY") or said.get("proxy", ("", ""))[0]
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    return IndexAddress(
        url=url.rstrip("/"),
        told_by=told_by,
        ca_bundle=_at_home(bundle, home) or None,
        extra=tuple(item for item in extra if item.startswith("http") and item != url.rstrip("/")),
        proxy=proxy or None,
    )


def known_index() -> IndexAddress | None:
    """Return the same index, or nothing where none is known."""
    try:
        return find_index()
    except MissingDependencyError:
        return None


def told_accounts() -> Iterator[tuple[str, str]]:
    """Yield the indexes that this machine names, each with what names the first of them, if an account is in any."""
    places = (*_pip_files(os.environ, Path.home(), _SYSTEM), *_uv_files(os.environ, Path.home(), _SYSTEM))
    texts = (path.read_bytes() for path in places if os.access(path, os.R_OK) and path.is_file())
    named = (os.environ.get(name, "").encode() for name in (*_VARIABLES, *_EXTRA_VARIABLES))
    # To take these files apart costs more than to see that they hold none.
    if not any(b"@" in text for text in (*named, *texts)):
        return
    said = _from_pip(os.environ, Path.home(), _SYSTEM)
    found = _told(os.environ, said, Path.home(), _SYSTEM)
    told_by = found[1] if found is not None else "a setting of pip or uv"
    for url in (*((found[0].rstrip("/"),) if found is not None else ()), *_extra(os.environ, said)):
        yield url, told_by


_Found = tuple[str, str]


def _told(variables: Mapping[str, str], said: Mapping[str, _Found], home: Path, system: Path) -> _Found | None:
    """Return the index that stands in the place of the default."""
    return _from_variables(variables) or said.get("index-url") or _from_uv(variables, home, system)


def _extra(variables: Mapping[str, str], said: Mapping[str, _Found]) -> tuple[str, ...]:
    """Return the indexes that are asked too."""
    more = [word for name in _EXTRA_VARIABLES for word in variables.get(name, "").split()]
    more = more or said.get("extra-index-url", ("", ""))[0].split()
    return tuple(dict.fromkeys(_unnamed(word).rstrip("/") for word in more))


def _from_variables(variables: Mapping[str, str]) -> _Found | None:
    return next(((_unnamed(variables[name]), name) for name in _VARIABLES if variables.get(name)), None)


def _unnamed(text: str) -> str:
    """Return an address without the name that uv lets it have before it."""
    return text.partition("=")[2] if not text.startswith("http") and "=" in text else text


def _from_pip(variables: Mapping[str, str], home: Path, system: Path) -> Mapping[str, _Found]:
    """Return what pip's files say, setting → value and file.

    The later file wins, and what is said of one command over what is said of all, as pip reads them. Of the two
    commands that fetch wheels the word on downloads counts more, since that is what is done here.
    """
    said: dict[str, dict[str, _Found]] = {name: {} for name in _SECTIONS}
    for path in filter(Path.is_file, _pip_files(variables, home, system)):
        import configparser

        parser = configparser.RawConfigParser()
        try:
            parser.read_string(path.read_text(encoding="utf-8"))
        except (OSError, configparser.Error, UnicodeDecodeError):
            # pip refuses such a file whole; what was read of it before the fault is not a value yet.
            continue
        for section, found in said.items():
            if parser.has_section(section):
                values = {key.replace("_", "-"): value.strip() for key, value in parser.items(section)}
                found |= {key: (value, str(path)) for key, value in values.items() if value}
    return {key: found for name in _SECTIONS for key, found in said[name].items()}


def _at_home(path: str, home: Path) -> str:
    """Return a path whose ``~`` is spelled out, as pip does with the paths it is told."""
    return str(home / path[2:]) if path.startswith("~/") else path


def _pip_files(variables: Mapping[str, str], home: Path, system: Path) -> Iterator[Path]:
    named = variables.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in reversed(variables.get("XDG_CONFIG_DIRS", str(system / "xdg")).split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield system / "pip.conf"
    if not named or not Path(named).exists():
        # A file that is named takes the place of the user's.
        yield home / ".pip" / "pip.conf"
        yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(variables.get("VIRTUAL_ENV") or sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _from_uv(variables: Mapping[str, str], home: Path, system: Path) -> _Found | None:
    for path in filter(Path.is_file, _uv_files(variables, home, system)):
        import tomllib

        document: dict[str, object] = {}
        with suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = document.get("index")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("default") and isinstance(row.get("url"), str):
                return row["url"], str(path)
        single = document.get("index-url")
        if isinstance(single, str) and single:
            return single, str(path)
    return None


def _uv_files(variables: Mapping[str, str], home: Path, system: Path) -> tuple[Path, ...]:
    if named := variables.get("UV_CONFIG_FILE"):
        return (Path(named),)
    folder = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    return (folder / "uv" / "uv.toml", system / "uv" / "uv.toml")


def _default_of_pip() -> _Found | None:
    """Return the index of a pip that nobody configured; its address stands in no file of this program."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return None
    url = getattr(PyPI, "simple_url", None)
    return (url, "the default of pip") if isinstance(url, str) else None
