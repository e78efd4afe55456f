"""What provision does on a node: tell what it is, hold it for one run, work on it, write files, and go back.

Sent to the node on standard input, behind a line ``REQUEST = "…"`` (base64 of JSON); ``do`` names one of `COMMANDS`:

- ``facts`` tells what the node is, as one JSON document, in one round trip and without changing anything. Every
  decision of the play is taken on the controller from it, so that a node that is as planned is asked once. What cannot
  be read is null or empty, never guessed; ``problems`` says what could not be read and why.
- ``begin`` takes the node for a run and keeps what it was before the first change; ``end`` gives it back.
- ``run`` runs a program and ``restore`` takes a failed driver installation back, each only while the node is this
  run's. Otherwise nothing is done: they say who has the node, since when and what helps, and end with 75.
- ``write`` writes files that the node does not have yet, all in one round trip; ``settle`` says that one is edited.

Python 3.6 and the standard library alone, for this runs on nodes that have nothing else.
"""

import base64
import contextlib
import errno
import fcntl
import glob
import grp
import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time

SCHEMA = 1
COMMAND_SECONDS = 60
NEEDED_SECONDS = 600
# So often systemd has started a unit again by itself, and so shortly ago, that it is taken to go on like that.
LOOP_RESTARTS_MIN = 3
LOOP_SECONDS = 60

# Files the roles write, edit or must not disturb. A folder stands for everything below it.
PATHS = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/preferences.d",
    "/etc/apt/apt.conf.d",
    "/etc/apt/keyrings",
    "/etc/audit/rules.d",
    "/etc/cdi",
    "/etc/containerd",
    "/etc/crio",
    "/etc/default/grub.d",
    "/etc/docker",
    "/etc/dkms",
    "/etc/dnf/modules.d",
    "/etc/dnf/plugins/versionlock.list",
    "/etc/enroot/enroot.conf.d",
    "/etc/kernel",
    "/etc/kubernetes/node-feature-discovery",
    "/etc/ld.so.conf.d",
    "/etc/logrotate.d",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/munge",
    "/etc/nccl.conf",
    "/etc/needrestart/conf.d",
    "/etc/nftables.conf",
    "/etc/nftables.d",
    "/etc/nvidia-container-runtime",
    "/etc/nvidia-imex",
    "/etc/nvidia-mig-manager",
    "/etc/pki/rpm-gpg",
    "/etc/profile.d",
    "/etc/provision",
    "/etc/rsyslog.d",
    "/etc/security/limits.d",
    "/etc/slurm",
    "/etc/ssh/sshd_config.d",
    "/etc/sudoers.d",
    "/etc/sysctl.d",
    "/etc/sysusers.d",
    "/etc/systemd/system",
    "/etc/systemd/system.conf.d",
    "/etc/udev/rules.d",
    "/etc/yum.repos.d",
    "/opt/provision/etc",
    "/usr/bin/provision",
    "/usr/local/bin/provision",
    "/usr/local/lib/provision",
    "/usr/local/sbin",
    "/var/lib/dkms/mok.key",
    "/var/lib/dkms/mok.pub",
    "/var/lib/dpkg/diversions",
    "/var/lib/prometheus/node-exporter",
    "/var/lib/provision",
    "/var/lib/shim-signed/mok/MOK.der",
    "/var/lib/shim-signed/mok/MOK.priv",
)

