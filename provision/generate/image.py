"""A Stack to the recipe of its image, with the locked requirements and the files of its build context."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from provision.assets import asset_dir
from provision.errors import USERINFO, DataError, IncompatibleError, ProvisionError, UsageError
from provision.generate.quote import join_shell, quote_shell
from provision.generate.recipe import (
    BUILD,
    CERTIFICATES,
    LOCAL_FOLDER,
    LOGINS,
    PROJECTS,
    SSH,
    TOOLS,
    VENV,
    WHEELS,
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
    local_files,
)
from provision.generate.write import Artifact
from provision.records import NOTHING, plain, record, replace
from provision.resolve.request import FRAMEWORKS
from provision.resolve.requirements import LOCAL, normalise_name
from provision.resolve.stack import INIT, TORCH_ARCHS, BaseImage, ImagePart, LockedPackage, Stack
from provision.resolve.targets import torch_arch

FRONTENDS = ("modern", "builtin", "classic")
LAYERS = ("cuda", "framework", "rest", "user")
COMPRESSIONS = ("zstd", "gzip", "estargz", "uncompressed")

_TRIPLETS = {"linux/amd64": "x86_64-linux-gnu", "linux/arm64": "aarch64-linux-gnu"}
HOOKS = ("before-packages", "after-packages")
"""Scripts of the user's own in the folder ``hooks`` of a context, by the place where they run."""

CODE = "code"
"""The folder of a context that holds copies of the user's code."""

_TARGETS_KEPT = ("/opt/venv", "/opt/provision", "/opt/tools", "/build", "/proc", "/sys", "/dev")
_RESERVED_LABELS = ("dev.provision.", "org.opencontainers.image.base.")

_REF = r"[a-z0-9]+(?:[._:/-]+[A-Za-z0-9_]+)*"
_GRAMMAR = {
    "image reference": _REF + r"(?:@sha256:[0-9a-f]{64})?",
    "registry": r"[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*",
    "URL": r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~%+/=@:-]*)?",
    "git address": r"git\+(?:https|ssh)://[A-Za-z0-9._@-]+(?::[0-9]{1,5})?/[A-Za-z0-9._~%+/-]+@[0-9a-f]{40}(?:#subdirectory=[A-Za-z0-9._/-]+)?",
    "label name": r"[a-z0-9]+(?:[._/-][a-z0-9]+)*",
    "label value": r"[^\"\\$`;{}]*",
    "package name": r"[a-zA-Z0-9]+(?:[._-][a-zA-Z0-9]+)*",
    "version": r"[0-9A-Za-z]+(?:[.+!_-][0-9A-Za-z]+)*",
    "sha256": r"[0-9a-f]{64}",
    "apt package": r"[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+:~*-]+)?",
    "folder": r"[A-Za-z0-9_]+(?:[./-][A-Za-z0-9_]+)*",
    "image name": r"[a-z0-9]+(?:(?:\.|_{1,2}|-{1,2})[a-z0-9]+){0,30}",
    "group": r"[A-Za-z0-9_-]{1,60}",
    "GPU target": r"sm_[0-9]{2,3}[a-z]?",
    "host": r"[a-z0-9]+(?:[.-]+[a-z0-9]+)*",
    "file of the context": LOCAL + r"[A-Za-z0-9][A-Za-z0-9._+!-]*",
    "file name": r"[A-Za-z0-9][A-Za-z0-9._+!-]*",
    "stack name": r"[0-9A-Za-z]+(?:[.!_-][0-9A-Za-z]+)*",
    "Python version": r"[0-9]+\.[0-9]+t?",
    "CUDA version": r"[0-9]+\.[0-9]+",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "name of code": r"[A-Za-z0-9_][A-Za-z0-9._-]*/?",
    "place in the image": r"(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+/?",
}
_UID_MAX = 2**31 - 1
# The first is what older pips look at, the second what newer ones do.
_BUILD_BOUNDS = "PIP_CONSTRAINT=/build/build-constraints.txt PIP_BUILD_CONSTRAINT=/build/build-constraints.txt "
COMPILE_NEEDS = ("ninja", "packaging", "psutil", "setuptools", "wheel")
"""What is at hand where something is compiled against the framework."""
_DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"
_LDCONFIG_CACHE = "/var/cache/ldconfig/aux-cache"
_LOCKED = ("--no-deps", "--require-hashes")
_COMPILED = "requirements.source.txt"
_BACKEND = "requirements.backend.txt"
_BACKEND_VENV = f"{PROJECTS}/.venv"
_NO_ISOLATION = " --no-build-isolation"


@record
class _Build:
    """What is built from source in a stage that only the wheels leave.

    Attributes:
        file: The list of it.
        lines: What stands there.
        options: Of ``pip wheel``.
        number: Of the environment that is locked for it, from 1; 0 where pip resolves one.
    """

    file: str
    lines: tuple[str, ...]
    options: str
    number: int = 0

    @property
    def is_compiled(self) -> bool:
        """Whether it is built in the environment of the framework."""
        return self.file == _COMPILED

    @property
    def backend(self) -> str:
        """The list of what is in its environment."""
        return f"requirements.backend.{self.number}.txt"

    @property
    def venv(self) -> str:
        """Where its environment is."""
        return f"{WHEELS}/.venv-{self.number}"


def check_value(kind: str, text: str, where: str) -> str:
    """Return the text if it is of the kind, all of it printable ASCII (label values may be any printable text).

    Raises:
        UsageError: It is not.
    """
    is_plain = text.isprintable() and (text.isascii() or kind == "label value")
    if not is_plain or not re.fullmatch(_GRAMMAR[kind], text):
        raise UsageError(f"{where}: {text!r} is not a valid {kind}")
    return text


