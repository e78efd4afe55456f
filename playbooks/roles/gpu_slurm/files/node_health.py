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

Python 3.6 and the standard library alone.
"""

import argparse
import contextlib
import datetime
import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from xml.etree import ElementTree

SCHEMA = 1
SETTINGS = "/etc/provision/health.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
REASON_MAX = 200
REPORT_BYTES_MAX = 64 * 1024 * 1024
CALL_SECONDS = 10.0  # of one command of the scheduler
HELD_SECONDS = 30.0  # no drain is begun later than this after the lock was taken
LOCK_MINUTES = 2  # after which a lock is gone whose owner died
LOCK = "provision_health"
MODES = ("health", "prolog", "epilog", "prove", "apply")
CONTEXTS = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}
XID = re.compile(r"NVRM: Xid \([^)]{0,40}\): ([0-9]{1,4})\b")

TEXTS = {
    "engine": "slurm",
    "prefix": "provision: ",
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
    "limit_percent": 10,
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


class EngineError(Exception):
    """The scheduler did not do what it was asked to."""


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
    prefix = given.get("prefix", "provision: ")
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


# What is kept


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def plain(text, size=REASON_MAX):
    """Return a text on one line, fit for a reason and a terminal."""
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(str(text).split()))
    return line if len(line) <= size else line[: size - 3] + "..."


def read_json(path, size=1024 * 1024):
    """Return a document, or None where there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read(size))
    except (OSError, ValueError, RecursionError):
        return None


def run(words, seconds):
    """Return status, output and errors of a command; its whole process group ends with its time.

    Raises EngineError where it cannot be started or did not end in time.
    """
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError("%s: %s" % (words[0], error.strerror or error)) from error
    try:
        out, said = child.communicate(timeout=max(seconds, 0.01))
    except subprocess.TimeoutExpired:
        raise EngineError("%s did not end within %g s" % (words[0], round(seconds, 1))) from None
    finally:
        if child.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            # One that hangs in the kernel cannot be waited for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.2)
    return child.returncode, out, said


