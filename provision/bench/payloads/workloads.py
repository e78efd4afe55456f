"""Time small workloads with PyTorch and print an event a line; runs with the Python of what is measured.

usage: workloads.py '{"device": "auto", "seconds": 2.0, "warmup": 10, "cases": [{"id": "…", "kind": "gemm", …}]}'

Nothing is downloaded: every network is made here, from seeded random numbers. A case is warmed up, then repeated until
its time is used up; each repetition is timed by itself, on a GPU with events.
"""

import contextlib
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import time

MARKER = "@provision-payload "
TEXT_MAX = 400
# A repetition that alone takes longer than the time of its case is repeated less often.
REPEATS_LONG, REPEATS_MIN, REPEATS_MAX = 3, 5, 1000
# Where nvidia-smi lies when it is not on PATH: what engines and GKE put into a container.
FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin")
QUERY = ("clocks.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu")
# The field was renamed; an nvidia-smi knows the new name, the old one, or both.
REASONS = ["clocks_event_reasons.active", "clocks_throttle_reasons.active", None]
HUNG = []
SLOT = ("pcie.link.gen.max", "pcie.link.width.max")
DEVICES = "/sys/bus/pci/devices"
# What slows a GPU down without being the program's own doing: everything but idle, applications' clocks and sync boost.
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal, software",
    0x40: "thermal",
    0x80: "power brake",
}
# What PyTorch and the libraries beneath it say when memory runs out.
FULL = ("out of memory", "_STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")


def tell(event, **fields):
    """Print one event."""
    print(MARKER + json.dumps(dict(fields, event=event)), flush=True)


def say(error):
    """Return an exception as one line."""
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split()))[:TEXT_MAX]


def find_tool():
    """Return the path of nvidia-smi, or None."""
    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=os.pathsep.join(FOLDERS))


def ask_tool(*words):
    """Return what nvidia-smi says of the first GPU, a cell for each word; none where it does not."""
    tool = find_tool()
    if not tool or HUNG:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = [tool, "--query-gpu=" + ",".join(words), "--format=csv,noheader,nounits", "-i", visible]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        # It would hang again, before and after each case.
        HUNG.append(tool)
        return []
    except OSError:
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    cells = [cell.strip() for cell in lines[0].split(",")] if done.returncode == 0 and lines else []
    return cells if len(cells) == len(words) else []


def look_at_clocks():
    """Return clocks in MHz, power in W, temperature in °C, and what slows the GPU down."""
    cells = []
    for name in list(REASONS):
        cells = ask_tool(*QUERY + ((name,) if name else ()))
        if cells:
            REASONS[:] = [name]
            break
    found = {}
    for name, cell in zip(("sm_mhz", "memory_mhz", "power_w", "power_limit_w", "temperature_c"), cells):
        try:
            found[name] = float(cell)
        except ValueError:
            continue
    try:
        active = int(cells[len(QUERY)], 16)
        found["throttled"] = [reason for bit, reason in sorted(THROTTLES.items()) if active & bit]
    except (IndexError, ValueError):
        pass
    return found


