"""What a target should be: from the lock, from the command line, from an inventory; never from the target itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError
from provision.records import NOTHING, fields_of, record, replace
from provision.resolve.stack import FrameworkBuild, Stack
from provision.versions import parse


@record
class Expectation:
    """What was planned for one target. ``None`` and empty mean that nothing was said, never "none".

    Attributes:
        gpus: How many GPUs; 0 is a promise that there are none, and the only reason to skip what needs one.
        gpu: Model, as a person writes it (``H100``); the matrix resolves it.
        driver: Exact version. ``driver_minimum`` is the stack's floor.
        os: Id of ``os.toml``.
        packages: Distribution → version with local part, all of the lock.
        builds: What each framework was built for, from a lock of several alone; :meth:`build_of` reads it.
        has_containers: Whether containers with GPUs are meant to run.
        container_image: An image that is on the target, for the checks that start one.
        rdma_gbit: Rate every RDMA port should have; 0 says that there is no RDMA.
        is_mig: Whether MIG is meant to be on; likewise ``is_ecc``.
        compute_mode: ``Default``, ``Exclusive_Process`` or ``Prohibited``.
        pcie_width: Lanes, where the slot has fewer than the GPU.
        is_in_use: Programs may be running on the GPUs.
        needs_p2p: GPUs must read each other's memory.
        mtu: Of the cluster's interfaces, which ``interfaces`` names.
        cluster_subnet: Network the hosts reach each other in (CIDR).
        nccl_ports: First and last port NCCL may use, joined by a dash.
        has_exporter: Whether dcgm-exporter should answer on the host.
        prometheus: Address of a Prometheus server, for ``mon.scrape``.
        has_textfile: Whether verify's metrics should be fresh.
        has_dcgm: Whether DCGM must be there for the checks that use it.
    """

    gpus: int | None = None
    gpu: str | None = None
    driver: str | None = None
    driver_minimum: str | None = None
    os: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    frameworks: Mapping[str, str] = NOTHING
    packages: Mapping[str, str] = NOTHING
    sm: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    builds: tuple[FrameworkBuild, ...] = ()
    has_toolkit: bool | None = None
    has_containers: bool | None = None
    container_image: str | None = None
    rdma_gbit: int | None = None
    is_mig: bool | None = None
    is_ecc: bool | None = None
    compute_mode: str | None = None
    pcie_width: int | None = None
    is_in_use: bool | None = None
    needs_p2p: bool | None = None
    mtu: int | None = None
    interfaces: tuple[str, ...] = ()
    cluster_subnet: str | None = None
    nccl_ports: str | None = None
    has_exporter: bool | None = None
    prometheus: str | None = None
    has_textfile: bool | None = None
    has_dcgm: bool | None = None

    def build_of(self, framework: str) -> FrameworkBuild:
        """Return what a framework should be built for: its own line of the plan, or what the plan says of the whole."""
        own = next((build for build in self.builds if build.framework == framework), None)
        return own or FrameworkBuild(
            framework=framework, cuda=self.cuda, cudnn=self.cudnn, nccl=self.nccl, sm=self.sm, ptx=self.ptx
        )


def expect_stack(stack: Stack) -> Expectation:
    """Return what a lock promises."""
    return Expectation(
        gpu=stack.gpus[0] if len(stack.gpus) == 1 else None,
        driver_minimum=stack.driver.minimum,
        python=stack.python,
        cuda=stack.cuda,
        cudnn=stack.cudnn,
        nccl=stack.nccl,
        frameworks=stack.frameworks,
        packages=stack.packages,
        sm=stack.sm,
        ptx=stack.ptx,
        builds=stack.builds,
        has_toolkit=stack.image is not None and stack.image.flavor == "devel",
    )


def merge_expectation(base: Expectation, values: Mapping[str, Any], where: str) -> Expectation:
    """Return an expectation with some fields replaced.

    Args:
        base: What is known so far.
        values: Field → value, as a TOML file, JSON or an inventory gives them.
        where: Where they were written, for the message.

    Raises:
        UsageError: A name is not a field, or a value has the wrong type.
    """
    kinds = {name: kind.removesuffix(" | None") for name, (kind, _) in fields_of(Expectation).items()}
    del kinds["builds"]  # only a lock tells frameworks apart
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            from difflib import get_close_matches

            near = get_close_matches(name, kinds, n=1)
            raise UsageError(
                f"{where}: `{name}` is nothing that can be expected",
                hints=((f"did you mean `{near[0]}`?",) if near else ()) + (f"known are {', '.join(kinds)}",),
            )
        changes[name] = _typed(kinds[name], value, f"{where}: `{name}`")
        _check_form(name, changes[name], f"{where}: `{name}`")
    if told := set(changes) & set(_OF_BUILDS):
        # Whoever writes it by hand means every framework.
        builds = tuple(replace(build, **{name: changes[name] for name in told}) for build in base.builds)
        return replace(base, **changes, builds=builds)
    return replace(base, **changes)


def _check_form(name: str, value: Any, where: str) -> None:
    """Refuse what no machine could ever be, so that no machine is blamed for it."""
    if name in _VERSIONS:
        try:
            parse(value)
        except ValueError as error:
            raise UsageError(f"{where} must be a version, not {value!r:.60}") from error
    elif name == "nccl_ports":
        first, dash, last = value.partition("-")
        numbers = [int(part) if part.isascii() and part.isdecimal() else 0 for part in (first, last if dash else first)]
        if not 0 < numbers[0] <= numbers[1] < _PORTS:
            raise UsageError(f"{where} must be a range such as `50000-51000`, not {value!r:.60}")
    elif name == "cluster_subnet":
        from ipaddress import ip_network

        try:
            ip_network(value, strict=False)
        except ValueError as error:
            raise UsageError(f"{where} must be a network such as `10.20.0.0/24`, not {value!r:.60}") from error
    elif name == "compute_mode" and value not in _COMPUTE_MODES:
        raise UsageError(f"{where} must be one of {', '.join(_COMPUTE_MODES)}, not {value!r:.60}")


_OF_BUILDS = ("cuda", "cudnn", "nccl", "sm", "ptx")
_VERSIONS = ("driver", "driver_minimum", "cuda", "cudnn", "nccl")
_COMPUTE_MODES = ("Default", "Exclusive_Process", "Prohibited")
_PORTS = 1 << 16


def _typed(kind: str, value: Any, where: str) -> Any:
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "tuple[str, ...]" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if kind.startswith("Mapping") and isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    words = {
        "bool": "true or false",
        "int": "a whole number, 0 or more",
        "str": "text",
        "tuple[str, ...]": "a list of text",
    }
    raise UsageError(f"{where} must be {words.get(kind, 'a table of text')}, not {value!r:.60}")