@record
class ImageOptions:
    """How to write a stack down; nothing here changes what is installed.

    Attributes:
        frontend: ``modern`` (BuildKit with ``COPY --link``), ``builtin`` (the BuildKit inside Docker 20.10) or
            ``classic`` (no mounts: what the docker SDK builds).
        syntax: Reference for a ``# syntax`` line; the engine then pulls it.
        index_url: Simple index to take every package from, in place of PyPI and of the frameworks' own indexes.
        ca_cert: Certificates (PEM) to trust during the build, never part of the image.
        registry_mirror: Registry, with an optional path, to pull Docker Hub's images from.
        non_root_uid: User and group number the image runs as.
        labels: More labels.
        command: What containers run, word by word, instead of what the stack starts.
        copies: Name below the context's ``code`` → place in the image; folders end in a slash on both sides.
        hooks: Which of ``HOOKS`` the context has; they are the folder's own and in no record.
        logins: Hosts that the build asks with a user and a password, which it gets as a secret.
        projects: Names below the context's ``code`` of projects that are built and installed; each ends in a slash.

    Raises:
        UsageError: A value does not fit its grammar.
    """

    frontend: str = "modern"
    syntax: str | None = None
    index_url: str | None = None
    ca_cert: str | None = None
    registry_mirror: str | None = None
    non_root_uid: int = 10001
    labels: Mapping[str, str] = NOTHING
    command: tuple[str, ...] = ()
    copies: Mapping[str, str] = NOTHING
    hooks: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every value, so that no flag can put a line into a file."""
        if self.frontend not in FRONTENDS:
            raise UsageError(f"--frontend: {self.frontend!r} is none of {', '.join(FRONTENDS)}")
        if self.syntax is not None:
            check_value("image reference", self.syntax, "--syntax")
            if self.frontend == "classic":
                raise UsageError("--syntax: the classic builder knows no `# syntax` line")
        if self.index_url is not None:
            if re.search(USERINFO, self.index_url):
                raise UsageError(
                    "--index-url: the address holds a user name or password",
                    because=("it would be readable in the image's history",),
                    hints=("write them into `~/.netrc`",),
                )
            check_value("URL", self.index_url, "--index-url")
        if self.registry_mirror is not None:
            check_value("registry", self.registry_mirror, "--registry-mirror")
        if not 1 <= self.non_root_uid <= _UID_MAX:
            raise UsageError(f"--non-root-uid: {self.non_root_uid} is not from 1 to {_UID_MAX}")
        for key, value in self.labels.items():
            check_value("label name", key, "--label")
            check_value("label value", value, f"--label {key}")
            if key.startswith(_RESERVED_LABELS):
                raise UsageError(f"--label {key}: this name is set from the lock")
        if self.ca_cert is not None:
            _check_certificates(self.ca_cert)
        for name in self.projects:
            check_value("name of code", name, "--install-project")
        for host in self.logins:
            check_value("host", host, "logins")
        if not all(word.isprintable() for word in self.command):
            raise UsageError("--command: a word has a control character")
        for name, place in self.copies.items():
            check_value("name of code", name, "--copy")
            check_value("place in the image", place, "--copy")
            if f"{place.rstrip('/')}/".startswith(tuple(f"{kept}/" for kept in _TARGETS_KEPT)):
                raise UsageError(f"--copy: {place} is a place that the image itself needs")


def group_layers(image: ImagePart) -> list[tuple[str, list[LockedPackage]]]:
    """Return what is installed by hash, a group for each layer: its name, its packages by name.

    The group that changes least comes first. However an image is made, these are its layers. What the user's lines
    brought as source is in none: wheels are built of it first.
    """
    packages = sorted(image.packages, key=lambda package: package.name)
    groups = [
        (layer, [item for item in packages if item.layer == layer and item.sha256 is not None and not item.is_built])
        for layer in LAYERS
    ]
    return [group for group in groups if group[1]]


def count_unlocked(image: ImagePart) -> int:
    """Return how many lines of the user and of extras are resolved only when the image is built."""
    return len(unlocked_lines(image))


def unlocked_lines(image: ImagePart) -> tuple[str, ...]:
    """Return the lines of the user and of extras that are resolved only when the image is built."""
    return () if image.is_whole else open_lines(image)


def open_lines(image: ImagePart) -> tuple[str, ...]:
    """Return the lines of the user and of extras that the frameworks and what these need do not answer."""
    locked = _locked_names(image)
    return tuple(line for line in _user_lines(image) if normalise_name(_name_of(line)) not in locked or "[" in line)


def render_image(stack: Stack, options: ImageOptions | None = None) -> tuple[Artifact, ...]:
    """Write a stack down as a build context.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: How to write it.

    Returns:
        The files, sorted by path.

    Raises:
        UsageError: A value of the stack or an option would not be safe in a file.
        DataError: A tool has no sha256, or there is none for a stack with Python.
    """
    from provision.generate.dockerfile import write_dockerfile

    options = options or ImageOptions()
    recipe = make_recipe(stack, options)
    text = write_dockerfile(recipe, frontend=options.frontend, syntax=options.syntax)
    kept = sorted(("Dockerfile", *recipe.files, *recipe.own_files))
    ignore = "\n".join(["*", *(f"!{path}" for path in kept)]) + "\n"
    return to_artifacts({**recipe.files, "Dockerfile": text, ".dockerignore": ignore})


def make_recipe(stack: Stack, options: ImageOptions) -> Recipe:
    """Return what the image of a stack is made of, however it is built.

    Args:
        stack: The stack; its ``image`` part must be there.
        options: How to write it.

    Raises:
        UsageError: A value of the stack or an option would not be safe in a file.
        DataError: A tool has no sha256, or there is none for a stack with Python.
    """
    image = stack.image
    if image is None:
        raise ProvisionError("the stack has no image part")
    if stack.platform not in _TRIPLETS:
        raise UsageError(f"platform: {stack.platform!r} is none of {', '.join(_TRIPLETS)}")
    trusting = {"has_certificates": options.ca_cert is not None}
    locked = _locked_steps(image, options, LAYERS[:-1]) + _unverified_steps(image, options)
    locked = [replace(step, has_login=_needs_login(options, step.options, *step.lines), **trusting) for step in locked]
    own = [
        replace(step, is_own=True, has_login=_needs_login(options, step.options, *step.lines), **trusting)
        for step in _user_steps(image, options)
    ]
    builds = _builds(image, options)
    if stack.python is None:
        locked, own, builds = [], [], []
    if behind := [line for line in unlocked_lines(image) if "git+ssh://" in line]:
        raise UsageError(
            f"`{behind[0]}` is read with a key of the ssh agent, which the image's own stage does not see",
            hints=("leave `--offline` out, so that the commit is locked and built in a stage of its own",),
        )
    if options.logins and options.frontend == "classic":
        raise UsageError(
            f"--frontend classic: {' and '.join(options.logins)} requires credentials",
            because=("the classic builder has no build secrets, so they would stay in the image",),
            hints=("use a builder with BuildKit, and leave `--frontend` out",),
        )
    if options.projects and stack.python is None:
        raise UsageError("--install-project needs a Python", hints=("name a framework or a Python",))
    if (builds or options.projects) and options.frontend == "classic":
        built = (
            [*options.projects] or [package.name for package in image.packages if package.is_built] or image.compiled
        )
        raise UsageError(
            f"--frontend classic: {' and '.join(built)} would be compiled in a stage of its own",
            because=("the classic builder has no mounts, so the stage could not use the environment",),
            hints=("use a builder with BuildKit, and leave `--frontend` out",),
        )
    files = {
        "provision.lock": stack.to_lock(),
        "entrypoint.sh": _shipped("entrypoint.sh"),
    }
    if image.apt_snapshot is not None:
        files["apt_snapshot.sh"] = _shipped("apt_snapshot.sh")
    if stack.python is not None:
        files |= _environment_files(stack, image, options)
        files |= {step.file: _lines(step.title, step.lines) for step in (*locked, *own) if step.file}
        files |= {build.file: _lines("Built in a stage that only wheels leave.", build.lines) for build in builds}
        if options.projects and image.project_build is not None and image.project_build.packages:
            files[_BACKEND] = _builders_file(image.project_build.packages, "of the project", options)
        for build in builds:
            if build.number and (packages := image.source_builds[build.number - 1].packages):
                made = f"of {', '.join(image.source_builds[build.number - 1].names)}"
                files[build.backend] = _builders_file(packages, made, options)
        if _has_bounds(image, options, builds):
            bounds = _checked_lines(image.build_bounds, "build_bounds")
            files["build-constraints.txt"] = _lines("What builds from source keeps to these.", bounds)
        if options.ca_cert is not None:
            files[CERTIFICATES] = options.ca_cert
    return Recipe(
        name=check_value("stack name", stack.name, "name"),
        lock_digest=stack.lock_digest,
        facts_date=check_value("date", stack.facts_date, "facts_date"),
        platform=stack.platform,
        source_date_epoch=image.source_date_epoch,
        stages=tuple(_stages(stack, image, options, locked, own, builds)),
        files=files,
        own_files=(
            *(f"{CODE}/{name.rstrip('/')}" for name in (*options.copies, *options.projects)),
            *(f"hooks/{name}.sh" for name in options.hooks),
            *(f"{LOCAL_FOLDER}/{name}" for name in local_hashes(image)),
        ),
        logins=options.logins,
        has_ssh=any(package.is_behind_ssh for package in image.packages),
        driver="" if stack.is_cpu else check_value("version", stack.driver.minimum, "driver.minimum"),
    )


def local_hashes(image: ImagePart) -> dict[str, str]:
    """Return the files of its context that an image is made of, wheels and archives: name → sha256, by name."""
    packages = (*image.packages, *image.builders)
    found = {item.file: item.sha256 for item in packages if item.is_local and item.file and item.sha256}
    for line in unlocked_lines(image):
        found |= dict(re.findall(rf"{re.escape(LOCAL)}([^#\s]+)#sha256=([0-9a-f]{{64}})", line))
    return dict(sorted(found.items()))


def to_artifacts(texts: Mapping[str, str]) -> tuple[Artifact, ...]:
    """Return path → text as files, sorted by path; scripts can be run."""
    return tuple(Artifact(path=path, text=text, mode=mode_of(path)) for path, text in sorted(texts.items()))


def mode_of(path: str) -> int:
    """Return the mode that a file of a context has."""
    return 0o755 if path.endswith(".sh") else 0o644


def _environment_files(stack: Stack, image: ImagePart, options: ImageOptions) -> dict[str, str]:
    """Return the files about the Python environment as a whole."""
    if not image.tools:
        raise IncompatibleError(
            f"no image can be built for Python {stack.python}",
            because=(f"uv, which installs the wheels by hash in the build, has no wheel for Python {stack.python}",),
            hints=(f"name a newer Python with `--python`; `provision resolve` answers for Python {stack.python} too",),
        )
    if any(tool.sha256 is None for tool in image.tools):
        raise DataError(
            "the facts hold no wheel with a sha256 for the tool that installs wheels",
            because=("the build stage installs it by hash",),
        )
    packages = sorted(image.packages, key=lambda package: package.name)
    locked = [_requirement(package, options) for package in packages if package.sha256 is not None]
    tools = [_requirement(tool, options) for tool in image.tools]
    return {
        "expect.json": _expectations(stack),
        "tools.txt": _lines("What the build stage needs.", tools),
        "constraints.txt": _constraints(image, packages),
        "requirements.lock.txt": _lines("Every package with a known sha256, and the wheel it is the hash of.", locked),
        "verify.py": _shipped("verify.py"),
        "compile_bytecode.py": _shipped("compile_bytecode.py"),
    }


def _shipped(name: str) -> str:
    return (asset_dir("images") / name).read_text(encoding="utf-8")


def _stages(
    stack: Stack,
    image: ImagePart,
    options: ImageOptions,
    locked: list[Install],
    own: list[Install],
    builds: list[_Build],
) -> Iterator[Stage]:
    """Yield the stages of an image: libraries of CUDA, the base, the tools, what is compiled, the image itself."""
    python = f"python{check_value('Python version', stack.python, 'python')}" if stack.python else None
    toolkit = ""
    if not stack.is_cpu:
        # An image of another minor than the stack's names its folders after its own.
        cuda = check_value("CUDA version", (image.cuda_base or image.base).cuda or stack.cuda, "cuda")
        toolkit = f"/usr/local/cuda-{cuda}"
    if image.cuda_base is not None:
        yield _cuda_stage(pull_reference(image.cuda_base, options), toolkit, _TRIPLETS[stack.platform])
    yield Stage(name="base", base=pull_reference(image.base, options))
    if python:
        yield Stage(
            name="tools",
            base="base",
            steps=(_install_tools(python, options, has_pip=bool(builds or options.projects)),),
        )
    steps = _system_steps(image, options, python, toolkit)
    requested = _requested(stack, image)
    if python:
        # What needs nothing but the lock is imported with it; the rest once the user's own lines are installed.
        steps += [*locked, Verify(imports=() if own else requested)]
    else:
        steps.append(Verify(toolkit=toolkit))
    base = "base"
    if builds:
        yield Stage(name="framework", base="base", steps=tuple(steps))
        yield _compile_stage(stack, image, options, python or "", builds)
        base, steps = "framework", []
    if options.projects:
        yield _project_stage(image, options, python or "")
    steps += [*own, Verify(part="packages", imports=requested)] if own else []
    yield Stage(name="runtime", base=base, steps=(*steps, *_final_steps(stack, image, options)))


def _cuda_stage(base: str, toolkit: str, triplet: str) -> Stage:
    run = Run(
        commands=(
            "mkdir -p /layer",
            f"cp -a --parents -t /layer {toolkit}",
            f"find /etc/alternatives /usr/include /usr/lib/{triplet} \\\n"
            "  \\( -name 'libcudnn*' -o -name 'cudnn*' -o -name 'libnccl*' -o -name 'nccl*' \\) \\\n"
            "  -exec cp -a --parents -t /layer {} +",
            f"ln -s {toolkit.rpartition('/')[2]} /layer/usr/local/cuda",
        )
    )
    return Stage(name="cuda", base=base, steps=(run,), comment="Only the libraries of this stage reach the image.")


def _install_tools(python: str, options: ImageOptions, *, has_pip: bool) -> Run:
    """Return what installs the installer by hash; pip goes with it where a later stage builds wheels."""
    commands: list[Command] = [
        f"python={python}",
        When(
            test="! \"$python\" -c 'import pip' 2> /dev/null",
            then=('"$python" -m venv /opt/seed', "python=/opt/seed/bin/python"),
        ),
        f'{_pip_words(options)}"$python" -m pip install {_pip_options(options)} \\\n'
        f"  --no-cache-dir --no-deps --require-hashes --target {TOOLS} -r {BUILD}/tools.txt",
    ]
    if has_pip:
        commands.append(f'cp -r "$("$python" -c \'import os, pip; print(os.path.dirname(pip.__file__))\')" {TOOLS}/pip')
    mounts = (LOGINS,) if _needs_login(options, _pip_options(options)) else ()
    files = ("tools.txt", *((CERTIFICATES,) if options.ca_cert else ()))
    return Run(commands=tuple(commands), mounts=mounts, files=files)


def asked_hosts(stack: Stack, options: ImageOptions) -> frozenset[str]:
    """Return the hosts that the build asks for packages, as far as the stack and the options name them."""
    image = stack.image
    if image is None:
        return frozenset()
    texts = [options.index_url or ""]
    for package in (*image.packages, *image.builders):
        if options.index_url is None or package.is_commit:
            texts += [package.url or "", package.index_url or ""]
    return frozenset(host for text in (*texts, *unlocked_lines(image)) for host in _hosts(text))


def _hosts(text: str) -> list[str]:
    return re.findall(r"https?://([A-Za-z0-9.-]+)", text)


def _needs_login(options: ImageOptions, *texts: str) -> bool:
    return bool(options.logins) and any(host in options.logins for text in texts for host in _hosts(text))


def _pip_words(options: ImageOptions) -> str:
    return f"PIP_CERT={BUILD}/{CERTIFICATES} " if options.ca_cert else ""


def _pip_options(options: ImageOptions) -> str:
    return join_shell("--disable-pip-version-check", "--no-input", *_index(options.index_url, "--index-url"))


def _system_steps(image: ImagePart, options: ImageOptions, python: str | None, toolkit: str) -> list[Step]:
    """Return what comes before the first wheel: variables, user and environment, packages, CUDA's libraries."""
    steps: list[Step] = []
    removed: tuple[tuple[str, ...], ...] = ()
    if python:
        # Where code is compiled in a stage of its own, the final image has no compiler unless the code needs it.
        has_toolkit = image.flavor == "devel" and image.compile_base is None
        values = {
            "PATH": f"{VENV}/bin:{'/usr/local/cuda/bin:' if has_toolkit else ''}${{PATH}}",
            "VIRTUAL_ENV": VENV,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **({"CUDA_HOME": "/usr/local/cuda"} if has_toolkit else {}),
        }
        if image.library_path:
            site = f"{VENV}/lib/{python}/site-packages"
            folders = [f"{site}/{check_value('folder', path, 'library_path')}" for path in image.library_path]
            values["LD_LIBRARY_PATH"] = ":".join(folders)
        steps.append(Env(values=values))
        places = (("/usr/local/bin", f"/usr/local/lib/{python}/site-packages"), ("/usr/bin", _DEBIAN_PACKAGES))
        removed = tuple((f"{programs}/pip*", f"{site}/pip", f"{site}/pip-*") for programs, site in places)
    steps.append(Setup(uid=options.non_root_uid, python=python, removed=removed))
    if image.apt:
        left = ("/var/log/apt", "/var/log/dpkg.log", "/var/log/alternatives.log", _LDCONFIG_CACHE)
        steps.append(_install_packages(image.apt, image.apt_snapshot, left))
    steps += _hook(HOOKS[0], options)
    if image.cuda_base is not None and image.compile_base is None:
        link = f"printf '{toolkit}/lib64\\n' > /etc/ld.so.conf.d/provision-cuda.conf"
        steps.append(Copy(sources=("/layer/",), target="/", stage="cuda"))
        steps.append(Run(commands=(link, "ldconfig", f"rm -f {_LDCONFIG_CACHE}")))
    return steps


