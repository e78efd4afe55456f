"""What surrounds the driver on one system: fabric, CUDA, cuDNN, NCCL, container toolkit, DCGM, their repositories."""

from __future__ import annotations

import re

from provision.errors import DataError
from provision.matrix.model import CudaRelease, Cudnn, DriverPackages, NodeSystem, OsRelease
from provision.matrix.query import cuda_releases
from provision.resolve.node_job import ARCHITECTURE, PACKAGES_FILE, Job, No, RefusedError, name_packages
from provision.resolve.node_options import AUTOMATIC_INCLUDES
from provision.resolve.options import fact_of
from provision.resolve.stack import NodeGroup, NodeKey, NodePin, NodeRepository, NodeToolkit
from provision.versions import minor_of, parse, spec_of


class Parts:
    """What surrounds the driver on one system, part by part.

    Args:
        job: What is decided from.
        os_row: The system.
        system: What a host of it installs.
        row: Where its driver comes from.
        version: Which driver that is.

    Raises:
        RefusedError: A CUDA toolkit that was asked for cannot be had.

    Attributes:
        toolkits: The CUDA toolkits, lowest first.
        default_toolkit: The one on the path.
    """

    def __init__(self, job: Job, os_row: OsRelease, system: NodeSystem, row: DriverPackages, version: str) -> None:
        self.job = job
        self.os = os_row
        self.system = system
        self.row = row
        self.version = version
        minors = job.options.toolkits
        own = minor_of(job.stack.cuda)
        if not minors and job.request.cuda is not None and not job.stack.frameworks:
            # CUDA alone was asked for, and on a host that is the toolkit; a framework brings its own.
            minors = (own,)
        self.toolkits = tuple(self._toolkit(minor) for minor in minors)
        self.default_toolkit = (own if own in minors else minors[-1]) if minors else None
        self._cuda = self.default_toolkit or own

    def optional(self, name: str, warnings: list[str]) -> NodeGroup | None:
        """Return a part that was asked for, or that goes without asking; else nothing.

        Args:
            name: One of ``INCLUDES``.
            warnings: Takes why a part that nobody asked for is left out.

        Raises:
            RefusedError: A part that was asked for cannot be had.
        """
        make = {
            "cudnn": self._cudnn,
            "nccl": self._nccl,
            "container-toolkit": self._container_toolkit,
            "dcgm": self._dcgm,
        }[name]
        includes = self.job.options.includes
        if includes is not None:
            return make() if name in includes else None
        if self.row.method != "cuda_repo" or name not in AUTOMATIC_INCLUDES:
            return None
        try:
            return make()
        except RefusedError as refused:
            warnings.append(f"{name} is left out: {refused.no.because}")
            return None

    def fabric(self, package_version: str) -> tuple[NodeGroup | None, NodeGroup | None]:
        """Return the packages of NVSwitches and of multi-node NVLink.

        Where they come from another repository than the driver, they are added only for GPUs that need them, and
        not where none of these parts was asked for.
        """
        job, row = self.job, self.row
        is_foreign = row.fabric_source is not None
        has_need = "fabric" in (job.options.includes or ()) or (
            job.options.includes != () and any(gpu.fabric_manager not in (None, "no") for gpu in job.gpus)
        )
        if not row.fabric and "fabric" in (job.options.includes or ()):
            because = f"the facts know no fabric manager of driver {self.version} for {row.os}"
            raise RefusedError(No(is_proved=False, because=because, flags=("--include", "fabric")))
        if not row.fabric or (is_foreign and not has_need):
            return None, None
        version = row.fabric_versions.get(self.version, package_version)
        settings = job.matrix.settings(PACKAGES_FILE)
        has_cuda_repo = is_foreign or row.method == "cuda_repo"
        fabric = NodeGroup(
            packages=name_packages(row.fabric, version),
            services=settings["fabric_services"].values,
            version=self.version,
            nvlink5_packages=name_packages(settings["nvlink5_packages"].values, None) if has_cuda_repo else (),
        )
        imex = NodeGroup(
            packages=name_packages(row.imex, version), services=settings["imex_services"].values, version=self.version
        )
        return fabric, imex if row.imex else None

    def _toolkit(self, minor: str) -> NodeToolkit:
        job, os_row = self.job, self.os
        release = self._release(minor)
        flags = ("--toolkit", minor)
        fact = fact_of("os", os_row.id, os_row)
        first, last = os_row.first_cuda, os_row.last_cuda
        if first is not None and parse(minor) < parse(minor_of(first)):
            because = f"NVIDIA's repository for {os_row.name} begins with CUDA {first}, so it has no toolkit {minor}"
            raise RefusedError(No(is_proved=True, because=because, facts=(fact,), flags=flags))
        if last is not None and parse(minor) > parse(minor_of(last)):
            because = f"NVIDIA's repository for {os_row.name} ends with CUDA {last}, so it has no toolkit {minor}"
            raise RefusedError(No(is_proved=True, because=because, facts=(fact,), flags=flags))
        if parse(self.version) < parse(release.minimum_driver):
            because = f"CUDA {minor} needs driver {release.minimum_driver} or newer, not {self.version}"
            facts = (fact_of("cuda", release.version, release, "minimum_driver"),)
            raise RefusedError(No(is_proved=True, because=because, facts=facts, flags=flags))
        dashed = minor.replace(".", "-")
        revision = self._text("cuda_revision").replace("{release}", release.version)
        names = job.matrix.setting(PACKAGES_FILE, "cuda_packages").values
        compat = release.forward_compatibility_package
        return NodeToolkit(
            version=minor,
            packages=name_packages((name.replace("{minor}", dashed) for name in names), revision),
            home=self._text("cuda_home").replace("{minor}", minor),
            compat=name_packages((compat,), None) if compat else (),
        )

    def _release(self, minor: str) -> CudaRelease:
        releases = cuda_releases(self.job.matrix, minor)
        if not releases:
            because = f"the facts know no CUDA toolkit {minor}"
            raise RefusedError(No(is_proved=False, because=because, flags=("--toolkit", minor)))
        return releases[0]

    def _of_manager(self, key: str) -> str:
        """Return the key of a setting that differs between kinds of packages."""
        return key if self.system.manager == "apt" else f"{key}_rpm"

    def _text(self, key: str) -> str:
        value = self.job.matrix.setting(PACKAGES_FILE, key).value
        if value is None:
            raise DataError(f"{PACKAGES_FILE}: the setting `{key}` has no value")
        return value

    def _nccl(self) -> NodeGroup:
        """Return NCCL for the CUDA on the path, or for the stack's."""
        cuda = self._cuda
        fitting = [row for row in self.job.matrix.nccl if row.apt and row.apt.endswith(f"+cuda{cuda}")]
        if not fitting:
            because = f"the facts know no package of NCCL for CUDA {cuda}"
            raise RefusedError(No(is_proved=False, because=because, flags=("--include", "nccl")))
        best = max(fitting, key=lambda row: parse(row.nccl))
        version = (best.apt or "").partition("=")[2]
        names = self.job.matrix.setting(PACKAGES_FILE, self._of_manager("nccl_packages")).values
        return NodeGroup(packages=name_packages(names, version), version=best.nccl)

    def _cudnn(self) -> NodeGroup:
        """Return the newest cuDNN with a known package for the CUDA on the path, or for the stack's."""
        cuda = self._cuda
        fitting = [row for row in self.job.matrix.cudnn if _serves_cudnn(row, cuda)]
        if not fitting:
            because = f"the facts know no package of cuDNN for CUDA {cuda}"
            raise RefusedError(No(is_proved=False, because=because, flags=("--include", "cudnn")))
        best = max(fitting, key=lambda row: parse(row.version))
        name, _, version = (best.apt or "").partition("=")
        return NodeGroup(packages=name_packages((name,), version), version=version.partition("-")[0])

    def _container_toolkit(self) -> NodeGroup:
        """Return the four packages of the container toolkit, of the version asked for or of the newest sure one."""
        matrix = self.job.matrix
        wish = self.job.request.container_toolkit
        sure = [row.version for row in matrix.container_toolkits if row.confidence == "high"]
        version = wish or max(sure, key=parse)
        floor = matrix.setting("container_toolkit.toml", "minimum_safe")
        if floor.value is not None and parse(version) < parse(floor.value):
            because = f"container toolkit {version} has known vulnerabilities; {floor.value} is the first without"
            facts = (fact_of("container-toolkit", floor.value, floor),)
            raise RefusedError(No(is_proved=True, because=because, facts=facts, flags=("--container-toolkit", version)))
        text = self._text("container_toolkit_revision").replace("{release}", version)
        names = matrix.setting("container_toolkit.toml", "packages").values
        return NodeGroup(packages=name_packages(names, text), version=version)

    def _dcgm(self) -> NodeGroup:
        """Return DCGM for the CUDA majors of the driver and of the toolkits."""
        matrix = self.job.matrix
        known = matrix.setting(PACKAGES_FILE, "dcgm_cuda_majors").values
        cuda = {self.job.branch.max_cuda or self.job.stack.cuda, *(toolkit.version for toolkit in self.toolkits)}
        majors = sorted({text.partition(".")[0] for text in cuda} & set(known))
        named = matrix.setting(PACKAGES_FILE, "dcgm_packages").values
        names = dict.fromkeys(name.replace("{major}", major) for name in named for major in majors)
        text = self._text("dcgm_version")
        services = matrix.setting(PACKAGES_FILE, "dcgm_services").values
        version = text.partition(":")[2].partition("-")[0]
        return NodeGroup(packages=name_packages(names, text), services=services, version=version)

    def repositories(self, groups: frozenset[str]) -> tuple[NodeRepository, ...]:
        """Return NVIDIA's repositories that the parts need, each with the parts.

        Args:
            groups: Names of the parts there are.
        """
        is_cuda_repo = self.row.method == "cuda_repo"
        needs = (
            ("driver", is_cuda_repo),
            ("fabric", "fabric" in groups and (is_cuda_repo or self.row.fabric_source is not None)),
            ("cuda", bool(self.toolkits)),
            *((name, name in groups) for name in ("cudnn", "nccl", "dcgm")),
        )
        purposes = [name for name, is_needed in needs if is_needed]
        found = []
        arch = ARCHITECTURE
        if self.system.manager != "apt":
            arch = self.job.matrix.setting("os.toml", "cuda_repository_arch").entries[ARCHITECTURE]
        if purposes:
            found.append(self._cuda_repository(tuple(purposes)))
        if self.system.build_repository is not None:
            found.append(
                NodeRepository(
                    id="build",
                    uri=self.system.build_repository.replace("{arch}", arch),
                    suite="/",
                    key=NodeKey(url=self.system.build_key or "", fingerprint=self.system.build_key_fingerprint),
                    purposes=("driver",),
                )
            )
        if "container_toolkit" in groups:
            found.append(
                NodeRepository(
                    id="container-toolkit",
                    uri=self._text(self._of_manager("container_toolkit_repository")).replace("{arch}", arch),
                    suite="/",
                    key=NodeKey(
                        url=self.job.matrix.setting("container_toolkit.toml", "signing_key").value or "",
                        fingerprint=self._text("container_toolkit_key"),
                    ),
                    purposes=("container_toolkit",),
                    signs="packages" if self.system.manager == "apt" else "metadata",
                )
            )
        return tuple(found)

    def _cuda_repository(self, purposes: tuple[str, ...]) -> NodeRepository:
        matrix, row = self.job.matrix, self.os
        files = matrix.setting(PACKAGES_FILE, "cuda_key_files").entries
        if row.repo_path is None or row.signing_key is None or row.signing_key not in files:
            because = f"the facts know no repository of NVIDIA for {row.name}, or not its key"
            raise RefusedError(No(is_proved=False, because=because, facts=(fact_of("os", row.id, row),)))
        arch = matrix.setting("os.toml", "cuda_repository_arch").entries[ARCHITECTURE]
        base = matrix.setting("os.toml", "cuda_repository").value or ""
        uri = base.replace("{distro}", row.repo_path).replace("{arch}", arch)
        prints = [
            setting.value
            for key, setting in sorted(matrix.settings("os.toml").items())
            if key.startswith("cuda_signing_key_") and setting.value
        ]
        short = row.signing_key.lower()
        # Of some keys the facts know the last digits alone; dnf's roles hold a key to those.
        unknown = row.signing_key if self.system.manager != "apt" else None
        fingerprint = next((text for text in prints if text.lower().endswith(short)), unknown)
        return NodeRepository(
            id="cuda",
            uri=uri,
            suite="/",
            key=NodeKey(url=uri + files[row.signing_key], fingerprint=fingerprint),
            purposes=purposes,
        )


def _serves_cudnn(row: Cudnn, cuda: str) -> bool:
    if row.apt is None or "=" not in row.apt or not any(cuda in spec_of(spec) for spec in row.cuda):
        return False
    suffix = re.search(r"\+cuda([0-9.]+)$", row.apt)
    major = re.search(r"-cuda-([0-9]+)=", row.apt)
    if suffix is not None:
        return parse(suffix[1]).release[0] == parse(cuda).release[0]
    return major is None or int(major[1]) == parse(cuda).release[0]


def pin_group(group: NodeGroup | None) -> list[NodePin]:
    """Return what apt must hold of a part: one pin a version."""
    if group is None:
        return []
    by_version: dict[str, list[str]] = {}
    for package in group.packages:
        if package.version is not None:
            by_version.setdefault(package.version, []).append(package.name)
    return [NodePin(packages=" ".join(names), version=version) for version, names in by_version.items()]
