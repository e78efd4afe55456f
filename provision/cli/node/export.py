"""export and image: a site that runs without this program, and one that Packer bakes into a machine image."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.node.run import read_lock
from provision.cli.output import Output
from provision.cli.parser import add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.errors import ActionFailedError, UsageError, shown
from provision.files import write_whole
from provision.matrix.load import Matrix
from provision.versions import parse

if TYPE_CHECKING:
    from provision.generate.site import ImageOptions
    from provision.generate.write import Artifact

_ANSIBLE_CORE = re.compile(r'^\s*min_ansible_version:\s*"?([0-9.]+)"?\s*$', re.MULTILINE)
_INVENTORY = "inventory/hosts.yml"
_CONTROLLER_PYTHON = (3, 11)
"""The oldest Python that the ansible-core of the playbooks runs on."""
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/@-]{0,254}", re.IGNORECASE)
_ARCHIVE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,100}?)\.(?:tar\.gz|tgz)")


def configure_export(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    what = parser.add_argument_group("what to do")
    add_value(
        what,
        "--lock",
        "FILE",
        "lock written by `provision node lock` (default: the one shipped with the playbooks)",
        parse_path,
    )
    add_value(what, "--base-image", "IMAGE", "base image of the execution environment", _image)
    where = parser.add_argument_group("destination")
    add_value(
        where,
        "--output",
        "DIR",
        "output folder; files of an earlier export are removed, a filled-in inventory is kept",
        parse_path,
        short="-o",
        dest="folder",
    )
    add_value(where, "--archive", "FILE.tar.gz", "write an archive instead of, or in addition to, the folder", _archive)
    add_switch(where, "--force", "write to a folder that contains other files")


def configure_image(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``image``: those of ``export``, the system and the builders."""
    configure_export(parser)
    image = parser.add_argument_group("machine image")
    add_value(image, "--os", "NAME", "operating system of the image, as in debian12 (default: the lock's only one)")
    add_value(
        image,
        "--builder",
        "NAME,…",
        "builders of Packer: amazon-ebs, azure-arm, googlecompute, qemu (default: all of them)",
        _builders,
    )


def _builders(text: str) -> tuple[str, ...]:
    from provision.generate.site import BUILDERS

    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in names:
        if name not in BUILDERS:
            raise UsageError(f"--builder `{shown(name)}` is not known", hints=(f"choose from {', '.join(BUILDERS)}",))
    return tuple(sorted(names))


def _machine_image(options: argparse.Namespace, lock: Mapping[str, Any], matrix: Matrix) -> ImageOptions:
    """Return the machine image that is asked for, of a system that the lock has."""
    from provision.generate.site import BUILDERS, ImageOptions

    able = [
        str(os)
        for os, profile in sorted(lock["profiles"].items())
        if isinstance(profile, Mapping) and not profile.get("refusal")
    ]
    if options.os is None and len(able) != 1:
        raise UsageError(
            "an image is of one operating system, and the lock has several" if able else "the lock has no profile",
            hints=(f"choose one with `--os NAME`: {', '.join(able)}",) if able else (),
        )
    name = options.os or able[0]
    if name not in able:
        refusal = (lock["profiles"].get(name) or {}).get("refusal")
        raise UsageError(
            f"--os `{shown(name)}`: the lock has no profile of it",
            because=(str(refusal),) if refusal else (),
            hints=(f"it has {', '.join(able)}",),
        )
    row = matrix.os_release(name)
    packages: tuple[str, ...] = ()
    if row is not None and row.python is not None and parse(row.python).release >= _CONTROLLER_PYTHON:
        packages = ("git", "python3-venv") if row.package_format == "deb" else ("git", "python3")
    return ImageOptions(os=name, builders=options.builder or tuple(sorted(BUILDERS)), packages=packages)


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise UsageError(
            f"--base-image `{shown(text)}` is not an image", hints=("write it as in `registry.example/team/base:1`",)
        )
    return text


def _archive(text: str) -> Path:
    path = parse_path(text)
    if not _ARCHIVE.fullmatch(path.name):
        raise UsageError(
            f"--archive `{shown(text)}` ends neither with .tar.gz nor with .tgz",
            hints=("write it as in `--archive site.tar.gz`",),
        )
    return path


