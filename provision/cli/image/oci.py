"""``provision image --engine oci``: what the flags mean for an image that is written without an engine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.output import Output
from provision.cli.parser import add_value
from provision.errors import MissingDependencyError, UsageError, shown
from provision.generate.image import CODE, ImageOptions, make_recipe
from provision.generate.recipe import LOCAL_FOLDER
from provision.matrix.load import Matrix
from provision.resolve.stack import Stack

if TYPE_CHECKING:
    from provision.build.oci.codec import Codec, Compression
    from provision.build.oci.image import OciImage, OciJob
    from provision.build.oci.store import Store
    from provision.build.record import BuildRecord

ENGINES = ("auto", "docker", "oci")


def add_engine_flags(parser: argparse._ArgumentGroup) -> None:
    """Add the flags that say who makes the image."""
    from provision.cli.parser import add_choice, parse_path

    add_choice(
        parser,
        "--engine",
        ENGINES,
        help=(
            "docker (the default of --build); oci writes the image from wheels without a daemon; auto uses oci "
            "if nothing has to be executed"
        ),
    )
    add_value(
        parser,
        "--base-layout",
        "DIR|TAR",
        "base image for --engine oci: an OCI layout, its archive, or the output of `docker save`",
        parse_path,
    )
    add_value(
        parser,
        "--layer-cache",
        "GIB",
        "size limit of the layer cache of --engine oci; least recently used layers are removed first "
        "(default: 20, or PROVISION_LAYER_CACHE)",
    )


def choose_engine(options: argparse.Namespace) -> None:
    """Let ``--engine oci`` mean a build, and refuse what it cannot do.

    Raises:
        UsageError: A flag makes no sense beside it.
    """
    if options.engine is None:
        for flag in ("base_layout", "layer_cache"):
            if getattr(options, flag) is not None:
                name = flag.replace("_", "-")
                raise UsageError(f"--{name} is about `--engine oci`", hints=("add `--engine oci`",))
        return
    if options.engine == "oci":
        for flag in ("push", "builder", "matrix", "syntax"):
            if getattr(options, flag):
                raise UsageError(
                    f"--{flag} and --engine oci exclude each other",
                    because=("no engine takes part",),
                    hints=("`skopeo copy oci-archive:FILE docker://NAME` pushes what it writes",)
                    if flag == "push"
                    else ("keep one of the two",),
                )
        options.build = not (options.print or options.check)
    elif not (options.build or options.push):
        raise UsageError("--engine is about a build", hints=("add `--build`",))
    if options.engine == "docker" and (options.base_layout is not None or options.layer_cache is not None):
        name = "base-layout" if options.base_layout is not None else "layer-cache"
        raise UsageError(f"--{name} is about `--engine oci`", hints=("leave one of the two out",))
    if options.engine != "docker":
        _bytes_max(options)


def plan_without_engine(
    options: argparse.Namespace,
    output: Output,
    *,
    stack: Stack,
    image_options: ImageOptions,
    folder: Path,
    matrix: Matrix,
) -> Callable[[], dict[str, Any]] | None:
    """Judge whether the image is written here, as flags and stack want it.

    Args:
        options: The command line.
        output: Where words go.
        stack: What is wanted.
        image_options: How its context is written.
        folder: Where the context lies, or will.
        matrix: The facts.

    Returns:
        What writes it and returns the record of the build; nothing where an engine is to build.

    Raises:
        UsageError: The image needs an engine, or there is no base, or the target cannot be written.
        MissingDependencyError: A library is absent.
    """
    if options.engine not in ("oci", "auto") or options.push:
        return None
    from provision.build.oci.image import OciJob, check_possible
    from provision.build.oci.target import Formats, check_target
    from provision.index.address import known_index

    try:
        recipe = make_recipe(stack, image_options)
        check_possible(stack, recipe)
        base = _base(options, stack)
    except UsageError as error:
        if options.engine == "oci":
            raise
        output.note(f"an engine builds it: {'; '.join((error.message, *error.because))}")
        return None
    target, compression = _target(options, folder)
    check_target(target, is_folder=target.suffix != ".tar")
    job = OciJob(
        stack=stack,
        recipe=recipe,
        base=base,
        target=target,
        is_folder=target.suffix != ".tar",
        tags=tuple(options.tag or (stack.name.lower(),)),
        codec=_codec(compression),
        store=_store(options),
        formats=Formats(
            layout=matrix.setting("images.toml", "oci_layout").value or "",
            hub=matrix.setting("audit_rules.toml", "hub_names").values[0],
        ),
        address=known_index(),
        index_url=image_options.index_url,
        ca_cert=image_options.ca_cert,
        accounts=options.accounts,
        local=folder / LOCAL_FOLDER,
        code=folder / CODE,
    )
    return lambda: _write(job, output, folder)


def _write(job: OciJob, output: Output, folder: Path) -> dict[str, Any]:
    from provision.build.oci.image import write_image
    from provision.build.oci.watch import show_watch
    from provision.build.record import record_path, write_record

    target = job.target
    if output.is_dry_run:
        output.note(f"would write {target} from {job.base} and the wheels of the lock")
        return {}
    with show_watch(sys.stderr, is_quiet=output.verbosity < 0) as watch:
        image = write_image(job, watch)
    for note in image.notes:
        output.warn(note)
    record = _record(job, image)
    record_file = record_path(folder)
    write_record(record_file, record)
    cached = [layer.name for layer in image.layers if layer.is_cached and layer.name != "base"]
    output.note(
        f"wrote {target}: {image.config_digest[:19]}, {image.size / 1e9:.2f} GB in {image.seconds:.1f} s"
        + (f", {' and '.join(cached)} from the cache" if cached else "")
    )
    output.note(f"record {record_file}; nothing has run the image yet: `docker load -i {target}` and")
    output.note(f"  `docker run --rm --entrypoint python {job.tags[0]} /opt/provision/verify.py --static` prove it")
    return record.to_json()


def _base(options: argparse.Namespace, stack: Stack) -> Path:
    if options.base_layout is not None:
        path: Path = options.base_layout
        if not path.exists():
            raise UsageError(
                f"--base-layout: {path} does not exist",
                hints=("write one with `skopeo copy docker://IMAGE oci:DIR` or `docker save -o FILE IMAGE`",),
            )
        return path
    base = stack.image.base if stack.image is not None else None
    named = base.ref if base is not None else "IMAGE"
    if base is not None and base.digest:
        # A name with both is not taken by every version of the tool.
        named = f"{named.partition(':')[0] if '/' not in named else named.rpartition(':')[0]}@{base.digest}"
    raise UsageError(
        "--engine oci needs the base image as files",
        because=("no engine is needed for it",),
        hints=(
            f"`skopeo copy --all docker://{named} oci:base`, then `--base-layout base`",
            "or `docker save -o base.tar IMAGE`, then `--base-layout base.tar --base IMAGE`",
        ),
    )


def _target(options: argparse.Namespace, folder: Path) -> tuple[Path, str | None]:
    """Return where the image goes and how its layers are compressed."""
    compression: str | None = options.compression
    if options.export is None:
        whole = folder.resolve()
        return whole.with_name(f"{whole.name}.oci.tar"), compression
    if options.export.kind != "oci":
        raise UsageError(
            f"--output type={options.export.kind} needs an engine", hints=("write `--output type=oci,dest=FILE.tar`",)
        )
    for name, value in options.export.options:
        if name != "compression":
            raise UsageError(f"--output {name}={value} is nothing that --engine oci takes", hints=("leave it out",))
        if compression not in (None, value):
            raise UsageError("--compression and --output disagree", hints=("keep one of the two",))
        compression = value
    return options.export.path, compression


def _codec(compression: str | None) -> Codec:
    from provision.build.oci.codec import find_codec

    if compression not in (None, "zstd", "gzip"):
        raise UsageError(f"--compression {compression} needs an engine", hints=("choose zstd or gzip",))
    chosen: Compression | None = compression  # type: ignore[assignment]
    return find_codec(chosen)


def _bytes_max(options: argparse.Namespace) -> int:
    """Return how many bytes of layers are kept from run to run.

    Raises:
        UsageError: What says so is not a number.
    """
    import os
    import re

    from provision.build.oci.store import BYTES_MAX

    variable = "PROVISION_LAYER_CACHE"
    name, text = "--layer-cache", options.layer_cache
    if text is None:
        name, text = variable, os.environ.get(variable, "")
        if not text:
            return BYTES_MAX
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text):
        raise UsageError(f"{name} `{shown(text)}` is not a number of GiB", hints=("write it as in `--layer-cache 20`",))
    return int(float(text) * 2**30)


def _store(options: argparse.Namespace) -> Store:
    from provision.build.oci.store import Store
    from provision.matrix.cache import cache_folder

    folder = cache_folder()
    if folder is None:
        raise MissingDependencyError(
            "there is no folder to keep layers in", hints=("name one with PROVISION_CACHE_DIR",)
        )
    return Store(folder / "oci", bytes_max=_bytes_max(options))


def _record(job: OciJob, image: OciImage) -> BuildRecord:
    from provision import __version__
    from provision.build.engine import BuildResult, ImageInfo
    from provision.build.export import Export
    from provision.build.oci.image import OciWriter
    from provision.build.progress import Step
    from provision.build.record import BuildRecord

    export = Export(
        purpose="file",
        exporter="oci",
        options=(("compression", job.codec.compression),),
        why="written from wheels, in one pass from archive to layer",
    )
    info = ImageInfo(
        id=image.config_digest,
        size_bytes=image.size,
        layers=tuple(layer.diff_id for layer in image.layers),
    )
    steps = tuple(
        Step(name=f"layer {layer.name}", status="cached" if layer.is_cached else "done")
        for layer in image.layers
        if layer.name != "base"
    )
    return BuildRecord(
        lock_digest=job.stack.lock_digest,
        tags=job.tags,
        engine=OciWriter(version=__version__),
        frontend="none",
        result=BuildResult(image=info, archive=job.target, export=export, steps=steps, seconds=image.seconds),
    )
