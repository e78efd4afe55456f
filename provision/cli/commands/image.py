"""Write, check or build a GPU container image.

Writes a build context to a folder: a Dockerfile, locked requirements, the lock itself, a verification script and the
entrypoint. This needs no container engine, network or GPU. With --build, the container engine builds the image, the
verification script runs in it, and a record of the build is written next to the folder.

--matrix writes the build contexts of many stacks and a bake file that builds them in parallel. --format writes the same
stack for Apptainer, as a development container, or as lock files only. --locked uses the existing lock unchanged;
--upgrade renews it and shows what changes.

Examples:
  provision image --torch 2.8 --cuda 12.8 -o train
  provision image --torch 2.8 --gpu h100 -r requirements.txt -o train --build --tag train:1
  provision image --project . --format devcontainer
  provision image --torch 2.8 --cuda 12.8 -o train --check
  provision image -o train --upgrade
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.build.local import Local, check_local, find_local, refuse_foreign, write_local
from provision.cli.image.lock import (
    Change,
    Written,
    compare,
    find_folder,
    find_locked,
    keep,
    keep_options,
    keep_written,
    merge_options,
    read_lock,
    read_written,
    upgrade,
    with_options,
)
from provision.cli.image.logins import build_secrets, has_ssh, refuse_logins, refuse_ssh, take_accounts, with_logins
from provision.cli.image.oci import add_engine_flags, choose_engine, plan_without_engine
from provision.cli.image.whole import add_whole_flags, find_trials, is_offline, lock_build, lock_lines
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.request import (
    add_request_flags,
    given_inputs,
    has_inputs,
    other_words,
    read_matrix,
    read_request,
    read_values,
    solve_request,
)
from provision.cli.text.screen import show_stack
from provision.errors import (
    DriftError,
    IncompatibleError,
    MissingDependencyError,
    ProvisionError,
    UnknownError,
    UsageError,
    install_command,
    shown,
)
from provision.files import read_text
from provision.generate.formats import FORMATS, render_format
from provision.generate.image import (
    CODE,
    COMPRESSIONS,
    FRONTENDS,
    HOOKS,
    ImageOptions,
    count_unlocked,
    local_hashes,
    pull_reference,
)
from provision.generate.write import Artifact, check_artifacts, own_steps, write_artifacts
from provision.index.account import host_of
from provision.matrix.load import Matrix
from provision.matrix.query import find_extras
from provision.records import NOTHING, plain, record, replace
from provision.resolve.request import Request, to_flags
from provision.resolve.stack import Stack
from provision.versions import parse

if TYPE_CHECKING:
    from provision.build.code import Copy
    from provision.build.engine import Engine
    from provision.build.ways import Trials
    from provision.index.account import Accounts
    from provision.project.pins import Pin

_BUILDERS = ("auto", "buildx", "sdk")
# Forms that are one context with steps to run.
_CONTEXT_FORMS = ("dockerfile", "apptainer", "devcontainer")
_EDITS_SHOWN = 3
_EDIT_LENGTH_MAX = 80
_CERTIFICATE_BYTES_MAX = 1024 * 1024
_TAG = (
    r"(?:[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]{1,5})?/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_request_flags(parser, can_be_cpu=True)
    where = parser.add_argument_group("destination")
    add_value(where, "-o", "DIR", "output folder (default: ./NAME-OF-THE-STACK)", parse_path, dest="folder")
    add_value(
        where,
        "--output",
        "DIR|type=…",
        "the same; or, with --build, the output of the builder: `type=oci,dest=FILE`",
        dest="destination",
    )
    add_switch(where, "--print", "print the Dockerfile instead of writing files")
    add_switch(where, "--force", "overwrite files that provision did not write")
    add_switch(where, "--check", "write nothing; exit with 8 if the folder differs from what would be written")
    add_switch(
        where,
        "--locked",
        "use the provision.lock in the folder unchanged; fail if the request or the files differ from it",
    )
    where.add_argument(
        "--upgrade",
        action="append",
        nargs="?",
        const="",
        metavar="NAME",
        help="resolve the request in the lock again and show what changes; with NAME change only that",
    )
    many = parser.add_argument_group("what to write")
    add_value(many, "--matrix", "FILE", "write many stacks from a TOML file", parse_path)
    add_choice(
        many,
        "--format",
        tuple(FORMATS),
        help=(
            "write a Dockerfile, or the same stack for Apptainer, a development container, bake, or as lock files only"
        ),
    )
    add_switch(many, "--sbom", "add a software bill of materials (CycloneDX) of the lock")
    how = parser.add_argument_group("options of the image")
    add_choice(
        how,
        "--frontend",
        FRONTENDS,
        help="builder to support: current BuildKit, BuildKit of Docker 20.10, or the classic builder",
    )
    add_value(how, "--syntax", "IMAGE", "add a `# syntax` line with this frontend image")
    add_value(
        how, "--index-url", "URL", "package index for every wheel, instead of PyPI and the indexes of the frameworks"
    )
    add_value(how, "--ca-cert", "FILE", "CA certificates (PEM) to trust during the build", parse_path)
    add_value(how, "--registry-mirror", "HOST", "mirror to pull images of Docker Hub from")
    add_value(how, "--non-root-uid", "N", "user id the image runs as", _uid)
    add_value(
        how,
        "--copy",
        "SRC[:DEST]",
        "file or folder to copy into the image as its last layer (default DEST: /workspace/NAME); may be repeated",
        action="append",
    )
    add_switch(
        how,
        "--install-project",
        "build wheels of the --project, and of local folders in the requirements, during the build and install "
        "them; the default for what --copy holds, where all that builds it can be locked",
    )
    add_switch(how, "--no-install-project", "copy packages that --copy holds, and do not install them")
    add_value(how, "--command", "WORDS", "default command of containers: `python -m app`")
    add_value(how, "--label", "KEY=VALUE", "additional label; may be repeated", action="append")
    add_switch(how, "--fetch-hashes", "fetch hashes that are missing from the facts from the package index")
    add_whole_flags(how)
    build = parser.add_argument_group("build")
    add_switch(build, "--build", "build the image and run its verification")
    add_switch(build, "--push", "build the image and push every --tag")
    add_value(build, "--tag", "NAME", "name of the image; may be repeated", action="append")
    add_choice(build, "--builder", _BUILDERS, help="builder to use; auto tries buildx, then the docker SDK")
    add_choice(build, "--compression", COMPRESSIONS, help="compression of new layers")
    add_engine_flags(build)


def run(options: argparse.Namespace, output: Output) -> int:
    """Resolve, render, then print, check, write or build."""
    _take_destination(options)
    choose_engine(options)
    _check_flags(options)
    options.accounts = take_accounts(options)
    options.local, options.projects, options.hashes = Local(), (), NOTHING
    if options.matrix is not None:
        if options.index_url is not None:
            refuse_logins("matrix", options.accounts.known([host_of(options.index_url)]))
        return _run_matrix(options, output)
    given = _given_image_options(options)
    image_options = ImageOptions(**given)
    matrix = read_matrix(options)
    words: tuple[str, ...]
    pins: tuple[Pin, ...] = ()
    trials: Trials | None = None
    asks_nothing = not options.upgrade and not read_values(options) and not has_inputs(options)
    flag = "--check" if options.check and asks_nothing else "--upgrade"
    if flag == "--check":
        options.upgrade = [""]  # the request is the one in the lock
    if options.upgrade:
        folder = find_folder(options.folder, flag)
        before = read_lock(folder, flag)
        options.local = Local().inside(folder)
        stack = upgrade(before, [name for name in options.upgrade if name], matrix)
        words = ("image", "--locked", *other_words(argparse.Namespace(**{**vars(options), "upgrade": None})))
    else:
        before = None
        found = _find_stack(options, matrix, image_options, output, options.format or "dockerfile")
        stack, folder, pins, trials = found
        words = ("image", *to_flags(stack.request), *other_words(options))
    written_before = read_written(folder) if options.upgrade or options.locked else Written()
    if options.locked:
        keep_options(written_before, given, options.format, folder)
    if options.upgrade or options.locked:
        options.format = options.format or written_before.form
        _check_build_flags(options)
        image_options = ImageOptions(**merge_options(written_before.image, given))
    form = options.format or "dockerfile"
    if options.check and not options.locked:
        options.exclude_newer = options.exclude_newer or read_written(folder).exclude_newer
    if options.upgrade or options.locked:
        options.exclude_newer = options.exclude_newer or written_before.exclude_newer
    if not options.locked:
        names = [name for name in options.upgrade or () if name]
        stack = lock_lines(
            stack,
            matrix,
            options,
            image_options,
            output,
            before=before,
            renewed=names,
            pins=pins,
            trials=trials,
            code=_code(options, image_options, folder),
        )
        if before is None and options.folder is None:
            folder = _default_folder(stack, form)  # what the lines need may have named another version
    projects = _projects(options, output)
    if projects:
        image_options = replace(image_options, projects=tuple(copy.name for copy in projects))
    if image_options.projects and not options.locked:
        sources = [copy.source for copy in projects] or [folder / CODE / name for name in image_options.projects]
        names = [name for name in options.upgrade or () if name]
        try:
            stack = lock_build(stack, sources, matrix, options, image_options, output, before=before, renewed=names)
        except ProvisionError as error:
            if projects and not options.install_project:
                error.hints = (*error.hints, "or only copy it with `--no-install-project`")
            raise
    if options.fetch_hashes:
        stack = _fetch_hashes(stack, image_options, output, options.accounts)
    kept = written_before if options.upgrade or options.locked else read_written(folder) if options.check else Written()
    image_options = with_logins(
        stack, image_options, options.accounts, form=form, kept=kept.image.get("logins", ()), is_locked=options.locked
    )
    if image_options.logins:
        output.note(f"the build needs credentials for {' and '.join(image_options.logins)}, passed as a build secret")
    refuse_ssh(form, stack)
    changes = compare(before, stack) if before is not None else None
    local = local_hashes(stack.image) if stack.image is not None else {}
    if local and form not in _CONTEXT_FORMS:
        raise UsageError(
            f"{' and '.join(local)} goes into a context, which `--format {form}` is not",
            hints=("leave `--format` out", "or name a release, or the https address of the wheel"),
        )
    if (options.copy or projects) and form not in _CONTEXT_FORMS:
        raise UsageError(
            f"{'--copy' if options.copy else '--install-project'} goes into a context, which `--format {form}` is not",
            hints=("leave one of them out",),
        )
    job = _Job(
        stack=stack,
        options=_with_hooks(image_options, folder, form),
        copies=tuple(dict.fromkeys((*_copies(options), *projects))),
        local=options.local,
        folder=folder,
        words=words,
        can_be_built_next=not (options.build or options.push or options.locked) and form == "dockerfile",
        were_hashes_fetched=options.fetch_hashes,
        form=form,
        has_sbom=options.sbom or written_before.has_sbom,
        # Without a record the flags alone say how the folder was written, and a locked folder gets no new file.
        is_recorded=not options.locked or written_before.is_recorded,
        urls=_find_urls(stack, image_options, options.accounts)
        if form == "pylock" and options.fetch_hashes
        else NOTHING,
        changes=changes,
        day=options.exclude_newer,
    )
    if before is not None and not options.force and flag != "--check":
        _keep_before(before, written_before, job)
    if changes is not None:
        for change in changes:
            output.note(str(change))
        output.note(f"{len(changes)} differences from the lock" if changes else "the lock is as new as the facts")
    if options.print:
        path = FORMATS[form]
        text = next(item.text for item in job.render() if item.path == path)
        output.note(f"facts of {stack.facts_date}")
        output.give({**job.document(), form: text}, text.rstrip("\n"))
        return 0
    if options.check:
        check_artifacts(job.folder, job.render())
        check_local(job.folder, local)
        output.note(f"{job.folder} is what this request writes; facts of {stack.facts_date}")
        _warn_of_code(job, output)
        _give(output, {**job.document(), "files": [item.path for item in job.render()]})
        return 0
    if options.locked:
        _check_locked(job)
    if options.engine in ("oci", "auto") and (options.build or options.push):
        write = plan_without_engine(
            options,
            output,
            stack=job.stack,
            image_options=job.options,
            folder=job.folder,
            matrix=matrix,
        )
        if write is not None:
            written = _write(job, output, is_forced=options.force)
            _give(output, {**job.document(), **written, "build": write()})
            return 0
    if not output.is_dry_run and (options.build or options.push):
        return _build(job, options, output)
    if options.locked:
        output.note(f"{job.folder} is what its lock says; facts of {stack.facts_date}")
        _give(output, {**job.document(), "files": [item.path for item in job.render()], "written": [], "removed": []})
        return 0
    written = _write(job, output, is_forced=options.force)
    _give(output, {**job.document(), **written})
    return 0


def _keep_before(before: Stack, written: Written, job: _Job) -> None:
    """Refuse an upgrade that would drop what neither the old lock, nor its options, nor the flags given now say.

    Raises:
        DriftError: A file of the folder says more.
    """
    old = replace(
        job,
        stack=before,
        options=_with_hooks(ImageOptions(**written.image), job.folder, written.form),
        form=written.form,
        has_sbom=written.has_sbom,
        is_recorded=written.is_recorded,
        day=written.exclude_newer,
    )
    try:
        keep_written(job.folder, old.render())
    except DriftError:
        # A folder that keeps no options may have been written with the very flags that are given now.
        if written.is_recorded:
            raise
        keep_written(job.folder, replace(job, stack=before, is_recorded=False).render())


def _find_stack(
    options: argparse.Namespace, matrix: Matrix, image_options: ImageOptions, output: Output, form: str
) -> tuple[Stack, Path, tuple[Pin, ...], Trials | None]:
    """Return the stack to write, its folder, what a lock of the project pins, and who tries ways out of a refusal.

    The stack is the answer to the request, or with ``--locked`` what the lock says.
    """
    values = read_values(options)
    inputs = given_inputs(options, output, matrix)
    if inputs is not None:
        options.local = Local(files=inputs.files, folders=inputs.folders)
        options.hashes = inputs.hashes
        options.projects = inputs.projects
    request = read_request(values, inputs, can_be_empty=options.locked, can_be_cpu=True)
    if form == "devcontainer" and request.flavor is None and request != Request():
        is_compiled = any(row.needs_nvcc for name in request.extras for row in find_extras(matrix, name))
        request = request if is_compiled else replace(request, flavor="dev")
    folder: Path | None = options.folder
    if options.locked:
        # Nothing is solved: today's facts may name another stack, and its folder would be another one.
        if folder is None and request != Request():
            folder = find_locked(request, lambda stack: _default_folder(stack, form))
        else:
            folder = find_folder(folder, "--locked")
        stack = read_lock(folder, "--locked")
        keep(stack, request, folder)
        return stack, folder, (), None
    words = other_words(options)
    trials = find_trials(request, matrix, options, image_options, inputs, words=words)
    stack = solve_request(request, matrix, "image", words, values=values, inputs=inputs, trials=trials)
    if stack.image is None:
        raise _refuse_without_image(stack, request, matrix, words, trials)
    if stack.python is not None and not stack.image.tools:
        raise _refuse_without_installer(stack, request, matrix, words, trials)
    return stack, folder or _default_folder(stack, form), inputs.pins if inputs is not None else (), trials


def _default_folder(stack: Stack, form: str) -> Path:
    if form == "devcontainer":
        return Path(".devcontainer")
    return Path(stack.name if form == "dockerfile" else f"{stack.name}-{form}")


def _check_locked(job: _Job) -> None:
    """Refuse a folder that is not what its lock says.

    Raises:
        DriftError: A file is missing or was edited, or was written with other flags.
    """
    if lacking := [
        name for name in (*job.options.copies, *job.options.projects) if not (job.folder / CODE / name).exists()
    ]:
        raise DriftError(
            f"{job.folder / CODE} lacks {', '.join(lacking)}",
            because=("the image holds your code, which the lock does not",),
            hints=("write it again with `--copy` and without `--locked`",),
        )
    try:
        check_artifacts(job.folder, job.render())
        check_local(job.folder, local_hashes(job.stack.image) if job.stack.image is not None else {})
    except DriftError as error:
        raise DriftError(
            f"{job.folder} is not what its lock says",
            because=error.because,
            hints=(
                "give the flags that it was written with",
                "or write it anew without `--locked`",
                *own_steps(job.folder, error.because),
            ),
        ) from error


def _given_image_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the flags about how a context is written that were given, as keywords of ``ImageOptions``."""
    ca_cert = None
    if options.ca_cert is not None:
        ca_cert = read_text(options.ca_cert, "--ca-cert", bytes_max=_CERTIFICATE_BYTES_MAX)
    values = {
        "frontend": options.frontend,
        "syntax": options.syntax,
        "index_url": options.index_url,
        "ca_cert": ca_cert,
        "registry_mirror": options.registry_mirror,
        "non_root_uid": options.non_root_uid,
        "labels": _labels(options.label or ()) or None,
        "command": _words(options.command) if options.command is not None else None,
        "copies": {copy.name: copy.target for copy in _copies(options)} or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--command `{shown(text)}` is not a command", because=(str(error),)) from error
    if not words:
        raise UsageError("--command was given without a command", hints=("write it as in `--command 'python -m app'`",))
    return words


def _copies(options: argparse.Namespace) -> tuple[Copy, ...]:
    """Return what of the user's own goes into the image."""
    if not options.copy:
        return ()
    from provision.build.code import parse_copy

    copies: list[Copy] = []
    for text in options.copy:
        copies.append(parse_copy(text, [copy.name for copy in copies]))
    places = [copy.target.rstrip("/") for copy in copies]
    if twice := next((place for place in places if places.count(place) > 1), None):
        raise UsageError(f"--copy puts two things at {twice}", hints=("name another place: `--copy SRC:DEST`",))
    return tuple(copies)


def _code(options: argparse.Namespace, image_options: ImageOptions, folder: Path) -> tuple[Path, ...]:
    """Return what of the user's own goes into the image: where it is, else the copy that the folder has."""
    given = [copy.source for copy in _copies(options)]
    kept = [folder / CODE / name for name in image_options.copies] if options.upgrade and not given else []
    return (*given, *(path for path in kept if path.exists()))


def _projects(options: argparse.Namespace, output: Output) -> tuple[Copy, ...]:
    """Return the projects that are installed themselves, as copies in the context: all, or those that are copied.

    Raises:
        UsageError: All are asked for and there is none, or none says how it is built.
    """
    if options.no_install_project or options.locked or options.upgrade:
        return ()
    folders = options.projects if options.install_project else _copied_projects(options, output)
    if options.install_project and not folders:
        way_out = "name its folder with `--project DIR`"
        if options.project is not None:
            path = options.project / "pyproject.toml"
            way_out = f"add a `[build-system]` table to {path}, which names what builds it"
        raise UsageError(
            "--install-project: no project says how it is built",
            because=(
                "looked in the folders named for a setup.py, or a pyproject.toml with [build-system] "
                "or [tool.setuptools]",
            ),
            hints=(way_out, "`--copy DIR` puts code into the image as it is"),
        )
    from provision.build.code import parse_copy

    copies = list(_copies(options))
    taken = len(copies)
    places = {copy.source.resolve(): copy for copy in copies}
    for folder in folders:
        copies.append(places.get(folder.resolve()) or parse_copy(str(folder), [copy.name for copy in copies]))
    return tuple(copies[taken:])


def _copied_projects(options: argparse.Namespace, output: Output) -> list[Path]:
    """Return the projects whose code is copied and that can be installed as well, with nothing left open."""
    copied = [copy.source.resolve() for copy in _copies(options)]
    folders = [path for path in options.projects if any(path.resolve().is_relative_to(place) for place in copied)]
    if not folders:
        return []
    from provision.build.sources import find_obstacle, is_package

    whole = None
    if is_offline(options):
        whole = "what builds it cannot be locked without an index"
    elif options.frontend == "classic" or options.engine == "oci":
        whole = f"{'--engine oci' if options.engine == 'oci' else '--frontend classic'} builds no wheels"
    found: list[Path] = []
    for folder in folders:
        if not is_package(folder):
            continue
        if why := whole or find_obstacle(folder):
            output.warn(f"{folder} is copied, and not installed as the package that it is: {why}")
        else:
            output.note(f"{folder} is a package and is installed too; `--no-install-project` leaves that out")
            found.append(folder)
    return found


def _with_hooks(options: ImageOptions, folder: Path, form: str) -> ImageOptions:
    """Return the options with the scripts that lie in the folder."""
    if form not in _CONTEXT_FORMS:
        return options
    return replace(options, hooks=tuple(name for name in HOOKS if (folder / "hooks" / f"{name}.sh").is_file()))


def _run_matrix(options: argparse.Namespace, output: Output) -> int:
    """Write, check or bake the stacks of a file."""
    from provision.cli.image.many import LinesOfMany, LocksOfMany, kept_day
    from provision.cli.image.matrix import read_entries, solve_entries

    entries, bake = read_entries(options.matrix)
    if options.exclude_newer is not None:
        entries = tuple(replace(entry, day=options.exclude_newer) for entry in entries)
    if options.compression is not None:
        bake = replace(bake, compression=options.compression)
    folder: Path = options.folder or Path(options.matrix.stem if str(options.matrix) != "-" else "stacks")
    if options.exclude_newer is None and (options.check or options.locked):
        day = kept_day(folder)
        entries = tuple(replace(entry, day=entry.day or day) for entry in entries)
    matrix = read_matrix(options)
    baked = solve_entries(
        entries,
        bake,
        matrix,
        LocksOfMany(folder) if options.locked else LinesOfMany(matrix, options, output),
        output,
        overrides=_given_image_options(options),
        has_sbom=options.sbom,
    )
    artifacts = baked.artifacts
    document: dict[str, Any] = {
        "folder": str(folder),
        "stacks": {item.name: {"stack": item.stack.to_json(), "groups": list(item.groups)} for item in baked.stacks},
        "files": [artifact.path for artifact in artifacts],
    }
    for item in baked.stacks:
        output.note(f"{item.name}: {' '.join(_versions(item.stack))}   lock {item.stack.lock_digest[:19]}")
    output.note(f"facts of {baked.stacks[0].stack.facts_date}")
    if options.print:
        text = next(artifact.text for artifact in artifacts if artifact.path == FORMATS["bake"])
        output.give({**document, "bake": text}, text.rstrip("\n"))
        return 0
    if options.check or options.locked:
        check_artifacts(folder, artifacts)
        output.note(f"{folder} is what {options.matrix} writes")
        if options.check or not (options.build or options.push):
            _give(output, document)
            return 0
    else:
        changes = write_artifacts(folder, artifacts, force=options.force, dry_run=output.is_dry_run)
        verb = "would write" if output.is_dry_run else "wrote"
        output.note(f"{verb} {folder}: {len(changes.written)} of {len(artifacts)} files, {FORMATS['bake']} among them")
        if changes.removed:
            output.note(f"{'would remove' if output.is_dry_run else 'removed'}: {' '.join(changes.removed)}")
        document |= {"written": list(changes.written), "removed": list(changes.removed)}
    if (options.build or options.push) and not output.is_dry_run:
        document["build"] = _bake(folder, is_push=options.push, output=output)
    elif not output.is_dry_run:
        output.note(f"next: cd {shlex.quote(str(folder))} && docker buildx bake")
    _give(output, document)
    return 0


def _versions(stack: Stack) -> list[str]:
    return [f"{name} {version}" for name, version in stack.frameworks.items()] + (
        [] if stack.is_cpu else [f"CUDA {stack.cuda}"]
    )


def _bake(folder: Path, *, is_push: bool, output: Output) -> dict[str, Any]:
    from provision.build.bake import bake
    from provision.build.progress import report_progress

    log_path = folder.resolve().with_name(f"{folder.resolve().name}.bake.log")
    with report_progress(sys.stderr, is_quiet=output.verbosity < 0, is_verbose=output.verbosity > 0) as observer:
        images = bake(folder, is_push=is_push, observer=observer, log_path=log_path)
    for name, image in images.items():
        output.note(f"{'pushed' if is_push else 'built'} {name}: {image.get('digest') or 'no digest'}")
    return {"images": images, "log": str(log_path)}


@record
class _Job:
    """What is to be written: a stack, how, and where."""

    stack: Stack
    options: ImageOptions
    copies: tuple[Copy, ...]
    local: Local
    folder: Path
    words: tuple[str, ...]
    can_be_built_next: bool
    were_hashes_fetched: bool
    form: str
    has_sbom: bool
    is_recorded: bool
    urls: Mapping[str, str]
    changes: tuple[Change, ...] | None
    day: str | None

    def render(self) -> tuple[Artifact, ...]:
        artifacts = render_format(self.form, self.stack, self.options, urls=self.urls, has_sbom=self.has_sbom)
        if not self.is_recorded:
            return artifacts
        return with_options(artifacts, self.options, form=self.form, has_sbom=self.has_sbom, exclude_newer=self.day)

    def document(self) -> dict[str, Any]:
        image = self.stack.image
        document = {
            "stack": self.stack.to_json(),
            "folder": str(self.folder),
            "format": self.form,
            "frontend": self.options.frontend,
            "unverified": image.unverified if image else 0,
            "unlocked": count_unlocked(image) if image else 0,
        }
        return document if self.changes is None else {**document, "changes": plain(self.changes)}


def _take_destination(options: argparse.Namespace) -> None:
    """Tell the two meanings of ``--output`` apart: a folder, or what the builder writes."""
    options.export = None
    if options.destination is None:
        return
    if options.destination.startswith("type="):
        from provision.build.export import parse_output

        options.export = parse_output(options.destination)
        return
    folder = parse_path(options.destination)
    if options.folder not in (None, folder):
        raise UsageError("-o and --output name two folders", hints=("keep one of the two",))
    options.folder, options.destination = folder, None


def _check_flags(options: argparse.Namespace) -> None:
    actions = [flag for flag in ("print", "check", "build", "push") if getattr(options, flag)]
    if len(actions) > 1 and actions != ["build", "push"]:
        raise UsageError(f"--{actions[0]} and --{actions[1]} exclude each other", hints=("keep one of the two",))
    _exclude(options, "locked", ("upgrade", "check", "fetch-hashes", "force", "exclude-newer"))
    for flag in ("locked", "upgrade"):
        # What is installed was decided when the lock was written, and stands in it.
        _exclude(options, flag, ("install-project", "no-install-project"))
    _exclude(options, "matrix", ("copy", "command", "install-project", "no-install-project"))
    _exclude(options, "install-project", ("no-install-project",))
    if options.folder is not None and (
        (options.print and not options.locked and not options.upgrade) or str(options.folder) == "-"
    ):
        raise UsageError(
            "-o names a folder, and --print writes none", hints=("keep `--print`, or name a folder with `-o DIR`",)
        )
    _check_build_flags(options)
    if options.upgrade and (values := read_values(options)):
        raise UsageError(
            f"--upgrade takes the request from the lock, so `--{next(iter(values))}` has no place beside it",
            hints=("leave the request out", "or leave `--upgrade` out: the request is then solved with today's facts"),
        )
    if options.offline:
        _exclude(options, "offline", ("exclude-newer", "fetch-hashes"))
    if options.matrix is not None:
        _exclude(
            options,
            "matrix",
            (
                *("upgrade", "fetch-hashes", "frontend", "tag", "builder"),
                *("requirements", "project", "extra", "group"),
            ),
        )
        if options.format not in (None, "bake"):
            raise UsageError("--matrix writes a bake file", hints=("leave `--format` out",))
        if values := read_values(options):
            raise UsageError(
                f"--matrix: the file says what is wanted, so `--{next(iter(values))}` has no place beside it",
                hints=("write it under [defaults] of the file",),
            )


def _exclude(options: argparse.Namespace, flag: str, others: tuple[str, ...]) -> None:
    for other in others:
        if getattr(options, flag.replace("-", "_")) and getattr(options, other.replace("-", "_")):
            raise UsageError(f"--{flag} and --{other} exclude each other", hints=("keep one of the two",))


def _check_build_flags(options: argparse.Namespace) -> None:
    is_build = options.build or options.push
    for flag in ("tag", "builder", "compression", "export"):
        is_written = flag == "compression" and options.matrix is not None
        if getattr(options, flag) and not is_build and not is_written:
            name = "output type=…" if flag == "export" else flag
            raise UsageError(f"--{name} is about a build", hints=("add `--build`",))
    if options.export is not None and (options.push or options.matrix is not None):
        other = "push" if options.push else "matrix"
        raise UsageError(f"--output type=… and --{other} exclude each other", hints=("keep one of the two",))
    if is_build and options.format not in (None, "dockerfile"):
        raise UsageError(
            f"--build builds from a Dockerfile, not from `--format {options.format}`",
            hints=("leave `--format` out", *(("use `--matrix` to bake",) if options.format == "bake" else ())),
        )
    if options.push and not options.tag and options.matrix is None:
        raise UsageError("--push needs to know where to", hints=("name the image: `--tag registry.example/team/name`",))
    for tag in options.tag or ():
        if not tag.isascii() or not re.fullmatch(_TAG, tag):
            raise UsageError(
                f"--tag `{shown(tag)}` is not an image name", hints=("write it as in `registry.example/team/name:1.0`",)
            )


def _uid(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not text.isascii():
        raise UsageError(f"--non-root-uid `{shown(text)}` is not a number")
    return int(text)


def _labels(pairs: list[str] | tuple[()]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(
                f"--label `{shown(pair)}` is not KEY=VALUE", hints=("write it as in `--label team=vision`",)
            )
        if labels.setdefault(key, value) != value:
            raise UsageError(f"--label {shown(key)} was given two values", hints=("keep one of the two",))
    return labels


def _refuse_without_image(
    stack: Stack, request: Request, matrix: Matrix, others: tuple[str, ...], trials: Trials | None
) -> UnknownError:
    """Return why a sound stack cannot be an image, with the same request on any system where that works."""
    from provision.resolve.solve import solve

    if stack.python is None:
        lacking = f"no nvidia/cuda image of CUDA {stack.cuda} for {stack.os} is known"
        way_out = "name an image of CUDA with `--base IMAGE`"
    else:
        lacking = f"no official Python {stack.python} image stands on {stack.os}"
        way_out = f"name an image on {stack.os} that has Python {stack.python} with `--base IMAGE`"
    hints, alternatives = [way_out], []
    if request.os is not None:
        anywhere = replace(request, os=None)
        found = solve(anywhere, matrix, is_image=True)
        if isinstance(found, Stack) and found.image is not None:
            command = shlex.join(("provision", "image", *to_flags(anywhere), *others))
            change = f"any system instead of {request.os}: {found.os}"
            if trials is None or trials(anywhere, change) is not None:
                alternatives.append({"command": command, "change": change})
                hints.insert(0, f"`{command}` works: {change}")
    return UnknownError(
        f"{stack.name} is a sound stack, but the facts list no image to build it on",
        because=(lacking,),
        hints=hints,
        details={"alternatives": alternatives},
    )


def _refuse_without_installer(
    stack: Stack, request: Request, matrix: Matrix, others: tuple[str, ...], trials: Trials | None
) -> IncompatibleError:
    """Return why no image can be built for a stack's Python, with the same request on the next newer one that works."""
    from provision.resolve.solve import solve

    lowest = parse(str(stack.python).rstrip("t"))
    hints, alternatives = [], []
    for python in sorted((row.version for row in matrix.pythons if row.version[-1] != "t"), key=parse):
        if parse(python) <= lowest:
            continue
        other = replace(request, python=python)
        try:
            found = solve(other, matrix, is_image=True)
        except UsageError:
            break  # what else the request holds says which Python, so that no other is possible
        if isinstance(found, Stack) and found.image is not None and found.image.tools:
            command = shlex.join(("provision", "image", *to_flags(other), *others))
            change = f"Python {python}"
            if trials is not None and trials(other, change) is None:
                continue
            alternatives.append({"command": command, "change": change})
            hints.append(f"`{command}` works: {change}")
            break
    return IncompatibleError(
        f"no image can be built for Python {stack.python}",
        because=(f"uv, which installs the wheels by hash in the build, has no wheel for Python {stack.python}",),
        hints=(*hints, f"`provision resolve` answers for Python {stack.python} too"),
        details={"alternatives": alternatives},
    )


def _fetch_hashes(stack: Stack, image_options: ImageOptions, output: Output, accounts: Accounts) -> Stack:
    from provision.build.hashes import complete_hashes
    from provision.index.address import known_index

    completed, left = complete_hashes(
        stack,
        index_url=image_options.index_url,
        address=known_index(),
        ca_cert=image_options.ca_cert,
        accounts=accounts,
    )
    for why in left:
        output.warn(why)
    return completed


def _find_urls(stack: Stack, image_options: ImageOptions, accounts: Accounts) -> Mapping[str, str]:
    from provision.build.hashes import find_urls
    from provision.index.address import known_index

    return find_urls(
        stack,
        index_url=image_options.index_url,
        address=known_index(),
        ca_cert=image_options.ca_cert,
        accounts=accounts,
    )


def _steps_file(form: str) -> str:
    return FORMATS[form] if form == "apptainer" else "Dockerfile"


def _find_edits(job: _Job, artifacts: tuple[Artifact, ...]) -> tuple[str, ...]:
    """Return the lines of the folder's Dockerfile that neither its lock nor this write makes."""
    if job.form not in _CONTEXT_FORMS:
        return ()
    name = _steps_file(job.form)
    try:
        lines = (job.folder / name).read_text(encoding="utf-8").splitlines()
        before, written = read_lock(job.folder, "-o"), read_written(job.folder)
        options = replace(ImageOptions(**written.image), hooks=HOOKS)
        old = replace(job, stack=before, options=options, form=written.form, is_recorded=False)
        made = [*artifacts, *old.render(), *replace(job, stack=before).render()]
    except (OSError, UnicodeDecodeError, ProvisionError):
        return ()  # nothing that an earlier write left, or nothing to compare it with
    known = {line for artifact in made if artifact.path == name for line in artifact.text.splitlines()}
    return tuple(line for line in lines if line.strip() and line not in known)


def _warn_of_code(job: _Job, output: Output) -> None:
    """Say where the copy of the code is behind: the code is not part of the lock, so that is no drift."""
    if job.copies:
        from provision.build.code import is_current

        if not is_current(job.folder, job.copies):
            output.warn(f"{job.folder / CODE} is not what your code is now; writing the folder copies it again")


def _write_code(job: _Job, output: Output, *, is_ours: bool) -> None:
    """Copy the user's code, or take away the copy that an earlier write left and nothing names any more."""
    if not job.copies:
        if is_ours and not (job.options.copies or job.options.projects) and not output.is_dry_run:
            import shutil

            shutil.rmtree(job.folder / CODE, ignore_errors=True)
        return
    from provision.build.code import write_code

    epoch = job.stack.image.source_date_epoch if job.stack.image is not None else 0
    count, secrets = write_code(job.folder, job.copies, mtime=epoch, is_dry_run=output.is_dry_run)
    verb = "would copy" if output.is_dry_run else "copied"
    output.note(f"{verb} {count} {'file' if count == 1 else 'files'} of yours into {job.folder / CODE}")
    if secrets:
        output.warn(f"left out, since they may hold secrets: {', '.join(secrets)}")


def _local_before(job: _Job) -> dict[str, str]:
    """Return the wheels and archives that the folder's lock names as it is."""
    try:
        image = read_lock(job.folder, "-o").image
    except ProvisionError:
        return {}
    return local_hashes(image) if image is not None else {}


def _write(job: _Job, output: Output, *, is_forced: bool) -> dict[str, Any]:
    artifacts = job.render()
    written = read_written(job.folder).image
    is_ours = (job.folder / CODE).exists() and bool(written.get("copies") or written.get("projects"))
    if job.copies and (job.folder / CODE).exists() and not (is_forced or is_ours):
        raise UsageError(
            f"{job.folder / CODE} was not written by this program, and --copy would write over it",
            hints=("choose another folder with `-o DIR`", "write over it with `--force`"),
        )
    lost = () if is_forced else _find_edits(job, artifacts)
    before = _local_before(job)
    # What cannot be copied stops it before anything is written.
    image = job.stack.image
    wanted = local_hashes(image) if image is not None else {}
    found = find_local(job.folder, wanted, job.local)
    if not is_forced:
        refuse_foreign(job.folder, wanted, before)
    if job.copies:
        from provision.build.code import write_code

        write_code(job.folder, job.copies, mtime=0, is_dry_run=True)
    changes = write_artifacts(job.folder, artifacts, force=is_forced, dry_run=output.is_dry_run)
    if image is not None and not output.is_dry_run:
        write_local(job.folder, found, before, mtime=image.source_date_epoch or 0)
    if lost:
        name = _steps_file(job.form)
        shown_lines = ", ".join(f"`{line.strip()[:_EDIT_LENGTH_MAX]}`" for line in lost[:_EDITS_SHOWN])
        more = f" and {len(lost) - _EDITS_SHOWN} more lines" if len(lost) > _EDITS_SHOWN else ""
        output.warn(f"{job.folder / name} had what no lock makes, and this write drops it: {shown_lines}{more}")
        output.note(f"hint: {own_steps(job.folder, [f'{name} differs'])[0]}")
    _write_code(job, output, is_ours=is_ours)
    output.note(f"facts of {job.stack.facts_date}")
    output.note(show_stack(job.stack, output, sys.stderr))
    if changes.written:
        verb = "would write" if output.is_dry_run else "wrote"
        output.note(f"{verb} {job.folder}: {' '.join(changes.written)}")
    if changes.removed:
        verb = "would remove" if output.is_dry_run else "removed"
        output.note(f"{verb} what an earlier write left: {' '.join(changes.removed)}")
    if not (changes.written or changes.removed):
        output.note(f"{job.folder} is up to date: nothing to write")
    document = job.document()
    unverified, unlocked = document["unverified"], document["unlocked"]
    if unverified:
        total = len(job.stack.image.packages) if job.stack.image else 0
        way_out = "" if job.were_hashes_fetched else "; `--fetch-hashes` asks their index"
        output.note(f"{unverified} of {total} packages have no known hash and are installed unverified{way_out}")
    if unlocked:
        lines = "1 line" if unlocked == 1 else f"{unlocked} lines"
        output.note(f"plus {lines} of yours, resolved when the image is built: see requirements.user.txt")
    if job.can_be_built_next:
        output.note(f"next: {shlex.join(('provision', *job.words, '--build'))}")
    return {
        "files": [artifact.path for artifact in artifacts],
        "written": list(changes.written),
        "removed": list(changes.removed),
    }


def _give(output: Output, document: dict[str, Any]) -> None:
    """Print the document where one was asked for; what people need to know went to the standard error."""
    if output.is_json:
        output.give(document, "")


def _build(job: _Job, options: argparse.Namespace, output: Output) -> int:
    import dataclasses

    from provision.build.engine import BuildRequest
    from provision.build.progress import report_progress
    from provision.build.record import BuildRecord, record_path, write_record
    from provision.build.verify import verify_image

    try:
        engine = _find_engine(options.builder or "auto")
    except MissingDependencyError:
        # The context is worth having without an engine: another machine can build it.
        _write(job, output, is_forced=options.force)
        raise
    if job.stack.image is not None and job.stack.python is not None and job.stack.request.base:
        from provision.build.base import check_base

        files = [package.file for package in job.stack.image.packages if package.file]
        check_base(engine, pull_reference(job.stack.image.base, job.options), job.stack.python, files)
    job = _render_for(engine, job, output)
    written = _write(job, output, is_forced=options.force)
    image = job.stack.image
    tags = tuple(options.tag or (job.stack.name.lower(),))
    record_file = record_path(job.folder)
    request = BuildRequest(
        tags=tags,
        purpose="file" if options.export else "push" if options.push else "local",
        archive=options.export.path if options.export else None,
        destination=options.export,
        compression=options.compression,
        platform=job.stack.platform,
        source_date_epoch=image.source_date_epoch if image else None,
        log_path=record_file.with_suffix(".log"),
        has_ssh=has_ssh(job.stack),
    )
    pushed: list[tuple[str, str]] = []
    output.note(f"building with {engine.name} {engine.version}")
    with (
        build_secrets(job.options.logins, options.accounts) as secrets,
        report_progress(sys.stderr, is_quiet=output.verbosity < 0, is_verbose=output.verbosity > 0) as observer,
    ):
        result = engine.build(job.folder, dataclasses.replace(request, secrets=secrets), observer)
        is_in_store = result.image is not None and job.stack.python is not None
        findings = verify_image(engine, tags[0]) if is_in_store else None
        if options.push:
            pushed = [(tag, engine.push(tag, observer)) for tag in tags]
    if pushed:
        # Only now does the engine know the digest in the registry.
        result = dataclasses.replace(result, image=engine.inspect(tags[0]))
    record = BuildRecord(
        lock_digest=job.stack.lock_digest,
        tags=tags,
        engine=engine,
        frontend=job.options.frontend,
        result=result,
        findings=findings,
        pushed=tuple(pushed),
    )
    write_record(record_file, record)
    output.note(result.export.why)
    if result.archive is not None:
        output.note(f"wrote {result.archive}")
    if result.image is not None:
        proved = "no Python inside to verify"
        if findings is not None:
            waiting = [finding.check for finding in findings if finding.needs_gpu]
            proved = f"{len(findings) - len(waiting)} checks passed inside"
            proved += f", only a GPU can tell of {', '.join(waiting)}" if waiting else ""
        output.note(f"built {tags[0]}: {result.image.id[:19]}, {result.image.size_bytes / 1e9:.2f} GB, {proved}")
    for tag, digest in pushed:
        output.note(f"pushed {tag}@{digest}")
    output.note(f"record {record_file}")
    _give(output, {**job.document(), **written, "build": record.to_json()})
    return 0


def _find_engine(builder: str) -> Engine:
    if builder == "auto":
        from provision.build.engine import find_engine

        return find_engine()
    if builder == "sdk":
        from provision.build import sdk

        try:
            return sdk.connect()
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "`--builder sdk` needs the docker SDK for Python, which is not installed",
                hints=(install_command("docker"), "or leave `--builder` out"),
            ) from error
    from provision.build import buildx

    engine = buildx.connect()
    if engine is None:
        raise MissingDependencyError(
            "`--builder buildx` found neither buildx nor a working BuildKit",
            hints=("install the plug-in (Debian, Ubuntu: `apt install docker-buildx`)", "or leave `--builder` out"),
        )
    return engine


def _render_for(engine: Engine, job: _Job, output: Output) -> _Job:
    """Choose the newest form of Dockerfile that both the person and the engine accept."""
    if FRONTENDS.index(engine.frontend) <= FRONTENDS.index(job.options.frontend):
        return job
    output.note(f"written for the `{engine.frontend}` frontend, the newest that {engine.name} here can build")
    return replace(job, options=replace(job.options, frontend=engine.frontend), is_recorded=True)
