#!/usr/bin/env python3
"""Make stand-ins for the packages that no archive reachable here has, and a signed repository of them.

Usage: build.py --lock FILE [--lock FILE…] --out FOLDER [--profile OS…] [--section NAME…] [--also NAME=VERSION…]

Names, versions and dependencies are upstream's; what is inside is not. Every package says so in its description and
by the file /usr/share/doc/<name>/STUB, so that a report can count them. FOLDER becomes a flat repository:
`deb [signed-by=FOLDER/stubs.gpg] file:FOLDER ./`. Where gpg is absent it is left unsigned, and the exit is 3.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# Sections of a profile that NVIDIA's own repositories serve. The driver comes real from the distribution's archive.
SECTIONS = ("fabric", "imex", "cuda", "cudnn", "nccl", "container_toolkit", "dcgm", "doca")
# Nothing in a package says when it was made, so that the same lock gives the same bytes.
EPOCH = "1"


@dataclass(frozen=True, slots=True)
class Stub:
    """One package to make."""

    name: str
    version: str
    arch: str = "amd64"
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)


def read_lock(path: Path) -> Mapping[str, Any]:
    """Read a node lock.

    Args:
        path: a provision_lock.yml.

    Returns:
        The mapping under `provision_lock`.

    Raises:
        SystemExit: the file is not a node lock.
    """
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or not isinstance(document.get("provision_lock"), dict):
        raise SystemExit(f"build.py: `{path}` has no mapping `provision_lock`: it is not a node lock")
    lock: dict[str, Any] = document["provision_lock"]
    return lock


def walk_packages(section: Any) -> Iterator[tuple[str, str]]:
    """Name every pinned package below one section, in the order of the lock."""
    if isinstance(section, dict):
        name, version = section.get("name"), section.get("version")
        if isinstance(name, str) and isinstance(version, str):
            yield name, version
        for key in section:
            yield from walk_packages(section[key])
    elif isinstance(section, list):
        for item in section:
            yield from walk_packages(item)


def collect_packages(
    lock: Mapping[str, Any], profiles: Iterable[str], sections: Iterable[str]
) -> list[tuple[str, str]]:
    """List the pinned packages of some profiles and sections of a lock, sorted, once each."""
    wanted = set(profiles)
    found: set[tuple[str, str]] = set()
    for name, profile in (lock.get("profiles") or {}).items():
        if wanted and name not in wanted:
            continue
        for section in sections:
            part = (profile.get("rdma") or {}).get("doca") if section == "doca" else profile.get(section)
            found.update(walk_packages(part))
    return sorted(found)


def make_stub(name: str, version: str) -> Stub:
    """Describe the stand-in for one upstream package.

    Args:
        name: the package's name upstream.
        version: its version in the archive's spelling.

    Returns:
        The stub; a package without a rule of its own is empty but for its documentation.
    """
    for pattern, maker in RULES:
        match = re.fullmatch(pattern, name)
        if match:
            return maker(name, version, match)
    return Stub(name, version)


def _say(text: str, status: int = 0) -> str:
    return f"#!/bin/sh\necho '{text}'\nexit {status}\n"


def _toolkit(name: str, version: str, _match: re.Match[str]) -> Stub:
    same = f"(= {version})"
    return Stub(
        name,
        version,
        depends=(f"nvidia-container-toolkit-base {same}", f"libnvidia-container-tools {same}"),
        programs={"/usr/bin/nvidia-container-runtime-hook": _say("stub")},
    )


# Upstream's own unit, condition by condition: what the role corrects has to be there to be corrected.
CDI_SERVICE = """[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=|/usr/bin/nvidia-smi
ConditionPathExists=|/usr/sbin/nvidia-smi
ConditionPathExists=|/usr/lib/wsl/lib/nvidia-smi
ConditionPathExists=/usr/bin/nvidia-ctk

[Service]
Type=oneshot
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecCondition=/bin/sh -c '/usr/bin/grep -qE "/(nvidia|nvidia-current)[.]ko" /lib/modules/%v/modules.dep'
ExecStart=/bin/sh -c '/usr/bin/nvidia-smi -L || /usr/sbin/nvidia-smi -L'
ExecStart=/usr/bin/nvidia-ctk cdi generate
Restart=on-failure
RestartSec=1s

[Install]
WantedBy=multi-user.target
"""
CDI_PATH = """[Unit]
Description=Trigger CDI refresh on NVIDIA driver or toolkit install / upgrade events

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
"""
NVIDIA_CTK = """#!/bin/sh
# Stub of nvidia-ctk: knows its version, writes an empty CDI specification, and notes how it was called.
echo "$*" >>/var/log/nvidia-ctk-stub.log
case "$*" in
*--version*) echo "NVIDIA Container Toolkit CLI version {version}" ;;
"cdi generate"*)
    file=${{NVIDIA_CTK_CDI_OUTPUT_FILE_PATH:-/var/run/cdi/nvidia.yaml}}
    mkdir -p "$(dirname "$file")"
    printf 'cdiVersion: 0.5.0\\nkind: nvidia.com/gpu\\ndevices: []\\n' >"$file" ;;
