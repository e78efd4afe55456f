"""Ask a package index for the hashes the facts do not hold.

A hash is taken only from the page of the very project and only for a wheel of the locked version that fits Python and
platform; nothing is downloaded but the page. Where the index of pip lacks a file, the further ones that pip is told of
are asked in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from provision.build.reader import Reader, describe
from provision.errors import MissingDependencyError, UsageError, without_secrets
from provision.index.account import Accounts
from provision.index.address import IndexAddress
from provision.index.page import ACCEPT, IndexFile, Page, PageError, parse_page
from provision.records import replace
from provision.resolve.environment import wheel_rank
from provision.resolve.requirements import normalise_name
from provision.resolve.stack import LockedPackage, Stack
from provision.versions import parse

_PAGE_BYTES_MAX = 64 * 1024 * 1024
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def complete_hashes(
    stack: Stack,
    *,
    index_url: str | None = None,
    address: IndexAddress | None = None,
    ca_cert: str | None = None,
    accounts: Accounts | None = None,
    timeout_seconds: float = 30,
) -> tuple[Stack, tuple[str, ...]]:
    """Return the stack with the hashes an index could add.

    A package whose own needs are unknown keeps none: by hash it would be installed without them.

    Args:
        stack: The stack; its image part names where each unverified package is looked up.
        index_url: Index to ask for every package; else each is asked for where it comes from.
        address: The index of pip, for packages of PyPI, and how it is reached; none is assumed.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        accounts: Users and passwords beside those in addresses and in the netrc file.
        timeout_seconds: For each answer of the index.

    Returns:
        The stack, and a sentence for every package that stays unverified.

    Raises:
        UsageError: No index is known for a package of PyPI.
        MissingDependencyError: An index cannot be reached or answers with no page, or none had any of the hashes.
    """
    if stack.image is None or stack.python is None:
        return stack, ()
    packages, left, missed = [], [], []
    has_found = False
    reader = Reader(address, ca_cert=ca_cert, accounts=accounts, timeout_seconds=timeout_seconds)
    for package in stack.image.packages:
        found = package
        if package.sha256 is None and package.has_unknown_dependencies:
            name = f"{package.name} {package.version}"
            left.append(f"{name}: the facts do not know what it needs, so the installer must look it up")
        elif package.sha256 is None:
            found, why = _complete(package, stack, reader, _indexes(package, index_url, reader))
            if why is None and index_url is not None:
                found = replace(found, url=None)  # the lock depends on what a mirror holds, not on where it stands
            missed += [why] if why else []
            has_found = has_found or why is None
        packages.append(found)
    if missed and not has_found:
        raise _without_hashes(missed)
    return replace(stack, image=replace(stack.image, packages=tuple(packages))), (*left, *missed)


def find_urls(
    stack: Stack,
    *,
    index_url: str | None = None,
    address: IndexAddress | None = None,
    ca_cert: str | None = None,
    accounts: Accounts | None = None,
    timeout_seconds: float = 30,
) -> dict[str, str]:
    """Return where an index has the locked files whose address the facts do not hold: package → address.

    Args:
        stack: The stack.
        index_url: Index to ask for every package; else each is asked for where it comes from.
        address: The index of pip, for packages of PyPI, and how it is reached; none is assumed.
        ca_cert: Certificates (PEM) to trust beside the machine's own.
        accounts: Users and passwords beside those in addresses and in the netrc file.
        timeout_seconds: For each answer of the index.

    Raises:
        UsageError: No index is known.
        MissingDependencyError: An index cannot be reached, or lacks a file of that hash.
    """
    found: dict[str, str] = {}
    reader = Reader(address, ca_cert=ca_cert, accounts=accounts, timeout_seconds=timeout_seconds)
    for package in stack.image.packages if stack.image is not None else ():
        if package.sha256 is None or (package.url is not None and index_url is None):
            continue
        indexes = _indexes(package, index_url, reader)
        for index in indexes:
            files = _read_page(reader, index, package.name).files
            file = next((item for item in files if item.sha256 == package.sha256), None)
            if file is not None:
                found[package.name] = file.url
                break
        else:
            page = f"{indexes[0].rstrip('/')}/{package.name}/"
            raise _silent(page, f"it lists no file of {package.name} {package.version} with the hash of the lock")
    return found


def _indexes(package: LockedPackage, index_url: str | None, reader: Reader) -> tuple[str, ...]:
    """Return where a package is looked up, in order.

    Raises:
        UsageError: No index is known.
    """
    own = index_url or package.index_url
    indexes = (own,) if own is not None else reader.indexes()
    if not indexes:
        raise UsageError(
            f"--fetch-hashes: no index is known for {package.name} {package.version}",
            hints=("name one with `--index-url URL`", "or tell pip of one: `pip config set global.index-url URL`"),
        )
    return indexes


def _complete(
    package: LockedPackage, stack: Stack, reader: Reader, indexes: tuple[str, ...]
) -> tuple[LockedPackage, str | None]:
    reasons = []
    for index in indexes:
        best, why = _look_up(package, stack, _read_page(reader, index, package.name), without_secrets(index))
        if best is not None:
            url = None if package.index == "pypi" else best.url
            size = best.size if best.size is not None else package.size
            return replace(package, file=best.file, sha256=best.sha256, url=url, size=size), None
        reasons.append(why)
    return package, f"{package.name} {package.version}: {'; '.join(reasons)}"


def _look_up(package: LockedPackage, stack: Stack, page: Page, index: str) -> tuple[IndexFile | None, str]:
    """Return the file of a page that fits, if it has one with a hash; else why not."""
    shown = f"{index.rstrip('/')}/{package.name}/"
    if not page.files:
        return None, f"{shown} lists no file at all"
    best = _choose(page.files, package, stack)
    if best is None:
        return None, f"{shown} lists no wheel of it for Python {stack.python} on {stack.platform}"
    if best.sha256 is None:
        return None, f"{shown} gives no hash for {best.file}"
    return best, ""


def _choose(files: tuple[IndexFile, ...], package: LockedPackage, stack: Stack) -> IndexFile | None:
    if package.file is not None:
        return next((item for item in files if item.file == package.file), None)
    machine = _MACHINES[stack.platform]
    ranked = [(_rank(item.file, package, stack.python or "", machine), item.file, item) for item in files]
    fitting = [entry for entry in ranked if entry[0] is not None]
    return max(fitting, key=lambda entry: entry[:2])[2] if fitting else None


def _rank(file: str, package: LockedPackage, python: str, machine: str) -> tuple[int, tuple[int, ...], int] | None:
    """Return how well a file fits; nothing where it is another package, version or platform."""
    parts = file.split("-")
    if not file.endswith(".whl") or len(parts) not in (5, 6):
        return None
    try:
        if parse(parts[1]) != parse(package.version) or normalise_name(parts[0]) != package.name:
            return None
        return wheel_rank(file, python, machine, None)
    except ValueError:
        # The page is not ours: a name with other tags than a wheel has fits nothing.
        return None


def read_page(reader: Reader, index: str, name: str) -> Page:
    """Return the page of a project; one without files where the index has no such project.

    Args:
        reader: Who asks.
        index: Root of the index; it may hold a user and a password.
        name: Normalised name of the distribution.

    Raises:
        UsageError: The address is none of http.
        MissingDependencyError: The index does not answer, or not with a page.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError

    asked = f"{index.rstrip('/')}/{name}/"
    try:
        with reader.open(asked, {"Accept": ACCEPT, "User-Agent": "provision"}) as response:
            content = response.read(_PAGE_BYTES_MAX + 1)
            kind = response.headers.get_content_type()
            came_from = response.url
    except HTTPError as error:
        error.close()
        if error.code in (404, 410):
            return Page(name=name, files=())
        hints = ("pip's index address or ~/.netrc holds a user and password",)
        raise MissingDependencyError(
            f"{without_secrets(asked)} cannot be read",
            because=(describe(error, asked),),
            hints=hints if error.code in (401, 403) else (),
        ) from error
    except (HTTPException, OSError, ValueError) as error:
        raise MissingDependencyError(
            f"{without_secrets(asked)} does not answer", because=(describe(error, asked),)
        ) from error
    if len(content) > _PAGE_BYTES_MAX:
        raise PageError(
            f"{without_secrets(asked)} is not a page of a package index",
            because=(f"it is larger than {_PAGE_BYTES_MAX // 2**20} MiB",),
        )
    return parse_page(content, kind, came_from, name=name, asked=asked)


def _read_page(reader: Reader, index: str, name: str) -> Page:
    try:
        return read_page(reader, index, name)
    except MissingDependencyError as error:
        raise _without_hashes((": ".join((error.message, *error.because)),), *error.hints) from error


def _silent(page: str, because: str) -> MissingDependencyError:
    return _without_hashes((f"{without_secrets(page)}: {because}",))


def _without_hashes(because: Sequence[str], *hints: str) -> MissingDependencyError:
    return MissingDependencyError(
        "the index gave no hashes",
        because=tuple(because),
        hints=(
            *hints,
            "try again, or name another index with `--index-url URL`",
            "without `--fetch-hashes` the packages are installed unverified, and the image says so",
        ),
    )
