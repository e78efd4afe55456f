"""A stand-in of the python3 of a machine with PyTorch: its scripts answer as there, all others run as they are."""

import importlib.util
import json
import os
import random
import re
import runpy
import sys
import sysconfig
from collections import namedtuple
from pathlib import Path

FOLDER = Path(sys.argv[1])
WORDS = sys.argv[2:]
SITE = FOLDER / "site"
FACTS = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))
PLANTS = FACTS["plants"]
GIB = 1 << 30
WIDTH = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}
TFLOPS = {"bf16": FACTS["tflops"], "fp16": FACTS["tflops"] * 0.97, "tf32": 402.0, "fp32": 51.0}
COPIES = {"device": 2.61e12, "h2d": FACTS["copy_gb_s"] * 1e9, "d2h": (FACTS["copy_gb_s"] - 0.3) * 1e9}
# Network → operations of a sample that runs through, the size at which it has them, how they grow with it, the TFLOPS
# that are reached in BF16, and the parameters. Training takes three times as many.
NETWORKS = {
    "cnn": (1.0e9, 224, 2, 60.0, 1_100_000),
    "rnn": (4.9e8, 64, 1, 45.0, 3_800_000),
    "transformer": (7.3e9, 128, 1, 260.0, 28_400_000),
}
OF_BF16 = {"bf16": 1.0, "fp16": 0.98, "tf32": 0.55, "fp32": 0.2}
LOADED = 2900.0


def split(words):
    """Return the code of -c, or the script, and the words after it; nothing where there is neither."""
    words = list(words)
    while words:
        word = words.pop(0)
        if word in ("-X", "-W"):
            words.pop(0)
        elif word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return words[0], None, words[1:]
        elif not word.startswith("-"):
            return None, word, words
        elif word == "-m":
            break
    return None, None, []