esac
"""


def _toolkit_base(name: str, version: str, _match: re.Match[str]) -> Stub:
    return Stub(
        name,
        version,
        files={
            "/lib/systemd/system/nvidia-cdi-refresh.service": CDI_SERVICE,
            "/lib/systemd/system/nvidia-cdi-refresh.path": CDI_PATH,
            "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": "# stub\n",
        },
        programs={
            "/usr/bin/nvidia-ctk": NVIDIA_CTK.format(version=version.partition("-")[0]),
            "/usr/bin/nvidia-cdi-hook": _say("stub"),
            "/usr/bin/nvidia-container-runtime": '#!/bin/sh\nexec runc "$@"\n',
        },
        scripts=_enable("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
    )


def _enable(*units: str) -> dict[str, str]:
    """Write the maintainer scripts that debhelper writes for units that are enabled and never started."""
    words = " ".join(units)
    head = "#!/bin/sh\nset -e\n"
    return {
        "postinst": f'{head}[ "$1" != configure ] || deb-systemd-helper enable {words} >/dev/null || true\n',
        "prerm": f'{head}[ "$1" != remove ] || deb-systemd-invoke stop {words} >/dev/null 2>&1 || true\n',
        "postrm": f'{head}[ "$1" = upgrade ] || deb-systemd-helper purge {words} >/dev/null 2>&1 || true\n',
    }


def _container_tools(name: str, version: str, _match: re.Match[str]) -> Stub:
    program = {"/usr/bin/nvidia-container-cli": _say(f"cli-version: {version}")}
    return Stub(name, version, depends=(f"libnvidia-container1 (>= {version})",), programs=program)


def _container_library(name: str, version: str, _match: re.Match[str]) -> Stub:
    return Stub(name, version, files={"/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1": "stub\n"})


def _cuda_toolkit(name: str, version: str, match: re.Match[str]) -> Stub:
    release = f"{match[1]}.{match[2]}"
    home = f"/usr/local/cuda-{release}"
    # Upstream's cuda-toolkit-X-Y-config-common registers the home with update-alternatives just so.
    return Stub(
        name,
        version,
        files={
            f"{home}/version.json": json.dumps({"cuda": {"name": "CUDA SDK", "version": release}}, indent=3) + "\n",
            f"{home}/lib64/libcudart.so.{match[1]}": "stub\n",
        },
        programs={
            f"{home}/bin/nvcc": _say(f"Cuda compilation tools, release {release}, V{version.partition('-')[0]} (stub)")
        },
        scripts={
            "postinst": '#!/bin/sh\nset -e\n[ "$1" != configure ] || '
            f"update-alternatives --install /usr/local/cuda cuda {home} {match[1]}{match[2]} >/dev/null\n",
            "prerm": f'#!/bin/sh\nset -e\n[ "$1" != remove ] || update-alternatives --remove cuda {home}\n',
        },
    )


def _cuda_compat(name: str, version: str, match: re.Match[str]) -> Stub:
    return Stub(name, version, files={f"/usr/local/cuda-{match[1]}.{match[2]}/compat/libcuda.so.1": "stub\n"})


def _shared_library(name: str, version: str, match: re.Match[str]) -> Stub:
    return Stub(name, version, files={f"/usr/lib/x86_64-linux-gnu/lib{match[1]}.so.{match[2]}": "stub\n"})


def _library_headers(name: str, version: str, match: re.Match[str]) -> Stub:
    library = {"libnccl-dev": "libnccl2"}.get(name, name.replace("-dev", "").replace("-headers", ""))
    del match
    return Stub(name, version, depends=(f"{library} (= {version})",))


DCGM_UNIT = """[Unit]
Description=NVIDIA DCGM service

