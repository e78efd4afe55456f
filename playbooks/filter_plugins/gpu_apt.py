"""Filters that read what apt says: which transaction it would make, what is wrong with it, and why a command failed.

They run on the controller, so that one remote execution brings the text and none is spent on judging it.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

_FAMILY = re.compile(
    r"nvidia|cuda|cudnn|nvml|nvcuvid|nvoptix|nccl|datacenter-gpu-manager|(^|-)dcgm|^libnv(?!me|pair)|"
    r"^lib(cublas|cufft|curand|cusolver|cusparse|cufile|npp|nvjpeg|nvjitlink|nvfatbin|nvrtc)|^(collectx|nsight|gdrcopy)"
)
"""Names of packages that belong to the software this project installs, whatever their release."""

_ACTION = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+)[^)]*\))?", re.MULTILINE)
_LOCK = re.compile(r"[Cc]ould not (?:get lock|open lock file)|Unable to (?:acquire|lock)|is another process using it")
_HOLDER = re.compile(r"held by process (\d+)(?: \(([^)]*)\))?")
_NETWORK = re.compile(
    r"Could not (?:connect|resolve)|Temporary failure|Connection (?:failed|timed out|refused|reset)|Unable to connect|"
    r"Network is unreachable|No route to host|Failed to fetch|Some index files failed|Mirror sync in progress|"
    r"Hash Sum mismatch|File has unexpected size|Clearsigned file isn't valid|5\d\d  "
)
_KEY = re.compile(
    r"NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|KEYEXPIRED|is not signed|couldn't be verified|public key is not available|"
    r"Sub-process .*sqv|signature verification"
)
_GONE = re.compile(r"Failed to fetch \S*/([^/\s]+)\.deb\s+(?:404 |410 |File not found)")
"""A file that the lists name and the archive no longer has."""
_HASH = re.compile(r"Hash Sum mismatch|unexpected size|Filesize mismatch")
_FAILED = re.compile(
    r"Failed to fetch|Some index files failed|GPG error|Release file|not signed|no longer signed|previous index files"
)
"""What makes a warning a failure; others, of keys and algorithms that will be refused one day, leave fresh lists."""
_SPACE = re.compile(r"No space left on device|don't have enough free space")
_VERSION_MISSING = re.compile(r"^E: Version '([^']*)' for '([^']*)' was not found", re.MULTILINE)
_NAME_MISSING = re.compile(
    r"^E: (?:Unable to locate package (\S+)|Package '([^']*)' has no installation candidate|"
    r"Couldn't find any package by (?:glob|regex) '([^']*)')",
    re.MULTILINE,
)
_KEPT_OUT = 75
"""What ``node.py`` of gpu_facts ends with where the node is another run's."""
_TAIL_LINES = 12


def is_gpu_package(name: str, source: str = "") -> bool:
    """Tell whether a package belongs to the GPU software, by its own name or its source's.

    Args:
        name: Binary package.
        source: Its source package, where known.

    Returns:
        Whether one of the names is NVIDIA's.
    """
    return bool(_FAMILY.search(name) or (source and _FAMILY.search(source)))


def gpu_apt_plan(text: str) -> dict[str, list[dict[str, Any]]]:
    """Read the transaction out of ``apt-get --simulate``.

    Args:
        text: Its standard output, in the C locale.

    Returns:
        ``install`` and ``remove``, each a list of ``name``, ``old`` and ``new`` in apt's order.
    """
    plan: dict[str, list[dict[str, Any]]] = {"install": [], "remove": []}
    seen = set()
    for action, name, old, new in _ACTION.findall(text or ""):
        if (action, name) in seen:
            continue
        seen.add((action, name))
        kind = "install" if action == "Inst" else "remove"
        plan[kind].append({"name": name.split(":")[0], "old": old or None, "new": new or None})
    return plan


