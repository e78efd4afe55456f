"""A stand-in of a healthy machine with one NVIDIA H100, for trying things where there is no GPU.

usage: python stand_in.py [--sandbox] [--plant NAME]... [--dir FOLDER] -- COMMAND ARGUMENT...

Nothing in it was recorded and nothing is computed by a GPU: whatever is proved on it says something of the program that
looks, and nothing of a GPU. COMMAND runs in a mount namespace in which the driver's files, nodes and libraries are
there, and before a PATH on which nvidia-smi, Python with PyTorch and the system's tools answer as on such a machine: a
virtual machine with Ubuntu. All of it ends with the last process in there. The exit code is that of COMMAND, or 77
where no machine can be made up here.

With --sandbox it is a container in a sandbox that passes the GPU on and hides the rest: its kernel calls itself 4.4.0
and has no log, no modules and no PCI bus, there is no systemd and no container engine, and the driver's libraries lie
in a folder of their own.

With --dir the machine is made there and kept, its counters too, so that it can be looked at and run again.

The texts are those of tests/machines.py; what has to act on what it is asked lies in stand_in_files/.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

__all__ = ["CANNOT_RUN", "PLANTS", "build", "command", "environment", "main", "reason_not_here"]

CANNOT_RUN = 77
DRIVER, CUDA, TORCH = "580.159.04", "13.0", "2.11"
KERNEL = "6.8.0-87-generic"
RESERVED_MIB = 479
PLANTS: Mapping[str, str] = MappingProxyType(
    {
        "wrong-sum": "libcuda adds some vectors' elements wrongly",
        "slow-gemm": "products run at 300 TFLOPS, in torch_work and in workloads",
        "unknown-answer": "nvidia-smi tells the GPU's address in a form that nobody knows",
        "unknown-unit": "nvidia-smi tells the size of the memory in a unit that nobody knows",
        "noisy-bench": "every second run of bench is 30 % slower, where no floor of the facts would tell",
        "ignores-visible": "CUDA_VISIBLE_DEVICES does not reach Python, and is not shown by env",
        "sick": "the GPU counts uncorrectable memory errors and waits for a reset to put spare rows into use",
    }
)
"""Name of a fault → what it plants."""

_HERE = Path(__file__).resolve().parent
_FILES = _HERE / "stand_in_files"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_WHEELS = {
    "nvidia-cublas": ("nvidia/cu13/lib", "libcublas.so.13"),
    "nvidia-cuda-runtime": ("nvidia/cu13/lib", "libcudart.so.13"),
    "nvidia-nvjitlink": ("nvidia/cu13/lib", "libnvJitLink.so.13"),
    "nvidia-cudnn-cu13": ("nvidia/cudnn/lib", "libcudnn.so.9"),
    "nvidia-nccl-cu13": ("nvidia/nccl/lib", "libnccl.so.2"),
}


@functools.cache
def reason_not_here() -> str | None:
    """Return why no machine can be made up here, or nothing where it can."""
    if sys.platform != "linux":
        return "mount namespaces are a thing of Linux"
    missing = [tool for tool in ("unshare", "mount", "pivot_root", "ldconfig", "cc") if not _find(tool)]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on the PATH"
    trial = 'mount -t tmpfs none "$1" && mkdir "$1/a" "$1/b" && mount -t overlay -o "lowerdir=$1/a:$1/b" none "$1/a"'
    with tempfile.TemporaryDirectory(prefix="stand-in.") as folder:
        done = subprocess.run(
            [*_namespace(), "sh", "-c", trial, "sh", folder], capture_output=True, text=True, check=False
        )
    said = done.stderr.strip().splitlines()
    return (
        None if done.returncode == 0 else f"no mount namespace can be made: {said[-1] if said else 'no reason given'}"
    )


def build(folder: Path, plants: Collection[str] = (), *, is_sandbox: bool = False) -> None:
    """Write the files of the machine.

    Args:
        folder: An empty folder, which is the machine from then on.
        plants: Names of faults to plant.
        is_sandbox: Whether only what a sandbox passes on is there.

    Raises:
        KeyError: A fault that is not among ``PLANTS``.
    """
    for plant in plants:
        PLANTS[plant]
    folder.chmod(0o755)
    for name in ("bin", "counters", "memory", "new", "said"):
        (folder / name).mkdir()
    stack = _resolve()
    machines = _load_machines()
    host = _host(machines, stack, tflops=300.0 if "slow-gemm" in plants else 780.0)
    said = {probe: output.text for probe, output in machines._machine(host).items() if output.status == "ok"}
    said["nvidia-smi-xml"] = _plant(said["nvidia-smi-xml"], plants)
    for probe, text in said.items():
        (folder / "said" / probe).write_text(text, encoding="utf-8")
    if is_sandbox:
        said["uname"] = "Linux 4.4.0 x86_64\n"
    facts = {
        "plants": sorted(plants),
        "is_sandbox": is_sandbox,
        "torch": host.torch,
        "cuda": host.cuda,
        "cudnn": stack["cudnn"],
        "nccl": stack["nccl"],
        "sm": stack["sm"],
        "python": host.python,
        "gpu": host.model.name,
        "uuid": host.uuid(0),
        "address": f"0000{host.gpus[0]}",
        "serial": "stand-in",
        "driver": host.driver,
        "sm_mhz": host.model.sm_mhz,
        "memory_mib": host.model.memory_mib,
        "reserved_mib": RESERVED_MIB,
        "memory_bytes": (host.model.memory_mib - RESERVED_MIB) << 20,
        "tflops": host.model.bf16_tflops,
        "copy_gb_s": host.model.copy_gb_s,
    }
    _write_tools(folder, said, plants)
    _write_system(folder / "root", said)
    _write_site(folder / "site", stack)
    _compile(folder, facts, plants)
    if is_sandbox:
        _hide(folder)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _hide(folder: Path) -> None:
    """Take away what a sandbox does not pass on, and put the driver's libraries where it mounts them."""
    root = folder / "root"
    for part in ("proc/driver", "sys/module", "sys/bus", "sys/class/dmi"):
        shutil.rmtree(root / part)
        (root / part).mkdir()
    for part in ("boot", "run/systemd", "usr/lib/firmware", "usr/lib/modules", "etc/docker", "etc/containerd"):
        shutil.rmtree(root / part)
    for part in ("etc/nvidia-container-runtime", "etc/cdi"):
        shutil.rmtree(root / part)
    (root / "proc/modules").unlink()
    kept = {"uname", "nvidia-smi", "python3", "nvcc", "env"}
    for tool in (folder / "bin").iterdir():
        if tool.name not in kept:
            tool.unlink()
    # The machine underneath may have them, and they would speak of it.
    for tool in ("journalctl", "systemctl", "docker", "chronyc", "nft"):
        if shutil.which(tool):
            _write_program(folder / "bin" / tool, f'echo "sh: {tool}: not found" >&2\nexit 127\n')
    _write_program(folder / "bin" / "dmesg", 'echo "[    0.000000] Starting the sandbox..."\n')
    _write_program(folder / "bin" / "systemd-detect-virt", "echo none\nexit 1\n")
    (folder / "nvidia").mkdir()
    for library in (root / _LIBRARIES).iterdir():
        library.rename(folder / "nvidia" / library.name)


