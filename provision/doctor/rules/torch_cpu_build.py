"""The framework that is installed was built without CUDA."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.stack import driver_of, has_gpu, torch_of
from provision.versions import minor_of

SYMPTOMS = (
    r"Torch not compiled with CUDA enabled",
    r"\btorch(?:==|[ -]|: ?|-?version: ?)v?[0-9.]{3,12}\+cpu\b",
    r"CUDA used to build PyTorch: (?:None|Could not collect)",
    r"This TensorFlow binary is not built with CUDA|TensorFlow was not built with CUDA",
    r"\(you have [0-9.]{3,12}\+cpu\)",
    r"(?:Error|Exception|Warning): .{0,40}\bCUDA is not available\b(?! ?(?:for|in) )",
    r"torch.__version__.{0,20}[0-9]\.[0-9]{1,2}\.[0-9]{1,2}\+cpu\b",
    r"\b_pytorch_select\s{1,40}[0-9.]{1,8}\s{1,40}cpu_|^pytorch\s{1,40}[0-9.]{3,12}\s{1,40}(?:py3\S{0,8})?cpu",
    r"fp16 mixed precision requires a GPU|No supported gpu backend found",
    r"module 'torch\._C' has no attribute '_cuda_|User provided device_type of 'cuda', but CUDA is not available",
    r"[Tt]orch was (?:compiled|built) without CUDA",
)


def examine(case: Case) -> Sign | None:
    """Ask each framework whether it is a CUDA build; a CPU build is right on a host without a GPU."""
    frameworks = [
        case.look(lambda host: host.torch),
        case.look(lambda host: host.tensorflow),
        case.look(lambda host: host.jax),
    ]
    quote = case.find(*SYMPTOMS)
    gpu = has_gpu(case)
    if gpu is False and quote is None:
        return None
    driver = driver_of(case)
    for framework in frameworks:
        if framework is None or framework.is_cuda_build is not False:
            continue
        if quote is None and gpu is None:
            continue
        return Sign(
            confidence="high",
            seen=(f"{framework.name} {framework.version} is a CPU build", *quoted(quote)),
            expected="a build for CUDA",
            fix=_ways_out(framework.name, framework.version, driver),
        )
    if quote is None or any(framework and framework.is_cuda_build for framework in frameworks):
        return None
    fix: tuple[str, ...] = ()
    if "tensorflow" in quote.line.lower():
        fix = _ways_out("tensorflow", None, driver)
    elif driver:
        fix = _ways_out("torch", torch_of(case).version, driver)
    return hint(quote, expected="a build for CUDA", fix=fix)


def _ways_out(name: str, version: str | None, driver: str | None) -> tuple[str, ...]:
    wanted = minor_of((version or "").partition("+")[0]) or "VERSION"
    flag = f" --driver {driver}" if driver else ""
    return (
        f"See which build suits the machine: `provision resolve --{name} {wanted}{flag}`.",
        f"Remove the CPU build: `pip uninstall {name}`.",
        "Install that build from the index that the answer names.",
    )
