"""The checks of containers."""

from __future__ import annotations

import machines
import pytest
from asking import ask, text

from provision.probe.output import Output

H100 = machines.hgx_h100()
NO_LINKS = "\n".join(line for line in H100["device-nodes"].text.splitlines() if "/dev/char/" not in line) + "\n"


def without_runtime(outputs: dict[str, Output]) -> dict[str, Output]:
    return machines.absent(text(text(outputs, "docker-config", "{}"), "docker-info", "{}"), "containerd-config")


def test_a_registered_runtime_passes() -> None:
    assert ask("ctr.runtime", H100).seen == "docker and containerd have the runtime `nvidia`"


def test_a_specification_of_the_driver_is_enough() -> None:
    assert ask("ctr.runtime", without_runtime(H100)).seen.startswith("/etc/cdi/nvidia.yaml describes")


def test_a_specification_of_another_driver_fails_with_both() -> None:
    outcome = ask("ctr.runtime", machines.change(without_runtime(H100), "cdi", "580.105.08", "570.195.03"))

    assert (outcome.status, outcome.subjects) == ("fail", ("/etc/cdi/nvidia.yaml",))
    assert outcome.seen == "/etc/cdi/nvidia.yaml is of driver 570.195.03, 580.105.08 is loaded"
    assert "nvidia-ctk cdi generate" in outcome.remedy


def test_neither_runtime_nor_specification_fails() -> None:
    outcome = ask("ctr.runtime", machines.absent(without_runtime(H100), "cdi"))

    assert outcome.seen == "docker knows no runtime `nvidia`, and there is no CDI specification"


def test_a_configuration_that_may_not_be_read_is_unknown() -> None:
    outputs = machines.absent(without_runtime(H100), "cdi", "docker-info")

    assert ask("ctr.runtime", machines.fail(outputs, "docker-config", status="denied")).status == "unknown"


def test_machines_without_containers_are_not_asked() -> None:
    machine = machines.workstation_rtx4090()

    for check in ("ctr.runtime", "ctr.cgroup", "ctr.gpu", "ctr.daemon_reload"):
        assert ask(check, machine, machine="workstation_rtx4090").status == "skip"


def test_links_in_dev_char_keep_the_gpus() -> None:
    assert ask("ctr.cgroup", H100).seen.startswith("/dev/char has ")


def test_the_unlucky_mixture_fails_and_names_its_parts() -> None:
    outcome = ask("ctr.cgroup", text(H100, "device-nodes", NO_LINKS))

    assert outcome.status == "fail"
    assert outcome.seen == "control groups are systemd's, the toolkit's mode is auto, and /dev/char links to no GPU"


def test_each_way_out_of_the_mixture_passes() -> None:
    trapped = text(H100, "device-nodes", NO_LINKS)
    cdi = machines.change(trapped, "toolkit-config", 'mode = "auto"', 'mode = "cdi"')
    groups = machines.change(trapped, "docker-info", '"CgroupDriver": "systemd"', '"CgroupDriver": "cgroupfs"')

    assert ask("ctr.cgroup", cdi).seen == "the toolkit gives devices by CDI"
    assert ask("ctr.cgroup", groups).seen == "the control-group driver is cgroupfs"


def test_an_unknown_driver_of_control_groups_is_unknown() -> None:
    outputs = machines.absent(text(H100, "device-nodes", NO_LINKS), "docker-info", "docker-config", "containerd-config")

    assert ask("ctr.cgroup", outputs).status == "unknown"


@pytest.mark.parametrize("check", ["ctr.gpu", "ctr.daemon_reload"])
class TestContainer:
    probes = {"ctr.gpu": "container-gpu", "ctr.daemon_reload": "daemon-reload"}  # noqa: RUF012 - a table of the class

    def test_passes_with_all_gpus(self, check: str) -> None:
        assert "lists 8 GPUs" in ask(check, H100).seen

    def test_fails_with_fewer(self, check: str) -> None:
        lines = H100[self.probes[check]].text.splitlines(keepends=True)
        outcome = ask(check, text(H100, self.probes[check], "".join(lines[:7])))

        assert (outcome.status, outcome.expected) == ("fail", "8 GPUs")
        assert "the container lists 7" in outcome.seen

    def test_fails_with_the_engines_own_words(self, check: str) -> None:
        outputs = machines.fail(
            H100, self.probes[check], code=125, error="could not select device driver\nSee docker run"
        )
        outcome = ask(check, outputs)

        assert outcome.status == "fail"
        assert outcome.seen.endswith(": could not select device driver")
        assert "125" in outcome.seen

    def test_is_unknown_where_it_hangs(self, check: str) -> None:
        assert ask(check, machines.fail(H100, self.probes[check], status="hung")).status == "unknown"

    def test_is_not_asked_without_an_image(self, check: str) -> None:
        outputs = machines.absent(H100, self.probes[check])
        assert ask(check, outputs, container_image=None).status == "skip"


@pytest.mark.parametrize("status", ["absent", "not-run"])
def test_planned_image_that_could_not_be_started_is_unknown(status: str) -> None:
    outcome = ask("ctr.gpu", machines.fail(H100, "container-gpu", status=status, error="no such image\npull it"))

    assert outcome.status == "unknown"
    assert outcome.seen.endswith("`nvidia/cuda:12.8.1-base-ubuntu22.04`: no such image")


def test_production_is_not_disturbed() -> None:
    assert ask("ctr.daemon_reload", H100, is_in_use=True).status == "skip"


def test_shared_memory_of_dockers_default() -> None:
    assert ask("ctr.shm", H100).seen == "docker's default is 16 GiB for 8 GPUs"
    outcome = ask("ctr.shm", machines.change(H100, "docker-config", "16G", "64m"))
    assert (outcome.status, outcome.seen) == ("fail", "docker's default is 0.0625 GiB for 8 GPUs")
    assert outcome.expected == "8 GiB or more"


def test_shared_memory_inside_a_container() -> None:
    small = text(machines.gpu_container(), "limits", "shm_kib 65536\n")
    outcome = ask("ctr.shm", small, machine="gpu_container")

    assert ask("ctr.shm", machines.gpu_container(), machine="gpu_container").status == "pass"
    assert outcome.seen == "the container's shared memory is 0.0625 GiB for 1 GPU"


def test_shared_memory_nobody_set_is_each_containers_own() -> None:
    assert ask("ctr.shm", text(H100, "docker-config", "{}")).status == "skip"
    assert ask("ctr.shm", machines.change(H100, "docker-config", '"16G"', '"plenty"')).status == "unknown"


def test_a_container_without_any_gpu_fails() -> None:
    assert ask("ctr.gpu", text(H100, "container-gpu", "No devices found.\n")).seen == "the container lists no GPU"


def test_shared_memory_is_unknown_where_gpus_or_size_are() -> None:
    uncounted = machines.fail(H100, "nvidia-smi-xml", status="hung")
    unmeasured = machines.absent(text(machines.gpu_container(), "limits", "nofile 1024\n"), "file-systems")

    assert ask("ctr.shm", uncounted, gpus=None).status == "unknown"
    assert ask("ctr.shm", unmeasured, machine="gpu_container").status == "unknown"


def test_reload_with_a_planned_image_that_is_absent_is_unknown() -> None:
    outputs = machines.absent(machines.hgx_h100(), "daemon-reload")
    assert ask("ctr.daemon_reload", outputs, container_image="gpu-base:1").status == "unknown"
    assert ask("ctr.daemon_reload", outputs, container_image=None).status == "skip"
