"""What the facts tell people to do: in an order that mends the machine and leaves nothing stopped."""

from __future__ import annotations

import re

import machines
import pytest

from provision.doctor.case import Case
from provision.doctor.engine import rule_of
from provision.matrix.load import Matrix

MATRIX = Matrix()
ADVICE = {name: row.fix for name, row in MATRIX.diagnoses.items()} | {
    f"{name} (check)": (row.remedy,) for name, row in MATRIX.checks.items()
}
MANAGER = "nvidia-fabricmanager"


def commands_of(steps) -> list[str]:
    return [command for step in steps for command in step.split("`")[1::2]]


def systemctl(command: str, *verbs: str) -> set[str]:
    """Return the services a command does one of some things to."""
    words = command.split()
    return set(words[2:]) if words[:1] == ["systemctl"] and words[1:2] and words[1] in verbs else set()


@pytest.mark.parametrize("name", ADVICE)
def test_what_is_stopped_is_started_again_afterwards(name) -> None:
    commands = commands_of(ADVICE[name])
    for place, command in enumerate(commands):
        later = [systemctl(after, "start", "restart", "enable") for after in commands[place + 1 :]]
        for service in systemctl(command, "stop"):
            assert any(service in started for started in later), f"{service} stays stopped"


@pytest.mark.parametrize("name", ADVICE)
def test_fabric_manager_starts_only_after_the_gpus_were_reset(name) -> None:
    commands = commands_of(ADVICE[name])
    assert not any(MANAGER in systemctl(command, "restart") for command in commands)
    stopped = None
    for place, command in enumerate(commands):
        if MANAGER in systemctl(command, "stop"):
            stopped = place
        if MANAGER in systemctl(command, "start", "enable") and stopped is not None:
            between = commands[stopped + 1 : place]
            is_fresh = "nvidia-smi --gpu-reset" in between or any(word.startswith("rmmod ") for word in between)
            assert is_fresh, "no reset in between"


@pytest.mark.parametrize("name", ADVICE)
def test_gpus_are_reset_together_while_fabric_manager_is_stopped(name) -> None:
    is_stopped = False
    for command in commands_of(ADVICE[name]):
        if MANAGER in systemctl(command, "stop"):
            is_stopped = True
        if MANAGER in systemctl(command, "start", "enable"):
            is_stopped = False
        assert not (is_stopped and "--gpu-reset -i" in command)


@pytest.mark.parametrize("name", ADVICE)
def test_power_limits_are_set_on_one_gpu(name) -> None:
    for command in commands_of(ADVICE[name]):
        assert " -pl" not in command or " -i INDEX" in command


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"-d PCIE\b", id="no-such-display"),
        pytest.param(r"reset all GPUs together", id="true-before-ampere-only"),
        pytest.param(r"nvidia-firmware-\d+-server(?!-\d)", id="firmware-package-without-its-version"),
        pytest.param(r"update-initramfs -u(?! -k all)", id="newest-kernel-only"),
        pytest.param(r"dracut -f(?! --regenerate-all)", id="running-kernel-only"),
        pytest.param(r"modprobe -r", id="unloads-more-than-it-names"),
    ],
)
def test_no_advice_holds_a_command_that_is_wrong(pattern) -> None:
    assert [name for name, steps in ADVICE.items() if re.search(pattern, "\n".join(steps))] == []


def test_a_reload_installs_fabric_manager_before_and_starts_everything_after() -> None:
    steps = MATRIX.diagnoses["driver.mismatch"].fix
    words = ["scheduler", "fabric manager in", "systemctl stop", "rmmod", "modprobe", "systemctl start", "apt-mark"]
    places = [next(place for place, step in enumerate(steps) if word in step) for word in words]
    assert places == sorted(set(places))


def test_switches_of_the_fourth_generation_take_their_subnet_manager() -> None:
    for text in ("\n".join(MATRIX.diagnoses["cuda.fabric-not-ready"].fix), MATRIX.checks["fabric.state"].remedy):
        assert "nvlsm" in text
        assert "ib_umad" in text


def fabric_of(outputs):
    return rule_of(MATRIX.diagnoses["cuda.fabric-not-ready"]).examine(Case(MATRIX, machines.snapshot(outputs)))


