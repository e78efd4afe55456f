"""What a person writes for a machine, read by a grammar that lets nothing through to a shell or a program's flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.errors import UsageError, shown
from provision.records import NOTHING, record

FORMS = (
    "local",
    "HOST or USER@HOST (over ssh)",
    "ssh://[USER@]HOST[:PORT]",
    "docker://CONTAINER",
    "podman://CONTAINER",
    "image://NAME[:TAG]",
    "kubectl://[NAMESPACE/]POD[/CONTAINER][?context=NAME]",
)
"""What a target can be written as."""

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._+-]{0,62}[A-Za-z0-9_])?")
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_IMAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:@-]{0,510}[A-Za-z0-9])?")
_KUBERNETES = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_CONTEXT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/@-]{0,251}[A-Za-z0-9])?")
_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_BUNDLE_ENDS = (".tar.gz", ".tgz", ".tar")


@record
class Target:
    """One thing to look at.

    Attributes:
        name: As the person named it; results are filed under it.
        kind: ``local``, ``ssh``, ``docker``, ``podman``, ``image`` or ``kubectl``; ``slurm`` or ``ray`` for a node that
            these reach.
        host: Name or address; for ssh and Slurm. IPv6 stands without brackets.
        port: Port of ssh; absent for what the configuration says.
        user: User of ssh; empty for what the configuration says.
        identity: File of the private key; empty for what the configuration says.
        config: ssh configuration to read instead of the user's own.
        jump: Hosts to go through, comma between them, as ``ssh -J`` takes them.
        container: Container to enter; for Kubernetes the one of the pod.
        image: Image to start.
        pod: Pod to enter.
        namespace: Namespace of the pod; empty for the current one.
        context: Context of the Kubernetes configuration; empty for the current one.
        engine: What starts an image, ``docker`` or ``podman``; empty for the first that is there.
        has_gpus: Whether a started image gets the GPUs; absent for "where the engine offers them".
        expect: What an inventory says this host must have.
    """

    name: str
    kind: str
    host: str = ""
    port: int | None = None
    user: str = ""
    identity: str = ""
    config: str = ""
    jump: str = ""
    container: str = ""
    image: str = ""
    pod: str = ""
    namespace: str = ""
    context: str = ""
    engine: str = ""
    has_gpus: bool | None = None
    expect: Mapping[str, Any] = NOTHING


LOCAL = Target(name="local", kind="local")
"""The machine this program runs on."""


def parse_target(text: str) -> Target:
    """Read one target.

    Args:
        text: One of :data:`FORMS`.

    Raises:
        UsageError: It has none of these forms, or holds a character that no name has.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _parse_bare(text)
    if scheme not in _SCHEMES:
        raise _refuse(text, f"`{shown(scheme)}://` is not known", _forms())
    return _SCHEMES[scheme](text, rest)


def parse_jump(text: str) -> str:
    """Check hosts to go through, ``[USER@]HOST[:PORT]`` with commas between them, and return them as ssh takes them.

    Raises:
        UsageError: One of them is not a host.
    """
    for hop in text.split(","):
        _parse_host(text, hop, hint="write it as in `--jump admin@gate.example:2222`")
    return text


def _parse_bare(text: str) -> Target:
    if text in ("local", "localhost"):
        return Target(name=text, kind="local")
    if text.endswith(_BUNDLE_ENDS) or text.startswith((".", "/", "~")):
        raise _refuse(text, "it looks like a file", f"a bundle is read with `--from {shown(text)}`")
    if text.startswith("["):
        user, host, port = _parse_host(text, text)
    else:
        _, at, host_part = text.rpartition("@")
        if ":" in host_part and not host_part.startswith("["):
            if host_part.count(":") > 1:
                raise _refuse(
                    text, "an IPv6 address needs brackets", f"write `{text[: len(text) - len(host_part)]}[{host_part}]`"
                )
            raise _refuse(text, "a port needs the long form", f"write `ssh://{shown(text)}`")
        if "/" in text:
            raise _refuse(text, "no host name holds a slash", _forms())
        del at
        user, host, port = _parse_host(text, text)
    return Target(name=text, kind="ssh", host=host, user=user, port=port)


