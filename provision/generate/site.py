"""A self-contained site for one lock: the committed playbooks, the lock, and what people fill in or mirror.

The same lock gives the same bytes. What the playbooks hold is copied as it is; the rest comes from ``playbooks/site``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from provision.errors import ActionFailedError, ProvisionError, UsageError
from provision.generate.quote import finalize, quote_shell
from provision.generate.write import Artifact, Changes, write_artifacts
from provision.records import record
from provision.resolve.requirements import normalise_name

LOCK_PATH = "group_vars/all/provision_lock.yml"
SUMS = "SHA256SUMS"
"""Lists every other file of the site with its hash; also how a folder is known to be a site."""


@record
class Builder:
    """A builder of Packer: what it makes, the plugin that brings it, and the variables that have no default."""

    title: str
    plugin: str
    needs: tuple[str, ...]


BUILDERS = {
    "amazon-ebs": Builder(
        title="an Amazon machine image", plugin="amazon", needs=("amazon_region", "amazon_source_ami")
    ),
    "azure-arm": Builder(
        title="a managed image of Azure",
        plugin="azure",
        needs=(
            *("azure_subscription", "azure_location", "azure_resource_group"),
            *("azure_publisher", "azure_offer", "azure_sku"),
        ),
    ),
    "googlecompute": Builder(
        title="an image of Google Compute Engine",
        plugin="googlecompute",
        needs=("google_project", "google_zone", "google_source_image", "google_source_project"),
    ),
    "qemu": Builder(title="a disk for QEMU", plugin="qemu", needs=("qemu_source", "qemu_seed", "qemu_ssh_key")),
}
"""The builders that there are templates for, by Packer's names."""

_COPIED = ("gpu-*.yml", "roles/**/*", "tasks/**/*", "filter_plugins/*.py")
_LEFT_OUT = frozenset({"__pycache__", "molecule", "tests"})
_SUM = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][^\x00-\x1f\x7f\\]{0,500})")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9-]+")
"""Not every cloud takes it in the name of an image."""
_NAME_MAX = 48
"""Google takes 63 characters, fifteen of them the time of the build."""
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==\s*(?P<version>[A-Za-z0-9.!+_-]+)|@\s*(?P<url>\S+))")
_HASH = re.compile(r"--hash[= ]sha256:([0-9a-f]{64})")
_FILE_BYTES_MAX = 4 * 1024 * 1024
_TEMPLATES = {
    "site.yml.j2": "site.yml",
    "README.md.j2": "README.md",
    "execution-environment.yml.j2": "execution-environment.yml",
    "inventory/hosts.yml.j2": "inventory/hosts.yml",
    "inventory/group_vars.yml.j2": "inventory/group_vars/gpu_nodes.yml",
    "pull/hosts.yml.j2": "pull/hosts.yml",
}


@record
class WheelFile:
    """A wheel that the facts know by its hash; ``url`` is absent where it is on PyPI."""

    file: str
    url: str | None = None


@record
class ImageOptions:
    """The machine image that a site is made for.

    Attributes:
        os: Profile of the lock (``debian12``).
        builders: Builders of Packer, of :data:`BUILDERS`.
        packages: What cloud-init installs so that a plain machine of it can run ansible-core; empty where it cannot.
    """

    os: str
    builders: tuple[str, ...]
    packages: tuple[str, ...] = ()


@record
class SiteOptions:
    """What a site is made for, beyond its lock.

    Attributes:
        ansible_core: Requirement of ansible-core for the execution environment (``ansible-core>=…``).
        base_image: Image to build the execution environment on.
        wheels: sha256 → the wheel.
        image: The machine image to build by Packer, if any.
    """

    ansible_core: str
    base_image: str | None = None
    wheels: Mapping[str, WheelFile]
    image: ImageOptions | None = None


