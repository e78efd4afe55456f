"""Make one transaction of dnf: simulate it, judge it, make it, or take it back. Also lists, module streams, removal.

Run by the roles on the node with a JSON document on standard input: ``action`` and what it needs.

``refresh``  ``repositories`` (ids that must answer), ``stream`` (of the module ``nvidia-driver``; null: none),
             ``lock_seconds``
``install``  ``packages`` (``NAME`` or ``NAME=[EPOCH:]VERSION-RELEASE``), ``family`` (pattern of names that may go),
             ``removable``, ``untouched`` (pattern of names that stay as they are, or empty), ``allow_downgrade``,
             ``allow_held``, ``lock_seconds``
``remove``   ``packages``
``restore``  ``before`` (package → version and source), ``there``, ``packages``, ``along``, ``modules``, ``log_lines``
``release``  ``keys`` (fingerprints of keys to forget), ``stream`` to leave, or null

Prints a JSON report with ``problems`` and ``is_changed``. Python 3.8 and the standard library alone.
"""

import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.environ.get("PROVISION_ROOT", "/")
MODULE = "nvidia-driver"
PLUGIN = "usr/lib/python3*/*-packages/dnf-plugins/versionlock.py"
LOCKS = "etc/dnf/plugins/versionlock.list"
BEGIN, END = "# provision: begin", "# provision: end"
FORM = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{SOURCERPM}\\n"
COMPILER_ERROR = re.compile(r":\d+: (?:fatal )?error: ")
LINE_CHARACTERS = 200
# Headings of the table that dnf prints before it asks.
HEADINGS = {
    "Installing:": "install",
    "Installing dependencies:": "install",
    "Installing weak dependencies:": "install",
    "Upgrading:": "upgrade",
    "Downgrading:": "downgrade",
    "Reinstalling:": "install",
    "Removing:": "remove",
    "Removing dependent packages:": "remove",
    "Removing unused dependencies:": "orphan",
    "Transaction Summary": "",
    "Enabling module streams:": "",
    "Disabling modules:": "",
    "Skipping packages with conflicts:": "",
    "Skipping packages with broken dependencies:": "",
}
ROW = re.compile(r"^ (\S+)\s+(\S+)\s+((?:\d+:)?\S+-\S+)\s+\S+\s+[\d.]+ ?[kMG]?\s*$")
SIGNATURE = re.compile(
    r"GPG check FAILED|is not signed|Failing package|signature|GPG Keys|repomd\.xml GPG", re.IGNORECASE
)
KERNEL = re.compile(r"kernel(-core|-modules.*|-uek.*)?$")


def run(*argv, **settings):
    """Return (status, both outputs) of a command that never asks."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            input=settings.get("text", "").encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=settings.get("seconds"),
            env={**os.environ, "LC_ALL": "C", "COLUMNS": "400"},
        )
    except FileNotFoundError:
        return 127, "%s is not installed" % argv[0]
    except subprocess.TimeoutExpired as error:
        return 124, (error.output or b"").decode("utf-8", "replace")
    return done.returncode, done.stdout.decode("utf-8", "replace")


def dnf(*words, **settings):
    """Run dnf without weak dependencies, which a driver has many of, with the best candidate or none."""
    options = ["--setopt=install_weak_deps=False", "--best"]
    if settings.pop("without_locks", False):
        options.append("--disableplugin=versionlock")
    return run("dnf", *options, *words, **settings)


def tail(text, lines=12):
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def read_packages():
    """Return package → version, epoch in front where there is one, and source of what is installed."""
    found = {}
    for line in run("rpm", "-qa", "--qf", FORM)[1].splitlines():
        cells = line.split("\t")
        if len(cells) == 5 and cells[0] != "gpg-pubkey":
            name, epoch, version, _, source = cells
            found[name] = {
                "version": version if epoch == "0" else "%s:%s" % (epoch, version),
                "source": re.sub(r"-[^-]+-[^-]+\.src\.rpm$", "", source),
            }
    return found


def spec(word):
    """Return dnf's name of a package at a version, of ``NAME=VERSION``."""
    name, equals, version = word.partition("=")
    return "%s-%s" % (name, version) if equals else name


def why(text, what):
    """Return the reason in dnf's words."""
    locked = re.search(r"Waiting for process with pid (\d+)|another copy is running as process (\d+)", text)
    failed = re.findall(r"Failed to download metadata for repo '([^']+)'", text)
    if locked:
        return "%s: process %s holds dnf's lock: let it end, then run this again" % (what, locked[1] or locked[2])
    if re.search(r"No space left|more space needed", text):
        return "%s: there is not enough room: %s" % (what, tail(text, 3))
    if SIGNATURE.search(text):
        lines = [line.strip() for line in text.splitlines() if SIGNATURE.search(line)]
        return "%s: a signature is missing or wrong, so nothing of it is trusted: %s" % (what, " ".join(lines[:3]))
    if failed:
        return "%s: repository %s does not answer or is broken: %s" % (what, ", ".join(failed), tail(text, 3))
    return "%s: %s" % (what, tail(text))