def _install_packages(packages: tuple[str, ...], day: str | None, left: tuple[str, ...] = ()) -> Run:
    """Return what installs packages of the system, from the archive of a day where one is named."""
    update = "apt-get update"
    removed = ["/var/lib/apt/lists/*", *left]
    if day is not None:
        stamp = f"{check_value('date', day, 'apt_snapshot').replace('-', '')}T000000Z"
        update = f"sh {BUILD}/apt_snapshot.sh {stamp} /tmp/apt && export APT_CONFIG=/tmp/apt/snapshot.conf && {update}"
        removed.append("/tmp/apt")  # noqa: S108 - in the image
    install = Listed(
        command="apt-get install -y --no-install-recommends", words=tuple(map(quote_shell, _apt(packages)))
    )
    commands = (update, install, f"rm -rf {' '.join(removed)}")
    return Run(commands=commands, files=("apt_snapshot.sh",) if day is not None else ())


def _hook(name: str, options: ImageOptions) -> list[Step]:
    if name not in options.hooks:
        return []
    path = f"hooks/{name}.sh"
    return [Run(commands=(f"sh -eu {BUILD}/{path}",), files=(path,))]


def _compile_stage(stack: Stack, image: ImagePart, options: ImageOptions, python: str, builds: list[_Build]) -> Stage:
    steps: list[Step] = []
    mounts = [Mount(target=TOOLS, stage="tools")]
    if _needs_login(options, _pip_options(options), *(line for build in builds for line in build.lines)):
        mounts.append(LOGINS)
    has_ssh = any("git+ssh://" in line for build in builds for line in build.lines)
    if has_ssh:
        mounts.append(SSH)
    files = [CERTIFICATES] if options.ca_cert else []
    files += [build.file for build in builds]
    files += local_files(line for build in builds for line in build.lines)
    commands: list[Command] = [f"mkdir -p {WHEELS}"]
    bounds = ""
    if image.build_bounds and not all(build.number for build in builds):
        files.append("build-constraints.txt")
        bounds = _BUILD_BOUNDS
    if image.compiled:
        values = {
            "PATH": f"{VENV}/bin:/usr/local/cuda/bin:${{PATH}}",
            "VIRTUAL_ENV": VENV,
            "CUDA_HOME": "/usr/local/cuda",
            TORCH_ARCHS: ";".join(torch_arch(check_value("GPU target", name, "sm")) for name in stack.sm),
            **image.build_env,
        }
        steps.append(Env(values=values))
        if image.build_apt:
            steps.append(_install_packages(image.build_apt, image.apt_snapshot))
        if image.cuda_base is not None:
            steps.append(Copy(sources=("/layer/",), target="/", stage="cuda"))
        mounts.append(Mount(target=VENV, stage="framework", is_writable=True))
        locked = next((build for build in builds if build.is_compiled and build.number), None)
        if locked is not None:
            packages = image.source_builds[locked.number - 1].packages
            tools = _install_builders(packages, locked.backend, VENV, image, options)
            commands += tools.commands
            files += tools.files
        else:
            files.append("constraints.txt")
            constrained = join_shell("--constraint", f"{BUILD}/constraints.txt", "--only-binary", ":all:")
            needs = Install(
                layer="",
                file="",
                title="",
                lines=(),
                options=f"{constrained} {join_shell(*_index(options.index_url), *COMPILE_NEEDS)}",
                has_certificates=options.ca_cert is not None,
            )
            commands.append(needs.to_run().commands[0])
    program = "python" if image.compiled else python
    for build in {build.number: build for build in builds if build.number and not build.is_compiled}.values():
        packages = image.source_builds[build.number - 1].packages
        steps.append(_make_backend(packages, build.backend, build.venv, image, options, python))
    # What a host that poses as another one may serve is not the commit of the lock.
    ssh = "GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=accept-new' " if has_ssh else ""
    for build in builds:
        words = f"{bounds}PYTHONPATH={TOOLS} {program}"
        if build.number and not build.is_compiled:
            words = f'PATH="{build.venv}/bin:$PATH" PYTHONPATH={TOOLS} {build.venv}/bin/python'
        commands.append(
            f"{ssh}{_pip_words(options)}{words} -m pip wheel {_pip_options(options)} \\\n"
            f"  --no-cache-dir --no-deps{build.options} --wheel-dir {WHEELS} -r {BUILD}/{build.file}"
        )
    steps += [Arg(name="MAX_JOBS"), Run(commands=tuple(commands), mounts=tuple(mounts), files=tuple(files))]
    how = ", with nvcc and against the framework" if image.compiled else ""
    return Stage(
        name="compile",
        base=pull_reference(_build_base(image), options),
        steps=tuple(steps),
        comment=f"Builds what exists only as source{how}. Only the wheels of this stage are used.",
    )


