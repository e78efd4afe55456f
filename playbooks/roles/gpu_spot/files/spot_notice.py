#!/usr/bin/python3
"""Save, drain and requeue when the provider tells this spot instance that it is taken back.

Usage: spot_notice.py CONFIG            watch until stopped
       spot_notice.py --check CONFIG    say what is wrong with the settings
       spot_notice.py --look CONFIG     ask once and print what the provider says

Where the notice is and how it reads comes with the settings. A notice is acted on once: checkpoint, drain, the files of
the folder of hooks by name, requeue; each ends at its deadline, and its whole process group with it. A notice that is
taken back ends what has not begun and runs `resume`. The way of every notice is one JSON record; a textfile tells
node_exporter. SIGTERM ends the program, after the notice that it is busy with; a second one ends that, too.

Python 3.8 and the standard library alone.
"""

import calendar
import contextlib
import datetime
import email.utils
import errno
import glob
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

SCHEMA = 1
BOOT_ID = "/proc/sys/kernel/random/boot_id"
ANSWER_BYTES_MAX = 65536
WAIT_SECONDS = 60  # how long an answer may wait for a change, where no warning is shorter
SKEW_SECONDS = 3.0  # from where on clocks differ
LAST_LOOK_SECONDS = 1.0  # what a stop may take to ask once more
TICK_SECONDS = 0.1  # how exactly deadlines are kept
GRACE_SECONDS = 2.0  # between the request to end and the end
METRICS_SECONDS = 15.0
AFTER_SECONDS = 60.0  # how long an acknowledged notice may be gone before it counts as taken back
BACKOFF_SECONDS_MAX = 60.0

COMMANDS = ("checkpoint", "drain", "requeue", "resume")
FORMS = ("action", "advice", "events", "flag", "moment")
ADVICE = ("ignore", "checkpoint", "drain")
NUMBERS = {
    "margin_seconds": 3.0,
    "reserve_seconds": 10.0,
    "least_seconds": 5.0,
    "timeout_seconds": 2.0,
    "advice_seconds": 600.0,
}
TEXTS = {"hooks": "", "textfile": "", "state": "/var/lib/provision/spot", "advice": "ignore"}
ROW = {
    "id": str,
    "provider": str,
    "kind": str,
    "form": str,
    "address": str,
    "path": str,
    "headers": dict,
    "token_path": str,
    "token_header": str,
    "token_seconds_header": str,
    "token_seconds": int,
    "name_path": str,
    "wait_query": str,
    "utc_offset_hours": int,
    "warning_seconds": (int, float),
    "poll_seconds": (int, float),
}
ROW_NEEDS = ("id", "provider", "kind", "form", "address", "path", "poll_seconds")


class SettingsError(Exception):
    pass


class MetadataError(Exception):
    pass


class StopError(BaseException):
    """A signal came while an answer was waited for; nothing that handles errors may keep it."""


def say(text):
    print(text, file=sys.stderr, flush=True)


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
    settings = dict(TEXTS, acknowledge=True, **NUMBERS)
    settings.update({name: [] for name in COMMANDS})
    settings.update(given)
    return settings


