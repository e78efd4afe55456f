"""The toolkit's setting for rootless containers is on and docker runs as root."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"^\s{0,8}no-cgroups\s{0,4}=\s{0,4}true",
    r"Failed to initialize NVML: Unknown Error",
)


def examine(case: Case) -> Sign | None:
    """Read no-cgroups in the toolkit's configuration."""
    quote = case.find(*SYMPTOMS)
    config = case.look(lambda host: host.toolkit_config)
    expected = "`no-cgroups = false` in /etc/nvidia-container-runtime/config.toml"
    if config is not None and config.has_no_cgroups is not None:
        if not config.has_no_cgroups:
            return None
        failure = case.find(SYMPTOMS[1])
        return Sign(
            confidence="high" if failure else "medium",
            seen=("no-cgroups is true", *quoted(failure)),
            expected=expected,
            unseen=("whether docker runs rootless: then it is right",),
        )
    setting = case.find(SYMPTOMS[0])
    if setting is not None:
        return hint(setting, expected=expected, unseen=("whether docker runs rootless: then it is right",))
    unseen = ("the setting: `grep no-cgroups /etc/nvidia-container-runtime/config.toml`",)
    return hint(quote, confidence="low", expected=expected, unseen=unseen)