def _project_stage(image: ImagePart, options: ImageOptions, python: str) -> Stage:
    """Return the stage that makes wheels of the user's own projects; what they need is in the image already."""
    copies = [Copy(sources=(f"{CODE}/{name}",), target=f"{PROJECTS}/{name}") for name in options.projects]
    places = " ".join(f"{PROJECTS}/{name.rstrip('/')}" for name in options.projects)
    tools, certificates = Mount(target=TOOLS, stage="tools"), (CERTIFICATES,) if options.ca_cert else ()
    steps: list[Step] = []
    if image.project_build is None:
        # Without an index nothing is known of what the backend is: pip looks for it.
        words = f"{_pip_words(options)}{_BUILD_BOUNDS if image.build_bounds else ''}PYTHONPATH={TOOLS} {python}"
        how = _pip_options(options)
        mounts: tuple[Mount, ...] = (tools, *((LOGINS,) if _needs_login(options, how) else ()))
        files = (*certificates, *(("build-constraints.txt",) if image.build_bounds else ()))
    else:
        steps.append(_make_backend(image.project_build.packages, _BACKEND, _BACKEND_VENV, image, options, python))
        words = f'PATH="{_BACKEND_VENV}/bin:$PATH" PYTHONPATH={TOOLS} {_BACKEND_VENV}/bin/python'
        how = "--disable-pip-version-check --no-input --no-index --no-build-isolation"
        mounts, files = (tools,), ()
    command = f"{words} -m pip wheel {how} \\\n  --no-cache-dir --no-deps --use-pep517 --wheel-dir {WHEELS} {places}"
    steps += [*copies, Run(commands=(f"mkdir -p {WHEELS}", command), mounts=mounts, files=files)]
    return Stage(
        name="project",
        base=pull_reference(_build_base(image), options),
        steps=tuple(steps),
        comment="Builds the project itself. Only the wheels of this stage are used.",
    )


