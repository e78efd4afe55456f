"""The checks of the host around the GPUs."""

from __future__ import annotations

import machines
import pytest
from asking import ask, text


class TestOs:
    def test_planned_system_passes(self):
        outcome = ask("host.os", machines.hgx_h100())
        assert outcome.status == "pass"
        assert "22.04" in outcome.seen

    @pytest.mark.parametrize(
        ("release", "planned"),
        [
            pytest.param('ID="rhel"\nVERSION_ID="9.4"\n', "rhel9", id="rhel-minor"),
            pytest.param('ID="rocky"\nVERSION_ID="8.10"\n', "rockylinux8", id="rocky"),
            pytest.param('ID="ol"\nVERSION_ID="9.2"\n', "rhel9", id="oracle"),
            pytest.param('ID="amzn"\nVERSION_ID="2023"\n', "amzn2023", id="amazon"),
            pytest.param('ID="opensuse-leap"\nVERSION_ID="15.6"\n', "opensuse15", id="leap"),
            pytest.param("ID=fedora\nVERSION_ID=42\n", "fedora", id="fedora-without-version"),
        ],
    )
    def test_ids_of_other_families(self, release, planned):
        outcome = ask("host.os", text(machines.hgx_h100(), "os-release", release), os=planned)
        assert outcome.status == "pass"

    @pytest.mark.parametrize("planned", ["ubuntu24.04", "ubuntu2", "debian12"])
    def test_another_system_fails(self, planned):
        outcome = ask("host.os", machines.hgx_h100(), os=planned)
        assert outcome.status == "fail"
        assert outcome.expected == planned

    def test_without_a_plan_there_is_no_question(self):
        assert ask("host.os", machines.hgx_h100(), os=None).status == "skip"

    def test_system_without_a_name_is_named_by_its_id(self):
        outputs = text(machines.hgx_h100(), "os-release", "ID=debian\nVERSION_ID=11\n")
        assert ask("host.os", outputs).seen == "debian 11"

    def test_unread_system_is_unknown(self):
        assert ask("host.os", machines.fail(machines.hgx_h100(), "os-release", status="hung")).status == "unknown"


class TestKernelRunning:
    RUNNING = "6.8.0-87-generic"

    def test_newest_passes(self):
        outcome = ask("host.kernel_running", machines.hgx_h100())
        assert outcome.status == "pass"
        assert self.RUNNING in outcome.seen

    def test_newer_kernel_that_waits_fails(self):
        outputs = text(machines.hgx_h100(), "kernels", f"{self.RUNNING}\n6.8.0-90-generic\n")
        outputs = text(outputs, "reboot-required", "yes\nlinux-image-6.8.0-90-generic\n")
        outcome = ask("host.kernel_running", outputs)
        assert outcome.status == "fail"
        assert "6.8.0-90-generic" in outcome.seen

    def test_newer_kernel_nobody_waits_for_passes(self):
        outputs = text(machines.hgx_h100(), "kernels", f"{self.RUNNING}\n6.8.0-90-generic\n")
        assert ask("host.kernel_running", outputs).status == "pass"

    def test_newer_kernel_is_unknown_where_nothing_tells_of_a_reboot(self):
        outputs = text(machines.hgx_h100(), "kernels", f"{self.RUNNING}\n6.8.0-90-generic\n")
        assert ask("host.kernel_running", machines.absent(outputs, "reboot-required")).status == "unknown"

    def test_newer_kernel_of_another_flavour_is_no_successor(self):
        outputs = text(machines.hgx_h100(), "kernels", f"{self.RUNNING}\n6.14.0-1003-aws\n")
        outputs = text(outputs, "reboot-required", "yes\n")
        assert ask("host.kernel_running", outputs).status == "pass"

    def test_next_minor_version_of_enterprise_linux_is_a_successor(self):
        newer = "5.14.0-611.5.1.el9_7.x86_64"
        rocky = machines.rocky_h100()
        outputs = text(rocky, "kernels", f"{rocky['kernels'].text}{newer}\n")
        outputs = text(outputs, "reboot-required", "yes\n")
        outcome = ask("host.kernel_running", outputs, machine="rocky_h100")
        assert (outcome.status, outcome.expected) == ("fail", newer)

    def test_removed_kernel_fails(self):
        outcome = ask("host.kernel_running", text(machines.hgx_h100(), "kernels", "6.8.0-90-generic\n"))
        assert outcome.status == "fail"
        assert "no longer installed" in outcome.seen

    def test_no_kernel_on_disk_is_unknown(self):
        assert ask("host.kernel_running", text(machines.hgx_h100(), "kernels", "")).status == "unknown"

    def test_container_is_skipped(self):
        assert ask("host.kernel_running", machines.gpu_container(), machine="gpu_container").status == "skip"


