"""Settings of a project for check: `[tool.provision.check]` in pyproject.toml, `[check]` in provision.toml."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from provision.audit.model import SEVERITIES
from provision.cli.parser import did_you_mean
from provision.errors import UsageError, shown
from provision.records import record

CONFIG_NAMES = ("provision.toml", "pyproject.toml")
"""Where settings are looked for in a folder; the first one that has the table counts."""
THRESHOLDS = (*reversed(SEVERITIES), "never")
_TABLES = {"pyproject.toml": ("tool", "provision", "check")}
_TABLE = ("check",)
_KEYS = ("select", "ignore", "per-file-ignores", "target", "exclude", "fail-on", "baseline")
_TARGET_KEYS = ("gpu", "driver", "python")
_BYTES_MAX = 4 * 1024 * 1024
_ALL = "ALL"


@record
class Config:
    """Settings of one file.

    Attributes:
        file: The file as messages show it; empty where there is none.
        folder: What patterns and the baseline are relative to.
        select: Words for rules to run, ``None`` for the usual ones.
        ignore: Words for rules to leave out.
        per_file: Patterns of files, each with words for rules to leave out there.
        exclude: Patterns of files and folders that are not looked for.
        fail_on: Mildest severity that fails, ``None`` where it does not say.
        gpus: GPUs that it must run on.
        driver: Driver of the hosts.
        python: The Python in force.
        baseline: File of known findings.
    """

    file: str = ""
    folder: Path = Path()
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    fail_on: str | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    python: str | None = None
    baseline: Path | None = None


def named_rules(origin: str, texts: Iterable[str], known: Sequence[str]) -> set[str]:
    """Return the rules that lists of ids and of their letters name.

    Args:
        origin: The flag, or the file and its key, for the message.
        texts: Words, or several with commas between.
        known: Every rule.

    Raises:
        UsageError: A word is not a rule, and no letter of any.
    """
    found: set[str] = set()
    for text in texts:
        for word in (part.strip().upper() for part in text.split(",")):
            is_group = word.isalpha()
            fitting = {name for name in known if name == word or (is_group and (word == _ALL or name.startswith(word)))}
            if not fitting:
                hints = (*did_you_mean(word, known), "`provision check --list-rules` lists them")
                raise UsageError(f"{origin} `{shown(word)}` is not a rule", hints=hints)
            found |= fitting
    return found


def nearest_config(folder: Path, known: Sequence[str], seen: dict[Path, Config]) -> Config:
    """Return the settings of the nearest folder, upwards, that has some; empty ones where none has.

    Args:
        folder: Where a checked file lies, absolute.
        known: Every rule.
        seen: What earlier calls found, by folder; filled.

    Raises:
        UsageError: The file that counts is malformed.
    """
    if folder in seen:
        return seen[folder]
    found = next((made for name in CONFIG_NAMES if (made := read_config(folder / name, known)) is not None), None)
    if found is None:
        found = nearest_config(folder.parent, known, seen) if folder.parent != folder else Config(folder=folder)
    seen[folder] = found
    return found


def read_config(path: Path, known: Sequence[str], *, is_named: bool = False) -> Config | None:
    """Read the settings of one file.

    Args:
        path: The file.
        known: Every rule.
        is_named: A person named it: it must be there and have the table.

    Returns:
        ``None`` where the file is not there or has no such table.

    Raises:
        UsageError: It is malformed, or holds a key, a value or a rule that is none.
    """
    name = _shown(path)
    text = _read(path, name, is_named=is_named)
    if text is None:
        return None
    keys = _TABLES.get(path.name, _TABLE)
    if not is_named and path.name in _TABLES and not all(key in text for key in keys[:2]):
        # Most projects have no such table, and reading TOML takes longer than looking for the word.
        return None
    import tomllib

    try:
        data: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        if not is_named and path.name in _TABLES:
            # A project that is checked too is told of it there.
            return None
        raise UsageError(f"{name} is not TOML", because=(str(error),)) from error
    if path.name not in _TABLES and not set(data) <= {_TABLE[0]}:
        wrong = next(key for key in data if key != _TABLE[0])
        raise _unknown(name, wrong, _TABLE)
    for place, key in enumerate(keys):
        if not isinstance(data, dict) or key not in data:
            if isinstance(data, dict) and place == len(keys) - 1 and place and data:
                raise _unknown(name, ".".join((*keys[:place], next(iter(data)))), (".".join(keys),))
            if is_named:
                raise UsageError(f"{name} has no table `{'.'.join(keys)}`", hints=("it holds the settings of check",))
            return None
        data = data[key]
    return _Reader(name, ".".join(keys), known).read(data, path.absolute().parent)


def _shown(path: Path) -> str:
    """Return a path as messages show it: below the folder here without what leads to it."""
    whole = path.absolute()
    return whole.relative_to(Path.cwd()).as_posix() if whole.is_relative_to(Path.cwd()) else path.as_posix()


def _read(path: Path, name: str, *, is_named: bool) -> str | None:
    try:
        if not path.is_file():
            if is_named:
                raise UsageError(f"--config {name}: no such file", hints=("`--no-config` does without one",))
            return None
        if path.stat().st_size > _BYTES_MAX:
            raise UsageError(f"{name} is larger than settings can be")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{name} cannot be read", because=(error.strerror or str(error),)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text", because=(f"byte {error.start} is none",)) from error


def _unknown(name: str, key: str, known: Iterable[str]) -> UsageError:
    names = tuple(known)
    near = did_you_mean(key, names) or did_you_mean(key.rpartition(".")[2], names)
    return UsageError(f"{name}: unknown setting `{shown(key)}`", hints=(*near, f"settings: {', '.join(names)}"))


class _Reader:
    """Turns a table into settings, and names file and key of what is none.

    Args:
        name: The file.
        table: The table's name.
        known: Every rule.
    """

    def __init__(self, name: str, table: str, known: Sequence[str]) -> None:
        self.name = name
        self.table = table
        self.known = known

    def read(self, data: Any, folder: Path) -> Config:
        table = self._table(data, self.table)
        self._keys(table, _KEYS)
        target = self._table(table.get("target", {}), "target")
        self._keys(target, _TARGET_KEYS, "target.")
        per_file = self._table(table.get("per-file-ignores", {}), "per-file-ignores")
        gpu = target.get("gpu", [])
        fail_on = self._text(table, "fail-on")
        if fail_on is not None and fail_on not in THRESHOLDS:
            hints = (*did_you_mean(fail_on, THRESHOLDS), f"one of {', '.join(THRESHOLDS)}")
            raise UsageError(f"{self.name}: fail-on `{shown(fail_on)}` is none", hints=hints)
        baseline = self._text(table, "baseline")
        return Config(
            file=self.name,
            folder=folder,
            select=self._rules(table["select"], "select") if "select" in table else None,
            ignore=self._rules(table.get("ignore", []), "ignore"),
            per_file=tuple((key, self._rules(value, f"per-file-ignores.{key}")) for key, value in per_file.items()),
            exclude=self._list(table.get("exclude", []), "exclude"),
            fail_on=fail_on,
            gpus=(gpu,) if isinstance(gpu, str) else self._list(gpu, "target.gpu"),
            driver=self._text(target, "driver", "target."),
            python=self._text(target, "python", "target."),
            baseline=folder / baseline if baseline is not None else None,
        )

    def _table(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UsageError(f"{self.name}: `{key}` is not a table", hints=(f"write it as `[{self.table}]` and keys",))
        return value

    def _keys(self, table: dict[str, Any], known: Sequence[str], prefix: str = "") -> None:
        for key in table:
            if key not in known:
                raise _unknown(self.name, f"{prefix}{key}", [f"{prefix}{name}" for name in known])

    def _text(self, table: dict[str, Any], key: str, prefix: str = "") -> str | None:
        value = table.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            hints = (f'write it as a text: `{key} = "…"`',)
            raise UsageError(f"{self.name}: `{prefix}{key}` is not text", hints=hints)
        return value

    def _list(self, value: Any, key: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise UsageError(f"{self.name}: `{key}` is not a list of texts", hints=('write it as `["…", "…"]`',))
        return tuple(value)

    def _rules(self, value: Any, key: str) -> tuple[str, ...]:
        words = self._list(value, key)
        named_rules(f"{self.name}: {key}", words, self.known)
        return words


def fits(pattern: str, path: Path, folder: Path) -> bool:
    """Tell whether a pattern names a file or a folder above it: by its name, or by its path below a folder.

    Args:
        pattern: ``*``, ``?`` and ``[…]`` stand for characters, also for slashes.
        path: The file.
        folder: Where the path of the pattern begins.
    """
    from fnmatch import fnmatchcase

    whole = path.absolute()
    if not whole.is_relative_to(folder):
        return False
    inner = PurePosixPath(whole.relative_to(folder).as_posix())
    bare = pattern.removeprefix("./").rstrip("/")
    below = [inner, *(parent for parent in inner.parents if parent.name)]
    return any(fnmatchcase(str(item), bare) or ("/" not in bare and fnmatchcase(item.name, bare)) for item in below)
