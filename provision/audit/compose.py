"""Compose files: services with the images or Dockerfiles they run, their variables and the GPUs they reserve."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from provision.audit.dockerfile import parse_dockerfile
from provision.audit.model import Base, Environment, Options, Source, Variable
from provision.audit.places import Placed, read_yaml
from provision.audit.requirements_file import Reader
from provision.audit.shell import Part, Text
from provision.errors import UsageError
from provision.matrix.query import split_reference
from provision.records import replace

_OVERLAYS = ("gpu", "nvidia", "cuda", "override")
_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+?])([^{}$]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")


def parse_compose(source: Source, read: Reader, options: Options) -> tuple[list[Environment], list[Source]]:
    """Return the services of a compose file, and the stages of the Dockerfiles that they build.

    Args:
        source: Its text.
        read: Finds the Dockerfiles it names and what these copy.
        options: ``--build-arg`` stands before the arguments of the file.

    Returns:
        The environments, and the Dockerfiles that were read.

    Raises:
        UsageError: It is not YAML, has no services, or a Dockerfile is malformed.
    """
    placed = read_yaml(source)
    services = placed.data.get("services") if isinstance(placed.data, dict) else None
    if not isinstance(services, dict):
        raise UsageError(f"{source.file} is not a compose file", because=("it has no table called `services`",))
    environments: list[Environment] = []
    read_files: dict[str, Source] = {}
    for name, service in services.items():
        if not isinstance(service, dict):
            continue
        made = _service(placed, name, service)
        if made.gpus is None and (reserved := _overlaid(source, name, read)) is not None:
            made = replace(made, gpus=reserved)
        build = service.get("build")
        if build is not None:
            below: Base | None = None
            found = _dockerfile(placed, name, build, read)
            if found is not None:
                dockerfile, context, arguments, target = found
                if dockerfile.file != source.file:
                    read_files[dockerfile.file] = dockerfile
                stages = parse_dockerfile(
                    dockerfile,
                    read,
                    build_args={**arguments, **options.build_args},
                    target=options.target or target,
                    context=context,
                ).stages
                environments += [
                    replace(stage, gpus=made.gpus, runtime=made.runtime, platform=stage.platform or made.platform)
                    if stage.is_target
                    else stage
                    for stage in stages
                ]
                below = next((stage.base for stage in stages if stage.is_target), None)
            # What it stands on counts for what a service asks for; the stage itself is judged for the rest.
            made = replace(made, base=below, own_base=False)
        environments.append(made)
    return environments, list(read_files.values())


def _service(placed: Placed, name: str, service: dict[str, Any]) -> Environment:
    path = ("services", name)
    base = None
    image = service.get("image")
    if isinstance(image, str):
        span = placed.text(*path, "image").span(placed.source.file, 0, len(image))
        reference = _resolved(image)
        if reference is None:
            base = Base(reference=None, repository=None, span=span, is_literal=False)
        else:
            repository, tag, digest = split_reference(reference)
            is_literal = reference == image and placed.text(*path, "image").is_in_place(0, len(image))
            base = Base(
                reference=reference,
                repository=repository,
                tag=tag,
                digest=digest,
                span=span,
                tag_span=None,
                is_literal=is_literal,
            )
    platform, profiles = service.get("platform"), service.get("profiles")
    return Environment(
        kind="service",
        file=placed.source.file,
        name=name,
        span=placed.span(*path),
        base=base,
        own_base=base is not None,
        variables=_variables(placed, path, service.get("environment")),
        own_variables=tuple(_variables(placed, path, service.get("environment")).values()),
        platform=platform if isinstance(platform, str) else None,
        gpus=_gpus(service),
        runtime=str(service.get("runtime") or ""),
        profiles=tuple(str(item) for item in profiles) if isinstance(profiles, list) else (),
    )


def _variables(placed: Placed, path: tuple[str, ...], listed: object) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    if isinstance(listed, dict):
        for name, value in listed.items():
            span = placed.span(*path, "environment", name)
            known = _resolved(value) if isinstance(value, str) else None if value is None else str(value)
            found[name] = Variable(name=name, value=known, kind="env", span=span, name_span=span)
    elif isinstance(listed, list):
        for number, item in enumerate(listed):
            if isinstance(item, str):
                name, equals, value = item.partition("=")
                span = placed.span(*path, "environment", number)
                known = _resolved(value) if equals else None
                found[name] = Variable(name=name, value=known, kind="env", span=span, name_span=span)
    return found


def _resolved(text: str) -> str | None:
    """Return a value with its variables replaced by their defaults; ``None`` where one has none."""
    parts = _kept_parts(text)
    return None if parts is None else "".join(text[start:end] for start, end in parts)


def _kept_parts(text: str) -> list[tuple[int, int]] | None:
    """Return the pieces of a value that are left when its variables have their defaults, as offsets."""
    parts, position = [], 0
    for match in _VARIABLE.finditer(text):
        parts.append((position, match.start()))
        if match[0] == "$$":
            parts.append((match.end() - 1, match.end()))
        elif match[2] in ("-", ":-"):
            parts.append(match.span(3))
        else:
            return None
        position = match.end()
    return None if "$" in text[position:] else [*parts, (position, len(text))]


def _inline(placed: Placed, path: tuple[str, ...]) -> Source | None:
    """Return the Dockerfile that stands inside a compose file; ``None`` where a variable of it has no value."""
    written = placed.text(*path)
    parts = _kept_parts(written.text)
    if parts is None:
        return None
    text = "".join(written.text[start:end] for start, end in parts)
    at = [offset for start, end in parts for offset in written.at[start:end]]
    return Part(placed.source, Text(text, at)) if at and min(at) >= 0 else None


def _overlaid(source: Source, name: str, read: Reader) -> str | None:
    """Return how many GPUs a file beside this one, to be laid over it, reserves for a service: ``compose.gpu.yaml``."""
    stem, dot, suffix = source.file.rpartition(".")
    for word in _OVERLAYS:
        for mark in (".", "-"):
            other = read(f"{stem}{mark}{word}{dot}{suffix}")
            if other is None or other.file == source.file:
                continue
            try:
                data = read_yaml(other).data
            except UsageError:
                continue
            services = data.get("services") if isinstance(data, dict) else None
            service = services.get(name) if isinstance(services, dict) else None
            if isinstance(service, dict) and (found := _gpus(service) or service.get("runtime")):
                return str(found)
    return None


def _gpus(service: dict[str, Any]) -> str | None:
    """Return how many GPUs a service reserves, ``None`` for none."""
    plain = service.get("gpus")
    if isinstance(plain, str):
        return plain
    devices: Any = plain if isinstance(plain, list) else service
    if devices is service:
        for key in ("deploy", "resources", "reservations", "devices"):
            devices = devices.get(key) if isinstance(devices, dict) else None
    for device in devices if isinstance(devices, list) else []:
        if not isinstance(device, dict):
            continue
        capabilities = device.get("capabilities")
        is_gpu = isinstance(capabilities, list) and any(item in ("gpu", "nvidia") for item in capabilities)
        if is_gpu or device.get("driver") == "nvidia":
            if isinstance(device.get("device_ids"), list):
                return str(len(device["device_ids"]))
            return str(device.get("count") or "all")
    return None


def _dockerfile(
    placed: Placed, service: str, build: object, read: Reader
) -> tuple[Source, str, dict[str, str | None], str] | None:
    """Return the Dockerfile of a service, its context, its arguments and its target; ``None`` where it is not here."""
    table = build if isinstance(build, dict) else {"context": build}
    context = _resolved(str(table.get("context") or "."))
    if context is None or "://" in context or context.startswith("git@"):
        return None
    folder = posixpath.normpath(posixpath.join(placed.source.file.rpartition("/")[0], context))
    folder = "" if folder == "." else folder
    if isinstance(table.get("dockerfile_inline"), str):
        found = _inline(placed, ("services", service, "build", "dockerfile_inline"))
    else:
        name = _resolved(str(table.get("dockerfile") or "Dockerfile"))
        found = read(posixpath.normpath(posixpath.join(folder, name))) if name is not None else None
    if found is None:
        return None
    arguments: dict[str, str | None] = {}
    listed = table.get("args")
    pairs = list(listed.items()) if isinstance(listed, dict) else []
    for item in listed if isinstance(listed, list) else []:
        key, equals, value = str(item).partition("=")
        pairs.append((key, value if equals else None))
    for key, value in pairs:
        # What comes from outside stands before the default of the Dockerfile, so it is unknown and not that default.
        arguments[str(key)] = _resolved(value) if isinstance(value, str) else str(value) if type(value) is int else None
    target = table.get("target")
    return found, folder, arguments, (_resolved(target) or "") if isinstance(target, str) else ""
