"""What checks of frameworks share: comparing versions, and saying why a framework sees no GPU."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.query import cuda_releases
from provision.probe.output import Unreadable
from provision.probe.parse.frameworks import Framework
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown
from provision.verify.work import count_gpus, counted, has_mig
from provision.versions import parse

__all__ = ["explain_absence", "has_planned_version", "hidden_by", "judge_devices", "loaded_driver"]


def has_planned_version(planned: str, found: str) -> bool:
    """Tell whether a version is the planned one; a build is compared only where both name it."""
    version, _, build = planned.partition("+")
    found_version, _, found_build = found.partition("+")
    return version == found_version and (not build or not found_build or build == found_build)


def loaded_driver(host: Snapshot) -> str | None:
    """Return the driver's version, as the kernel or nvidia-smi tells it."""
    try:
        return host.find_driver_version()
    except Unreadable:
        return None


def hidden_by(host: Snapshot) -> str:
    """Return the variable that hides every GPU, as ``NAME=value``; empty where none does."""
    try:
        value = host.environment.get("CUDA_VISIBLE_DEVICES")
    except Unreadable:
        return ""
    if value is None or value.strip().split(",")[0] not in ("", "-1", "NoDevFiles", "none", "void"):
        return ""
    return f"CUDA_VISIBLE_DEVICES={value}"


def explain_absence(host: Snapshot, framework: Framework, expected: Expectation, matrix: Matrix) -> tuple[str, str]:
    """Say why a framework can use no GPU, most certain reason first, and what to do about it (which may be empty)."""
    name, label = framework.name, f"{framework.name} {framework.version or ''}".strip()
    if framework.is_cuda_build is False:
        planned = expected.packages.get(name) or expected.frameworks.get(name, "")
        wanted = f"`{name}=={planned}`" if planned else "a build for CUDA"
        return f"{label} is a build for processors only", f"Install {wanted} from the index of its CUDA builds."
    if hidden := hidden_by(host):
        return f"`{hidden}` hides every GPU from {name}", "Unset `CUDA_VISIBLE_DEVICES`, or name GPUs that exist in it."
    driver = loaded_driver(host)
    minimum = _minimum_driver(matrix, framework.cuda)
    if driver is not None and minimum is not None and _is_below(driver, minimum):
        seen = f"{label} is built for CUDA {framework.cuda}, which takes driver {minimum} or newer; {driver} is loaded"
        return seen, f"Install driver {minimum} or newer, or a build of {name} for an older CUDA."
    if framework.reason:
        return f"{name} says: {framework.reason}", ""
    return f"{label} sees no GPU and does not say why", ""


def _minimum_driver(matrix: Matrix, cuda: str | None) -> str | None:
    releases = cuda_releases(matrix, cuda) if cuda else ()
    return releases[-1].minimum_driver if releases else None


def _is_below(version: str, floor: str) -> bool:
    try:
        return parse(version) < parse(floor)
    except ValueError:
        return False


def judge_devices(host: Snapshot, framework: Framework, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge whether a framework can use as many GPUs as there should be."""
    count = None if has_mig(host) else count_gpus(host, expected)
    should = f"{count} GPUs" if count else "a GPU"
    if framework.error:
        return failed(f"importing {framework.name} fails: {framework.error}", should)
    if expected.gpus == 0 and not framework.device_count:
        return _judge_build(framework, expected)
    if framework.is_available is None and framework.device_count is None:
        return unknown(f"{framework.name} does not say whether it can use a GPU")
    if not framework.is_available or framework.device_count == 0:
        seen, remedy = explain_absence(host, framework, expected, matrix)
        return failed(seen, should, remedy=remedy)
    found = framework.device_count
    if found is None:
        return unknown(f"{framework.name} can use a GPU and does not say how many")
    if count is not None and found < count:
        return failed(f"{framework.name} sees {found} of {count} GPUs{_limited(host)}", should)
    return _judge_version(framework, expected) or passed(f"{framework.name} sees {counted(found, 'GPU')}")


def _judge_build(framework: Framework, expected: Expectation) -> Outcome:
    """Judge what can be judged where no GPU is planned: an image may still be meant for machines that have one."""
    label = f"{framework.name} {framework.version or ''}".strip()
    cuda = expected.build_of(framework.name).cuda
    if cuda is not None and framework.is_cuda_build is False:
        return failed(f"{label} is a build for processors only", f"a build for CUDA {cuda}")
    if cuda is not None and framework.is_cuda_build is None:
        return unknown(f"{label} does not say whether it is a build for CUDA")
    return _judge_version(framework, expected) or passed(f"{label} imports; no GPU is expected")


def _judge_version(framework: Framework, expected: Expectation) -> Outcome | None:
    planned = expected.packages.get(framework.name) or expected.frameworks.get(framework.name)
    if not planned or framework.version is None or has_planned_version(planned, framework.version):
        return None
    return failed(f"{framework.name} is {framework.version}", f"{framework.name} {planned}")


def _limited(host: Snapshot) -> str:
    try:
        value = host.environment.get("CUDA_VISIBLE_DEVICES")
    except Unreadable:
        return ""
    return f", with `CUDA_VISIBLE_DEVICES={value}`" if value is not None else ""