def _parse_ssh(text: str, rest: str) -> Target:
    user, host, port = _parse_host(text, rest.removesuffix("/"))
    return Target(name=text, kind="ssh", host=host, user=user, port=port)


def _parse_host(
    text: str, part: str, hint: str = "write it as in `ssh://admin@node1.example:22`"
) -> tuple[str, str, int | None]:
    user, at, rest = part.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _refuse(text, f"`{shown(user)}` is not a user name", hint)
    port: int | None = None
    if rest.startswith("["):
        host, closed, tail = rest[1:].partition("]")
        if not closed or not _is_ipv6(host):
            raise _refuse(text, "what is in brackets is not an IPv6 address", "write it as in `ssh://[fe80::1]:22`")
        if tail and not tail.startswith(":"):
            raise _refuse(text, "after the brackets only a port can follow", hint)
        digits = tail[1:] if tail else None
    else:
        host, colon, digits_text = rest.partition(":")
        digits = digits_text if colon else None
        if not _HOST.fullmatch(host) or ".." in host:
            raise _refuse(text, f"`{shown(host)}` is not a host name" if host else "it names no host", hint)
    if digits is not None:
        if not re.fullmatch(r"[0-9]{1,5}", digits) or not 0 < int(digits) < 65536:
            raise _refuse(text, f"`{shown(digits)}` is not a port", hint)
        port = int(digits)
    return user, host, port


def _is_ipv6(text: str) -> bool:
    from ipaddress import IPv6Address

    address, percent, zone = text.partition("%")
    if percent and not _ZONE.fullmatch(zone):
        return False
    try:
        IPv6Address(address)
    except ValueError:
        return False
    return True


def _parse_docker(text: str, rest: str) -> Target:
    return Target(name=text, kind="docker", container=_container(text, rest))


def _parse_podman(text: str, rest: str) -> Target:
    return Target(name=text, kind="podman", container=_container(text, rest))


def _container(text: str, rest: str) -> str:
    if not _CONTAINER.fullmatch(rest):
        raise _refuse(text, f"`{shown(rest)}` is not a container's name or id", "`docker ps` lists them")
    return rest


def _parse_image(text: str, rest: str) -> Target:
    if not _IMAGE.fullmatch(rest) or "//" in rest:
        raise _refuse(
            text, f"`{shown(rest)}` is not an image name", "write it as in `image://registry.example/team/name:1.0`"
        )
    return Target(name=text, kind="image", image=rest)


def _parse_kubectl(text: str, rest: str) -> Target:
    path, question, query = rest.partition("?")
    settings: dict[str, str] = {}
    for pair in query.split("&") if question else ():
        key, _, value = pair.partition("=")
        if key not in ("context", "namespace", "container") or key in settings:
            raise _refuse(text, f"`{shown(pair)}` is not known", "after `?` stand context=, namespace=, container=")
        settings[key] = value
    context = settings.pop("context", "")
    if (context and not _CONTEXT.fullmatch(context)) or ("context=" in query and not context):
        raise _refuse(text, f"`{shown(context)}` is not a context", "`kubectl config get-contexts` lists them")
    parts = path.split("/")
    if not 1 <= len(parts) <= 3:
        raise _refuse(text, "it has too many parts", "write it as in `kubectl://namespace/pod/container`")
    if len(parts) > 1:
        settings.setdefault("namespace", parts.pop(0))
    pod = parts.pop(0)
    if parts:
        settings.setdefault("container", parts.pop(0))
    for what, value in (("pod", pod), *settings.items()):
        if not _KUBERNETES.fullmatch(value):
            raise _refuse(
                text, f"`{shown(value)}` is not a valid {what}", "write it as in `kubectl://namespace/pod/container`"
            )
    return Target(name=text, kind="kubectl", pod=pod, context=context, **settings)  # type: ignore[arg-type]


_SCHEMES = {
    "ssh": _parse_ssh,
    "docker": _parse_docker,
    "podman": _parse_podman,
    "image": _parse_image,
    "kubectl": _parse_kubectl,
}


def _forms() -> str:
    return f"a target is {', '.join(FORMS)}"


def _refuse(text: str, why: str, hint: str) -> UsageError:
    return UsageError(f"`{shown(text)}` is not a target", because=(why,), hints=(hint,))