class TestSecureboot:
    def on(self, **module):
        values = {"loaded_version": "580.105.08", "modinfo": "found", "disk_version": "580.105.08", "signer": "a key"}
        lines = [f"{key}={value}" for key, value in {**values, **module}.items() if value is not None]
        outputs = text(machines.hgx_h100(), "secure-boot", "SecureBoot enabled\n")
        return text(outputs, "module-nvidia", "\n".join(lines) + "\n")

    def test_off_passes(self):
        assert ask("host.secureboot", machines.hgx_h100()).seen == "Secure Boot is off"

    def test_signed_and_loaded_passes(self):
        outcome = ask("host.secureboot", self.on())
        assert outcome.status == "pass"
        assert "a key" in outcome.seen

    def test_unsigned_on_disk_fails_although_loaded(self):
        outcome = ask("host.secureboot", self.on(signer=""))
        assert outcome.status == "fail"
        assert "unsigned" in outcome.seen
        assert "mokutil --import" in outcome.remedy

    def test_refused_key_fails(self):
        outputs = machines.kernel_line(
            self.on(loaded_version=None), "Loading of module with unavailable key is rejected"
        )
        outputs = machines.kernel_line(outputs, "nvidia: Key was rejected by service")
        outcome = ask("host.secureboot", outputs)
        assert outcome.status == "fail"
        assert "refused its key" in outcome.seen

    def test_signed_and_not_loaded_is_unknown(self):
        assert ask("host.secureboot", self.on(loaded_version=None)).status == "unknown"

    def test_setup_mode_passes(self):
        outputs = text(self.on(signer=""), "secure-boot", "SecureBoot enabled\nPlatform is in Setup Mode\n")
        outcome = ask("host.secureboot", outputs)
        assert outcome.status == "pass"
        assert "setup mode" in outcome.seen

    def test_machine_without_efi_is_skipped(self):
        assert ask("host.secureboot", text(machines.hgx_h100(), "secure-boot", "no-efi\n")).status == "skip"

    def test_unread_state_is_unknown(self):
        assert ask("host.secureboot", machines.absent(machines.hgx_h100(), "secure-boot")).status == "unknown"


class TestRebootPending:
    def test_none_passes(self):
        assert ask("host.reboot_pending", machines.hgx_h100()).status == "pass"

    def test_packages_that_ask_are_named(self):
        packages = [f"linux-image-{number}" for number in range(7)]
        outcome = ask(
            "host.reboot_pending", text(machines.hgx_h100(), "reboot-required", "\n".join(["yes", *packages]))
        )
        assert outcome.status == "fail"
        assert "linux-image-0" in outcome.seen
        assert "and 2 more" in outcome.seen
        assert outcome.subjects == tuple(packages)

    def test_few_packages_are_all_named(self):
        packages = [f"linux-image-{number}" for number in range(5)]
        outcome = ask(
            "host.reboot_pending", text(machines.hgx_h100(), "reboot-required", "\n".join(["yes", *packages]))
        )
        assert "more" not in outcome.seen

    def test_mark_without_packages_fails(self):
        assert ask("host.reboot_pending", text(machines.hgx_h100(), "reboot-required", "yes\n")).status == "fail"

    def test_system_without_such_a_mark_is_unknown(self):
        assert ask("host.reboot_pending", machines.absent(machines.hgx_h100(), "reboot-required")).status == "unknown"


