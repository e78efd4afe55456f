"""What follows by the facts from what is written: the system of a base image, its Python, whether compilers are there.

Everything stays ``None`` where the facts or the words do not settle it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.bases import cuda_image, is_cuda_repository
from provision.audit.model import Base, Command, Environment, Install, Options, Requirement
from provision.matrix.load import Matrix
from provision.matrix.query import hub_name
from provision.records import replace

# Compiled when they are first used: many files need none of them.
_CUDNN = r"cudnn[0-9]*"
_RELEASE = r"[0-9]+(?:\.[0-9]+)+"
_MINOR = r"([0-9]+\.[0-9]+)(?:\.[0-9]+)?(?:(?:a|b|rc)[0-9]+)?"
_PYTHON_PACKAGE = r"python([0-9]+\.[0-9]+)(?:-(?:dev|venv|distutils|minimal|full))?"
_PYTHON_PROGRAM = r"(?:/usr/bin/|/usr/local/bin/)?python([0-9]+\.[0-9]+)"
_NVCC_PACKAGE = (
    r"nvidia-cuda-toolkit|cuda-nvcc.*|cuda-toolkit.*|cuda-compiler.*|cuda-minimal-build.*|cuda(?:-[0-9]+-[0-9]+)?"
)
# Folders that may hold a toolkit when they are copied whole.
_BROAD = frozenset(("/", "/usr", "/usr/local", "/opt", "/opt/conda"))
_PACKAGE_MANAGERS = frozenset(("apt-get", "apt", "aptitude", "yum", "dnf", "microdnf", "apk", "zypper"))
# Programs that leave compilers and Pythons as they are.
_HARMLESS_WORDS = """
apt-get apt apt-key apt-mark add-apt-repository dpkg dpkg-reconfigure yum dnf microdnf apk zypper pip pip3 python
python3 uv echo printf cat tee ls rm mkdir rmdir cp mv ln touch chmod chown useradd groupadd adduser addgroup
usermod set cd export true false : test [ sed awk grep cut sort head tail tr find xargs curl wget git tar unzip gpg
gzip locale-gen localedef update-locale ldconfig update-alternatives sleep date env exec source . if unset umask
uname arch which command type id whoami pwd hash stat du df npm node yarn pnpm huggingface-cli hf ssh-keygen
ssh-keyscan update-ca-certificates passwd chpasswd sudo strip sync nproc readlink realpath dirname basename mktemp
wc diff install patch trap wait exit return shift eval sh bash service nvidia-smi nvcc gcc g++ make cmake ninja
ccache poetry pdm pipx jupyter conda mamba micromamba base64 md5sum sha256sum sha512sum openssl playwright
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())


def complete(environment: Environment, matrix: Matrix, options: Options) -> Environment:
    """Return an environment with what follows from it by the facts.

    Args:
        environment: As a parser gave it.
        matrix: The facts.
        options: What the person told beside the files.
    """
    base = environment.base
    if base is not None:
        base, system = _describe_base(base, matrix)
    else:
        system = None
    system = system or environment.os
    packages = _packages(environment)
    python = _python_of(environment, base, system, packages, matrix, options)
    installs = tuple(_settle(item, environment, python, options) for item in environment.installs)
    own_count = len(environment.own_installs)
    return replace(
        environment,
        base=base,
        os=system,
        python=python,
        installs=installs,
        own_installs=installs[len(installs) - own_count :] if own_count else (),
        has_nvcc=_has_nvcc(environment, base, packages),
        is_gpu=_is_gpu(environment, base),
    )


