"""Measure ``provision verify`` over many hosts against plain testinfra, as ratios within one run.

    python tests/benchmarks/verify_fleet.py [--hosts N] [--rtt-ms MS] [--parallel N] [--peer-hosts N] [--json FILE]

One sshd on loopback stands for all hosts, each under an address of its own, behind a proxy that delays what passes by
half the round trip each way and a new connection by its handshake. A stand-in for nvidia-smi on the targets' PATH
prints what a machine of ``tests/machines.py`` would say. testinfra gets a control path, the collector lies on the
target for it, and it runs the same probes one ``host.run`` each, then the same parsers and checks. The machine that
measures also is all the targets, which bounds a fleet that really runs the collector; a second sshd replays an answer
made before, at next to no cost, so that the controller's share can be seen. Time never makes it fail; a target that
brings nothing does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import importlib.util
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
# The program starts as its console script does: an import and a call.
PROVISION = (sys.executable, "-c", "import sys; from provision.cli.main import entry; sys.exit(entry())")
TICKS = os.sysconf("SC_CLK_TCK")
DEAD_ADDRESS = "127.0.254.1"
CONNECT_SECONDS = 10
SINGLE_RUNS = 5
SMI_ANSWERS = {
    "-q -x": "nvidia-smi-xml",
    "topo -m": "nvidia-smi-topology",
    "topo -p2p r": "nvidia-smi-p2p",
    "nvlink -s": "nvlink-status",
    "nvlink -e": "nvlink-errors",
}


def main() -> None:
    """Read the command line, measure, print, clean up."""
    parser = argparse.ArgumentParser(description="Measure provision verify over many hosts.")
    parser.add_argument("--hosts", type=int, default=200, help="hosts of the fleet")
    parser.add_argument("--rtt-ms", type=float, default=50.0, help="round trip to them, in milliseconds")
    parser.add_argument("--parallel", type=int, default=64, help="hosts that provision asks at once")
    parser.add_argument("--peer-hosts", type=int, default=8, help="hosts that testinfra is measured on")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--peer", nargs=2, metavar=("THREADS", "PLAN"), help=argparse.SUPPRESS)
    parser.add_argument("--proxy", metavar="PLAN", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.proxy:
        asyncio.run(run_proxy(json.loads(arguments.proxy)))
        return
    if arguments.peer:
        run_peer(int(arguments.peer[0]), json.loads(Path(arguments.peer[1]).read_text()))
        return
    if not 4 <= arguments.hosts <= 60_000 or arguments.rtt_ms < 0 or not 1 <= arguments.peer_hosts <= arguments.hosts:
        parser.error("give at least 4 hosts, no more peers than hosts, and a round trip of 0 or more")
    if not (os.access(SSHD, os.X_OK) and shutil.which("ssh") and shutil.which("ssh-keygen")):
        sys.exit("skipped: an OpenSSH server and client are needed (Debian, Ubuntu: openssh-server)")
    if importlib.util.find_spec("testinfra") is None:
        sys.exit("skipped: pytest-testinfra is not installed, so there is nothing to compare with")
    # Ended from outside, it cleans up as it does at Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="vf-") as scratch, contextlib.ExitStack() as stack:
        fleet = stack.enter_context(Fleet(Path(scratch), arguments.rtt_ms, arguments.hosts).running())
        figures = measure(fleet, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    show(figures)


# The targets


class Fleet:
    """One sshd that plays many hosts, and the proxies in front of it.

    Args:
        folder: Where everything lies.
        rtt_ms: Round trip of the slow way there; the fast one has none.
        count: How many hosts there are.
    """

    def __init__(self, folder: Path, rtt_ms: float, count: int) -> None:
        self.folder = folder
        self.rtt_ms = rtt_ms
        self.addresses = [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(count)]
        self.sshd_port, self.near_port, self.far_port, self.dead_port, self.light_port, self.light_sshd_port = (
            free_ports(6)
        )
        self.config = folder / "ssh_config"
        self.log = folder / "sshd.log"
        self.sshd: subprocess.Popen[bytes] | None = None
        self.light_sshd: subprocess.Popen[bytes] | None = None
        self.proxy: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Fleet]:
        """Start it, and end every process of it however the block ends."""
        try:
            self._write()
            if os.geteuid() == 0:
                Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
            self.sshd = start((SSHD, "-D", "-f", str(self.folder / "sshd_config"), "-E", str(self.log)))
            self.light_sshd = start((SSHD, "-D", "-f", str(self.folder / "light_config"), "-E", str(self.log)))
            half = self.rtt_ms / 2000
            plan = {
                "ways": [
                    [self.near_port, self.sshd_port, 0.0],
                    [self.far_port, self.sshd_port, half],
                    [self.light_port, self.light_sshd_port, half],
                ],
                "dead": [DEAD_ADDRESS, self.dead_port],
            }
            self.proxy = start((sys.executable, __file__, "--proxy", json.dumps(plan)))
            for port in (self.sshd_port, self.light_sshd_port, self.near_port, self.far_port, self.light_port):
                await_port("127.0.0.1", port)
            await_port(DEAD_ADDRESS, self.dead_port)
            yield self
        finally:
            for process in (self.sshd, self.light_sshd, self.proxy):
                if process is not None:
                    end(process)

    def hosts_file(self, name: str, addresses: Sequence[str], port: int, dead: int = 0) -> Path:
        """Write hosts, one a line, a dead one in their midst where asked."""
        lines = [f"ssh://{address}:{port}" for address in addresses]
        for _ in range(dead):
            lines.insert(len(lines) // 2, f"ssh://{DEAD_ADDRESS}:{self.dead_port}")
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return path

    def _write(self) -> None:
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        tools = self.folder / "stand-in"
        tools.mkdir()
        write_stand_in(tools)
        settings = (
            f"Port {self.sshd_port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host'}",
            "PidFile none",
            f"AuthorizedKeysFile {self.folder / 'user.pub'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "MaxStartups 4096",
            "MaxSessions 4096",
            "LogLevel ERROR",
            f"SetEnv PATH={tools}:{os.environ.get('PATH', os.defpath)}",
        )
        (self.folder / "sshd_config").write_text("\n".join(settings) + "\n")
        replay = write_replay(self.folder)
        light = (f"Port {self.light_sshd_port}", f"ForceCommand exec sh {shlex.quote(str(replay))}", *settings[1:])
        (self.folder / "light_config").write_text("\n".join(light) + "\n")
        key = (self.folder / "host.pub").read_text().split()
        known = self.folder / "known_hosts"
        known.write_text(f"* {key[0]} {key[1]}\n")
        self.config.write_text(
            f"Host *\n  User {getpass.getuser()}\n  IdentityFile {self.folder / 'user'}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
        )


def write_stand_in(folder: Path) -> None:
    """Write an nvidia-smi that prints what a machine of ``tests/machines.py`` would say."""
    outputs = load_machines().hgx_h100()
    lines = ["#!/bin/sh", "# stand-in of a benchmark: it prints text that was made up", 'case "$*" in']
    for words, probe in SMI_ANSWERS.items():
        (folder / f"{probe}.txt").write_text(outputs[probe].text)
        lines.append(f"'{words}') exec cat {shlex.quote(str(folder / probe))}.txt ;;")
    lines += ["*) exit 2 ;;", "esac"]
    tool = folder / "nvidia-smi"
    tool.write_text("\n".join(lines) + "\n")
    tool.chmod(0o755)


def write_replay(folder: Path) -> Path:
    """Write what answers for a target at next to no cost: the collector's answer of a stand-in machine, made before."""
    outputs = load_machines().hgx_h100()
    body = bytearray()
    for output in outputs.values():
        text, said = output.text.encode(), output.error.encode()
        code = "-" if output.code is None else output.code
        body += f"@record @NONCE@ {output.probe} {output.status} {code} 5 {len(text)} {len(said)}\n".encode()
        body += text + said + b"\n"
    body += f"@end @NONCE@ {len(outputs)}\n".encode()
    answer, script = folder / "answer", folder / "replay"
    answer.write_bytes(body)
    script.write_text(
        "# stand-in of a benchmark: it runs nothing of what it is sent\n"
        "nonce=$(sed -n 's/^COLLECT_NONCE=//p')\n"
        'echo "@provision-collector $nonce 1 gzip"\n'
        f'sed "s/@NONCE@/$nonce/" {shlex.quote(str(answer))} | gzip -1 -c\n'
    )
    return script


