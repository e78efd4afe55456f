"""A recipe as an Apptainer definition.

The final file system of a definition is one image without layers, so the stages are written one after the other into
one ``%post``, and what only the build needs is removed at its end. Containers run as the user who starts them, so no
user is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.errors import UsageError
from provision.generate.image import CODE, ImageOptions, make_recipe, to_artifacts
from provision.generate.quote import finalize, join_shell, quote_variable
from provision.generate.recipe import (
    BUILD,
    PROJECTS,
    TOOLS,
    VENV,
    WHEELS,
    Cmd,
    Copy,
    Env,
    Install,
    Label,
    Listed,
    Recipe,
    Run,
    Setup,
    Step,
    Verify,
    When,
    lines_of,
)
from provision.generate.write import Artifact
from provision.records import replace
from provision.resolve.stack import INIT, Stack

DEFINITION = "provision.def"
_KEPT = "/opt/provision"
_LIBRARIES = f"{BUILD}/layer.tar"


def render_apptainer(stack: Stack, options: ImageOptions | None = None) -> tuple[Artifact, ...]:
    """Write a stack down as a definition and the files it copies.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: How to write it; what only Dockerfiles have is not used.

    Returns:
        The files, sorted by path.

    Raises:
        UsageError: A value would not be safe in a file, or code would have to be compiled.
    """
    recipe = make_recipe(stack, replace(options or ImageOptions(), frontend="modern", syntax=None))
    if stack.image is not None and stack.image.compiled:
        raise UsageError(
            f"{' and '.join(stack.image.compiled)} would be compiled, which the Apptainer definition has no stage for",
            hints=(
                "build the image from the Dockerfile and convert it: `apptainer build x.sif docker-daemon:NAME:TAG`",
            ),
        )
    return to_artifacts({**recipe.files, DEFINITION: write_definition(recipe)})


def write_definition(recipe: Recipe) -> str:
    """Return the definition of a recipe.

    Raises:
        UsageError: A value would start a line of its own.
    """
    file = f"{recipe.name}.sif"
    head = recipe.head(f"Build: apptainer build {file} {DEFINITION}", f"Run: apptainer run --nv {file}")
    stages = {stage.name: stage for stage in recipe.stages}
    lines: list[str] = []
    libraries = stages.pop("cuda", None)
    if libraries is not None:
        lines += ["Bootstrap: docker", f"From: {_reference(libraries.base)}", "Stage: cuda", *head, ""]
        packing = ("# Links stay links only inside an archive.", "tar -C /layer -cf /layer.tar .")
        lines += _section("post", ["set -eu", f"# {libraries.comment}", *_post(libraries.steps), *packing])
        head = []
    steps = [step for stage in stages.values() for step in stage.steps]
    lines += ["Bootstrap: docker", f"From: {_reference(stages['base'].base)}", "Stage: final", *head, ""]
    if libraries is not None:
        lines += _section("files from cuda", [f"/layer.tar {_LIBRARIES}"])
    for title, section in _sections(recipe, steps).items():
        lines += _section(title, section)
    return "\n".join(map(finalize, lines))


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"%{title}", *(f"    {line}" for line in lines), ""]


def _sections(recipe: Recipe, steps: list[Step]) -> dict[str, list[str]]:
    """Return the sections of the final stage, in order."""
    context = sorted({*recipe.files, *(path for path in recipe.own_files if not path.startswith(f"{CODE}/"))})
    files = [f"{path} {BUILD}/{path}" for path in context if path != "requirements.lock.txt"]
    if any(isinstance(step, Copy) and step.sources[0].startswith(f"{CODE}/") for step in steps):
        files.append(f"{CODE} {BUILD}/{CODE}")
    command = next(step for step in steps if isinstance(step, Cmd))
    proof = [step for step in steps if isinstance(step, Verify)][-1]
    kept = [] if proof.toolkit is not None else [f"cp {BUILD}/expect.json {_KEPT}/"]
    names = {stage.name for stage in recipe.stages}
    removed = [BUILD, TOOLS, "/opt/seed", *([WHEELS] if names & {"compile", "project"} else [])]
    removed += [PROJECTS] if "project" in names else []
    labels = [step for step in steps if isinstance(step, Label) and step.value]
    name = recipe.name
    return {
        "files": files,
        "post": ["set -eu", *_post(steps), *kept, f"rm -rf {' '.join(removed)}"],
        "environment": [line for step in steps if isinstance(step, Env) for line in _environment(step)],
        "labels": [f"{label.name} {label.value}" for label in labels],
        "runscript": [
            'if [ "$#" -eq 0 ]; then',
            f"  set -- {join_shell(*command.words)}",
            "fi",
            'exec sh /usr/local/bin/provision-entrypoint "$@"',
        ],
        "test": list(_lines(replace(proof, part="static").to_run(_KEPT))),
        "help": [
            f"{name}, driver {recipe.driver} or newer. With a GPU: apptainer run --nv {name}.sif"
            if recipe.driver
            else f"{name}, without CUDA: apptainer run {name}.sif"
        ],
    }


def _post(steps: Iterable[Step]) -> Iterator[str]:
    """Yield the lines that do the same in one file system: what another stage made is there already."""
    unset: dict[str, str] = {}
    for step in steps:
        if isinstance(step, Env):
            unset |= step.values
        if isinstance(step, (Run, Setup, Install, Verify)):
            yield from (f"export {name}={quote_variable(value)}" for name, value in unset.items())
            unset = {}
        match step:
            case Run():
                yield from _lines(step)
            case Setup(python=python):
                yield f"mkdir -p {_KEPT} /workspace"
                yield from [f"{python} -m venv --without-pip {VENV}"] if python else []
            case Install() | Verify():
                yield from _lines(step.to_run())
            case Copy(stage="cuda"):
                yield f"tar -C / -xf {_LIBRARIES}"
            case Copy():
                # An instance of Apptainer has a first process already.
                if sources := [source for source in step.sources if not source.endswith(f"/{INIT}")]:
                    yield _copy(step, sources)


def _lines(run: Run) -> Iterator[str]:
    for command in run.commands:
        match command:
            case When():
                yield from (f"if {command.test}; then", *(f"  {line}" for line in command.then), "fi")
            case Listed():
                yield " ".join((command.command, *command.words))
            case _:
                yield from lines_of(command)


def _copy(step: Copy, sources: list[str]) -> str:
    """Return what puts files, or all that a folder holds, where the image has them."""
    places = sources if step.stage else [f"{BUILD}/{source}" for source in sources]
    if sources[0].endswith("/"):
        return f"mkdir -p {step.target} && cp -r {places[0]}. {step.target}"
    copy = f"cp {' '.join(places)} {step.target}"
    return copy if step.uid is None else f"mkdir -p {step.target.rpartition('/')[0] or '/'} && {copy}"


def _environment(step: Env) -> Iterator[str]:
    for name, value in step.values.items():
        if name == "LD_LIBRARY_PATH":
            # `--nv` puts the driver's own there.
            yield f'export {name}="{value}${{{name}:+:${{{name}}}}}"'
        elif not name.startswith("NVIDIA_"):
            yield f"export {name}={quote_variable(value)}"


def _reference(reference: str) -> str:
    """Return what to pull; of a tag and a digest together Apptainer takes the digest alone."""
    name, at, digest = reference.partition("@")
    if not at:
        return reference
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"