def _describe_base(base: Base, matrix: Matrix) -> tuple[Base, str | None]:
    """Return a base with what its tag tells, and the operating system it is."""
    if base.repository is None:
        return base, None
    base = replace(base, repository=hub_name(matrix, base.repository))
    repository, tag = base.repository or "", base.tag
    if is_cuda_repository(matrix, base):
        return _describe_cuda(base, matrix)
    if repository == "python":
        parts = tag.split("-")
        flavour = "slim" if "slim" in parts else "" if "alpine" in parts else "full"
        return replace(base, flavour=flavour), _codenames(matrix).get(parts[-1]) if len(parts) > 1 else None
    framework = matrix.setting("audit_rules.toml", "framework_images").entries.get(repository)
    if framework is not None:
        return _describe_framework(base, framework, matrix)
    return base, _system_of(repository, tag, matrix)


def _describe_framework(base: Base, framework: str, matrix: Matrix) -> tuple[Base, str | None]:
    """Return a base that comes with a framework, with what its tag tells: ``2.1.0-cuda11.8-cudnn8-runtime``."""
    from provision.resolve.foreign import image_python, known_base

    if base.repository in matrix.setting("audit_rules.toml", "own_build_images").values:
        known = known_base(matrix, f"{base.repository}:{base.tag}")
        own = replace(base, frameworks={framework: ""}, is_own_build=True)
        if known is None:
            return own, None
        inside = replace(own, cuda=known.cuda, has_cudnn=True if known.cudnn else None, cudnn=known.cudnn)
        return replace(inside, python=known.python), known.os
    parts = base.tag.split("-")
    version = parts[0] if re.fullmatch(_RELEASE, parts[0]) else ""
    cudnn = next((part for part in parts if re.fullmatch(_CUDNN, part)), None)
    # A tag that names py3 says that the one without it holds another Python.
    is_plain = bool(version) and not any(part.startswith("py") for part in parts)
    described = replace(
        base,
        cuda=next((part.removeprefix("cuda") for part in parts if part.startswith("cuda")), None),
        flavour=parts[-1] if parts[-1] in ("runtime", "devel") else "",
        has_cudnn=True if cudnn else None,
        cudnn=(cudnn or "").removeprefix("cudnn") or None,
        python=image_python(matrix, base.repository or "", version) if is_plain else None,
        frameworks={framework: version},
    )
    return described, None


def _describe_cuda(base: Base, matrix: Matrix) -> tuple[Base, str | None]:
    tag = base.tag
    row = cuda_image(matrix, base)
    if row is not None:
        return replace(base, cuda=row.cuda, flavour=row.flavour, has_cudnn=row.has_cudnn, cudnn=row.cudnn), row.os
    parts = tag.split("-")
    if not re.fullmatch(_RELEASE, parts[0]):
        return base, None
    flavour = next((part for part in parts if part in ("base", "runtime", "devel")), "")
    has_cudnn = any(re.fullmatch(_CUDNN, part) for part in parts)
    known = {row.id for row in matrix.os_releases}
    system = parts[-1] if parts[-1] in known else None
    return replace(base, cuda=parts[0], flavour=flavour, has_cudnn=has_cudnn), system


def _codenames(matrix: Matrix) -> dict[str, str]:
    """Return the names of distributions' releases, as tags end with them: ``bookworm`` → ``debian12``."""
    return {row.tag.rpartition("-")[2]: row.os for row in matrix.python_images}


def _system_of(repository: str, tag: str, matrix: Matrix) -> str | None:
    reference = f"{repository}:{tag}"
    known = {row.id: row for row in matrix.os_releases}
    for row in known.values():
        if row.image is not None and hub_name(matrix, row.image) == reference:
            return row.id
    if repository == "ubuntu" and f"ubuntu{tag}" in known:
        return f"ubuntu{tag}"
    if repository == "debian":
        release = tag.removesuffix("-slim")
        return f"debian{release}" if f"debian{release}" in known else _codenames(matrix).get(release)
    if repository == "centos":
        name = f"rhel{tag.removeprefix('centos').partition('.')[0]}"
        return name if name in known else None
    if repository.endswith(("rockylinux", "almalinux")) and tag:
        name = f"{repository.rpartition('/')[2]}{tag.partition('.')[0].partition('-')[0]}"
        return name if name in known else None
    return None