def _builders_file(packages: tuple[LockedPackage, ...], made: str, options: ImageOptions) -> str:
    return _lines(
        f"What makes wheels {made}, in an environment that is no part of the image.",
        [_requirement(package, options) for package in packages],
    )


def _make_backend(
    packages: tuple[LockedPackage, ...], file: str, venv: str, image: ImagePart, options: ImageOptions, python: str
) -> Run:
    """Return what makes an environment to build in, by hash; it outlives changes of the code."""
    install = _install_builders(packages, file, venv, image, options)
    return replace(install, commands=(f"{python} -m venv --without-pip {venv}", *install.commands))


def _install_builders(
    packages: tuple[LockedPackage, ...], file: str, venv: str, image: ImagePart, options: ImageOptions
) -> Run:
    """Return what installs what builds into an environment, by hash."""
    commands: list[Command] = []
    mounts = [Mount(target=TOOLS, stage="tools")]
    files: tuple[str, ...] = ()
    if packages:
        lines = tuple(_requirement(package, options) for package in packages)
        words = join_shell(*_LOCKED, *_wheels_only(list(packages)), *_index(options.index_url))
        trust = f"SSL_CERT_FILE={BUILD}/{CERTIFICATES} " if options.ca_cert else ""
        if _has_source(packages) and image.build_bounds:
            words += f" --build-constraints {BUILD}/build-constraints.txt"
            files += ("build-constraints.txt",)
        uv = f"{TOOLS}/bin/uv pip install --python {venv}/bin/python --no-config --no-progress --no-cache"
        commands.append(f"{trust}{uv} \\\n  {words} -r {BUILD}/{file}")
        files += (file, *local_files(lines), *((CERTIFICATES,) if options.ca_cert else ()))
        if _needs_login(options, words, *lines):
            mounts.append(LOGINS)
    return Run(commands=tuple(commands), mounts=tuple(mounts), files=files)


