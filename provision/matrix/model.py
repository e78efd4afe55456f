"""The facts as frozen objects, one class a kind of row in ``compat/``.

A class's fields, in order, are the keys of its TOML table, in order. A field that may be ``None`` may be absent
from the table: absent means unknown, never "no". Dates are ISO strings here and TOML dates in the files.
Every row carries where it was read (:class:`Fact`); a field with another origin than its row has an entry in
``evidence``, keyed by the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.records import NOTHING, record


@record
class Source:
    """A publication facts were read from (``sources.toml``).

    ``kind`` is ``documentation``, ``repository``, ``index``, ``binary`` or ``article``.
    """

    id: str
    title: str
    publisher: str | None = None
    url: str | None = None
    kind: str
    retrieved: str
    edition: str | None = None
    note: str | None = None


@record
class Evidence:
    """Where one field was read, when that is not where its row was read."""

    source: tuple[str, ...]
    where: str
    status: str
    confidence: str
    note: str | None = None


@record
class Fact:
    """What every row ends with.

    Attributes:
        source: Ids of rows in ``sources.toml``.
        where: Place inside the source: table, heading, file, field.
        status: ``stated`` (written there), ``derived`` (follows from what is written) or ``measured`` (read out
            of a binary or an index by a tool).
        confidence: ``high``, ``medium`` or ``low``.
        because: For a derived row, the reasoning.
        note: Contradictions and caveats worth showing to a person.
    """

    source: tuple[str, ...]
    where: str
    status: str
    confidence: str
    because: tuple[str, ...] = ()
    note: str | None = None
    evidence: Mapping[str, Evidence] = NOTHING


@record
class CudaRelease(Fact):
    """One CUDA toolkit (``cuda.toml``, ``[[release]]``).

    ``minimum_driver`` is the floor of minor-version compatibility for CUDA ≥ 11 and the bundled driver before.
    """

    version: str
    released: str | None = None
    bundled_driver_notes: str | None = None
    bundled_driver_runfile: str | None = None
    bundled_driver: str | None = None
    is_driver_in_installer: bool | None = None
    matching_driver_branch: int | None = None
    minimum_driver: str
    minor_compatibility_below_branch: int | None = None
    forward_compatibility_package: str | None = None
    forward_compatibility_branches: tuple[int, ...] | None = None
    sm: tuple[int, ...] | None = None
    gcc_max: int | None = None
    clang_max: int | None = None
    runfile_url: str | None = None
    runfile_sha256: str | None = None


@record
class DriverBranch(Fact):
    """One Linux driver branch (``drivers.toml``, ``[[branch]]``).

    ``kind`` is ``LTSB``, ``PB``, ``NFB`` or ``legacy``. ``cuda_majors`` lists the CUDA majors whose
    minor-version-compatibility floor the branch can meet. ``open_modules`` is ``none``, ``optional``,
    ``default`` or ``only``; ``open_modules_required_for`` lists architectures that need them.
    """

    branch: int
    kind: str | None = None
    first_release: str | None = None
    end_of_life: str | None = None
    end_of_life_elsewhere: str | None = None
    max_cuda: str | None = None
    cuda_majors: tuple[int, ...] = ()
    last_release: str | None = None
    last_release_datacenter: str | None = None
    last_release_date: str | None = None
    architectures: tuple[str, ...]
    open_modules: str
    open_modules_required_for: tuple[str, ...] = ()


@record
class SecurityFloor(Fact):
    """One driver security bulletin (``drivers.toml``, ``[[security_floor]]``); ``fixed`` maps branch → version."""

    bulletin: str
    title: str
    updated: str
    fixed: dict[str, str]


@record
class DistroDriver(Fact):
    """A driver branch in a distribution's own archive (``drivers.toml``, ``[[distro_driver]]``).

    ``flavour`` is ``desktop``, ``server`` or ``tesla``; ``transition_to`` names the branch a transitional
    package pulls in.
    """

    os: str
    branch: int
    flavour: str
    version: str | None = None
    component: str | None = None
    transition_to: int | None = None


@record
class Gpu(Fact):
    """One GPU model (``gpus.toml``, ``[[gpu]]``). Memory in GB (10⁹), bandwidth in GB/s, TFLOPS dense.

    ``id`` is lower case with dashes (``h100-sxm5-80gb``). ``aliases`` holds every way people write it, family
    short names included (``h100``); an alias may stand in several rows when they share a compute capability.
    ``host`` is ``arm64`` for a GPU that exists only beside an Arm processor, absent for all others.
    ``first_driver_branch`` is absent where only an upper bound, ``ubuntu_first_branch``, is known.
    ``open_modules`` is ``unsupported``, ``supported`` or ``required``. ``fabric_manager`` is ``no``,
    ``nvswitch`` (needed where NVSwitches are) or ``imex``.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    segment: str
    host: str | None = None
    architecture: str
    compute_capability: str
    memory_gb: float | None = None
    memory_type: str | None = None
    memory_bandwidth_gb_s: float | None = None
    tdp_w: int | None = None
    tflops_fp32: float | None = None
    tflops_tf32: float | None = None
    tflops_fp16_tensor: float | None = None
    tflops_fp8: float | None = None
    nvlink: str | None = None
    nvswitch: str | None = None
    fabric_manager: str | None = None
    fabric_manager_detail: str | None = None
    mig_max_instances: int | None = None
    mig_min_driver: str | None = None
    first_cuda: str | None = None
    last_cuda: str | None = None
    first_driver: str | None = None
    first_driver_branch: int | None = None
    first_driver_branch_derived: int | None = None
    first_driver_basis: str | None = None
    last_driver_branch: int | None = None
    ubuntu_first_branch: int | None = None
    ubuntu_last_branch: int | None = None
    open_modules: str | None = None
    pci_device_id: str | None = None


@record
class Cudnn(Fact):
    """One cuDNN version or family (``cudnn.toml``, ``[[release]]``).

    ``version`` is the first version the row speaks of and ``last_version`` the last. ``cuda`` holds specifiers
    (``>=11.0,<=11.8``), any of which may hold. ``minimum_driver`` maps a CUDA major to the floor.
    ``forward_compatible_cuda`` lists the CUDA majors whose builds run on GPUs newer than ``sm_max`` by PTX.
    """

    version: str
    last_version: str | None = None
    released: str | None = None
    cuda: tuple[str, ...]
    sm_min: int | None = None
    sm_max: int | None = None
    forward_compatible_cuda: tuple[int, ...] = ()
    minimum_driver: Mapping[str, str] = NOTHING
    apt: str | None = None