def become(first):
    """Let this interpreter be the machine's."""
    version = namedtuple("version_info", "major minor micro releaselevel serial")
    sys.version_info = version(*map(int, FACTS["python"].split(".")), "final", 0)
    sys.version = re.sub(r"^\S+", FACTS["python"], sys.version)
    sys.executable = str(FOLDER / "bin" / "python3")
    sys.prefix = sys.exec_prefix = str(FOLDER)
    sys.path[:] = [first, *(path for path in sys.path if path != str(Path(__file__).parent)), str(SITE)]
    asked = sysconfig.get_path
    sysconfig.get_path = lambda name, *rest, **more: (
        str(SITE) if name in ("purelib", "platlib") else asked(name, *rest, **more)
    )
    if "ignores-visible" in PLANTS:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def load(script):
    """Return a script as a module, so that a part of it can be another."""
    spec = importlib.util.spec_from_file_location("script", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work(script):
    """Answer for torch_work.py: what it measures is made up, how it tells so is its own."""
    module = load(script)
    row = json.loads((FOLDER / "said" / "torch-work").read_text(encoding="utf-8").partition(" ")[2])["gpus"][0]
    module.References = lambda torch: None
    module.Gpu.work = lambda gpu: row
    print("\n" + module.MARKER + json.dumps(module.work()))


def measure_workloads(script):
    """Answer for workloads.py, likewise."""
    module = load(script)
    runs = count_runs("bench", sorted({case["kind"] for case in json.loads(sys.argv[1])["cases"]}))
    draw = random.Random(f"{sorted(runs.items())}")  # noqa: S311 - noise

    def measure(torch, device, case, seconds, warmup, *_):
        facts = facts_of(case)
        usual = facts["work"] / rate_of(case, facts) * draw.uniform(0.99, 1.01)
        is_second = runs[case["kind"]] % 2 == 0 and case["kind"] not in ("gemm", "copy")
        if "noisy-bench" in PLANTS and is_second:
            usual *= 1.3
        repeats = min(module.REPEATS_MAX, max(module.REPEATS_MIN, int(seconds / usual)))
        facts["clocks"] = {"before": module.look_at_clocks(), "after": module.look_at_clocks()}
        facts["memory_bytes"] = 2 * GIB
        return [usual * draw.gauss(1, 0.003) for _ in range(repeats)], facts

    module.measure = measure
    module.main()


def count_runs(name, keys):
    """Return how often each key was here, this time included."""
    path = FOLDER / "counters" / f"{name}.json"
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    counts.update({key: counts.get(key, 0) + 1 for key in keys})
    path.write_text(json.dumps(counts), encoding="utf-8")
    return counts


def facts_of(case):
    """Return what a case does once, as workloads.py words it."""
    kind, size = case["kind"], case["size"]
    if kind == "gemm":
        flop = 2.0 * size**3
        return {"flop": flop, "bytes": 3.0 * size**2 * WIDTH[case["precision"]], "work": flop, "unit": "FLOP/s"}
    if kind == "copy":
        moved = float(size * (2 if case["mode"] == "device" else 1))
        return {"bytes": moved, "work": moved, "unit": "B/s"}
    if kind == "stream":
        return {"flop": size / 2, "bytes": 3.0 * size, "work": 3.0 * size, "unit": "B/s"}
    facts = {"work": float(case["batch"]), "unit": "samples/s"}
    if kind in NETWORKS:
        flop, usual, power, _, parameters = NETWORKS[kind]
        times = 3 if case["mode"] == "train" else 1
        facts.update(parameters=parameters, flop=flop * times * (size / usual) ** power * case["batch"])
    return facts


def rate_of(case, facts):
    """Return what an H100 reaches in a case, in units of its work a second."""
    if case["kind"] == "gemm":
        return TFLOPS[case["precision"]] * 1e12 * min(1.0, 0.55 + case["size"] / 18000)
    if case["kind"] == "copy":
        return COPIES[case["mode"]]
    if case["kind"] == "stream":
        return 2.79e12
    if case["kind"] in NETWORKS:
        return NETWORKS[case["kind"]][3] * 1e12 * OF_BF16[case["precision"]] / facts["flop"] * facts["work"]
    return LOADED


def need_memory():
    """Answer for a program that allocates 4 GiB: PyTorch's error where another process holds the GPU's memory."""
    others = {}
    for path in (FOLDER / "memory").iterdir():
        try:
            os.kill(int(path.name), 0)
            others[path.name] = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    own = 520 << 20
    left = FACTS["memory_bytes"] - sum(others.values()) - own
    if left >= 4 * GIB:
        return "ok", 0
    processes = "".join(f"Process {name} has {size / GIB:.2f} GiB memory in use. " for name, size in others.items())
    return (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of "
        f"{FACTS['memory_bytes'] / GIB:.2f} GiB of which {max(left, 0) / (1 << 20):.2f} MiB is free. {processes}"
        "Including non-PyTorch memory, this process has 520.00 MiB memory in use. Of the allocated memory 0 bytes is "
        "allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. If reserved but unallocated memory "
        "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        1,
    )


def convolve():
    """Answer for a program that convolves: PyTorch's error where another cuDNN is in front."""
    import torch

    try:
        torch.backends.cudnn.version()
    except RuntimeError as error:
        return f"RuntimeError: {error}", 1
    return "ok", 0


def share_memory():
    """Answer for a program whose workers share tensors: PyTorch's error where there is hardly any shared memory."""
    place = os.statvfs("/dev/shm")
    if place.f_frsize * place.f_blocks >= 8 << 20:
        return "ok", 0
    return (
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_1234_56_0>: Success (0)\n"
        "RuntimeError: DataLoader worker (pid(s) 1234) exited unexpectedly",
        1,
    )


def fail_or_say(script, answer):
    """Run a program of which only the outcome is known."""
    import torch

    try:
        if answer is not share_memory:
            torch.cuda.init()
        words, code = answer()
    except RuntimeError as error:
        words, code = f"RuntimeError: {error}", 1
    if code:
        print(f'Traceback (most recent call last):\n  File "{script}", line 1, in <module>\n{words}', file=sys.stderr)
    else:
        print(words)
    sys.exit(code)


def main():
    """Answer, or hand over to the interpreter underneath."""
    code, script, rest = split(WORDS)
    name = Path(script).name.removeprefix("payload-") if script else ""
    answers = {"need_memory.py": need_memory, "convolve.py": convolve, "share_memory.py": share_memory}
    patched = {"torch_work.py": work, "workloads.py": measure_workloads}
    as_it_is = {"framework.py", "environment.py", "torch_nccl.py", "verify.py"}
    if code is not None:
        become("")
        sys.argv[:] = ["-c", *rest]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - that is what -c asks for
    elif name in as_it_is | set(patched) | set(answers):
        become(str(Path(script).resolve().parent))
        sys.argv[:] = [script, *rest]
        if name in as_it_is:
            runpy.run_path(script, run_name="__main__")
        elif name in patched:
            patched[name](script)
        else:
            fail_or_say(script, answers[name])
    elif WORDS in (["--version"], ["-V"]):
        print(f"Python {FACTS['python']}")
    else:
        real = os.environ.get("STAND_IN_PYTHON") or sys.executable
        os.execv(real, [real, *WORDS])  # noqa: S606 - no shell is wanted


main()