def gpu_apt_offers(text: str) -> dict[str, list[str]]:
    """Read what the archive offers out of ``apt-cache madison``.

    Args:
        text: Its standard output.

    Returns:
        Package → versions, in apt's order, each once.
    """
    offers: dict[str, list[str]] = {}
    for line in (text or "").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and cells[0] and cells[1] and cells[1] not in offers.setdefault(cells[0], []):
            offers[cells[0]].append(cells[1])
    return offers


def gpu_apt_missing(result: dict[str, Any]) -> list[str]:
    """Name the packages for which apt found no candidate.

    Args:
        result: Result of the command with ``apt-get --simulate``; of one that was not run it is empty.

    Returns:
        Names, sorted.
    """
    text = _text(result)
    found = {name for _, name in _VERSION_MISSING.findall(text)}
    found.update(name for names in _NAME_MISSING.findall(text) for name in names if name)
    return sorted(found)


def gpu_apt_plan_problems(
    result: dict[str, Any],
    wanted: list[dict[str, Any]],
    offers: dict[str, list[str]],
    host: dict[str, Any],
    may_downgrade: bool = False,
    removable: list[str] | None = None,
    may_change_held: bool = False,
    untouched: str = "",
) -> list[str]:
    """Say why a simulated transaction must not be made.

    Args:
        result: Result of the command with ``apt-get --simulate``.
        wanted: The packages asked for, with ``name`` and ``version``.
        offers: Package → versions that the archive offers.
        host: ``gpu_facts_host``.
        may_downgrade: Whether versions may go back.
        removable: Further packages that may be removed.
        may_change_held: Whether packages that somebody holds may change too.
        untouched: Pattern of names that are gpu_driver's and may neither come nor go; empty for none.

    Returns:
        A sentence a problem with its way out; empty where the transaction is fine.
    """
    text = "{}\n{}".format(result.get("stdout", ""), result.get("stderr", ""))
    versions = {item["name"]: item.get("version") for item in wanted}
    problems = []
    for name in gpu_apt_missing(result):
        bare = name.split(":")[0].split("=")[0]
        have = ", ".join(offers.get(bare, [])) or "nothing of that name"
        problems.append(
            "{} {} is in none of this node's repositories, which offer: {}. Lock again against today's archive "
            "(`provision node lock`), or give the node a repository that still has it (`gpu_repos_mirror`, "
            "`gpu_repos_offline`)".format(bare, versions.get(bare) or "(any version)", have)
        )
    if problems:
        return problems
    if result.get("rc", 0) != 0:
        return [gpu_apt_explain(result)]
    installed = host.get("packages", {})
    holds = set() if may_change_held else set(host.get("holds", []))
    plan = gpu_apt_plan(text)
    allowed = set(removable or [])
    for item in plan["remove"]:
        name = item["name"]
        source = installed.get(name, {}).get("source", "")
        if name not in versions and name not in allowed and not is_gpu_package(name, source):
            problems.append(
                "apt would remove {} {}, which is not part of the GPU software: see `apt-get -s install` on the node, "
                "and remove or update what conflicts with it first".format(name, item["old"] or "")
            )
        if name in holds:
            problems.append(f"{name} is held (`apt-mark showhold`) and would be removed: `apt-mark unhold {name}`")
    foreign = {item["name"] for item in plan["install"] + plan["remove"] if re.match(untouched or "(?!)", item["name"])}
    if foreign:
        problems.append(
            "{} would change, which belongs to gpu_driver alone. Let gpu_driver install its packages first (no "
            "`--tags cuda` on a bare node), or lock packages that bring no driver".format(", ".join(sorted(foreign)))
        )
    if not may_downgrade and "DOWNGRADED" in text:
        names = sorted(set(_downgraded(text)))
        problems.append(
            "apt would take back {} to an older version: use gpu-node-rollback.yml, or say "
            "`-e gpu_repos_allow_downgrade=true`".format(", ".join(names))
        )
    return problems + [
        f"{name} is held (`apt-mark showhold`) and would change: `apt-mark unhold {name}`"
        for name in sorted(holds & {item["name"] for item in plan["install"]})
    ]