@record
class Nccl(Fact):
    """One pairing of NCCL with CUDA in an apt repository or image (``nccl.toml``, ``[[pairing]]``).

    ``per_os`` maps an OS to ``{"cudnn": …, "nccl": …}`` where it differs by OS.
    """

    cuda: str
    nccl: str
    apt: str | None = None
    cudnn_in_image: str | None = None
    os: str | None = None
    released: str | None = None
    per_os: Mapping[str, Mapping[str, str]] = NOTHING


@record
class OsRelease(Fact):
    """One operating system (``os.toml``, ``[[os]]``).

    ``id`` is what ``--os`` takes (``ubuntu22.04``, ``debian12``, ``rhel9``). ``glibc`` and ``python`` are the
    distribution's own. ``image`` is the plain container base where one is usable.
    """

    id: str
    name: str
    repo_path: str | None = None
    arch_dirs: tuple[str, ...] = ()
    support: str | None = None
    first_cuda: str | None = None
    last_cuda: str | None = None
    package_format: str
    signing_key: str | None = None
    glibc: str | None = None
    python: str | None = None
    gcc: int | None = None
    image: str | None = None
    end_of_life: str | None = None


@record
class PythonRelease(Fact):
    """One Python minor (``python.toml``, ``[[python]]``): first final release and end of life."""

    version: str
    released: str
    end_of_life: str | None = None


@record
class PythonImage(Fact):
    """One official Python image tag (``images.toml``, ``[[python_image]]``).

    ``flavour`` is ``slim`` or ``full`` (with compilers). ``platforms`` are ``linux/amd64`` style. ``digest`` is
    the multi-platform index digest, absent when nobody published it.
    """

    tag: str
    python: str
    os: str
    flavour: str
    platforms: tuple[str, ...]
    digest: str | None = None
    size_mb: int | None = None


@record
class NgcRelease(Fact):
    """What NVIDIA's framework images of one month hold (``ngc.toml``, ``[[release]]``): ``25.01`` of every tag.

    ``driver`` is the one its CUDA was released with; ``torch`` is the build in the image of PyTorch.
    """

    release: str
    cuda: str
    cudnn: str | None = None
    nccl: str | None = None
    python: str
    os: str
    driver: str
    torch: str | None = None


@record
class CudaImage(Fact):
    """One nvidia/cuda tag (``images.toml``, ``[[cuda_image]]``), never put together from parts.

    ``flavour`` is ``base``, ``runtime`` or ``devel``; ``has_cudnn`` tells whether cuDNN is inside and ``cudnn``
    which. ``lifecycle`` is ``supported``, ``unsupported``, ``deleted`` or ``unlisted``.
    """

    tag: str
    cuda: str
    flavour: str
    os: str
    has_cudnn: bool
    cudnn: str | None = None
    nccl: str | None = None
    platforms: tuple[str, ...] = ()
    lifecycle: str
    digest: str | None = None
    size_mb: int | None = None


@record
class ContainerToolkit(Fact):
    """One NVIDIA container toolkit version (``container_toolkit.toml``, ``[[release]]``)."""

    version: str
    released: str | None = None
    fixes: tuple[str, ...] = ()


@record
class TorchRelease(Fact):
    """What all builds of one torch version share (``frameworks/torch.toml``, ``[[release]]``).

    ``variants`` names the published builds, so that a row that got lost is missed and not taken for a build that
    never was. ``is_variants_complete`` marks the list as closed: another one is proved absent, unless an
    :class:`UnknownBuild` names it. ``is_pythons_complete`` says the same of the Pythons.
    """

    version: str
    released: str
    requires_python: str
    variants: tuple[str, ...] = ()
    is_variants_complete: bool
    is_pythons_complete: bool
    torchvision: str | None = None
    torchvision_alternatives: tuple[str, ...] = ()
    torchaudio: str | None = None
    torchaudio_alternatives: tuple[str, ...] = ()
    torchaudio_note: str | None = None
    torchvision_note: str | None = None
    stable_variant: str | None = None
    glibc_symbol_max: str | None = None


@record
class TorchBuild(Fact):
    """One torch version built for one CUDA (``frameworks/torch.toml``, ``[[build]]``).

    Attributes:
        index: ``pypi`` for the build that PyPI serves on linux/amd64, else ``pytorch``.
        pythons: Pythons with a torch wheel; ``3.13t`` is the free-threaded one.
        pythons_with_companions: Pythons with torch, torchvision and torchaudio wheels; none known where it is empty.
        sm: Cubins inside the linux/amd64 wheel (``sm_80``); PTX entries (``compute_90``) are in ``ptx``.
        sm_arm64: The same of the linux/arm64 wheel.
        is_arm64_published: Whether a linux/arm64 wheel of this CUDA build exists.
        arm64_index: ``pypi`` where PyPI's own arm64 wheel is this build.
        triton: Specifier of the pinned triton.
        pins: ``Requires-Dist`` of the linux/amd64 wheel on CUDA packages, name → specifier; absent = unknown.
        is_cuda_bundled: CUDA libraries are inside the torch wheel itself.
    """

    torch: str
    variant: str
    cuda: str
    index: str
    is_listed: bool | None = None
    pythons: tuple[str, ...]
    pythons_with_companions: tuple[str, ...] = ()
    platform_tag: str | None = None
    glibc: str | None = None
    cxx11_abi: int | None = None
    triton: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    sm: tuple[str, ...] | None = None
    ptx: tuple[str, ...] = ()
    is_arm64_published: bool | None = None
    arm64_index: str | None = None
    sm_arm64: tuple[str, ...] | None = None
    is_cuda_bundled: bool | None = None
    pins: dict[str, str] | None = None
    toolkit_pins: dict[str, str] | None = None


@record
class UnknownBuild(Fact):
    """A torch build nobody could confirm or rule out (``frameworks/torch.toml``, ``[[unknown_build]]``)."""

    torch: str
    variant: str
    cuda: str