# Files whose text the roles merge with, compare by meaning, or restore; only while they are small.
TEXTS = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/*",
    "/etc/apt/preferences.d/*",
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*",
    "/etc/crio/crio.conf",
    "/etc/dnf/modules.d/*",
    "/etc/dnf/plugins/versionlock.list",
    "/etc/docker/daemon.json",
    "/etc/nccl.conf",
    "/etc/nftables.conf",
    "/etc/provision/monitoring/installed.json",
    "/etc/provision/monitoring/targets/*",
    "/etc/yum.repos.d/*",
    "/var/lib/dpkg/diversions",
    "/var/lib/provision/*.json",
    "/var/lib/provision/kernel-guard/*.json",
)
TEXT_BYTES_MAX = 128 * 1024
HASHED_BYTES_MAX = 64 * 1024 * 1024

# Files that are edited and not owned.
MERGED = ("/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/nccl.conf")

UNITS = (
    "auditd.service",
    "containerd.service",
    "crio.service",
    "docker.service",
    "grafana-server.service",
    "kubelet.service",
    "munge.service",
    "nftables.service",
    "nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh.service",
    "nvidia-dcgm-exporter.service",
    "nvidia-dcgm.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-mig-manager.service",
    "nvidia-persistenced.service",
    "openibd.service",
    "prometheus-alertmanager.service",
    "prometheus-blackbox-exporter.service",
    "prometheus-node-exporter.service",
    "prometheus.service",
    "provision-access.service",
    "provision-gpu-exporter.service",
    "provision-gpu-textfile.timer",
    "provision-grafana.service",
    "provision-jupyter.service",
    "provision-mig.service",
    "provision-peermem.service",
    "provision-spot.service",
    "provision-verify.timer",
    "slurmctld.service",
    "slurmd.service",
    "slurmdbd.service",
    "swap.target",
    "rsyslog.service",
    "ssh.service",
    "unattended-upgrades.service",
)

LINKS = (
    "/usr/local/cuda",
    "/opt/provision/envs/*",
    "/opt/provision/nccl-tests/current",
    "/etc/alternatives/cuda",
    "/etc/alternatives/nvidia",
)
DISKS = ("/", "/boot", "/opt", "/tmp", "/usr", "/var")
ENGINES = (
    ("docker", ("docker", "--version")),
    ("containerd", ("containerd", "--version")),
    ("crio", ("crio", "--version")),
    ("podman", ("podman", "--version")),
    ("kubelet", ("kubelet", "--version")),
)
UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/local/bin/nvidia-uninstall")
NVIDIA_VENDOR = "10de"
NETWORK_VENDORS = ("15b3", "14e4", "8086", "1d0f")
SWITCH_MANAGER = "SW_MNG"
DISPLAY_CLASS = "03"
BRIDGE_CLASS = "0680"
NETWORK_CLASS = "02"


# Below the root. What is under /run goes with the next start of the system.
LOCK = "run/provision/lock"
BASELINE = "var/lib/provision/baseline/packages.json"
GENERATION_0 = "var/lib/provision/generations/0/generation.json"
RECORD_BYTES_MAX = 1 << 16
# A run that has sent nothing for so long, while no program of it is at work, is taken to be over.
LEASE_SECONDS = 15 * 60
KEPT_OUT = 75
OUTDATED = (
    "another run of provision has worked on this node since this one looked at it. Nothing was done here, and nothing "
    "is taken back: run this again, so that it goes by what is there now"
)

ROOT = "/"
PREFERENCES = "etc/apt/preferences.d/provision-restored"
ARCHIVES = "var/cache/apt/archives"
COMPILER_ERROR = re.compile(r":\d+: (?:fatal )?error: ")
# What sources of drivers are called, of any branch.
DRIVERS = ("nvidia-graphics-drivers", "linux-restricted-modules")
# The command lines of a compiler are longer than what anyone reads.
LINE_CHARACTERS = 200
FORM = "${Package}\t${Version}\t${db:Status-Abbrev}\t${source:Package}\n"


class Node:
    """The node's files below a root, its commands, and what could not be read."""

    def __init__(self, root="/"):
        self.root = root
        self.problems = []

    def path(self, path):
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def text(self, path, limit=1024 * 1024):
        try:
            with open(self.path(path), "rb") as file:
                return file.read(limit).decode("utf-8", "replace")
        except OSError:
            return None

    def glob(self, pattern):
        prefix = 0 if self.root == "/" else len(self.root.rstrip("/"))
        return sorted(found[prefix:] for found in glob.glob(self.path(pattern)))

    def run(self, *argv, is_needed=False):
        """Return standard output, or None where the command is absent, fails to start or takes too long.

        What packages and modules there are decides what is installed, and no answer is not an empty one: one that
        `is_needed` has more time, and this program ends where it takes longer.
        """
        if self.root != "/":
            return None
        seconds = NEEDED_SECONDS if is_needed else COMMAND_SECONDS
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=seconds,
                env={**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"},
            )
        except FileNotFoundError:
            return None
        except (OSError, subprocess.TimeoutExpired) as error:
            if is_needed:
                sys.exit("it is unknown what is installed: `%s`: %s" % (" ".join(argv[:2]), error))
            self.problems.append("%s: %s" % (argv[0], error))
            return None
        return done.stdout.decode("utf-8", "replace")


# Rebuilds of a system are that system; others have no packages that the plays know.
ALIKE = {
    "almalinux": "rhel",
    "centos": "rhel",
    "ol": "rhel",
    "rhel": "rhel",
    "rocky": "rhel",
    "amzn": "amzn",
    "fedora": "fedora",
    "opensuse-leap": "opensuse",
    "sles": "sles",
}
MANAGERS = {"opensuse-leap": "zypper", "sles": "zypper"}


def name_system(name, version):
    """Return what the lock calls a system, and the program that installs packages there."""
    major = version.split(".")[0]
    if name in ALIKE:
        return ALIKE[name] + major, MANAGERS.get(name, "dnf")
    return name + (major if name == "debian" else version), "apt"


def read_os(node):
    release = {}
    for line in (node.text("/etc/os-release") or "").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            release[name] = value.strip().strip("\"'")
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    machine = platform.machine()
    virtualization = (node.run("systemd-detect-virt") or "").strip() or None
    is_container = (node.run("systemd-detect-virt", "--container") or "none").strip() != "none" or any(
        os.path.exists(node.path(path)) for path in ("/.dockerenv", "/run/.containerenv")
    )
    memory = re.search(r"^MemTotal:\s+(\d+)", node.text("/proc/meminfo") or "", re.MULTILINE)
    swap = re.search(r"^SwapTotal:\s+(\d+)", node.text("/proc/meminfo") or "", re.MULTILINE)
    comm = (node.text("/proc/1/comm") or "").strip()
    system, manager = name_system(name, version)
    return {
        "id": system,
        "manager": manager,
        "distribution": name,
        "version": version,
        "codename": release.get("VERSION_CODENAME"),
        "name": release.get("PRETTY_NAME"),
        "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        "machine": machine,
        "hostname": platform.node(),
        "is_container": is_container,
        "virtualization": None if virtualization == "none" else virtualization,
        "service_manager": "systemd" if comm == "systemd" else "other",
        "is_root": os.geteuid() == 0,
        "boot_id": (node.text("/proc/sys/kernel/random/boot_id") or "").strip() or None,
        "cpus": os.cpu_count(),
        "memory_mib": int(memory.group(1)) // 1024 if memory else None,
        "swap_mib": int(swap.group(1)) // 1024 if swap else None,
        "cmdline": (node.text("/proc/cmdline") or "").strip(),
    }


def version_key(version):
    """Order kernel releases as people read them: runs of digits by value, all else by text."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[^\d.+-]+", version)]


def read_network(node):
    """Return the address by which the default route leaves; IPv4 first, null where there is no route."""
    # Choosing a route for a datagram sends nothing. The addresses are reserved for documentation.
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        if node.root != "/":
            break
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.connect((far, 9))
                return {"address": sender.getsockname()[0]}
        except OSError:
            continue
    return {"address": None}


# A cloud's kernel moves on within a release, and keeps its name when it does.
ROLLING = ("aws", "azure", "gcp", "gke", "ibm", "oracle")
KERNEL_SERIES = r"(?:-hwe-\d\d\.\d\d(?:-edge)?|-lts-\d\d\.\d\d|-\d+\.\d+)?"


def name_flavour(release, packages):
    """Return what packages that go with a kernel end in: generic-hwe-24.04, aws, nvidia-64k; null where nothing tells.

    The release says no more than ``generic`` of a kernel from a later series. Its metapackage does, else its own
    package, whose version names the system that it was built anew for.
    """
    found = re.match(r"\d+(?:\.\d+)+-\d+-(.+)$", release or "")
    if not found:
        return None
    kind = found.group(1)
    numbers = re.findall(r"\d+", release)[:4]
    metapackages = []
    for name, row in packages.items():
        match = re.match(r"linux-image-(%s%s)$" % (re.escape(kind), KERNEL_SERIES), name)
        if match and row["status"][1:2] == "i" and re.findall(r"\d+", row["version"])[:4] == numbers:
            metapackages.append(match.group(1))
    if metapackages:
        return min(metapackages, key=lambda name: (name != kind, "-hwe-" not in name, len(name), name))
    for name in ("linux-image-", "linux-image-unsigned-", "linux-modules-"):
        series = re.search(r"~(\d\d\.\d\d)\b", packages.get(name + release, {}).get("version", ""))
        if series and not kind.startswith(ROLLING):
            return "%s-hwe-%s" % (kind, series.group(1))
    return kind


def read_kernel(node, system, packages):
    images = {path.rsplit("/vmlinuz-", 1)[1] for path in node.glob("/boot/vmlinuz-*")}
    modules = {os.path.basename(path) for path in node.glob("/lib/modules/*") if os.path.isdir(node.path(path))}
    headers = set()
    for path in node.glob("/lib/modules/*/build"):
        if os.path.exists(node.path(path) + "/Makefile"):
            headers.add(path.split("/")[3])
    for name, package in packages.items():
        found = re.fullmatch(
            r"linux-headers-(\d[\w.+~-]*-(?:amd64|arm64|cloud-amd64|rt-amd64|generic|lowlatency|\w+))", name
        )
        is_common = found and found.group(1).endswith(("-common", "-common-rt"))
        if found and not is_common and package["status"] == "ii" and os.path.isdir(node.path("/usr/src/" + name)):
            headers.add(found.group(1))
    for path in node.glob("/usr/src/kernels/*/Makefile"):
        headers.add(path.split("/")[4])
    running = platform.release()
    # A kernel that no package left here (a container shows its host's) is none of the node's own.
    known = sorted((images | headers | {name for name in modules if name in images}) or set(), key=version_key)
    if not system["is_container"] and running not in known:
        known = sorted({*known, running}, key=version_key)
    installed = [
        {"version": name, "has_image": name in images, "has_headers": name in headers, "has_modules": name in modules}
        for name in known
    ]
    newest = known[-1] if known else None
    target = newest if system["is_container"] else running
    return {
        "running": running,
        "newest": newest,
        "target": target,
        "flavour": name_flavour(target, packages),
        "has_target_headers": target in headers,
        "installed": installed,
    }


