"""How each checked file is judged: by the flags, and where they are silent by the nearest settings."""

from __future__ import annotations

import argparse
from functools import cached_property
from pathlib import Path

from provision.audit.engine import Scope
from provision.audit.model import SEVERITIES, Finding, Options
from provision.cli.check.config import Config, fits, named_rules, nearest_config, read_config
from provision.errors import ProvisionError, UsageError, shown
from provision.matrix.load import Matrix
from provision.versions import minor_of

_FAIL_ON = "error"
_NEVER = "never"


class Scopes:
    """Options and rules of every file of one run.

    Args:
        options: The flags; they win over settings.
        matrix: The facts.
    """

    def __init__(self, options: argparse.Namespace, matrix: Matrix) -> None:
        self._flags = options
        self._matrix = matrix
        self._known = tuple(matrix.audit_rules)
        self._configs: dict[Path, Config] = {}
        self._scopes: dict[str, Scope] = {}
        self._options: dict[str, Options] = {}
        self._only: Config | None = Config() if options.no_config else None
        if options.config is not None:
            self._only = read_config(options.config, self._known, is_named=True)
        # What the flags say wrongly is told before any file is read.
        self.usual = self._make(Config(), None)

    @cached_property
    def _here(self) -> Path:
        return Path.cwd()

    def config(self, file: str) -> Config:
        """Return the settings that hold for a file."""
        if self._only is not None:
            return self._only
        folder = self._here.joinpath(file).parent
        return nearest_config(folder, self._known, self._configs)

    def of(self, file: str) -> Scope:
        """Return how a file is judged."""
        if file not in self._scopes:
            self._scopes[file] = self._make(self.config(file), self._here / file)
        return self._scopes[file]

    def is_excluded(self, path: Path) -> bool:
        """Tell whether settings keep a file or folder from being looked for."""
        config = self.config(str(path))
        return any(fits(pattern, path, config.folder) for pattern in config.exclude)

    def is_failing(self, finding: Finding) -> bool:
        """Tell whether a finding is at or above what fails the run."""
        threshold = self._flags.fail_on or self.config(finding.span.file).fail_on or _FAIL_ON
        return threshold != _NEVER and SEVERITIES.index(finding.severity) >= SEVERITIES.index(threshold)

    def _make(self, config: Config, path: Path | None) -> Scope:
        if config.file not in self._options:
            self._options[config.file] = self._read_options(config)
        return Scope(options=self._options[config.file], rules=frozenset(self._rules(config, path)))

    def _rules(self, config: Config, path: Path | None) -> set[str]:
        """Return the rules that run: those of hygiene, which others own, only where one asks."""
        flags, known = self._flags, self._known
        if flags.select:
            wanted = named_rules("--select", flags.select, known)
        elif config.select is not None:
            wanted = named_rules("select", config.select, known)
        else:
            wanted = set(known).difference(self._matrix.setting("audit_rules.toml", "hygiene_rules").values)
        if flags.ignore:
            wanted -= named_rules("--ignore", flags.ignore, known)
        else:
            wanted -= named_rules("ignore", config.ignore, known)
        for pattern, words in config.per_file:
            if path is not None and fits(pattern, path, config.folder):
                wanted -= named_rules("per-file-ignores", words, known)
        return wanted

    def _read_options(self, config: Config) -> Options:
        flags = self._flags
        gpus, driver, python = tuple(flags.gpu or ()), flags.driver, flags.python
        try:
            target = _read_target(self._matrix, gpus or config.gpus, driver or config.driver, python or config.python)
        except ProvisionError as error:
            is_told = any((not gpus and config.gpus, not driver and config.driver, not python and config.python))
            if not config.file or not is_told:
                raise
            raise UsageError(
                f"{config.file}: target: {error.message}", because=error.because, hints=error.hints
            ) from error
        gpus, driver, python = target
        return Options(
            gpus=gpus,
            driver=driver,
            platforms=tuple(dict.fromkeys(flags.platform or ())),
            python=python,
            build_args=_read_arguments(flags),
            target=flags.target or "",
        )


def _read_target(
    matrix: Matrix, gpus: tuple[str, ...], driver: str | None, python: str | None
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return GPUs, driver and Python, each known to be one."""
    from provision.resolve.request import parse_request

    if gpus:
        from provision.matrix.query import find_gpus

        for name in gpus:
            find_gpus(matrix, name)
    if driver == "host":
        from provision.cli.host import read_host_driver

        driver = read_host_driver()
    asked = parse_request({"driver": driver, "python": python})
    if asked.python is not None and not all(part.isdigit() for part in asked.python.removesuffix("t").split(".")):
        raise UsageError(f"--python `{shown(str(python))}` is not a version", hints=("write it as in `--python 3.11`",))
    return gpus, asked.driver, minor_of(asked.python) if asked.python else None


def _read_arguments(flags: argparse.Namespace) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for pair in flags.build_arg or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--build-arg `{shown(pair)}` is not NAME=VALUE", hints=("write it as in `--build-arg CUDA=…`",)
            )
        arguments[name] = value
    return arguments
