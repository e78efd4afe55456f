"""What the frameworks and the environment around them can do."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.matrix.query import cuda_releases, runs_on
from provision.probe.output import Unreadable, read_or
from provision.probe.parse.frameworks import Framework
from provision.probe.snapshot import Snapshot
from provision.resolve.requirements import normalise_name
from provision.signals.cuda import HIDING, agrees
from provision.signals.expectation import Expectation
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown
from provision.signals.work import count_gpus, counted, fault_of_test, has_mig, judge_work
from provision.versions import is_older


def has_planned_version(planned: str, found: str) -> bool:
    """Tell whether a version is the planned one; a build is compared only where both name it."""
    version, _, build = planned.partition("+")
    found_version, _, found_build = found.partition("+")
    return version == found_version and (not build or not found_build or build == found_build)


def loaded_driver(host: Snapshot) -> str | None:
    """Return the driver's version, as the kernel or nvidia-smi tells it."""
    return read_or(host.find_driver_version, None)


def hidden_by(host: Snapshot) -> str:
    """Return the variable that hides every GPU, as ``NAME=value``; empty where none does."""
    try:
        value = host.environment.get("CUDA_VISIBLE_DEVICES")
    except Unreadable:
        return ""
    is_hiding = value is not None and value.strip().split(",")[0].lower() in HIDING
    return f"CUDA_VISIBLE_DEVICES={value}" if is_hiding else ""


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
    if driver is not None and minimum is not None and is_older(driver, minimum):
        seen = f"{label} is built for CUDA {framework.cuda}, which takes driver {minimum} or newer; {driver} is loaded"
        return seen, f"Install driver {minimum} or newer, or a build of {name} for an older CUDA."
    if framework.reason:
        return f"{name} says: {framework.reason}", ""
    return f"{label} sees no GPU and does not say why", ""


def _minimum_driver(matrix: Matrix, cuda: str | None) -> str | None:
    releases = cuda_releases(matrix, cuda) if cuda else ()
    return releases[-1].minimum_driver if releases else None


def judge_devices(host: Snapshot, framework: Framework, expected: Expectation, matrix: Matrix) -> Signal:
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
        return failed(seen, should, remedy=remedy, faults=[_fault_of(framework, seen)])
    found = framework.device_count
    if found is None:
        return unknown(f"{framework.name} can use a GPU and does not say how many")
    if count is not None and found < count:
        return failed(f"{framework.name} sees {found} of {count} GPUs{_limited(host)}", should)
    return _judge_version(framework, expected) or passed(f"{framework.name} sees {counted(found, 'GPU')}")


def _fault_of(framework: Framework, said: str) -> Fault:
    return Fault(said=said, subject=framework.name, kind="cpu-build" if framework.is_cuda_build is False else "")


def _judge_build(framework: Framework, expected: Expectation) -> Signal:
    """Judge what can be judged where no GPU is planned: an image may still be meant for machines that have one."""
    label = f"{framework.name} {framework.version or ''}".strip()
    cuda = expected.build_of(framework.name).cuda
    if cuda is not None and framework.is_cuda_build is False:
        said = f"{label} is a build for processors only"
        return failed(said, f"a build for CUDA {cuda}", faults=[_fault_of(framework, said)])
    if cuda is not None and framework.is_cuda_build is None:
        return unknown(f"{label} does not say whether it is a build for CUDA")
    return _judge_version(framework, expected) or passed(f"{label} imports; no GPU is expected")


def _judge_version(framework: Framework, expected: Expectation) -> Signal | None:
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