@record
class TensorflowRelease(Fact):
    """One TensorFlow release (``frameworks/tensorflow.toml``, ``[[release]]``).

    ``pins`` are the CUDA packages of the ``and-cuda`` extra; absent where the extra does not exist.
    """

    version: str
    released: str
    requires_python: str | None = None
    pythons: tuple[str, ...]
    is_pythons_complete: bool
    platform_tag: str | None = None
    glibc: str | None = None
    cuda: str
    cudnn_major: str
    sm: tuple[str, ...]
    ptx: tuple[str, ...] = ()
    has_cuda_extra: bool
    is_arm64_cuda: bool | None = None
    pins: dict[str, str] | None = None
    numpy: str | None = None
    needs_library_path: bool | None = None


@record
class JaxRelease(Fact):
    """One JAX release with one CUDA plugin (``frameworks/jax.toml``, ``[[release]]``).

    Attributes:
        variant: ``cuda11``, ``cuda12`` or ``cuda13``; a JAX version has a row for each it supports.
        extra: The extra of ``jax`` that installs it (``cuda12``), absent where none works.
        delivery: ``plugin`` (jax-cudaNN-plugin on PyPI) or ``legacy`` (jaxlib wheels on Google's index).
        pins: CUDA packages the plugin or the extra requires, name → specifier.
        cuda_floor: Lowest CUDA the pins admit.
        sm: Cubins of the plugin's wheel for x86-64 (``sm_90``); where both were read, the wheel for arm64 has the same.
        ptx: Its PTX (``compute_90``).
    """

    version: str
    variant: str
    released: str
    requires_python: str
    extra: str | None = None
    delivery: str
    jaxlib: str | None = None
    plugin: str | None = None
    pythons: tuple[str, ...]
    is_pythons_complete: bool
    platform_tag: str | None = None
    cuda_floor: str
    cudnn: str | None = None
    minimum_driver: str | None = None
    sm_min: int | None = None
    sm: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    is_arm64_published: bool | None = None
    pins: dict[str, str] | None = None
    legacy_builds: tuple[str, ...] = ()


@record
class CompanionPackage(Fact):
    """A package built against a framework (``companions.toml``, ``[[release]]``).

    Such as vllm, xformers, flash-attn, onnxruntime-gpu, triton. ``requires`` maps a distribution to a specifier.
    ``paired_torch`` is the PyTorch that its publisher names for it where its metadata leaves that open. ``links`` are
    the libraries that its compiled files need, of ``torch`` and ``cudart.12``, or ``nothing``. A release without
    ``platform_tags`` has no wheel. ``sm`` are the targets of all compiled code for GPUs in its wheel for x86-64:
    cubins (``sm_90``) and PTX (``compute_90``); ``sm_aarch64`` are those of the wheel for that machine.
    ``without_code`` are machines (``x86_64``) whose wheel was read to its end and has no such code. What is there
    ``is_code_optional`` where the package goes on without, on a GPU that it does not serve.
    """

    package: str
    version: str
    released: str | None = None
    requires_python: str | None = None
    requires: Mapping[str, str] = NOTHING
    paired_torch: str | None = None
    built_with: str | None = None
    cuda: str | None = None
    links: tuple[str, ...] = ()
    sm: tuple[str, ...] = ()
    sm_aarch64: tuple[str, ...] = ()
    without_code: tuple[str, ...] = ()
    is_code_optional: bool = False
    extra_pins: Mapping[str, str] = NOTHING
    pythons: tuple[str, ...] = ()
    platform_tags: tuple[str, ...] = ()


@record
class HiddenConstraint(Fact):
    """A need that metadata does not declare (``constraints.toml``, ``[[constraint]]``).

    When ``package`` in ``versions`` is in the stack (and, if given, Python lies in ``pythons`` and the variant is
    one of ``variants``), ``requires`` must hold. ``kind`` is ``bound`` (if the package is there, it must match) or
    ``add`` (the package is added). Where the user's own lines name what is bound, ``tolerates`` stands in its place:
    what works too, though no stack is given it.
    """

    id: str
    package: str
    versions: str
    variants: tuple[str, ...] = ()
    pythons: str | None = None
    kind: str
    requires: dict[str, str]
    tolerates: Mapping[str, str] = NOTHING
    symptom: str


@record
class Exclusion(Fact):
    """A pair known to fail together (``exceptions.toml``, ``[[exclusion]]``).

    ``left`` and ``right`` are requirement texts (``torch>=2.11``, ``tensorflow<=2.21``, ``cuda==13.0``,
    ``gpu-architecture==Volta``, ``gpu-capability>=10,<13``). Where it ``is_partial``, the rest of the stack works and
    a warning says what does not. Where it ``is_open``, no report decides whether the pair works: it is refused as
    unknown. ``until`` names what lifts it.
    """

    id: str
    left: str
    right: str
    is_partial: bool | None = None
    is_open: bool | None = None
    symptom: str
    until: str | None = None


@record
class Extra(Fact):
    """Something ``--with`` adds to an image (``extras.toml``, ``[[extra]]``).

    ``requires`` are pip requirements and ``conflicts`` requirement texts that must not be in the stack.
    ``needs_compiler`` and ``needs_nvcc`` demand the flavor ``jit`` or ``devel``; what needs nvcc is the package called
    as ``id``, which is compiled, and with ``runs_nvcc`` needs nvcc wherever it runs. ``port`` and ``command`` become
    EXPOSE and CMD. ``frameworks`` limits it to stacks with one of them. ``compiles`` names what is compiled where that
    is not the package called as ``id``. ``refused`` says why it cannot be added at all; it then requires nothing, and
    ``successor`` is the extra that goes on where it ended.
    ``names`` are what else people ask for and mean this. ``by_cuda`` is what one asks for to have this or another
    row with the same name, whichever is for the CUDA of the stack. What ``is_fetched`` has no files of its own on
    the package index: its build fetches them from NVIDIA's. ``build_env`` are variables that its build needs: without
    them some compile no code for a GPU where none is at hand, or take a wheel that no lock has seen. ``build_archs``
    are those that say for which GPUs, beside the one that PyTorch reads: all that the build knows as it writes them
    (``80;90``), or the separator alone where it takes any. What names ``system_cudnn`` opens CUDA and that major of
    cuDNN where the system keeps them, not where the wheels of a framework do: an nvidia/cuda image brings them.
    """

    id: str
    title: str
    by_cuda: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    compiles: tuple[str, ...] = ()
    refused: str | None = None
    successor: str | None = None
    needs_compiler: bool = False
    needs_nvcc: bool = False
    runs_nvcc: bool = False
    is_fetched: bool = False
    apt: tuple[str, ...] = ()
    build_env: Mapping[str, str] = NOTHING
    build_archs: Mapping[str, str] = NOTHING
    system_cudnn: str | None = None
    port: int | None = None
    command: tuple[str, ...] = ()


