"""Chosen settings as the files that make them hold: variables of role gpu_nccl, an env file, kernel, limits, logind."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from provision.generate.cluster.manifest import to_yaml
from provision.generate.write import Artifact

FILES: dict[str, str] = {
    "nccl": "gpu_nccl.yml",
    "env": "tune.env",
    "sysctl": "90-provision-tune.conf",
    "limit": "90-provision-limits.conf",
    "logind": "90-provision-logind.conf",
}
"""Kind of a setting → the file it goes into; the other kinds are words for a person."""

_UNLIMITED = "unlimited"


def render_tuning(settings: Mapping[str, Mapping[str, str]], header: Sequence[str]) -> tuple[Artifact, ...]:
    """Return the files, none for a kind without settings.

    Args:
        settings: Kind → name → value; names and values are checked.
        header: Lines of comment.
    """
    artifacts = []
    for kind, path in FILES.items():
        chosen = dict(sorted(settings.get(kind, {}).items()))
        if chosen:
            artifacts.append(Artifact(path=path, text=_WRITERS[kind](chosen, header)))
    return tuple(artifacts)


def _nccl(settings: Mapping[str, str], header: Sequence[str]) -> str:
    return to_yaml(
        (*header, "Variables of role gpu_nccl, which writes /etc/nccl.conf."), ({"gpu_nccl_conf": settings},)
    )


def _env(settings: Mapping[str, str], header: Sequence[str]) -> str:
    # docker run --env-file takes values as they stand, without quotes.
    return _comment(header) + "".join(f"{name}={value}\n" for name, value in settings.items())


def _sysctl(settings: Mapping[str, str], header: Sequence[str]) -> str:
    return _comment(header) + "".join(f"{name} = {value}\n" for name, value in settings.items())


def _limit(settings: Mapping[str, str], header: Sequence[str]) -> str:
    return _comment((*header, "Belongs into /etc/security/limits.d/.")) + "".join(
        f"* {end} {name} {shlex.quote(value) if value != _UNLIMITED else value}\n"
        for name, value in settings.items()
        for end in ("soft", "hard")
    )


def _logind(settings: Mapping[str, str], header: Sequence[str]) -> str:
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    return f"{_comment((*header, 'Belongs into /etc/systemd/logind.conf.d/.'))}[Login]\n{lines}"


def _comment(lines: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in lines)


_WRITERS = {"nccl": _nccl, "env": _env, "sysctl": _sysctl, "limit": _limit, "logind": _logind}
