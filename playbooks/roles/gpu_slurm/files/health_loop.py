"""The loop that takes a bad GPU node out of service and puts it back after proof, whatever schedules the nodes.

It exists once: `node_health.py` runs it on a node of Slurm, and `provision fleet health` for Kubernetes. It knows
limits, reasons, the ledger, dry runs and proofs. What schedules is an engine, with

    nodes()                rows of `Node`: all of them, once for each group that one is in
    node(name)             the same of one node
    drain(name, reason)    take it out of service
    resume(name)           put it back
    jobs(name)             what runs there; requeue(job) starts one of these elsewhere
    take_lock(name)        whether this call alone may drain now; give_lock() ends that

which raise EngineError where they could not.

Python 3.6 and the standard library alone.
"""

import contextlib
import datetime
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

REASON_MAX = 200
REPORT_BYTES_MAX = 64 * 1024 * 1024
HELD_SECONDS = 30.0  # no drain is begun later than this after the lock was taken
DAY_SECONDS = 86400

LIMITS = {"limit_percent": 10, "returns_per_day": 3}
PREFIX = "provision: "
"""Begins every reason, and is how a drain of this program is known."""


class EngineError(Exception):
    """The scheduler did not do what it was asked to."""


class Node:
    def __init__(self, name, group, is_out, is_busy, reason):
        self.name = name
        self.group = group  # of which no more than a share may be out at once; Slurm's partition
        self.is_out = is_out
        self.is_busy = is_busy
        self.reason = reason  # empty where nobody drained it


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


def run(words, seconds, text=None):
    """Return status, output and errors of a command that reads `text`; its whole process group ends with its time.

    Raises EngineError where it cannot be started or did not end in time.
    """
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError("%s: %s" % (words[0], error.strerror or error)) from error
    try:
        out, said = child.communicate(text, timeout=max(seconds, 0.01))
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
    """The ledger, and what one call leaves to the next.

    Args:
        settings: With the paths `ledger` and `state`, a folder.
        mode: What the call is for.
        is_dry: Whether nothing is done.
        program: Which program it is.
        is_told: Whether lines are said on stderr too.
    """

    def __init__(self, settings, mode, is_dry, program="node_health.py", is_told=True):
        self.settings = settings
        self.mode = mode
        self.is_dry = is_dry
        self.program = program
        self.is_told = is_told
        self.rows = []  # of this call
        self.path = os.path.join(settings["state"], "state.json")
        state = read_json(self.path)
        self.state = state if isinstance(state, dict) else {}

    def write(self, what, node, why, **more):
        """Add a line: who did what, to which node, why and when."""
        who = {"program": self.program, "mode": self.mode, "uid": os.getuid(), "host": socket.gethostname()}
        row = dict(when=now(), who=who, what=what, node=node, why=plain(why, 1000), dry_run=self.is_dry, **more)
        self.rows.append(row)
        text = json.dumps(row, sort_keys=True)
        if self.is_told:
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

    def act(self, what, node, why, do, **more):
        """Do something and write it down; a call that dies between the two leaves what the next one settles."""
        self.keep(pending={"what": what, "node": node, "why": why})
        do()
        self.write(what, node, why, **more)
        self.keep(pending=None)

    def returns(self, node):
        """Return when a node was put back, seconds since the epoch: the last time, and before it those of a day."""
        try:
            rows = list(self.state["returns"][node])
        except (KeyError, TypeError):
            return []
        return [when for when in rows[:-1] if time.time() - when < DAY_SECONDS] + rows[-1:]


def read_failure(target):
    """Return id, sentence and remedy of the first check of a target that fails, or None."""
    order = {"critical": 0, "high": 1}
    rows = [row for row in target.get("checks", ()) if row.get("status") == "fail" and row.get("severity") in order]
    if target.get("ok") or not rows:
        return None
    row = min(rows, key=lambda row: order[row["severity"]])
    return row["id"], "%s: %s" % (row["id"], row.get("seen") or row.get("title", "")), row.get("remedy") or ""


def told_of(found):
    """Return what the ledger keeps of what was found, beside its sentence: its id, and how it is repaired."""
    told = {"check": found[0]}
    if len(found) > 2 and found[2]:
        told["repair"] = plain(found[2], 1000)
    return told


