"""The host's own driver does not work, so no container can get it."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"initialization error: (?:nvml|driver) error: (?:driver not loaded|driver/library version mismatch)",
    r"initialization error: (?:load library failed: )?libnvidia-ml\.so\.1",
    r"nvidia-container-cli(?:\.real)?: (?:detection|initialization|device) error: nvml error",
    r"could not (?:initialize|load) NVML.{0,60}ERROR_(?:DRIVER_NOT_LOADED|LIBRARY_NOT_FOUND)",
    r"nvidia-container-cli(?:\.real)?: (?:initialization|detection) error: "
    r"(?:cuda error(?!: invalid device ordinal)|driver rpc error|driver error: failed)",
    r"Could not find any (?:nv (?:files|libraries)|NVIDIA (?:binaries|libraries)) on this host",
)

_ID = "container.host-driver"
_ELSEWHERE = "container.driver-root"


def examine(case: Case) -> Sign | None:
    """Look whether the module is loaded on the host and nvidia-smi answers there."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    modules = case.look(lambda host: host.modules)
    smi = case.look(lambda host: host.smi)
    expected = "nvidia-smi works on the host itself"
    if modules is not None and not any(module.name == "nvidia" for module in modules):
        seen = ("the kernel module nvidia is not loaded on the host", *quoted(quote))
        return Sign(confidence="high", seen=seen, expected=expected)
    is_not_found = "libnvidia-ml" in quote.line
    if smi is not None:
        steps = case.matrix.diagnoses[_ELSEWHERE].fix if is_not_found else ()
        return hint(quote, confidence="low", seen=("nvidia-smi works on the host now",), expected=expected, fix=steps)
    if modules is None and is_not_found:
        # A library that is not found may as well be looked for in the wrong place.
        own, elsewhere = (case.matrix.diagnoses[name].fix for name in (_ID, _ELSEWHERE))
        steps = (*own, *(f"If it works there: {step[0].lower()}{step[1:]}" for step in elsewhere))
        return hint(quote, expected=expected, fix=steps, unseen=("whether the driver works on the host: `nvidia-smi`",))
    unseen = () if modules is not None else ("whether the driver works on the host: `nvidia-smi`",)
    return hint(quote, expected=expected, unseen=unseen)