def load_machines() -> ModuleType:
    """Import the stand-in machines of the tests by their path."""
    spec = importlib.util.spec_from_file_location("machines", CHECKOUT / "tests" / "machines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["machines"] = module
    spec.loader.exec_module(module)
    return module


async def run_proxy(plan: Mapping[str, Any]) -> None:
    """Pass bytes on, each as late as a long line would, and take connections for a host that never says a word."""
    loop = asyncio.get_running_loop()
    held: set[object] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, opened: float) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            while True:
                data = b""
                with contextlib.suppress(OSError):
                    data = await reader.read(65536)
                waiting.put_nowait((max(loop.time() + delay, opened), data))
                if not data:
                    return

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, data = await waiting.get()
                if (left := due - loop.time()) > 0:
                    await asyncio.sleep(left)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            pass
        finally:
            reading.cancel()

    def serve(target: int, delay: float) -> Any:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # The other side hears of a connection when the last word of the handshake arrives.
            opened = loop.time() + 3 * delay
            if delay:
                await asyncio.sleep(3 * delay)
            try:
                upstream, onward = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                writer.close()
                return
            await asyncio.gather(pump(reader, onward, delay, opened), pump(upstream, writer, delay, 0.0))
            for stream in (onward, writer):
                stream.close()

        return connected

    async def swallow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.add(writer)

    # Set back to what a command without it would do at the first Ctrl-C of the terminal, which reaches this one too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for port, target, delay in plan["ways"]:
        await asyncio.start_server(serve(target, delay), "0.0.0.0", port, backlog=1024)  # noqa: S104 - every 127.x.y.z is a host
    await asyncio.start_server(swallow, *plan["dead"], backlog=1024)
    await asyncio.Event().wait()