def command(folder: Path, words: Sequence[str]) -> list[str]:
    """Return what runs a command on a machine that was built."""
    return [*_namespace(), "sh", str(_FILES / "enter.sh"), str(folder), *words]


def environment(folder: Path) -> dict[str, str]:
    """Return this process's variables as a command on the machine needs them."""
    foreign = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "VIRTUAL_ENV", "CONDA_PREFIX"}
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    path = f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    found = {**kept, "PATH": path, "STAND_IN_PYTHON": sys.executable, "PROVISION_STAND_IN": "1"}
    driver = folder / "nvidia"
    return {**found, "LD_LIBRARY_PATH": str(driver)} if driver.exists() else found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command on the machine and return its exit code."""
    parser = argparse.ArgumentParser(
        description="Run a command on a made-up machine with one H100.",
        epilog="faults: " + "; ".join(f"{name}: {what}" for name, what in PLANTS.items()),
    )
    parser.add_argument("--plant", action="append", default=[], choices=sorted(PLANTS), metavar="NAME", help="a fault")
    parser.add_argument("--sandbox", action="store_true", help="only what a sandbox passes on is there")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="make the machine there, or use the one there, and keep it"
    )
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="what to run, after --")
    chosen = parser.parse_args(arguments)
    reason = reason_not_here()
    if reason:
        print(f"stand-in: {reason}", file=sys.stderr)
        return CANNOT_RUN
    with tempfile.TemporaryDirectory(prefix="stand-in.") as temporary:
        folder = (chosen.dir or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "facts.json").exists():
            build(folder, chosen.plant, is_sandbox=chosen.sandbox)
        elif json.loads((folder / "facts.json").read_text(encoding="utf-8"))["plants"] != sorted(chosen.plant):
            parser.error(f"{folder} holds a machine with other faults")
        return subprocess.run(command(folder, chosen.words), env=environment(folder), check=False).returncode


def _find(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin")


def _namespace() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *user, "--propagation", "private"]


def _resolve() -> dict[str, Any]:
    """Return the stack that PyTorch comes with, by the facts."""
    words = ["-m", "provision", "resolve", "--torch", TORCH, "--cuda", CUDA, "--json"]
    done = subprocess.run([sys.executable, *words], capture_output=True, check=True, cwd=_HERE.parents[1])
    stack: dict[str, Any] = json.loads(done.stdout)["result"]["stack"]
    return stack


def _load_machines() -> ModuleType:
    """Return tests/machines.py as a module of its own, with a bridge above the GPU of a virtual machine."""
    spec = importlib.util.spec_from_file_location("machines_of_stand_in", _HERE.parent / "machines.py")
    assert spec is not None
    assert spec.loader is not None
    machines = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = machines
    spec.loader.exec_module(machines)
    rows_of = machines._pci_rows

    def with_bridge(host: Any) -> list[Any]:
        *others, gpu = rows_of(host)
        bridge = machines._PciRow(
            "0000:00:02.0", "0604", "1b36", "000c", "Red Hat, Inc. QEMU PCIe Root port", "pcieport",
            width=32, width_max=32, speed="16.0 GT/s PCIe", speed_max="16.0 GT/s PCIe", numa=-1, revision="00",
        )  # fmt: skip
        return [*others, bridge, machines._with(gpu, parents=(bridge.address,))]

    machines._pci_rows = with_bridge
    return machines


def _host(machines: ModuleType, stack: Mapping[str, Any], tflops: float) -> Any:
    """Return the machine's description."""
    return machines._with(
        machines._CLOUD_A10G,
        name="stand-in",
        os=("ubuntu", "24.04", "Ubuntu 24.04.3 LTS"),
        kernel=KERNEL,
        model=machines._with(machines._H100, bf16_tflops=tflops, copy_gb_s=55.3),
        gpus=("0000:06:00.0",),
        driver=DRIVER,
        cuda_of_driver=CUDA,
        is_open=True,
        vendor="QEMU",
        product="Standard PC (Q35 + ICH9, 2009), a stand-in",
        width=16,
        speed="",
        smi_generation=0,
        has_dcgm=False,
        torch=f"{stack['frameworks']['torch']}+{stack['variant']}",
        cuda=CUDA,
        cuda_full=stack["packages"]["nvidia-nvjitlink"],
        cudnn=".".join(stack["cudnn"].split(".")[:3]),
        cudnn_package=stack["cudnn"],
        nccl=stack["nccl"],
        python=f"{stack['python']}.11",
        packages=stack["packages"],
        targets=tuple(stack["sm"]),
    )