@record
class PrebuiltWheels(Fact):
    """Wheels that a project publishes beside the package index (``prebuilt.toml``, ``[[release]]``).

    ``address`` has the words ``{version}``, ``{cuda}``, ``{torch}``, ``{digits}`` (torch without its dot), ``{abi}``,
    ``{python}`` and ``{machine}``. ``pythons`` maps a minor of torch to Pythons (``3.9 3.10``), and ``builds`` to its
    builds (``cu118 cu121``); where one wheel serves all of a major, ``cuda`` maps that to its word, and ``builds``
    names the words of a torch that does not have all of them. ``cxx11_abi`` lists the flags of the C++ ABI; empty where
    any will do. A torch without Pythons has wheels that were built against a build of it before its release: they are
    not taken. ``sha256`` maps the names of files to their hashes, also of files that were added to the release later.
    """

    package: str
    version: str
    address: str
    cuda: Mapping[str, str] = NOTHING
    builds: Mapping[str, str] = NOTHING
    pythons: dict[str, str]
    cxx11_abi: tuple[int, ...] = ()
    machines: tuple[str, ...]
    sha256: Mapping[str, str] = NOTHING


@record
class SystemLibrary(Fact):
    """A library or program of the system (``system_libraries.toml``, ``[[library]]``).

    ``id`` is the name that files ask for it by (``libGL.so.1``), or the program's. ``packages`` maps a system to the
    apt packages that bring it.
    """

    id: str
    packages: dict[str, str]


@record
class SystemNeed(Fact):
    """What a distribution needs of the system that its wheel does not bring (``system_libraries.toml``, ``[[need]]``).

    ``id`` is the distribution and ``version`` the release that was looked at. ``libraries`` are ids of system
    libraries. One that ``is_source`` has no Linux wheel and needs them to be built too.
    """

    id: str
    version: str
    libraries: tuple[str, ...]
    is_source: bool = False


@record
class Knowledge(Fact):
    """A symptom and the rule behind it, for people (``knowledge.toml``, ``[[item]]``)."""

    id: str
    topic: str
    symptom: str | None = None
    text: str
    dated: str | None = None


@record
class Check(Fact):
    """One question ``provision verify`` asks (``checks.toml``, ``[[check]]``).

    ``level`` is ``quick`` (reads only), ``standard`` (makes the GPUs work for seconds) or ``deep`` (minutes).
    ``severity`` is ``critical``, ``high``, ``medium`` or ``low``. ``scope`` is ``host``, or ``fleet`` for what can only
    be judged by comparing hosts. ``remedy`` says what to do about a failure; ``runbook`` is a page and anchor below the
    repository's root. ``needs`` names what must be there for the question to make sense, a function each of
    ``provision.signals.needs``. ``probes`` lists what the check reads.
    """

    id: str
    level: str
    severity: str
    scope: str
    title: str
    remedy: str
    runbook: str
    needs: tuple[str, ...] = ()
    probes: tuple[str, ...]


@record
class Limit(Fact):
    """A threshold that checks judge by (``checks.toml``, ``[[limit]]``); ``unit`` as in ``GB/s``, ``C``, ``pages``."""

    id: str
    value: float
    unit: str


@record
class ScalingGap(Fact):
    """What an engine that scales a fleet cannot be told (``scaling.toml``, ``[[gap]]``); ``says`` is for people."""

    id: str
    engine: str
    says: str


@record
class PerformanceFloor(Fact):
    """What a healthy GPU reaches (``performance.toml``, ``[[floor]]``).

    ``measure`` is ``allreduce`` (bus bandwidth inside a node), ``h2d``, ``d2h``, ``p2p`` or ``gemm-bf16``. ``gpu`` is a
    name that :func:`provision.matrix.query.find_gpus` knows, absent where the row holds for any; ``topology`` is
    ``nvlink``, ``pcie``, or ``pcie-gen3`` to ``pcie-gen6`` for a link of sixteen lanes; absent, it does not matter.
    ``gpus`` is how many GPUs took part in the measurement; absent, the row holds for any number.

    A smaller message or product is slower on a sound machine too: ``message_bytes_min`` is the smallest message of a
    collective and ``edge_min`` the smallest edge of a square product that the row holds from; absent, it holds for any.
    """

    id: str
    measure: str
    gpu: str | None = None
    gpus: int | None = None
    topology: str | None = None
    message_bytes_min: int | None = None
    edge_min: int | None = None
    floor: float
    unit: str


@record
class NvlinkLayout(Fact):
    """The NVLinks of a GPU (``performance.toml``, ``[[nvlink]]``): how many, GB/s each in one direction."""

    gpu: str
    links: int
    gb_s_per_link: float


@record
class Xid(Fact):
    """One Xid of the NVIDIA driver (``xid.toml``, ``[[xid]]``).

    ``severity`` is ``fatal`` (the GPU is unusable until the action is done), ``warning``, ``application`` (most often
    the program's own fault) or ``information``. ``action`` and ``investigate`` are the vendor's words for what to do at
    once and afterwards (``RESET_GPU``, ``CONTACT_SUPPORT``); ``meaning`` and ``advice`` are for people.
    """

    code: int
    mnemonic: str | None = None
    meaning: str
    severity: str
    action: str | None = None
    investigate: str | None = None
    advice: str | None = None