def fw_torch_import(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask for the import's own error, then for the version."""
    torch = host.torch
    planned = expected.packages.get("torch") or expected.frameworks["torch"]
    cuda = expected.build_of("torch").cuda
    if torch.error:
        return failed(f"importing torch fails: {torch.error}", f"torch {planned}")
    if torch.version is None:
        return unknown("torch imports and does not report its version")
    if not has_planned_version(planned, torch.version):
        return failed(f"torch is {torch.version}", f"torch {planned}")
    if torch.is_cuda_build is False and cuda is not None:
        return failed(f"torch {torch.version} is a build for processors only", f"a build for CUDA {cuda}")
    if torch.cuda is not None and cuda is not None and not agrees(cuda, torch.cuda):
        return failed(f"torch {torch.version} is built for CUDA {torch.cuda}", f"torch {planned} for CUDA {cuda}")
    return passed(f"torch {torch.version} imports")


def fw_torch_cuda(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask what it sees, and where it sees nothing, why: build, variable, driver, or its own words."""
    return judge_devices(host, host.torch, expected, matrix)


def fw_tf_devices(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask what it sees, and why where it sees nothing."""
    return judge_devices(host, host.tensorflow, expected, matrix)


def fw_jax_devices(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask what it sees, and why where it sees nothing."""
    return judge_devices(host, host.jax, expected, matrix)


_TARGET = re.compile(r"(sm|compute)_[0-9]{2,3}[af]?")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")


def fw_torch_arch(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare what it was compiled for with the compute capability of each GPU it sees."""
    torch = host.torch
    if torch.error:
        return unknown(f"importing torch fails: {torch.error}")
    targets = [target for target in torch.targets if _TARGET.fullmatch(target)]
    capabilities = [one for one in torch.capabilities if _CAPABILITY.fullmatch(one)]
    if not targets:
        return unknown("torch does not report what it was compiled for")
    if expected.gpus == 0 and not capabilities:
        build = expected.build_of("torch")
        missing = [target for target in (*build.sm, *build.ptx) if target not in torch.targets]
        if missing:
            return failed(f"torch has no code for {', '.join(missing)}", f"code for {', '.join(build.sm)}")
        return passed(f"torch was compiled for {', '.join(targets)}")
    if not capabilities:
        return unknown("torch tells the compute capability of no GPU")
    cubins = [target for target in targets if target.startswith("sm_")]
    texts = [target for target in targets if target.startswith("compute_")]
    used: dict[str, str] = {}
    for index, capability in enumerate(capabilities):
        major, minor = capability.split(".")
        code = runs_on((int(major), int(minor)), cubins, texts)
        if code is None:
            name = torch.names[index] if index < len(torch.names) else "a GPU"
            label = f"GPU {index} ({name})"
            said = f"{label} has compute capability {capability}, torch was compiled for {', '.join(targets)}"
            return faulty([Fault(said=said, subject=label, kind="capability")], f"code for {capability}")
        used[capability] = code
    if len(capabilities) < (torch.device_count or 0):
        return unknown(f"torch tells the compute capability of {len(capabilities)} of {torch.device_count} GPUs")
    return passed(", ".join(f"{code} runs on {capability}" for capability, code in sorted(used.items())))


def fw_torch_cudnn(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the convolution that PyTorch hands to cuDNN."""
    return judge_work(
        host, host.torch_work, expected, ("conv-cudnn",), fine="convolved", should="a convolution on every GPU"
    )


_PRODUCTS = ("matmul-fp32", "matmul-tf32", "matmul-fp16", "matmul-bf16")


def fw_torch_matmul(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the products in each type that the GPU has, compared with the processor's."""
    return judge_work(
        host,
        host.torch_work,
        expected,
        _PRODUCTS,
        fine="multiplied correctly",
        should="the processor's product on every GPU",
        needs_all=True,
    )


_ALL_REDUCE = "allreduce"


def fw_torch_nccl1(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge PyTorch's all-reduce over all local GPUs."""
    work = host.torch_nccl
    if work.error:
        return failed(f"the all-reduce could not begin: {work.error}", "a correct sum")
    said = work.together.get(_ALL_REDUCE)
    if said == "ok":
        ranks = work.figures.get("ranks")
        count = None if has_mig(host) else count_gpus(host, expected)
        if ranks is None:
            return unknown("the sum is right, and the payload does not say how many GPUs took part")
        if count is not None and ranks < count:
            return failed(f"{ranks:g} of {count} GPUs took part in the all-reduce", f"all {count} GPUs")
        return passed(f"the sum is right on {ranks:g} GPUs", figures=work.figures)
    if said is None or said.startswith("skipped"):
        return unknown(said or "the payload did not try an all-reduce")
    fault = fault_of_test("the all-reduce", said.removeprefix("failed").lstrip(": "))
    return failed(f"the all-reduce {said}", "a correct sum", faults=[fault])


_SHOWN_MAX = 6


def env_packages(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare every planned distribution with the installed one; what is installed besides is nobody's fault."""
    if not expected.packages:
        return skipped("no lock names packages")
    environment = host.python
    wrong = []
    if expected.python and not f"{environment.version}.".startswith(f"{expected.python.rstrip('t')}."):
        wrong.append(f"Python is {environment.version}, not {expected.python}")
    twice = {normalise_name(name) for name in environment.duplicates}
    installed = {normalise_name(name): version for name, version in environment.packages.items()}
    for name, version in sorted(expected.packages.items()):
        found = installed.get(normalise_name(name))
        if found is None:
            wrong.append(f"{name} is missing")
        elif not has_planned_version(version, found):
            wrong.append(f"{name} is {found}, not {version}")
        elif normalise_name(name) in twice:
            wrong.append(f"{name} is installed twice, and only one of the two is {version}")
    if wrong:
        more = f" and {len(wrong) - _SHOWN_MAX} more" if len(wrong) > _SHOWN_MAX else ""
        said = "; ".join(wrong[:_SHOWN_MAX])
        return failed(
            f"{environment.executable}: {said}{more}",
            counted(len(expected.packages), "package") + " as the lock has them",
        )
    return passed(f"{counted(len(expected.packages), 'package')} as locked, Python {environment.version}")
