#!/usr/bin/python3
"""Take a bad GPU node out of the scheduler, and give it back after proof.

Usage: node_health.py [health|prolog|epilog|prove] [--settings FILE] [--dry-run]
       node_health.py apply REPORT [--settings FILE] [--dry-run]    drain what a report of `provision verify` fails
       node_health.py --check FILE                                  say what is wrong with settings

Without a word it is what Slurm calls it for: Prolog or Epilog by SLURM_SCRIPT_CONTEXT, else HealthCheckProgram.
Prolog and Epilog look at files alone and end within `quick_seconds`; health asks nvidia-smi too, and has doctor name
the cause.
A bad node is drained with that sentence behind `prefix` as its reason, unless the limit of one of its partitions is
reached. A node that was drained with that prefix, and has no job left, is proved by `prove` and resumed when that
passed; a node that anybody else drained is left alone. What was done stands in the ledger, one JSON object a line.

It ends with 0 whatever it found: another status would have Slurm drain the node itself, past the limit. Wrong usage and
settings end with 2, an `apply` that could not do all with 6.

The loop itself is `health_loop.py` beside this file; here are Slurm and what is looked at on a node. Python 3.6 and the
standard library alone.
"""

import argparse
import glob
import json
import os
import re
import signal
import socket
import sys
import time
from xml.etree import ElementTree

# The folder of programs on a node holds what the role wrote, and nothing else.
sys.dont_write_bytecode = True

from health_loop import (  # noqa: E402
    LIMITS,
    PREFIX,
    Book,
    EngineError,
    Node,
    apply,
    drain,
    is_ours,
    judge_proof,
    node_of,
    plain,
    prove,
    read_failure,
    read_targets,
    requeue,
    run,
    settle,
)

SCHEMA = 1
SETTINGS = "/etc/provision/health.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
CALL_SECONDS = 10.0  # of one command of the scheduler
LOCK_MINUTES = 2  # after which a lock is gone whose owner died
LOCK = "provision_health"
MODES = ("health", "prolog", "epilog", "prove", "apply")
CONTEXTS = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}
XID = re.compile(r"NVRM: Xid \([^)]{0,40}\): ([0-9]{1,4})\b")

TEXTS = {
    "engine": "slurm",
    "prefix": PREFIX,
    "jobs": "keep",
    "report": "",
    "ledger": "/var/log/provision/health.jsonl",
    "state": "/var/lib/provision/health",
    "nvidia_smi": "nvidia-smi",
    "kernel_log": "/dev/kmsg",
    "devices": "/dev",
    "driver": "/proc/driver/nvidia",
}
NUMBERS = {
    **LIMITS,
    "quick_seconds": 1.4,
    "health_seconds": 40,
    "smi_seconds": 20,
    "prove_seconds": 1800,
    "prove_every_seconds": 900,
    "report_age_seconds": 1800,
    "limit_every_seconds": 300,
}
WORDS = ("prove", "explain", "start_proof")
FACTS = ("sentences", "xids")


class SettingsError(Exception):
    pass


class LateError(BaseException):
    """The time of this call is over; nothing that handles errors may keep it."""


# Settings


def read_settings(path):
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except (OSError, ValueError) as error:
        raise SettingsError("%s: %s" % (path, error)) from error
    problems = list(find_problems(given))
    if problems:
        raise SettingsError("\n".join("%s: %s" % (path, problem) for problem in problems))
    settings = dict(TEXTS, gpus=None, dry_run=False, **NUMBERS)
    settings.update({name: [] for name in WORDS})
    settings.update({name: {} for name in FACTS})
    settings.update(given)
    return settings


