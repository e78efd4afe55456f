"""``provision node lock``: the request becomes the variables of the playbooks.

The lock goes into a file as a whole or not at all. With --check nothing is written: the file must be what would be.
"""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.request import FLAG_HELP, read_matrix, read_request, refuse
from provision.errors import DriftError, MissingDependencyError, ProvisionError, UnknownError, UsageError
from provision.files import read_text
from provision.generate.node import node_lock, render_node_lock
from provision.records import replace
from provision.resolve.node import solve_node
from provision.resolve.node_options import (
    FLAVOURS,
    INCLUDES,
    METHODS,
    PROFILES,
    NodeOptions,
    node_flags,
    parse_node_options,
)
from provision.resolve.request import Request, to_flags
from provision.resolve.stack import BaseImage, ImagePart, Refusal, Stack

DEFAULT_LOCK = Path("provision_lock.yml")

_COMMAND = "node lock"
_LOCK_BYTES_MAX = 16 * 1024 * 1024
_DIFF_LINES_SHOWN = 12
_REQUEST_FLAGS = ("torch", "tensorflow", "jax", "cuda", "python", "driver", "container-toolkit")


def configure_lock(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``provision node lock``."""
    group = parser.add_argument_group("request (whatever is not given is chosen)")
    for name in _REQUEST_FLAGS:
        metavar, text = FLAG_HELP[name]
        add_value(group, f"--{name}", metavar, _HELP.get(name, text))
    add_value(group, "--gpu", "NAME", "GPU in the nodes; may be repeated", action="append")
    add_switch(group, "--require-secure", "refuse drivers and toolkits with known vulnerabilities")
    nodes = parser.add_argument_group("nodes")
    add_value(nodes, "--os", "NAME", "operating system of the nodes; may be repeated", action="append")
    for flag, choices, text in (
        ("--method", METHODS, "installation method of the driver"),
        ("--flavour", FLAVOURS, "flavour of the kernel module; auto depends on the GPU"),
        ("--profile", PROFILES, "driver components: compute only, or with display"),
    ):
        add_choice(nodes, flag, choices, help=text)
    add_value(nodes, "--toolkit", "VERSION", "CUDA toolkit to install (12.1); may be repeated", action="append")
    add_value(
        nodes, "--include", "NAME,…", f"also install: {', '.join(INCLUDES)}, or none; may be repeated", action="append"
    )
    out = parser.add_argument_group("output")
    add_value(
        out,
        "--output",
        "FILE",
        f"file for the lock (default: {DEFAULT_LOCK}; - is stdout)",
        parse_path,
        short="-o",
        dest="file",
    )
    add_value(out, "--stack", "FILE", "also write a provision.lock, for verify and doctor", parse_path)
    add_switch(out, "--fetch-hashes", "fetch hashes that are missing from the facts from the package index")
    add_value(out, "--index-url", "URL", "package index for --fetch-hashes", _index_url)
    add_switch(out, "--check", "write nothing; exit with 8 if a file differs")


_HELP = {
    "driver": "driver branch (580) or exact version (`535.261.03`); `host` reads it from this machine",
    "container-toolkit": "version of the NVIDIA container toolkit, with --include container-toolkit",
    "python": "Python that the operating system must provide",
}


def run_lock(options: argparse.Namespace, output: Output) -> int:
    """Solve the request for nodes and write it down.

    Raises:
        IncompatibleError: The facts exclude it.
        UnknownError: The facts do not know it.
        DriftError: ``--check``, and the file is not what would be written.
    """
    matrix = read_matrix(options)
    values: dict[str, Any] = {name: getattr(options, name.replace("-", "_")) for name in (*_REQUEST_FLAGS, "gpu")}
    values["require-secure"] = options.require_secure or None
    values = {name: value for name, value in values.items() if value is not None}
    node = parse_node_options(
        {name: getattr(options, name) for name in ("os", "method", "flavour", "profile", "toolkit", "include")}
    )
    if options.fetch_hashes:
        node = replace(node, keeps_unverified=True)
    request = read_request(values, can_be_empty=bool(node_flags(node)))
    found = solve_node(request, node, matrix)
    if isinstance(found, Refusal):
        raise _refuse(found, request, node, options)
    if options.fetch_hashes:
        found = _fetch_hashes(found, options.index_url)
    output.note(f"facts of {found.facts_date}")
    for sentence in _warnings(found):
        output.warn(sentence)
    document = node_lock(found, matrix)
    files = {options.file or DEFAULT_LOCK: render_node_lock(found, matrix)}
    if options.stack is not None:
        files[options.stack] = found.to_lock()
    if options.check:
        _check(files)
        state = "is what would be written"
    elif str(options.file) == "-":
        state = None
        output.give({"node_lock": document}, files.pop(options.file).removesuffix("\n"))
    else:
        state = "would be written" if options.dry_run else "written"
    if not options.check:
        for path, text in files.items():
            output.save(path, text)
    if state is not None:
        names = [str(path) for path in files]
        output.give(
            {"files": names, "digest": document["digest"], "name": document["name"], "node_lock": document},
            "\n".join((_summary(found), f"{', '.join(names)} {state}")),
        )
        if not options.check and not options.dry_run:
            output.note(f"next: {_next_step(options.file or DEFAULT_LOCK)}")
    return 0


def _next_step(path: Path) -> str:
    """Return the commands that use a lock: one in an inventory needs no flag."""
    lock = shlex.quote(str(path))
    place = next((number for number, part in enumerate(path.parts) if part in ("group_vars", "host_vars")), None)
    if place is not None:
        return f"`provision node plan -i {shlex.quote(str(Path(*path.parts[:place])))}` shows what it would change"
    return (
        f"`provision node plan -i INVENTORY --lock {lock}` shows what it would change, "
        f"`provision node export --lock {lock} -o site` writes a site"
    )


def _refuse(refusal: Refusal, request: Request, node: NodeOptions, options: argparse.Namespace) -> ProvisionError:
    """Return the refusal, its commands writing to the files that were named."""
    others: list[str] = []
    for flag, value in (("-o", options.file), ("--stack", options.stack), ("--index-url", options.index_url)):
        others += [flag, str(value)] if value is not None else []
    error = refuse(refusal, _COMMAND, ("--fetch-hashes", *others) if options.fetch_hashes else others)
    if not options.fetch_hashes and any("--fetch-hashes" in reason.because for reason in refusal.because):
        flags = (*to_flags(replace(request, os=None)), *node_flags(node))
        words = shlex.join(("provision", *_COMMAND.split(), *flags, "--fetch-hashes", *others))
        error.hints += (f"`{words}` asks the index for them",)
    return error


def _index_url(text: str) -> str:
    if not text.isascii() or not text.isprintable() or not text.startswith("https://"):
        raise UsageError(
            "--index-url takes an https address", hints=("write it as in `https://mirror.example/simple`",)
        )
    return text


def _fetch_hashes(stack: Stack, index_url: str | None) -> Stack:
    """Return the stack with the hashes its indexes give.

    Raises:
        UnknownError: A wheel stays without one.
        MissingDependencyError: No index answers.
    """
    from provision.build.hashes import complete_hashes
    from provision.index.address import known_index

    if stack.node is None:
        return stack
    profiles = []
    for profile in stack.node.profiles:
        frameworks = profile.frameworks
        if frameworks is None:
            profiles.append(profile)
            continue
        environments = []
        for environment in frameworks.environments:
            image = ImagePart(flavor="runtime", base=BaseImage(ref=profile.os), packages=environment.packages)
            one = replace(stack, python=frameworks.python, image=image, node=None)
            try:
                completed, left = complete_hashes(one, index_url=index_url, address=known_index())
            except MissingDependencyError as error:
                # The hints there speak of images, which may go without.
                hints = ("try again, or name another index with `--index-url URL`",)
                raise MissingDependencyError(error.message, because=error.because, hints=hints) from error
            packages = completed.image.packages if completed.image is not None else ()
            if any(package.sha256 is None for package in packages):
                raise UnknownError(
                    f"{profile.os}: some wheels have no hash, and nodes install nothing without",
                    because=left or ("their index gives none",),
                    hints=("ask for another build of the framework",),
                )
            environments.append(replace(environment, packages=packages))
        frameworks = replace(frameworks, environments=tuple(environments))
        profiles.append(replace(profile, frameworks=frameworks))
    return replace(stack, node=replace(stack.node, profiles=tuple(profiles)))


def _check(files: Mapping[Path, str]) -> None:
    reasons = []
    for path, text in files.items():
        if str(path) == "-":
            raise UsageError("--check compares files, not the standard output", hints=("name a file with `-o FILE`",))
        if not path.exists():
            reasons.append(f"{path} is missing")
            continue
        have = read_text(path, "-o", bytes_max=_LOCK_BYTES_MAX)
        if have == text:
            continue
        reasons.append(f"{path} differs")
        changed = [
            line
            for line in difflib.unified_diff(have.splitlines(), text.splitlines(), lineterm="", n=0)
            if line[:1] in "+-" and line[:3] not in ("+++", "---")
        ]
        reasons += changed[:_DIFF_LINES_SHOWN]
        if len(changed) > _DIFF_LINES_SHOWN:
            reasons.append(f"{len(changed) - _DIFF_LINES_SHOWN} more lines")
    if reasons:
        raise DriftError(
            "the lock is not what this request writes",
            because=reasons,
            hints=("run the same command without `--check` to write it again",),
        )


def _warnings(stack: Stack) -> Iterator[str]:
    """Yield what a person should know, systems with the same worry together."""
    yield from stack.warnings
    worries: dict[str, list[str]] = {}
    for profile in stack.node.profiles if stack.node else ():
        said = [*profile.warnings]
        if profile.refusal is not None:
            said.append(f"has no profile: {profile.refusal}")
        if profile.frameworks is not None and profile.frameworks.refusal is not None:
            said.append(f"gets no frameworks: {profile.frameworks.refusal}")
        for sentence in said:
            worries.setdefault(sentence, []).append(profile.os)
    for sentence, systems in worries.items():
        yield f"{', '.join(systems)}: {sentence}"


def _summary(stack: Stack) -> str:
    lines = []
    for profile in stack.node.profiles if stack.node else ():
        if profile.driver is None:
            lines.append(f"{profile.os}: nothing")
            continue
        flavours = " or ".join(flavour.name for flavour in profile.driver.flavours)
        parts = [f"driver {profile.driver.package_version} ({profile.method}, {flavours})"]
        parts += [f"CUDA {toolkit.version}" for toolkit in profile.toolkits]
        if profile.frameworks is not None:
            parts += [
                f"{name} {version} on Python {profile.frameworks.python}"
                for environment in profile.frameworks.environments
                for name, version in environment.versions.items()
            ]
        lines.append(f"{profile.os}: {', '.join(parts)}")
    return "\n".join(lines)