def _words(commands: Iterable[Command]) -> Iterable[tuple[str, list[str | None]]]:
    for command in commands:
        if command.instruction == "RUN" and command.words:
            yield command.program or "", [word.text for word in command.words[1:]]


def _packages(environment: Environment) -> set[str]:
    """Return the packages of the system that are surely installed."""
    found: set[str] = set()
    for command in environment.commands:
        program = command.program
        if program not in _PACKAGE_MANAGERS and program != "sudo":
            continue
        texts = [word.text for word in command.words]
        if program == "sudo":
            texts = texts[1:]
            program = (texts[0] or "").rpartition("/")[2] if texts else None
        if program in _PACKAGE_MANAGERS and ("install" in texts or "add" in texts):
            found.update(text.partition("=")[0] for text in texts[1:] if text and not text.startswith("-"))
    return found - {"install", "add"}


def _is_opaque(environment: Environment) -> bool:
    """Tell whether something runs that may bring anything: a script, a program nobody knows here."""
    for program, _ in _words(environment.commands):
        if program.removesuffix(".exe") not in _HARMLESS and not re.fullmatch(r"(?:python|pip)[0-9.]*", program):
            return True
    for command in environment.commands:
        first = command.words[0].text if command.words else ""
        if first is None or first.startswith(("./", "../")):
            return True
        if command.program in ("sh", "bash", "source", ".") and not any(
            (word.text or "").startswith("-") and "c" in (word.text or "") for word in command.words[1:]
        ):
            return True
    return False


def _has_nvcc(environment: Environment, base: Base | None, packages: set[str]) -> bool | None:
    if environment.kind not in ("stage", "image") or base is None:
        return None
    if base.flavour == "devel" and base.cuda is not None:
        return True
    if any(re.fullmatch(_NVCC_PACKAGE, name) for name in packages):
        return True
    for install in environment.installs:
        for item in install.requirements:
            if item.ecosystem == "conda" and item.name in ("cuda-nvcc", "cuda-toolkit", "cuda", "cudatoolkit-dev"):
                return True
    if base.repository is None or not _is_plain(base) or _is_opaque(environment):
        return None
    if any(not source.isdigit() for source in environment.copies_from):
        return None
    for source, destination in environment.copied:
        if source is None or (source.rstrip("/") or "/") in _BROAD or "cuda" in f"{source} {destination}":
            return None
    if any(
        ".run" in text or "cuda" in text
        for _, words in _words(environment.commands)
        for text in words
        # A flag such as `--cuda_ext` asks for CUDA and brings none.
        if text is not None and not text.startswith("-")
    ):
        return None
    return False


def _is_plain(base: Base) -> bool:
    """Tell whether it is known what compilers an image has: CUDA's smaller ones, Python's, bare systems."""
    if base.cuda is not None:
        return base.flavour in ("base", "runtime")
    return base.repository in ("python", "ubuntu", "debian")


def _python_of(
    environment: Environment,
    base: Base | None,
    system: str | None,
    packages: set[str],
    matrix: Matrix,
    options: Options,
) -> str | None:
    if environment.kind != "stage":
        return environment.python or options.python
    mentioned = {item.python for item in environment.installs if item.python is not None}
    pinned = _asked_python(environment)
    if pinned is not None:
        return pinned or options.python
    if any(item.installer == "conda" for item in environment.installs):
        return mentioned.pop() if len(mentioned) == 1 else options.python
    if base is not None and base.repository == "python":
        match = re.fullmatch(_MINOR, base.tag.partition("-")[0])
        if match is None or not mentioned <= {match[1]}:
            return options.python
        return match[1]
    if base is not None and base.python is not None:
        has_other = bool(mentioned - {base.python}) or any(name.startswith("python") for name in packages)
        return options.python if has_other else base.python
    row = matrix.os_release(system)
    named = [name for name in packages if name.startswith("python")]
    versions = {match[1] for name in named if (match := re.fullmatch(_PYTHON_PACKAGE, name))}
    if mentioned:
        return mentioned.pop() if len(mentioned) == 1 and versions <= mentioned else options.python
    if versions - ({row.python} if row is not None else set()):
        # Another Python beside that of the system: the words that call it decide.
        linked = _linked_pythons(environment)
        return linked.pop() if len(linked) == 1 else options.python
    has_python = bool(versions) or bool(
        packages & {"python3", "python3-pip", "python3-venv", "python3-dev", "python-is-python3"}
    )
    if row is not None and row.python is not None and has_python and not _is_opaque(environment):
        return row.python
    return options.python


