"""What verify answers and what doctor names rest on the same judgement, whatever is wrong with a machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import machines
import pytest
from contradictions import CAUSES, MATRIX, contradictions
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.probe.output import Output


def test_every_signal_that_a_cause_names_is_a_check() -> None:
    assert {name.partition("/")[0] for names in CAUSES.values() for name in names} <= set(MATRIX.checks)


_VALUE = re.compile(r"<(\w+)>[^<>]*[^<>\s][^<>]*</\1>")
_NUMBER = re.compile(r"\d+")
_SAID = ("N/A", "Requested functionality has been deprecated", "Unknown Error", "GPU is lost", "ERR!", "0", "1", "95")
_STATUSES = ("absent", "denied", "hung", "cut", "failed", "not-run")


_VITAL = ("gpu_temp", "total", "performance_state", "power_draw", "instant_power_draw", "sm_clock", "gpu_util")


def silence(outputs: Mapping[str, Output], index: int, elements: Iterable[str]) -> dict[str, Output]:
    """Let one GPU say `N/A` of some elements."""
    head, *blocks = outputs["nvidia-smi-xml"].text.split("<gpu id=")
    index %= len(blocks)
    for element in elements:
        blocks[index] = re.sub(rf"<{element}>[^<>]+</{element}>", f"<{element}>N/A</{element}>", blocks[index])
    return {**machines.replace_output(outputs, "nvidia-smi-xml", text="<gpu id=".join((head, *blocks)))}


def test_a_gpu_that_hides_its_temperature_and_memory_is_not_lost_for_one_and_well_for_the_other() -> None:
    outputs = silence(machines.hgx_h100(), 3, ("gpu_temp", "total"))
    host = machines.snapshot(outputs)
    assert contradictions(outputs) == []
    assert "gpu.lost" not in {finding.diagnosis.id for finding in diagnose(Case(MATRIX, host)).causes}


@pytest.mark.parametrize("name", sorted(machines.MACHINES))
def test_a_healthy_machine_is_judged_alike(name: str) -> None:
    assert contradictions(machines.MACHINES[name]()) == []


@st.composite
def damaged_machines(draw: st.DrawFn) -> dict[str, Output]:
    """Draw a healthy machine with a few things wrong: values of nvidia-smi, lines, numbers, whole probes."""
    outputs = dict(machines.MACHINES[draw(st.sampled_from(sorted(machines.MACHINES)))]())
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("value", "value", "silence", "line", "number", "probe")))
        if kind == "silence" and outputs["nvidia-smi-xml"].text.count("<gpu id="):
            outputs = silence(outputs, draw(st.integers(0, 7)), draw(st.sets(st.sampled_from(_VITAL), min_size=1)))
            continue
        readable = sorted(name for name, output in outputs.items() if output.status == "ok" and output.text.strip())
        probe = "nvidia-smi-xml" if kind in ("value", "silence") else draw(st.sampled_from(readable))
        text = outputs[probe].text if probe in outputs else ""
        if kind == "probe":
            outputs[probe] = machines.replace_output(outputs, probe, status=draw(st.sampled_from(_STATUSES)))[probe]
            continue
        if kind == "line":
            lines = text.splitlines(keepends=True)
            del lines[draw(st.integers(0, len(lines) - 1))]
            changed = "".join(lines)
        else:
            places = list((_NUMBER if kind == "number" else _VALUE).finditer(text))
            if not places:
                continue
            place = places[draw(st.integers(0, len(places) - 1))]
            said = str(draw(st.integers(0, 300))) if kind == "number" else draw(st.sampled_from(_SAID))
            new = said if kind == "number" else f"<{place[1]}>{said}</{place[1]}>"
            changed = text[: place.start()] + new + text[place.end() :]
        outputs[probe] = machines.replace_output(outputs, probe, text=changed)[probe]
    return outputs


@settings(max_examples=300)
@given(damaged_machines())
def test_verify_and_doctor_do_not_contradict_each_other_on_a_damaged_machine(outputs: dict[str, Output]) -> None:
    assert contradictions(outputs) == []