def render_site(lock: Mapping[str, Any], lock_text: str, playbooks: Path, options: SiteOptions) -> tuple[Artifact, ...]:
    """Return every file of a site, sorted by path.

    Args:
        lock: The mapping ``provision_lock``.
        lock_text: The same as the file that Ansible reads.
        playbooks: The folder of the committed playbooks.
        options: What the site is made for.

    Raises:
        ProvisionError: The playbooks hold what cannot be copied, or a template is broken.
        UsageError: The lock holds what cannot be written down.
    """
    texts = dict(_copy(playbooks))
    texts[LOCK_PATH] = (lock_text, 0o644)
    environments = list(_environments(lock))
    requirements = {f"requirements/{os}-{name}.txt": (python, text) for os, name, python, text in environments}
    for path, (_, text) in requirements.items():
        texts[path] = (text if text.endswith("\n") else text + "\n", 0o644)
    texts["wheelhouse.txt"] = (_write_wheelhouse(lock, [row[3] for row in environments], options.wheels), 0o644)
    for os, profile in sorted(_profiles(lock).items()):
        texts[f"packages/{os}.txt"] = (_write_packages(lock, os, profile), 0o644)
    values = {
        "name": lock["name"],
        "digest": lock["digest"],
        "facts_date": lock["facts_date"],
        "ansible_core": options.ansible_core,
        "base_image": options.base_image or "",
        "requirements": [{"path": path, "python": python} for path, (python, _) in sorted(requirements.items())],
        "profiles": [_describe(os, profile) for os, profile in sorted(_profiles(lock).items())],
    }
    for template, path in _TEMPLATES.items():
        texts[path] = (_render(playbooks / "site", template, values), 0o644)
    if options.image is not None:
        texts |= _render_image(playbooks / "site", values, options.image)
    texts[SUMS] = (_sum(texts), 0o644)
    return tuple(Artifact(path=path, text=texts[path][0], mode=texts[path][1]) for path in sorted(texts))