# testinfra


def run_peer(threads: int, plan: Mapping[str, Any]) -> None:
    """Run every probe by its own ``host.run`` on some hosts, parse and check likewise, and print seconds a host."""
    import testinfra

    from provision.matrix.load import Matrix
    from provision.probe.output import ABSENT, FAILED, OK, Output
    from provision.probe.snapshot import Snapshot
    from provision.signals.expectation import Expectation
    from provision.verify.engine import choose_checks, verify_one

    matrix = Matrix()
    checks = choose_checks(matrix, "quick")
    collector = shlex.quote(f"{plan['collector']}/collector")

    def work(address: str) -> tuple[float, int, int]:
        started = time.perf_counter()
        host = testinfra.get_host(
            f"ssh://{address}:{plan['port']}",
            ssh_config=plan["config"],
            # testinfra fills its commands in with `%`.
            controlpath=f"{plan['sockets']}/%%C",
        )
        outputs = {}
        for probe in plan["probes"]:
            done = host.run(f"sh {collector} probe {shlex.quote(plan['folders'][address])} {probe}")
            status = OK if done.rc == 0 else ABSENT if " is not " in done.stderr else FAILED
            code = None if status == ABSENT else done.rc
            outputs[probe] = Output(probe=probe, status=status, code=code, text=done.stdout, error=done.stderr)
        results = verify_one(Snapshot(address, outputs), Expectation(), matrix, checks)
        return time.perf_counter() - started, len(results), sum(output.status == OK for output in outputs.values())

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(work, plan["addresses"]))
    document = {
        "wall": time.perf_counter() - started,
        "per_host": [seconds for seconds, _, _ in answers],
        "checks": min(count for _, count, _ in answers),
        "answers": min(count for _, _, count in answers),
    }
    print(json.dumps(document))


def place_collector(folder: Path, addresses: Iterable[str]) -> dict[str, Any]:
    """Lay the collector where it can be run probe by probe, in a folder for each host; no time is counted for it."""
    from provision.probe.compose import CollectOptions, compose, new_nonce

    options = CollectOptions(nonce=new_nonce())
    texts = re.findall(
        r"cat >\"\$provision_dir/([^\"]+)\" <<'END-\w+'\n(.*?)END-\w+\n", compose(options).decode(), re.DOTALL
    )
    if "collector" not in dict(texts):
        sys.exit("the collector cannot be taken out of what provision sends")
    folders = {}
    for number, address in enumerate(addresses):
        place = folder / f"place-{number}"
        place.mkdir(parents=True)
        for name, text in texts:
            (place / name).write_text(text)
        (place / "path").write_text(os.environ.get("PATH", os.defpath) + "\n")
        # A probe that waits for another one looks for this.
        for probe in options.names():
            (place / f"{probe}.done").touch()
        folders[address] = str(place)
    return {"collector": str(folder / "place-0"), "folders": folders, "probes": list(options.names())}


