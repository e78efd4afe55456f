"""The initial RAM disk still holds another version of the kernel module."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import quoted
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"^\s{0,8}nvidia[\w-]{0,20}[/,] ?([\d.]{5,20}), ([\w.+~-]{3,80}), \w{3,10}: installed",
    r"\bold\b.{0,40}\bmodules?\b.{0,60}(?:initrd|initramfs|initial RAM disk)",
)

_EXPECTED = "the initial RAM disk holds the module's version on disk, or none"


def examine(case: Case) -> Sign | None:
    """Compare the modules in the initial RAM disk with the one on disk, and look for a second one in DKMS."""
    module = case.look(lambda host: host.nvidia_module)
    inside = case.look(lambda host: host.initramfs)
    disk = module.disk_version if module else None
    if disk is not None and inside is not None:
        others = sorted({version for version in inside if version not in (disk, "unknown")})
        if not others:
            return None
        is_loaded = module is not None and module.loaded_version in others
        return Sign(
            confidence="high" if is_loaded else "medium",
            seen=(
                f"the initial RAM disk holds {', '.join(others)}, the disk {disk}",
                *((f"the kernel runs {module.loaded_version}",) if module and module.loaded_version else ()),
            ),
            expected=_EXPECTED,
        )
    uname = case.look(lambda host: host.uname)
    built = {
        built.version
        for built in case.look(lambda host: host.dkms) or ()
        if uname is not None
        and built.name.startswith("nvidia")
        and built.kernel == uname.release
        and built.state == "installed"
    }
    if len(built) > 1:
        return Sign(
            confidence="medium",
            seen=(f"DKMS has {', '.join(sorted(built))} installed for the same kernel",),
            expected="one version of the module a kernel",
            unseen=("which version the initial RAM disk holds: `lsinitramfs -l /boot/initrd.img-$(uname -r)`",),
        )
    pasted: dict[str, dict[str, None]] = {}
    for line in case.find_all(SYMPTOMS[0]):
        pasted.setdefault(line.match[2], {})[line.match[1]] = None
    for kernel, versions in pasted.items():
        if len(versions) > 1:
            return Sign(
                confidence="medium",
                seen=(f"DKMS has {', '.join(versions)} installed for kernel {kernel}",),
                expected="one version of the module a kernel",
                unseen=("which version the initial RAM disk holds, and which one is loaded",),
            )
    quote = case.find(SYMPTOMS[1])
    if quote is None:
        return None
    return Sign(
        confidence="low",
        seen=quoted(quote),
        expected=_EXPECTED,
        unseen=("the versions on disk and in the initial RAM disk",),
    )