def _render_image(
    folder: Path, values: Mapping[str, Any], image: ImageOptions
) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the files of a machine image: a template of Packer, and what it runs."""
    values = {
        **values,
        "system": image.os,
        "image_name": _NOT_IN_A_NAME.sub("-", f"gpu-node-{image.os}-{values['name']}")[:_NAME_MAX].strip("-"),
        "builders": image.builders,
        "builders_of": BUILDERS,
        "plugins": [BUILDERS[builder].plugin for builder in image.builders],
        "packages": image.packages,
    }
    left_out = {f"{builder}.pkr.hcl" for builder in BUILDERS if builder not in image.builders}
    if not image.packages:
        left_out.add("user-data.yml.j2")
    for path in sorted((folder / "image").iterdir()):
        if path.name in left_out:
            continue
        if path.suffix == ".j2":
            yield f"image/{path.stem}", (_render(folder, f"image/{path.name}", values), 0o644)
        else:
            mode = 0o755 if path.suffix == ".sh" else 0o644
            yield f"image/{path.name}", (path.read_text(encoding="utf-8"), mode)


def write_site(folder: Path, artifacts: tuple[Artifact, ...], *, force: bool = False, dry_run: bool = False) -> Changes:
    """Write a site, and take away what an earlier export of another lock has left.

    Only files that the earlier list names and that nobody has edited are taken away; what people added stays.

    Raises:
        UsageError: The folder is not empty and no site, or a file of the site was edited.
        ActionFailedError: The folder cannot be written.
    """
    wanted = {artifact.path: artifact for artifact in artifacts}
    try:
        before = _read_sums(folder)
        if not force and folder.is_dir() and before is None and any(folder.iterdir()):
            raise UsageError(
                f"{folder} holds what was not written by this program",
                because=(f"it is not empty, and has no {SUMS} of a site",),
                hints=("choose another folder with `-o DIR`", "write into it with `--force`"),
            )
        _reject_links(folder, {*wanted, *(before or {})})
        edited = [
            path
            for path, digest in (before or {}).items()
            if path in wanted and path in _FILLED_IN and _digest_of(folder / path) not in (None, digest)
        ]
        # An inventory that somebody has filled in is theirs.
        kept = tuple(artifact for artifact in artifacts if artifact.path not in edited or force)
        stale = [
            folder / path
            for path, digest in (before or {}).items()
            if path not in wanted and _digest_of(folder / path) == digest
        ]
    except OSError as error:
        raise ActionFailedError(f"cannot look into {folder}", because=(error.strerror or str(error),)) from error
    changes = write_artifacts(folder, kept, force=True, dry_run=dry_run)
    if not dry_run:
        _remove(folder, stale)
    removed = tuple(path.relative_to(folder).as_posix() for path in stale)
    return Changes(written=changes.written, removed=removed)


_FILLED_IN = ("inventory/hosts.yml", "inventory/group_vars/gpu_nodes.yml", "pull/hosts.yml")


def pack_site(artifacts: tuple[Artifact, ...], name: str) -> bytes:
    """Return the site as ``.tar.gz``, the same bytes for the same site.

    Args:
        artifacts: The files.
        name: The folder they lie in.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for artifact in artifacts:
            content = artifact.text.encode()
            entry = tarfile.TarInfo(f"{name}/{artifact.path}")
            entry.size, entry.mode = len(content), artifact.mode
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def _copy(playbooks: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    paths = {path for pattern in _COPIED for path in playbooks.glob(pattern)}
    for path in sorted(paths):
        relative = path.relative_to(playbooks)
        if not path.is_file() or path.is_symlink() or _LEFT_OUT & set(relative.parts) or path.suffix == ".pyc":
            continue
        content = path.read_bytes()
        if len(content) > _FILE_BYTES_MAX:
            raise ProvisionError(f"{path} is too large for a site")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ProvisionError(f"{path} is not text, and a site holds nothing else") from error
        yield relative.as_posix(), (text, 0o755 if path.stat().st_mode & 0o100 else 0o644)


def _profiles(lock: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    profiles = lock.get("profiles")
    if not isinstance(profiles, Mapping):
        raise UsageError("the lock has no profiles")
    for name in profiles:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,40}", str(name)):
            raise UsageError(f"the lock's profile {str(name)[:40]!a} is not a system name")
    return {str(os): profile for os, profile in profiles.items() if isinstance(profile, Mapping)}


def _environments(lock: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield system, name, Python and requirements of each environment, in order."""
    for os, profile in sorted(_profiles(lock).items()):
        part = profile.get("frameworks") or {}
        for row in part.get("environments") or ():
            name = str(row["name"])
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
                raise UsageError(f"the lock's environment {name[:40]!a} has no proper name")
            yield os, name, str(part.get("python") or ""), str(row["requirements"])


def read_requirements(text: str) -> Iterator[tuple[str, str | None, str | None, tuple[str, ...]]]:
    """Yield name, version, address and hashes of every requirement of a pip file, in order."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = line.partition(" #")[0].strip()
        found = None if words.startswith(("#", "-")) else _NAMED.match(words)
        if found:
            name = normalise_name(found["name"])
            yield name, found["version"], found["url"], tuple(_HASH.findall(words))


def _write_wheelhouse(lock: Mapping[str, Any], texts: list[str], wheels: Mapping[str, WheelFile]) -> str:
    rows: set[tuple[str, str, str, str]] = set()
    for text in texts:
        for name, version, url, hashes in read_requirements(text):
            for digest in hashes or ("",):
                known = wheels.get(digest)
                file = known.file if known else (PurePosixPath(url.partition("#")[0]).name if url else "-")
                place = url or (known.url if known else None) or "index"
                rows.add((name, version or "-", file, f"{place}\t{f'sha256:{digest}' if digest else 'unverified'}"))
    head = [
        f"# provision_lock {lock['digest']}",
        "# Every wheel of every environment: name, version, file, address, hash.",
        "# `index`: any index of packages has it.",
        "# `-`: the facts do not know the file; the hash decides.",
    ]
    return "\n".join([*head, *("\t".join(row) for row in sorted(rows))]) + "\n"


def _write_packages(lock: Mapping[str, Any], os: str, profile: Mapping[str, Any]) -> str:
    lines = [f"# provision_lock {lock['digest']}", f"# Packages of {os}, as apt takes them."]
    if profile.get("refusal"):
        return "\n".join([*lines, *(f"# {line}" for line in str(profile["refusal"]).splitlines())]) + "\n"
    for row in (profile.get("repos") or {}).get("sources") or ():
        where = " ".join(
            str(word) for word in (row.get("uri"), row.get("suite"), *(row.get("components") or ())) if word
        )
        lines.append(f"# repository {row.get('id')}: {where}")
    words = set(_find_packages(profile))
    return "\n".join([*lines, *sorted(words)]) + "\n"


def _find_packages(value: object) -> Iterator[str]:
    """Yield ``name=version`` for everything in a profile that is written as a package."""
    if isinstance(value, Mapping):
        name, version = value.get("name"), value.get("version")
        if isinstance(name, str) and "version" in value and (version is None or isinstance(version, str)):
            yield f"{name}={version}" if version else name
            return
        for key, item in value.items():
            if key == "kernel" and isinstance(item, Mapping):
                yield from (str(word) for word in (item.get("headers"), *(item.get("build") or ())) if word)
            elif key != "environments":
                yield from _find_packages(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _find_packages(item)


def _describe(os: str, profile: Mapping[str, Any]) -> dict[str, str]:
    """Return the row of a profile in the table."""
    if profile.get("refusal"):
        return {"os": os, "driver": "refused", "cuda": "-", "frameworks": "-"}
    driver = profile.get("driver") or {}
    cuda = profile.get("cuda") or {}
    frameworks = profile.get("frameworks") or {}
    names = [
        f"{name} {version}"
        for row in frameworks.get("environments") or ()
        for name, version in sorted((row.get("versions") or {}).items())
    ]
    return {
        "os": os,
        "driver": str(driver.get("version") or "-"),
        "cuda": ", ".join(map(str, cuda.get("versions") or ())) or "-",
        "frameworks": ", ".join(dict.fromkeys(names)) or "-",
    }


def _sum(texts: Mapping[str, tuple[str, int]]) -> str:
    rows = sorted((path, hashlib.sha256(text.encode()).hexdigest()) for path, (text, _) in texts.items())
    return "".join(f"{digest}  {path}\n" for path, digest in rows)


def _read_sums(folder: Path) -> dict[str, str] | None:
    """Return path → hash of the site that is there, or nothing where there is none."""
    try:
        text = (folder / SUMS).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _SUM.fullmatch(line)
        if match is None or ".." in PurePosixPath(match[2]).parts:
            return None
        found[match[2]] = match[1]
    return found if LOCK_PATH in found and "site.yml" in found else None


def _reject_links(folder: Path, paths: Iterable[str]) -> None:
    """Refuse a folder of the site that is a link: what is written or taken away below it lies elsewhere."""
    below = {str(parent) for path in paths for parent in PurePosixPath(path).parents} - {"."}
    for name in sorted(below):
        if (folder / name).is_symlink():
            raise UsageError(
                f"{folder / name} is a link",
                because=("writing through it would change files elsewhere",),
                hints=("remove the link, or choose another folder with `-o DIR`",),
            )


def _digest_of(path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _remove(folder: Path, paths: list[Path]) -> None:
    """Remove files and the folders that are empty without them."""
    try:
        for path in paths:
            path.unlink(missing_ok=True)
            for parent in path.parents:
                if parent == folder or any(parent.iterdir()):
                    break
                parent.rmdir()
    except OSError as error:
        raise ActionFailedError(
            f"cannot take away what an earlier export left in {folder}", because=(error.strerror or str(error),)
        ) from error


def _render(folder: Path, template: str, values: Mapping[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

    # Nothing of this is HTML; finalize and the filters guard what is printed.
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    environment.filters["sh"] = quote_shell
    environment.filters["hcl"] = lambda value: json.dumps(finalize(value)).replace("${", "$${").replace("%{", "%%{")
    environment.filters["yaml"] = lambda value: json.dumps(finalize(value), ensure_ascii=False)
    try:
        return environment.get_template(template).render(values)
    except TemplateError as error:
        raise ProvisionError(f"the template {template} cannot be rendered", because=(str(error),)) from error