def refresh(request):
    """Read the lists of the repositories, and enable the module's stream."""
    problems, changed = [], False
    seconds = request["lock_seconds"] + 600
    ids = request.get("repositories") or []
    if ids:
        words = ["--disablerepo=*", *("--enablerepo=" + name for name in ids), "--setopt=*.skip_if_unavailable=0"]
        status, text = dnf("-y", *words, "makecache", seconds=seconds)
        if status:
            problems.append(why(text, "the lists of the repositories"))
        elif not glob.glob(os.path.join(ROOT, PLUGIN)):
            # Without it the version locks are a file that nobody reads.
            changed = dnf("-y", "install", "dnf-command(versionlock)", seconds=seconds)[0] == 0
    stream = request.get("stream")
    if stream and not problems:
        known = dnf("-q", "module", "list", MODULE)[1]
        if not re.search(r"^%s\s+%s\s" % (re.escape(MODULE), re.escape(stream)), known, re.MULTILINE):
            offered = sorted(set(re.findall(r"^%s\s+(\S+)" % re.escape(MODULE), known, re.MULTILINE)))
            problems.append(
                "no repository has the module stream %s:%s; there are %s"
                % (MODULE, stream, ", ".join(offered) or "none")
            )
        else:
            dnf("-y", "module", "reset", MODULE)
            status, text = dnf("-y", "module", "enable", "%s:%s" % (MODULE, stream))
            changed = True
            if status:
                problems.append(why(text, "the module stream %s:%s" % (MODULE, stream)))
    return {"problems": problems, "is_changed": changed}


def read_plan(text):
    """Return what dnf would do: install, upgrade, downgrade, remove, orphan → list of (name, version)."""
    plan = {"install": [], "upgrade": [], "downgrade": [], "remove": [], "orphan": []}
    kind = ""
    for line in text.splitlines():
        if line.strip() in HEADINGS:
            kind = HEADINGS[line.strip()]
        elif kind:
            found = ROW.match(line)
            if found:
                plan[kind].append((found[1], found[3]))
    return plan


def judge(request, status, text, plan, now):
    """Return what speaks against a transaction."""
    wanted = [word.partition("=")[0] for word in request["packages"]]
    problems = []
    filtered = re.findall(r"filtered out by (exclude|modular) filtering for argument: (\S+)", text)
    for kind, name in filtered:
        held = "a version lock or an exclude of this node keeps it away"
        problems.append("%s: %s" % (name, held if kind == "exclude" else "its module stream is not enabled"))
    named = {name for _, name in filtered}
    missing = re.findall(r"^No match for argument: (\S+)", text, re.MULTILINE)
    problems += [
        "no repository of this node has %s%s" % (name, offers(name, wanted))
        for name in dict.fromkeys(missing)
        if name not in named
    ]
    if (status and "Operation aborted" not in text and not problems) or status not in (0, 1):
        problems.append(why(text, "the simulation"))
    allowed = {*wanted, *request.get("removable", ())}
    strangers = {name for name, _ in plan["remove"] if name not in allowed and not re.search(request["family"], name)}
    if strangers:
        problems.append("it would remove %s, which is not GPU software" % ", ".join(sorted(strangers)))
    moved = {name for kind in ("upgrade", "downgrade", "remove") for name, _ in plan[kind]} - set(wanted)
    touched = sorted(name for name in moved if request.get("untouched") and re.search(request["untouched"], name))
    if touched:
        problems.append("it would move %s, which is another role's" % ", ".join(touched))
    back = ["%s %s" % (name, now.get(name, {}).get("version", "")) for name, _ in plan["downgrade"]]
    if back and not request.get("allow_downgrade"):
        problems.append(
            "dnf would take back %s to an older version: use gpu-node-rollback.yml, or say gpu_driver_allow_downgrade "
            "or gpu_repos_allow_downgrade" % ", ".join(back)
        )
    kernels = sorted({name for name, _ in plan["install"] + plan["upgrade"] if KERNEL.match(name)})
    if kernels and not any(name.startswith("kernel") for name in wanted):
        problems.append("it would bring another kernel (%s), which nobody asked for" % ", ".join(kernels))
    return problems


def offers(missing, wanted):
    """Return in words which versions of a package there are, or nothing."""
    name = next((each for each in sorted(wanted, key=len, reverse=True) if missing.startswith(each)), missing)
    text = dnf("-q", "repoquery", "--disable-modular-filtering", "--qf", "%{evr}", name, without_locks=True)[1]
    found = [line for line in text.splitlines() if re.match(r"(\d+:)?[\w.+~^]+-[\w.+~]+$", line)]
    return "; they have %s" % ", ".join(found[-5:]) if found else ""


