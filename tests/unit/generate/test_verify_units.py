"""The units by which a node verifies itself: systemd takes them, and the file they write is never stale by design."""

from __future__ import annotations

import configparser
import shutil
import subprocess

import pytest

from provision.errors import UsageError
from provision.generate.verify_units import render_service, render_timer
from provision.matrix.load import Matrix

MATRIX = Matrix()


def read(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(text)
    return parser


def test_two_runs_may_be_missed_before_the_file_is_stale():
    timer = read(render_timer(MATRIX))["Timer"]
    late = int(timer["OnUnitActiveSec"]) + int(timer["RandomizedDelaySec"]) + int(timer["AccuracySec"])
    assert 2 * late < MATRIX.limit("mon.textfile-age")


def test_a_check_that_fails_does_not_fail_the_unit():
    assert read(render_service(MATRIX))["Service"]["SuccessExitStatus"] == "6"


def test_only_its_own_folder_can_be_written():
    service = read(render_service(MATRIX, folder="/srv/textfiles/"))["Service"]
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == "/srv/textfiles"
    assert service["ExecStart"].endswith(" --prometheus /srv/textfiles/provision.prom")


@pytest.mark.parametrize("folder", ["", "srv", "/srv\nUser=nobody", "/srv/%i", "/srv/../etc"])
def test_a_folder_that_a_unit_cannot_name_is_refused(folder):
    with pytest.raises(UsageError):
        render_service(MATRIX, folder=folder)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_them(tmp_path):
    (tmp_path / "provision-verify.service").write_text(render_service(MATRIX), encoding="utf-8")
    timer = tmp_path / "provision-verify.timer"
    timer.write_text(render_timer(MATRIX), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", timer], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "provision-verify" in line]
    assert (done.returncode, complaints) == (0, [])