def describe_machine(torch, device):
    """Return what the figures hold for."""
    machine = {
        "device": device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "system": "{} {}".format(platform.system(), platform.machine()),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        machine["gpu"] = torch.cuda.get_device_name(device)
        machine["gpus"] = torch.cuda.device_count()
        machine["capability"] = "{}.{}".format(*torch.cuda.get_device_capability(device))
        machine["memory_bytes"] = torch.cuda.get_device_properties(device).total_memory
        machine["cudnn"] = torch.backends.cudnn.version()
        cells = ask_tool("driver_version", "power.limit")
        if cells:
            machine["driver"] = cells[0]
            machine["power_limit_w"] = cells[1]
        # Asked by itself: one field that an nvidia-smi does not know makes it answer none.
        for name, cell in zip(("pcie_generation", "pcie_lanes"), ask_tool(*SLOT)):
            if cell.isdigit():
                machine[name] = int(cell)
    return machine


def choose_device(torch, wanted):
    """Return the device; raises where a GPU is paid for and cannot be used."""
    if wanted == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    has_gpu = os.path.exists("/dev/nvidia0") or bool(ask_tool("name"))
    if wanted == "cuda" or has_gpu:
        why = "PyTorch {} sees no GPU".format(torch.__version__)
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            why = say(error)
        raise SystemExit("{}{}".format("there is a GPU, but " if has_gpu else "", why))
    return torch.device("cpu")


def dtype_of(torch, precision):
    """Return the type tensors have."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)


def set_precision(torch, precision):
    """Allow or forbid TF32, which is a switch and not a type."""
    allowed = precision == "tf32"
    try:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed
    except (AttributeError, RuntimeError):
        # A PyTorch that has only the words that replace the switches, or where somebody set them already.
        word = "tf32" if allowed else "ieee"
        torch.backends.cuda.matmul.fp32_precision = word
        torch.backends.cudnn.conv.fp32_precision = word
        torch.backends.cudnn.rnn.fp32_precision = word


def is_out_of_memory(torch, error):
    """Tell whether an exception says that memory ran out; older versions raise it as any other error."""
    kinds = (getattr(torch, "OutOfMemoryError", None), getattr(torch.cuda, "OutOfMemoryError", None))
    if isinstance(error, (MemoryError, *(kind for kind in kinds if isinstance(kind, type)))):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and any(words in said for words in FULL)


def whose(device, error):
    """Return the owner of the memory that ran out."""
    is_host = device.type != "cuda" or isinstance(error, MemoryError) or "CPUAllocator" in str(error)
    return "machine" if is_host else "GPU"


def free_memory(torch, device):
    """Give back what the last case held, so that it neither fails the next one nor counts as its own."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def make_gemm(torch, device, case):
    """Multiply two square matrices."""
    size, dtype = case["size"], dtype_of(torch, case["precision"])
    left = torch.randn(size, size, device=device, dtype=dtype)
    right = torch.randn(size, size, device=device, dtype=dtype)
    moved = 3 * size * size * left.element_size()
    return lambda: left @ right, {"flop": 2.0 * size**3, "bytes": float(moved), "work": 2.0 * size**3, "unit": "FLOP/s"}


def read_cpus(text):
    """Return the processors of a list as the kernel writes it: 0-3,8."""
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


@contextlib.contextmanager
def beside(device):
    """Run on the processors of the GPU's own socket, so that what is allocated lies there: another socket is slower."""
    before = local = None
    try:
        address = ask_tool("pci.bus_id")[0].lower() if device.type == "cuda" else ""
        # Eight digits of a domain, of which the kernel writes four.
        with open("{}/{}/local_cpulist".format(DEVICES, address[-12:])) as file:
            before = os.sched_getaffinity(0)
            local = read_cpus(file.read()) & before
        if local:
            os.sched_setaffinity(0, local)
    except (AttributeError, IndexError, OSError, ValueError):
        local = None
    try:
        yield
    finally:
        if local:
            os.sched_setaffinity(0, before)


def make_copy(torch, device, case):
    """Copy inside the memory, or between it and the host."""
    count = case["size"] // 4
    source = torch.empty(count, dtype=torch.float32, device=device).fill_(1)
    moved = 8.0 * count
    if case["mode"] == "device":
        target = torch.empty_like(source)
    else:
        with beside(device):
            host = torch.empty(count, dtype=torch.float32, pin_memory=device.type == "cuda").fill_(1)
        source, target = (host, source) if case["mode"] == "h2d" else (source, host)
        moved = 4.0 * count
    return lambda: target.copy_(source, non_blocking=True), {"bytes": moved, "work": moved, "unit": "B/s"}


def make_stream(torch, device, case):
    """Scale and add vectors: a third of an operation for every number that is moved."""
    dtype = dtype_of(torch, case["precision"])
    width = torch.empty(0, dtype=dtype).element_size()
    count = case["size"] // width
    one = torch.ones(count, dtype=dtype, device=device)
    two, out = torch.ones_like(one), torch.empty_like(one)
    facts = {"flop": 2.0 * count, "bytes": 3.0 * count * width, "work": 3.0 * count * width, "unit": "B/s"}
    return lambda: torch.add(one, two, alpha=2.0, out=out), facts


def make_network(torch, device, case):
    """Return a network and one input of it on the device, of convolutional, recurrent or attention blocks.

    The input is made where it is needed: the largest is 25 GB, which a processor needs minutes and memory for.
    """
    nn, batch, size = torch.nn, case["batch"], case["size"]
    if case["kind"] == "cnn":

        class Block(nn.Module):
            """A bottleneck with a short cut."""

            def __init__(self, inner, outer, stride):
                super().__init__()
                first = outer // 2 if stride == 2 else outer
                self.body = nn.Sequential(
                    nn.Conv2d(first, inner, 1, bias=False),
                    nn.BatchNorm2d(inner),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False),
                    nn.BatchNorm2d(inner),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(inner, outer, 1, bias=False),
                    nn.BatchNorm2d(outer),
                )
                self.short = nn.Conv2d(first, outer, 1, stride=stride, bias=False) if stride == 2 else nn.Identity()

            def forward(self, values):
                """Add the block to its input."""
                return torch.relu(self.body(values) + self.short(values))

        stem = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        stem += [nn.MaxPool2d(3, stride=2, padding=1)]
        blocks = [Block(32, 128, 2), Block(32, 128, 1), Block(64, 256, 2), Block(64, 256, 1), Block(128, 512, 2)]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
        return nn.Sequential(*(stem + blocks + head)), torch.randn(batch, 3, size, size, device=device)
    if case["kind"] == "rnn":

        class Recurrent(nn.Module):
            """Two layers of LSTM and a projection."""

            def __init__(self):
                super().__init__()
                self.layers = nn.LSTM(256, 512, num_layers=2, batch_first=True)
                self.head = nn.Linear(512, 256)

            def forward(self, values):
                """Project what comes out at every step."""
                return self.head(self.layers(values)[0])

        return Recurrent(), torch.randn(batch, size, 256, device=device)
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    network = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return network, torch.randn(batch, size, 768, device=device)


