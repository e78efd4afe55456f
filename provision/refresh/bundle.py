"""Facts apart from the program: an archive with a signature, checked and put beside the shipped ones.

A bundle is a gzipped tar of ``compat/``, as ``tools/facts_bundle.py`` writes it, and its signature an OpenSSH one
(``ssh-keygen -Y sign``). Facts that were brought in lie in a folder of their own name; the link ``current`` says which
are in force, so that an update is there whole or not at all.

Source: ssh-keygen(1), ``-Y verify`` and ALLOWED SIGNERS.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from provision.assets import read_date, update_dir
from provision.errors import ActionFailedError, DataError, MissingDependencyError, UsageError
from provision.matrix.check import check
from provision.records import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.refresh.client import Client

NAMESPACE = "provision-facts"
IDENTITY = "facts"
SIGNATURE_SUFFIX = ".sig"
_BYTES_MAX = 64 * 1024 * 1024
_UNPACKED_MAX = 512 * 1024 * 1024
_MEMBERS_MAX = 10_000
_SIGNATURE_MAX = 64 * 1024
_FAULTS_SHOWN = 5
_DIGEST_SHOWN = 12


@record
class Update:
    """What an update did.

    Attributes:
        before: Day of the facts that were in force (ISO).
        after: Day of those of the bundle.
        folder: Where these lie; ``None`` where nothing was newer, or nothing was to be written.
    """

    before: str
    after: str
    folder: Path | None


def read_bundle(place: str, connect: Callable[[], Client]) -> tuple[bytes, bytes]:
    """Return a bundle and its signature.

    Args:
        place: An http address, or the path of a file; the signature has the same with ``.sig`` behind.
        connect: Returns what reads addresses; called for an address alone.

    Raises:
        UsageError: There is no such file, or one is too large.
        AbsentError: The server has no such document.
        UnreachableError: The server does not answer.
    """
    if "://" in place:
        client = connect()
        bundle = client.get(place, bytes_max=_BYTES_MAX).content
        return bundle, client.get(f"{place}{SIGNATURE_SUFFIX}", bytes_max=_SIGNATURE_MAX).content
    return _read(Path(place), _BYTES_MAX), _read(Path(f"{place}{SIGNATURE_SUFFIX}"), _SIGNATURE_MAX)


def update(bundle: bytes, signature: bytes, signers: Path, shown: str, in_force: Path, *, is_dry_run: bool) -> Update:
    """Check a bundle, and put it in force where it is newer than the facts that are.

    Args:
        bundle: The archive.
        signature: Of it.
        signers: Keys that may sign, in ssh-keygen's form of allowed signers.
        shown: What messages call the bundle.
        in_force: The folder of the facts that answer now.
        is_dry_run: Check only.

    Raises:
        MissingDependencyError: There is no ssh-keygen.
        DataError: The signature is wrong, the bundle is damaged or older, or this program cannot use its facts.
        ActionFailedError: It cannot be written.
    """
    _verify(bundle, signature, signers, shown)
    target = update_dir()
    name = f"facts-{hashlib.sha256(bundle).hexdigest()[:_DIGEST_SHOWN]}"
    before = read_date(in_force)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=target) as made:
            folder = Path(made) / name
            _unpack(bundle, folder, shown)
            after = read_date(folder)
            if after < before:
                raise DataError(
                    f"{shown} is older than the facts in force",
                    because=(f"it is of {after}, and these are of {before}",),
                    hints=("`provision data update --shipped` goes back to the facts of this release",),
                )
            if after == before:
                return Update(before=before, after=after, folder=None)
            _check(folder, shown)
            if is_dry_run:
                return Update(before=before, after=after, folder=None)
            kept = target / name
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)
            link = Path(made) / "current"
            link.symlink_to(name)
            link.replace(target / "current")
    except OSError as error:
        raise ActionFailedError(
            "the facts cannot be written", because=(f"{error.strerror or error}: {error.filename or target}",)
        ) from error
    for old in target.glob("facts-*"):
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)
    return Update(before=before, after=after, folder=kept)


def remove_update() -> bool:
    """Go back to the shipped facts; tell whether there were others."""
    target = update_dir()
    if not target.is_dir():
        return False
    try:
        (target / "current").unlink(missing_ok=True)
        shutil.rmtree(target)
    except OSError as error:
        raise ActionFailedError(
            "the facts cannot be removed", because=(f"{error.strerror or error}: {error.filename or target}",)
        ) from error
    return True


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read", because=(error.strerror or str(error),)) from error
    if len(content) > bytes_max:
        raise UsageError(f"{path} is larger than {bytes_max} bytes", hints=("name a bundle of facts",))
    return content


def _verify(bundle: bytes, signature: bytes, signers: Path, shown: str) -> None:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise MissingDependencyError(
            "a signature is checked by ssh-keygen, and there is none",
            hints=("install OpenSSH's client (`apt install openssh-client`)",),
        )
    with tempfile.TemporaryDirectory(prefix="provision-facts-") as made:
        path = Path(made) / "signature"
        path.write_bytes(signature)
        words = [program, "-Y", "verify", "-f", str(signers), "-I", IDENTITY, "-n", NAMESPACE, "-s", str(path)]
        done = subprocess.run(words, input=bundle, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise DataError(
            f"the signature of {shown} is not valid; nothing was changed",
            because=(f"ssh-keygen said: {said[-1] if said else 'nothing'}",),
            hints=("fetch the bundle again from where its publisher keeps it", "name other keys with `--signers FILE`"),
        )


def _unpack(bundle: bytes, folder: Path, shown: str) -> None:
    """Write the files of a bundle; links, devices and paths that lead out of the folder are refused."""
    size = count = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as archive:
            for member in archive:
                size, count = size + member.size, count + 1
                if size > _UNPACKED_MAX or count > _MEMBERS_MAX:
                    raise DataError(f"{shown} holds more than a bundle of facts does; nothing was changed")
                if not (member.isfile() or member.isdir()):
                    raise DataError(
                        f"{shown} is not a bundle of facts",
                        because=(f"{member.name[:80]!a} is neither file nor folder",),
                    )
                place = PurePosixPath(member.name)
                if place.is_absolute() or ".." in place.parts:
                    raise DataError(
                        f"{shown} is not a bundle of facts", because=(f"{member.name[:80]!a} leads out of its folder",)
                    )
                # The filters of tarfile came with 3.11.4, and Debian 12 has 3.11.2.
                path = folder / place
                (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(member)
                if content is not None:
                    path.write_bytes(content.read())
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DataError(f"{shown} is not a bundle of facts", because=(str(error)[:200],)) from error


def _check(folder: Path, shown: str) -> None:
    findings = check(folder)
    if findings:
        raise DataError(
            f"{shown} does not keep the rules of this program; nothing was changed",
            because=[f"{item.file}: {item.where}: {item.rule} {item.message}" for item in findings[:_FAULTS_SHOWN]],
            hints=("a newer provision may read it: upgrade the program",),
        )
