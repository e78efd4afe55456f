"""Rules about containers: one message has several causes, and the target's state tells which it is."""

from __future__ import annotations

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import diagnose, rule_of
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix

MATRIX = Matrix()
UNKNOWN_ERROR = "Failed to initialize NVML: Unknown Error"


def case_of(outputs=None, text: str = "") -> Case:
    host = machines.snapshot(outputs) if outputs is not None else None
    return Case(MATRIX, host, texts=[("pasted", text)] if text else ())


def ask(name: str, outputs=None, text: str = "") -> Sign | None:
    return rule_of(MATRIX.diagnoses[name]).examine(case_of(outputs, text))


def without_char_links(outputs):
    lines = outputs["device-nodes"].text.splitlines(keepends=True)
    return machines.replace_output(
        outputs, "device-nodes", text="".join(line for line in lines if "/dev/char" not in line)
    )


def test_unknown_error_with_systemd_and_without_links_is_the_reload():
    sign = ask("container.cgroup-reload", without_char_links(machines.hgx_h100()), UNKNOWN_ERROR)
    assert sign.confidence == "high"
    assert sign.unseen == ()
    assert any("control groups are systemd's" in one for one in sign.seen)


def test_container_that_loses_its_gpus_by_a_reload():
    outputs = machines.fail(machines.hgx_h100(), "daemon-reload", text=f"{UNKNOWN_ERROR}\n")
    assert ask("container.cgroup-reload", outputs) is not None
    lines = machines.hgx_h100()["daemon-reload"].text.splitlines()
    fewer = machines.replace_output(machines.hgx_h100(), "daemon-reload", text=f"{lines[0]}\n")
    sign = ask("container.cgroup-reload", fewer)
    assert sign.confidence == "high"
    assert sign.seen == ("the container lists 1 GPU after the reload",)


def test_unknown_error_with_the_rootless_setting_is_the_setting():
    outputs = machines.change(machines.hgx_h100(), "toolkit-config", "#no-cgroups = false", "no-cgroups = true")
    report = diagnose(case_of(outputs, UNKNOWN_ERROR))
    assert report.causes[0].diagnosis.id == "container.no-cgroups"
    assert report.causes[0].sign.confidence == "high"


def test_no_cgroups_is_out_of_the_question_where_it_is_off():
    outputs = machines.change(machines.hgx_h100(), "toolkit-config", "#no-cgroups = false", "no-cgroups = false")
    assert ask("container.no-cgroups", text=UNKNOWN_ERROR).confidence == "low"
    assert ask("container.no-cgroups", outputs, UNKNOWN_ERROR) is None


def test_closed_nodes_are_told_from_a_policy():
    text = "open /dev/nvidiactl: Permission denied"
    closed = machines.change(
        machines.hgx_h100(), "device-nodes", "crw-rw-rw- 1 0 0 195, 255", "crw-rw---- 1 0 44 195, 255"
    )
    assert ask("container.device-policy", machines.hgx_h100(), text).confidence == "medium"
    sign = ask("container.device-policy", closed, text)
    assert sign.confidence == "high"
    assert "/dev/nvidiactl has mode 660, owner 0, group 44" in sign.seen


NO_DRIVER = 'could not select device driver "" with capabilities: [[gpu]]'


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param(lambda it: machines.absent(it, "toolkit"), "nvidia-ctk is not installed", id="no-toolkit"),
        pytest.param(
            lambda it: machines.change(
                it, "docker-info", '"nvidia": {"args": [], "path": "nvidia-container-runtime"}', '"x": {}'
            ),
            "docker has no runtime called nvidia",
            id="not-configured",
        ),
    ],
)
def test_missing_toolkit(change, seen):
    sign = ask("container.no-toolkit", change(machines.hgx_h100()), NO_DRIVER)
    assert sign.confidence == "high"
    assert seen in sign.seen


def test_container_probe_that_failed_is_text_enough():
    outputs = machines.fail(machines.hgx_h100(), "container-gpu", 125, error=f"docker: {NO_DRIVER}.\n")
    assert ask("container.no-toolkit", outputs) is not None
    assert ask("container.no-toolkit", machines.hgx_h100()) is None


def test_requirement_names_branch_and_floor():
    text = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver"
    sign = ask("container.cuda-requirement", machines.cloud_a10g(), text)
    assert sign.confidence == "high"
    assert sign.seen[1].startswith("the driver is 535.")
    assert "branch 570 or newer" in sign.fix[0]
    assert "525.60.13" in sign.fix[2]
    assert "--driver 535." in sign.fix[1]
    assert ask("container.cuda-requirement", text=text).unseen == ("the host's driver: `nvidia-smi`",)