def make_step(torch, device, case):
    """Train or run a network once."""
    torch.manual_seed(0)
    network, values = make_network(torch, device, case)
    is_training, precision = case["mode"] == "train", case["precision"]
    network = network.to(device).train(is_training)
    is_mixed = precision in ("fp16", "bf16")
    context = torch.autocast(device.type, dtype=dtype_of(torch, precision), enabled=is_mixed)
    optimizer = None
    if is_training:
        kind = torch.optim.AdamW if case["optimizer"] == "adamw" else torch.optim.SGD
        optimizer = kind(network.parameters(), lr=1e-5)

    def step():
        if optimizer is None:
            with torch.no_grad(), context:
                return network(values)
        optimizer.zero_grad(set_to_none=True)
        with context:
            loss = network(values).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    facts = {
        "work": float(case["batch"]),
        "unit": "samples/s",
        "parameters": sum(p.numel() for p in network.parameters()),
    }
    try:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            step()
        total = counter.get_total_flops()
        # A fused kernel counts as nothing.
        if total:
            facts["flop"] = float(total)
    except Exception as error:
        if is_out_of_memory(torch, error):
            raise
        facts["note"] = "operations are not counted: " + say(error)
    return step, facts


def make_loader(torch, device, case):
    """Hand batches of decoded images from worker processes to the device."""
    size, batch = case["size"], case["batch"]

    class Images(torch.utils.data.Dataset):
        """Images that are made where a file would be decoded."""

        def __len__(self):
            return batch * 100000

        def __getitem__(self, index):
            made = torch.full((3, size + 32, size + 32), float(index % 255))
            return made[:, 16:-16, 16:-16].div(255).sub(0.5)

    loader = torch.utils.data.DataLoader(
        Images(), batch_size=batch, num_workers=case["workers"], pin_memory=device.type == "cuda", prefetch_factor=2
    )
    batches = iter(loader)
    return lambda: next(batches).to(device, non_blocking=True), {"work": float(batch), "unit": "samples/s"}


MAKERS = {
    "gemm": make_gemm,
    "copy": make_copy,
    "stream": make_stream,
    "cnn": make_step,
    "rnn": make_step,
    "transformer": make_step,
    "loader": make_loader,
}


def time_once(torch, device, step):
    """Return the seconds of one repetition."""
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def measure(torch, device, case, seconds, warmup):
    """Return the timings of one case, in seconds, and what was timed."""
    set_precision(torch, case["precision"])
    step, facts = MAKERS[case["kind"]](torch, device, case)
    before = look_at_clocks()
    limit = time.perf_counter() + seconds
    for _ in range(warmup):
        # Waited for: a GPU takes orders faster than it works, and the time would never be used up.
        time_once(torch, device, step)
        if time.perf_counter() > limit:
            break
    taken, limit, least = [], time.perf_counter() + seconds, REPEATS_MIN
    while len(taken) < REPEATS_MAX and (len(taken) < least or time.perf_counter() < limit):
        taken.append(time_once(torch, device, step))
        least = REPEATS_LONG if min(taken) > seconds else REPEATS_MIN
    facts["clocks"] = {"before": before, "after": look_at_clocks()} if before else {}
    if device.type == "cuda":
        facts["memory_bytes"] = torch.cuda.max_memory_allocated(device)
    return taken, facts


def main():
    """Measure what the command line names."""
    plan = json.loads(sys.argv[1])
    try:
        import torch

        device = choose_device(torch, plan["device"])
    except (Exception, SystemExit) as error:
        tell("refused", reason=str(error) if isinstance(error, SystemExit) else say(error))
        return
    tell("machine", machine=describe_machine(torch, device))
    for case in plan["cases"]:
        tell("begin", id=case["id"])
        try:
            taken, facts = measure(torch, device, case, plan["seconds"], plan["warmup"])
        except Exception as error:
            if is_out_of_memory(torch, error):
                tell("skipped", id=case["id"], reason="does not fit in the {}'s memory".format(whose(device, error)))
            else:
                tell("failed", id=case["id"], reason=say(error))
        else:
            tell("case", id=case["id"], seconds=taken, facts=facts)
        free_memory(torch, device)
    tell("end")


if __name__ == "__main__":
    main()
