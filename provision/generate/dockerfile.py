"""A recipe as a Dockerfile, for the builders there are: BuildKit, the one inside Docker 20.10, and the classic one."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator

from provision.generate.quote import finalize, join_shell, quote_dockerfile, quote_variable
from provision.generate.recipe import (
    BUILD,
    LOCAL_FOLDER,
    NETRC,
    VENV,
    Arg,
    Cmd,
    Command,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Install,
    Label,
    Listed,
    Mount,
    Own,
    Recipe,
    Run,
    Setup,
    Stage,
    Step,
    User,
    Verify,
    When,
    Workdir,
    lines_of,
    local_files,
)
from provision.records import replace

_KEPT = "/opt/provision"
_STAMP = f"touch {BUILD}/stamp"
_WHY_LOCKED = """\
The classic builder has no mounts, so the environment is made here and copied layer by layer; hard links keep the
layers free of cost, and a file belongs to the layer whose installation wrote it last."""


def write_dockerfile(recipe: Recipe, *, frontend: str, syntax: str | None = None) -> str:
    """Return the Dockerfile of a recipe.

    Args:
        recipe: The image.
        frontend: What the builder knows: ``modern``, ``builtin`` or ``classic``.
        syntax: Reference for a ``# syntax`` line.

    Raises:
        UsageError: A value would start a line of its own.
    """
    lines = [f"# syntax={syntax}"] if syntax else []
    lines += recipe.head(f"Build: {_build_command(recipe, frontend)}")
    for stage in _without_mounts(recipe.stages) if frontend == "classic" else recipe.stages:
        comment = [f"# {line}" for line in (stage.comment or "").splitlines()]
        lines += ["", *comment, f"FROM {stage.base} AS {stage.name}"]
        for step in stage.steps:
            lines += _instruct(step, frontend)
    return "\n".join(map(finalize, lines)) + "\n"


def _build_command(recipe: Recipe, frontend: str) -> str:
    if frontend == "classic":
        return join_shell("DOCKER_BUILDKIT=0", "docker", "build", "--tag", recipe.name, ".")
    words = ["docker", "buildx", "build", "--load"]
    if frontend == "builtin":
        words = ["DOCKER_BUILDKIT=1", "docker", "build"]
    words += ["--platform", recipe.platform]
    if recipe.source_date_epoch:
        words += ["--build-arg", f"SOURCE_DATE_EPOCH={recipe.source_date_epoch}"]
    words += ["--ssh", "default"] if recipe.has_ssh else []
    secret = f'--secret "id={NETRC},src=$HOME/.netrc" ' if recipe.logins else ""
    return f"{join_shell(*words)} {secret}{join_shell('--tag', recipe.name, '.')}"


def _instruct(step: Step, frontend: str) -> list[str]:
    """Return the lines of a step."""
    match step:
        case Run():
            return _run(step)
        case Setup():
            return _run(Run(commands=_set_up(step, has_environment=frontend != "classic")))
        case Install():
            return _run(step.to_run(has_cache=True))
        case Verify():
            return _run(step.to_run())
        case Copy():
            words = ["--link"] if frontend == "modern" and step.uid is None else []
            words += [f"--from={step.stage}"] if step.stage else []
            words += [f"--chown={step.uid}:{step.uid}"] if step.uid is not None else []
            return [f"COPY {' '.join([*words, *step.sources, step.target])}"]
        case Own():
            why = "# Who works inside adds and replaces files; those of the layers below stay what they are."
            return [why, f"RUN find {step.folder} -type d -exec chown {step.uid}:{step.uid} {{}} +"]
        case Env():
            *first, last = (f"{name}={quote_variable(value)}" for name, value in step.values.items())
            pairs = [*(f"{pair} \\" for pair in first), last]
            return [f"ENV {pairs[0]}", *(f"    {pair}" for pair in pairs[1:])]
        case Arg():
            return [f"ARG {step.name}"]
        case Label():
            return [f"LABEL {step.name}={quote_dockerfile(step.value)}"]
        case Expose():
            return [f"EXPOSE {step.port}"]
        case Workdir():
            return [f"WORKDIR {step.path}"]
        case User():
            return [f"USER {step.uid}:{step.uid}"]
        case Entrypoint():
            return [f"ENTRYPOINT {json.dumps(step.words)}"]
        case Cmd():
            return [f"CMD {json.dumps(step.words)}"]


def _run(step: Run) -> list[str]:
    lines = [f"{_mount(mount)} \\" for mount in step.mounts]
    lines += [f"--mount=type=bind,source={file},target={BUILD}/{file} \\" for file in step.files]
    for command in step.commands[:-1]:
        *first, last = lines_of(_spell(command))
        lines += [*first, f"{last} && \\"]
    lines += lines_of(_spell(step.commands[-1]))
    return [f"RUN {lines[0]}", *(f"    {line}" for line in lines[1:])]


def _spell(command: Command) -> str:
    match command:
        case When():
            return f"if {command.test}; then \\\n  {' && '.join(command.then)}; \\\nfi"
        case Listed():
            # The list ends with a line of its own, so that another word is one more line and changes none.
            return "".join([f"{command.command} \\\n", *(f"  {word} \\\n" for word in command.words), " "])
        case _:
            return command


def _mount(mount: Mount) -> str:
    if mount.is_ssh:
        return "--mount=type=ssh,required=true"
    if mount.secret is not None:
        return f"--mount=type=secret,id={mount.secret},target={mount.target},required=true"
    if mount.stage is None:
        return f"--mount=type=cache,id=provision-uv,target={mount.target}"
    words = f"--mount=type=bind,from={mount.stage},source={mount.target},target={mount.target}"
    return f"{words},rw" if mount.is_writable else words


def _set_up(step: Setup, *, has_environment: bool) -> tuple[str, ...]:
    owner = f"{step.uid}:{step.uid}"
    commands = [
        f"printf 'provision:x:{step.uid}:\\n' >> /etc/group",
        f"printf 'provision:x:{owner}::/home/provision:/bin/sh\\n' >> /etc/passwd",
        "mkdir -p /home/provision /workspace",
        f"chown {owner} /home/provision /workspace",
    ]
    if step.removed:
        commands.append("rm -rf " + " \\\n  ".join(map(" ".join, step.removed)))
    if step.python and has_environment:
        commands.append(f"{step.python} -m venv --without-pip {VENV}")
    return tuple(commands)


def _without_mounts(stages: tuple[Stage, ...]) -> Iterator[Stage]:
    """Yield the stages for a builder without mounts: files are copied, and the environment is made in a stage."""
    *below, image = stages
    for stage in below:
        yield replace(stage, steps=tuple(_copied(stage.steps)))
    installs = [step for step in image.steps if isinstance(step, Install)]
    setup = next(step for step in image.steps if isinstance(step, Setup))
    if setup.python:
        yield _locked(setup.python, [step for step in installs if not step.is_own])
        if own := [step for step in installs if step.is_own]:
            yield _user(own)
    yield replace(image, steps=tuple(_copied(image.steps)))


def _copied(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield what does the same as steps of which no file or folder is mounted."""
    there: set[str] = set()
    for step in steps:
        if isinstance(step, Run) and step.files:
            yield Copy(
                sources=tuple(sorted(step.files)), target=posixpath.join(BUILD, posixpath.dirname(step.files[0]), "")
            )
            yield replace(step, files=())
        elif isinstance(step, Install) or (isinstance(step, Verify) and step.toolkit is None):
            own = ("user" if step.is_own else step.layer,) if isinstance(step, Install) else ()
            for layer in ("venv", *own):
                if layer not in there:
                    stage = "user" if layer == "user" else "locked"
                    yield Copy(sources=(f"/layers/{layer}/",), target="/", stage=stage)
                    there.add(layer)
            if isinstance(step, Verify):
                if _KEPT not in there:
                    yield Copy(sources=step.to_run().files, target=f"{_KEPT}/")
                    there.add(_KEPT)
                yield replace(step.to_run(_KEPT), files=())
        else:
            yield step