# Measuring


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of a program cost.

    Attributes:
        wall: Seconds.
        own_cpu: User and system seconds of the program itself; short of the last moments, which nobody sees.
        child_cpu: Of the ssh clients it started.
        target_cpu: Of sshd and all it ran, which is what the hosts would have paid.
        proxy_cpu: Of the proxy, which nobody would have paid.
        rss_mib: Most memory the program itself held.
    """

    wall: float
    own_cpu: float
    child_cpu: float
    target_cpu: float
    proxy_cpu: float
    rss_mib: float


def measure(fleet: Fleet, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    count, peers, rtt = arguments.hosts, arguments.peer_hosts, arguments.rtt_ms
    figures: dict[str, Any] = {
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "hosts": count,
        "rtt_ms": rtt,
        "parallel": arguments.parallel,
        "peer_hosts": peers,
    }
    bench = Bench(fleet, arguments.parallel)
    near, far = fleet.near_port, fleet.far_port
    bench.verify("warm", fleet.addresses[:1], near)

    singles = {}
    for name, port in (("near", near), ("far", far)):
        runs = [bench.verify("single", fleet.addresses[number : number + 1], port) for number in range(SINGLE_RUNS)]
        singles[name] = median(run.wall for run in runs)
    figures["single"] = singles
    say("one host")

    figures["peer"] = {}
    for name, port, threads in (("near", near, 1), ("far", far, 1), ("far, all at once", far, peers)):
        figures["peer"][name] = bench.peer(fleet.addresses[:peers], port, threads)
        say(f"testinfra, {name}")
    figures["few_near"] = vars(bench.verify("few", fleet.addresses[:peers], near))
    figures["few"] = vars(bench.verify("few", fleet.addresses[:peers], far))

    light = fleet.light_port
    figures["light_quarter"] = vars(bench.verify("light-quarter", fleet.addresses[: count // 4], light))
    figures["light"] = vars(bench.verify("light", fleet.addresses, light))
    say(f"{count} hosts that cost nothing")
    figures["quarter"] = vars(bench.verify("quarter", fleet.addresses[: count // 4], far))
    figures["whole"] = vars(bench.verify("whole", fleet.addresses, far))
    say(f"{count} hosts")
    figures["dead_alone"] = vars(bench.verify("dead-alone", (), far, dead=1))
    figures["with_dead"] = vars(bench.verify("with-dead", fleet.addresses, light, dead=1))
    say(f"{count} hosts and a dead one")
    figures["load_after"] = os.getloadavg()[0]
    return figures


class Bench:
    """Runs whole programs against the fleet.

    Args:
        fleet: The targets.
        parallel: How many hosts provision asks at once.
    """

    def __init__(self, fleet: Fleet, parallel: int) -> None:
        self.fleet = fleet
        self.parallel = parallel
        paths = [str(CHECKOUT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self.environment = {
            **os.environ,
            "PROVISION_CACHE_DIR": str(fleet.folder / "cache"),
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
        }
        # Someone's shell may forbid bytecode; an installed program has it.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def verify(self, name: str, addresses: Sequence[str], port: int, dead: int = 0) -> Run:
        """Run ``provision verify`` over hosts and see that each answered, and the dead one did not."""
        hosts = self.fleet.hosts_file(f"hosts-{name}", addresses, port, dead)
        report = self.fleet.folder / f"report-{name}.json"
        report.unlink(missing_ok=True)
        words = (*PROVISION, "verify", "--hosts", str(hosts), "--parallel", str(self.parallel), "--json", "-q")
        words += ("-o", str(report), "--ssh-config", str(self.fleet.config), "--connect-timeout", str(CONNECT_SECONDS))
        run, _ = self._time(words, accepted=(0, 6, 7), report=report)
        document = json.loads(report.read_text())
        if not document.get("result"):
            sys.exit(f"verify said nothing about {name}: {document}")
        missing = {row["target"] for row in rows_of(document["result"]) if row["id"] == "host.reachable"}
        seen = {row["target"] for row in rows_of(document["result"])} - missing
        if len(seen) != len(addresses) or len(missing) != dead:
            sys.exit(f"{name}: {len(seen)} of {len(addresses)} hosts answered; sshd said:\n{tail(self.fleet.log)}")
        return run

    def peer(self, addresses: Sequence[str], port: int, threads: int) -> dict[str, Any]:
        """Run plain testinfra over hosts."""
        folder = Path(tempfile.mkdtemp(prefix="peer-", dir=self.fleet.folder))
        plan = place_collector(folder, addresses)
        plan |= {"addresses": list(addresses), "port": port, "config": str(self.fleet.config), "sockets": str(folder)}
        (folder / "plan").write_text(json.dumps(plan))
        words = (sys.executable, __file__, "--peer", str(threads), str(folder / "plan"))
        run, out = self._time(words, sockets=folder)
        answer = json.loads(out)
        if not answer["checks"] or answer["answers"] < 5:
            sys.exit(f"testinfra brought next to nothing: {answer}")
        return {**answer, "probes": len(plan["probes"]), "cost": vars(run)}

    def _time(
        self,
        words: Sequence[str],
        *,
        accepted: Sequence[int] = (0,),
        sockets: Path | None = None,
        report: Path | None = None,
    ) -> tuple[Run, str]:
        assert self.fleet.sshd is not None
        assert self.fleet.proxy is not None
        assert self.fleet.light_sshd is not None
        servers = (self.fleet.sshd.pid, self.fleet.light_sshd.pid)
        targets_before = sum(sum(cpu_of(pid)) for pid in servers)
        proxy_before = cpu_of(self.fleet.proxy.pid)[0]
        stderr = self.fleet.folder / "stderr"
        started = time.perf_counter()
        with stderr.open("wb") as said, (self.fleet.folder / "stdout").open("w+b") as out:
            child = subprocess.Popen(words, cwd=self.fleet.folder, stdout=out, stderr=said, env=self.environment)
            watch = Watch(child.pid)
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:
                end(child)
                raise
            finally:
                wall = time.perf_counter() - started
                watch.stop()
                if sockets is not None:
                    close_connections(sockets)
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            printed = out.read().decode()
        if child.returncode not in accepted:
            sys.exit(f"{shlex.join(words[:8])} ended with {child.returncode}:\n{tail(report or stderr)}")
        # What a session cost is known when it has ended, a moment after its client.
        for _ in range(100):
            if not any(children_of(pid) for pid in servers):
                break
            time.sleep(0.05)
        total = usage.ru_utime + usage.ru_stime
        run = Run(
            wall=wall,
            own_cpu=watch.own_cpu,
            child_cpu=max(0.0, total - watch.own_cpu),
            target_cpu=sum(sum(cpu_of(pid)) for pid in servers) - targets_before,
            proxy_cpu=cpu_of(self.fleet.proxy.pid)[0] - proxy_before,
            rss_mib=watch.rss_mib,
        )
        return run, printed


class Watch:
    """Looks at a process until it has ended, as its own share and that of its children are told apart only in life.

    Args:
        pid: The process.
    """

    def __init__(self, pid: int) -> None:
        self.own_cpu = 0.0
        self.rss_mib = 0.0
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            with contextlib.suppress(OSError, IndexError, ValueError):
                self.own_cpu = max(self.own_cpu, cpu_of(self._pid)[0])
                found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
                if found:
                    self.rss_mib = max(self.rss_mib, int(found.group(1)) / 1024)


def cpu_of(pid: int) -> tuple[float, float]:
    """Return user and system seconds of a process, and of the children it has waited for."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = sum(map(int, values[11:13])), sum(map(int, values[13:15]))
    return own / TICKS, children / TICKS


