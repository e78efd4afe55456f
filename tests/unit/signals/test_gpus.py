"""Adding answers up, and reading the log."""

from __future__ import annotations

import machines
import pytest

from provision.probe.output import Unreadable
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.records import replace
from provision.signals.gpus import (
    FieldReading,
    count_words,
    judge_field,
    judge_gpus,
    list_gpu_devices,
    read_events,
    read_field,
    require_whole_log,
)

A = SmiGpu(pci="0000:18:00.0", minor=0)
B = SmiGpu(pci="0000:2a:00.0", minor=1)


class TestWords:
    @pytest.mark.parametrize(("count", "said"), [(0, "0 GPUs"), (1, "1 GPU"), (8, "8 GPUs")])
    def test_number_and_noun(self, count, said):
        assert count_words(count, "GPU") == said

    def test_irregular_noun(self):
        assert count_words(2, "mismatch", "mismatches") == "2 mismatches"


class TestReadField:
    def test_value(self):
        assert read_field(SmiGpu(pci="a", remap_failure=False), "remap_failure") == (False, "")

    @pytest.mark.parametrize("field", ["remap_failure", "throttle", "processes"])
    def test_reasons_for_absence_also_of_lists(self, field):
        assert read_field(SmiGpu(pci="a", unsupported=frozenset({field})), field) == (None, "unsupported")
        assert read_field(SmiGpu(pci="a", broken=frozenset({field})), field) == (None, "broken")

    def test_field_that_the_driver_does_not_have(self):
        assert read_field(A, "recovery_action") == (None, "absent")

    def test_empty_list_is_an_answer(self):
        assert read_field(A, "throttle") == ((), "")


class TestJudge:
    def judge(self, *readings):
        return judge_gpus(readings, fine="all well", expected="well")

    def test_nothing_is_unknown(self):
        assert self.judge().status == "unknown"

    def test_fault_wins_over_everything(self):
        outcome = self.judge(
            FieldReading(A, None, "", "broken"), FieldReading(B, False, "is bad"), FieldReading(B, False, "is worse")
        )
        assert outcome.status == "fail"
        assert outcome.seen == "GPU 1 (0000:2a:00.0) is bad; GPU 1 (0000:2a:00.0) is worse"
        assert outcome.subjects == ("GPU 1 (0000:2a:00.0)",)
        assert outcome.expected == "well"

    def test_broken_answer_wins_over_a_fine_one(self):
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(B, None, "", "broken"))
        assert outcome.status == "unknown"
        assert "GPU 1" in outcome.seen

    def test_fine_answers_pass(self):
        assert self.judge(FieldReading(A, True, ""), FieldReading(B, True, "")).seen == "all well"

    def test_gpus_of_other_models_without_an_answer_are_counted_in_the_pass(self):
        other = replace(B, name="another")
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(other, None, "", "unsupported"))
        assert outcome.status == "pass"
        assert "1 of 2 GPUs" in outcome.seen

    @pytest.mark.parametrize("absence", ["unsupported", "absent"])
    def test_gpu_that_says_less_than_others_of_its_model_is_unknown(self, absence):
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(B, None, "", absence))
        assert outcome.status == "unknown"
        assert outcome.seen.startswith("GPU 1 (0000:2a:00.0)")

    def test_each_question_is_compared_alone(self):
        outcome = self.judge(
            FieldReading(A, True, "", "", "x"),
            FieldReading(A, True, "", "", "y"),
            FieldReading(B, True, "", "", "x"),
            FieldReading(B, None, "", "unsupported", "y"),
        )
        assert outcome.status == "unknown"

    def test_gpu_that_mig_divides_may_say_less(self):
        divided = replace(B, mig_current=True)
        whole = replace(A, mig_current=False)
        assert (
            self.judge(FieldReading(whole, True, ""), FieldReading(divided, None, "", "unsupported")).status == "pass"
        )

    def test_fault_of_another_gpu_is_told_before_silence(self):
        assert self.judge(FieldReading(A, False, "is bad"), FieldReading(B, None, "", "absent")).status == "fail"

    def test_second_field_without_an_answer_is_no_gpu_without_one(self):
        outcome = self.judge(FieldReading(A, True, ""), FieldReading(A, None, "", "absent"))
        assert outcome.seen == "all well"

    def test_what_the_gpus_do_not_have_is_skipped(self):
        outcome = self.judge(FieldReading(A, None, "", "unsupported"))
        assert (outcome.status, outcome.seen) == ("skip", "these GPUs do not have it")

    def test_what_the_listing_lacks_is_unknown(self):
        assert self.judge(FieldReading(A, None, "", "absent")).status == "unknown"

    def test_what_an_older_driver_does_not_tell_is_skipped(self):
        outcome = judge_gpus([FieldReading(A, None, "", "absent")], fine="x", expected="x", is_told=False)
        assert (outcome.status, outcome.seen) == ("skip", "this driver does not report it")

    def test_one_field_of_all(self):
        gpus = [SmiGpu(pci="a", minor=0, retired_single=1), SmiGpu(pci="b", minor=1, retired_single=5)]
        outcome = judge_field(
            gpus, "retired_single", lambda pages: f"has {pages}" if pages > 3 else None, fine="few", expected="few"
        )
        assert outcome.seen == "GPU 1 (b) has 5"


class TestDevices:
    def test_gpus_on_the_bus_in_its_order(self):
        found = list_gpu_devices(machines.snapshot(machines.hgx_h100()))
        assert len(found) == 8
        assert found[3].address == "0000:5d:00.0"


class TestEvents:
    def test_events_of_the_asked_kinds(self):
        outputs = machines.kernel_line(
            machines.hgx_h100(), "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."
        )
        host = machines.snapshot(outputs)
        assert [event.code for event in read_events(host, "xid")] == [79]
        assert read_events(host, "sxid") == ()

    def test_empty_log_is_no_silence(self):
        outputs = machines.replace_output(machines.hgx_h100(), "kernel-log", text="")
        with pytest.raises(Unreadable, match="holds no line"):
            read_events(machines.snapshot(outputs), "xid")

    def test_log_that_does_not_reach_back_to_boot_is_no_silence(self):
        outputs = machines.replace_output(
            machines.hgx_h100(),
            "kernel-log",
            text="[900000.0] NVRM: loading\n[900001.0] NVRM: Xid (PCI:0000:5d:00): 13",
        )
        host = machines.snapshot(outputs)
        assert [event.code for event in read_events(host, "xid")] == [13]
        with pytest.raises(Unreadable, match="does not hold all since boot"):
            read_events(host, "sxid")
        with pytest.raises(Unreadable, match="does not hold all since boot"):
            require_whole_log(host)
        require_whole_log(machines.snapshot(machines.hgx_h100()))
