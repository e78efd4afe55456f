"""Give each node two stand-ins of GPUs, and `provision` as it is in this checkout.

A stand-in is a device node of the driver's number behind which is no driver: opening one that a job was given ends with
ENXIO, opening another one with EPERM. /opt/standin holds what /proc/driver/nvidia, the kernel's log and nvidia-smi
would be.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))

import inventory
import nodes

STANDIN = "/opt/standin"
PROGRAM = "/opt/provision-under-test"
_REPOSITORY = Path(__file__).resolve().parents[2]
_LIBRARIES = (
    "packaging",
    "jinja2",
    "markupsafe",
    "yaml",
    "resolvelib",
    "rich",
    "tomlkit",
    "pygments",
    "markdown_it",
    "mdurl",
)
_DEVICES = f"""
set -eu
for index in 0 1; do
    mknod -m 666 "/dev/nvidia$index" c 195 "$index"
    mkdir -p {STANDIN}/driver/gpus/0000:0$index:00.0
done
: >{STANDIN}/kmsg
echo 'os = "debian12"' >{STANDIN}/expect.toml
cat >{STANDIN}/nvidia-smi <<'END'
#!/bin/sh
# A stand-in of nvidia-smi for two GPUs.
echo '<nvidia_smi_log><gpu id="00000000:00:00.0"/><gpu id="00000000:01:00.0"/></nvidia_smi_log>'
END
chmod 755 {STANDIN}/nvidia-smi
cat >/usr/local/bin/torchrun <<'END'
#!/bin/sh
# A stand-in of torchrun: it starts one worker, and hands no signal on to it.
while [ "${{1#--}}" != "$1" ]; do shift; done
python3 "$@" &
wait
END
chmod 755 /usr/local/bin/torchrun
mkdir -p {PROGRAM}
tar -xzf - -C {PROGRAM} --no-same-owner
cat >/usr/local/bin/provision <<'END'
#!/bin/sh
PYTHONPATH={PROGRAM} PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 -m provision "$@"
END
chmod 755 /usr/local/bin/provision
"""


def pack() -> bytes:
    """Return this checkout's program with the libraries that it needs, packed."""
    stream = io.BytesIO()

    def choose(row: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in row.name or row.name.endswith(".so") else row

    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        archive.add(_REPOSITORY / "provision", "provision", filter=choose)
        for name in ("compat", "images", "playbooks"):
            archive.add(_REPOSITORY / name, f"provision/_assets/{name}", filter=choose)
        for name in _LIBRARIES:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations:
                archive.add(spec.submodule_search_locations[0], name, filter=choose)
    return stream.getvalue()


def main() -> int:
    """Do it on every node; return the exit status."""
    if nodes.engine() != "docker":
        return nodes.skip("nodes of systemd-nspawn may make no device node, and Slurm's GPUs are such")
    packed = pack()
    for instance in nodes.instances():
        done = subprocess.run([*inventory.words_to(instance), _DEVICES], check=False, input=packed, capture_output=True)
        if done.returncode:
            nodes.say(f"error: {instance['instance']}: {done.stderr.decode()[-2000:]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
