"""The Stack: one proven answer, and its file form ``provision.lock``.

The lock is what every other part of the program reads; nothing downstream decides again. Its bytes depend on the
request and the facts alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError
from provision.records import NOTHING, fields_of, plain, record
from provision.resolve.request import Request, plain_request, request_of
from provision.resolve.requirements import LOCAL

TORCH_ARCHS = "TORCH_CUDA_ARCH_LIST"
"""What extensions of PyTorch read to know for which GPUs they are compiled."""
INIT = "dumb-init"
"""The tool of the build that becomes part of the image, to be its first process."""

LOCK_VERSION = 1


@record
class FactRef:
    """A row of compat/ that a decision rests on: ``torch/2.1.2+cu118``, with where the row was read."""

    id: str
    source: tuple[str, ...]
    where: str
    status: str


@record
class Reason:
    """Why one part of the stack is what it is."""

    subject: str
    because: str
    facts: tuple[FactRef, ...] = ()


@record
class DriverNeed:
    """What the host's driver must be.

    Attributes:
        minimum: Lowest Linux driver version the stack runs on.
        recommended_branch: Branch to install where one may choose.
        native: Driver that shipped with this CUDA (PTX JIT and new features need its branch); may be unknown.
        secure_minimum: Branch → lowest version without a known vulnerability.
        maximum_branch: Last branch that drives every requested GPU; absent when there is no end.
    """

    minimum: str
    recommended_branch: str | None = None
    native: str | None = None
    maximum_branch: str | None = None
    secure_minimum: Mapping[str, str] = NOTHING


@record
class LockedPackage:
    """One distribution of the environment.

    Attributes:
        version: With the local part where the wheel has one (``2.1.2+cu118``).
        index: ``pypi``, ``pytorch`` or ``jax``.
        file: Wheel file name; absent when the matrix does not know the file.
        sha256: Absent = unverified, installed from ``index_url`` without a hash.
        size: Bytes to download.
        installed: Bytes on disk.
        url: Direct address, for wheels that are not on PyPI.
        index_url: Where an unverified package is looked up.
        layer: ``cuda`` (NVIDIA libraries), ``framework``, ``rest`` of what these need, or ``user`` for what lines of
            the user and extras brought; the image's layers, by churn.
        why: The request or the package that asked for it.
        has_unknown_dependencies: The matrix does not know what it requires, so the installer must look.
        is_source: Its index has no wheel of it, so the installer builds one.
    """

    name: str
    version: str
    index: str
    file: str | None = None
    sha256: str | None = None
    size: int | None = None
    installed: int | None = None
    url: str | None = None
    index_url: str | None = None
    layer: str = "rest"
    why: str
    has_unknown_dependencies: bool = False
    is_source: bool = False

    @property
    def is_behind_ssh(self) -> bool:
        """Whether it is a commit of a repository that is read with a key of the ssh agent."""
        return (self.url or "").startswith("git+ssh://")

    @property
    def is_built(self) -> bool:
        """Whether a wheel of it is built in a stage of its own: what the user's lines brought that is source alone."""
        return self.layer == "user" and self.is_source

    @property
    def is_local(self) -> bool:
        """Whether its file is a copy in the build context, of the machine that wrote it."""
        return (self.url or "").startswith(LOCAL)

    @property
    def is_commit(self) -> bool:
        """Whether it is a commit of a repository, which its name fixes as a hash fixes a file."""
        return (self.url or "").startswith("git+")


@record
class BaseImage:
    """A container base: ``ref`` without digest (``python:3.11-slim-bookworm``), ``cuda`` the minor it holds, if any."""

    ref: str
    digest: str | None = None
    os: str | None = None
    cuda: str | None = None
    size_mb: int | None = None


@record
class ExtraPart:
    """Something asked for with ``--with`` or needed by the flavor."""

    id: str
    requires: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    port: int | None = None
    command: tuple[str, ...] = ()


@record
class ProjectBuild:
    """What makes wheels of the user's own projects, in an environment of its own that is no part of the image.

    Attributes:
        requires: What the projects ask for, sorted: ``[build-system] requires``; their backends may need more.
        packages: All of that environment, by name.
    """

    requires: tuple[str, ...] = ()
    packages: tuple[LockedPackage, ...] = ()


@record
class SourceBuild:
    """What makes wheels of sources among the packages, in an environment of its own that is no part of the image.

    Attributes:
        names: These packages, sorted.
        requires: What each of them asks for, sorted: ``[build-system] requires``; their backends may need more.
        packages: All of that environment, by name.
    """

    names: tuple[str, ...]
    requires: tuple[str, ...] = ()
    packages: tuple[LockedPackage, ...] = ()