@record
class Diagnosis(Fact):
    """One cause that ``provision doctor`` can name (``diagnoses.toml``, ``[[diagnosis]]``).

    ``layer`` is ``hardware``, ``driver``, ``library``, ``container``, ``framework`` or ``network``. ``fix`` lists the
    steps in order, one sentence each, commands in backticks. ``undo`` maps the commands that may be run with consent,
    because they can be taken back, to what takes them back. ``looks`` lists those that change nothing and need not be
    run again once the diagnosis stands. ``explains`` names diagnoses that are symptoms of this one. ``signals`` names
    the checks whose faults it is the cause of, ``CHECK/KIND`` where it is the cause of one kind of fault only.

    ``message_kind`` says what its messages are: the ``root``, a ``symptom``, which some other cause ends in more often,
    or ``generic``, one error for several causes. ``fits`` names those causes of a generic one.

    A row with ``patterns`` has no module: it is told by its ``signals``, and where they are not known by its messages.
    Each pattern is a regular expression for one line, whose named groups fill the places ``{name}`` in the steps.
    ``unseen`` says what would settle it, and ``message_confidence`` how sure a message alone is where that is not
    ``medium``. ``needs`` lists expressions that some line must
    match as well, ``examples`` texts that the row explains, ``expected`` what stands there instead on a sound machine.
    A row that ``is_pasted`` counts in texts that a person gave, not in what a probe came upon by trying.
    """

    id: str
    layer: str
    severity: str
    title: str
    cause: str
    fix: tuple[str, ...]
    undo: Mapping[str, str] = NOTHING
    looks: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    message_kind: str = "root"
    fits: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    message_confidence: str = ""
    patterns: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    expected: str = ""
    is_pasted: bool = False
    runbook: str

    @property
    def is_last_resort(self) -> bool:
        """Whether its messages only tell that something failed: a generic row of low confidence."""
        return self.message_kind == "generic" and self.message_confidence == "low"


@record
class Soname(Fact):
    """Which wheels bring a library of CUDA (``diagnoses.toml``, ``[[soname]]``).

    ``id`` is its name with the first number of its interface (``libcudart.so.12``), ``wheels`` the requirements, the
    commonest first.
    """

    id: str
    wheels: tuple[str, ...]


@record
class ApiError(Fact):
    """One status of CUDA or of one of its libraries, and its cause most often (``diagnoses.toml``, ``[[api_error]]``).

    ``id`` is the library and the number, ``names`` are what the library and its wrappers call it, ``says`` is its own
    sentence, and ``diagnosis`` what a text without any other message is answered by.
    """

    id: str
    library: str
    number: int
    names: tuple[str, ...]
    says: str = ""
    diagnosis: str


@record
class Claim(Fact):
    """What lines of errors say of things, for texts that no diagnosis knows (``diagnoses.toml``, ``[[claim]]``).

    ``says`` is a regular expression for what is said (that it is missing), empty where the subject alone is enough.
    ``of`` maps a diagnosis to the expression of the subject of which that is said; ``example`` is a line of one. What
    ``is_told`` is how people tell of a failure, in a line that need not read like an error.
    """

    id: str
    says: str
    of: Mapping[str, str]
    example: str
    is_told: bool = False


@record
class ModulePackage(Fact):
    """What pip calls a module that a program imports under another name (``diagnoses.toml``, ``[[module]]``).

    ``id`` is the module (``flash_attn``), ``package`` what stands behind ``pip install``, its options with it.
    """

    id: str
    package: str


@record
class AuditRule(Fact):
    """One thing ``provision check`` looks for (``audit_rules.toml``, ``[[rule]]``).

    ``module`` in ``provision.audit.rules`` finds it, and is named after what it finds. ``severity`` is ``error`` (it
    will not work), ``warn`` (it may not, or not tomorrow) or ``info``. ``title`` says what is wrong, ``why`` why that
    matters, ``remedy`` what to do about it where the finding itself names nothing better.
    """

    id: str
    module: str
    severity: str
    title: str
    why: str
    remedy: str


@record
class NodeSystem(Fact):
    """What a host of one system installs around the driver (``node_packages.toml``, ``[[system]]``).

    ``manager`` is ``apt`` or ``dnf``. ``components`` are the parts of the system's own archive that hold the packages.
    ``headers`` and ``image`` are the kernel's metapackages, ``headers_pattern`` names the headers of one kernel
    (``{kernel}``), ``build`` what compiling a module takes, which ``build_repository`` has where the system's own
    archive has no DKMS; ``build_key`` is that repository's key and ``build_key_fingerprint`` what it must be.
    ``python`` lists what makes a virtual environment, ``rdma`` the system's own RDMA stack, ``firewall`` and ``audit``
    what rules of access are kept with.
    """

    id: str
    manager: str = "apt"
    components: tuple[str, ...] = ()
    headers: str
    headers_pattern: str
    image: str
    build: tuple[str, ...]
    build_repository: str | None = None
    build_key: str | None = None
    build_key_fingerprint: str | None = None
    python: tuple[str, ...]
    rdma: tuple[str, ...] = ()
    firewall: tuple[str, ...] = ()
    audit: tuple[str, ...] = ()


@record
class DriverPackages(Fact):
    """The packages of one driver branch on one system, by one way to get them (``node_packages.toml``, ``[[driver]]``).

    Attributes:
        method: ``distro`` (the system's own archive), ``cuda_repo`` (NVIDIA's repository) or ``precompiled`` (modules
            that the system built and signed).
        versions: Driver version → version of the user-space packages.
        proprietary: Driver version → version of that flavour's module packages. A version that is missing has none.
        open: The same of the open flavour.
        compute: User space of a host that computes.
        full: User space of a host with a display too.
        proprietary_packages: What the flavour adds.
        proprietary_dkms: Package with the module's sources; absent for modules that come compiled.
        proprietary_name: Name of the module in DKMS.
        proprietary_module: File name of the module, without its ending.
        proprietary_stream: Stream of dnf's module ``nvidia-driver`` that has the flavour.
        kernel_packages: Those among them that follow the kernel, and have its version.
        pins: What apt must hold at the version of the user space, ``src:NAME`` or a name.
        open_pins: What it must hold at the version of the open flavour beyond that.
        companions: Driver version → packages with versions of their own.
        fabric: Packages for hosts with NVSwitches.
        imex: Packages for hosts whose NVLink leaves the host.
        fabric_versions: Driver version → version of both, where it differs from the user space.
        fabric_source: ``cuda_repo`` where they come from NVIDIA's repository although the driver does not.
        services: Units that the packages bring and a node enables.
    """

    id: str
    os: str
    method: str
    branch: int
    versions: dict[str, str]
    proprietary: Mapping[str, str] = NOTHING
    open: Mapping[str, str] = NOTHING
    compute: tuple[str, ...]
    full: tuple[str, ...]
    proprietary_packages: tuple[str, ...] = ()
    proprietary_dkms: str | None = None
    proprietary_name: str | None = None
    proprietary_module: str | None = None
    proprietary_stream: str | None = None
    open_packages: tuple[str, ...] = ()
    open_dkms: str | None = None
    open_name: str | None = None
    open_module: str | None = None
    open_stream: str | None = None
    kernel_packages: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    open_pins: tuple[str, ...] = ()
    companions: Mapping[str, Mapping[str, str]] = NOTHING
    fabric: tuple[str, ...] = ()
    imex: tuple[str, ...] = ()
    fabric_versions: Mapping[str, str] = NOTHING
    fabric_source: str | None = None
    services: tuple[str, ...] = ()


