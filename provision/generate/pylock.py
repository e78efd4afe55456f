"""A Stack to ``pylock.toml`` (PEP 751): every wheel by hash, for installers that read such locks.

The standard wants an address or a path for each file. Where the facts hold no address, because a wheel comes from
the default index, the path names the file in a folder ``wheels`` beside the lock, unless the caller has asked an
index for addresses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from provision.errors import UnknownError, UsageError
from provision.generate.image import ImageOptions, check_value, to_artifacts, unlocked_lines
from provision.generate.requirements import REQUIREMENTS, check_has_python
from provision.generate.write import Artifact
from provision.records import NOTHING
from provision.resolve.requirements import normalise_name
from provision.resolve.stack import LockedPackage, Stack

PYLOCK = "pylock.toml"
WHEELS = "wheels"
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_FIRST = 'lock-version = "1.0"'


def render_pylock(
    stack: Stack, options: ImageOptions | None = None, *, urls: Mapping[str, str] = NOTHING
) -> tuple[Artifact, ...]:
    """Write the environment of a stack down as a standard lock.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: With an index, no address of the facts is written.
        urls: Package → address of its file, as an index gave them.

    Returns:
        ``pylock.toml`` and ``provision.lock``.

    Raises:
        UnknownError: The facts hold no hash for a package.
        UsageError: The stack has no Python, or lines of the user are not locked.
    """
    check_has_python(stack, "a pylock")
    options = options or ImageOptions()
    image = stack.image
    packages = sorted(image.packages, key=lambda package: package.name) if image is not None else []
    bare = [package.name for package in packages if package.sha256 is None or package.file is None]
    if bare:
        raise UnknownError(
            f"a pylock needs the hash of every file, and the facts hold none for {', '.join(bare)}",
            hints=("add `--fetch-hashes` to ask their index", "or write `--format requirements`, which says so"),
        )
    if image is not None and (lines := unlocked_lines(image)):
        raise UsageError(
            f"a pylock holds only what is locked, and `{lines[0]}` is not",
            because=("lines of yours and of extras are resolved when the image is built",),
            hints=("leave `-r` and `--with` out, or write `--format requirements`",),
        )
    environment = f"sys_platform == 'linux' and platform_machine == '{_MACHINES[stack.platform]}'"
    pythons = f"=={(stack.python or '').rstrip('t')}.*"
    text = [
        f"# provision.lock {stack.lock_digest}",
        f"# {stack.name}: facts of {stack.facts_date}. Written by `provision image`; edits here count as drift.",
        *_how(packages, options, urls),
        _FIRST,
        f"environments = [{_quote(environment)}]",
        f"requires-python = {_quote(pythons)}",
        'created-by = "provision"',
    ]
    for package in packages:
        text += _package(package, options, urls)
    return to_artifacts({PYLOCK: "\n".join(text) + "\n", "provision.lock": stack.to_lock()})


def _how(packages: list[LockedPackage], options: ImageOptions, urls: Mapping[str, str]) -> list[str]:
    if all(_url(package, options, urls) for package in packages):
        return []
    return [
        f"# The files without an address belong into the folder {WHEELS}/ beside this file. The same command with",
        f"# `--format requirements` writes {REQUIREMENTS}, from which",
        f"# `pip download --no-deps --require-hashes -d {WHEELS} -r {REQUIREMENTS}` puts them there.",
    ]


def _url(package: LockedPackage, options: ImageOptions, urls: Mapping[str, str]) -> str | None:
    own = package.url if options.index_url is None else None
    return urls.get(package.name) or own


def _package(package: LockedPackage, options: ImageOptions, urls: Mapping[str, str]) -> list[str]:
    name = normalise_name(check_value("package name", package.name, "package"))
    file = check_value("file name", package.file or "", name)
    url = _url(package, options, urls)
    where = f"url = {_quote(check_value('URL', url, name))}" if url else f"path = {_quote(f'{WHEELS}/{file}')}"
    parts = [f"name = {_quote(file)}", where]
    parts += [f"size = {package.size}"] if package.size else []
    parts.append(f"hashes = {{ sha256 = {_quote(check_value('sha256', package.sha256 or '', name))} }}")
    table = f"{{ {', '.join(parts)} }}"
    return [
        "",
        "[[packages]]",
        f"name = {_quote(name)}",
        f"version = {_quote(check_value('version', package.version, name))}",
        f"sdist = {table}" if package.is_source else f"wheels = [{table}]",
    ]


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)
