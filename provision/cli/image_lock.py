"""What `provision image` does with a lock that is there already: keep to it (`--locked`), or renew it (`--upgrade`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from provision.cli.files import read_text
from provision.cli.parser import did_you_mean, shown
from provision.cli.request import solve_request
from provision.errors import DriftError, UsageError
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.request import FRAMEWORKS, Request, plain_request, request_of
from provision.resolve.stack import LockedPackage, Stack

__all__ = ["LOCK", "Change", "compare", "find_folder", "keep", "read_lock", "upgrade"]

LOCK = "provision.lock"
_BYTES_MAX = 16 * 1024 * 1024


@record
class Change:
    """One thing that two locks say differently; what only one of them has is absent on the other side."""

    subject: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """Return it as one line for people."""
        if self.before is None:
            return f"+ {self.subject} {self.after}"
        if self.after is None:
            return f"- {self.subject} {self.before}"
        return f"~ {self.subject} {self.before} -> {self.after}"


def find_folder(folder: Path | None, flag: str) -> Path:
    """Return the folder whose lock is meant: the one that was named, or this one where it holds a lock.

    Raises:
        UsageError: None was named, and here is no lock.
    """
    if folder is not None:
        return folder
    if Path(LOCK).is_file():
        return Path()
    raise UsageError(
        f"{flag} needs a {LOCK}, and this folder holds none",
        hints=("name the folder that holds it with `-o DIR`", "or say what is wanted, as in `--torch 2.1`"),
    )


def read_lock(folder: Path, flag: str) -> Stack:
    """Read the lock of a folder.

    Raises:
        DriftError: There is none.
        UsageError: It cannot be read, is damaged, or has no image.
    """
    path = folder / LOCK
    if not path.exists() and len(baked := sorted(folder.glob(f"*/{LOCK}"))) == 1:
        # A folder of one stack for bake has it one step below.
        path = baked[0]
    if not path.exists():
        raise DriftError(
            f"{path} is not there",
            because=(f"{flag} keeps to a lock that was written before",),
            hints=(f"run the same command without `{flag}` to write it",),
        )
    try:
        stack = Stack.from_lock(read_text(path, flag, bytes_max=_BYTES_MAX))
    except UsageError as error:
        message = error.message if str(path) in error.message else f"{path}: {error.message}"
        raise UsageError(message, because=error.because, hints=error.hints) from error
    if stack.image is None:
        raise UsageError(f"{path} is the lock of a node, not of an image", hints=("name another folder with `-o DIR`",))
    return stack


def keep(locked: Stack, request: Request, folder: Path) -> None:
    """Hold a lock against what is asked for now.

    Args:
        locked: The lock.
        request: What was asked for; an empty one asks for what the lock says.
        folder: Where the lock lies, for the message.

    Raises:
        DriftError: The lock was written for something else.
    """
    if request == Request():
        return
    old, new = locked.request, plain_request(request)
    reasons = [
        f"{_flag(name)}: the lock was written for {_shown(old.get(name))}, now it is {_shown(new.get(name))}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if reasons:
        raise DriftError(
            f"{folder / LOCK} is the answer to another request",
            because=reasons,
            hints=(
                "run the same command without `--locked` to write the lock anew",
                f"or leave the request out: `provision image --locked -o {folder}` keeps to the lock as it is",
            ),
        )


def upgrade(locked: Stack, names: Sequence[str], matrix: Matrix) -> Stack:
    """Solve the request of a lock again, with the facts of now.

    Args:
        locked: The lock.
        names: What may change; everything, where there is none. A framework brings along what is released with it:
            its companions and the CUDA libraries.
        matrix: The facts.

    Raises:
        UsageError: A name is not in the lock.
        IncompatibleError: What may change cannot change alone.
        UnknownError: The facts know no such stack any more.
    """
    request = request_of(dict(locked.request))
    image = locked.image
    if not names or image is None:
        return solve_request(request, matrix, "image")
    known = {package.name: package for package in image.packages}
    for name in names:
        if name not in known:
            raise UsageError(
                f"--upgrade {shown(name)}: the lock holds no such package", hints=did_you_mean(name, known)
            )
    pins = [f"{package.name}=={package.version}" for package in image.packages if _is_kept(package, names)]
    narrowed = replace(
        request,
        requirements=tuple(sorted({*request.requirements, *pins})),
        python=locked.python,
        platform=locked.platform,
    )
    found = solve_request(narrowed, matrix, "image")
    if found.image is None:
        return found
    kept = replace(found.image, user_requirements=image.user_requirements)
    renewed = replace(found, request=locked.request, image=kept)
    # The reasons speak of the pins; where nothing else differs the lock stays what it is.
    has_changed = any(change.subject != "facts" for change in compare(locked, renewed))
    return renewed if has_changed else locked


def _is_kept(package: LockedPackage, names: Sequence[str]) -> bool:
    if package.name in names or package.is_source:
        return False
    if not set(names) & set(FRAMEWORKS):
        return True
    return package.layer == "rest" or package.name in FRAMEWORKS


def compare(before: Stack, after: Stack) -> tuple[Change, ...]:
    """Return what two locks say differently: the stack first, then its packages by name."""
    old, new = dict(_said(before)), dict(_said(after))
    subjects = dict.fromkeys([*old, *new])
    return tuple(
        Change(subject=subject, before=old.get(subject), after=new.get(subject))
        for subject in subjects
        if old.get(subject) != new.get(subject)
    )


def _said(stack: Stack) -> Iterator[tuple[str, str | None]]:
    yield "facts", stack.facts_date
    yield "python", stack.python
    yield "cuda", stack.cuda
    yield "cudnn", stack.cudnn
    yield "nccl", stack.nccl
    yield "driver", stack.driver.minimum
    yield "driver branch", stack.driver.recommended_branch
    image = stack.image
    if image is None:
        return
    for role, base in (("base", image.base), ("cuda image", image.cuda_base)):
        if base is not None:
            yield role, f"{base.ref}@{base.digest}" if base.digest else base.ref
    for tool in image.tools:
        yield f"tool {tool.name}", tool.version
    for package in sorted(image.packages, key=lambda item: item.name):
        yield package.name, package.version
        if package.sha256 is not None:
            yield f"sha256 of {package.name} {package.version}", package.sha256


def _flag(name: str) -> str:
    names = {"gpus": "gpu", "extras": "with", "requirements": "requirements"}
    return f"--{names.get(name, name).replace('_', '-')}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"`{', '.join(value) if isinstance(value, list) else value}`"