@record
class KnownBadModule(Fact):
    """A driver whose module does not build on some kernels (``node_packages.toml``, ``[[known_bad]]``).

    ``kernel_first`` and ``kernel_last`` bound the kernels, both included; absent means no bound on that side.
    ``reference`` names the report (``owner/repo#n``).
    """

    id: str
    driver: str
    flavour: str
    kernel_first: str | None = None
    kernel_last: str | None = None
    symptom: str
    reference: str | None = None


@record
class PciRange(Fact):
    """PCI device numbers of one GPU architecture (``gpus.toml``, ``[[pci_range]]``), hexadecimal, both included."""

    first: str
    last: str
    architecture: str


@record
class ModelShape(Fact):
    """One published transformer (``models.toml``, ``[[model]]``).

    ``parameters`` is the exact count and ``active_parameters`` what one token passes through, which differs only
    with experts. ``head_size`` is per head; ``ffn`` is the width of one feed-forward network, of one expert where
    there are ``experts``. ``is_gated`` means three matrices in it instead of two, ``is_tied`` one matrix for both
    ends of the vocabulary. ``context`` is the longest sequence it was made for.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    parameters: int
    active_parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    experts: int | None = None
    experts_active: int | None = None
    is_gated: bool
    is_tied: bool
    context: int | None = None


@record
class Utilisation(Fact):
    """How much of a GPU's peak real runs reach (``planning.toml``, ``[[utilisation]]``).

    ``work`` is ``train`` and ``prefill`` (of the tensor peak) or ``decode`` (of the memory bandwidth). ``gpu`` is a
    GPU of ``gpus.toml``; without one the row speaks for all others. Shares of 1: a tenth of the runs lies below
    ``low``, a tenth above ``high``.
    """

    id: str
    work: str
    gpu: str | None = None
    precision: str | None = None
    low: float
    median: float
    high: float
    runs: int


@record
class MigProfile(Fact):
    """One way to cut a GPU into instances (``planning.toml``, ``[[mig_profile]]``); memory in GB of its name."""

    id: str
    gpus: tuple[str, ...]
    profile: str
    slices: int
    of_slices: int
    memory_gb: float
    instances_max: int


@record
class CloudProvider(Fact):
    """Who rents out instances (``cloud/providers.toml``, ``[[provider]]``).

    ``currency`` is what its prices are in. Storage per GB and month, egress per GB, both in US dollars and of
    ``prices_date``; absent means unknown. ``spot_notice_seconds`` is the warning before a spot instance is taken.
    ``skypilot``, ``dstack`` and ``terraform`` are its names there, absent where the tool does not know it.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    currency: str
    has_spot: bool | None = None
    spot_notice_seconds: int | None = None
    storage_usd_gb_month: float | None = None
    egress_usd_gb: float | None = None
    prices_date: str | None = None
    skypilot: str | None = None
    dstack: str | None = None
    terraform: str | None = None


@record
class CloudInstance(Fact):
    """One instance type in one region with its prices an hour (``cloud/instances.toml``, ``[[instance]]``).

    ``gpu`` is an id of ``gpus.toml``; ``gpu_share`` is the part of one such GPU where the instance gets less than a
    whole one, and ``gpu_memory_gb`` what each GPU or part has. ``interconnect`` between its GPUs is ``none``, ``pcie``,
    ``nvlink`` (pairs or a mesh) or ``nvswitch``; ``fabric`` to other instances is ``infiniband``, ``efa`` or absent.
    Prices are in ``currency``; each goes with the date it was valid on, a day, a month or a year as far as that is
    known. A price that is absent is unknown, never nothing. ``interruptions`` is the share of spot instances taken
    back in a month, as its publisher gives it (``5-10%``, ``>20%``).
    """

    provider: str
    type: str
    region: str
    gpu: str
    gpu_count: int
    gpu_share: float | None = None
    gpu_memory_gb: float
    vcpu: int | None = None
    memory_gb: float | None = None
    interconnect: str
    fabric: str | None = None
    network_gbit_s: float | None = None
    currency: str
    on_demand: float | None = None
    on_demand_date: str | None = None
    spot: float | None = None
    spot_date: str | None = None
    reserved_1y: float | None = None
    reserved_3y: float | None = None
    reserved_date: str | None = None
    interruptions: str | None = None


@record
class RecordingRule(Fact):
    """A series that Prometheus computes from what exporters say (``alerts.toml``, ``[[recording]]``).

    ``name`` follows Prometheus' convention ``level:metric:operation``. ``expression`` is PromQL in which ``limit(ID)``
    stands for a threshold of this file or of ``checks.toml`` and ``xids(SEVERITY)`` for the codes of that severity.
    """

    name: str
    title: str
    expression: str