[Service]
ExecStart=/usr/bin/nv-hostengine -n

[Install]
WantedBy=multi-user.target
"""


def _dcgm_core(name: str, version: str, _match: re.Match[str]) -> Stub:
    return Stub(
        name,
        version,
        conflicts=("datacenter-gpu-manager",),
        files={"/usr/lib/systemd/system/nvidia-dcgm.service": DCGM_UNIT},
        programs={
            "/usr/bin/nv-hostengine": "#!/bin/sh\nexec sleep infinity\n",
            "/usr/bin/dcgmi": _say(f"dcgmi version: {version.rpartition(':')[2].partition('-')[0]} (stub)"),
        },
    )


def _dcgm_cuda(name: str, version: str, match: re.Match[str]) -> Stub:
    family = match[1]
    same = f"(= {version})"
    if match[2].startswith("proprietary-"):
        return Stub(name, version, depends=(f"{family}-proprietary {same}",))
    return Stub(
        name,
        version,
        depends=(f"{family}-core {same}",),
        recommends=(f"{family}-proprietary-{match[2]}",),
    )


def _dcgm_proprietary(name: str, version: str, match: re.Match[str]) -> Stub:
    return Stub(name, version, depends=(f"{match[1]}-core (= {version})",))


EXPORTER_UNIT = """[Unit]
Description=NVIDIA DCGM-exporter service
Wants=nvidia-dcgm.service
After=nvidia-dcgm.service

[Service]
ExecStart=/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
Restart=on-abort

[Install]
WantedBy=multi-user.target
"""
# It knows upstream's words and serves what a test has laid in its folder. TLS and passwords are node_exporter's, which
# has them from the same toolkit. As upstream's it refuses a list of fields with a line that has not three parts.
EXPORTER_PROGRAM = """#!/bin/sh
set -eu
address=:9400 fields=/etc/dcgm-exporter/default-counters.csv web=
while [ $# -gt 0 ]; do
    case $1 in
    --*=*) word=${1%%=*} value=${1#*=} && shift && set -- "$word" "$value" "$@" ;;
    -a | --address) address=$2 && shift 2 ;;
    -f | --collectors) fields=$2 && shift 2 ;;
    --web-config-file) web=$2 && shift 2 ;;
    -c | --collect-interval) shift 2 ;;
    *) echo "stub of dcgm-exporter: unknown word $1" >&2 && exit 1 ;;
    esac
done
grep -v -e '^ *#' -e '^ *$' "$fields" | while IFS= read -r line; do
    [ "$(printf %s "$line" | tr -cd , | wc -c)" -eq 2 ] || { echo "malformed line: $line" >&2 && exit 1; }
done
exec /usr/bin/prometheus-node-exporter --collector.disable-defaults --web.disable-exporter-metrics \\
    --collector.textfile --collector.textfile.directory=/opt/provision-stand-in/gpus \\
    --web.listen-address="$address" ${web:+--web.config.file="$web"}
"""


def _dcgm_exporter(name: str, version: str, _match: re.Match[str]) -> Stub:
    return Stub(
        name,
        version,
        depends=("prometheus-node-exporter",),
        files={
            "/usr/lib/systemd/system/nvidia-dcgm-exporter.service": EXPORTER_UNIT,
            "/etc/dcgm-exporter/default-counters.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n",
        },
        programs={"/usr/bin/dcgm-exporter": EXPORTER_PROGRAM},
    )


FABRIC_UNIT = """[Unit]
Description=NVIDIA fabric manager service
After=network-online.target

[Service]
Type=simple
ExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg

[Install]
WantedBy=multi-user.target
"""
# The real one ends at once, and with an error, where there is no NVSwitch.
FABRIC_PROGRAM = """#!/bin/sh
[ ! -e /run/stub-nvswitch ] || exec sleep infinity
echo "NV_WARN_NOTHING_TO_DO: no NVSwitch" >&2
exit 1
"""


def _fabric(name: str, version: str, _match: re.Match[str]) -> Stub:
    return Stub(
        name,
        version,
        provides=tuple(sorted({"nvidia-fabricmanager", "nvidia-fabric-manager"} - {name})),
        files={
            "/usr/lib/systemd/system/nvidia-fabricmanager.service": FABRIC_UNIT,
            "/usr/share/nvidia/nvswitch/fabricmanager.cfg": "DAEMONIZE=0\n",
        },
        programs={"/usr/bin/nv-fabricmanager": FABRIC_PROGRAM},
    )


def _imex(name: str, version: str, _match: re.Match[str]) -> Stub:
    unit = FABRIC_UNIT.replace("fabric manager", "IMEX").replace(
        "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg",
        "/usr/bin/nvidia-imex -c /etc/nvidia-imex/config.cfg",
    )
    return Stub(
        name,
        version,
        files={"/usr/lib/systemd/system/nvidia-imex.service": unit, "/etc/nvidia-imex/config.cfg": "# stub\n"},
        programs={"/usr/bin/nvidia-imex": "#!/bin/sh\nexec sleep infinity\n"},
    )


def _driver_pinning(name: str, version: str, match: re.Match[str]) -> Stub:
    stanza = f"Package: src:*nvidia*:any src:cuda-drivers:any\nPin: version {match[1]}*\nPin-Priority: 1000\n"
    return Stub(name, version, arch="all", files={f"/etc/apt/preferences.d/{name}": stanza})


RULES = (
    (r"nvidia-container-toolkit", _toolkit),
    (r"nvidia-container-toolkit-base", _toolkit_base),
    (r"libnvidia-container-tools", _container_tools),
    (r"libnvidia-container1", _container_library),
    (r"cuda-toolkit-([0-9]+)-([0-9]+)", _cuda_toolkit),
    (r"cuda-compat-([0-9]+)-([0-9]+)", _cuda_compat),
    (r"lib(nccl|cudnn)([0-9]+)(?:-cuda-[0-9]+)?", _shared_library),
    (r"lib(nccl|cudnn)([0-9]*)-(?:dev|headers)(?:-cuda-[0-9]+)?", _library_headers),
    (r"datacenter-gpu-manager-[0-9]+-core", _dcgm_core),
    (r"(datacenter-gpu-manager-[0-9]+)-proprietary", _dcgm_proprietary),
    (r"(datacenter-gpu-manager-[0-9]+)-((?:proprietary-)?cuda[0-9]+)", _dcgm_cuda),
    (r"datacenter-gpu-manager-exporter", _dcgm_exporter),
    (r"nvidia-fabric-?manager(?:-[0-9]+)?", _fabric),
    (r"nvidia-imex(?:-[0-9]+)?", _imex),
    (r"nvidia-driver-pinning-([0-9.]+)", _driver_pinning),
)


def write_package(stub: Stub, folder: Path) -> Path:
    """Build one .deb with dpkg-deb.

    Args:
        stub: what to build.
        folder: where it goes.

    Returns:
        The path of the package.
    """
    target = folder / f"{stub.name}_{stub.version.rpartition(':')[2]}_{stub.arch}.deb"
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        control = root / "DEBIAN"
        control.mkdir(mode=0o755)
        fields = [
            ("Package", stub.name),
            ("Version", stub.version),
            ("Architecture", stub.arch),
            ("Maintainer", "provision tests <nobody@example.invalid>"),
            ("Section", "misc"),
            ("Priority", "optional"),
            ("Depends", ", ".join(stub.depends)),
            ("Recommends", ", ".join(stub.recommends)),
            ("Provides", ", ".join(stub.provides)),
            ("Conflicts", ", ".join(stub.conflicts)),
            ("Replaces", ", ".join(stub.conflicts)),
            ("Description", f"STUB of {stub.name} for tests\n Nothing of the vendor is in this package."),
        ]
        control.joinpath("control").write_text("".join(f"{key}: {value}\n" for key, value in fields if value))
        for script, text in stub.scripts.items():
            path = control / script
            path.write_text(text)
            path.chmod(0o755)
        mark = {f"/usr/share/doc/{stub.name}/STUB": f"{stub.name} {stub.version}\n"}
        configuration = []
        for place, text, mode in [
            *((place, text, 0o644) for place, text in {**stub.files, **mark}.items()),
            *((place, text, 0o755) for place, text in stub.programs.items()),
        ]:
            path = root / place.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)
            if place.startswith("/etc/"):
                configuration.append(place)
        if configuration:
            control.joinpath("conffiles").write_text("".join(f"{place}\n" for place in configuration))
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(target)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return target


def write_index(folder: Path) -> None:
    """Write Packages and Release of a flat repository over the packages that are in a folder."""
    stanzas = []
    for package in sorted(folder.glob("*.deb")):
        done = subprocess.run(["dpkg-deb", "--field", str(package)], check=True, capture_output=True, text=True)
        content = package.read_bytes()
        stanzas.append(
            f"{done.stdout.rstrip()}\nFilename: ./{package.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    index = folder / "Packages"
    index.write_text("\n".join(stanzas))
    content = index.read_bytes()
    folder.joinpath("Release").write_text(
        "Origin: provision stubs\nLabel: provision stubs\nSuite: stubs\nCodename: stubs\n"
        "Date: Thu, 01 Jan 2026 00:00:00 UTC\nArchitectures: amd64 all\nDescription: STUBS, for tests only\n"
        f"SHA256:\n {hashlib.sha256(content).hexdigest()} {len(content)} Packages\n"
    )


def sign(folder: Path, home: Path) -> str | None:
    """Sign the repository with a key that lives in its own folder.

    Args:
        folder: the repository.
        home: gpg's folder; a key is made there when it holds none.

    Returns:
        The fingerprint, or None where gpg is absent.
    """
    if shutil.which("gpg") is None:
        return None
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--yes", "--quiet"]

    def run(*words: str) -> str:
        return subprocess.run([*gpg, *words], check=True, capture_output=True, text=True).stdout

    user = "provision stubs <nobody@example.invalid>"
    listing = run("--with-colons", "--list-secret-keys")
    if "fpr:" not in listing:
        run("--passphrase", "", "--quick-gen-key", user, "ed25519", "sign", "never")
        listing = run("--with-colons", "--list-secret-keys")
    fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
    release = str(folder / "Release")
    run("--clearsign", "--output", str(folder / "InRelease"), release)
    run("--detach-sign", "--armor", "--output", str(folder / "Release.gpg"), release)
    run("--export", "--output", str(folder / "stubs.gpg"), fingerprint)
    run("--export", "--armor", "--output", str(folder / "stubs.asc"), fingerprint)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
    return fingerprint


def main(arguments: list[str] | None = None) -> int:
    """Build the stubs and their repository; prints a JSON summary."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lock", action="append", type=Path, default=[], help="a provision_lock.yml")
    parser.add_argument("--out", type=Path, required=True, help="folder of the repository; made anew")
    parser.add_argument("--profile", action="append", default=[], help="only this operating system of the lock")
    parser.add_argument("--section", action="append", default=[], help=f"instead of {', '.join(SECTIONS)}")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=VERSION", help="a package no lock names")
    parser.add_argument("--key", type=Path, help="gpg's folder, to sign again with the same key")
    chosen = parser.parse_args(arguments)
    packages: set[tuple[str, str]] = set()
    for path in chosen.lock:
        packages.update(collect_packages(read_lock(path), chosen.profile, chosen.section or SECTIONS))
    for word in chosen.also:
        name, _, version = word.partition("=")
        if not version:
            parser.error(f"`--also {word}` is not NAME=VERSION")
        packages.add((name, version))
    if not packages:
        parser.error("no package to make: give --lock or --also")
    shutil.rmtree(chosen.out, ignore_errors=True)
    chosen.out.mkdir(parents=True)
    for name, version in sorted(packages):
        write_package(make_stub(name, version), chosen.out)
    write_index(chosen.out)
    with tempfile.TemporaryDirectory() as home:
        fingerprint = sign(chosen.out, chosen.key or Path(home))
    specifications = [f"{name}={version}" for name, version in sorted(packages)]
    summary = {"repository": str(chosen.out), "fingerprint": fingerprint, "stubs": specifications}
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if fingerprint else 3


if __name__ == "__main__":
    sys.exit(main())