def _has_source(packages: Iterable[LockedPackage]) -> bool:
    return any(package.is_source for package in packages)


def _has_bounds(image: ImagePart, options: ImageOptions, builds: list[_Build]) -> bool:
    """Tell whether anything is built with what is resolved only then."""
    is_open = options.projects and image.project_build is None
    is_open = is_open or _has_source(image.builders) or not all(build.number for build in builds)
    return bool(image.build_bounds) and bool(is_open)


def _final_steps(stack: Stack, image: ImagePart, options: ImageOptions) -> list[Step]:
    """Return what comes after the last wheel."""
    uid = options.non_root_uid
    is_dev = image.flavor == "dev" and stack.python is not None
    steps = _hook(HOOKS[1], options)
    if image.init is not None:
        programs = (INIT, "uv") if is_dev else (INIT,)
        sources = tuple(f"{TOOLS}/bin/{program}" for program in programs)
        steps.append(Copy(sources=sources, target="/usr/local/bin/", stage="tools"))
    steps.append(Copy(sources=("entrypoint.sh",), target="/usr/local/bin/provision-entrypoint"))
    kept = ("verify.py", "constraints.txt") if stack.python else ()
    steps.append(Copy(sources=(*kept, "provision.lock"), target="/opt/provision/"))
    if is_dev:
        steps.append(Own(folder=VENV, uid=uid))
    if not stack.is_cpu:
        minimum = check_value("version", stack.driver.minimum, "driver.minimum")
        driver = {
            "PROVISION_DRIVER_MIN": minimum,
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "NVIDIA_REQUIRE_DRIVER": f"driver>={minimum}",
        }
        steps.append(Env(values=driver))
    if stack.python:
        path = "/opt/provision/constraints.txt"
        steps.append(Env(values={"PIP_CONSTRAINT": path, "UV_CONSTRAINT": path}))
    steps += [Label(name=name, value=value) for name, value in sorted(_labels(stack, image, options).items())]
    steps += [Expose(port=extra.port) for extra in image.extras if extra.port is not None]
    steps.append(Workdir(path="/workspace"))
    if options.projects:
        # Nothing that comes before is made anew, or proved again, where the code alone has changed.
        install = Install(layer="project", file="", title="", lines=(), options="--no-deps", built_in="project")
        steps.append(replace(install, is_own=True))
    copies = sorted(options.copies.items())
    steps += [Copy(sources=(f"{CODE}/{name}",), target=place, uid=uid) for name, place in copies]
    command = options.command or _command(stack, image)
    steps += [User(uid=uid), Entrypoint(words=("sh", "/usr/local/bin/provision-entrypoint")), Cmd(words=tuple(command))]
    return steps


def _apt(packages: tuple[str, ...]) -> list[str]:
    """Return the packages of the system to install, each once: with its version where any of its kind has one."""
    checked = [check_value("apt package", package, "apt") for package in packages]
    versioned = {name for name, equals, _ in (package.partition("=") for package in checked) if equals}
    return [package for package in checked if package not in versioned]


def _build_base(image: ImagePart) -> BaseImage:
    return image.compile_base or (image.base if image.compiled else image.build_base) or image.base


