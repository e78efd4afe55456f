"""What is installed, held and built, from listings of dpkg, rpm and DKMS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import machines
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse import packages

if TYPE_CHECKING:
    from collections.abc import Callable

COLLECTED = (
    "libcudnn8\t8.9.2.26-1+cuda12.1\tamd64\tinstalled\n"
    "docker-ce\t5:28.5.1-1~ubuntu.22.04~jammy\tamd64\tinstalled\n"
    "nvidia-dkms-535\t535.104.05-0ubuntu1\tamd64\thalf-configured\n"
    "nvidia-driver-470\t470.256.02-0ubuntu1\tamd64\tdeinstall ok config-files\n"
    "nvidia-utils-535\t535.104.05-0ubuntu1\tamd64\tii\n"
    "nvidia-390\t\t\tnot-installed\n"
    "kernel-core\t5.14.0-427.13.1.el9_4\tx86_64\n"
)
DPKG = """\
Desired=Unknown/Install/Remove/Purge/Hold
| Status=Not/Inst/Conf-files/Unpacked/halF-conf/Half-inst/trig-aWait/Trig-pend
|/ Err?=(none)/Reinst-required (Status,Err: uppercase=bad)
||/ Name                Version                Architecture Description
+++-===================-======================-============-=================================
hi  nvidia-driver-535   535.104.05-0ubuntu1    amd64        NVIDIA driver metapackage
ii  libc6:amd64         2.35-0ubuntu3.8        amd64        GNU C Library: Shared libraries
iF  nvidia-dkms-535     535.104.05-0ubuntu1    amd64        NVIDIA DKMS package
iHR broken              1.0-1                  all          never finished
rc  nvidia-driver-470   470.256.02-0ubuntu1    amd64        NVIDIA driver metapackage
un  nvidia-390          <none>                 <none>       (no description available)
"""
RPM = """\
nvidia-driver-cuda-libs-535.104.05-1.el9.x86_64
kernel-core-5.14.0-427.13.1.el9_4.x86_64
dkms-3.0.12-1.el9.noarch
gpg-pubkey-fd431d51-4ae0493b
gpg-pubkey-8483c65d-5ccc5b19.(none)
"""
DKMS_2 = """\
nvidia, 535.104.05, 5.15.0-91-generic, x86_64: installed
nvidia, 535.104.05, 5.15.0-92-generic, x86_64: built
nvidia, 550.54.15: added
"""
DKMS_3 = """\
nvidia/535.104.05, 5.15.0-91-generic, x86_64: installed
nvidia/535.104.05, 5.15.0-92-generic, x86_64: built
nvidia/550.54.15: added
"""
HOLDS = "held nvidia-driver-535\nheld nvidia-driver-535\nexcluded ^linux-image .*\nunattended yes\n"

SAMPLES: dict[Callable[[str], object], str] = {
    packages.parse_packages: COLLECTED,
    packages.parse_dpkg_list: DPKG,
    packages.parse_rpm_list: RPM,
    packages.parse_dkms: DKMS_2 + DKMS_3,
    packages.parse_holds: HOLDS,
    packages.parse_kernels: "5.15.0-91-generic\n5.15.0-100-generic\n",
    packages.parse_initramfs: "535.104.05\nunknown\n",
}


def test_packages_of_the_collector() -> None:
    found = packages.parse_packages(COLLECTED)

    assert [(row.name, row.version, row.state) for row in found] == [
        ("libcudnn8", "8.9.2.26-1+cuda12.1", "installed"),
        ("docker-ce", "5:28.5.1-1~ubuntu.22.04~jammy", "installed"),
        ("nvidia-dkms-535", "535.104.05-0ubuntu1", "half-configured"),
        ("nvidia-driver-470", "470.256.02-0ubuntu1", "config-files"),
        ("nvidia-utils-535", "535.104.05-0ubuntu1", "installed"),
        ("kernel-core", "5.14.0-427.13.1.el9_4", "installed"),
    ]
    assert (found[0].architecture, found[-1].architecture) == ("amd64", "x86_64")
    assert packages.parse_packages("") == ()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "picked-lines"])
def test_dpkg_list(whole: bool) -> None:
    found = packages.parse_dpkg_list(DPKG if whole else "\n".join(DPKG.splitlines()[5:]))

    assert [(row.name, row.version, row.architecture, row.state) for row in found] == [
        ("nvidia-driver-535", "535.104.05-0ubuntu1", "amd64", "installed"),
        ("libc6", "2.35-0ubuntu3.8", "amd64", "installed"),
        ("nvidia-dkms-535", "535.104.05-0ubuntu1", "amd64", "half-configured"),
        ("broken", "1.0-1", "all", "half-installed"),
        ("nvidia-driver-470", "470.256.02-0ubuntu1", "amd64", "config-files"),
    ]


def test_rpm_list() -> None:
    found = packages.parse_rpm_list(RPM)

    assert [(row.name, row.version, row.architecture) for row in found] == [
        ("nvidia-driver-cuda-libs", "535.104.05-1.el9", "x86_64"),
        ("kernel-core", "5.14.0-427.13.1.el9_4", "x86_64"),
        ("dkms", "3.0.12-1.el9", "noarch"),
        ("gpg-pubkey", "fd431d51-4ae0493b", ""),
        ("gpg-pubkey", "8483c65d-5ccc5b19.(none)", ""),
    ]


@pytest.mark.parametrize("text", [DKMS_2, DKMS_3], ids=["dkms-2", "dkms-3"])
def test_dkms(text: str) -> None:
    assert packages.parse_dkms(text) == (
        packages.DkmsModule(name="nvidia", version="535.104.05", kernel="5.15.0-91-generic", state="installed"),
        packages.DkmsModule(name="nvidia", version="535.104.05", kernel="5.15.0-92-generic", state="built"),
        packages.DkmsModule(name="nvidia", version="550.54.15", state="added"),
    )


@pytest.mark.parametrize(
    ("said", "state", "warning"),
    [
        (
            "installed (WARNING! Diff between built and installed module!)",
            "installed",
            "Diff between built and installed module!",
        ),
        ("installed (original_module exists)", "installed", None),
        ("installed-weak from 4.18.0-477.el8.x86_64", "installed", None),
        (
            "built (WARNING! Missing some built modules!)",
            "broken",
            "Missing some built modules!",
        ),
        ("broken", "broken", None),
    ],
    ids=["differs", "original", "weak", "missing", "broken"],
)
def test_remarks_of_dkms(said: str, state: str, warning: str | None) -> None:
    (found,) = packages.parse_dkms(f"nvidia/535.104.05, 5.15.0-91-generic, x86_64: {said}\n")

    assert (found.state, found.warning) == (state, warning)


def test_dkms_without_modules() -> None:
    assert packages.parse_dkms("") == ()
    assert packages.parse_dkms("Deprecated feature: REMAKE_INITRD (/var/lib/dkms/x)\n") == ()


def test_holds() -> None:
    assert packages.parse_holds(HOLDS) == packages.Holds(
        held=("nvidia-driver-535",), excluded=("^linux-image .*",), has_unattended_upgrades=True
    )
    assert packages.parse_holds("unattended no\n").has_unattended_upgrades is False
    assert packages.parse_holds("") == packages.Holds()


def test_kernels_are_ordered_by_number() -> None:
    text = "5.15.0-100-generic\n5.15.0-91-generic\n6.2.0-1-aws\n5.15.0-91-generic\n5.4.0-216-generic\n"

    assert packages.parse_kernels(text) == (
        "5.4.0-216-generic",
        "5.15.0-91-generic",
        "5.15.0-100-generic",
        "6.2.0-1-aws",
    )


def test_versions_in_the_initial_ram_disk() -> None:
    assert packages.parse_initramfs("") == ()
    assert packages.parse_initramfs("535.104.05\n535.104.05\nunknown\n") == ("535.104.05",)


REFUSED = [
    (packages.parse_packages, "dpkg-query: error: no such file\n", "another form"),
    (packages.parse_packages, "nvidia-driver\t535\tamd64\tfine\n", "state that is not known"),
    (packages.parse_packages, "nvidia-driver\t\tamd64\tinstalled\n", "another form"),
    (packages.parse_packages, "nvidia driver\t535\tamd64\tinstalled\n", "another form"),
    (packages.parse_dpkg_list, "", "lists no package"),
    (packages.parse_dpkg_list, "dpkg-query: no packages found matching nvidia*\n", "another form"),
    (packages.parse_dpkg_list, "ii  nvidia-driver-535 535.104.05\n", "another form"),
    (packages.parse_dpkg_list, f"{DPKG}Killed\n", "another form"),
    (packages.parse_rpm_list, "", "lists no package"),
    (packages.parse_rpm_list, "error: db5 error(11) from dbenv->open\n", "another form"),
    (packages.parse_rpm_list, "nvidia-535.x86_64\n", "another form"),
    (packages.parse_dkms, "dkms: command not found\n", "another form"),
    (packages.parse_dkms, "nvidia/535.104.05, 5.15.0-91-generic, x86_64: perhaps\n", "another form"),
    (packages.parse_dkms, "nvidia, 535.104.05, 5.15.0-91-generic: installed\n", "another form"),
    (packages.parse_holds, "held\n", "another form"),
    (packages.parse_holds, "unattended\n", "neither yes nor no"),
    (packages.parse_holds, "E: Could not open lock file\n", "another form"),
    (packages.parse_kernels, "", "none that can be booted"),
    (packages.parse_kernels, "ls: /boot: Permission denied\n", "not a kernel release"),
    (packages.parse_initramfs, "unknown\n", "cannot be read"),
    (packages.parse_initramfs, "cpio: premature end of archive\n", "not a version"),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"), REFUSED, ids=[f"{case[0].__name__}-{number}" for number, case in enumerate(REFUSED)]
)
def test_other_text_is_refused(parse: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(text)


@pytest.mark.parametrize("parse", SAMPLES, ids=lambda parse: parse.__name__)
@given(data=st.data())
def test_damaged_text_ends_in_a_value_or_a_refusal(parse: Callable[[str], object], data: st.DataObject) -> None:
    text = SAMPLES[parse]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    junk = data.draw(st.text(alphabet=st.characters() | st.sampled_from("\x1b[\0\n\t ,:/."), max_size=20))
    try:
        parse(text[:start] + junk + text[end:])
    except Unreadable as error:
        error.reason.encode()


@pytest.mark.parametrize("name", machines.MACHINES)
def test_stand_in_machines(name: str) -> None:
    host = machines.snapshot(machines.MACHINES[name]())

    if host.has("kernels"):
        assert host.kernels[-1] == host.uname.release
    if host.has("packages"):
        installed = {row.name: row for row in host.packages}
        is_debian = host.os_release.is_debian_family
        if host.virtualization.kind != "wsl":
            kernel = f"linux-image-{host.uname.release}" if is_debian else "kernel-core"
            assert installed[kernel].state == "installed"
        assert set(host.holds.held) <= set(installed)
        assert host.holds.has_unattended_upgrades is is_debian
    if host.has("initramfs"):
        assert set(host.initramfs) <= {host.driver.version if host.has("driver-version") else ""}
    if host.has("dkms"):
        assert {(row.version, row.state) for row in host.dkms} == {(host.driver.version, "installed")}