def _locked(python: str, installs: list[Install]) -> Stage:
    commands: list[Command] = [
        "mkdir -p /layers/venv",
        f"{python} -m venv --without-pip {VENV}",
        f"cp -al --parents -t /layers/venv {VENV}",
    ]
    for step in installs:
        commands += [_STAMP, *step.to_run().commands, f"mkdir -p /layers/{step.layer}", _collect(step.layer)]
    files = ("compile_bytecode.py", "constraints.txt", *(step.file for step in installs))
    steps: tuple[Step, ...] = (
        Env(values={"PATH": f"{VENV}/bin:${{PATH}}", "VIRTUAL_ENV": VENV}),
        Copy(sources=files, target=f"{BUILD}/"),
        *_copy_local(installs),
        Run(commands=tuple(commands)),
    )
    return Stage(name="locked", base="tools", steps=steps, comment=_WHY_LOCKED)


def _user(installs: list[Install]) -> Stage:
    installing = [step.to_run().commands[0] for step in installs]
    compiling = installs[0].to_run().commands[1]
    commands = ("mkdir -p /layers/user", _STAMP, *installing, compiling, _collect("user"))
    files = tuple(step.file for step in installs)
    steps: tuple[Step, ...] = (
        Copy(sources=files, target=f"{BUILD}/"),
        *_copy_local(installs),
        Run(commands=commands),
    )
    return Stage(name="user", base="locked", steps=steps)


def _copy_local(installs: list[Install]) -> Iterator[Copy]:
    if files := sorted({file for step in installs for file in local_files(step.lines)}):
        yield Copy(sources=tuple(files), target=f"{BUILD}/{LOCAL_FOLDER}/")


def _collect(layer: str) -> str:
    """Return the command that links what was written since the stamp into the folder of a layer."""
    return f"find {VENV} -cnewer {BUILD}/stamp ! -type d -exec cp -al --parents -t /layers/{layer} {{}} +"