@record
class ImagePart:
    """What ``provision image`` needs beyond the stack itself.

    Attributes:
        flavor: ``runtime``, ``jit`` (a C compiler for Triton), ``dev`` (that, uv and git, to be worked in) or ``devel``
            (nvcc and a host compiler).
        base: Base of the final image.
        cuda_base: nvidia/cuda tag whose CUDA and cuDNN libraries are copied in, where wheels bring none or the
            flavor is ``devel``.
        packages: The whole environment, sorted by name.
        tools: What the build installs wheels with, not part of the image, and the init, which is.
        apt: ``package=version`` patterns, sorted; the user's own among them.
        build_apt: Packages of the system that only the stage needs which compiles on ``compile_base``.
        build_env: Variables of that stage, by name, as the builds of what is compiled read them.
        apt_snapshot: Day (ISO) of the archive to take them from; the archive of now where there is none.
        source_date_epoch: Newest upload among the wheels, seconds.
        library_path: Folders below site-packages that must be on LD_LIBRARY_PATH (only where a fact demands it).
        user_requirements: The user's own lines, sorted.
        compiled: Packages among the user's and the extras' lines that are compiled against the framework, by name.
        compile_base: Image to compile them on; the final image then has no compiler. Absent where their kernels are
            compiled at run time too, so that the final image needs nvcc itself.
        build_base: Image with compilers, to build on what the user's lines brought that exists as source alone;
            ``build_bounds`` are requirement lines that hold for what builds it.
        project_build: What wheels of the user's own projects are made with. Absent where there are none, and where
            that is resolved when the image is built.
        source_builds: What wheels are made with of the packages that are built by themselves, as far as it is locked.
        resolved_before: Moment (RFC 3339): whatever the lines of the user and of the extras need is among the packages,
            of what was published before it. Absent where these lines are resolved when the image is built.
    """

    flavor: str
    base: BaseImage
    cuda_base: BaseImage | None = None
    packages: tuple[LockedPackage, ...] = ()
    tools: tuple[LockedPackage, ...] = ()
    apt: tuple[str, ...] = ()
    extras: tuple[ExtraPart, ...] = ()
    source_date_epoch: int = 0
    library_path: tuple[str, ...] = ()
    user_requirements: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    compile_base: BaseImage | None = None
    build_base: BaseImage | None = None
    build_bounds: tuple[str, ...] = ()
    resolved_before: str | None = None
    build_apt: tuple[str, ...] = ()
    build_env: Mapping[str, str] = NOTHING
    apt_snapshot: str | None = None
    project_build: ProjectBuild | None = None
    source_builds: tuple[SourceBuild, ...] = ()

    @property
    def builders(self) -> tuple[LockedPackage, ...]:
        """What is locked to make wheels with, and is no part of the image."""
        project = self.project_build.packages if self.project_build is not None else ()
        return (*project, *(package for build in self.source_builds for package in build.packages))

    @property
    def is_whole(self) -> bool:
        """Whether nothing is resolved when the image is built."""
        return self.resolved_before is not None

    @property
    def init(self) -> LockedPackage | None:
        """The first process of its containers; locks that are older have none."""
        return next((tool for tool in self.tools if tool.name == INIT), None)

    @property
    def unverified(self) -> int:
        """How many packages have no known sha256."""
        return sum(package.sha256 is None and not package.is_commit for package in self.packages)


@record
class NodePackage:
    """One package of a system; without a version, whichever the repository holds."""

    name: str
    version: str | None = None


@record
class NodeKey:
    """Where a repository's key is, and what it must be."""

    url: str
    fingerprint: str | None = None
    sha256: str | None = None


@record
class NodeRepository:
    """A package repository beside the system's own.

    Attributes:
        purposes: The parts of a profile that need it.
        signs: ``packages``, or ``metadata`` where an rpm repository signs its index alone.
    """

    id: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()
    key: NodeKey
    purposes: tuple[str, ...]
    signs: str = "packages"


@record
class NodePin:
    """What apt holds at one version: names, globs or ``src:`` names, parted by spaces."""

    packages: str
    version: str


@record
class NodeKernel:
    """The kernel's packages: metapackages, the headers of one kernel (``{kernel}``), what compiles a module."""

    headers: str
    image: str
    headers_pattern: str
    build: tuple[str, ...] = ()


