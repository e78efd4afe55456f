"""What `provision image` does with a lock that is there already: keep to it (`--locked`), or renew it (`--upgrade`).

A lock says what is in an image, not how its context was written: labels, the user, mirrors. Where any of that is not
as usual, a small file beside the lock keeps it, so that neither flag needs it said again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from provision.cli.parser import did_you_mean
from provision.cli.request import solve_request
from provision.errors import DriftError, UsageError, shown
from provision.files import read_text
from provision.generate.formats import FORMATS
from provision.generate.image import ImageOptions
from provision.generate.write import OPTIONS, Artifact, find_losses, own_steps
from provision.matrix.load import Matrix
from provision.records import NOTHING, fields_of, record, replace
from provision.resolve.request import FRAMEWORKS, Request, plain_request
from provision.resolve.stack import LockedPackage, Stack

LOCK = "provision.lock"
_BYTES_MAX = 16 * 1024 * 1024
_DEFAULT_FORM = "dockerfile"
_BAKE_FORM = "bake"
_USUAL = ImageOptions()
_OPTION_TYPES: dict[str, type] = {
    name: {"labels": dict, "copies": dict, "command": list, "logins": list, "projects": list, "non_root_uid": int}.get(
        name, str
    )
    for name in fields_of(ImageOptions)
    # Scripts of the user's own are seen in the folder itself.
    if name != "hooks"
}


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


@record
class Written:
    """How the context in a folder was written.

    Attributes:
        form: A key of ``FORMATS``.
        has_sbom: A bill of materials is part of it.
        image: Keyword → value of ``ImageOptions``, those that are not as usual.
        exclude_newer: The day after which packages did not count, as it was given.
        is_recorded: The folder has a file about it.
    """

    form: str = _DEFAULT_FORM
    has_sbom: bool = False
    image: Mapping[str, Any] = NOTHING
    exclude_newer: str | None = None
    is_recorded: bool = False


def find_folder(folder: Path | None, flag: str) -> Path:
    """Return the folder whose lock is meant: the one that was named, or this one where it holds a lock.

    Raises:
        UsageError: None was named, and here is not a lock.
    """
    if folder is not None:
        return folder
    if Path(LOCK).is_file():
        return Path()
    raise UsageError(
        f"{flag} needs a {LOCK}, and this folder holds none",
        hints=("name the folder that holds it with `-o DIR`", "or say what is wanted, as in `--torch 2.1`"),
    )


def find_locked(request: Request, name: Callable[[Stack], Path]) -> Path:
    """Return the folder that is meant where a request was given and no folder: this one, or one just below it.

    Args:
        request: What was asked for; the lock of the folder need not answer it where there is no other lock.
        name: How the folder of a stack is called where nobody names it.

    Raises:
        DriftError: No lock is here, or none of several answers the request.
        UsageError: Several do.
    """
    if Path(LOCK).is_file():
        return Path()
    locked = list(_locked_folders())
    if not locked:
        raise DriftError(
            f"{LOCK} is not there",
            because=("neither this folder nor one just below it holds one",),
            hints=("run the same command without `--locked` to write it", "or name its folder with `-o DIR`"),
        )
    if len(locked) == 1:
        return locked[0]
    answers = {}
    for folder in locked:
        # One that cannot be read is not the one, unless it is named.
        with suppress(UsageError):
            stack = read_lock(folder, "--locked")
            if stack.request == request:
                answers[folder] = stack
    usual = [folder for folder, stack in answers.items() if folder == name(stack)]
    found = usual if len(usual) == 1 else list(answers)
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(folder) for folder in found or locked)
    if found:
        raise UsageError(f"several folders hold a lock of this request: {names}", hints=("name one with `-o DIR`",))
    raise DriftError(
        f"no {LOCK} here answers this request",
        because=(f"those of {names} are answers to others",),
        hints=("run the same command without `--locked` to write one", "or name the folder with `-o DIR`"),
    )


def _locked_folders() -> Iterator[Path]:
    """Yield the folders just below this one that hold a lock, in order; what may not be looked into holds none."""
    found: list[Path] = []
    with suppress(OSError):
        found += Path().iterdir()
    for path in sorted(found):
        with suppress(OSError):
            if path.is_dir() and _lock_path(path).is_file():
                yield path


def read_lock(folder: Path, flag: str) -> Stack:
    """Read the lock of a folder.

    Raises:
        DriftError: There is none.
        UsageError: It cannot be read, is damaged, or has no image.
    """
    try:
        path = _lock_path(folder)
        is_there = path.exists()
    except OSError as error:
        raise UsageError(
            f"{folder / LOCK} cannot be read",
            because=(error.strerror or str(error),),
            hints=("name another folder with `-o DIR`",),
        ) from error
    if not is_there:
        raise DriftError(
            f"{path} is not there",
            because=(f"{flag} keeps to a lock that was written before",),
            hints=("say what is wanted, as in `--torch 2.1`, or name the folder of a lock with `-o DIR`",)
            if flag == "--check"
            else (f"run the same command without `{flag}` to write it",),
        )
    try:
        stack = Stack.from_lock(read_text(path, flag, bytes_max=_BYTES_MAX))
    except UsageError as error:
        message = error.message if str(path) in error.message else f"{path}: {error.message}"
        raise UsageError(message, because=error.because, hints=error.hints) from error
    if stack.image is None:
        raise UsageError(f"{path} is the lock of a node, not of an image", hints=("name another folder with `-o DIR`",))
    return stack


def _lock_path(folder: Path) -> Path:
    path = folder / LOCK
    if not path.exists() and len(baked := sorted(folder.glob(f"*/{LOCK}"))) == 1:
        # A folder of one stack for bake has it one step below.
        return baked[0]
    return path


def read_written(folder: Path) -> Written:
    """Read how the context in a folder was written; as usual, where it has no file about that.

    Raises:
        UsageError: The file cannot be read or is damaged.
    """
    lock = _lock_path(folder)
    is_baked = lock.parent != folder and (folder / FORMATS[_BAKE_FORM]).exists()
    form = _BAKE_FORM if is_baked else _DEFAULT_FORM
    path = lock.with_name(OPTIONS)
    if not path.exists():
        return Written(form=form)
    try:
        document = json.loads(read_text(path, "the options of the lock", bytes_max=_BYTES_MAX))
    except (ValueError, RecursionError) as error:
        raise _refuse_options(path, "it is not JSON") from error
    if not isinstance(document, dict):
        raise _refuse_options(path, "it is not a mapping")
    kept, has_sbom = document.pop("format", form), document.pop("sbom", False)
    if kept not in tuple(FORMATS):
        raise _refuse_options(path, f"`format` is none of {', '.join(FORMATS)}")
    if not isinstance(has_sbom, bool):
        raise _refuse_options(path, "`sbom` is neither true nor false")
    day = document.pop("exclude_newer", None)
    if not isinstance(day, (str, type(None))):
        raise _refuse_options(path, "`exclude_newer` is not a day")
    for key, value in document.items():
        if key not in _OPTION_TYPES:
            raise _refuse_options(path, f"`{shown(key)}` is not an option")
        texts = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        if type(value) is not _OPTION_TYPES[key] or not all(isinstance(text, str) for text in texts):
            raise _refuse_options(path, f"`{key}` has a value of another kind")
    document |= {key: tuple(document[key]) for key in ("command", "logins", "projects") if key in document}
    try:
        ImageOptions(**document)
    except UsageError as error:
        raise _refuse_options(path, error.message) from error
    return Written(form=kept, has_sbom=has_sbom, image=document, exclude_newer=day, is_recorded=True)


def _refuse_options(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} does not say how the folder was written",
        because=(why,),
        hints=("restore it", "or remove it, and give the flags that the folder was written with"),
    )


def merge_options(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that count: those given now over those of the folder; labels one by one."""
    labels = {**kept.get("labels", NOTHING), **given.get("labels", NOTHING)}
    return {**kept, **given, **({"labels": labels} if labels else {})}


