"""The collector as one program: assignments, the script and the payloads, ready for the standard input of a shell."""

from __future__ import annotations

import re
import secrets
import shlex
from pathlib import Path

from provision.errors import UsageError
from provision.probe.catalogue import LEVELS, PROBES, probes_of
from provision.records import record

COLLECTOR = Path(__file__).with_name("collector.sh")
_PAYLOADS = COLLECTOR.parent / "payloads"

_NONCE = re.compile(r"[A-Za-z0-9]{6,64}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
_ENGINES = ("docker", "podman")
_GRACE_SECONDS = 4
_BUILD_SECONDS = 420
"""Added for what may have to be built: the time of nccl-tests has room for it, that of nvbandwidth has not."""
_SCRIPTS = {
    "python": "environment",
    "torch": "framework",
    "tensorflow": "framework",
    "jax": "framework",
    "cuda-work": "cuda_work",
    "torch-work": "torch_work",
    "torch-nccl": "torch_nccl",
    "nccl-pair": "torch_nccl",
}


@record
class CollectOptions:
    """What one call of the collector is to do.

    Attributes:
        nonce: A word that no output can hold by chance, from :func:`new_nonce`; :func:`decode_stream` wants the same.
        level: A level of the catalogue; its probes run unless ``probes`` names others.
        probes: Exactly these, in the order of the catalogue.
        python: Interpreter of the frameworks: a path, or a name on the target's ``PATH``. By default the first of an
            active environment, ``python3`` and the usual places.
        seconds_scale: Factor on every probe's time limit.
        total_seconds: All probes must have ended by then; by default their own limits decide.
        container_image: Image for the probes that start a container; without one they do not run.
        engine: ``docker`` or ``podman``.
        peers: Addresses of other hosts that ``ports`` connects to; ``ports`` the numbers tried there.
        exporter_port: Port of dcgm-exporter on the target.
        textfile_dir: Folder of node_exporter's textfiles; by default the usual ones are tried.
        is_disruptive: Whether probes may run that disturb other people's containers (``daemon-reload``).
        rank: Of this host in ``nccl-pair``, which runs only where rank and master are set.
        world_size: How many hosts take part in it.
        master: Address of the host with rank 0, and its port.
        backend: ``nccl``, or ``gloo`` where there is no GPU.
        dcgmi: Program.
        nvbandwidth: Program on the target, or a folder there that holds it or the sources to build it from, for which
            it is given more time; empty looks on the ``PATH`` and in the usual places. Nothing is ever downloaded.
        all_reduce_perf: Likewise, of nccl-tests.
        bytes_max: Kept of each output; the kernel log may have twice as much.
        is_compressed: Whether the target compresses its answer where it can.
    """

    nonce: str
    level: str = "quick"
    probes: tuple[str, ...] = ()
    python: str | None = None
    seconds_scale: float = 1.0
    total_seconds: int | None = None
    container_image: str | None = None
    engine: str = "docker"
    peers: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    exporter_port: int | None = 9400
    textfile_dir: str | None = None
    is_disruptive: bool = False
    rank: int | None = None
    world_size: int = 2
    master: str | None = None
    master_port: int | None = None
    backend: str = "nccl"
    dcgmi: str = "dcgmi"
    nvbandwidth: str = ""
    all_reduce_perf: str = ""
    bytes_max: int = 262144
    is_compressed: bool = True

    def __post_init__(self) -> None:
        """Refuse what a shell must not see or the collector does not know."""
        if not _NONCE.fullmatch(self.nonce):
            raise UsageError(f"`{self.nonce}` is not a word of 6 to 64 letters and digits")
        if self.level not in LEVELS:
            raise UsageError(f"unknown level `{self.level}`", hints=(f"levels: {', '.join(LEVELS)}",))
        for name in self.probes:
            if name not in PROBES:
                raise UsageError(f"unknown probe `{name}`", hints=(f"probes: {', '.join(PROBES)}",))
        if self.engine not in _ENGINES:
            raise UsageError(f"unknown engine `{self.engine}`", hints=(f"engines: {', '.join(_ENGINES)}",))
        if self.backend not in ("nccl", "gloo"):
            raise UsageError(f"unknown backend `{self.backend}`", hints=("backends: nccl, gloo",))
        for host in (*self.peers, *([self.master] if self.master is not None else [])):
            if not _HOST.fullmatch(host):
                raise UsageError(f"`{host}` is not an address of a host")
        for port in (*self.ports, self.exporter_port, self.master_port):
            if port is not None and not 0 < port < 1 << 16:
                raise UsageError(f"`{port}` is not a port")
        if self.seconds_scale <= 0 or (self.total_seconds is not None and self.total_seconds <= 0):
            raise UsageError("time limits must be positive")
        for word in self._words():
            if "\n" in word or "\0" in word or word.startswith("-"):
                raise UsageError(f"`{word!r}` may not have line ends and may not begin with a dash")

    def _words(self) -> tuple[str, ...]:
        given = (self.python, self.container_image, self.textfile_dir, self.dcgmi, self.nvbandwidth)
        return tuple(word for word in (*given, self.all_reduce_perf) if word is not None)

    def names(self) -> tuple[str, ...]:
        """Return the probes that run, in the order of the catalogue."""
        return tuple(name for name in PROBES if name in (self.probes or probes_of(self.level)))

    def seconds(self, probe: str) -> int:
        """Return a probe's time limit in whole seconds, at least one."""
        more = _BUILD_SECONDS if probe == "nvbandwidth" and "/" in self.nvbandwidth else 0
        return max(1, round((PROBES[probe].seconds + more) * self.seconds_scale))

    def deadline_seconds(self) -> float:
        """Return how long the collector may take at most: what asks for it should wait a little longer."""
        quick = [self.seconds(name) for name in self.names() if not PROBES[name].is_exclusive]
        alone = [self.seconds(name) + _GRACE_SECONDS for name in self.names() if PROBES[name].is_exclusive]
        own = max(quick, default=0) + _GRACE_SECONDS + sum(alone)
        return float(own if self.total_seconds is None else min(own, self.total_seconds + _GRACE_SECONDS))


def new_nonce() -> str:
    """Return a word that nobody can guess."""
    return secrets.token_hex(8)


def compose(options: CollectOptions) -> bytes:
    """Return the program for ``sh -s``: same options, same bytes.

    It stores the collector and the payloads in a private folder, which it removes at the end, and runs it with the
    standard input closed, since that is where this program itself comes from.
    """
    wanted = {_SCRIPTS[name] for name in options.names() if name in _SCRIPTS}
    payloads = {name: (_PAYLOADS / f"{name}.py").read_text(encoding="utf-8") for name in sorted(wanted)}
    collector = _assignments(options) + COLLECTOR.read_text(encoding="utf-8")
    files = {"collector": collector} | {f"payload-{name}.py": text for name, text in payloads.items()}
    size_kib = sum(len(text.encode()) for text in files.values()) // 1024 + 1
    parts = [_PLACE.replace("NONCE", options.nonce).replace("SIZE_KIB", str(size_kib))]
    for name, text in files.items():
        parts.append(f"cat >\"$provision_dir/{name}\" <<'END-{options.nonce}'\n{text}END-{options.nonce}\n")
    parts.append('"${COLLECT_SHELL:-sh}" "$provision_dir/collector" main "$provision_dir" </dev/null\nexit 0\n')
    return "".join(parts).encode()


def _assignments(options: CollectOptions) -> str:
    probes = " ".join(
        f"{name}:{options.seconds(name)}:{'alone' if PROBES[name].is_exclusive else 'quick'}"
        for name in options.names()
    )
    values: dict[str, object] = {
        "NONCE": options.nonce,
        "PROBES": probes,
        "TOTAL_SECONDS": options.total_seconds or 0,
        "BYTES": options.bytes_max,
        "LOG_BYTES": 2 * options.bytes_max,
        "GZIP": "yes" if options.is_compressed else "no",
        "PYTHON": options.python,
        "IMAGE": options.container_image,
        "ENGINE": options.engine,
        "PEERS": " ".join(options.peers),
        "PORTS": " ".join(map(str, options.ports)),
        "EXPORTER_PORT": options.exporter_port,
        "TEXTFILES": options.textfile_dir,
        "DISRUPTIVE": "yes" if options.is_disruptive else "no",
        "DCGMI": options.dcgmi,
        "NVBANDWIDTH": options.nvbandwidth,
        "ALL_REDUCE": options.all_reduce_perf,
        "RANK": options.rank,
        "WORLD": options.world_size,
        "MASTER": options.master,
        "MASTER_PORT": options.master_port,
        "BACKEND": options.backend,
    }
    quoted = ((name, shlex.quote("" if value is None else str(value))) for name, value in values.items())
    return "".join(f"COLLECT_{name}={value}\n" for name, value in quoted)


# The folder is made where its whole content fits; the answer to "nowhere" is a stream too, so that it is read as one.
_PLACE = r"""set -u
umask 077
provision_dir=
trap '[ -z "$provision_dir" ] || rm -rf "$provision_dir" 2>/dev/null || { sleep 1 && rm -rf "$provision_dir"; }' EXIT
trap 'exit 1' HUP INT TERM PIPE
for provision_base in "${TMPDIR:-}" /dev/shm /tmp /var/tmp /run "${HOME:-}" .; do
    [ -n "$provision_base" ] && [ -d "$provision_base" ] && [ -w "$provision_base" ] || continue
    provision_base=$(cd "$provision_base" 2>/dev/null && pwd) || continue
    provision_dir=$(mktemp -d "${provision_base%/}/provision.XXXXXXXX" 2>/dev/null) || {
        provision_dir=${provision_base%/}/provision.NONCE
        mkdir -m 700 "$provision_dir" 2>/dev/null || { provision_dir= && continue; }
    }
    # Room for what follows and for the answers, or the next place.
    dd if=/dev/zero of="$provision_dir/room" bs=1024 count=$((SIZE_KIB + 1024)) 2>/dev/null &&
        rm -f "$provision_dir/room" && break
    rm -rf "$provision_dir"
    provision_dir=
done
if [ -z "$provision_dir" ]; then
    provision_said='no folder can be written: neither TMPDIR, /dev/shm, /tmp, /var/tmp, /run nor the home'
    printf '@provision-collector NONCE 1 plain\n@record NONCE collector failed - 0 0 %s\n%s\n@end NONCE 1\n' \
        "${#provision_said}" "$provision_said"
    exit 0
fi
"""
