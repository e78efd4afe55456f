"""The stand-in machines say what they claim to say, in texts that every parser reads."""

from __future__ import annotations

import machines
import pytest

from provision.matrix.load import Matrix
from provision.probe.catalogue import PROBES
from provision.probe.output import OK, STATUSES, Unreadable
from provision.probe.snapshot import Snapshot
from provision.resolve.request import parse_request
from provision.resolve.solve import solve

PROPERTIES = [name for name, value in vars(Snapshot).items() if isinstance(value, property)]


@pytest.fixture(scope="module", params=sorted(machines.MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_probe_has_an_output(machine: str) -> None:
    outputs = machines.MACHINES[machine]()
    assert list(outputs) == list(PROBES)
    for probe, output in outputs.items():
        assert output.probe == probe
        assert output.status in STATUSES
        assert output.status == OK or not output.text
        assert output.text == "" or output.text.endswith("\n")


def test_every_output_is_read_by_its_parser(machine: str) -> None:
    outputs = machines.MACHINES[machine]()
    host = machines.snapshot(outputs)
    asked = []
    for name in PROPERTIES:
        try:
            getattr(host, name)
        except Unreadable as error:
            assert outputs[error.probe].status != OK, f"{name}: {error.reason}"
        else:
            asked.append(name)
    assert len(asked) == sum(output.status == OK for output in outputs.values())


COUNTS = {
    "hgx_h100": (8, 4, 8, "580.105.08"),
    "hgx_a100": (8, 6, 8, "535.274.02"),
    "cloud_a10g": (1, 0, 0, "535.274.02"),
    "workstation_rtx4090": (1, 0, 0, "570.195.03"),
    "l40s_pcie": (2, 0, 0, "580.105.08"),
    "gpu_container": (1, 0, 0, "580.105.08"),
    "old_p100": (2, 0, 0, "470.256.02"),
}


@pytest.mark.parametrize(("name", "counts"), COUNTS.items(), ids=COUNTS)
def test_all_probes_count_alike(name: str, counts: tuple[int, int, int, str]) -> None:
    gpus, switches, cards, driver = counts
    outputs = machines.MACHINES[name]()
    host = machines.snapshot(outputs)
    assert sum(device.is_nvidia_gpu for device in host.pci) == gpus
    assert sum(device.is_nvswitch for device in host.pci) == switches
    assert len(host.rdma_ports) == cards
    assert (len(host.smi.gpus), host.smi.attached, host.smi.driver_version) == (gpus, gpus, driver)
    assert [gpu.pci for gpu in host.smi.gpus] == [device.address for device in host.pci if device.is_nvidia_gpu]
    assert [gpu.uuid for gpu in host.smi.gpus] == [state.uuid for state in host.nvlinks]
    assert len(host.driver_gpus) == gpus
    assert host.driver.version == driver
    assert host.torch.device_count == gpus
    assert sum(node.path.removeprefix("/dev/nvidia").isdigit() for node in host.device_nodes) == gpus
    assert machines.EXPECTED[name].gpus == gpus
    assert not any(gpu.broken for gpu in host.smi.gpus)


def test_a_machine_without_gpu_has_none_anywhere() -> None:
    host = machines.snapshot(machines.cpu_only())
    assert not any(device.vendor == "10de" for device in host.pci)
    assert not [probe for probe in ("nvidia-smi-xml", "driver-version", "nvcc", "cdi", "toolkit") if host.has(probe)]
    assert host.torch.error
    assert machines.EXPECTED["cpu_only"].gpus == 0


def test_expectations_name_all_machines() -> None:
    assert set(machines.EXPECTED) == set(machines.MACHINES)


def test_the_stack_of_the_board_is_one_that_resolves() -> None:
    stack = solve(parse_request({"torch": "2.8", "gpu": ["h100"]}), Matrix())
    expected = machines.EXPECTED["hgx_h100"]
    assert expected.cuda == stack.cuda
    assert expected.cudnn == stack.cudnn
    assert expected.nccl == stack.nccl
    assert expected.frameworks == stack.frameworks
    assert expected.sm == stack.sm
    assert machines.snapshot(machines.hgx_h100()).nvcc.release == stack.cuda


def test_a_change_that_changes_nothing_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="is not in what uname printed"):
        machines.change(machines.hgx_h100(), "uname", "BSD", "Linux")
    with pytest.raises(AssertionError, match="is not said of GPU 0"):
        machines.xml_gpu(machines.hgx_h100(), 0, "<nothing>", "")
    with pytest.raises(AssertionError, match="there are 8 GPUs"):
        machines.xml_gpu(machines.hgx_h100(), 8, "<uuid>", "")


def test_changes_leave_the_machine_they_started_from() -> None:
    outputs = machines.hgx_h100()
    machines.change(outputs, "uname", "6.8.0-87", "6.8.0-90")
    machines.kernel_line(outputs, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")
    machines.fail(outputs, "nvidia-smi-xml", code=9, error="no driver")
    machines.absent(outputs, "nvcc")
    assert outputs == machines.hgx_h100()


def test_a_line_of_the_kernel_becomes_an_event() -> None:
    outputs = machines.kernel_line(
        machines.hgx_h100(), "NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=python, GPU has fallen off the bus."
    )
    assert [
        (event.kind, event.code) for event in machines.snapshot(outputs).kernel_log.events if event.kind == "xid"
    ] == [("xid", 79)]
    assert machines.snapshot(machines.hgx_h100()).kernel_log.events == ()


def test_a_failed_probe_tells_its_code_and_words() -> None:
    outputs = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", code=9, error="cannot talk to the driver")
    with pytest.raises(Unreadable, match="ended with 9: cannot talk to the driver"):
        _ = machines.snapshot(outputs).smi
    hung = machines.fail(machines.hgx_h100(), "nvidia-smi-xml", status="hung")
    assert hung["nvidia-smi-xml"].code is None
    with pytest.raises(Unreadable, match="did not answer in time"):
        _ = machines.snapshot(hung).smi