class TestUnattendedUpgrades:
    DRIVER = "nvidia-driver-580-server-open"

    def held(self, *lines):
        outputs = text(machines.hgx_h100(), "holds", "".join(f"{line}\n" for line in lines))
        packages = outputs["packages"].text + "linux-image-generic\t6.8.0.87\tamd64\tinstalled\n"
        return text(outputs, "packages", packages)

    def test_held_and_excluded_passes(self):
        assert ask("host.unattended_upgrades", machines.hgx_h100()).status == "pass"

    def test_off_passes(self):
        outcome = ask("host.unattended_upgrades", self.held("unattended no"))
        assert (outcome.status, outcome.seen) == ("pass", "automatic upgrades are off")

    def test_image_named_after_its_release_never_moves(self):
        fixed = "linux-image-6.8.0-87-generic\t6.8.0-87.88\tamd64\tinstalled\n"
        outputs = text(self.held("unattended yes"), "packages", fixed)
        outcome = ask("host.unattended_upgrades", outputs)
        assert outcome.status == "pass"
        assert "no package" in outcome.seen

    def test_removed_package_is_not_asked_about(self):
        removed = "nvidia-driver-535\t535.274.02-0ubuntu1\tamd64\tconfig-files\n"
        assert ask("host.unattended_upgrades", text(self.held("unattended yes"), "packages", removed)).status == "pass"

    def test_driver_without_a_package_at_its_top(self):
        parts = "libnvidia-compute-535\t535.274.02-0ubuntu1\tamd64\tinstalled\n"
        outcome = ask("host.unattended_upgrades", text(self.held("unattended yes"), "packages", parts))
        assert outcome.subjects == ("libnvidia-compute-535",)

    def test_free_packages_fail_with_the_command(self):
        outcome = ask("host.unattended_upgrades", self.held("unattended yes"))
        assert outcome.status == "fail"
        assert outcome.subjects == (self.DRIVER, "linux-image-generic")
        assert f"apt-mark hold {self.DRIVER} linux-image-generic" in outcome.remedy

    def test_driver_held_and_kernel_free_fails(self):
        outcome = ask("host.unattended_upgrades", self.held(f"held {self.DRIVER}", "unattended yes"))
        assert outcome.subjects == ("linux-image-generic",)

    @pytest.mark.parametrize("pattern", ["nvidia-.*", "^nvidia", "nvidia-driver-580-server-opens?", "nvidia-driver-"])
    def test_pattern_covers_by_its_literal_beginning(self, pattern):
        outputs = self.held(f"excluded {pattern}", "held linux-image-generic", "unattended yes")
        assert ask("host.unattended_upgrades", outputs).status == "pass"

    @pytest.mark.parametrize("pattern", ["nvidia-utils", "libnvidia-", "nvidia-drivers+-"])
    def test_other_pattern_does_not_cover(self, pattern):
        outputs = self.held(f"excluded {pattern}", "held linux-image-generic", "unattended yes")
        assert ask("host.unattended_upgrades", outputs).status == "fail"

    @pytest.mark.parametrize("pattern", ["(lib)?nvidia-.*", ".*nvidia.*", "nvidia|linux"])
    def test_pattern_that_is_not_tried_is_unknown(self, pattern):
        outputs = self.held(f"excluded {pattern}", "held linux-image-generic", "unattended yes")
        assert ask("host.unattended_upgrades", outputs).status == "unknown"

    def test_nothing_tells_whether_upgrades_are_on(self):
        assert ask("host.unattended_upgrades", self.held()).status == "unknown"

    def test_other_family_is_skipped(self):
        outputs = text(machines.hgx_h100(), "os-release", "ID=rhel\nVERSION_ID=9.4\n")
        assert ask("host.unattended_upgrades", outputs).status == "skip"

    def test_unread_packages_are_unknown(self):
        outputs = machines.absent(self.held("unattended yes"), "packages")
        assert ask("host.unattended_upgrades", outputs).status == "unknown"


class TestEmptyList:
    def test_no_package_at_all_is_no_answer(self):
        assert ask("host.unattended_upgrades", text(machines.hgx_h100(), "packages", "")).status == "unknown"


class TestMemlock:
    def test_unlimited_passes(self):
        outcome = ask("host.memlock", machines.hgx_h100())
        assert (outcome.status, outcome.seen) == ("pass", "unlimited")

    @pytest.mark.parametrize(("kib", "status"), [(64, "fail"), (16 * 1024**2 - 1, "fail"), (16 * 1024**2, "pass")])
    def test_limit(self, kib, status):
        outcome = ask("host.memlock", text(machines.hgx_h100(), "limits", f"memlock_kib {kib}\nnofile 1024\n"))
        assert outcome.status == status
        assert (str(kib) in outcome.seen) is (status == "fail")

    def test_without_rdma_there_is_no_question(self):
        assert ask("host.memlock", machines.cloud_a10g(), machine="cloud_a10g").status == "skip"

    def test_missing_line_is_unknown(self):
        assert ask("host.memlock", text(machines.hgx_h100(), "limits", "nofile 1024\n")).status == "unknown"


class TestHugelog:
    LINE = (
        "NVRM: API mismatch: the client has the version 580.95.05, but NVRM: this kernel module has the version "
        "580.105.08."
    )

    def test_silence_passes(self):
        assert ask("host.hugelog", machines.hgx_h100()).status == "pass"

    def test_mismatches_are_counted(self):
        outputs = machines.hgx_h100()
        for _ in range(3):
            outputs = machines.kernel_line(machines.kernel_line(outputs, self.LINE), "usb 1-1: new device")
        outcome = ask("host.hugelog", outputs)
        assert outcome.status == "fail"
        assert outcome.seen.startswith("3 version mismatches")
        assert "580.95.05" in outcome.seen

    def test_emptied_log_proves_no_silence(self):
        assert ask("host.hugelog", text(machines.hgx_h100(), "kernel-log", "")).status == "unknown"

    def test_denied_log_is_unknown(self):
        outputs = machines.fail(machines.hgx_h100(), "kernel-log", status="denied")
        assert ask("host.hugelog", outputs).status == "unknown"