class Book:
    """The ledger, and what one call leaves to the next."""

    def __init__(self, settings, mode, is_dry):
        self.settings = settings
        self.mode = mode
        self.is_dry = is_dry
        self.path = os.path.join(settings["state"], "state.json")
        state = read_json(self.path)
        self.state = state if isinstance(state, dict) else {}

    def write(self, what, node, why, **more):
        """Add a line: who did what, to which node, why and when."""
        who = {"program": "node_health.py", "mode": self.mode, "uid": os.getuid(), "host": socket.gethostname()}
        row = dict(when=now(), who=who, what=what, node=node, why=plain(why, 1000), dry_run=self.is_dry, **more)
        text = json.dumps(row, sort_keys=True)
        print(text, file=sys.stderr, flush=True)
        try:
            os.makedirs(os.path.dirname(self.settings["ledger"]), mode=0o755, exist_ok=True)
            number = os.open(self.settings["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            try:
                os.write(number, (text + "\n").encode("utf-8"))
            finally:
                os.close(number)
        except OSError as error:
            print("%s: %s" % (self.settings["ledger"], error), file=sys.stderr, flush=True)

    def keep(self, **values):
        """Remember values, whole or not at all."""
        self.state.update(values)
        if self.is_dry:
            return
        part = "%s.%d" % (self.path, os.getpid())
        try:
            os.makedirs(self.settings["state"], mode=0o755, exist_ok=True)
            with open(part, "w", encoding="utf-8") as file:
                json.dump(self.state, file, sort_keys=True)
            os.replace(part, self.path)
        except OSError as error:
            print("%s: %s" % (self.path, error), file=sys.stderr, flush=True)

    def number(self, name):
        value = self.state.get(name)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


# Engines: the scheduler, behind what this program needs of one


class Node:
    def __init__(self, name, group, is_out, is_busy, reason):
        self.name = name
        self.group = group  # of which no more than a share may be out at once; Slurm's partition
        self.is_out = is_out
        self.is_busy = is_busy
        self.reason = reason  # empty where nobody drained it


class Slurm:
    """Slurm by its own commands.

    The lock is a reservation: slurmctld refuses a second one of the same name, whoever asks. It begins in a minute and
    is deleted before that, so that it holds no job back; one whose owner died is gone by itself.
    """

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


def read_failure(target):
    """Return id and sentence of the first check of a target that fails, or None."""
    order = {"critical": 0, "high": 1}
    rows = [row for row in target.get("checks", ()) if row.get("status") == "fail" and row.get("severity") in order]
    if target.get("ok") or not rows:
        return None
    row = min(rows, key=lambda row: order[row["severity"]])
    return row["id"], "%s: %s" % (row["id"], row.get("seen") or row.get("title", ""))


def read_targets(path):
    """Return the targets of a report of `provision verify --json`, or None."""
    document = read_json(path, REPORT_BYTES_MAX)
    try:
        document = document.get("result", document)
        return [dict(row, target=str(row["target"])) for row in document["targets"]]
    except (AttributeError, KeyError, TypeError, ValueError):
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
    """Return the sentence of doctor's first cause where doctor is at hand, else that of the check."""
    if not settings["explain"] or seconds <= 1:
        return found
    try:
        _, out, _ = run(settings["explain"], seconds)
        document = json.loads(out)
        cause = document.get("result", document)["targets"][0]["causes"][0]
        return cause["id"], str(cause["title"])
    except (EngineError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return found


# Actions


def limits_reached(rows, node, percent):
    """Return what forbids one more node to be out: `PARTITION: N of M are out, P % are K`, for each of its groups."""
    told = []
    for group in sorted({row.group for row in rows if row.name == node}):
        members = {row.name: row for row in rows if row.group == group}
        out = sum(row.is_out for row in members.values())
        # A share of a small partition would never let one go; 0 means never.
        most = max(1, int(len(members) * percent / 100)) if percent else 0
        if out + 1 > most:
            told.append("%s: %d of %d nodes are out, %g %% are %d" % (group, out, len(members), percent, most))
    return told


def drain(engine, settings, book, node, found, until):
    """Drain a node if nobody has and the limit lets it; return whether it is out with the reason of this program.

    Of all nodes that want to at the same time one has the lock: it counts, drains and gives the lock back, and the
    next one counts what the first one did.
    """
    reason = plain(settings["prefix"] + found[1])
    is_locked = False
    try:
        while not book.is_dry:
            begun = time.monotonic()
            is_locked = engine.take_lock(node)
            if is_locked:
                break
            if time.monotonic() > until - 0.5:
                book.write("busy", node, "another node is being drained; asked again next time", check=found[0])
                return False
            time.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - so that not all ask at once
        rows = engine.nodes()
        own = [row for row in rows if row.name == node]
        if not own:
            raise EngineError("%s is not a node of a partition" % node)
        if any(row.is_out for row in own):
            return all(row.reason.startswith(settings["prefix"]) for row in own)
        told = limits_reached(rows, node, settings["limit_percent"])
        if told:
            book.write("limit", node, "%s; not drained: %s" % ("; ".join(told), reason), check=found[0])
            if book.mode != "apply":
                book.keep(limit_at=time.time())
            return False
        if book.is_dry:
            book.write("would drain", node, reason, check=found[0])
            return False
        if time.monotonic() - begun > HELD_SECONDS:
            raise EngineError("the scheduler took too long; asked again next time")
        engine.drain(node, reason)
        book.write("drain", node, reason, check=found[0])
        return True
    finally:
        if is_locked:
            with contextlib.suppress(EngineError):
                engine.give_lock()


def requeue(engine, book, node, jobs, why):
    for job in jobs:
        if book.is_dry:
            book.write("would requeue", node, why, job=job)
            continue
        try:
            engine.requeue(job)
            book.write("requeue", node, why, job=job)
        except EngineError as error:
            book.write("kept", node, "%s" % error, job=job)


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


def is_ours(engine, settings, node):
    """Tell whether this program drained a node, and nothing runs on it."""
    own = engine.node(node)
    return own.is_out and not own.is_busy and own.reason.startswith(settings["prefix"])


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
    if not is_ours(engine, settings, node):
        book.write("not ours", node, "it was not drained by this program, or jobs run on it")
        return
    begun, monotonic = time.time(), read_uptime()
    why = judge_proof(*run_proof(settings))
    if why:
        book.write("not proved", node, why)
        return
    if book.is_dry:
        book.write("would resume", node, "`%s` passed" % " ".join(settings["prove"]))
        return
    # Somebody may have drained it for another reason while it was at work.
    if not is_ours(engine, settings, node):
        book.write("not ours", node, "its state changed while it was proved")
        return
    book.keep(proved_at=begun, proved_boot=read_boot(), proved_monotonic=monotonic, asked_at=0, limit_at=0)
    engine.resume(node)
    book.write("resume", node, "`%s` passed" % " ".join(settings["prove"]))


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


def judge_proof(status, out, said):
    """Return why a proof is none, or an empty text: it must say itself that it passed, and that something did."""
    if status is None:
        return said
    try:
        document = json.loads(out)
        result = document.get("result", document)
        counts = result["counts"]
        if status == 0 and result["ok"] is True and counts["pass"] > 0 and counts["fail"] == 0:
            return ""
        failing = [group["check"] + ": " + group["seen"] for group in result.get("groups", ())]
        return "; ".join(failing[:3]) or "status %d, %s passed" % (status, counts["pass"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "status %d and no report: %s" % (status, plain(said or out))


def do_apply(engine, settings, book, report):
    """Drain each node that a report fails; return whether all was done."""
    targets = read_targets(report)
    if targets is None:
        raise SettingsError("%s is not a report of `provision verify --json`" % report)
    is_whole = True
    for target in targets:
        try:
            found = read_failure(target)
        except (AttributeError, KeyError, TypeError):
            found = None
        if not found:
            continue
        node = target["target"].split("://")[-1].split("@")[-1]
        try:
            is_drained = drain(engine, settings, book, node, found, time.monotonic() + CALL_SECONDS)
            if settings["jobs"] == "requeue" and (is_drained or book.is_dry):
                requeue(engine, book, node, engine.jobs(node), found[1])
        except EngineError as error:
            book.write("failed", node, str(error), check=found[0])
            is_whole = False
    return is_whole


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