def read_devices(node):
    gpus, switches, nics = [], [], []
    for folder in node.glob("/sys/bus/pci/devices/*"):
        vendor = (node.text(folder + "/vendor") or "").strip()[2:]
        kind = (node.text(folder + "/class") or "").strip()[2:6]
        if vendor != NVIDIA_VENDOR and not (kind.startswith(NETWORK_CLASS) and vendor in NETWORK_VENDORS):
            continue
        driver = node.path(folder + "/driver")
        device = {
            "address": os.path.basename(folder),
            "vendor": vendor,
            "device": (node.text(folder + "/device") or "").strip()[2:],
            "class": kind,
            "driver": os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None,
        }
        if vendor != NVIDIA_VENDOR:
            # NVLink 5 switches are managed through a network device that says so in its vital product data.
            nics.append({**device, "is_switch_manager": SWITCH_MANAGER in (node.text(folder + "/vpd", 4096) or "")})
        elif kind.startswith(DISPLAY_CLASS):
            gpus.append(device)
        elif kind == BRIDGE_CLASS:
            switches.append(device)
    return gpus, switches, nics


def read_module(node):
    version = (node.text("/sys/module/nvidia/version") or "").strip() or None
    proc = node.text("/proc/driver/nvidia/version")
    count = (node.text("/sys/module/nvidia/refcnt") or "").strip()
    return {
        "version": version,
        "is_open": "Open Kernel Module" in proc if proc else None,
        "refcount": int(count) if count.isdigit() else None,
        "is_nouveau_loaded": os.path.isdir(node.path("/sys/module/nouveau")),
    }


def read_dkms(node):
    found = []
    for line in (node.run("dkms", "status", is_needed=True) or "").splitlines():
        # nvidia-current/535.261.03, 6.1.0-50-amd64, x86_64: installed (WARNING! …)
        match = re.match(r"([^/,]+)[/,]\s*([^,:]+)(?:,\s*([^,:]+))?(?:,\s*([^:]+))?:\s*(\w+)", line.strip())
        if match:
            module, version, kernel, arch, status = (part and part.strip() for part in match.groups())
            found.append({"module": module, "version": version, "kernel": kernel, "arch": arch, "status": status})
    return found


def read_modules(node, kernels):
    """Return kernel → the NVIDIA driver's module files, with what modinfo says of the main one."""
    found = {}
    for kernel in kernels:
        rows = []
        for folder, _, names in os.walk(node.path("/lib/modules/" + kernel)):
            for name in sorted(names):
                # In-tree modules of other purposes carry the name too: nvidia-wmi-ec-backlight, typec_nvidia.
                match = re.fullmatch(r"(nvidia(?:-current|-tesla-\d+)?(?:-open)?)\.ko(?:\.\w+)?", name)
                if match and "/kernel/drivers/platform/" not in folder:
                    path = os.path.join(folder, name)
                    rows.append(
                        {
                            "name": match.group(1),
                            "path": path if node.root == "/" else path[len(node.root.rstrip("/")) :],
                            "version": (node.run("modinfo", "-F", "version", path) or "").strip() or None,
                            "license": (node.run("modinfo", "-F", "license", path) or "").strip() or None,
                            "vermagic": (node.run("modinfo", "-F", "vermagic", path) or "").strip() or None,
                            "signer": (node.run("modinfo", "-F", "signer", path) or "").strip() or None,
                        }
                    )
        if rows:
            found[kernel] = rows
    return found


def read_rpms(node):
    """Return the packages of a system of rpms. Of those that lie side by side each has its whole name as well."""
    form = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{SOURCERPM}\\n"
    packages = {}
    for line in (node.run("rpm", "-qa", "--qf", form, is_needed=True) or "").splitlines():
        cells = line.split("\t")
        if len(cells) != 5:
            continue
        name, epoch, version, arch, source = cells
        row = {
            "version": version if epoch == "0" else epoch + ":" + version,
            "status": "ii",
            "source": re.sub(r"-[^-]+-[^-]+\.src\.rpm$", "", source),
            "is_auto": False,
        }
        if name == "gpg-pubkey" or name.startswith("kernel"):
            packages["%s-%s%s" % (name, version, "" if arch == "(none)" else "." + arch)] = row
        if name != "gpg-pubkey":
            packages[name] = row
    locks = node.text("/etc/dnf/plugins/versionlock.list") or ""
    ours = re.sub(r"# provision: begin\n.*?# provision: end\n", "", locks, flags=re.DOTALL)
    holds = sorted(line.strip() for line in ours.splitlines() if line.strip() and not line.startswith("#"))
    return packages, holds