@record
class NodeFlavour:
    """One flavour of the kernel module, ``proprietary`` or ``open``.

    Attributes:
        module: File name without its ending, what ``modinfo`` is asked for.
        dkms_package: Package with the sources; absent for modules that come compiled.
        dkms_name: The module's name in DKMS.
        license: What ``modinfo`` then says.
        stream: Stream of dnf's module ``nvidia-driver`` that has it; absent where the system has no such modules.
    """

    name: str
    packages: tuple[NodePackage, ...]
    module: str
    dkms_package: str | None = None
    dkms_name: str | None = None
    license: str
    stream: str | None = None


@record
class NodeDriver:
    """The driver of one system; the flavour that a host of unknown GPUs takes comes first.

    ``compute`` and ``full`` are the user space of hosts without and with a display; ``default_profile`` names one.
    """

    branch: int
    version: str
    package_version: str
    flavours: tuple[NodeFlavour, ...]
    compute: tuple[NodePackage, ...]
    full: tuple[NodePackage, ...]
    default_profile: str = "compute"
    services: tuple[str, ...] = ()


@record
class NodeGroup:
    """Packages that go together, with their services.

    ``version`` is that of the thing itself where the packages' differ; ``nvlink5_packages`` are more of them, for hosts
    with NVLink 5 alone.
    """

    packages: tuple[NodePackage, ...]
    services: tuple[str, ...] = ()
    version: str | None = None
    nvlink5_packages: tuple[NodePackage, ...] = ()


@record
class NodeToolkit:
    """One CUDA toolkit (``12.1``): its packages, its folder, and what lets it run on an older driver."""

    version: str
    packages: tuple[NodePackage, ...]
    home: str
    compat: tuple[NodePackage, ...] = ()


@record
class NodeBuild:
    """The GPUs that one framework of an environment was built for.

    Attributes:
        code: What is compiled, ``sm_80`` before ``compute_90``; empty where only a minimum is known.
        ptx_driver_branch: First driver branch that compiles its PTX, where that of the system is older.
        minimum: Lowest compute capability (``5.2``) where no list is known.
        runs_on: Compute capabilities of known GPUs that it has code for, ascending.
        lacks: Those that it has no code for. A known one in neither is an open question.
    """

    framework: str
    version: str
    variant: str
    code: tuple[str, ...] = ()
    ptx_driver_branch: int | None = None
    minimum: str | None = None
    runs_on: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@record
class NodeEnvironment:
    """One Python environment: everything in it, by hash, and what must be importable."""

    name: str
    packages: tuple[LockedPackage, ...]
    imports: tuple[str, ...]
    versions: Mapping[str, str]
    builds: tuple[NodeBuild, ...] = ()


@record
class NodeFrameworks:
    """The Python environments of one system, made by its own Python; ``refusal`` says why there are none."""

    python: str
    packages: tuple[NodePackage, ...] = ()
    environments: tuple[NodeEnvironment, ...] = ()
    refusal: str | None = None


@record
class NodeProfile:
    """What a host of one system gets; with a ``refusal``, nothing.

    Attributes:
        architectures: As the system calls them (``amd64``).
        method: ``distro``, ``cuda_repo`` or ``precompiled``.
        manager: What installs packages: ``apt`` or ``dnf``.
        components: Parts of the system's own archive to switch on.
        fabric: For hosts with NVSwitches.
        imex: For hosts whose NVLink leaves the host.
        toolkits: CUDA toolkits side by side, lowest first; ``default_toolkit`` is the one on the path.
        rdma: The system's own RDMA stack.
        firewall: What keeps rules of access; ``audit`` likewise.
        warnings: What a person should know, one sentence each.
    """

    os: str
    refusal: str | None = None
    architectures: tuple[str, ...] = ()
    method: str | None = None
    manager: str = "apt"
    components: tuple[str, ...] = ()
    repositories: tuple[NodeRepository, ...] = ()
    pins: tuple[NodePin, ...] = ()
    kernel: NodeKernel | None = None
    driver: NodeDriver | None = None
    fabric: NodeGroup | None = None
    imex: NodeGroup | None = None
    toolkits: tuple[NodeToolkit, ...] = ()
    default_toolkit: str | None = None
    cudnn: NodeGroup | None = None
    nccl: NodeGroup | None = None
    container_toolkit: NodeGroup | None = None
    dcgm: NodeGroup | None = None
    rdma: NodeGroup | None = None
    firewall: tuple[NodePackage, ...] = ()
    audit: tuple[NodePackage, ...] = ()
    frameworks: NodeFrameworks | None = None
    warnings: tuple[str, ...] = ()