def gpu_along(
    parts: list[dict[str, Any]], host: dict[str, Any], run_tags: list[str], skip_tags: list[str]
) -> list[dict[str, Any]]:
    """Return the packages of the roles that this run lets through and that the node lacks whole.

    What changes a version is its own role's, with all that it asks before. A run of single roles' tags fetched nothing
    beforehand, so there nothing comes along.

    Args:
        parts: Of each role its ``tags`` and its ``packages``.
        host: ``gpu_facts_host``.
        run_tags: ``ansible_run_tags``.
        skip_tags: ``ansible_skip_tags``.
    """
    run, skip = set(run_tags), set(skip_tags)
    return [
        package
        for part in parts
        if run & ({"all", "packages"} & {"all", *part["tags"]}) and not skip & {"all", "tagged", *part["tags"]}
        if not any(package["name"] in host["packages"] for package in part["packages"])
        for package in part["packages"]
    ]


def _downgraded(text: str) -> list[str]:
    names: list[str] = []
    is_inside = False
    for line in text.splitlines():
        if line.startswith("The following packages will be DOWNGRADED"):
            is_inside = True
        elif is_inside and line.startswith("  "):
            names += line.split()
        else:
            is_inside = False
    return names


def gpu_apt_is_worth_retrying(result: dict[str, Any], lock_seconds: int, tries: int, delay: int) -> bool:
    """Tell whether the same apt command may succeed a little later.

    Args:
        result: Registered result of the attempt, with ``attempts``.
        lock_seconds: How long to wait for another program's lock.
        tries: Attempts on errors of the network.
        delay: Seconds between attempts.

    Returns:
        False where it succeeded, or where waiting cannot help.
    """
    text = _text(result)
    attempts = int(result.get("attempts", 1))
    if not _is_failed(result, text):
        return False
    if _LOCK.search(text):
        return attempts * delay < lock_seconds
    if _KEY.search(text) or _SPACE.search(text) or "File not found" in text or _gone(text):
        return False
    return bool(_NETWORK.search(text)) and attempts < tries


def _is_failed(result: dict[str, Any], text: str) -> bool:
    return (
        bool(result.get("failed"))
        or int(result.get("rc", 0) or 0) != 0
        or bool(re.search(r"^[WE]: ", text, re.MULTILINE))
    )


def _text(result: dict[str, Any]) -> str:
    """Return what a result says: messages of errors first, since standard output may be long."""
    return "\n".join(str(result.get(key) or "") for key in ("stderr", "stdout", "msg", "module_stderr"))


def gpu_apt_update_problems(result: dict[str, Any], uris: list[str]) -> list[str]:
    """Say which repositories ``apt-get update`` could not read.

    Args:
        result: Result of the command.
        uris: Addresses of the repositories this node gets its GPU software from. apt only warns when a repository
            fails and goes on with old lists; for these a warning is a failure.

    Returns:
        A sentence for each repository with its way out; empty where all is well.
    """
    text = _text(result)
    problems = []
    if _LOCK.search(text):
        return [gpu_apt_explain(result)]
    lines = [line for line in text.splitlines() if re.match(r"(E|Err):", line) or _is_failure(line)]
    for uri in dict.fromkeys(uris):
        bare = re.sub(r"^[a-z+]+:(//)?", "", uri).rstrip("/")
        about = [line for line in lines if bare and bare in line]
        if not about:
            continue
        said = "\n".join(about)
        said_best = next((line for line in about if line.startswith(("W:", "E:"))), about[-1])
        if uri.startswith("file:") and "File not found" in said:
            way = "this folder on the node holds no packages with their index, `Packages`: check `gpu_repos_offline`"
        elif _HASH.search(said):
            way = "its files do not match what it signed: the mirror is being updated or was tampered with"
        elif _KEY.search(said):
            way = "it is not signed by the key this node has for it: check `gpu_repos_keys` and the lock's fingerprint"
        elif re.search(r" 40[134] |does not have a Release file|no longer has a Release file", said):
            way = "it does not hold this release or component: check `gpu_repos_mirror` and the lock"
        else:
            way = "it cannot be reached: check the network, `gpu_repos_proxy`, `gpu_repos_ca` and `gpu_repos_mirror`"
        problems.append(
            "repository {}: {}. apt says: {}".format(uri, way, re.sub(r"^(W|E|Err):\s*\d*\s*", "", said_best))
        )
    if not problems and int(result.get("rc", 0) or 0) != 0:
        problems.append(gpu_apt_explain(result))
    return problems