def stop_manager(outputs, active="failed"):
    text = outputs["units"].text
    changed = re.sub(rf"(Id={MANAGER}\.service\nLoadState=loaded\nActiveState=)active", rf"\g<1>{active}", text)
    assert changed != text
    return machines.replace_output(outputs, "units", text=changed)


def without_manager(outputs):
    text = re.sub(
        rf"(Id={MANAGER}\.service\nLoadState=)loaded\nActiveState=active",
        r"\1not-found\nActiveState=inactive",
        outputs["units"].text,
    )
    return machines.replace_output(outputs, "units", text=text)


def without_switches(outputs):
    pci = "".join(line for line in outputs["pci"].text.splitlines(keepends=True) if "class=0680" not in line)
    return machines.replace_output(outputs, "pci", text=pci)


class TestFabric:
    def test_a_stopped_manager_is_found_where_the_switches_do_not_show(self):
        sign = fabric_of(stop_manager(machines.hgx_b200()))
        assert sign.confidence == "high"
        assert f"`{MANAGER}` is failed" in sign.seen
        assert any("nvlsm" in step for step in sign.fix)
        assert "modprobe ib_umad" in commands_of(sign.fix)

    def test_gpus_that_were_set_up_are_reset_before_it_starts_again(self):
        commands = commands_of(fabric_of(stop_manager(machines.hgx_h100())).fix)
        assert commands.index("nvidia-smi --gpu-reset") < commands.index(f"systemctl enable --now {MANAGER}")
        assert "modprobe ib_umad" not in commands

    def test_gpus_that_never_were_need_no_reset(self):
        outputs = stop_manager(machines.hgx_h100(), "inactive")
        outputs = machines.change(outputs, "nvidia-smi-xml", "<state>Completed", "<state>In Progress")
        assert commands_of(fabric_of(outputs).fix) == [f"systemctl enable --now {MANAGER}"]

    def test_a_guest_whose_host_runs_the_manager_lacks_nothing(self):
        outputs = without_manager(without_switches(machines.hgx_h100()))
        outputs = machines.change(outputs, "virtualization", "kind=none", "kind=kvm")
        assert fabric_of(outputs) is None
        waiting = machines.change(outputs, "nvidia-smi-xml", "<state>Completed", "<state>In Progress")
        assert fabric_of(waiting).confidence == "high"

    def test_a_tray_of_a_rack_is_sent_to_its_switch_trays(self):
        outputs = machines.change(machines.hgx_h100(), "nvidia-smi-xml", "NVIDIA H100 80GB HBM3", "NVIDIA GB200")
        outputs = machines.change(without_switches(outputs), "nvidia-smi-xml", "<state>Completed", "<state>In Progress")
        outputs = machines.replace_output(
            outputs, "pci", text=outputs["pci"].text.replace("device=2330", "device=2941")
        )
        sign = fabric_of(outputs)
        assert any("switch trays" in step for step in sign.fix)
        assert MANAGER not in "\n".join(sign.fix)


def silence(outputs, number: int, word: str = "N/A"):
    """Let one GPU be listed and tell nothing but what it is."""
    parts = re.split(r"(?=<gpu id=)", outputs["nvidia-smi-xml"].text)
    kept = ("product_name", "product_architecture", "minor_number", "uuid", "pci_bus_id")
    parts[number + 1] = re.sub(
        r"<(\w+)>([^<>\s][^<>]*)</\1>",
        lambda match: match[0] if match[1] in kept else f"<{match[1]}>{word}</{match[1]}>",
        parts[number + 1],
    )
    return machines.replace_output(outputs, "nvidia-smi-xml", text="".join(parts))


class TestLost:
    @staticmethod
    def ask(outputs):
        return rule_of(MATRIX.diagnoses["gpu.lost"]).examine(Case(MATRIX, machines.snapshot(outputs)))

    @pytest.mark.parametrize("word", ["N/A", "[N/A]", "Unknown Error", "ERR!"])
    def test_one_that_answers_nothing_beside_good_ones_is_lost(self, word):
        sign = self.ask(silence(machines.hgx_h100(), 3, word))
        assert sign.confidence == "high"
        (subject,) = sign.subjects
        assert subject.startswith("GPU 3 (")

    def test_models_that_never_tell_are_not(self):
        assert self.ask(machines.gb10()) is None
        assert self.ask(machines.mixed_gpus()) is None
