"""The payload that times workloads, with a PyTorch and an nvidia-smi that stand in."""

from __future__ import annotations

import gc
import importlib.util
import json
import stat
import sys
import textwrap
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest

from provision.bench.results import summarise

PAYLOAD = Path(summarise.__code__.co_filename).with_name("payloads") / "workloads.py"
GPU = SimpleNamespace(type="cuda")
CPU = SimpleNamespace(type="cpu")


class OutOfMemoryError(RuntimeError):
    """As PyTorch's own, which is found by its name."""


@pytest.fixture
def payload() -> ModuleType:
    spec = importlib.util.spec_from_file_location("provision_workloads", PAYLOAD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def torch() -> MagicMock:
    """A PyTorch that computes nothing."""
    made = MagicMock()
    made.__version__ = "2.9.0"
    made.cuda.OutOfMemoryError = made.OutOfMemoryError = OutOfMemoryError
    made.cuda.is_available.return_value = True
    made.device.side_effect = lambda kind, index=0: SimpleNamespace(type=kind)
    made.cuda.get_device_name.return_value = "NVIDIA H200"
    made.cuda.get_device_capability.return_value = (9, 0)
    made.cuda.device_count.return_value = made.get_num_threads.return_value = 8
    made.cuda.get_device_properties.return_value.total_memory = 1
    made.cuda.max_memory_allocated.return_value = 7
    made.version.cuda = "13.0"
    made.backends.cudnn.version.return_value = 91300
    made.nn.Module = object
    return made


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Put an nvidia-smi on PATH that knows some fields and no others."""

    def make(folder=None, **fields):
        path = (folder or tmp_path) / "nvidia-smi"
        path.parent.mkdir(parents=True, exist_ok=True)
        body = f"""\
        #!{sys.executable}
        import sys
        known = {fields!r}
        asked = next(word for word in sys.argv if word.startswith("--query-gpu=")).partition("=")[2].split(",")
        missing = [name for name in asked if name.replace(".", "_") not in known]
        if missing:
            print('Field "%s" is not a valid field to query.' % missing[0])
            sys.exit(2)
        print(", ".join(known[name.replace(".", "_")] for name in asked))
        """
        path.write_text(textwrap.dedent(body))
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(tmp_path) if folder is None else "/nowhere")
        return path

    return make


CLOCKS = {
    "clocks_sm": "1980", "clocks_mem": "3201", "power_draw": "[N/A]", "power_limit": "700.00", "temperature_gpu": "41",
}  # fmt: skip


def _tell(monkeypatch, payload):
    told = []
    monkeypatch.setattr(payload, "tell", lambda event, **fields: told.append((event, fields)))
    return told


def _run(monkeypatch, payload, torch, make, *, seconds=0.01, warmup=1, kinds=("gemm",)):
    """Run one case of each kind and return the events."""
    told = _tell(monkeypatch, payload)
    cases = [{"id": f"{kind}/{place}", "kind": kind, "precision": "bf16"} for place, kind in enumerate(kinds)]
    plan = {"device": "auto", "seconds": seconds, "warmup": warmup, "cases": cases}
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "argv", ["workloads.py", json.dumps(plan)])
    monkeypatch.setattr(payload, "MAKERS", dict.fromkeys(kinds, make))
    monkeypatch.setattr(payload, "ask_tool", lambda *words: [])
    monkeypatch.setattr(payload, "time_once", lambda torch, device, step: step())
    payload.main()
    return [event for event in told if event[0] not in {"begin", "machine"}]


class TestMemory:
    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (OutOfMemoryError("CUDA out of memory. Tried to allocate 80 GiB"), "does not fit in the GPU's memory"),
            (RuntimeError("CUDA error: out of memory"), "does not fit in the GPU's memory"),
            (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "does not fit in the GPU's memory"),
            (MemoryError(), "does not fit in the machine's memory"),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "does not fit in the machine's memory"),
        ],
        ids=["torch", "older-torch", "cudnn", "python", "processor"],
    )
    def test_a_case_that_does_not_fit_is_skipped(self, monkeypatch, payload, torch, error, reason):
        def make(*_):
            raise error

        assert _run(monkeypatch, payload, torch, make) == [
            ("skipped", {"id": "gemm/0", "reason": reason}),
            ("end", {}),
        ]

    def test_another_error_is_a_failure(self, monkeypatch, payload, torch):
        def make(*_):
            raise RuntimeError("an illegal memory access was encountered")

        assert _run(monkeypatch, payload, torch, make)[0][0] == "failed"

    def test_what_a_case_held_is_gone_before_memory_is_given_back(self, monkeypatch, payload, torch):
        held, seen = [], []

        class Tensor:
            def __init__(self):
                self.itself = self

        def make(*_):
            tensor = Tensor()
            held.append(weakref.ref(tensor))
            raise OutOfMemoryError

        torch.cuda.empty_cache.side_effect = lambda: seen.append(held[-1]())
        gc.disable()
        try:
            _run(monkeypatch, payload, torch, make)
        finally:
            gc.enable()
        assert seen == [None]

    def test_the_peak_of_a_case_that_failed_is_not_that_of_the_next(self, monkeypatch, payload, torch):
        order = []
        torch.cuda.reset_peak_memory_stats.side_effect = lambda device: order.append("reset")
        torch.cuda.max_memory_allocated.side_effect = lambda device: order.append("asked") or 7

        def make(torch, device, case):
            if case["kind"] == "cnn":
                raise OutOfMemoryError
            return lambda: 1.0, {"work": 1.0, "unit": "B/s"}

        events = _run(monkeypatch, payload, torch, make, kinds=("cnn", "gemm"))
        assert [event for event, _ in events] == ["skipped", "case", "end"]
        assert order == ["reset", "asked", "reset"]

    def test_a_network_that_does_not_fit_is_not_taken_for_uncounted_operations(self, monkeypatch, payload, torch):
        counter = ModuleType("torch.utils.flop_counter")
        counter.FlopCounterMode = lambda display: nullcontext(MagicMock())
        for name, module in (("torch", torch), ("torch.utils", torch.utils), (counter.__name__, counter)):
            monkeypatch.setitem(sys.modules, name, module)
        torch.no_grad, torch.autocast = nullcontext, lambda *_, **__: nullcontext()
        torch.nn.TransformerEncoder.return_value.to.return_value.train.return_value.side_effect = OutOfMemoryError
        case = {"kind": "transformer", "batch": 2, "size": 3, "mode": "infer", "precision": "fp32"}
        with pytest.raises(OutOfMemoryError):
            payload.make_step(torch, GPU, case)

    @pytest.mark.parametrize("kind", ["cnn", "rnn", "transformer"])
    def test_the_input_of_a_network_is_made_on_the_device(self, payload, torch, kind):
        payload.make_network(torch, GPU, {"kind": kind, "batch": 2048, "size": 1024})
        ((shape, where),) = torch.randn.call_args_list
        assert shape[0] == 2048
        assert where == {"device": GPU}


class TestRepetitions:
    def _measure(self, monkeypatch, payload, torch, step_seconds, *, seconds=1.0, warmup=10):
        clock = SimpleNamespace(now=0.0, steps=0)

        def once(*_):
            clock.now += step_seconds
            clock.steps += 1
            return step_seconds

        monkeypatch.setattr(payload, "time", SimpleNamespace(perf_counter=lambda: clock.now))
        monkeypatch.setattr(payload, "time_once", once)
        monkeypatch.setattr(payload, "ask_tool", lambda *words: [])
        monkeypatch.setitem(payload.MAKERS, "gemm", lambda *_: (None, {}))
        taken, _ = payload.measure(torch, GPU, {"kind": "gemm", "precision": "bf16"}, seconds, warmup)
        return len(taken), clock.steps - len(taken)

    @pytest.mark.parametrize(
        ("step_seconds", "counts"),
        [(12.0, (3, 1)), (0.5, (5, 3)), (0.125, (8, 9)), (1e-4, (1000, 10))],
        ids=["longer-than-the-time", "half-of-it", "short", "very-short"],
    )
    def test_a_long_case_is_repeated_and_warmed_up_less_often(self, monkeypatch, payload, torch, step_seconds, counts):
        assert self._measure(monkeypatch, payload, torch, step_seconds) == counts

    def test_a_warm_up_is_waited_for(self, monkeypatch, payload, torch):
        """A step that only gives orders returns at once; the time is used up by what the GPU does."""
        assert self._measure(monkeypatch, payload, torch, 12.0, warmup=10)[1] == 1

    def test_no_warm_up_is_none(self, monkeypatch, payload, torch):
        assert self._measure(monkeypatch, payload, torch, 12.0, warmup=0)[1] == 0


class TestTool:
    def test_the_slot_is_told(self, payload, torch, tool):
        tool(driver_version="580.95", power_limit="700.00", pcie_link_gen_max="5", pcie_link_width_max="16")
        machine = payload.describe_machine(torch, GPU)
        assert (machine["pcie_generation"], machine["pcie_lanes"], machine["driver"]) == (5, 16, "580.95")

    def test_a_slot_that_a_virtual_machine_hides_is_left_out(self, payload, torch, tool):
        tool(driver_version="580.95", power_limit="700.00", pcie_link_gen_max="[N/A]", pcie_link_width_max="[N/A]")
        machine = payload.describe_machine(torch, GPU)
        assert machine["driver"] == "580.95"
        assert not {"pcie_generation", "pcie_lanes"} & machine.keys()

    @pytest.mark.parametrize("place", [0, 1])
    def test_it_is_found_where_it_is_not_on_the_path(self, monkeypatch, payload, tool, tmp_path, place):
        folders = [str(tmp_path / "first"), str(tmp_path / "second")]
        tool(folder=Path(folders[place]), name="NVIDIA H200")
        assert payload.ask_tool("name") == []
        monkeypatch.setattr(payload, "FOLDERS", folders)
        assert payload.ask_tool("name") == ["NVIDIA H200"]

    def test_the_usual_folders_are_those_of_containers(self, payload):
        assert payload.FOLDERS == ("/usr/local/nvidia/bin", "/usr/bin")

    @pytest.mark.parametrize("field", ["clocks_event_reasons_active", "clocks_throttle_reasons_active"])
    def test_reasons_are_read_under_the_new_name_and_the_old(self, payload, tool, field):
        tool(**CLOCKS, **{field: "0x0000000000000024"})
        for _ in range(2):
            assert payload.look_at_clocks() == {
                "sm_mhz": 1980.0,
                "memory_mhz": 3201.0,
                "power_limit_w": 700.0,
                "temperature_c": 41.0,
                "throttled": ["power cap", "thermal, software"],
            }

    def test_clocks_are_read_where_no_reason_is_known(self, payload, tool):
        tool(**CLOCKS)
        assert payload.look_at_clocks()["sm_mhz"] == 1980.0

    def test_nothing_is_read_where_it_is_not_there(self, monkeypatch, payload):
        monkeypatch.setattr(payload, "find_tool", lambda: None)
        assert payload.look_at_clocks() == {}


class TestSwitches:
    def test_tf32_is_switched(self, payload, torch):
        payload.set_precision(torch, "tf32")
        assert torch.backends.cuda.matmul.allow_tf32 is True
        payload.set_precision(torch, "fp32")
        assert torch.backends.cudnn.allow_tf32 is False

    @pytest.mark.parametrize("error", [RuntimeError, AttributeError])
    def test_a_pytorch_that_refuses_the_switch_is_told_in_words(self, payload, error):
        class Refusing:
            fp32_precision = "none"

            @property
            def allow_tf32(self):
                raise error

            @allow_tf32.setter
            def allow_tf32(self, value):
                raise error

        matmul, conv, rnn = Refusing(), SimpleNamespace(), SimpleNamespace()
        cudnn = SimpleNamespace(conv=conv, rnn=rnn)
        torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul), cudnn=cudnn))
        payload.set_precision(torch, "tf32")
        assert {matmul.fp32_precision, conv.fp32_precision, rnn.fp32_precision} == {"tf32"}
        payload.set_precision(torch, "fp32")
        assert {matmul.fp32_precision, conv.fp32_precision, rnn.fp32_precision} == {"ieee"}


class TestHostMemory:
    @pytest.fixture
    def cpus(self, monkeypatch, payload, tmp_path):
        """Processors this process may use, and a GPU beside some of them."""
        state = SimpleNamespace(now={0, 1, 2, 3}, seen=[])
        folder = tmp_path / "0000:18:00.0"
        folder.mkdir()
        (folder / "local_cpulist").write_text("2-3,8-11\n")
        monkeypatch.setattr(payload, "DEVICES", str(tmp_path))
        monkeypatch.setattr(payload, "ask_tool", lambda *words: ["00000000:18:00.0"])
        monkeypatch.setattr(payload.os, "sched_getaffinity", lambda pid: set(state.now), raising=False)

        def move(pid, wanted):
            state.now = set(wanted)

        monkeypatch.setattr(payload.os, "sched_setaffinity", move, raising=False)
        return state

    def test_it_lies_beside_the_gpu_and_the_process_goes_back(self, payload, cpus):
        with payload.beside(GPU):
            assert cpus.now == {2, 3}
        assert cpus.now == {0, 1, 2, 3}

    def test_it_lies_anywhere_where_the_gpu_is_beside_none_that_may_be_used(self, payload, cpus):
        cpus.now = {0, 1}
        with payload.beside(GPU):
            assert cpus.now == {0, 1}

    def test_a_machine_that_does_not_tell_is_left_alone(self, monkeypatch, payload, cpus):
        monkeypatch.setattr(payload, "ask_tool", lambda *words: [])
        with payload.beside(GPU), payload.beside(CPU):
            assert cpus.now == {0, 1, 2, 3}

    def test_the_process_goes_back_after_an_error(self, payload, cpus):
        with pytest.raises(MemoryError), payload.beside(GPU):
            raise MemoryError
        assert cpus.now == {0, 1, 2, 3}

    def test_copies_take_it(self, monkeypatch, payload, torch, cpus):
        torch.empty.side_effect = lambda *_, **given: cpus.seen.append((given, set(cpus.now))) or MagicMock()
        payload.make_copy(torch, GPU, {"size": 8, "mode": "h2d"})
        ((given, now),) = [(given, now) for given, now in cpus.seen if given.get("pin_memory")]
        assert given["pin_memory"] is True
        assert now == {2, 3}