def _locked_steps(image: ImagePart, options: ImageOptions, layers: tuple[str, ...]) -> list[Install]:
    """Return the installations by hash: a layer each, the one that changes least first."""
    steps = []
    for layer, members in group_layers(image):
        if layer not in layers:
            continue
        for suffix, index_url, group in _by_index(members, options):
            steps.append(
                Install(
                    layer=f"{layer}{suffix}",
                    file=f"requirements.{layer}{suffix}.txt",
                    title=f"The part of requirements.lock.txt that makes the image layer `{layer}{suffix}`.",
                    lines=tuple(_requirement(package, options) for package in group),
                    options=join_shell(*_LOCKED, *_wheels_only(group), *_index(index_url)),
                )
            )
    return steps


def _unverified_steps(image: ImagePart, options: ImageOptions) -> list[Install]:
    """Return the installations without a hash, an index each; they come after all that is known by hash."""
    steps = []
    bare = [package for package in image.packages if package.sha256 is None and not package.is_built]
    for suffix, index_url, group in _by_index(bare, options):
        is_open = any(package.has_unknown_dependencies for package in group)
        if is_open:
            # A framework's index comes first and PyPI second: a name found on the first is never taken from elsewhere.
            # One that was asked for stands alone.
            flag = "--default-index" if options.index_url else "--index"
            words = ["--constraint", "/build/constraints.txt", *_index(index_url, flag)]
        else:
            words = ["--no-deps", *_index(index_url)]
        steps.append(
            Install(
                layer=f"unverified{suffix}",
                file=f"requirements.unverified{suffix}.txt",
                title="No sha256 is known for these: they are installed unverified.",
                lines=tuple(_requirement(package, options) for package in group),
                options=join_shell(*_wheels_only(group), *words),
                is_constrained=is_open,
            )
        )
    return steps


def _wheels_only(packages: list[LockedPackage]) -> tuple[str, ...]:
    """Return the options that keep uv from building anything but what only exists as source."""
    sources = [word for package in packages if package.is_source for word in ("--no-binary", package.name)]
    return (*sources, *(() if sources else ("--only-binary", ":all:")))


def _user_steps(image: ImagePart, options: ImageOptions) -> list[Install]:
    """Return the installations of what the user and the extras ask for beyond the frameworks."""
    built = _built_lines(image, options)
    if image.is_whole:
        steps = _locked_steps(image, options, LAYERS[-1:])
        if built:
            steps.append(Install(layer="built", file="", title="", lines=(), options="--no-deps", built_in="compile"))
        return steps
    lines = tuple(line for line in _user_lines(image) if line not in built)
    if not lines and not built:
        return []
    # What was compiled comes as wheels; without them it must fail and not be compiled again.
    words = [word for name in image.compiled for word in ("--only-binary", check_value("package name", name, "source"))]
    return [
        Install(
            layer="user",
            file="requirements.user.txt",
            title="Asked for by the user, constrained by constraints.txt.",
            lines=lines,
            options=join_shell("--constraint", "/build/constraints.txt", *words, *_index(options.index_url)),
            is_constrained=True,
            is_locked=False,
            built_in="compile" if built else None,
        )
    ]


def _builds(image: ImagePart, options: ImageOptions) -> list[_Build]:
    """Return what is built from source: against the framework, by hash alone, and from a repository's commit."""
    lines = _built_lines(image, options)
    compiled = {line for line in lines if normalise_name(_name_of(line)) in image.compiled}
    # Older pips build what has no pyproject.toml with the setuptools and wheel of the base, which may have neither.
    apart = " --use-pep517"
    parts = (
        ("source", lambda line: line in compiled, ""),
        ("build", lambda line: line not in compiled and " @ git+" not in line, apart),
        ("git", lambda line: line not in compiled and " @ git+" in line, apart),
    )
    numbers = {name: number for number, build in enumerate(image.source_builds, start=1) for name in build.names}
    found: dict[tuple[str, int], _Build] = {}
    for kind, holds, words in parts:
        for line in filter(holds, lines):
            number = numbers.get(normalise_name(_name_of(line)), 0)
            is_alone = kind == "source" or not number
            file = f"requirements.{kind}.txt" if is_alone else f"requirements.{kind}.{number}.txt"
            before = found.get((kind, number))
            members = (*(before.lines if before is not None else ()), line)
            how = words + _NO_ISOLATION if number or kind == "source" else words
            found[kind, number] = _Build(file=file, lines=members, options=how, number=number)
    return list(found.values())


def _built_lines(image: ImagePart, options: ImageOptions) -> tuple[str, ...]:
    """Return the lines of what the user and the extras ask for that is built from source in a stage of its own."""
    if image.is_whole:
        return tuple(_requirement(package, options) for package in image.packages if package.is_built)
    return tuple(line for line in _user_lines(image) if normalise_name(_name_of(line)) in image.compiled)


def _requested(stack: Stack, image: ImagePart) -> tuple[str, ...]:
    """Return the distributions that were asked for beyond the frameworks, by name: each must import."""
    if stack.python is None or not (image.extras or image.user_requirements):
        return ()
    from provision.resolve.environment import MACHINES
    from provision.resolve.requirements import parse_requirements, place_of, requirement_of

    place = place_of(stack.python, MACHINES[stack.platform])
    lines = [line for part in image.extras for line in _checked_lines(part.requires, part.id)]
    # What an address alone is called shows only once it is installed.
    own = parse_requirements("\n".join(image.user_requirements), "-r")
    lines += [requirement.text for requirement in own if requirement.is_named]
    wanted = [item for item in map(requirement_of, lines) if item.marker is None or item.marker.evaluate(place)]
    return tuple(sorted({check_value("package name", normalise_name(item.name), "-r") for item in wanted}))


def _by_index(
    packages: Iterable[LockedPackage], options: ImageOptions
) -> list[tuple[str, str | None, list[LockedPackage]]]:
    """Group packages by the index they are looked up in: file name suffix, index, packages by name."""
    groups: dict[str, list[LockedPackage]] = {}
    for package in sorted(packages, key=lambda package: package.name):
        own = "" if package.url else package.index_url or ""
        groups.setdefault(options.index_url or own, []).append(package)
    return [
        (f".{number}" if number else "", index_url or None, groups[index_url])
        for number, index_url in enumerate(sorted(groups))
    ]


