"""Which package index to read: the one that the installers of this machine are told to use."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from provision.errors import MissingDependencyError
from provision.records import record

__all__ = ["IndexAddress", "find_index"]

_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE")


@record
class IndexAddress:
    """A package index.

    Attributes:
        url: Its root, without a slash at the end.
        told_by: What named it: a variable, a file, or pip's own default.
        ca_bundle: Certificates that pip is told to trust.
    """

    url: str
    told_by: str
    ca_bundle: str | None = None


def find_index(
    environment: Mapping[str, str] | None = None, *, home: Path | None = None, system: Path = Path("/etc")
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
    bundle = next((variables[name] for name in _CERTIFICATES if variables.get(name)), None)
    found = _from_variables(variables) or _from_pip(variables, home, system) or _from_uv(variables, home, system)
    if found is None:
        found = _default_of_pip()
    if found is None:
        raise MissingDependencyError(
            "no package index is known",
            because=("no variable and no configuration of pip or uv names one, and pip is not installed",),
            hints=(f"set {' or '.join(_VARIABLES)}", "or name one with `--index-url URL`"),
        )
    url, told_by, cert = found
    return IndexAddress(url=url.rstrip("/"), told_by=told_by, ca_bundle=bundle or cert)


_Found = tuple[str, str, str | None]


def _from_variables(variables: Mapping[str, str]) -> _Found | None:
    for name in _VARIABLES:
        value = variables.get(name, "")
        if value:
            # uv lets an index have a name before its address.
            return value.partition("=")[2] if not value.startswith("http") and "=" in value else value, name, None
    return None


def _from_pip(variables: Mapping[str, str], home: Path, system: Path) -> _Found | None:
    """Return what pip's files say; the later file wins, as pip reads them."""
    url = cert = None
    told_by = ""
    for path in _pip_files(variables, home, system):
        parser = configparser.RawConfigParser()
        with suppress(OSError, configparser.Error, UnicodeDecodeError):
            parser.read_string(path.read_text(encoding="utf-8"))
        for section in ("global", "download"):
            if parser.has_section(section):
                values = {key.replace("_", "-"): value for key, value in parser.items(section)}
                if values.get("index-url"):
                    url, told_by = values["index-url"].strip(), str(path)
                cert = values.get("cert") or cert
    return (url, told_by, cert) if url else None


def _pip_files(variables: Mapping[str, str], home: Path, system: Path) -> Iterator[Path]:
    named = variables.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in reversed(variables.get("XDG_CONFIG_DIRS", str(system / "xdg")).split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield system / "pip.conf"
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(variables.get("VIRTUAL_ENV") or sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def _from_uv(variables: Mapping[str, str], home: Path, system: Path) -> _Found | None:
    import tomllib

    named = variables.get("UV_CONFIG_FILE")
    folder = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    for path in [Path(named)] if named else [folder / "uv" / "uv.toml", system / "uv" / "uv.toml"]:
        document: dict[str, object] = {}
        with suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = document.get("index")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("default") and isinstance(row.get("url"), str):
                return row["url"], str(path), None
        single = document.get("index-url")
        if isinstance(single, str) and single:
            return single, str(path), None
    return None


def _default_of_pip() -> _Found | None:
    """Return the index of a pip that nobody configured; its address stands in no file of this program."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return None
    url = getattr(PyPI, "simple_url", None)
    return (url, "the default of pip", None) if isinstance(url, str) else None