def _plant(xml: str, plants: Collection[str]) -> str:
    """Return what nvidia-smi says, with the faults that show there."""
    if "unknown-answer" in plants:
        xml = re.sub(r"(<gpu id=\"|<pci_bus_id>)[0-9A-F:.]+", r"\1PCI:6@0:0:0", xml)
    if "unknown-unit" in plants:
        xml = re.sub(r"(<fb_memory_usage>\s*<total>\d+) MiB", r"\1 Mebi", xml)
    if "sick" in plants:
        xml = xml.replace("<dram_uncorrectable>0<", "<dram_uncorrectable>3<")
        xml = xml.replace("<remapped_row_pending>No<", "<remapped_row_pending>Yes<")
    return xml


def _write_tools(folder: Path, said: Mapping[str, str], plants: Collection[str]) -> None:
    """Write the programs that come first on the PATH."""
    module = dict(line.split("=", 1) for line in said["module-nvidia"].splitlines())
    held = re.sub(r"(?m)^(?:excluded|unattended) .*\n", "", said["holds"]).replace("held ", "hold ")
    excluded = re.findall(r"(?m)^excluded (.*)$", said["holds"])
    made = {
        "modinfo": f"filename:       {module['path']}\nversion:        {DRIVER}\nlicense:        {module['license']}\n"
        f"signer:         {module['signer']}\n",
        "holds": held,
        "apt-config": 'APT::Periodic::Unattended-Upgrade "1";\n'
        + "".join(f'Unattended-Upgrade::Package-Blacklist:: "{pattern}";\n' for pattern in excluded),
        "chronyc": "Leap status     : Normal\nSystem time     : 0.000021125 seconds fast of NTP time\n",
        "timedatectl": "NTP=yes\nNTPSynchronized=yes\n",
        "kind": "kvm\n",
        "release": f"{KERNEL}\n",
        "version": f"{DRIVER}\n",
        "nft": said["firewall"].split("== local-ports")[0].removeprefix("== nft\n"),
        "iptables": "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n",
        "initramfs": "kernel/x86/microcode/GenuineIntel.bin\nusr/bin/sh\n",
        "nothing": "",
    }
    for name, text in made.items():
        (folder / "said" / name).write_text(text, encoding="utf-8")
    tools: dict[str, dict[str, str]] = {
        "uname": {"-r": "release", "-srm": "uname"},
        "systemd-detect-virt": {"*": "kind"},
        "mokutil": {"--sb-state": "secure-boot"},
        "dmesg": {"*": "kernel-log"},
        "journalctl": {"*-k*": "kernel-log", "*": "nothing"},
        "modinfo": {"nvidia": "modinfo", "-F\\ version\\ *": "version"},
        "dkms": {"status": "dkms"},
        "dpkg-query": {"*db:Status-Want*": "holds", "*": "packages"},
        "apt-config": {"dump": "apt-config"},
        "unattended-upgrade": {"*": "nothing"},
        "lspci": {"*": "lspci"},
        "systemctl": {"show\\ *": "units", "daemon-reload": "nothing"},
        "timedatectl": {"show": "timedatectl"},
        "chronyc": {"*": "chronyc"},
        "nft": {"*": "nft"},
        "iptables": {"-S": "iptables"},
        "ip6tables": {"-S": "iptables"},
        "docker": {"info\\ *": "docker-info"},
        "nvidia-ctk": {"--version": "toolkit"},
        "nvcc": {"--version": "nvcc"},
        "nvbandwidth": {"*": "nvbandwidth"},
        "lsinitramfs": {"*": "initramfs"},
    }
    for tool, answers in tools.items():
        cases = "".join(f'{words}) exec cat "{folder}/said/{name}" ;;\n' for words, name in answers.items())
        other = f'[ ! -x /usr/bin/{tool} ] || exec /usr/bin/{tool} "$@"\n' if tool == "uname" else ""
        refusal = f'echo "stand-in: {tool} $* has no answer here" >&2\nexit 2\n'
        _write_program(folder / "bin" / tool, f'case "$*" in\n{cases}esac\n{other}{refusal}')
    for tool, script in {"python3": "python3.py", "nvidia-smi": "nvidia_smi.py"}.items():
        words = " ".join(map(shlex.quote, ("-I", "-S", "-B", str(_FILES / script), str(folder))))
        real = f'"${{STAND_IN_PYTHON:-{sys.executable}}}"'
        _write_program(folder / "bin" / tool, f'exec {real} {words} "$@"\n')
    if not Path("/proc/modules").exists():
        # A kernel without modules has no such file, and none can be added to /proc: the probe itself is answered for.
        said_of_modules = f'exec cat "{folder}/said/modules"'
        text = f'case "$*" in *"/collector probe "*" modules") {said_of_modules} ;; esac\nexec /bin/sh "$@"\n'
        _write_program(folder / "bin" / "sh", text)
    if "ignores-visible" in plants:
        text = '[ $# -eq 0 ] || exec /usr/bin/env "$@"\n/usr/bin/env | grep -v "^CUDA_VISIBLE_DEVICES="\n'
        _write_program(folder / "bin" / "env", text)