@record
class NodePart:
    """What ``provision node`` needs beyond the stack itself.

    Attributes:
        request: What was asked about nodes alone.
        modules: GPU architecture → flavour of the module that such GPUs get.
        architectures: Of the requested GPUs.
        profiles: One a system, by name.
    """

    request: dict[str, Any]
    modules: Mapping[str, str]
    architectures: tuple[str, ...] = ()
    profiles: tuple[NodeProfile, ...]


@record
class FrameworkBuild:
    """What one framework of several was built for, as the facts state it; what they do not state is absent.

    Attributes:
        cuda: Minor (``12.5``), or the major alone where a plugin serves all of it.
        cudnn: Version, major, or the range that its wheel admits (``>=9.8,<10.0``).
        nccl: Version.
        sm: Cubins inside; ``ptx`` what the driver compiles.
    """

    framework: str
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    sm: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()


@record
class Stack:
    """A set of versions that the facts say work together.

    Attributes:
        request: What was asked.
        facts_date: Day of the facts (ISO).
        python: ``3.11``; absent in a stack of CUDA alone.
        platform: ``linux/amd64`` or ``linux/arm64``.
        cuda: ``11.8``, major.minor; empty in a stack without CUDA, as is the driver's minimum.
        variant: Build of the first framework (``cu118``, ``cuda12``, ``and-cuda``) or of CUDA alone.
        variants: Framework → build.
        frameworks: Framework → version without local part.
        packages: Name → version with local part.
        cudnn: What is installed, and so for all frameworks; ``nccl`` likewise.
        sm: Cubins inside (``sm_80``), ascending; ``ptx`` what the driver compiles at run time (``compute_90``). With
            several frameworks, what all of them serve.
        builds: What each framework was built for, in the order of ``frameworks``; empty where there is only one, of
            which the stack itself says it.
        gpus: Names of the requested GPUs as the matrix writes them.
        warnings: What a person should know, one sentence each.
    """

    request: Request
    facts_date: str
    python: str | None
    platform: str
    os: str
    cuda: str
    variant: str
    variants: Mapping[str, str] = NOTHING
    cudnn: str | None = None
    nccl: str | None = None
    frameworks: Mapping[str, str] = NOTHING
    packages: Mapping[str, str] = NOTHING
    driver: DriverNeed
    sm: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    builds: tuple[FrameworkBuild, ...] = ()
    gpus: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    image: ImagePart | None = None
    node: NodePart | None = None

    @property
    def name(self) -> str:
        """A name for folders and tags: ``torch2.1.2-cu118-py311``."""
        parts = [f"{framework}{version}" for framework, version in self.frameworks.items()]
        is_said = self.variant.startswith("cu1") or self.is_cpu
        parts.append(self.variant if is_said else f"cu{self.cuda.replace('.', '')}")
        if self.python:
            parts.append(f"py{self.python.replace('.', '')}")
        if self.platform != "linux/amd64":
            parts.append(self.platform.rsplit("/", 1)[-1])
        if self.image is not None and self.image.flavor != "runtime":
            parts.append(self.image.flavor)
        return "-".join(parts)

    @property
    def is_cpu(self) -> bool:
        """Whether it is without CUDA, as its request asks."""
        return self.request.is_cpu

    @property
    def built_for(self) -> tuple[FrameworkBuild, ...]:
        """What each framework was built for; nothing in locks of several frameworks that do not tell it apart."""
        if self.builds or len(self.frameworks) != 1:
            return self.builds
        (name,) = self.frameworks
        return (
            FrameworkBuild(
                framework=name, cuda=self.cuda or None, cudnn=self.cudnn, nccl=self.nccl, sm=self.sm, ptx=self.ptx
            ),
        )

    @property
    def unverified(self) -> int:
        """How many wheels the facts know no hash of."""
        return self.image.unverified if self.image is not None else 0

    @property
    def lock_digest(self) -> str:
        """``sha256:…`` over the canonical lock."""
        return _digest(self._plain())

    def to_json(self) -> dict[str, Any]:
        """Return the stack as plain data, ``lock_digest`` included."""
        document = self._plain()
        return {**document, "lock_digest": _digest(document)}

    def _plain(self) -> dict[str, Any]:
        document: dict[str, Any] = {**plain(self), "request": plain_request(self.request)}
        if self.node is None:
            # Locks without this part are older than it, and their digests do not count it.
            del document["node"]
        if not self.builds:
            # So are those of several frameworks without this part; one framework never has it.
            del document["builds"]
        if document["image"] is not None:
            parts = ("compiled", "compile_base", "build_base", "build_bounds", "resolved_before", "build_apt")
            for name in (*parts, "build_env", "apt_snapshot", "project_build", "source_builds"):
                if not document["image"][name]:
                    del document["image"][name]
        return document

    def to_lock(self) -> str:
        """Return the text of ``provision.lock``."""
        document = {"lock_version": LOCK_VERSION, "unverified": self.unverified, **self.to_json()}
        return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_lock(cls, text: str) -> Stack:
        """Read ``provision.lock``.

        Raises:
            UsageError: Not a lock, another version of it, or edited by hand (the digest disagrees).
        """
        try:
            document = json.loads(text)
            version = document.pop("lock_version")
            digest = document.pop("lock_digest")
            document.pop("unverified")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UsageError("the file is not a provision.lock", because=(str(error),)) from error
        if version != LOCK_VERSION:
            raise UsageError(
                f"the lock has version {version}, this program reads version {LOCK_VERSION}",
                hints=("write it again with `provision image`",),
            )
        try:
            stack: Stack = _from_json(cls, document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError("the lock is damaged", because=(str(error),)) from error
        except UsageError as error:
            raise UsageError("the lock is damaged", because=(error.message,)) from error
        if stack.lock_digest != digest:
            raise UsageError(
                "the lock was edited: its digest does not match its contents",
                hints=("write it again with `provision image`",),
            )
        return stack


@record
class Alternative:
    """A changed request that the solver has met.

    Attributes:
        flags: The whole request as command-line words.
        change: What differs from the refused one, in words.
    """

    flags: tuple[str, ...]
    change: str


@record
class Refusal:
    """Why no stack was given.

    Attributes:
        is_proved: The facts exclude the request (exit 3); else they do not know it (exit 4).
        message: What was refused, one sentence.
        conflict: The smallest set of request parts that cannot be met together (``--torch 2.1``).
        because: The chain of reasons.
        alternatives: Up to three requests that work, nearest first.
    """

    is_proved: bool
    message: str
    conflict: tuple[str, ...]
    because: tuple[Reason, ...]
    alternatives: tuple[Alternative, ...] = ()


def _digest(document: dict[str, Any]) -> str:
    import hashlib

    return "sha256:" + hashlib.sha256(_canonical(document).encode()).hexdigest()


def _canonical(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_NESTED: dict[str, Any] = {
    "DriverNeed": DriverNeed,
    "ImagePart | None": ImagePart,
    "ProjectBuild | None": ProjectBuild,
    "tuple[SourceBuild, ...]": (SourceBuild,),
    "BaseImage": BaseImage,
    "BaseImage | None": BaseImage,
    "tuple[Reason, ...]": (Reason,),
    "tuple[FactRef, ...]": (FactRef,),
    "tuple[LockedPackage, ...]": (LockedPackage,),
    "tuple[ExtraPart, ...]": (ExtraPart,),
    "tuple[FrameworkBuild, ...]": (FrameworkBuild,),
    "NodePart | None": NodePart,
    "NodeKey": NodeKey,
    "NodeKernel | None": NodeKernel,
    "NodeDriver | None": NodeDriver,
    "NodeGroup | None": NodeGroup,
    "NodeFrameworks | None": NodeFrameworks,
    "tuple[NodeProfile, ...]": (NodeProfile,),
    "tuple[NodePackage, ...]": (NodePackage,),
    "tuple[NodeRepository, ...]": (NodeRepository,),
    "tuple[NodePin, ...]": (NodePin,),
    "tuple[NodeFlavour, ...]": (NodeFlavour,),
    "tuple[NodeToolkit, ...]": (NodeToolkit,),
    "tuple[NodeEnvironment, ...]": (NodeEnvironment,),
    "tuple[NodeBuild, ...]": (NodeBuild,),
}


def _from_json(row_type: Any, document: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    kinds = {name: kind for name, (kind, _) in fields_of(row_type).items()}
    for key, value in document.items():
        nested = _NESTED.get(kinds[key])
        if kinds[key] == "Request":
            values[key] = request_of(value)
        elif isinstance(nested, tuple):
            values[key] = tuple(_from_json(nested[0], item) for item in value)
        elif nested is not None and value is not None:
            values[key] = _from_json(nested, value)
        elif isinstance(value, list):
            values[key] = tuple(value)
        else:
            values[key] = value
    return row_type(**values)