def test_requirement_that_the_driver_meets_is_not_proved():
    text = "requirement error: unsatisfied condition: cuda>=12.8"
    assert ask("container.cuda-requirement", machines.hgx_h100(), text).confidence == "medium"


def test_host_driver_is_proved_by_the_missing_module():
    text = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
    outputs = machines.change(machines.hgx_h100(), "modules", "nvidia", "other")
    outputs = machines.fail(outputs, "nvidia-smi-xml", 9)
    assert ask("container.host-driver", outputs, text).confidence == "high"
    assert ask("container.host-driver", machines.hgx_h100(), text).confidence == "low"


def test_stale_specification_needs_no_message():
    outputs = machines.change(machines.hgx_h100(), "cdi", ".580.105.08", ".570.86.10")
    # Where docker has the runtime, nothing need read the specification.
    assert ask("container.stale-cdi", outputs).confidence == "low"
    outputs = machines.replace_output(outputs, "docker-config", text="{}")
    outputs = machines.change(machines.absent(outputs, "containerd-config"), "docker-info", "nvidia", "other")
    sign = ask("container.stale-cdi", outputs)
    assert sign.confidence == "high"
    assert sign.seen == ("/etc/cdi/nvidia.yaml is of driver 570.86.10, 580.105.08 is loaded",)


def test_missing_specification_needs_the_message():
    outputs = machines.replace_output(machines.hgx_h100(), "cdi", text="")
    assert ask("container.stale-cdi", outputs) is None
    sign = ask("container.stale-cdi", outputs, "unresolvable CDI devices nvidia.com/gpu=all")
    assert sign.confidence == "high"


def test_small_shared_memory_of_a_container():
    text = "DataLoader worker (pid 42) is killed by signal: Bus error."
    small = machines.replace_output(
        machines.gpu_container(),
        "file-systems",
        text="Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 100 65436 1% /dev/shm\n",
    )
    assert ask("container.shm", small).confidence == "low"
    sign = ask("container.shm", small, text)
    assert sign.confidence == "high"
    assert "the container's shared memory is 0.0625 GiB for 1 GPU" in sign.seen
    assert ask("container.shm", machines.hgx_h100(), text).confidence == "medium"
    for ending in ("Success (0)", "Resource temporarily unavailable (11)", "No space left on device (28)"):
        said = f"RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: {ending}"
        assert ask("container.shm", small, said).confidence == "high"
        assert ask("container.shm", None, said) is not None


def test_docker_beside_gpus_without_a_toolkit_is_a_note():
    outputs = machines.absent(machines.hgx_h100(), "toolkit", "cdi", "containerd-config")
    outputs = machines.change(
        machines.replace_output(outputs, "docker-config", text="{}"), "docker-info", "nvidia", "x"
    )
    sign = ask("container.no-toolkit", outputs)
    assert sign.confidence == "low"
    assert "docker has no runtime called nvidia" in sign.seen
    described = {**outputs, "cdi": machines.hgx_h100()["cdi"]}
    assert ask("container.no-toolkit", described) is None, "a CDI specification serves as well"
    assert ask("container.no-toolkit", machines.replace_output(outputs, "pci", text="")) is None


def test_bus_error_without_a_word_of_shared_memory_is_as_sure_as_what_is_seen_of_it():
    text = "./train.sh: line 3:  4242 Bus error               (core dumped) python train.py"
    small = machines.replace_output(
        machines.gpu_container(),
        "file-systems",
        text="Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 100 65436 1% /dev/shm\n",
    )
    sign = ask("container.shm", small, text)
    assert (sign.confidence, sign.unseen) == ("high", ())
    roomy = ask("container.shm", machines.hgx_h100(), text)
    assert roomy.confidence == "low"
    assert any("mapped file was cut short" in gap for gap in roomy.unseen)
    alone = ask("container.shm", text=text)
    assert alone.confidence == "medium"
    assert len(alone.unseen) == 2


@pytest.mark.parametrize(
    "text",
    [
        "[ 99.9] pcieport 0000:5c:01.0: PCIe Bus Error: severity=Correctable, type=Physical Layer",
        "Segmentation fault (core dumped)",
        "i2c i2c-1: bus error, retrying",
    ],
    ids=["pcie", "other-signal", "i2c"],
)
def test_other_errors_of_a_bus_and_other_signals_are_not_shared_memory(text):
    assert ask("container.shm", text=text) is None
