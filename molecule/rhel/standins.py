"""Build stand-ins of NVIDIA's rpms and EPEL's DKMS on a node, and signed repositories of them.

Usage: ``python3 - FOLDER DIST < standins.py`` on the node, which has rpmbuild, createrepo-c and gpg. Names, versions,
epochs, requirements, conflicts, scriptlets and module streams are those of the real packages; what is inside is not.
Each says STAND-IN in its summary. Prints the fingerprint of the key as JSON.

``FOLDER/cuda`` has signed packages and module streams, ``FOLDER/build`` DKMS and its kernel, ``FOLDER/toolkit`` signs
its index and no package, as the container toolkit's does.
"""

import json
import os
import subprocess
import sys
import textwrap

DRIVERS = ("580.159.03", "580.178.04", "595.91.07")
NCCL = "2.25.1-1+cuda12.8"
TOOLKIT = "1.20.0-1"
KERNEL = "5.14.0-687.51.1.el9_8.x86_64"
STREAMS = {"580-open": "open", "580-dkms": "latest", "595-open": "open", "595-dkms": "latest"}

# What of DKMS the packages' scriptlets and the role call. It compiles nothing: a module is an ELF file with what
# modinfo reads. A file /etc/provision-test/dkms-fails makes it fail as a compiler does.
DKMS = r"""#!/bin/sh
set -eu
command=$1; shift
module= version= kernel=
while [ $# -gt 0 ]; do
    case $1 in -m) module=$2; shift ;; -v) version=$2; shift ;; -k) kernel=$2; shift ;; esac
    shift
done
tree=/var/lib/dkms
kernels=${kernel:-$(ls /usr/src/kernels 2>/dev/null || :)}
case $command in
add) mkdir -p "$tree/$module/$version/source" ;;
build | install)
    mkdir -p "$tree/$module/$version"
    for kernel in $kernels; do
        log=$tree/$module/$version/$kernel/x86_64; mkdir -p "$log"
        if [ -e /etc/provision-test/dkms-fails ]; then
            mkdir -p "$tree/$module/$version/build"
            printf 'CC nv.o\nnv.c:12:3: error: too few arguments to function\nmake: *** Error 1\n' \
                >"$tree/$module/$version/build/make.log"
            echo "Error! Bad return status for module build on kernel: $kernel (x86_64)" >&2
            exit 10
        fi
        license='Dual MIT/GPL'; ! grep -q latest "/usr/src/$module-$version/dkms.conf" || license=NVIDIA
        mkdir -p "/lib/modules/$kernel/extra"
        printf 'version=%s\0license=%s\0vermagic=%s SMP\0' "$version" "$license" "$kernel" >"$log/info"
        objcopy -I binary -O elf64-x86-64 --rename-section .data=.modinfo "$log/info" \
            "/lib/modules/$kernel/extra/nvidia.ko"
        echo "$kernel" >"$log/installed"
    done ;;
remove)
    rm -rf "${tree:?}/$module/$version"
    for file in /lib/modules/*/extra/nvidia.ko; do
        ! grep -qa "version=$version" "$file" 2>/dev/null || rm -f "$file"
    done ;;
status)
    for file in "$tree"/*/*/*/x86_64/installed; do
        [ -e "$file" ] || continue
        rest=${file#"$tree"/}
        echo "$(echo "$rest" | cut -d/ -f1)/$(echo "$rest" | cut -d/ -f2), $(cat "$file"), x86_64: installed"
    done ;;
esac
"""


CDI = {
    "/usr/bin/nvidia-ctk": "#!/bin/sh\nexit 0\n",
    "/usr/bin/nvidia-container-runtime": "#!/bin/sh\nexit 0\n",
    "/usr/lib/systemd/system/nvidia-cdi-refresh.service": (
        "[Unit]\nDescription=STAND-IN\n[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    ),
    "/usr/lib/systemd/system/nvidia-cdi-refresh.path": (
        "[Unit]\nDescription=STAND-IN\n[Path]\nPathChanged=/lib/modules\n[Install]\nWantedBy=multi-user.target\n"
    ),
}


def run(*argv, **settings):
    done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings)
    if done.returncode:
        sys.exit("%s ended with %d:\n%s" % (" ".join(argv), done.returncode, done.stdout.decode()))
    return done.stdout.decode()


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def split(evr):
    epoch, colon, rest = evr.rpartition(":")
    version, _, release = rest.rpartition("-")
    return epoch if colon else "", version, release