def install(request):
    """Simulate, judge and make one transaction."""
    now = read_packages()
    asked = [word for word in request["packages"] if not is_there(word, now)]
    if not asked:
        return {"problems": [], "is_changed": False, "plan": {}}
    words = ["--allowerasing", "install", *map(spec, asked)]
    options = {"without_locks": bool(request.get("allow_held"))}
    status, text = dnf("--assumeno", *words, seconds=request["lock_seconds"] + 300, **options)
    plan = read_plan(text)
    problems = judge({**request, "packages": asked}, status, text, plan, now)
    if problems:
        return {"problems": problems, "is_changed": False, "plan": plan}
    status, text = dnf("-y", *words, **options)
    then = read_packages()
    lacking = [word for word in asked if not is_there(word, then)]
    if status or lacking:
        what = "the transaction" if status else "dnf ended well and %s is not there" % ", ".join(lacking)
        problems.append(why(text, what))
    return {"problems": problems, "is_changed": then != now, "plan": plan}


def is_there(word, now):
    """Tell whether a package is installed as asked; headers of several kernels are packages of one name."""
    name, _, version = word.partition("=")
    if name in now:
        return version in ("", now[name]["version"])
    return run("rpm", "-q", "--quiet", spec(word))[0] == 0


def remove(request):
    """Remove packages, and what came along with them alone."""
    now = read_packages()
    names = [name for name in request["packages"] if name in now]
    if not names:
        return {"problems": [], "is_changed": False}
    status, text = dnf("-y", "remove", *names, without_locks=True)
    return {"problems": [why(text, "the removal")] if status else [], "is_changed": read_packages() != now}


def read_log(modules, lines):
    """Return the path and the telling lines of the newest make.log of a build of the modules that failed."""
    logs = []
    for module in modules:
        folder = os.path.join(ROOT, "var/lib/dkms", glob.escape(module))
        logs += glob.glob(os.path.join(folder, "*", "**", "make.log"), recursive=True)
    failed = [path for path in logs if os.path.basename(os.path.dirname(path)) != "log"]
    newest = max(failed, key=os.path.getmtime, default=None)
    if newest is None:
        return "", []
    with open(newest, "rb") as file:
        all_lines = file.read().decode("utf-8", "replace").splitlines()
    first = next((number for number, line in enumerate(all_lines) if COMPILER_ERROR.search(line)), len(all_lines))
    begin = max(0, min(first - lines // 8, len(all_lines) - lines))
    shown = all_lines[begin : begin + lines]
    return newest, [line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "…" for line in shown]


def restore(request):
    """Make the packages of a failed driver what they were, in one transaction, and say what the compiler said."""
    log, lines = read_log(request["modules"], request["log_lines"])
    before, now = request["before"], read_packages()
    names = set(request["packages"])
    sources = {rows[name]["source"] for rows in (before, now) for name in names if name in rows}
    back = {
        name: row["version"]
        for name, row in before.items()
        if row["source"] in sources and now.get(name, {}).get("version") != row["version"]
    }
    there = set(request["there"])
    gone = {name for name, row in now.items() if name not in there and row["source"] in sources}
    gone |= (set(request["along"]) - there) & set(now)
    problems = []
    if back or gone:
        release_locks()
        # The stream is that of the driver which failed, and hides the former one; a later run enables its own.
        steps = ["remove %s" % name for name in sorted(gone)]
        steps += ["install %s" % spec("%s=%s" % pair) for pair in sorted(back.items())]
        status, text = dnf(
            "-y",
            "--allowerasing",
            "--setopt=*.module_hotfixes=1",
            "shell",
            text="\n".join([*steps, "run", ""]),
            without_locks=True,
        )
        then = read_packages()
        wrong = {name for name, version in back.items() if then.get(name, {}).get("version") != version}
        wrong |= {name for name in gone if name in then}
        if wrong:
            problems.append("%s (dnf ended with %d: %s)" % (", ".join(sorted(wrong)), status, tail(text, 6)))
    return {
        "log": log,
        "lines": lines,
        "restored": back,
        "purged": sorted(gone),
        "problems": problems,
        "is_changed": bool(back or gone),
        "audit": "",
    }


def release_locks():
    """Take the plays' own block out of the version locks; the next run writes it again."""
    path = os.path.join(ROOT, LOCKS)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return False
    rest = re.sub(r"%s\n.*?%s\n" % (BEGIN, END), "", text, flags=re.DOTALL)
    if rest != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(rest)
    return rest != text


def release(request):
    """Let go of what the repositories left: locks, the module's stream, keys that rpm trusts, the cache."""
    changed = release_locks()
    if request.get("stream"):
        dnf("-y", "module", "reset", MODULE)
        changed = True
    for fingerprint in request.get("keys") or ():
        # rpm names a key by the last eight digits of its fingerprint.
        listed = run("rpm", "-qa", "gpg-pubkey*")[1].splitlines()
        for name in [line for line in listed if fingerprint[-8:].lower() in line]:
            changed = run("rpm", "-e", "--allmatches", name)[0] == 0 or changed
    run("dnf", "clean", "all")
    return {"problems": [], "is_changed": changed}


ACTIONS = {"install": install, "refresh": refresh, "release": release, "remove": remove, "restore": restore}


if __name__ == "__main__":
    document = json.load(sys.stdin)
    json.dump(ACTIONS[document["action"]](document), sys.stdout, sort_keys=True)
