"""systemd's units, and fabric manager with its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import machines
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse.services import FabricManager, Unit, parse_fabric_manager, parse_units

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = """\
Id=nvidia-persistenced.service
NRestarts=3
Result=success
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
Description=NVIDIA Persistence Daemon=yes

Id=nvidia-fabricmanager.service
LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
Result=success
NRestarts=0

Id=nvidia-cdi-refresh.path
LoadState=loaded
ActiveState=failed
Result=exit-code
"""
LOG = """\
Fabric Manager version is : 535.104.05
[Nov 21 2026 10:00:00] [INFO] [tid 1803] Received an inband message:  Message header details: magic Id:adbc
Message payload details:Team release request: failed to be of interest

[Nov 21 2026 10:00:01] [ERROR] [tid 1803] detected NVSwitch fatal error 20034 on fid 0 on 85:00.0
[Nov 21 2026 10:00:02] [ERROR] [tid 1803] detected NVSwitch non-fatal error 12028 on fid 0 on 85:00.0
[Nov 21 2026 10:00:02] [ERROR] [tid 1803] detected NVSwitch fatal error 20034 on fid 0 on 86:00.0
[Nov  1 2026 10:00:03] [INFO] query of NVSwitch devices failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]
[Nov 21 2026 10:00:04] [ERROR] [tid 7] NVSwitches found don't match with any supported system topology, aborting
[Nov 21 2026 10:00:04] [INFO] [tid 7] half a li[Nov 21 2026 10:00:05] [FATAL] [tid 7] \x1b[31mgiving up\x1b[0m
"""


def test_units() -> None:
    found = parse_units(UNITS)

    assert list(found) == ["nvidia-persistenced", "nvidia-fabricmanager", "nvidia-cdi-refresh.path"]
    assert found["nvidia-persistenced"] == Unit(
        name="nvidia-persistenced",
        load="loaded",
        active="active",
        sub="running",
        enabled="enabled",
        result="success",
        restarts=3,
    )
    assert [(unit.is_installed, unit.is_active) for unit in found.values()] == [
        (True, True),
        (False, False),
        (True, False),
    ]
    assert found["nvidia-cdi-refresh.path"].restarts is None


def test_version_and_log_of_fabric_manager() -> None:
    assert parse_fabric_manager(LOG) == FabricManager(
        version="535.104.05",
        fatal=(20034,),
        nonfatal=(12028,),
        messages=(
            "query of NVSwitch devices failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
            "NVSwitches found don't match with any supported system topology, aborting",
            "giving up",
        ),
    )


def test_log_without_the_program() -> None:
    found = parse_fabric_manager("no-program\n" + "\n".join(LOG.splitlines()[1:]))

    assert (found.version, found.fatal) == (None, (20034,))
    assert parse_fabric_manager("no-program\n") == FabricManager()


def test_recorded_log(samples: Path) -> None:
    found = parse_fabric_manager((samples / "fabric" / "gpud-fabricmanager.log").read_text())

    assert found.version is None
    assert (found.fatal, found.nonfatal, found.messages) == ((), (12028,), ())


def test_the_last_messages_are_kept_when_there_are_many() -> None:
    lines = [f"[Nov 21 2026 10:00:00] [ERROR] [tid 1] trouble {number}" for number in range(1000)]

    found = parse_fabric_manager("\n".join(lines))

    assert (len(found.messages), found.messages[-1]) == (200, "trouble 999")


REFUSED = [
    (parse_units, "", "tells of no unit"),
    (parse_units, "\n\n\n", "tells of no unit"),
    (parse_units, "System has not been booted with systemd as init system\n", "another form"),
    (parse_units, "LoadState=loaded\nActiveState=active\n", "without `Id`"),
    (parse_units, "Id=a.service\nLoadState=loaded\n", "without `ActiveState`: a"),
    (parse_units, "Id=a.service\nLoadState=\nActiveState=active\n", "without `LoadState`: a"),
    (parse_units, "Id=a\nLoadState=loaded\nActiveState=active\nNRestarts=often\n", "not a whole number"),
    (parse_fabric_manager, "", "nothing of fabric manager"),
    (parse_fabric_manager, "nv-fabricmanager: error while loading shared libraries\n", "nothing of fabric manager"),
    (parse_fabric_manager, "\0\1\2", "is binary"),
]


@pytest.mark.parametrize(
    ("parse", "text", "reason"), REFUSED, ids=[f"{case[0].__name__}-{number}" for number, case in enumerate(REFUSED)]
)
def test_other_text_is_refused(parse: Callable[[str], object], text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse(text)


@pytest.mark.parametrize(("parse", "text"), [(parse_units, UNITS), (parse_fabric_manager, LOG)], ids=["units", "log"])
@given(data=st.data())
def test_damaged_text_ends_in_a_value_or_a_refusal(
    parse: Callable[[str], object], text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    junk = data.draw(st.text(alphabet=st.characters() | st.sampled_from("\x1b[]\0\n\t =:"), max_size=20))
    try:
        parse(text[:start] + junk + text[end:])
    except Unreadable as error:
        error.reason.encode()


@pytest.mark.parametrize("name", machines.MACHINES)
def test_stand_in_machines(name: str) -> None:
    host = machines.snapshot(machines.MACHINES[name]())
    has_switches = name in ("hgx_h100", "hgx_a100", "hgx_b200", "rocky_h100")

    if host.has("units"):
        assert host.units["nvidia-fabricmanager"].is_active is has_switches
        assert host.units["nvidia-persistenced"].is_installed is (bool(machines.EXPECTED[name].gpus) and name != "wsl2")
        assert host.units["chrony" if host.os_release.is_debian_family else "chronyd"].restarts == 0
    assert host.has("fabric-manager") is has_switches
    if has_switches:
        assert host.fabric_manager == FabricManager(version=host.driver.version)