def read_targets(path):
    """Return the targets of a report of `provision verify --json`, or None."""
    document = read_json(path, REPORT_BYTES_MAX)
    try:
        document = document.get("result", document)
        return [dict(row, target=str(row["target"])) for row in document["targets"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def node_of(target):
    """Return the node that a target of a report is: `ssh://root@n1` and `slurm://n1` are n1."""
    return target.split("://")[-1].split("@")[-1]


def limits_reached(rows, node, percent, planned=()):
    """Return what forbids one more node to be out: `GROUP: N of M are out, P % are K`, for each of its groups."""
    told = []
    for group in sorted({row.group for row in rows if row.name == node}):
        members = {row.name: row for row in rows if row.group == group}
        out = sum(row.is_out or row.name in planned for row in members.values())
        # A share of a small group would never let one go; 0 means never.
        most = max(1, int(len(members) * percent / 100)) if percent else 0
        if out + 1 > most:
            told.append("%s: %d of %d nodes are out, %g %% are %d" % (group, out, len(members), percent, most))
    return told


def settle(engine, settings, book):
    """Write down what became of an action that the last call did not live to write down."""
    row = book.state.get("pending")
    if not isinstance(row, dict) or book.is_dry:
        return
    try:
        own = engine.node(row["node"])
    except EngineError:
        if any(known.name == row["node"] for known in engine.nodes()):
            raise
        why = "%s; %s is no longer there" % (row["why"], row["node"])
        book.write("not done", row["node"], why, settled=True)
        book.keep(pending=None)
        return
    is_ours_now = own.is_out and own.reason.startswith(settings["prefix"])
    is_done = is_ours_now == (row["what"] == "drain")
    book.write(row["what"] if is_done else "not done", row["node"], row["why"], settled=True)
    if is_done and row["what"] == "resume":
        remember_return(book, row["node"])
    book.keep(pending=None)


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
            raise EngineError("%s is not a node of a %s" % (node, engine.GROUP))
        if any(row.is_out for row in own):
            return all(row.reason.startswith(settings["prefix"]) for row in own)
        # What a dry run would have drained counts as if it had.
        planned = [row["node"] for row in book.rows if row["what"] == "would drain"]
        reached = limits_reached(rows, node, settings["limit_percent"], planned)
        if reached:
            book.write("limit", node, "%s; not drained: %s" % ("; ".join(reached), reason), **told_of(found))
            if book.mode not in ("apply", "loop"):
                book.keep(limit_at=time.time())
            return False
        if book.is_dry:
            book.write("would drain", node, reason, **told_of(found))
            return False
        if time.monotonic() - begun > HELD_SECONDS:
            raise EngineError("the scheduler took too long; asked again next time")
        book.act("drain", node, reason, lambda: engine.drain(node, reason), **told_of(found))
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


def is_ours(engine, settings, node):
    """Tell whether this program drained a node, and nothing runs on it."""
    own = engine.node(node)
    return own.is_out and not own.is_busy and own.reason.startswith(settings["prefix"])


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


def remember_return(book, node):
    returns = book.state.get("returns")
    returns = dict(returns) if isinstance(returns, dict) else {}
    book.keep(returns=dict(returns, **{node: [*book.returns(node), time.time()]}))


def prove(engine, settings, book, node, run_proof):
    """Put a node back that this program drained, when its proof passes; return whether it is back.

    `run_proof` gives status, output and errors of the proof, and `None` as status where there was none.
    """
    if not is_ours(engine, settings, node):
        book.write("not ours", node, "it was not drained by this program, or jobs run on it")
        return False
    most = settings["returns_per_day"]
    if sum(time.time() - when < DAY_SECONDS for when in book.returns(node)) >= most:
        book.write("flapping", node, "it was put back %d times within a day; a person decides" % most)
        return False
    why = judge_proof(*run_proof())
    if why:
        book.write("not proved", node, why)
        return False
    passed = "`%s` passed" % " ".join(settings["prove"])
    if book.is_dry:
        book.write("would resume", node, passed)
        return False
    # Somebody may have drained it for another reason while it was at work.
    if not is_ours(engine, settings, node):
        book.write("not ours", node, "its state changed while it was proved")
        return False
    book.act("resume", node, passed, lambda: engine.resume(node))
    remember_return(book, node)
    return True


def apply(engine, settings, book, verdicts, seconds):
    """Drain each node that a verdict is about; return whether all was done.

    A verdict is a node, and id, sentence and repair of what was found. Each lock is waited for for `seconds`.
    """
    is_whole = True
    for node, found in verdicts:
        try:
            is_drained = drain(engine, settings, book, node, found, time.monotonic() + seconds)
            if settings["jobs"] == "requeue" and (is_drained or book.is_dry):
                requeue(engine, book, node, engine.jobs(node), found[1])
        except EngineError as error:
            book.write("failed", node, str(error), check=found[0])
            is_whole = False
    return is_whole