def children_of(pid: int) -> str:
    """Return the children of a process, empty when there are none."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


def close_connections(folder: Path) -> None:
    """End the connections that testinfra leaves open for a while."""
    for path in folder.iterdir():
        if path.is_socket():
            words = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "all"]
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def rows_of(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answers of a report, each with its target."""
    for target in result["targets"]:
        for check in target["checks"]:
            yield {**check, "target": target["target"]}


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def await_port(address: str, port: int) -> None:
    """Wait until somebody listens."""
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on {address}:{port}")


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a server that no Ctrl-C of the terminal reaches before this program ends it."""
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here and wait for it."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(path: Path) -> str:
    """Return the end of a text."""
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""


def say(what: str) -> None:
    """Tell a person who waits what is done."""
    if sys.stderr.isatty():
        print(f"measured: {what}", file=sys.stderr)


def show(figures: Mapping[str, Any]) -> None:
    """Print the figures as tables."""
    count, rtt, peers = figures["hosts"], f"{figures['rtt_ms']:g} ms", figures["peer_hosts"]
    print(
        f"Python {figures['python']}, {figures['cpus']} CPUs which are all the targets too, "
        f"load {figures['load_before']:.1f} to {figures['load_after']:.1f}; seconds unless named"
    )
    columns = ("wall", "a host", "own cpu", "ssh cpu", "targets", "proxy", "MiB", "bound")
    print(f"\nprovision verify, {figures['parallel']} at once\n{'':40}" + "".join(f"{name:>9}" for name in columns))
    rows = {
        f"{peers} hosts, no delay": ("few_near", peers),
        f"{peers} hosts, {rtt}": ("few", peers),
        f"{count // 4} hosts, {rtt}": ("quarter", count // 4),
        f"{count} hosts, {rtt}": ("whole", count),
        f"{count // 4} hosts, {rtt}, replayed": ("light_quarter", count // 4),
        f"{count} hosts, {rtt}, replayed": ("light", count),
        f"{count} hosts and a dead one, replayed": ("with_dead", count),
        "the dead one alone": ("dead_alone", 1),
    }
    for label, (key, hosts) in rows.items():
        row = figures[key]
        cpu = row["own_cpu"] + row["child_cpu"] + row["target_cpu"] + row["proxy_cpu"]
        share = cpu / (row["wall"] * figures["cpus"])
        cells = (
            row["wall"],
            row["wall"] / hosts,
            row["own_cpu"],
            row["child_cpu"],
            row["target_cpu"],
            row["proxy_cpu"],
        )
        text = "".join(f"{cell:9.2f}" if number != 1 else f"{cell:9.3f}" for number, cell in enumerate(cells))
        print(f"{label:40}{text}{row['rss_mib']:9.1f}{share:8.0%} of all CPUs")
    whole = figures["light"]
    own = 1000 * whole["own_cpu"] / count
    ssh = 1000 * whole["child_cpu"] / count
    print(
        f"controller CPU a host at {count} hosts, answers replayed: {own:.1f} ms its own, {ssh:.1f} ms the ssh clients"
    )

    far, far_all, near = figures["peer"]["far"], figures["peer"]["far, all at once"], figures["peer"]["near"]
    print(f"\nplain testinfra with a control path, {far['probes']} probes one by one, {peers} hosts")
    print(f"{'':40}{'wall':>9}{'a host':>9}{'own+ssh':>9}{'targets':>9}")
    for label, row in (
        ("no delay, one host after another", near),
        (f"{rtt}, one host after another", far),
        (f"{rtt}, all {peers} in threads", far_all),
    ):
        cost = row["cost"]
        cells = (row["wall"], row["wall"] / peers, cost["own_cpu"] + cost["child_cpu"], cost["target_cpu"])
        print(f"{label:40}" + "".join(f"{cell:9.2f}" for cell in cells))

    ratios = ratios_of(figures)
    print("\nratios")
    for label, value in ratios.items():
        print(f"{label:72}{value:8.2f}")


def ratios_of(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return what the run is for."""
    count, rtt, peers = figures["hosts"], f"{figures['rtt_ms']:g} ms", figures["peer_hosts"]
    peer, single = figures["peer"], figures["single"]
    far, near = median(peer["far"]["per_host"]), median(peer["near"]["per_host"])
    return {
        f"testinfra / provision, a host, {rtt}, {count} hosts": far / (figures["whole"]["wall"] / count),
        f"testinfra / provision, a host, no delay, {peers} hosts": near / (figures["few_near"]["wall"] / peers),
        f"testinfra / provision, one host cold with start-up, {rtt}": far / single["far"],
        "testinfra / provision, one host cold with start-up, no delay": near / single["near"],
        f"testinfra in threads / provision, {peers} hosts, {rtt}": peer["far, all at once"]["wall"]
        / figures["few"]["wall"],
        f"memory of {count} hosts / of {count // 4}": figures["whole"]["rss_mib"] / figures["quarter"]["rss_mib"],
        f"memory of {count} hosts / of {count // 4}, answers replayed": figures["light"]["rss_mib"]
        / figures["light_quarter"]["rss_mib"],
        f"wall of {count} hosts and a dead one / without it, replayed": figures["with_dead"]["wall"]
        / figures["light"]["wall"],
        "seconds of one dead host / its time limit": figures["dead_alone"]["wall"] / CONNECT_SECONDS,
    }


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