def read_packages(node):
    form = "${Package}\t${Version}\t${db:Status-Abbrev}\t${source:Package}\n"
    packages = {}
    for line in (node.run("dpkg-query", "-W", "-f", form, is_needed=True) or "").splitlines():
        name, version, status, source = [*line.split("\t"), "", "", ""][:4]
        if name and status[1:2] not in ("n", ""):
            packages[name] = {"version": version, "status": status.strip(), "source": source, "is_auto": False}
    for name in re.findall(
        r"^Package: (.+)\n(?:.+\n)*?Auto-Installed: 1$",
        node.text("/var/lib/apt/extended_states", 16 << 20) or "",
        re.MULTILINE,
    ):
        if name in packages:
            packages[name]["is_auto"] = True
    # What is not installed can be held as well; dpkg-query does not list it.
    holds = {name for name, package in packages.items() if package["status"].startswith("h")}
    for stanza in (node.text("/var/lib/dpkg/status", 64 << 20) or "").split("\n\n"):
        if "\nStatus: hold ok not-installed" in stanza:
            holds.update(re.findall(r"^Package: (.+)$", stanza, re.MULTILINE))
    return packages, sorted(holds)


def read_accounts(node):
    """Return the system's own accounts and what they say they are: packages make them, and leave them when they go."""
    rows = {}
    for line in (node.text("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit() and int(fields[2]) < 1000:
            rows[fields[0]] = fields[4]
    return rows


def read_dpkg(node, packages):
    half = sorted(
        name
        for name, row in packages.items()
        if row["status"][1:2] in ("U", "F", "H", "W", "t") or "R" in row["status"]
    )
    is_locked = False
    try:
        with open(node.path("/var/lib/dpkg/lock-frontend"), "rb+") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(lock, fcntl.LOCK_UN)
            except OSError:
                is_locked = True
    except OSError:
        pass
    audit = (node.run("dpkg", "--audit", is_needed=True) or "").strip()
    return {"audit": audit, "is_locked": is_locked, "half": half, "broken_off": read_broken_off(node) if half else []}


def read_broken_off(node):
    """Return the packages of apt's last transaction where that never came to its end, what it brings along included."""
    last = (node.text("/var/log/apt/history.log", 16 << 20) or "").strip().split("\n\n")[-1]
    if "\nEnd-Date:" in last:
        return []
    rows = re.findall(r"^(?:Install|Reinstall|Upgrade|Downgrade|Remove|Purge): (.+)$", last, re.MULTILINE)
    return sorted({name for row in rows for name in re.findall(r"([a-z0-9][a-z0-9+.-]+):\w+ \(", row)})


def read_files(node, paths):
    files, links, folders = {}, {}, {}
    texts = {path for pattern in TEXTS for path in node.glob(pattern)}

    def add(path):
        try:
            status = os.lstat(node.path(path))
            owner, group = _names(status)
            if stat.S_ISLNK(status.st_mode):
                links[path] = os.readlink(node.path(path))
                return
            mode = "%04o" % stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                folders[path] = {"mode": mode, "owner": owner, "group": group}
            elif stat.S_ISREG(status.st_mode) and status.st_size <= HASHED_BYTES_MAX:
                with open(node.path(path), "rb") as file:
                    content = file.read()
                row = {"sha256": hashlib.sha256(content).hexdigest(), "mode": mode, "owner": owner, "group": group}
                row["size"] = len(content)
                if path in texts and len(content) <= TEXT_BYTES_MAX:
                    text = content.decode("utf-8", "replace")
                    # What is printed with -v must not carry a password out; roles refuse to edit such a file.
                    row["has_secret"] = bool(re.search(r"://[^/\s@]+:[^/\s@]+@", text))
                    if not row["has_secret"]:
                        row["text"] = text
                files[path] = row
        except OSError as error:
            node.problems.append("%s: %s" % (path, error.strerror))

    for path in paths:
        real = node.path(path)
        if not os.path.lexists(real):
            continue
        add(path)
        if os.path.isdir(real) and not os.path.islink(real):
            for folder, names, rest in os.walk(real):
                place = folder if node.root == "/" else folder[len(node.root.rstrip("/")) :]
                for name in sorted(names + rest):
                    add(place + "/" + name)
    for pattern in LINKS:
        for path in node.glob(pattern):
            if os.path.islink(node.path(path)):
                links[path] = os.readlink(node.path(path))
    return files, links, folders


def _names(status):
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return owner, group


def read_units(node, units):
    found = {}
    text = node.run(
        "systemctl",
        "show",
        "--property=Id,Names,LoadState,ActiveState,UnitFileState,ActiveEnterTimestampMonotonic,NRestarts,"
        "NeedDaemonReload",
        *units,
    )
    for block in (text or "").split("\n\n"):
        row = dict(line.partition("=")[::2] for line in block.splitlines())
        if row.get("LoadState") in (None, "not-found"):
            continue
        for name in {row.get("Id"), *row.get("Names", "").split()} & set(units):
            found[name] = {
                "enabled": row.get("UnitFileState") or "static",
                "active": row.get("ActiveState"),
                "is_looping": _is_looping(row, time.monotonic()),
                "needs_reload": row.get("NeedDaemonReload") == "yes",
            }
    return found


def _is_looping(row, now):
    """Return whether a unit ends soon after each start, which at the moment of one look may be called active."""
    restarts, entered = row.get("NRestarts", ""), row.get("ActiveEnterTimestampMonotonic", "")
    if not restarts.isdigit() or int(restarts) < LOOP_RESTARTS_MIN:
        return False
    if row.get("ActiveState") == "activating":
        return True
    return row.get("ActiveState") == "active" and entered.isdigit() and now - int(entered) / 1e6 < LOOP_SECONDS


def read_secure_boot(node):
    if not os.path.isdir(node.path("/sys/firmware/efi")):
        return False
    path = next(iter(node.glob("/sys/firmware/efi/efivars/SecureBoot-*")), None)
    try:
        with open(node.path(path or ""), "rb") as file:
            return file.read()[-1:] == b"\1"
    except OSError:
        return None


def read_foreign(node, files):
    repos = []
    for path in files:
        if path.startswith("/etc/apt/sources.list") and "provision" not in os.path.basename(path):
            uris = re.findall(r"^(?:deb\s+(?:\[[^\]]*\]\s+)?|URIs:\s*)(\S+)", node.text(path) or "", re.MULTILINE)
            repos.extend({"file": path, "uri": re.sub(r"//[^/@]*@", "//", uri)} for uri in uris if "nvidia" in uri)
        elif path.startswith("/etc/yum.repos.d/") and "provision" not in os.path.basename(path):
            for section in re.split(r"(?m)^(?=\[)", node.text(path) or ""):
                uris = re.findall(r"(?m)^(?:baseurl|mirrorlist|metalink)\s*=\s*(\S+)", section)
                if not re.search(r"(?m)^enabled\s*=\s*(0|no|false)\s*$", section, re.IGNORECASE):
                    repos.extend(
                        {"file": path, "uri": re.sub(r"//[^/@]*@", "//", uri)} for uri in uris if "nvidia" in uri
                    )
    places = [path for path in UNINSTALLERS if os.path.exists(node.path(path))]
    return {"runfile": places[0] if places else None, "repos": repos}


def read_engines(node):
    found = {}
    for name, argv in ENGINES:
        version = re.search(r"\d+\.\d+(\.\d+)?[\w.+~-]*", node.run(*argv) or "") if shutil.which(name) else None
        found[name] = version.group(0) if version else None
    return found


def read_busy(node):
    """Return who holds a GPU open."""
    holders = {}
    for link in node.glob("/proc/[0-9]*/fd/*") if node.glob("/dev/nvidia*") else ():
        try:
            target = os.readlink(node.path(link))
        except OSError:
            continue
        if re.match(r"/dev/nvidia(\d+|-uvm|ctl)$", target):
            pid = int(link.split("/")[2])
            holders[pid] = (node.text("/proc/%d/comm" % pid) or "").strip()
    return [{"pid": pid, "command": command} for pid, command in sorted(holders.items())]


def read_alternatives(node, names):
    found = {}
    for name in names:
        text = node.run("update-alternatives", "--query", name) or ""
        status = re.search(r"^Status: (\w+)", text, re.MULTILINE)
        value = re.search(r"^Value: (\S+)", text, re.MULTILINE)
        if value:
            choices = re.findall(r"^Alternative: (\S+)\nPriority: (-?\d+)", text, re.MULTILINE)
            found[name] = {
                "value": value.group(1),
                "mode": status.group(1) if status else None,
                "choices": {path: int(priority) for path, priority in choices},
            }
    return found


def read_disk(node):
    found = {}
    for path in DISKS:
        try:
            status = os.statvfs(node.path(path))
        except OSError:
            continue
        found[path] = status.f_bavail * status.f_frsize // (1 << 20)
    return found


def read_json(node, path):
    text = node.text(path, 8 << 20)
    try:
        return json.loads(text) if text else None
    except ValueError:
        node.problems.append("%s: no JSON" % path)
        return None


def read_generations(node):
    rows = []
    for folder in node.glob("/var/lib/provision/generations/*"):
        name = os.path.basename(folder)
        document = read_json(node, folder + "/generation.json") if name.isdigit() else None
        if isinstance(document, dict):
            rows.append({**document, "number": int(name)})
    return sorted(rows, key=lambda row: row["number"])


def read_dcgm_before(node):
    """Return the packages of DCGM from before the first run; None where no run has written that down."""
    document = read_json(node, "/" + BASELINE)
    packages = document.get("packages") if isinstance(document, dict) else None
    if not isinstance(packages, dict):
        return None
    return sorted(name for name in packages if name.startswith("datacenter-gpu-manager"))


def read_environments(node):
    base = "/opt/provision/envs"
    current = {
        os.readlink(node.path(path)).rstrip("/").rsplit("/", 1)[-1]
        for path in node.glob(base + "/*")
        if os.path.islink(node.path(path))
    }
    rows = []
    for path in node.glob(base + "/*"):
        if os.path.isdir(node.path(path)) and not os.path.islink(node.path(path)):
            name = os.path.basename(path)
            rows.append(
                {
                    "name": name,
                    "is_complete": os.path.exists(node.path(path + "/.provision-complete")),
                    "is_current": name in current,
                }
            )
    return rows


def collect(options):
    """Return everything as one mapping; ``options`` may hold root, paths, units."""
    node = Node(options.get("root", "/"))
    system = read_os(node)
    is_debian = system["manager"] == "apt"
    packages, holds = read_packages(node) if is_debian else read_rpms(node)
    files, links, folders = read_files(node, list(PATHS) + list(options.get("paths", ())))
    kernel = read_kernel(node, system, packages)
    gpus, switches, nics = read_devices(node)
    return {
        "schema": SCHEMA,
        "os": system,
        "kernel": kernel,
        "gpus": gpus,
        "nvswitches": switches,
        "nics": nics,
        "network": read_network(node),
        "module": read_module(node),
        "dkms": read_dkms(node),
        "modules": read_modules(node, [row["version"] for row in kernel["installed"]]),
        "dpkg": read_dpkg(node, packages)
        if is_debian
        else {"audit": "", "is_locked": False, "half": [], "broken_off": []},
        "packages": packages,
        "holds": holds,
        "accounts": read_accounts(node),
        "files": files,
        "links": links,
        "folders": folders,
        "units": read_units(node, list(UNITS) + list(options.get("units", ()))),
        "secure_boot": read_secure_boot(node),
        "foreign": read_foreign(node, files),
        "engines": read_engines(node),
        "disk": read_disk(node),
        "busy": read_busy(node),
        "alternatives": read_alternatives(node, ("cuda", "glx", "nvidia")),
        "python": {"path": sys.executable, "version": platform.python_version()},
        "state": read_json(node, "/var/lib/provision/state.json"),
        "generations": read_generations(node),
        "dcgm_before": read_dcgm_before(node),
        "environments": read_environments(node),
        "has_baseline": has_baseline(node),
        "work": read_work(node),
        "problems": node.problems,
    }


# ------------------------------------------------------------------------------------------- one run at a time


class KeptOutError(Exception):
    """This run must not touch the node now; the message says why and what helps."""


class Ticket:
    """The node, held for one run: a lock while one of its programs is at work, a record for the time between them.

    The lock is the kernel's (`flock`), so that it ends with the programs that hold it, whatever ended them. The record
    names the run. It goes with the next start of the system, and counts for nothing once its run is known to be over
    or has sent nothing for as long as it said that others shall wait.
    """

    def __init__(self, root, request):
        self.path = os.path.join(root, LOCK)
        self.owner = request["run"]
        self.request = request
        self.record = {}
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._wait()
        except BaseException:
            os.close(self.handle)
            raise

    def _wait(self):
        """Wait for what a run that is over left at work, never for a run that goes on: this one would be outdated."""
        end = time.monotonic() + int(self.request["lock_seconds"])
        while True:
            is_busy = not try_lock(self.handle)
            self.record = parse_record(os.pread(self.handle, RECORD_BYTES_MAX, 0))
            # It may be read while it is written.
            if is_busy and time.monotonic() < end and (not self.record or self._is_over()):
                time.sleep(1)
            elif is_busy or not (self._is_over() or self._has_lapsed()):
                raise KeptOutError(describe_work(self.record, is_busy))
            elif self._is_outdated():
                raise KeptOutError(OUTDATED)
            else:
                return

    def _is_over(self):
        """Tell whether the node is nobody's, this run's already, or a run's that the controller knows to be over."""
        owner = self.record.get("owner") or {}
        return not owner or owner["id"] == self.owner["id"] or owner["id"] in self.request.get("over", ())

    def _has_lapsed(self):
        # A run that has begun does not take the node back from one that took it over meanwhile.
        return self.request["do"] == "begin" and idle_seconds(self.record) >= LEASE_SECONDS

    def _is_outdated(self):
        if self.record.get("last") in (None, self.owner["id"]):
            return False
        return self.request["do"] != "begin" or self.request.get("seen") not in (None, self.record["number"])

    def take(self, step):
        """Write down that the node is this run's, and what it does now."""
        if (self.record.get("owner") or {}).get("id") != self.owner["id"]:
            self.record["since"] = time.time()
        number = self.record.get("number", 0) + 1
        self.record.update(number=number, owner=self.owner, last=self.owner["id"], step=step)
        self._write()

    def give_back(self):
        """Write down that the run is over."""
        self.record["owner"] = None
        self._write()

    def close(self):
        """Let go of the lock; the record stays."""
        if self.record.get("owner"):
            self._write()
        os.close(self.handle)

    def tell(self, process):
        """Write down which process works for the run now: it holds the lock too, and may outlive this one."""
        self._write(process)

    def _write(self, process=None):
        self.record.update(at=time.time(), process=process or os.getpid())
        text = json.dumps(self.record, sort_keys=True).encode()
        os.pwrite(self.handle, text, 0)
        os.ftruncate(self.handle, len(text))


def try_lock(handle):
    """Take the lock where nobody has it, and tell whether it is had now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def parse_record(text):
    """Return what a record says, nothing where it cannot be read."""
    try:
        record = json.loads(text.decode("utf-8", "replace") or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def idle_seconds(record):
    """Return for how long a run has sent nothing."""
    return max(0, time.time() - record.get("at", 0))


def describe_work(record, is_busy):
    """Say whose the node is, since when, what is done there, and what helps."""
    owner = record.get("owner") or {}
    now = time.time()
    if is_busy:
        way = "Where nothing comes of it, process %s on the node is what holds it" % record.get("process", "?")
    else:
        left = words_of_age(max(0, LEASE_SECONDS - idle_seconds(record)))
        way = "Where that run is dead, the node is free in %s, and at once after `rm /%s` on it" % (left, LOCK)
    return (
        "%s (process %s there) is at work on this node for %s, with %s. Nothing was done here, and nothing is taken "
        "back: let it end and run this again. %s"
        % (
            owner.get("who", "another run"),
            owner.get("pid", "?"),
            words_of_age(now - record.get("since", now)),
            record.get("step", "something"),
            way,
        )
    )


def words_of_age(seconds):
    """Return a span of time as people say it."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return "%d s" % max(0, int(seconds))
    return "%d min" % minutes if minutes < 120 else "%d h" % (minutes // 60)


@contextlib.contextmanager
def held(request, step):
    """Hold the node for one step of a run.

    Raises:
        KeptOutError: It is another run's.
    """
    ticket = Ticket(request.get("root", "/"), request)
    try:
        ticket.take(step)
        yield ticket
    finally:
        ticket.close()


def read_work(node):
    """Return what the record of runs says, and whether a program of one is at work; null where no run was here."""
    try:
        handle = os.open(node.path("/" + LOCK), os.O_RDWR)
    except OSError:
        return None
    try:
        is_busy = not try_lock(handle)
        record = parse_record(os.pread(handle, RECORD_BYTES_MAX, 0))
    finally:
        os.close(handle)
    has_lapsed = not is_busy and idle_seconds(record) >= LEASE_SECONDS
    return {
        "number": record.get("number", 0),
        "owner": None if has_lapsed else record.get("owner"),
        "is_busy": is_busy,
        "says": describe_work(record, is_busy),
    }


# ---------------------------------------------------------------------------------------------------- baseline


def describe_baseline(host):
    """Return what a node was before its first change: packages, leftovers, holds, folders, accounts, modules, texts.

    The texts are those of the files that are edited and not owned, so that a removal gives back their very bytes.
    """
    # What is left of a removed package is not a package: a run that installs it brings it.
    leftovers = {name for name, row in host["packages"].items() if row["status"][1:2] == "c"}
    return {
        "os": host["os"]["id"],
        "packages": {
            name: {"version": row["version"], "is_auto": row["is_auto"]}
            for name, row in host["packages"].items()
            if name not in leftovers
        },
        "leftovers": sorted(leftovers),
        "holds": list(host["holds"]),
        "folders": sorted(host["folders"]),
        "accounts": sorted(host["accounts"]),
        "modules": sorted(row["path"] for rows in host["modules"].values() for row in rows),
        "texts": {path: host["files"][path]["text"] for path in MERGED if "text" in host["files"].get(path, {})},
    }


def has_baseline(node):
    """Tell whether it is written down for good what the node was before the first change."""
    if not os.path.exists(node.path("/" + BASELINE)):
        return False
    known = read_json(node, "/" + BASELINE)
    is_provisional = isinstance(known, dict) and known.get("is_provisional")
    return not is_provisional or any(row["number"] for row in read_generations(node))


def keep_baseline(root):
    """Write down what the node is, again for as long as no run has changed it; tell whether that is another now."""
    node = Node(root)
    if has_baseline(node):
        return False
    known = read_json(node, "/" + BASELINE)
    host = collect({"root": root})
    baseline = describe_baseline(host)
    if known:
        # Folders may be an earlier run's, which changed nothing else.
        baseline["folders"] = known["folders"]
    if not (host["state"] or any(row["number"] for row in host["generations"])):
        baseline["is_provisional"] = True
    put(root, GENERATION_0, {"kind": "baseline", "lock_digest": None, "lock_name": None})
    return put(root, BASELINE, baseline, 0o600)


def settle_baseline(root):
    """Let what was written down stay: from now on the node is changed."""
    known = read_json(Node(root), "/" + BASELINE)
    if isinstance(known, dict) and known.pop("is_provisional", None):
        put(root, BASELINE, known, 0o600)


def unsettle_baseline(root):
    """Tell that nothing of a first run is left, where packages and edited files are what they were before it."""
    known = read_json(Node(root), "/" + BASELINE)
    if not isinstance(known, dict):
        return
    host = collect({"root": root})
    now = describe_baseline(host)
    is_same = all(known.get(key) == now[key] for key in ("packages", "holds", "modules", "texts"))
    if is_same and not any(row["number"] for row in host["generations"]):
        put(root, BASELINE, {**known, "is_provisional": True}, 0o600)


def put(root, path, document, mode=0o644):
    """Write a document of ours, root's own, and tell whether it differed."""
    text = json.dumps(document, sort_keys=True) + "\n"
    item = {"path": "/" + path, "content": text, "mode": "%04o" % mode, "owner": None, "group": None}
    os.umask(0o022)
    return write_one(os.path.join(root, path), item)


# ------------------------------------------------------------------------------------------------- steps of a run


def wait(request):
    """Wait until what a run left at work has come to its end, for as long as one waits for apt's lock."""
    end = time.monotonic() + int(request["lock_seconds"])
    while time.monotonic() < end and (read_work(Node(request.get("root", "/"))) or {}).get("is_busy"):
        time.sleep(1)


def begin(request):
    """Take the node for a run, and keep what it is before anything changes; print which file that wrote."""
    with held(request, "looking at what it is"):
        if request.get("keeps_baseline") and keep_baseline(request.get("root", "/")):
            print("/" + BASELINE)


def end(request):
    """Give the node back."""
    with held(request, "its end") as ticket:
        ticket.give_back()


def settle(request):
    """Let what is written down of the node stay."""
    settle_baseline(request.get("root", "/"))


def run_step(request):
    """Run a program that changes the node, and end as it does.

    The lock goes to the program as well: where a connection is cut, it is held for as long as the program goes on.
    """
    with held(request, request["why"]) as ticket:
        settle_baseline(request.get("root", "/"))
        try:
            done = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                pass_fds=(ticket.handle,),
                env={**os.environ, **request.get("environment", {})},
            )
        except OSError as error:
            sys.exit("%s: %s" % (request["argv"][0], error.strerror))
        ticket.tell(done.pid)
        code = done.wait()
    sys.exit(code if code >= 0 else 128 - code)


def write(request):
    """Write the files, make the folders that they lack, and print the paths of those that changed."""
    root = request.get("root", "/")
    # Folders are open to read, whatever the connection came with.
    os.umask(0o022)
    changed = []
    if any(item["path"] in MERGED for item in request["files"]):
        settle_baseline(root)
    for item in request["files"]:
        try:
            if write_one(os.path.join(root, item["path"].lstrip("/")), item):
                changed.append(item["path"])
        except (OSError, KeyError) as error:
            sys.exit("cannot write %s: %s" % (item["path"], error))
    print("\n".join(changed))


def write_one(path, item):
    """Write one file whole: beside its place first, then moved there; tell whether it differed."""
    content = item["content"].encode()
    mode = int(item["mode"], 8)
    owner = os.geteuid() if item["owner"] is None else pwd.getpwnam(item["owner"]).pw_uid
    group = os.getegid() if item["group"] is None else grp.getgrnam(item["group"]).gr_gid
    if is_written(path, content, mode, owner, group):
        return False
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=folder, prefix=".provision-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chown(beside, owner, group)
        os.chmod(beside, mode)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return True


def is_written(path, content, mode, owner, group):
    if os.path.islink(path) or not os.path.exists(path):
        return False
    found = os.stat(path)
    if (found.st_mode & 0o7777, found.st_uid, found.st_gid) != (mode, owner, group):
        return False
    with open(path, "rb") as file:
        return file.read() == content


# ------------------------------------------------------------------------------------ the way back from a driver


def call(*argv):
    """Return (status, both outputs) of a command that never asks."""
    done = subprocess.run(
        argv,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"},
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def list_packages():
    """Return package → version, status and source of all that dpkg has anything of."""
    found = {}
    for line in call("dpkg-query", "-W", "-f", FORM)[1].splitlines():
        cells = line.split("\t")
        if len(cells) == 4 and cells[2][1:2] not in ("n", "c"):
            found[cells[0]] = {"version": cells[1], "status": cells[2].strip(), "source": cells[3]}
    return found


def read_log(modules, lines, since):
    """Return the path and the telling lines of the newest make.log of a build of the modules that failed.

    One from before ``since`` was another run's. make goes on with other files after the first error, so that the last
    lines may hold none: then the first half of what is shown begins just before it.
    """
    logs = []
    for module in modules:
        folder = os.path.join(ROOT, "var/lib/dkms", glob.escape(module))
        logs += glob.glob(os.path.join(folder, "*", "**", "make.log"), recursive=True)
    # The log of a build that succeeded lies in a folder `log`, and has nothing to say of this failure; one that failed
    # stays where it was built until the next build there.
    failed = [
        path for path in logs if os.path.basename(os.path.dirname(path)) != "log" and os.path.getmtime(path) >= since
    ]
    newest = max(failed, key=os.path.getmtime, default=None)
    if newest is None:
        return None, []
    with open(newest, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    all_lines = text.splitlines()
    shown = all_lines[-lines:]
    first = next((number for number, line in enumerate(all_lines) if COMPILER_ERROR.search(line)), None)
    if first is not None and first < len(all_lines) - lines:
        half = lines // 2
        begin = max(0, first - half // 4)
        rest = lines - half - 1
        shown = [*all_lines[begin : begin + half], "…", *(all_lines[-rest:] if rest > 0 else [])]
    return newest, [line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "…" for line in shown]


def plan_way_back(before, now, names, along, there):
    """Return what to put back (package → version) and what to remove.

    Only packages from the sources that the failed set comes from are touched, drivers of another branch that it
    displaced, and what came along with it and was not there in any state: what other roles or people installed in the
    meantime stays.
    """
    sources = {rows[name]["source"] for rows in (before, now) for name in names if name in rows}
    back = {}
    for name, row in before.items():
        present = now.get(name)
        is_lost = present is None or present["status"][1:2] != "i"
        is_displaced = is_lost and names and row["source"].startswith(DRIVERS)
        if is_displaced or (row["source"] in sources and (is_lost or present["version"] != row["version"])):
            back[name] = row["version"]
    came = set(along) - set(there)
    # Where the driver did not fail itself, its own halves are to be finished.
    if names and along:
        came |= find_half(now, there)
    gone = {name for name, row in now.items() if name not in before and row["source"] in sources}
    return back, sorted(gone | (came & set(now)))


def find_half(now, there):
    """Return the packages that are neither properly installed nor were there before."""
    return {name for name, row in now.items() if name not in there and row["status"][1:2] in ("U", "F", "H")}


def finish_others(names, along, there):
    """Configure what came as a dependency and waits, since nothing of it failed: what was there may need it now."""
    now = list_packages()
    sources = {now[name]["source"] for name in names if name in now}
    waiting = sorted(name for name in find_half(now, there) if name not in along and now[name]["source"] not in sources)
    if waiting:
        call("dpkg", "--configure", *waiting)


def find_deb(name, version):
    """Return the downloaded package file, or None."""
    pattern = "%s_%s_*.deb" % (glob.escape(name), glob.escape(version.replace(":", "%3a")))
    found = sorted(glob.glob(os.path.join(ROOT, ARCHIVES, pattern)))
    return found[0] if found else None


def apt(lock_seconds, *words):
    options = ["-y", "-q", "--purge", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
    settings = []
    for setting in ("Dpkg::Options::=--force-confdef", "Dpkg::Options::=--force-confold"):
        settings += ["-o", setting]
    settings += ["-o", "DPkg::Lock::Timeout=%d" % lock_seconds]
    return call("apt-get", *options, *settings, *words)


def tail(text, lines=12):
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def pin(versions):
    """Keep what was restored, until the next attempt, above the preference for the version that failed."""
    path = os.path.join(ROOT, PREFERENCES)
    text = "# Managed by provision (role gpu_driver): what a failed installation went back to.\n"
    for name, version in sorted(versions.items()):
        text += "\nPackage: %s\nPin: version %s\nPin-Priority: 1002\n" % (name, version)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o644)


def restore(request):
    """Say what the compiler said, make the packages what they were, and print a report.

    The request has ``before`` (package → version and source, as it was), ``there`` (names of all that was there, in any
    state), ``packages`` (names of the set that failed), ``along`` (names that came along with it for others),
    ``modules`` (names DKMS has for the set) and ``log_lines``.
    """
    with held(request, "going back from a failed driver") as ticket:
        report = go_back(request, ticket.record["since"])
        unsettle_baseline(request.get("root", "/"))
    json.dump(report, sys.stdout, sort_keys=True)


def go_back(request, since):
    """Do it and return the report."""
    before, names, lock = request["before"], request["packages"], int(request["lock_seconds"])
    log, lines = read_log(request["modules"], int(request["log_lines"]), since)
    along, there = request["along"], request["there"]
    problems = []
    if names and along:
        finish_others(names, along, there)
    back, gone = plan_way_back(before, list_packages(), names, along, there)
    failed = set(gone)

    if back:
        removals = [name + "-" for name in gone]
        status, said = apt(lock, "install", *("%s=%s" % item for item in sorted(back.items())), *removals)
        debs = {name: find_deb(name, version) for name, version in back.items()}
        if status != 0 and all(debs.values()):
            # What the archive no longer offers may still lie in the cache.
            status, said = apt(lock, "install", *sorted(debs.values()), *removals)
        if status != 0:
            problems.append("the previous packages could not be put back: " + tail(said))
            # Better no driver than half of one: what is neither the old nor the new set goes.
            broken = {name for name, row in list_packages().items() if row["status"][1:2] != "i"}
            failed |= broken & (set(back) | set(names))
    present = list_packages()
    gone = sorted(name for name in failed if name in present)
    if gone:
        status, said = apt(lock, "purge", *gone)
        if status != 0:
            status, said = call("dpkg", "--purge", "--force-depends", *gone)
        if status != 0:
            problems.append("could not remove what failed: " + tail(said))
    status, said = call("dpkg", "--configure", "-a")
    if status != 0:
        problems.append("dpkg --configure -a: " + tail(said))

    # Dependencies that only the failed set brought.
    offered = set(re.findall(r"^Remv (\S+)", call("apt-get", "-s", "autoremove")[1], re.MULTILINE))
    orphans = sorted(name for name in {one.split(":")[0] for one in offered} if name not in before)
    if orphans:
        status, said = apt(lock, "purge", *orphans)
        if status != 0:
            problems.append("could not remove what the failed set brought along: " + tail(said))

    now = list_packages()
    kept = {
        name: row["version"] for name, row in before.items() if name in now and row["version"] == now[name]["version"]
    }
    restored = {name: version for name, version in kept.items() if name in back}
    sources = {row["source"] for name, row in before.items() if name in names or name in back}
    pinned = {name: version for name, version in kept.items() if before[name]["source"] in sources}
    if pinned:
        pin(pinned)
    return {
        "log": log,
        "lines": lines,
        "restored": restored,
        "missing": sorted(name for name in back if name not in restored),
        "purged": sorted({*failed, *orphans} - set(now)),
        "audit": call("dpkg", "--audit")[1].strip(),
        "problems": problems,
    }


def tell_facts(request):
    """Print what the node is."""
    json.dump(collect(request), sys.stdout, sort_keys=True)


COMMANDS = {
    "facts": tell_facts,
    "wait": wait,
    "begin": begin,
    "end": end,
    "run": run_step,
    "settle": settle,
    "write": write,
    "restore": restore,
}


def main(text):
    """Do what a request says, JSON or base64 of JSON."""
    request = json.loads(text if text.startswith("{") else base64.b64decode(text).decode("utf-8"))
    try:
        COMMANDS[request.get("do", "facts")](request)
    except KeptOutError as error:
        sys.stderr.write("%s\n" % error)
        sys.exit(KEPT_OUT)


if __name__ == "__main__":
    main(globals().get("REQUEST") or " ".join(sys.argv[1:]) or "{}")
