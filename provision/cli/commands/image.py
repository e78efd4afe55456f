"""Write, check or build a GPU container image.

The build context goes into a folder: Dockerfile, locked requirements, the lock itself, the script that proves the
image and its entrypoint. No container engine, network or GPU is needed for that. With --build the engine at hand
builds it, the image is verified inside, and a record of the build is written beside the folder.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.files import read_text
from provision.cli.output import Output
from provision.cli.parser import Once, one_of, parse_path, shown
from provision.cli.request import add_request_flags, other_words, read_matrix, read_request, read_values, solve_request
from provision.cli.screen import show_stack
from provision.errors import MissingDependencyError, UnknownError, UsageError
from provision.generate.image import FRONTENDS, ImageOptions, count_unlocked, render_image
from provision.generate.write import Artifact, check_artifacts, write_artifacts
from provision.matrix.load import Matrix
from provision.records import record, replace
from provision.resolve.request import Request, to_flags
from provision.resolve.stack import Stack

if TYPE_CHECKING:
    from provision.build.engine import Engine

__all__ = ["configure", "run"]

_BUILDERS = ("auto", "buildx", "sdk")
_CERTIFICATE_BYTES_MAX = 1024 * 1024
_TAG = re.compile(
    r"(?:[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]{1,5})?/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_request_flags(parser)
    where = parser.add_argument_group("where it goes")
    where.add_argument(
        "-o",
        "--output",
        dest="folder",
        action=Once,
        type=parse_path,
        metavar="DIR",
        help="folder to write; ./NAME-OF-THE-STACK unless given",
    )
    where.add_argument("--print", action="store_true", help="print the Dockerfile and write nothing")
    where.add_argument("--force", action="store_true", help="write over files of somebody else")
    where.add_argument(
        "--check",
        "--locked",
        action="store_true",
        help="write nothing, and fail where the folder is not what would be written",
    )
    how = parser.add_argument_group("how it is written")
    how.add_argument(
        "--frontend",
        action=Once,
        type=one_of("--frontend", FRONTENDS),
        choices=FRONTENDS,
        help="which builder must understand it: today's BuildKit, Docker 20.10's, or the classic one",
    )
    how.add_argument("--syntax", action=Once, metavar="IMAGE", help="add a `# syntax` line, which the builder pulls")
    how.add_argument(
        "--index-url",
        action=Once,
        metavar="URL",
        help="package index to take every wheel from, instead of PyPI and the frameworks' own indexes",
    )
    how.add_argument(
        "--ca-cert", action=Once, type=parse_path, metavar="FILE", help="certificates (PEM) to trust while building"
    )
    how.add_argument("--registry-mirror", action=Once, metavar="HOST", help="registry to pull Docker Hub's images from")
    how.add_argument("--non-root-uid", action=Once, type=_uid, metavar="N", help="user the image runs as")
    how.add_argument("--label", action="append", metavar="KEY=VALUE", help="another label; may be repeated")
    how.add_argument("--fetch-hashes", action="store_true", help="ask the index for hashes the facts do not hold")
    build = parser.add_argument_group("building it")
    build.add_argument("--build", action="store_true", help="build the image and verify it inside")
    build.add_argument("--push", action="store_true", help="build it and push every --tag")
    build.add_argument("--tag", action="append", metavar="NAME", help="name of the image; may be repeated")
    build.add_argument(
        "--builder",
        action=Once,
        type=one_of("--builder", _BUILDERS),
        choices=_BUILDERS,
        help="what builds it; auto takes buildx, then the docker SDK",
    )


def run(options: argparse.Namespace, output: Output) -> int:
    """Resolve, render, then print, check, write or build."""
    _check_flags(options)
    ca_cert = None
    if options.ca_cert is not None:
        ca_cert = read_text(options.ca_cert, "--ca-cert", bytes_max=_CERTIFICATE_BYTES_MAX)
    image_options = ImageOptions(
        frontend=options.frontend or FRONTENDS[0],
        syntax=options.syntax,
        index_url=options.index_url,
        ca_cert=ca_cert,
        registry_mirror=options.registry_mirror,
        labels=_labels(options.label or ()),
        **({} if options.non_root_uid is None else {"non_root_uid": options.non_root_uid}),
    )
    matrix = read_matrix(options)
    request = read_request(read_values(options), options.requirements or ())
    stack = solve_request(request, matrix, "image", other_words(options))
    if stack.image is None:
        raise _refuse_without_image(stack, request, matrix, other_words(options))
    if options.fetch_hashes:
        stack = _fetch_hashes(stack, image_options, output)
    job = _Job(
        stack=stack,
        options=image_options,
        folder=options.folder or Path(stack.name),
        words=("image", *to_flags(request), *other_words(options)),
        can_be_built_next=not (options.build or options.push),
        were_hashes_fetched=options.fetch_hashes,
    )
    if options.print:
        dockerfile = next(item.text for item in job.render() if item.path == "Dockerfile")
        output.note(f"facts of {stack.facts_date}")
        output.give({**job.document(), "dockerfile": dockerfile}, dockerfile.rstrip("\n"))
        return 0
    if options.check:
        check_artifacts(job.folder, job.render())
        output.note(f"{job.folder} is what this request writes; facts of {stack.facts_date}")
        _give(output, {**job.document(), "files": [item.path for item in job.render()]})
        return 0
    if not output.is_dry_run and (options.build or options.push):
        return _build(job, options, output)
    written = _write(job, output, is_forced=options.force)
    _give(output, {**job.document(), **written})
    return 0


@record
class _Job:
    """What is to be written: a stack, how, and where."""

    stack: Stack
    options: ImageOptions
    folder: Path
    words: tuple[str, ...]
    can_be_built_next: bool
    were_hashes_fetched: bool

    def render(self) -> tuple[Artifact, ...]:
        return render_image(self.stack, self.options)

    def document(self) -> dict[str, Any]:
        image = self.stack.image
        return {
            "stack": self.stack.to_json(),
            "folder": str(self.folder),
            "frontend": self.options.frontend,
            "unverified": image.unverified if image else 0,
            "unlocked": count_unlocked(image) if image else 0,
        }


def _check_flags(options: argparse.Namespace) -> None:
    actions = [flag for flag in ("print", "check", "build", "push") if getattr(options, flag)]
    if len(actions) > 1 and actions != ["build", "push"]:
        raise UsageError(f"--{actions[0]} and --{actions[1]} exclude each other", hints=("keep one of the two",))
    if options.folder is not None and (options.print or str(options.folder) == "-"):
        raise UsageError(
            "-o names a folder, and --print writes none", hints=("keep `--print`, or name a folder with `-o DIR`",)
        )
    if not (options.build or options.push) and (options.tag or options.builder):
        flag = "--tag" if options.tag else "--builder"
        raise UsageError(f"{flag} is about a build", hints=("add `--build`",))
    if options.push and not options.tag:
        raise UsageError("--push needs to know where to", hints=("name the image: `--tag registry.example/team/name`",))
    for tag in options.tag or ():
        if not tag.isascii() or not _TAG.fullmatch(tag):
            raise UsageError(
                f"--tag `{shown(tag)}` is no image name", hints=("write it as in `registry.example/team/name:1.0`",)
            )


def _uid(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not text.isascii():
        raise UsageError(f"--non-root-uid `{shown(text)}` is no number")
    return int(text)


def _labels(pairs: list[str] | tuple[()]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(
                f"--label `{shown(pair)}` is no KEY=VALUE", hints=("write it as in `--label team=vision`",)
            )
        if labels.setdefault(key, value) != value:
            raise UsageError(f"--label {shown(key)} was given two values", hints=("keep one of the two",))
    return labels


def _refuse_without_image(stack: Stack, request: Request, matrix: Matrix, others: tuple[str, ...]) -> UnknownError:
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
        found = solve(anywhere, matrix)
        if isinstance(found, Stack) and found.image is not None:
            command = shlex.join(("provision", "image", *to_flags(anywhere), *others))
            change = f"any system instead of {request.os}: {found.os}"
            alternatives.append({"command": command, "change": change})
            hints.insert(0, f"`{command}` works: {change}")
    return UnknownError(
        f"{stack.name} is a sound stack, but the facts list no image to build it on",
        because=(lacking,),
        hints=hints,
        details={"alternatives": alternatives},
    )


def _fetch_hashes(stack: Stack, image_options: ImageOptions, output: Output) -> Stack:
    from provision.build.hashes import complete_hashes

    completed, left = complete_hashes(stack, index_url=image_options.index_url, ca_cert=image_options.ca_cert)
    for why in left:
        output.warn(why)
    return completed


def _write(job: _Job, output: Output, *, is_forced: bool) -> dict[str, Any]:
    artifacts = job.render()
    changes = write_artifacts(job.folder, artifacts, force=is_forced, dry_run=output.is_dry_run)
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
    job = _render_for(engine, job, output)
    written = _write(job, output, is_forced=options.force)
    image = job.stack.image
    tags = tuple(options.tag or (job.stack.name.lower(),))
    record_file = record_path(job.folder)
    request = BuildRequest(
        tags=tags,
        purpose="push" if options.push else "local",
        platform=job.stack.platform,
        source_date_epoch=image.source_date_epoch if image else None,
        log_path=record_file.with_suffix(".log"),
    )
    pushed: list[tuple[str, str]] = []
    output.note(f"building with {engine.name} {engine.version}")
    with report_progress(sys.stderr, is_quiet=output.verbosity < 0, is_verbose=output.verbosity > 0) as observer:
        result = engine.build(job.folder, request, observer)
        findings = verify_image(engine, tags[0]) if job.stack.python is not None else None
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
    if result.image is not None:
        proved = f"{len(findings)} checks passed inside" if findings is not None else "no Python inside to verify"
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
                hints=("`pip install 'gpu-provision[docker]'`", "or leave `--builder` out"),
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
    return replace(job, options=replace(job.options, frontend=engine.frontend))
