"""Take a failed driver installation back: say what the compiler said, and make the packages what they were.

Run by role gpu_driver on the node with a JSON document on standard input: ``before`` (package → version and source, as
it was), ``there`` (names of all that was there, in any state), ``packages`` (names of the set that failed), ``along``
(names that came along with it for others), ``modules`` (names DKMS has for the set), ``log_lines``, ``lock_seconds``.
Prints a JSON report. Python 3.8 and the standard library alone.
"""

import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.environ.get("PROVISION_ROOT", "/")
PREFERENCES = "etc/apt/preferences.d/provision-restored"
ARCHIVES = "var/cache/apt/archives"
COMPILER_ERROR = re.compile(r":\d+: (?:fatal )?error: ")
# What sources of drivers are called, of any branch.
DRIVERS = ("nvidia-graphics-drivers", "linux-restricted-modules")
# The command lines of a compiler are longer than what anyone reads.
LINE_CHARACTERS = 200
FORM = "${Package}\t${Version}\t${db:Status-Abbrev}\t${source:Package}\n"


def run(*argv):
    """Return (status, both outputs) of a command that never asks."""
    done = subprocess.run(
        argv,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"},
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def read_packages():
    """Return package → version, status and source of all that dpkg has anything of."""
    found = {}
    for line in run("dpkg-query", "-W", "-f", FORM)[1].splitlines():
        cells = line.split("\t")
        if len(cells) == 4 and cells[2][1:2] not in ("n", "c"):
            found[cells[0]] = {"version": cells[1], "status": cells[2].strip(), "source": cells[3]}
    return found


def read_log(modules, lines):
    """Return the path and the telling lines of the newest make.log of a build of the modules that failed.

    make goes on with other files after the first error, so that the last lines may hold none: then the first half of
    what is shown begins just before it.
    """
    logs = []
    for module in modules:
        folder = os.path.join(ROOT, "var/lib/dkms", glob.escape(module))
        logs += glob.glob(os.path.join(folder, "*", "**", "make.log"), recursive=True)
    # The log of a build that succeeded lies in a folder `log`, and has nothing to say of this failure; one that failed
    # stays where it was built until the next build there.
    failed = [path for path in logs if os.path.basename(os.path.dirname(path)) != "log"]
    newest = max(failed, key=os.path.getmtime, default=None)
    if newest is None:
        return None, []
    with open(newest, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    all_lines = text.splitlines()
    shown = all_lines[-lines:]
    first = next((number for number, line in enumerate(all_lines) if COMPILER_ERROR.search(line)), None)
    if first is not None and first < len(all_lines) - lines:
        half = lines // 2
        begin = max(0, first - half // 4)
        rest = lines - half - 1
        shown = [*all_lines[begin : begin + half], "…", *(all_lines[-rest:] if rest > 0 else [])]
    return newest, [line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "…" for line in shown]


def plan(before, now, names, along, there):
    """Return what to put back (package → version) and what to remove.

    Only packages from the sources that the failed set comes from are touched, drivers of another branch that it
    displaced, and what came along with it and was not there in any state: what other roles or people installed in the
    meantime stays.
    """
    sources = {rows[name]["source"] for rows in (before, now) for name in names if name in rows}
    back = {}
    for name, row in before.items():
        present = now.get(name)
        is_lost = present is None or present["status"][1:2] != "i"
        is_displaced = is_lost and names and row["source"].startswith(DRIVERS)
        if is_displaced or (row["source"] in sources and (is_lost or present["version"] != row["version"])):
            back[name] = row["version"]
    came = set(along) - set(there)
    # Where the driver did not fail itself, its own halves are to be finished.
    if names and along:
        came |= find_half(now, there)
    gone = {name for name, row in now.items() if name not in before and row["source"] in sources}
    return back, sorted(gone | (came & set(now)))


def find_half(now, there):
    """Return the packages that are neither properly installed nor were there before."""
    return {name for name, row in now.items() if name not in there and row["status"][1:2] in ("U", "F", "H")}


def finish_others(names, along, there):
    """Configure what came as a dependency and waits, since nothing of it failed: what was there may need it now."""
    now = read_packages()
    sources = {now[name]["source"] for name in names if name in now}
    waiting = sorted(name for name in find_half(now, there) if name not in along and now[name]["source"] not in sources)
    if waiting:
        run("dpkg", "--configure", *waiting)


def find_deb(name, version):
    """Return the downloaded package file, or None."""
    pattern = "%s_%s_*.deb" % (glob.escape(name), glob.escape(version.replace(":", "%3a")))
    found = sorted(glob.glob(os.path.join(ROOT, ARCHIVES, pattern)))
    return found[0] if found else None


def apt(lock_seconds, *words):
    options = ["-y", "-q", "--purge", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
    settings = []
    for setting in ("Dpkg::Options::=--force-confdef", "Dpkg::Options::=--force-confold"):
        settings += ["-o", setting]
    settings += ["-o", "DPkg::Lock::Timeout=%d" % lock_seconds]
    return run("apt-get", *options, *settings, *words)


def tail(text, lines=12):
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def pin(versions):
    """Keep what was restored, until the next attempt, above the preference for the version that failed."""
    path = os.path.join(ROOT, PREFERENCES)
    text = "# Managed by provision (role gpu_driver): what a failed installation went back to.\n"
    for name, version in sorted(versions.items()):
        text += "\nPackage: %s\nPin: version %s\nPin-Priority: 1002\n" % (name, version)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o644)


def restore(request):
    """Do it and return the report."""
    before, names, lock = request["before"], request["packages"], int(request["lock_seconds"])
    log, lines = read_log(request["modules"], int(request["log_lines"]))
    along, there = request["along"], request["there"]
    problems = []
    if names and along:
        finish_others(names, along, there)
    back, gone = plan(before, read_packages(), names, along, there)
    failed = set(gone)

    if back:
        removals = [name + "-" for name in gone]
        status, said = apt(lock, "install", *("%s=%s" % item for item in sorted(back.items())), *removals)
        debs = {name: find_deb(name, version) for name, version in back.items()}
        if status != 0 and all(debs.values()):
            # What the archive no longer offers may still lie in the cache.
            status, said = apt(lock, "install", *sorted(debs.values()), *removals)
        if status != 0:
            problems.append("the previous packages could not be put back: " + tail(said))
            # Better no driver than half of one: what is neither the old nor the new set goes.
            broken = {name for name, row in read_packages().items() if row["status"][1:2] != "i"}
            failed |= broken & (set(back) | set(names))
    present = read_packages()
    gone = sorted(name for name in failed if name in present)
    if gone:
        status, said = apt(lock, "purge", *gone)
        if status != 0:
            status, said = run("dpkg", "--purge", "--force-depends", *gone)
        if status != 0:
            problems.append("could not remove what failed: " + tail(said))
    status, said = run("dpkg", "--configure", "-a")
    if status != 0:
        problems.append("dpkg --configure -a: " + tail(said))

    # Dependencies that only the failed set brought.
    offered = set(re.findall(r"^Remv (\S+)", run("apt-get", "-s", "autoremove")[1], re.MULTILINE))
    orphans = sorted(name for name in {one.split(":")[0] for one in offered} if name not in before)
    if orphans:
        status, said = apt(lock, "purge", *orphans)
        if status != 0:
            problems.append("could not remove what the failed set brought along: " + tail(said))

    now = read_packages()
    kept = {
        name: row["version"] for name, row in before.items() if name in now and row["version"] == now[name]["version"]
    }
    restored = {name: version for name, version in kept.items() if name in back}
    sources = {row["source"] for name, row in before.items() if name in names or name in back}
    pinned = {name: version for name, version in kept.items() if before[name]["source"] in sources}
    if pinned:
        pin(pinned)
    return {
        "log": log,
        "lines": lines,
        "restored": restored,
        "missing": sorted(name for name in back if name not in restored),
        "purged": sorted({*failed, *orphans} - set(now)),
        "audit": run("dpkg", "--audit")[1].strip(),
        "problems": problems,
    }


if __name__ == "__main__":
    json.dump(restore(json.load(sys.stdin)), sys.stdout, sort_keys=True)