@record
class Alert(Fact):
    """A state that someone is told of (``alerts.toml``, ``[[alert]]``).

    Attributes:
        id: In kebab case; Prometheus knows it in camel case.
        group: Rules of one group are evaluated together.
        expression: As in :class:`RecordingRule`.
        pending_seconds: How long it must hold before anyone is told; absent, at once.
        kept_seconds: How long it goes on being told after it holds no more.
        severity: ``critical`` (work is lost), ``warning`` (look at it today), ``info`` or ``none``.
        action: What a machine may do about it: ``release``.
        summary: One line, a Go template over the labels; ``limit(ID)`` as in the expression.
        runbook: Ids of the check and of the diagnoses whose remedies are its text, the likeliest first.
        remedy: The text of an alert that no check and no diagnosis knows.
    """

    id: str
    group: str
    expression: str
    pending_seconds: int | None = None
    kept_seconds: int | None = None
    severity: str
    action: str | None = None
    summary: str
    runbook: tuple[str, ...] = ()
    remedy: str | None = None


@record
class Inhibition(Fact):
    """Alerts that say nothing new while others fire (``alerts.toml``, ``[[inhibition]]``).

    While one of ``sources`` fires, ``targets`` whose labels ``equal`` are the same are not sent.
    """

    id: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    equal: tuple[str, ...]


@record
class Notifier(Fact):
    """A service that Alertmanager tells in a form of its own (``alerts.toml``, ``[[notifier]]``).

    ``config`` is the list of a receiver that names it, and ``field`` the key in it for where to, which is an address if
    ``is_address`` and else a key; with ``_file`` behind it the field names a file. ``hosts`` are ends of the hosts of
    its addresses. ``since`` is the first release of Alertmanager that knows it so, ``None`` where all in use do.
    """

    id: str
    title: str
    config: str
    field: str
    is_address: bool
    hosts: tuple[str, ...]
    since: str | None = None


@record
class Counter(Fact):
    """A field that dcgm-exporter is told to collect (``alerts.toml``, ``[[counter]]``).

    ``kind`` is ``gauge``, ``counter``, or ``label`` for what is put on the other series of a GPU. ``title`` has no
    comma: the exporter refuses a line of more than three parts.
    """

    name: str
    kind: str
    title: str


@record
class Panel(Fact):
    """One picture of a dashboard (``dashboards.toml``, ``[[panel]]``).

    Attributes:
        id: ``DASHBOARD.NAME``.
        dashboard: ``fleet``, ``node``, ``job`` or ``health``.
        order: Place on the dashboard.
        title: What it shows.
        kind: ``timeseries``, ``stat`` or ``table``.
        unit: As Grafana names units: ``celsius``, ``percent``, ``percentunit``, ``watt``, ``short``.
        expression: As in :class:`RecordingRule`; ``$node`` is the chosen nodes on all dashboards but ``fleet``.
        legend: Labels that name a line, ``{{node}}``.
        warn: Value from which it is coloured as a warning; an id of a limit.
    """

    id: str
    dashboard: str
    order: int
    title: str
    kind: str
    unit: str
    expression: str
    legend: str | None = None
    warn: str | None = None


@record
class ClusterComponent(Fact):
    """Something that a Kubernetes cluster runs for GPUs (``cluster.toml``, ``[[component]]``).

    ``chart`` is its Helm chart, ``image`` a whole image reference, ``api`` group and version of its custom resources;
    each only where the component has one.
    """

    id: str
    version: str
    chart: str | None = None
    image: str | None = None
    api: str | None = None


@record
class DriverImage(Fact):
    """A driver that NVIDIA publishes as a container image (``cluster.toml``, ``[[driver_image]]``).

    ``systems`` are those of nodes that it is built for.
    """

    branch: int
    version: str
    systems: tuple[str, ...]


@record
class ClusterProduct(Fact):
    """What the label of a node says of its GPUs (``cluster.toml``, ``[[product]]``).

    ``gpu`` is of ``gpus.toml``; one model may be sold under several names, each with a label of its own.
    """

    gpu: str
    labels: tuple[str, ...]


@record
class Shape:
    """Which keys a document has that core Kubernetes does not define (``shapes/*.json``).

    Attributes:
        name: Kind of a custom resource; ``gpu-operator`` (Helm values), ``device-plugin`` or ``mig-parted``.
        api: Group and version of a custom resource.
        is_namespaced: Whether a custom resource lies in a namespace.
        component: What defines it, an id of ``[[component]]``; ``version``, the release that was read.
        source: As in every fact; likewise ``where``.
        fields: Keys to what stands there: ``string``, ``integer``, ``number``, ``boolean``, ``integer or string``,
            ``any``, the name of a core type, a list of all values, or keys again. ``!`` behind a key says that it is
            required, ``*`` stands for any key, and ``[]`` for the items of a list.
    """

    name: str
    api: str | None = None
    is_namespaced: bool = True
    component: str
    version: str
    source: tuple[str, ...]
    where: str
    fields: Mapping[str, Any]


@record
class SpotNotice(Fact):
    """How a provider tells a spot instance that it is taken back (``spot.toml``, ``[[notice]]``).

    Attributes:
        provider: Of ``cloud/providers.toml``.
        kind: ``interruption``, or ``advice`` that one has become likely.
        form: How the answer reads: ``action`` and ``advice`` are JSON objects with a time, ``moment`` is a time alone,
            ``flag`` a word for yes or no, ``events`` a JSON list of events with those they concern.
        host: Of the metadata service, as seen from the instance; it knows no TLS.
        path: What is asked for.
        headers: Sent with every request.
        token_path: Where a token for the requests is put out; absent where none is needed.
        token_header: The header that carries it.
        token_seconds_header: The header that asks for how long it is to be valid.
        token_seconds: For how long one may be asked for.
        name_path: Where the instance's own name is, which ``events`` name.
        wait_query: Added to have the answer wait for a change, with ``{seconds}`` and ``{etag}`` filled in.
        utc_offset_hours: Of times that name no zone.
        warning_seconds: Between notice and interruption, at most for ``action``, ``moment`` and ``flag`` and at least
            for ``events``; absent where its publisher names none.
        poll_seconds: How often to ask.
    """

    id: str
    provider: str
    kind: str
    form: str
    host: str
    path: str
    headers: Mapping[str, str] = NOTHING
    token_path: str | None = None
    token_header: str | None = None
    token_seconds_header: str | None = None
    token_seconds: int | None = None
    name_path: str | None = None
    wait_query: str | None = None
    utc_offset_hours: int | None = None
    warning_seconds: int | None = None
    poll_seconds: int