def write_spec(folder, name, evr, **parts):
    """Write the spec of one stand-in; ``files`` are path → text, executable where it begins with #!."""
    epoch, version, release = split(evr)
    lines = ["Name: " + name, "Version: " + version, "Release: " + release, "License: none"]
    lines += ["Summary: STAND-IN of %s, with nothing of NVIDIA inside" % name]
    lines += ["Epoch: " + epoch] if epoch else []
    lines += ["BuildArch: noarch"] if parts.get("noarch") else []
    lines += ["AutoReqProv: no"]
    for tag in ("requires", "provides", "conflicts"):
        lines += ["%s: %s" % (tag.capitalize(), item) for item in parts.get(tag, ())]
    files = {"/usr/share/doc/%s/STAND-IN" % name: "STAND-IN\n", **parts.get("files", {})}
    lines += ["%description", "STAND-IN.", "%install"]
    for number, (path, text) in enumerate(sorted(files.items())):
        source = os.path.join(folder, "%s-%s-%d" % (name, version, number))
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        lines.append("install -D -m %s %s %%{buildroot}%s" % ("755" if text.startswith("#!") else "644", source, path))
    for scriptlet in ("post", "preun"):
        if parts.get(scriptlet):
            lines += ["%" + scriptlet, parts[scriptlet]]
    lines += ["%files", *sorted(files)]
    path = os.path.join(folder, "%s-%s.spec" % (name, version))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def driver(folder, version, dist):
    """Write the specs of one driver, as compute-only hosts take it, with both flavours of its module."""
    evr = "3:%s-1.%s" % (version, dist)
    same = "= 3:%s" % version
    yield write_spec(folder, "libnvidia-ml", evr)
    yield write_spec(folder, "nvidia-driver-cuda-libs", evr, requires=["libnvidia-ml " + same])
    yield write_spec(folder, "nvidia-persistenced", evr)
    yield write_spec(
        folder,
        "nvidia-driver-cuda",
        evr,
        requires=["nvidia-driver-cuda-libs " + same, "nvidia-kmod-common " + same, "nvidia-persistenced " + same],
    )
    yield write_spec(folder, "nvidia-kmod-common", evr, noarch=True, requires=["nvidia-kmod " + same])
    for flavour, other in (("open", "latest"), ("latest", "open")):
        call = "dkms %s -m nvidia -v " + version
        yield write_spec(
            folder,
            "kmod-nvidia-%s-dkms" % flavour,
            evr,
            noarch=True,
            requires=["dkms", "nvidia-kmod-common " + same],
            provides=["nvidia-kmod " + same],
            conflicts=["kmod-nvidia-%s-dkms" % other],
            files={"/usr/src/nvidia-%s/dkms.conf" % version: "# %s\nPACKAGE_NAME=nvidia\n" % flavour},
            # As upstream's: a module that does not build fails no transaction.
            post="%s || :\n%s || :\n" % (call % "add", call % "install"),
            preun="%s || :\n" % (call % "remove"),
        )


def modules(dist):
    """Return the module streams of the drivers, as modules.yaml has them."""
    documents = []
    for stream, flavour in STREAMS.items():
        branch = stream.partition("-")[0]
        artifacts = []
        for version in [each for each in DRIVERS if each.startswith(branch + ".")]:
            for name, arch in (
                ("libnvidia-ml", "x86_64"),
                ("nvidia-driver-cuda-libs", "x86_64"),
                ("nvidia-persistenced", "x86_64"),
                ("nvidia-driver-cuda", "x86_64"),
                ("nvidia-kmod-common", "noarch"),
                ("kmod-nvidia-%s-dkms" % flavour, "noarch"),
            ):
                artifacts.append("%s-3:%s-1.%s.%s" % (name, version, dist, arch))
        documents.append(
            textwrap.dedent(
                """\
                ---
                document: modulemd
                version: 2
                data:
                  name: nvidia-driver
                  stream: "%s"
                  version: 20260101000000
                  context: "%s"
                  arch: x86_64
                  summary: STAND-IN of NVIDIA's streams
                  description: STAND-IN
                  license:
                    module: [MIT]
                  artifacts:
                    rpms:
                """
            )
            % (stream, "%08x" % (abs(hash(stream)) % 16**8))
            + "".join("    - %s\n" % item for item in artifacts)
            + "...\n"
        )
    return "".join(documents)