def run_export(options: argparse.Namespace, output: Output) -> int:
    """Render the site and write it."""
    from provision.assets import asset_dir
    from provision.generate.site import SiteOptions, pack_site, render_site, write_site

    if options.folder is None and options.archive is None:
        raise UsageError(f"{options.action} needs to know where to", hints=("name a folder with `-o DIR`",))
    playbooks = asset_dir("playbooks")
    lock = read_lock(options)
    matrix = read_matrix(options)
    site = SiteOptions(
        ansible_core=_ansible_core(playbooks),
        base_image=options.base_image,
        wheels=_wheels(lock.document, matrix),
        image=_machine_image(options, lock.document, matrix) if options.action == "image" else None,
    )
    kept: list[str] = []
    artifacts = render_site(lock.document, lock.text, playbooks, site)
    written: dict[str, Any] = {"files": [artifact.path for artifact in artifacts], "written": [], "removed": []}
    if options.folder is not None:
        changes = write_site(options.folder, artifacts, force=options.force, dry_run=output.is_dry_run)
        written |= {"written": list(changes.written), "removed": list(changes.removed)}
        verb = "would write" if output.is_dry_run else "wrote"
        what = f"{len(changes.written)} of {len(artifacts)} files"
        output.note(f"{verb} {options.folder}: {what}" if changes.written else f"{options.folder} is up to date")
        if changes.removed:
            output.note(
                f"{'would remove' if output.is_dry_run else 'removed'} {len(changes.removed)} of an earlier export"
            )
        kept = [
            path
            for path in written["files"]
            if path not in changes.written and _differs(options.folder, path, artifacts)
        ]
        if kept and not output.is_dry_run:
            output.note(f"kept what somebody has filled in: {' '.join(kept)}")
    if options.archive is not None:
        name = _ARCHIVE.fullmatch(options.archive.name)
        _save(options.archive, pack_site(artifacts, name["name"] if name else "site"), output)
    output.note(f"lock {lock.name}; facts of {lock.facts_date}")
    if not output.is_dry_run:
        output.note(f"next: {_next_step(options, is_filled_in=_INVENTORY in kept)}")
    document = {
        "action": options.action,
        "folder": None if options.folder is None else str(options.folder),
        "archive": None if options.archive is None else str(options.archive),
        "lock": {"name": lock.name, "digest": lock.digest, "facts_date": lock.facts_date},
        **written,
    }
    if output.is_json:
        output.give(document, "")
    return 0


def _next_step(options: argparse.Namespace, *, is_filled_in: bool) -> str:
    """Return what a person does with the site now."""
    if options.folder is None:
        return f"unpack {options.archive} where it is to run; README.md inside says the rest"
    folder = shlex.quote(str(options.folder))
    if options.action == "image":
        return f"{options.folder}/image/README.md says what to fill in and how to build"
    if is_filled_in:
        words = f"ansible-playbook -i {folder}/inventory {folder}/site.yml --check --diff"
        return f"`{words}` shows what it would change"
    return f"fill in {options.folder}/{_INVENTORY}; {options.folder}/README.md says the rest"


def _ansible_core(playbooks: Path) -> str:
    """Return the requirement that the roles themselves state."""
    text = (playbooks / "roles" / "gpu_facts" / "meta" / "main.yml").read_text(encoding="utf-8")
    found = _ANSIBLE_CORE.search(text)
    if found is None:
        raise UsageError("the playbooks do not say which ansible-core they need", hints=("install the package again",))
    return f"ansible-core>={found[1]}"


def _wheels(lock: Mapping[str, Any], matrix: Matrix) -> dict[str, Any]:
    """Return sha256 → file for every wheel of the lock that the facts know."""
    from provision.generate.site import WheelFile, read_requirements

    found: dict[str, Any] = {}
    for text in _requirements_of(lock):
        for name, version, _, _ in read_requirements(text):
            package = matrix.package(name)
            release = package.release(version) if package is not None and version is not None else None
            for wheel in release.wheels if release is not None else ():
                if wheel.sha256:
                    found[wheel.sha256.removeprefix("sha256:")] = WheelFile(file=wheel.file, url=wheel.url)
    return found


def _requirements_of(lock: Mapping[str, Any]) -> list[str]:
    """Return the requirements of every environment of a lock."""
    return [
        str(row.get("requirements", ""))
        for profile in lock["profiles"].values()
        if isinstance(profile, Mapping)
        for row in (profile.get("frameworks") or {}).get("environments") or ()
    ]


def _differs(folder: Path, path: str, artifacts: tuple[Artifact, ...]) -> bool:
    text = next(artifact.text for artifact in artifacts if artifact.path == path)
    try:
        return (folder / path).read_text(encoding="utf-8") != text
    except (OSError, UnicodeDecodeError):
        return False


def _save(path: Path, content: bytes, output: Output) -> None:
    if output.is_dry_run:
        output.note(f"would write {path}")
        return
    try:
        write_whole(path, content)
    except OSError as error:
        raise ActionFailedError(
            f"cannot write {path}",
            because=(error.strerror or str(error),),
            hints=("name another file with `--archive FILE.tar.gz`",),
        ) from error
    output.note(f"wrote {path}")