def _write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n# A stand-in: it makes its answers up.\n{text}", encoding="utf-8")
    path.chmod(0o755)


def _write_system(root: Path, said: Mapping[str, str]) -> None:
    """Write what the machine has in /etc, /proc, /sys and elsewhere."""
    gpus = re.findall(r"== (\S+)\n((?:(?!== ).*\n)*)", said["driver-gpus"])
    files = {
        "boot/vmlinuz-" + KERNEL: "",
        "boot/initrd.img-" + KERNEL: "made up\n",
        "etc/os-release": said["os-release"],
        "etc/docker/daemon.json": said["docker-config"],
        "etc/containerd/config.toml": said["containerd-config"],
        "etc/nvidia-container-runtime/config.toml": said["toolkit-config"],
        "etc/cdi/nvidia.yaml": said["cdi"].partition("\n")[2],
        "proc/cmdline": said["command-line"],
        "proc/modules": said["modules"],
        "proc/driver/nvidia/version": said["driver-version"],
        "proc/driver/nvidia/params": said["driver-params"],
        "sys/module/nvidia/version": f"{DRIVER}\n",
        "sys/class/dmi/id/sys_vendor": "QEMU\n",
        "sys/class/dmi/id/product_name": "a stand-in of a virtual machine\n",
        f"usr/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin": "",
        f"usr/lib/modules/{KERNEL}/modules.dep": "",
        "run/systemd/system/stand-in": "",
        **{f"proc/driver/nvidia/gpus/{address}/information": text for address, text in gpus},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for line in said["pci"].splitlines():
        _write_device(root / "sys/bus/pci/devices", dict(word.split("=", 1) for word in line.split("\t")))


def _write_device(devices: Path, words: Mapping[str, str]) -> None:
    """Write a device of the PCI bus as sysfs shows it: a link, whose target tells what it hangs on."""
    names = {
        "class": "class", "vendor": "vendor", "device": "device", "revision": "revision", "numa": "numa_node",
        "width": "current_link_width", "width_max": "max_link_width", "speed": "current_link_speed",
        "speed_max": "max_link_speed", "power_state": "power_state", "d3cold": "d3cold_allowed",
    }  # fmt: skip
    parents = words["parents"].split(",") if "parents" in words else []
    folder = devices.joinpath(".all", "pci0000:00", *parents, words["address"])
    folder.mkdir(parents=True, exist_ok=True)
    for key, name in names.items():
        if key in words:
            prefix = "0x" if key in ("class", "vendor", "device", "revision") else ""
            (folder / name).write_text(f"{prefix}{words[key]}\n", encoding="utf-8")
    if "driver" in words:
        (folder / "driver").symlink_to(Path("/sys/bus/pci/drivers", words["driver"]))
    (devices / words["address"]).symlink_to(folder.relative_to(devices))


def _write_site(site: Path, stack: Mapping[str, Any]) -> None:
    """Write what pip would have installed, as far as somebody looks."""
    for name, version in stack["packages"].items():
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        if name in _WHEELS:
            place, library = _WHEELS[name]
            (site / place).mkdir(parents=True, exist_ok=True)
            (site / place / library).touch()
    (site / "torch" / "lib").mkdir(parents=True)
    shutil.copyfile(_FILES / "torch.py", site / "torch" / "__init__.py")


def _compile(folder: Path, facts: Mapping[str, Any], plants: Collection[str]) -> None:
    """Make the driver's libraries."""
    place = folder / "root" / _LIBRARIES
    place.mkdir(parents=True)
    values = {
        "FOLDER": f'"{folder / "memory"}"',
        "NAME": f'"{facts["gpu"]}"',
        "UUID": f'"{facts["uuid"].removeprefix("GPU-").replace("-", "")}"',
        "ADDRESS": f'"{facts["address"][4:].upper()}"',
        "DRIVER": f'"{DRIVER}"',
        "TOTAL_MIB": f"{facts['memory_mib']}ull",
        "RESERVED_MIB": f"{facts['reserved_mib']}ull",
        **({"WRONG_SUM": "1"} if "wrong-sum" in plants else {}),
    }
    options = [f"-D{name}={value}" for name, value in values.items()]
    for library in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        source = _FILES / f"{'libcuda' if library == 'libcuda' else 'libnvidia-ml'}.c"
        target = place / f"{library}.so.{DRIVER}"
        words = [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            f"-Wl,-soname,{library}.so.1",
            *options,
            "-o",
            str(target),
            str(source),
        ]
        subprocess.run(words, check=True)
        (place / f"{library}.so.1").symlink_to(target.name)


if __name__ == "__main__":
    sys.exit(main())