def _requirement(package: LockedPackage, options: ImageOptions) -> str:
    """Return the line of a package; where an index was asked for, its wheels come from nowhere else."""
    line = _pin(package)
    if package.url and (options.index_url is None or package.is_commit or package.is_local):
        kind = "git address" if package.is_commit else "file of the context" if package.is_local else "URL"
        line = f"{package.name} @ {check_value(kind, package.url, package.name)}"
    if package.sha256 is not None:
        line += f" --hash=sha256:{check_value('sha256', package.sha256, package.name)}"
    return line


def _pin(package: LockedPackage) -> str:
    name = check_value("package name", package.name, "package")
    return f"{name}=={check_value('version', package.version, name)}"


def _constraints(image: ImagePart, packages: list[LockedPackage]) -> str:
    pins = [_pin(package) for package in packages]
    extra = sorted({line for part in image.extras for line in _checked_lines(part.constraints, part.id)})
    return _lines("Later installations keep this set: PIP_CONSTRAINT and UV_CONSTRAINT name it.", pins + extra)


def _user_lines(image: ImagePart) -> list[str]:
    have = _locked_names(image)
    lines: list[str] = []
    for part in image.extras:
        lines += [line for line in _checked_lines(part.requires, part.id) if normalise_name(_name_of(line)) not in have]
    return [*lines, *(kept for line in _checked_lines(image.user_requirements, "-r") if (kept := _kept(line, have)))]


def _kept(line: str, have: set[str]) -> str | None:
    """Return a user's line as it is installed, or nothing where it asks for a framework of the lock and its CUDA alone.

    A local part goes: the build was chosen by it, and that of PyPI carries none in its version.
    """
    from provision.resolve.named import is_honoured

    found = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", line)
    if found is None or " @ " in line or normalise_name(found[1]) not in have:
        return line
    if found[1].lower() in FRAMEWORKS and is_honoured(found[1].lower(), (found[2] or "").split(",")):
        return None
    return re.sub(r"(==\s*[^;,+\s]+)\+[A-Za-z0-9.]+", r"\1", line)


def _locked_names(image: ImagePart) -> set[str]:
    return {normalise_name(package.name) for package in image.packages}


def _checked_lines(lines: Iterable[str], where: str) -> list[str]:
    from provision.resolve.requirements import parse_requirements

    text = "\n".join(lines)
    return [requirement.text for requirement in parse_requirements(text, where)] if text.strip() else []


def _name_of(line: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]


def _expectations(stack: Stack) -> str:
    """Return what the verification inside the build compares with.

    This is the lock without the request and the user's own lines: changing those must not run the imports again.
    """
    own = {item.name for item in stack.image.packages if item.layer == "user"} if stack.image else set()
    document = {
        "builds": plain(stack.built_for),
        "cuda": stack.cuda or None,
        "cudnn": stack.cudnn,
        "driver": {"minimum": stack.driver.minimum or None},
        "frameworks": stack.frameworks,
        "nccl": stack.nccl,
        "packages": {name: version for name, version in stack.packages.items() if name not in own},
        "platform": stack.platform,
        "ptx": list(stack.ptx),
        "python": stack.python,
        "sm": list(stack.sm),
        "variants": stack.variants,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


_CUDA_LABELS = ("dev.provision.cuda", "dev.provision.driver.min", "dev.provision.archs")


def _labels(stack: Stack, image: ImagePart, options: ImageOptions) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": stack.name,
        "org.opencontainers.image.base.name": pull_reference(image.base, options, with_digest=False),
        "dev.provision.lock": stack.lock_digest,
        "dev.provision.facts": stack.facts_date,
        "dev.provision.cuda": stack.cuda,
        "dev.provision.driver.min": stack.driver.minimum,
        "dev.provision.archs": " ".join([*stack.sm, *stack.ptx]),
        "dev.provision.unverified": str(image.unverified),
        "dev.provision.unlocked": str(count_unlocked(image) if stack.python else 0),
    }
    if TORCH_ARCHS in image.build_env:
        # What was compiled runs on these alone, whatever the framework runs on.
        labels["dev.provision.gpus"] = ", ".join(stack.gpus)
    if stack.is_cpu:
        labels = {key: value for key, value in labels.items() if key not in _CUDA_LABELS}
    if image.base.digest:
        labels["org.opencontainers.image.base.digest"] = image.base.digest
    return labels | dict(options.labels)


def pull_reference(base: BaseImage, options: ImageOptions, *, with_digest: bool = True) -> str:
    """Return what to pull: through the mirror when the image is Docker Hub's, by digest when one is known."""
    ref = base.ref
    host, slash, _ = ref.partition("/")
    is_hub = not (slash and ("." in host or ":" in host or host == "localhost"))
    if options.registry_mirror and is_hub:
        ref = f"{options.registry_mirror}/{ref if slash else f'library/{ref}'}"
    if with_digest and base.digest and "@" not in ref:
        ref = f"{ref}@{base.digest}"
    return check_value("image reference", ref, "base")


def _command(stack: Stack, image: ImagePart) -> list[str]:
    for extra in image.extras:
        if extra.command:
            return list(extra.command)
    return ["python"] if stack.python else ["bash"]


def _index(url: str | None, flag: str = "--default-index") -> list[str]:
    """Return uv's options for an index; an address of one page lists wheels itself and is not an index."""
    if not url:
        return []
    check_value("URL", url, "index")
    if url.endswith(".html"):
        return ["--find-links", url] if flag == "--index" else ["--no-index", "--find-links", url]
    return [flag, url]


def _lines(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}", *lines]) + "\n"


def _check_certificates(text: str) -> None:
    if "PRIVATE KEY" in text:
        raise UsageError("--ca-cert: the file holds a private key", because=("only certificates belong there",))
    if "-----BEGIN CERTIFICATE-----" not in text or "-----END CERTIFICATE-----" not in text:
        raise UsageError("--ca-cert: the file holds no PEM certificate")
