"""Containers can be given GPUs: a registered runtime, or a CDI specification of this driver."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.frameworks import loaded_driver
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_RUNTIME = "nvidia"
_KIND = "nvidia.com/gpu"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for the runtime in the engines' configurations and for a CDI specification, and hold that to the driver."""
    del expected, matrix
    engines: dict[str, bool] = {}
    silent: list[str] = []
    for name, ask in (("docker", "docker"), ("docker", "docker_info"), ("containerd", "containerd")):
        try:
            runtimes = getattr(host, ask).runtimes
        except Unreadable as error:
            if error.status not in ("absent", "not-run"):
                silent.append(error.reason)
            continue
        engines[name] = engines.get(name, False) or any(runtime.startswith(_RUNTIME) for runtime in runtimes)
    registered = [name for name, has_runtime in engines.items() if has_runtime]
    try:
        specs = [spec for spec in host.cdi if spec.kind == _KIND]
    except Unreadable as error:
        specs = []
        if error.status not in ("absent", "not-run"):
            silent.append(error.reason)
    driver = loaded_driver(host)
    stale = [
        spec for spec in specs if spec.driver_versions and driver is not None and driver not in spec.driver_versions
    ]
    if registered:
        aside = f"; {stale[0].path} is of driver {stale[0].driver_versions[0]}" if stale else ""
        return passed(
            f"{' and '.join(registered)} {'have' if len(registered) > 1 else 'has'} the runtime `nvidia`{aside}"
        )
    if stale and len(stale) == len(specs):
        return failed(
            f"{stale[0].path} is of driver {stale[0].driver_versions[0]}, {driver} is loaded",
            f"a CDI specification of {driver}",
            subjects=[spec.path for spec in stale],
            remedy="Write it again: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
        )
    if specs:
        return passed(f"{specs[0].path} describes {len(specs[0].devices)} devices")
    if silent:
        return unknown(silent[0])
    known = " and ".join(sorted(engines)) or "no container engine"
    missing = (
        f"{known} {'know' if len(engines) > 1 else 'knows'} no runtime `nvidia`"
        if engines
        else "no engine is configured"
    )
    return failed(f"{missing}, and there is no CDI specification", "the runtime `nvidia`, or a CDI specification")