def with_options(
    artifacts: tuple[Artifact, ...],
    options: ImageOptions,
    *,
    form: str = _DEFAULT_FORM,
    has_sbom: bool = False,
    exclude_newer: str | None = None,
) -> tuple[Artifact, ...]:
    """Add the file that keeps how a context is written; the same files, where all of it is as usual."""
    document: dict[str, Any] = {
        name: dict(sorted(value.items())) if isinstance(value, Mapping) else value
        for name in _OPTION_TYPES
        if (value := getattr(options, name)) != getattr(_USUAL, name)
    }
    # The place of its lock gives a bake folder away; its contexts are those of every other.
    if form not in (_DEFAULT_FORM, _BAKE_FORM):
        document["format"] = form
    if has_sbom:
        document["sbom"] = True
    if exclude_newer is not None:
        document["exclude_newer"] = exclude_newer
    lock = next(artifact.path for artifact in artifacts if artifact.path.rpartition("/")[2] == LOCK)
    if not document:
        return artifacts
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    file = Artifact(path=lock.removesuffix(LOCK) + OPTIONS, text=text)
    return tuple(sorted((*artifacts, file), key=lambda artifact: artifact.path))


def keep_options(written: Written, given: Mapping[str, Any], form: str | None, folder: Path) -> None:
    """Hold how a folder was written against the flags given now.

    Args:
        written: What the folder keeps.
        given: The flags given, as keywords of ``ImageOptions``.
        form: The form asked for, if any.
        folder: The folder, for the message.

    Raises:
        DriftError: A flag says something else.
    """
    if not written.is_recorded:
        return  # what the folder was written with shows in its files alone
    reasons = []
    if form not in (None, written.form):
        reasons.append(_differing("format", written.form, form))
    merged = merge_options(written.image, given)
    reasons += [
        _differing(name, old, given[name])
        for name in sorted(given)
        if (old := written.image.get(name, getattr(_USUAL, name))) != merged[name]
    ]
    if reasons:
        raise DriftError(
            f"{folder} was written with other flags",
            because=reasons,
            hints=("leave the flags out: the folder keeps those it was written with", "or write it anew"),
        )