@record
class Tuning(Fact):
    """A setting that helps somewhere (``tuning.toml``, ``[[tuning]]``).

    Attributes:
        kind: What it is a setting of: ``nccl`` and ``env`` are variables, ``argument`` one of a program, ``limit`` of
            PAM, ``logind`` of systemd, ``sysctl`` of the kernel, ``mount`` of a file system, ``affinity`` of a process.
        value: May hold ``{rdma_devices}``, ``{affinity}`` and others that are read from the machine.
        library: Whose version decides; absent where none does.
        versions: Of the library.
        when: What must be true of the machine and the job, all of it.
        is_default: Safe without a measurement.
    """

    id: str
    kind: str
    name: str
    value: str
    library: str | None = None
    versions: str | None = None
    when: tuple[str, ...] = ()
    is_default: bool
    reason: str


@record
class FolkSetting(Fact):
    """A setting that is passed on and that its vendor refutes (``tuning.toml``, ``[[folk]]``).

    Attributes:
        names: The variables or commands.
        values: Which values; without, any. ``*`` at the end stands for any rest.
        library: Whose version decides, with ``versions``; absent where none does.
        when: As in :class:`Tuning`.
        verdict: ``wrong``, ``harmful``, ``redundant``, ``deprecated``, ``debug`` or ``last-resort``.
        claim: What is said.
        truth: What holds.
        instead: What to do.
    """

    id: str
    names: tuple[str, ...]
    values: tuple[str, ...] = ()
    library: str | None = None
    versions: str | None = None
    when: tuple[str, ...] = ()
    verdict: str
    claim: str
    truth: str
    instead: str


@record
class Setting(Fact):
    """A single value with a name: a repository address, a key, a package list (any file, ``[[setting]]``).

    Exactly one of ``value``, ``values`` and ``entries`` is given.
    """

    id: str
    value: str | None = None
    values: tuple[str, ...] = ()
    entries: Mapping[str, str] = NOTHING


@record
class Wheel:
    """One wheel file, or the source distribution of a release that has no Linux wheel.

    Sizes in bytes; ``installed`` is absent for sources. ``url`` only where the index is not PyPI; ``sha256`` absent =
    unverified.
    """

    file: str
    sha256: str | None = None
    size: int | None = None
    installed: int | None = None
    url: str | None = None
    uploaded: str | None = None


@record
class WheelRelease:
    """One version of a distribution in ``wheels/<name>.json``.

    ``requires`` lists ``[name, specifier, marker, extra]`` for Linux; ``marker`` is what is left of the PEP 508
    marker after the platform was decided (``python_version < "3.11"``, ``platform_machine == "x86_64"``).
    """

    version: str
    index: str
    requires_python: str | None = None
    requires: tuple[tuple[str, str, str, str], ...] = ()
    wheels: tuple[Wheel, ...] = ()
    yanked: bool = False


ARRAY_OF: dict[str, dict[str, type]] = {
    "sources.toml": {"source": Source},
    "cuda.toml": {"release": CudaRelease, "setting": Setting},
    "drivers.toml": {
        "branch": DriverBranch,
        "security_floor": SecurityFloor,
        "distro_driver": DistroDriver,
        "setting": Setting,
    },
    "gpus.toml": {"gpu": Gpu, "pci_range": PciRange, "setting": Setting},
    "cudnn.toml": {"release": Cudnn, "setting": Setting},
    "nccl.toml": {"pairing": Nccl, "setting": Setting},
    "os.toml": {"os": OsRelease, "setting": Setting},
    "node_packages.toml": {
        "system": NodeSystem,
        "driver": DriverPackages,
        "known_bad": KnownBadModule,
        "setting": Setting,
    },
    "python.toml": {"python": PythonRelease},
    "ngc.toml": {"release": NgcRelease},
    "images.toml": {"python_image": PythonImage, "cuda_image": CudaImage, "setting": Setting},
    "container_toolkit.toml": {"release": ContainerToolkit, "setting": Setting},
    "frameworks/torch.toml": {
        "release": TorchRelease,
        "build": TorchBuild,
        "unknown_build": UnknownBuild,
        "setting": Setting,
    },
    "frameworks/tensorflow.toml": {"release": TensorflowRelease, "setting": Setting},
    "frameworks/jax.toml": {"release": JaxRelease, "setting": Setting},
    "companions.toml": {"release": CompanionPackage},
    "constraints.toml": {"constraint": HiddenConstraint, "setting": Setting},
    "exceptions.toml": {"exclusion": Exclusion},
    "extras.toml": {"extra": Extra},
    "prebuilt.toml": {"release": PrebuiltWheels},
    "system_libraries.toml": {"library": SystemLibrary, "need": SystemNeed},
    "knowledge.toml": {"item": Knowledge},
    "checks.toml": {"check": Check, "limit": Limit},
    "diagnoses.toml": {
        "diagnosis": Diagnosis,
        "api_error": ApiError,
        "claim": Claim,
        "module": ModulePackage,
        "soname": Soname,
    },
    "performance.toml": {"floor": PerformanceFloor, "nvlink": NvlinkLayout},
    "xid.toml": {"xid": Xid, "setting": Setting},
    "alerts.toml": {
        "recording": RecordingRule,
        "alert": Alert,
        "inhibition": Inhibition,
        "counter": Counter,
        "limit": Limit,
        "notifier": Notifier,
    },
    "dashboards.toml": {"panel": Panel},
    "cluster.toml": {
        "component": ClusterComponent,
        "driver_image": DriverImage,
        "product": ClusterProduct,
        "setting": Setting,
    },
    "spot.toml": {"notice": SpotNotice},
    "tuning.toml": {"tuning": Tuning, "folk": FolkSetting},
    "refresh.toml": {"setting": Setting},
    "audit_rules.toml": {"rule": AuditRule, "setting": Setting},
    "models.toml": {"model": ModelShape},
    "scaling.toml": {"gap": ScalingGap, "limit": Limit, "setting": Setting},
    "planning.toml": {
        "limit": Limit,
        "utilisation": Utilisation,
        "mig_profile": MigProfile,
        "setting": Setting,
    },
    "cloud/providers.toml": {"provider": CloudProvider},
    "cloud/instances.toml": {"instance": CloudInstance},
}
"""Every TOML file of ``compat/``: array of tables → class of its rows, in file order."""