def find_problems(given):
    if not isinstance(given, dict):
        yield "the settings are no JSON object"
        return
    known = {"schema_version", "gpus", "dry_run"} | set(TEXTS) | set(NUMBERS) | set(WORDS) | set(FACTS)
    for name in sorted(set(given) - known):
        yield "`%s` is not a setting; known are %s" % (name, ", ".join(sorted(known)))
    if given.get("schema_version") != SCHEMA:
        yield "`schema_version` is not %d: the settings are for another version of this program" % SCHEMA
    for name in TEXTS:
        if not isinstance(given.get(name, ""), str):
            yield "`%s` is not text" % name
    for name in ("ledger", "state", "report"):
        if isinstance(given.get(name), str) and given[name] and not given[name].startswith("/"):
            yield "`%s` is not an absolute path" % name
    if given.get("engine", "slurm") not in ENGINES:
        yield "`engine` is none of %s" % ", ".join(sorted(ENGINES))
    if given.get("jobs", "keep") not in ("keep", "requeue"):
        yield "`jobs` is neither keep nor requeue"
    prefix = given.get("prefix", PREFIX)
    if isinstance(prefix, str) and not re.match(r"^[A-Za-z][A-Za-z0-9 _-]{1,30}: $", prefix):
        yield "`prefix` is not a word with a colon and a space behind it, by which a drain of this program is known"
    for name in NUMBERS:
        value = given.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 86400:
            yield "`%s` is not a number from 0 to 86400" % name
    limit = given.get("limit_percent", 1)
    if isinstance(limit, (int, float)) and limit > 100:
        yield "`limit_percent` is above 100"
    gpus = given.get("gpus")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= 1024):
        yield "`gpus` is not a number of GPUs, and not null"
    if not isinstance(given.get("dry_run", False), bool):
        yield "`dry_run` is neither true nor false"
    for name in WORDS:
        words = given.get(name, [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or words[:1] == [""]:
            yield '`%s` is not a list of words; a shell is written ["sh", "-c", "..."]' % name
    for name in FACTS:
        rows = given.get(name, {})
        if not isinstance(rows, dict) or not all(isinstance(text, str) for text in rows.values()):
            yield "`%s` is not an object of texts" % name


# The engine of Slurm, as `health_loop` needs one


class Slurm:
    """Slurm by its own commands.

    The lock is a reservation: slurmctld refuses a second one of the same name, whoever asks. It begins in a minute and
    is deleted before that, so that it holds no job back; one whose owner died is gone by itself.
    """

    GROUP = "partition"
    OUT = ("drain", "down", "fail", "error", "not_responding", "unknown")
    BUSY = ("draining", "failing", "allocated", "mixed", "completing")

    def __init__(self, seconds=CALL_SECONDS):
        self.seconds = seconds

    def call(self, *words):
        status, out, said = run(list(words), self.seconds)
        if status:
            raise EngineError(plain(said or out or "%s ended with %d" % (words[0], status)))
        return out

    def own_name(self):
        return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]

    def nodes(self):
        """Return every node of every partition, one that is in two of them twice."""
        rows = []
        for line in self.call("sinfo", "--noheader", "--Node", "--format=%N|%R|%T|%E").splitlines():
            name, group, state, reason = [*line.split("|", 3), "", "", ""][:4]
            state = state.strip().lower()
            is_out = state.startswith(self.OUT) or state.endswith("*")
            reason = "" if reason.strip() in ("", "none") else reason.strip()
            rows.append(Node(name.strip(), group.strip(), is_out, state.startswith(self.BUSY), reason))
        return rows

    def node(self, name):
        """Return one node: of thousands that ask about themselves, none is sent all the others."""
        line = self.call("scontrol", "--oneliner", "show", "node", name)
        flags = re.search(r" State=(\S+)", line)
        reason = re.search(r" Reason=(.*?) \[[^@\]]*@[0-9T:-]+\]", line)
        states = flags.group(1).lower().replace("*", "+not_responding").split("+") if flags else ["unknown"]
        is_busy = any(state in ("allocated", "mixed", "completing") for state in states)
        return Node(name, "", any(state in self.OUT for state in states), is_busy, reason.group(1) if reason else "")

    def take_lock(self, node):
        """Return whether this call has the lock now."""
        words = ["StartTime=now+60", "Duration=%d" % (LOCK_MINUTES - 1), "Users=root", "Nodes=" + node]
        try:
            self.call(
                "scontrol", "create", "reservation", "ReservationName=" + LOCK, "Flags=IGNORE_JOBS,OVERLAP", *words
            )
        except EngineError as error:
            if "uplicate reservation" in str(error):
                return False
            raise
        return True

    def give_lock(self):
        self.call("scontrol", "delete", "ReservationName=" + LOCK)

    def drain(self, node, reason):
        self.call("scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=" + reason)

    def resume(self, node):
        self.call("scontrol", "update", "NodeName=" + node, "State=RESUME")

    def jobs(self, node):
        out = self.call("squeue", "--noheader", "--nodelist=" + node, "--states=R,CF,S", "--format=%A")
        return sorted(set(re.findall(r"^[0-9]+$", out, re.MULTILINE)), key=int)

    def own_job(self):
        return os.environ.get("SLURM_JOB_ID", "")

    def requeue(self, job):
        self.call("scontrol", "requeue", job)


ENGINES = {"slurm": Slurm}


# Checks: each returns the id of a diagnosis and its sentence, or None


def look(settings, book):
    """Return what files alone tell; none of these waits for the driver."""
    for check in (look_at_devices, look_at_kernel_log, look_at_report):
        found = check(settings, book)
        if found:
            return found
    return None


def sentence(settings, name, more=""):
    text = settings["sentences"].get(name, name)
    return name, "%s: %s" % (text, more) if more else text


def look_at_devices(settings, _book):
    wanted = settings["gpus"]
    if not wanted:
        return None
    offered = len(glob.glob(os.path.join(settings["driver"], "gpus", "*")))
    if offered < wanted:
        return sentence(settings, "gpu.missing", "%d of %d" % (offered, wanted))
    nodes = [
        name for name in glob.glob(os.path.join(settings["devices"], "nvidia*")) if re.search("nvidia[0-9]+$", name)
    ]
    if len(nodes) < wanted:
        return sentence(settings, "driver.device-nodes", "%d of %d" % (len(nodes), wanted))
    return None


def read_boot():
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_kernel_log(path):
    """Return (seconds since boot, line) of what the kernel has kept."""
    text = b""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        while len(text) < 16 * 1024 * 1024:
            try:
                part = os.read(number, 65536)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # a record was overwritten meanwhile
            except OSError:
                break
            if not part:
                break
            text += part if part.endswith(b"\n") or path != "/dev/kmsg" else part + b"\n"
    finally:
        os.close(number)
    rows = []
    for line in text.decode("utf-8", "replace").splitlines():
        match = re.match(r"[0-9]+,[0-9]+,([0-9]+),[^;]*;(.*)", line)
        if match:
            rows.append((int(match.group(1)) / 1e6, match.group(2)))
    return rows


def look_at_kernel_log(settings, book):
    """Xids that the facts call fatal, since this boot and since the last proof."""
    proved = book.number("proved_monotonic") if book.state.get("proved_boot") == read_boot() else -1
    for seconds, line in read_kernel_log(settings["kernel_log"]):
        match = XID.search(line)
        if match and seconds > proved and match.group(1) in settings["xids"]:
            return "xid." + match.group(1), settings["xids"][match.group(1)]
    return None


def look_at_report(settings, book):
    """The last verdict of `provision verify` on this node, while it is young and no proof came after it."""
    if not settings["report"]:
        return None
    try:
        changed = os.stat(settings["report"]).st_mtime
    except OSError:
        return None
    if changed < time.time() - settings["report_age_seconds"] or changed <= book.number("proved_at"):
        return None
    for target in read_targets(settings["report"]) or ():
        try:
            found = read_failure(target)
        except (AttributeError, KeyError, TypeError):
            return None
        if found:
            return found
    return None


def ask_driver(settings):
    """What nvidia-smi says, or that it says nothing."""
    if settings["gpus"] == 0:
        return None
    try:
        status, out, _ = run([settings["nvidia_smi"], "-q", "-x"], settings["smi_seconds"])
    except EngineError as error:
        return sentence(settings, "driver.hung", str(error)) if "did not end" in str(error) else None
    if status == 15:
        return sentence(settings, "gpu.lost")
    try:
        gpus = ElementTree.fromstring(out).findall("gpu")  # noqa: S314 - the driver's own answer
    except ElementTree.ParseError:
        line = plain(out or "status %d" % status)
        return sentence(settings, "gpu.missing", line) if status else None
    if settings["gpus"] and len(gpus) < settings["gpus"]:
        return sentence(settings, "gpu.missing", "%d of %d" % (len(gpus), settings["gpus"]))
    for gpu in gpus:
        where = gpu.get("id", "")
        if (gpu.findtext("remapped_rows/remapped_row_failure") or "").strip() == "Yes":
            return sentence(settings, "xid.64", where)
        action = (gpu.findtext("gpu_recovery_action") or "").strip()
        if action not in ("", "None", "N/A"):
            return sentence(settings, "xid.154", "%s, %s" % (where, action))
    return None


def explain(settings, found, seconds):
    """Return id, sentence and steps of doctor's first cause where doctor is at hand, else what the check says."""
    if not settings["explain"] or seconds <= 1:
        return found
    try:
        _, out, _ = run(settings["explain"], seconds)
        document = json.loads(out)
        cause = document.get("result", document)["targets"][0]["causes"][0]
        return cause["diagnosis"], str(cause["title"]), " ".join(map(str, cause["fix"]))
    except (EngineError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return found


# Actions


def do_quick(engine, settings, book):
    """Prolog and Epilog."""
    until = time.monotonic() + settings["quick_seconds"]
    found = look(settings, book)
    if not found or time.time() - book.number("limit_at") < settings["limit_every_seconds"]:
        return
    node = engine.own_name()
    is_drained = drain(engine, settings, book, node, found, until)
    # Slurm starts the job when Prolog ends; it is put back before that.
    if book.mode == "prolog" and settings["jobs"] == "requeue" and (is_drained or book.is_dry) and engine.own_job():
        requeue(engine, book, node, [engine.own_job()], found[1])


def do_health(engine, settings, book):
    until = time.monotonic() + settings["health_seconds"]
    node = engine.own_name()
    settle(engine, settings, book)
    found = look(settings, book) or ask_driver(settings)
    if not found:
        offer_proof(engine, settings, book, node)
        return
    if time.time() - book.number("limit_at") < settings["limit_every_seconds"]:
        return
    if engine.node(node).is_out:
        return
    found = explain(settings, found, until - time.monotonic() - 3 * CALL_SECONDS / 2)
    is_drained = drain(engine, settings, book, node, found, until)
    if settings["jobs"] == "requeue" and (is_drained or book.is_dry):
        requeue(engine, book, node, engine.jobs(node), found[1])


def offer_proof(engine, settings, book, node):
    """Begin the proof of a node that looks well again; it may take longer than a health check may."""
    if not settings["start_proof"] or time.time() - book.number("asked_at") < settings["prove_every_seconds"]:
        return
    if not is_ours(engine, settings, node):
        return
    if book.is_dry:
        book.write("would prove", node, "it looks well again")
        return
    book.keep(asked_at=time.time())
    status, out, said = run(settings["start_proof"], CALL_SECONDS)
    if status:
        book.write("no proof", node, said or out or "it could not be started")


def do_prove(engine, settings, book):
    """Resume this node when it was drained by this program and `prove` passes."""
    node = engine.own_name()
    if not settings["prove"]:
        book.write("no proof", node, "the settings name no `prove`")
        return
    settle(engine, settings, book)

    def proof():
        begun, monotonic = time.time(), read_uptime()
        answer = run_proof(settings)
        if not judge_proof(*answer):
            # Before it is resumed: an Xid from before the proof must not drain it again.
            book.keep(proved_at=begun, proved_boot=read_boot(), proved_monotonic=monotonic, asked_at=0, limit_at=0)
        return answer

    prove(engine, settings, book, node, proof)


def read_uptime():
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0


def run_proof(settings):
    try:
        status, out, said = run(settings["prove"], settings["prove_seconds"])
    except EngineError as error:
        return None, "", str(error)
    return status, out, said


def do_apply(engine, settings, book, report):
    """Drain each node that a report fails; return whether all was done."""
    targets = read_targets(report)
    if targets is None:
        raise SettingsError("%s is not a report of `provision verify --json`" % report)
    verdicts = []
    for target in targets:
        try:
            found = read_failure(target)
        except (AttributeError, KeyError, TypeError):
            found = None
        if found:
            verdicts.append((node_of(target["target"]), found))
    settle(engine, settings, book)
    return apply(engine, settings, book, verdicts, CALL_SECONDS)


def late(_number, _frame):
    raise LateError


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=MODES)
    parser.add_argument("report", nargs="?")
    parser.add_argument("--settings", default=SETTINGS)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--check", metavar="FILE")
    asked = parser.parse_args(words)
    try:
        if asked.check:
            read_settings(asked.check)
            return 0
        mode = asked.mode or CONTEXTS.get(os.environ.get("SLURM_SCRIPT_CONTEXT", ""), "health")
        if (mode == "apply") != bool(asked.report):
            parser.error("`apply` takes a report, and nothing else does")
        settings = read_settings(asked.settings)
    except SettingsError as error:
        print(error, file=sys.stderr)
        # Slurm would take a node whose settings are broken out of service, and all of them at once.
        return 2 if asked.check or asked.mode else 0
    book = Book(settings, mode, asked.dry_run or settings["dry_run"])
    is_quick = mode in ("prolog", "epilog")
    # What a late call has to take back, the lock, is one call more.
    engine = ENGINES[settings["engine"]](settings["quick_seconds"] / 3 if is_quick else CALL_SECONDS)
    if mode not in ("prove", "apply"):
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, max(0.05, settings["quick_seconds" if is_quick else "health_seconds"]))
    try:
        if mode == "apply":
            return 0 if do_apply(engine, settings, book, asked.report) else 6
        {"health": do_health, "prove": do_prove}.get(mode, do_quick)(engine, settings, book)
    except EngineError as error:
        book.write("failed", engine.own_name(), str(error))
    except LateError:
        book.write("late", engine.own_name(), "the time of this call was over")
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