def keep_written(folder: Path, artifacts: tuple[Artifact, ...]) -> None:
    """Refuse to renew a folder whose files its lock and its options do not make: what they say would be lost.

    Args:
        folder: The folder.
        artifacts: What its lock and options make.

    Raises:
        DriftError: A file says something else; one that is missing does no harm.
    """
    if losses := find_losses(folder, artifacts):
        raise DriftError(
            f"{folder} is not what its lock says, and an upgrade would drop the difference",
            because=losses,
            hints=(
                "give the flags that it was written with",
                "or write over it with `--force`",
                *own_steps(folder, losses),
            ),
        )


def _differing(name: str, old: Any, new: Any) -> str:
    if name == "ca_cert":
        return "--ca-cert: the folder was written with other certificates, or with none"
    before, now = (
        _shown([f"{key}={text}" for key, text in value.items()] or None if isinstance(value, Mapping) else value)
        for value in (old, new)
    )
    return f"{_flag(name)}: the folder was written with {before}, now it is {now}"


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
    old, new = plain_request(locked.request), plain_request(request)
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
    request = locked.request
    image = locked.image
    if not names or image is None:
        return solve_request(request, matrix, "image")
    known = {package.name: package for package in (*image.packages, *image.builders)}
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
    # The reasons speak of pins that nobody wrote.
    renewed = replace(found, request=locked.request, image=kept, reasons=locked.reasons)
    # The reasons speak of the pins; where nothing else differs the lock stays what it is.
    return locked if is_same(locked, renewed) else renewed


def _is_kept(package: LockedPackage, names: Sequence[str]) -> bool:
    if package.name in names or package.is_source or package.layer == "user":
        return False
    if not set(names) & set(FRAMEWORKS):
        return True
    return package.layer == "rest" or package.name in FRAMEWORKS


def is_same(before: Stack, after: Stack) -> bool:
    """Tell whether two locks differ in no more than the day of their facts, and in what builds projects."""
    changes = compare(_without_build(before), _without_build(after))
    return all(change.subject == "facts" for change in changes)


def _without_build(stack: Stack) -> Stack:
    return replace(stack, image=replace(stack.image, project_build=None)) if stack.image is not None else stack


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
    for build in stack.builds:
        named = {"CUDA": build.cuda, "cuDNN": build.cudnn, "NCCL": build.nccl}
        yield f"{build.framework} built for", ", ".join(f"{name} {value}" for name, value in named.items() if value)
        yield f"{build.framework} code", " ".join((*build.sm, *build.ptx)) or None
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
    for package in image.project_build.packages if image.project_build is not None else ():
        yield f"{package.name}, which builds the project", package.version
        yield f"sha256 of {package.name} {package.version}, which builds the project", package.sha256
    for made in image.source_builds:
        for package in made.packages:
            yield f"{package.name}, which builds {', '.join(made.names)}", package.version
            yield f"sha256 of {package.name} {package.version}, which builds {', '.join(made.names)}", package.sha256


def _flag(name: str) -> str:
    names = {"gpus": "gpu", "extras": "with", "labels": "label", "copies": "copy"}
    return f"--{names.get(name, name).replace('_', '-')}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"`{', '.join(value) if isinstance(value, (list, tuple)) else value}`"