def make_key(base, name):
    """Make a signing key, write its public half as NAME.asc and return its fingerprint."""
    address = "%s@stand-in.example" % name
    run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", address, "rsa3072", "sign", "never")
    listed = run("gpg", "--batch", "--with-colons", "--list-keys", address)
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
    with open(os.path.join(base, name + ".asc"), "w", encoding="utf-8") as file:
        file.write(run("gpg", "--batch", "--armor", "--export", fingerprint))
    return fingerprint


def main():
    base, dist = sys.argv[1], sys.argv[2]
    home = os.path.join(base, "gpg")
    specs = os.path.join(base, "specs")
    for folder in (home, specs, *(os.path.join(base, name) for name in ("cuda", "build", "toolkit"))):
        os.makedirs(folder, mode=0o700 if folder == home else 0o755, exist_ok=True)
    os.environ["GNUPGHOME"] = home
    # rpm of a RHEL has the distribution's key; where there is none at all, dnf checks no signature and says so.
    make_key(base, "distribution")
    fingerprint = make_key(base, "vendor")
    plan = {"cuda": [], "build": [], "toolkit": []}
    for version in DRIVERS:
        plan["cuda"] += driver(specs, version, dist)
    for name in ("libnccl", "libnccl-devel"):
        needs = [] if name == "libnccl" else ["libnccl = " + NCCL.rpartition("-")[0]]
        plan["cuda"].append(write_spec(specs, name, NCCL, requires=needs))
    for name in ("libnvidia-container1", "libnvidia-container-tools", "nvidia-container-toolkit"):
        plan["toolkit"].append(write_spec(specs, name, TOOLKIT))
    plan["toolkit"].append(write_spec(specs, "nvidia-container-toolkit-base", TOOLKIT, files=CDI))
    plan["build"].append(write_spec(specs, "dkms", "3.3.0-1." + dist, noarch=True, files={"/usr/sbin/dkms": DKMS}))
    version, _, release = KERNEL.rpartition(".")[0].partition("-")
    plan["build"] += [
        write_spec(
            specs, "kernel-devel", "%s-%s" % (version, release), files={"/usr/src/kernels/%s/Makefile" % KERNEL: "\n"}
        ),
        write_spec(
            specs,
            "kernel-core",
            "%s-%s" % (version, release),
            files={"/boot/vmlinuz-" + KERNEL: "", "/lib/modules/%s/modules.order" % KERNEL: ""},
        ),
        # Scriptlets ask rpm for the shell, which here is Debian's.
        write_spec(specs, "bash", "5.1.8-9." + dist, provides=["/bin/sh"]),
        write_spec(specs, "gcc", "11.5.0-1." + dist),
        write_spec(specs, "make", "4.3-1." + dist),
    ]
    for place, wanted in plan.items():
        folder = os.path.join(base, place)
        for spec in wanted:
            run("rpmbuild", "-bb", "--target", "noarch" if "BuildArch: noarch" in read(spec) else "x86_64",
                "--define", "_topdir %s/build-tree" % base, "--define", "_rpmdir " + folder,
                "--define", "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
                "--define", "_build_id_links none",
                "--define", "debug_package %{nil}", spec)  # fmt: skip
        packages = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".rpm"))
        if place != "toolkit":
            run(
                "rpmsign",
                "--addsign",
                "--define",
                "__gpg /usr/bin/gpg",
                "--define",
                "_gpg_name " + fingerprint,
                "--define",
                "_gpg_path " + home,
                *packages,
            )
        run("createrepo_c", "-q", folder)
        if place == "cuda":
            text = os.path.join(specs, "modules.yaml")
            with open(text, "w", encoding="utf-8") as file:
                file.write(modules(dist))
            run("modifyrepo_c", "--mdtype=modules", text, os.path.join(folder, "repodata"))
        run(
            "gpg",
            "--batch",
            "--yes",
            "--armor",
            "--local-user",
            fingerprint,
            "--detach-sign",
            os.path.join(folder, "repodata/repomd.xml"),
        )
    print(json.dumps({"fingerprint": fingerprint, "kernel": KERNEL}))


if __name__ == "__main__":
    main()