def _asked_python(environment: Environment) -> str | None:
    """Return the Python that ``uv venv`` and the like make: empty where they do and its version is not known."""
    found: set[str] = set()
    for program, words in _words(environment.commands):
        texts = [text or "?" for text in words]
        if program == "uv" and texts[:1] in (["venv"], ["python"]):
            versions = [
                match[1]
                for text in texts[1:]
                if (match := re.fullmatch(r"(?:--python=|cpython-?|python)?([0-9]+\.[0-9]+)(?:\.[0-9]+)?", text))
            ]
            found.update(versions or ({""} if texts[:1] == ["venv"] and "--python" in texts else set()))
        elif program in ("pyenv", "pixi", "asdf", "mise", "rye"):
            found.add("")
    variable = environment.variables.get("UV_PYTHON")
    if variable is not None and variable.kind == "env":
        match = re.fullmatch(_MINOR, variable.value or "")
        found.add(match[1] if match else "")
    if not found:
        return None
    return found.pop() if len(found) == 1 else ""


def _linked_pythons(environment: Environment) -> set[str]:
    return {
        match[1]
        for program, words in _words(environment.commands)
        if program in ("ln", "update-alternatives")
        for text in words
        if text and (match := re.fullmatch(_PYTHON_PROGRAM, text))
    }


def _settle(install: Install, environment: Environment, python: str | None, options: Options) -> Install:
    """Return an install with its Python, and with the markers of its requirements decided."""
    own = install.python or python
    if all(item.applies is not None for item in (*install.requirements, *install.constraints)):
        return install if own == install.python else replace(install, python=own)
    platforms = options.platforms or ((environment.platform,) if environment.platform else ())
    return replace(
        install,
        python=own,
        requirements=tuple(_decide(item, own, platforms) for item in install.requirements),
        constraints=tuple(_decide(item, own, platforms) for item in install.constraints),
    )


def _decide(item: Requirement, python: str | None, platforms: tuple[str, ...]) -> Requirement:
    if item.applies is not None or not item.marker:
        return item
    from provision.audit.markers import holds

    answer = holds(item.marker, python, platforms)
    return item if answer is None else replace(item, applies=answer)


_GPU_NAMES = (
    "torch",
    "torchvision",
    "torchaudio",
    "tensorflow",
    "tensorflow-gpu",
    "jax",
    "jaxlib",
    "triton",
    "pytorch",
)
_GPU_PREFIXES = (
    "nvidia-",
    "cupy",
    "flash-attn",
    "xformers",
    "vllm",
    "bitsandbytes",
    "onnxruntime-gpu",
    "jax-cuda",
    "pytorch-cuda",
)


def _is_gpu(environment: Environment, base: Base | None) -> bool:
    if environment.is_gpu or environment.gpus is not None or environment.runtime == "nvidia":
        return True
    if base is not None and (base.cuda is not None or (base.frameworks and "cpu" not in base.tag)):
        return not ("tensorflow" in base.frameworks and not base.is_own_build and "gpu" not in base.tag)
    for install in environment.installs:
        for item in install.requirements:
            if item.applies is False or item.local == "cpu":
                continue
            if item.name in _GPU_NAMES or item.name.startswith(_GPU_PREFIXES):
                urls = [index.url or "" for index in install.indexes]
                if not any(url.rstrip("/").endswith("/cpu") for url in urls):
                    return True
    return False
