"""Tell what a node is, as one JSON document, in one round trip and without changing anything.

Run by role gpu_facts on the node: ``python3 - '{"root": "/"}'`` with this text on standard input. Every decision of
the play is taken on the controller from what this prints, so that a node that is as planned is asked once.

What cannot be read is null or empty, never guessed; ``problems`` says what could not be read and why. Python 3.8 and
the standard library alone, for this runs on nodes that have nothing else.
"""

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
import time

SCHEMA = 1
COMMAND_SECONDS = 60
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
    "/etc/docker/daemon.json",
    "/etc/nccl.conf",
    "/etc/nftables.conf",
    "/etc/provision/monitoring/installed.json",
    "/etc/provision/monitoring/targets/*",
    "/var/lib/dpkg/diversions",
    "/var/lib/provision/*.json",
    "/var/lib/provision/kernel-guard/*.json",
)
TEXT_BYTES_MAX = 128 * 1024
HASHED_BYTES_MAX = 64 * 1024 * 1024

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

    def run(self, *argv):
        """Return standard output, or None where the command is absent, fails to start or takes too long."""
        if self.root != "/":
            return None
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=COMMAND_SECONDS,
                env={**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"},
            )
        except FileNotFoundError:
            return None
        except (OSError, subprocess.TimeoutExpired) as error:
            self.problems.append("%s: %s" % (argv[0], error))
            return None
        return done.stdout.decode("utf-8", "replace")


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
    return {
        "id": name + (version.split(".")[0] if name == "debian" else version),
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
    for line in (node.run("dkms", "status") or "").splitlines():
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


def read_packages(node):
    form = "${Package}\t${Version}\t${db:Status-Abbrev}\t${source:Package}\n"
    packages = {}
    for line in (node.run("dpkg-query", "-W", "-f", form) or "").splitlines():
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
        import fcntl

        with open(node.path("/var/lib/dpkg/lock-frontend"), "rb+") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(lock, fcntl.LOCK_UN)
            except OSError:
                is_locked = True
    except (ImportError, OSError):
        pass
    audit = (node.run("dpkg", "--audit") or "").strip()
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
    document = read_json(node, "/var/lib/provision/baseline/packages.json")
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
    packages, holds = read_packages(node)
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
        "dpkg": read_dpkg(node, packages),
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
        "problems": node.problems,
    }


if __name__ == "__main__":
    json.dump(collect(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}), sys.stdout, sort_keys=True)