def find_problems(given):
    if not isinstance(given, dict):
        yield "the settings are no JSON object"
        return
    known = {"schema_version", "notices", "acknowledge"} | set(COMMANDS) | set(NUMBERS) | set(TEXTS)
    for name in sorted(set(given) - known):
        yield "`%s` is not a setting; known are %s" % (name, ", ".join(sorted(known)))
    if given.get("schema_version") != SCHEMA:
        yield "`schema_version` is not %d: the settings are for another version of this program" % SCHEMA
    for name in COMMANDS:
        words = given.get(name, [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            yield '`%s` is not a list of words; a shell is written ["sh", "-c", "…"]' % name
        elif words and not words[0]:
            yield "`%s` begins with an empty word" % name
    for name in NUMBERS:
        value = given.get(name, 1.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 86400:
            yield "`%s` is not a number of seconds of a day" % name
    if given.get("timeout_seconds", 1) == 0:
        yield "`timeout_seconds` is 0, and no answer can come"
    for name in TEXTS:
        if not isinstance(given.get(name, ""), str):
            yield "`%s` is not text" % name
    for name in ("hooks", "textfile", "state"):
        if isinstance(given.get(name), str) and given[name] and not given[name].startswith("/"):
            yield "`%s` is not an absolute path" % name
    if given.get("advice", "ignore") not in ADVICE:
        yield "`advice` is none of %s" % ", ".join(ADVICE)
    if not isinstance(given.get("acknowledge", True), bool):
        yield "`acknowledge` is neither true nor false"
    rows = given.get("notices")
    if not isinstance(rows, list) or not rows:
        yield "`notices` names no place where a notice could be"
        return
    for place, row in enumerate(rows):
        for problem in find_row_problems(row):
            yield "notices[%d]: %s" % (place, problem)


def find_row_problems(row):
    if not isinstance(row, dict):
        yield "is not an object"
        return
    for name in ROW_NEEDS:
        if name not in row:
            yield "`%s` is missing" % name
    for name, value in row.items():
        if name not in ROW:
            yield "`%s` is not a field" % name
        elif isinstance(value, bool) or not isinstance(value, ROW[name]):
            yield "`%s` has the wrong type" % name
    if row.get("form") not in FORMS:
        yield "`form` is none of %s" % ", ".join(FORMS)
    if not str(row.get("address", "")).startswith(("http://", "https://")):
        yield "`address` is not an http address"
    if not isinstance(row.get("poll_seconds"), (int, float)) or not row["poll_seconds"] > 0:
        yield "`poll_seconds` is not above 0"


# What the provider says


class Answer:
    def __init__(self, status, text, headers):
        self.status = status
        self.text = text
        self.headers = headers


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A metadata service does not send anybody elsewhere."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # noqa: ARG002 - as urllib calls it
        return None


class Notice:
    def __init__(self, row, name, action, at):
        self.row = row
        self.id = "%s:%s" % (row["id"], name)
        self.name = name
        self.kind = row["kind"]
        self.provider = row["provider"]
        self.action = action
        self.at = at  # seconds of Unix; absent where no time is given


class Metadata:
    """Asks the metadata service, with a token where one is needed; the same service for all rows."""

    def __init__(self, rows, timeout):
        self.rows = rows
        self.timeout = timeout
        self.tokens = {}
        self.etags = {}
        self.own_name = None
        self.skew = 0.0  # seconds that the provider's clock is ahead of this one
        # No proxy that a machine was given leads to its metadata service.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect())

    def send(self, address, headers, timeout, method="GET", body=None):
        request = urllib.request.Request(address, data=body, headers=headers, method=method)  # noqa: S310 - checked
        try:
            with self.opener.open(request, timeout=timeout) as response:
                return self._read(response, response.status)
        except urllib.error.HTTPError as error:
            with error:
                return self._read(error, error.code)
        except (OSError, ValueError, EOFError) as error:
            raise MetadataError("%s: %s" % (address, getattr(error, "reason", error))) from error
        except Exception as error:  # an answer that is not HTTP
            raise MetadataError("%s: %s" % (address, type(error).__name__)) from error

    def _read(self, response, status):
        text = response.read(ANSWER_BYTES_MAX).decode("utf-8", "replace").strip()
        date = response.headers.get("Date")
        if date:
            try:
                skew = email.utils.parsedate_to_datetime(date).timestamp() - time.time()
            except (TypeError, ValueError):
                skew = 0.0
            # Both clocks are read to the second, and on the way some time goes by.
            self.skew = skew if abs(skew) > SKEW_SECONDS else 0.0
        return Answer(status, text, response.headers)

    def fetch(self, row, path, timeout, method="GET", body=None):
        """Send one request, with a new token if the old one is refused."""
        for _ in range(2):
            headers = dict(row.get("headers", {}))
            if row.get("token_path"):
                headers[row["token_header"]] = self._token(row, timeout)
            answer = self.send(row["address"] + path, headers, timeout, method, body)
            if answer.status != 401 or not row.get("token_path"):
                break
            self.tokens.pop(row["address"] + row["token_path"], None)
        return answer

    def _token(self, row, timeout):
        place = row["address"] + row["token_path"]
        if place not in self.tokens:
            headers = {row["token_seconds_header"]: str(row["token_seconds"])}
            answer = self.send(place, headers, timeout, "PUT", b"")
            if answer.status != 200 or not answer.text:
                raise MetadataError("%s: no token, status %d" % (place, answer.status))
            self.tokens[place] = answer.text
        return self.tokens[place]

    def ask(self, row, timeout, can_wait=False):
        """Return the notice of a row, or None for a clear no.

        Raises MetadataError for everything that is neither.
        """
        path = row["path"]
        etag = self.etags.get(row["id"])
        if can_wait and row.get("wait_query") and etag:
            # An answer that never comes must not be waited for longer than the warning allows.
            seconds = max(1, int(min(WAIT_SECONDS, row.get("warning_seconds", 3 * WAIT_SECONDS) / 3)))
            query = row["wait_query"].replace("{seconds}", str(seconds)).replace("{etag}", etag)
            path += ("&" if "?" in path else "?") + query
            timeout += seconds
        answer = self.fetch(row, path, timeout)
        if answer.status == 404 and row["form"] in ("action", "advice", "moment"):
            return None
        if answer.status != 200:
            raise MetadataError("%s: status %d" % (row["address"] + path, answer.status))
        fresh = answer.headers.get("ETag")
        if fresh and re.match(r"^[A-Za-z0-9]+$", fresh):
            self.etags[row["id"]] = fresh
        try:
            return READERS[row["form"]](self, row, answer.text, timeout)
        except MetadataError:
            raise
        except Exception as error:  # nothing that anybody answers ends the watch
            raise MetadataError("%s: cannot be read: %.80r" % (row["address"] + path, answer.text)) from error

    def read_action(self, row, text, _timeout):
        document = json.loads(text)
        if not isinstance(document["action"], str):
            raise TypeError("action")
        return Notice(row, document["time"], document["action"], read_moment(document["time"]) - self.skew)

    def read_advice(self, row, text, _timeout):
        moment = json.loads(text)["noticeTime"]
        read_moment(moment)
        return Notice(row, moment, "advice", None)

    def read_time(self, row, text, _timeout):
        if not text:
            return None
        return Notice(row, text, "terminate", read_moment(text, row.get("utc_offset_hours", 0)) - self.skew)

    def read_flag(self, row, text, _timeout):
        if text not in ("TRUE", "FALSE"):
            raise ValueError(text)
        return Notice(row, "preempted", "preempt", None) if text == "TRUE" else None

    def read_events(self, row, text, timeout):
        for event in json.loads(text)["Events"]:
            # The events of a whole scale set are told to each of its machines.
            if event["EventType"] != "Preempt" or self._name(row, timeout) not in lowered(event["Resources"]):
                continue
            begins = event.get("NotBefore") or ""
            at = email.utils.parsedate_to_datetime(begins).timestamp() - self.skew if begins else time.time()
            return Notice(row, str(event["EventId"]), "preempt", at)
        return None

    def _name(self, row, timeout):
        if self.own_name is None and row.get("name_path"):
            answer = self.fetch(row, row["name_path"], timeout)
            if answer.status != 200 or not answer.text:
                raise MetadataError("%s: status %d" % (row["address"] + row["name_path"], answer.status))
            self.own_name = answer.text.lower()
        return self.own_name

    def acknowledge(self, notice, timeout):
        """Tell the provider that it need not wait any longer."""
        body = json.dumps({"StartRequests": [{"EventId": notice.name}]}).encode("ascii")
        answer = self.fetch(notice.row, notice.row["path"], timeout, "POST", body)
        if answer.status != 200:
            raise MetadataError("acknowledgement: status %d" % answer.status)


READERS = {
    "action": Metadata.read_action,
    "advice": Metadata.read_advice,
    "events": Metadata.read_events,
    "flag": Metadata.read_flag,
    "moment": Metadata.read_time,
}


def lowered(names):
    return [str(name).lower() for name in names]


def read_moment(text, offset_hours=0):
    """Return seconds of Unix for a time, which is in UTC unless an offset is given."""
    match = re.match(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?$", text.strip())
    if not match:
        raise ValueError("no time: %.40r" % text)
    day, clock, zone = match.groups()
    seconds = calendar.timegm(time.strptime(day + " " + clock, "%Y-%m-%d %H:%M:%S"))
    if zone is None:
        return seconds - offset_hours * 3600
    if zone == "Z":
        return seconds
    sign = -1 if zone[0] == "-" else 1
    return seconds - sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


# What is done


def write_file(path, text, mode=0o644):
    """Write a file whole or not at all."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def end_group(process, number):
    try:
        os.killpg(process.pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            say("cannot signal process group %d: %s" % (process.pid, error))


class Step:
    """One command of a notice, with the time it has."""

    def __init__(self, name, words):
        self.name = name
        self.words = words
        self.process = None
        self.began = None
        self.end = None
        self.is_ended = False
        self.is_killed = False

    def begin(self, end, environment):
        self.began = time.monotonic()
        self.end = end
        try:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, env=environment, start_new_session=True, close_fds=True
            )
        except (OSError, ValueError) as error:
            return self.result(127, str(error))
        return None

    def look(self, now):
        """Return the result once there is one; end what is over its time."""
        code = self.process.poll()
        if code is not None:
            if self.is_ended:
                # What it had started may still be there.
                end_group(self.process, signal.SIGKILL)
            return self.result(code, "ended at its deadline" if self.is_ended else "")
        if now >= self.end:
            self.kill()
        elif not self.is_ended and now >= self.end - min(GRACE_SECONDS, (self.end - self.began) / 4):
            self.is_ended = True
            end_group(self.process, signal.SIGTERM)
        return None

    def kill(self):
        self.is_ended = True
        if not self.is_killed:
            self.is_killed = True
            end_group(self.process, signal.SIGKILL)

    def result(self, code, why):
        return {
            "name": self.name,
            "ok": code == 0 and not self.is_ended,
            "code": code,
            "seconds": round(time.monotonic() - self.began, 3),
            "killed": self.is_ended,
            "why": why,
        }


class Run:
    """What is done about one notice, step by step, without ever waiting."""

    def __init__(self, notice, steps, record, deadline):
        self.notice = notice
        self.steps = steps
        self.record = record
        self.deadline = deadline  # monotonic
        self.current = None
        self.is_withdrawn = False

    def budget_end(self, settings, now):
        """Return when the next step has to be over: a checkpoint leaves the others what they need."""
        step = self.steps[0]
        if step.name == "checkpoint":
            rest = settings["reserve_seconds"] if len(self.steps) > 1 else 0.0
            end = self.deadline - rest
        else:
            end = now + (self.deadline - now) / len(self.steps)
        return max(end, now + settings["least_seconds"])


class Watch:
    def __init__(self, settings):
        self.settings = settings
        self.rows = settings["notices"]
        self.metadata = Metadata(self.rows, settings["timeout_seconds"])
        self.run = None
        self.record = None  # of the notice in force
        self.record_path = None
        self.advised = None
        self.stops = 0
        self.in_request = False
        self.errors = 0
        self.failures = 0  # in a row
        self.gone = 0  # clear answers in a row that the notice in force is not there any more
        self.last_answer = None
        self.metrics_text = None
        self.metrics_at = None
        self.problem = None
        self.boot = read_boot()
        self.pipe = os.pipe()
        for end in self.pipe:
            os.set_blocking(end, False)

    # Signals

    def catch(self, number, _frame):
        self.stops += 2 if number == signal.SIGINT else 1
        with contextlib.suppress(OSError):
            os.write(self.pipe[1], b"x")
        if self.in_request:
            self.in_request = False
            raise StopError

    def sleep(self, seconds):
        if seconds > 0 and select.select([self.pipe[0]], [], [], seconds)[0]:
            os.read(self.pipe[0], 64)

    # The loop

    def watch(self):
        signal.signal(signal.SIGTERM, self.catch)
        signal.signal(signal.SIGINT, self.catch)
        self.restore()
        providers = sorted({row["provider"] for row in self.rows})
        say("watching for notices of %s, every %g s" % (", ".join(providers), self.poll_seconds()))
        next_look = 0.0
        while True:
            now = time.monotonic()
            if self.stops:
                if self.run is None:
                    if self.record is not None or self.stops > 1 or not self.look_last():
                        break
                elif self.stops > 1:
                    self.abandon()
                    break
            elif now >= next_look:
                began = now
                self.look()
                next_look = began + self.pause()
            self.tick()
            self.tell()
            if self.run is not None:
                self.sleep(TICK_SECONDS)
            elif not self.stops:
                self.sleep(min(next_look - time.monotonic(), METRICS_SECONDS))
        self.tell(force=True)
        say("stopped")
        return 0

    def poll_seconds(self):
        return min(row["poll_seconds"] for row in self.rows)

    def pause(self):
        """Return the seconds until the next question: more after failures, but less than a warning is long."""
        poll = self.poll_seconds()
        if not self.failures:
            return poll
        warnings = [row["warning_seconds"] for row in self.rows if row.get("warning_seconds")]
        most = min([BACKOFF_SECONDS_MAX] + [seconds / 4.0 for seconds in warnings])
        return min(poll * 2.0 ** min(self.failures - 1, 16), max(most, poll))

    def timeout(self):
        """Return the seconds that an answer may take: no question holds up the end of a step."""
        seconds = self.settings["timeout_seconds"]
        if self.run is not None and self.run.current is not None:
            seconds = min(seconds, max(self.run.current.end - time.monotonic() - GRACE_SECONDS, 0.2))
        return seconds

    def question(self, row, timeout, can_wait):
        self.in_request = True
        try:
            return self.metadata.ask(row, timeout, can_wait)
        finally:
            self.in_request = False

    def look(self):
        failed = False
        for row in self.rows:
            if self.stops:
                return
            try:
                # What waits for a change would keep the end of a step, and the other questions, waiting.
                notice = self.question(row, self.timeout(), self.run is None and len(self.rows) == 1)
            except StopError:
                return
            except MetadataError as error:
                failed = True
                self.errors += 1
                if str(error) != self.problem:
                    self.problem = str(error)
                    say("no answer: %s" % error)
                continue
            self.last_answer = time.time()
            self.consider(row, notice)
        self.failures = self.failures + 1 if failed else 0
        if not failed and self.problem is not None:
            say("answers again")
            self.problem = None

    def look_last(self):
        """Ask once more before stopping: some providers send the notice and the order to power off together."""
        for row in self.rows:
            if row["kind"] != "interruption":
                continue
            try:
                notice = self.metadata.ask(row, min(LAST_LOOK_SECONDS, self.settings["timeout_seconds"]))
            except MetadataError:
                continue
            self.consider(row, notice)
        return self.run is not None

    def consider(self, row, notice):
        if row["kind"] == "advice":
            self.consider_advice(notice)
        elif notice is None:
            self.consider_gone(row)
        elif self.record is None:
            self.gone = 0
            self.accept(notice)
        else:
            self.gone = 0
            known = [self.record["id"], *(other["id"] for other in self.record["ignored"])]
            if notice.id not in known:
                say("second notice %s is ignored: %s is being acted on" % (notice.id, self.record["id"]))
                self.record["ignored"].append({"id": notice.id, "seen_at": stamp(time.time())})
                self.save()

    def consider_gone(self, row):
        record = self.record
        if record is None or record["row"] != row["id"]:
            return
        if record["acknowledged"] and time.time() < record["deadline"] + AFTER_SECONDS:
            return
        self.gone += 1
        # One odd answer puts no node back into service.
        if self.gone < 2:
            return
        self.gone = 0
        say("notice %s was taken back" % record["id"])
        if self.run is not None:
            self.run.is_withdrawn = True
            self.run.steps = []
        else:
            self.withdraw()

    def consider_advice(self, notice):
        if notice is None:
            self.advised = None
            return
        if self.advised == notice.id:
            return
        self.advised = notice.id
        say("the provider advises to leave: %s" % notice.id)
        if self.settings["advice"] == "ignore" or self.record is not None or self.run is not None:
            return
        now = time.time()
        names = ("checkpoint",) if self.settings["advice"] == "checkpoint" else ("checkpoint", "drain", "requeue")
        deadline = now + self.settings["advice_seconds"]
        record = self.new_record(notice, now, None, deadline)
        if os.path.exists(self.path_of(record)):
            return
        self.run = Run(notice, self.steps(names), record, time.monotonic() + self.settings["advice_seconds"])
        self.save(record)

    def accept(self, notice):
        now = time.time()
        warning = notice.row.get("warning_seconds")
        at = now + (warning or 0) if notice.at is None else notice.at
        if warning is not None and notice.row["form"] != "events":
            # Nobody is told earlier than that; more would come of clocks that differ.
            at = min(at, now + warning)
        deadline = at - self.settings["margin_seconds"]
        record = self.new_record(notice, now, at, deadline)
        if os.path.exists(self.path_of(record)):
            stored = read_record(self.path_of(record))
            if stored is not None and stored.get("state") != "withdrawn":
                self.record = stored
                self.record_path = self.path_of(record)
                return
        say("%s at %s: %d s are left" % (notice.action, stamp(at), max(0, deadline - now)))
        self.record = record
        self.record_path = self.path_of(record)
        steps = self.steps(("checkpoint", "drain", "requeue"))
        run = Run(notice, steps, record, time.monotonic() + (deadline - now))
        if self.run is not None:
            self.run.record["state"] = "overtaken"
            self.save(self.run.record)
        if self.run is not None and self.run.current is not None:
            # A checkpoint that is being written is waited for rather than begun again.
            run.current = self.run.current
            run.current.end = min(run.current.end, max(run.deadline, time.monotonic() + 1))
            run.steps = [step for step in steps if step.name != run.current.name]
        self.run = run
        self.save()

    def steps(self, names):
        found = []
        for name in names:
            if self.settings[name]:
                found.append(Step(name, self.settings[name]))
            if name == "drain" and self.settings["hooks"]:
                found += [
                    Step("hook:" + os.path.basename(path), [path])
                    for path in sorted(glob.glob(os.path.join(glob.escape(self.settings["hooks"]), "*")))
                    if os.path.isfile(path) and os.access(path, os.X_OK)
                ]
        return found

    def tick(self):
        run = self.run
        if run is None:
            return
        now = time.monotonic()
        if run.current is None and run.steps:
            end = run.budget_end(self.settings, now)
            step = run.steps.pop(0)
            run.current = step
            say("%s begins and has %.1f s" % (step.name, end - now))
            self.note(step.begin(end, self.environment(run, end - now)))
        if run.current is not None and run.current.process is not None:
            self.note(run.current.look(time.monotonic()))
        if run.current is None and not run.steps:
            self.finish()

    def note(self, result):
        if result is None:
            return
        self.run.current = None
        self.run.record["steps"].append(result)
        words = "done" if result["ok"] else result["why"] or "failed with code %d" % result["code"]
        say("%s: %s after %.1f s" % (result["name"], words, result["seconds"]))
        self.save(self.run.record)

    def environment(self, run, seconds):
        deadline = time.time() + seconds
        found = dict(os.environ)
        found.update(
            {
                "PROVISION_ACTION": run.notice.action,
                "PROVISION_DEADLINE": "%d" % deadline,
                "PROVISION_INTERRUPTS_AT": "" if run.record["at"] is None else "%d" % run.record["at"],
                "PROVISION_NOTICE": run.notice.id,
                "PROVISION_PROVIDER": run.notice.provider,
                "PROVISION_SECONDS": "%d" % max(seconds, 0),
            }
        )
        return found

    def finish(self):
        run, self.run = self.run, None
        record = run.record
        if run.is_withdrawn:
            self.withdraw()
            return
        record["state"] = "done" if all(step["ok"] for step in record["steps"]) else "failed"
        # Where something failed, the time that is left may still be of use to somebody.
        if run.notice.row["form"] == "events" and self.settings["acknowledge"] and record["state"] == "done":
            try:
                self.metadata.acknowledge(run.notice, self.settings["timeout_seconds"])
                record["acknowledged"] = True
            except MetadataError as error:
                say("not acknowledged: %s" % error)
        self.save(record)
        say("%s: %s" % (record["id"], record["state"]))

    def withdraw(self):
        record, self.record = self.record, None
        has_left = any(step["name"] != "checkpoint" for step in record["steps"])
        record["state"] = "withdrawn"
        if self.settings["resume"] and has_left:
            step = Step("resume", self.settings["resume"])
            seconds = max(self.settings["reserve_seconds"], self.settings["least_seconds"])
            result = step.begin(time.monotonic() + seconds, dict(os.environ, PROVISION_NOTICE=record["id"]))
            while result is None:
                time.sleep(TICK_SECONDS)
                result = step.look(time.monotonic())
            record["steps"].append(result)
            say("resume: %s" % ("done" if result["ok"] else result["why"] or "failed"))
        self.save(record)

    def abandon(self):
        """End at once what runs."""
        step = self.run.current
        if step is not None and step.process is not None:
            step.kill()
            step.process.wait()
            self.note(step.look(time.monotonic()))
        self.run.record["state"] = "stopped"
        self.save(self.run.record)
        self.run = None

    # What is left behind

    def new_record(self, notice, now, at, deadline):
        return {
            "schema_version": SCHEMA,
            "id": notice.id,
            "row": notice.row["id"],
            "provider": notice.provider,
            "kind": notice.kind,
            "action": notice.action,
            "boot": self.boot,
            "seen_at": stamp(now),
            "interrupts_at": None if at is None else stamp(at),
            "at": None if at is None else round(at, 3),
            "deadline": round(deadline, 3),
            "acknowledged": False,
            "state": "running",
            "steps": [],
            "ignored": [],
        }

    def path_of(self, record):
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", "%s-%s" % (record["id"], self.boot[:8]))
        return os.path.join(self.settings["state"], "notice-%s.json" % name[:120])

    def save(self, record=None):
        record = self.record if record is None else record
        try:
            os.makedirs(self.settings["state"], exist_ok=True)
            write_file(self.path_of(record), json.dumps(record, indent=2, sort_keys=True) + "\n", 0o640)
        except OSError as error:
            say("the record cannot be written: %s" % error)

    def restore(self):
        """Go on with the notice that was in force when the program ended, if the machine is the same boot."""
        found = []
        for path in glob.glob(os.path.join(glob.escape(self.settings["state"]), "notice-*.json")):
            record = read_record(path)
            if record and record["boot"] == self.boot and record["kind"] == "interruption":
                found.append(record)
        found = [record for record in found if record["state"] != "withdrawn"]
        if not found:
            return
        record = max(found, key=lambda row: row["seen_at"])
        row = next((row for row in self.rows if row["id"] == record["row"]), None)
        self.record = record
        if row is None or record["state"] != "running":
            return
        done = {step["name"] for step in record["steps"]}
        notice = Notice(row, record["id"].partition(":")[2], record["action"], record["at"])
        steps = [step for step in self.steps(("checkpoint", "drain", "requeue")) if step.name not in done]
        say("going on with %s" % record["id"])
        self.run = Run(notice, steps, record, time.monotonic() + (record["deadline"] - time.time()))

    def tell(self, force=False):
        path = self.settings["textfile"]
        if not path:
            return
        text = self.metrics()
        stable = re.sub(r"(?m)^provision_spot_(last_answer_seconds|metadata_errors_total) .*$", "", text)
        now = time.monotonic()
        if not force and stable == self.metrics_text and now - self.metrics_at < METRICS_SECONDS:
            return
        try:
            write_file(path, text)
        except OSError as error:
            if self.metrics_text is None:
                say("the textfile cannot be written: %s" % error)
        self.metrics_text = stable
        self.metrics_at = now

    def metrics(self):
        record = self.record
        provider = self.rows[0]["provider"]
        lines = []

        def add(name, kind, words, rows):
            lines.append("# HELP provision_spot_%s %s" % (name, words))
            lines.append("# TYPE provision_spot_%s %s" % (name, kind))
            lines.extend("provision_spot_%s%s %s" % (name, labels, value) for labels, value in rows)

        labels = '{action="%s",provider="%s"}' % (clean(record["action"] if record else "none"), clean(provider))
        add("notice", "gauge", "Whether this instance is being taken back.", [(labels, 1 if record else 0)])
        add("advice", "gauge", "Whether the provider advises to leave.", [("", 1 if self.advised else 0)])
        add("metadata_up", "gauge", "Whether the metadata service answers.", [("", 0 if self.failures else 1)])
        add("metadata_errors_total", "counter", "Questions without an answer.", [("", self.errors)])
        if self.last_answer is not None:
            add("last_answer_seconds", "gauge", "Time of the last answer.", [("", "%d" % self.last_answer)])
        if record:
            add("deadline_seconds", "gauge", "When all has to be done.", [("", "%d" % record["deadline"])])
            steps = record["steps"]
            rows = [('{step="%s"}' % clean(step["name"]), 1 if step["ok"] else 0) for step in steps]
            add("step_ok", "gauge", "Whether a step was done in time.", rows)
            rows = [('{step="%s"}' % clean(step["name"]), step["seconds"]) for step in steps]
            add("step_seconds", "gauge", "What a step took.", rows)
        return "\n".join(lines) + "\n"


def clean(text):
    return re.sub(r'[\\"\n]', "_", text)


def stamp(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_boot():
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def read_record(path):
    """Return a record, or None where a file is none: what cannot be read must not keep a notice from being seen."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        for name in ("id", "row", "kind", "boot", "state", "seen_at", "steps", "ignored", "deadline", "action"):
            record[name]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record


def look_once(settings):
    watch = Watch(settings)
    rows, code = [], 0
    for row in watch.rows:
        try:
            notice = watch.metadata.ask(row, settings["timeout_seconds"])
        except MetadataError as error:
            rows.append({"id": row["id"], "error": str(error)})
            code = 7
            continue
        at = None if notice is None or notice.at is None else stamp(notice.at)
        rows.append({"id": row["id"], "notice": None if notice is None else notice.name, "interrupts_at": at})
    print(json.dumps(rows, indent=2))
    return code


def main(words):
    mode = words.pop(0) if words and words[0] in ("--check", "--look") else None
    if len(words) != 1 or words[0].startswith("-"):
        say(__doc__.split("\n\n")[1])
        return 2
    try:
        settings = read_settings(words[0])
    except SettingsError as error:
        say(str(error))
        return 2
    if mode == "--check":
        return 0
    if mode == "--look":
        return look_once(settings)
    return Watch(settings).watch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