def _is_failure(line: str) -> bool:
    return line.startswith("W:") and any(pattern.search(line) for pattern in (_FAILED, _NETWORK, _KEY, _HASH))


def gpu_apt_fetch_problems(result: dict[str, Any]) -> list[str]:
    """Say why packages could not be fetched.

    Args:
        result: Result of ``apt-get --download-only install``.

    Returns:
        One sentence with its way out. Empty where all was fetched, and where apt refused the set as such: that is for
        the role to tell whose set it is.
    """
    text = _text(result)
    is_of_fetching = any(pattern.search(text) for pattern in (_LOCK, _SPACE, _HASH, _NETWORK))
    return [gpu_apt_explain(result)] if result.get("rc") and is_of_fetching else []


def _gone(text: str) -> list[str]:
    """Return name and version of the packages that the archive no longer has; none where something else failed too."""
    failed = len(set(re.findall(r"Failed to fetch (\S+)", text)))
    files = dict.fromkeys(_GONE.findall(text))
    if not files or len(files) < failed:
        return []
    return [" ".join(unquote(name).split("_")[:2]) for name in files]


def gpu_apt_explain(result: dict[str, Any]) -> str:
    """Say in one message why an apt command failed.

    Args:
        result: Its registered result.

    Returns:
        The cause, a way out, and the last lines that apt printed.
    """
    text = _text(result)
    if result.get("rc") == _KEPT_OUT:
        return str(result.get("stderr") or "").strip()
    holder = _HOLDER.search(text)
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "dpkg: error", "Error!", "Err:"))]
    tail = "\n".join((errors or lines)[-_TAIL_LINES:])
    if _LOCK.search(text):
        who = (
            "process {}{}".format(holder.group(1), f" ({holder.group(2)})" if holder.group(2) else "") if holder else ""
        )
        return (
            "another program holds apt's lock{} and did not give it back in time. Let it end, or raise "
            "`gpu_repos_lock_timeout`; nothing was changed\n{}".format(": " + who if who else "", tail)
        )
    if _SPACE.search(text):
        return f"the disk of the node is full: make room and run this again\n{tail}"
    if _HASH.search(text):
        return (
            f"a downloaded package is not the one its repository signed: refused, nothing of it was installed\n{tail}"
        )
    if gone := _gone(text):
        return (
            f"{', '.join(gone)} is gone from the repository, which answers and whose lists still name it: a newer "
            "version took its place, or the mirror is incomplete. Lock again against today's archive (`provision node "
            "lock`), or give the node a repository that still has it (`gpu_repos_mirror`, `gpu_repos_offline`); "
            f"nothing was installed\n{tail}"
        )
    if _NETWORK.search(text):
        return f"a repository could not be reached: check the network, `gpu_repos_proxy` and `gpu_repos_mirror`\n{tail}"
    return f"apt failed\n{tail}"


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "gpu_along": gpu_along,
            "gpu_apt_explain": gpu_apt_explain,
            "gpu_apt_fetch_problems": gpu_apt_fetch_problems,
            "gpu_apt_is_worth_retrying": gpu_apt_is_worth_retrying,
            "gpu_apt_missing": gpu_apt_missing,
            "gpu_apt_offers": gpu_apt_offers,
            "gpu_apt_plan": gpu_apt_plan,
            "gpu_apt_plan_problems": gpu_apt_plan_problems,
            "gpu_apt_update_problems": gpu_apt_update_problems,
        }
