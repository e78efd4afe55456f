"""What someone asked for, checked against a grammar before anything else sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from provision.errors import UsageError, without_secrets
from provision.records import fields_of, record, replace
from provision.resolve.requirements import normalise_name
from provision.versions import Spec, is_empty, is_prefix_of, parse, spec_of

FRAMEWORKS = ("torch", "tensorflow", "jax")
PLATFORMS = ("linux/amd64", "linux/arm64")
FLAVORS = ("runtime", "devel", "jit", "dev")

FILED = ("requirements", "constraints", "overrides", "excludes", "indexes", "sources")
"""Parts of a request that files bring, and no flag."""

FIND_LINKS = "find-links:"
"""What stands before the address of a page of links among the indexes of a request."""

CPU = "cpu"
"""The build without CUDA, as an option's variant and as the local part of a version."""

ANY = ">=0"
"""The wish for a framework of which any version will do."""

AUTO = "auto"
"""The wish for the archive of system packages as it was on the day of the facts."""

_VERSION = r"[0-9]+(\.[0-9]+){0,4}((a|b|rc|\.post|\.dev)[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
_SPECIFIER = r"(~=|==|!=|<=|>=|<|>)[0-9]+(\.[0-9]+){0,4}((a|b|rc|\.post|\.dev)[0-9]+)?(\.\*)?"
_MOVING = ("sid", "unstable", "testing", "stable", "rolling", "latest")
_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,63}"
_REFERENCE = (
    r"(?:[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-][a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_APT = r"[a-z0-9][a-z0-9+.-]{1,80}(=[A-Za-z0-9.+:~*-]{1,80})?"
_LINE_MAX = 2000
_INDEX = r"(?:https://[A-Za-z0-9][A-Za-z0-9.-]*|http://(?:localhost|127\.0\.0\.1))(?::[0-9]+)?(?:/[^\s$`\\\"'{}?]*)?"
SOURCE = rf"(?P<package>[a-z0-9][a-z0-9-]*) @ (?P<flat>{FIND_LINKS})?(?:(?P<name>[A-Za-z0-9._-]+)=)?(?P<url>{_INDEX})"
"""A part of ``sources``: a package, and the name and address of the index that it comes from."""
_MACHINES = {
    "linux/x86_64": "linux/amd64",
    "amd64": "linux/amd64",
    "x86_64": "linux/amd64",
    "linux/aarch64": "linux/arm64",
    "arm64": "linux/arm64",
    "aarch64": "linux/arm64",
}


@record
class Request:
    """A wish for a stack; every part is optional.

    Versions are prefixes (``2.1``) or specifiers (``>=2.3,<2.5``). ``driver`` is a literal version, never
    ``host``. ``requirements`` are PEP 508 lines of the user's own packages; those that name a package of the
    stack constrain it. ``constraints`` are lines that bound what is there and add nothing. ``indexes`` are addresses of
    further package indexes, the one that is asked first at the front; ``find-links:`` stands before a page of links.
    ``overrides`` are lines that stand for whatever else is asked of the packages they name, ``excludes`` packages that
    nothing brings, and ``sources`` (``name @ index=https://…``) the packages that come from one index alone.
    ``extras`` are ids of ``compat/extras.toml``. ``apt`` are packages of the system, with or without ``=version``, and
    ``apt_snapshot`` the day (ISO) of the archive that all of them come from, or ``auto``. ``is_cpu`` asks for builds
    without CUDA.
    """

    torch: str | None = None
    tensorflow: str | None = None
    jax: str | None = None
    cuda: str | None = None
    python: str | None = None
    os: str | None = None
    platform: str | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    container_toolkit: str | None = None
    flavor: str | None = None
    base: str | None = None
    extras: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    apt_snapshot: str | None = None
    constraints: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    require_secure: bool = False
    is_cpu: bool = False


def matches(wish: str | None, version: str) -> bool:
    """Tell whether a version is what a prefix or specifier asks for; no wish is met by anything."""
    if wish is None:
        return True
    if wish[0] in "<>=!~":
        return version in spec_of(wish)
    return is_prefix_of(wish, version)


def is_exact(wish: str) -> bool:
    """Tell whether a wish is met by one version alone: ``==2.4.1``, or ``2.4.1`` as a flag says it."""
    return (wish.startswith("==") and "*" not in wish) or (wish.count(".") > 1 and wish[0].isdigit())


def python_fits(wish: str | None, python: str) -> bool:
    """Tell whether a Python that images are built for (``3.11``, ``3.13t``) is what a wish asks for."""
    if wish is None:
        return not python.endswith("t")
    if wish.endswith("t") or python.endswith("t"):
        return wish == python
    if wish[0] not in "<>=!~":
        # An image is built for a minor; a patch in the wish picks its minor.
        return parse(wish).release[:2] == parse(python).release[: len(parse(wish).release[:2])]
    return matches(wish, python)


def parse_request(values: dict[str, Any]) -> Request:
    """Check values as they come from flags or from JSON.

    Args:
        values: Flag name without its dashes → value. ``gpu``, ``with``, ``apt`` and what files bring (``requirements``,
            ``constraints``, ``indexes``, …) take a list or one string, ``require-secure`` a boolean, everything else a
            string. ``None`` and empty lists count as absent.

    Raises:
        UsageError: An unknown name, or a value outside the grammar of its flag.
    """
    parts: dict[str, Any] = {}
    for name, value in values.items():
        flag = name.replace("_", "-")
        if flag not in _READERS:
            raise UsageError(
                f"`{_shown(flag)}` is nothing a request can ask for",
                hints=("known are: " + ", ".join(sorted(_READERS)),),
            )
        if value is None or value in ([], ()):
            continue
        field, reader = _READERS[flag]
        parts[field] = reader(f"--{flag}", value)
    return _without_cuda(Request(**parts))


def _without_cuda(request: Request) -> Request:
    """Return a request that says by its flag alone that it is for no GPU; a local part of torch says it too.

    Raises:
        UsageError: It asks for something that only a GPU has.
    """
    torch = request.torch or ""
    is_cpu = torch.endswith(f"+{CPU}")
    if is_cpu:
        request = replace(request, torch=torch.removesuffix(f"+{CPU}"), is_cpu=True)
    if not request.is_cpu:
        return request
    contrary = {
        "gpu": request.gpus[:1],
        "cuda": (request.cuda,) if request.cuda else (),
        "driver": (request.driver,) if request.driver else (),
        "container-toolkit": (request.container_toolkit,) if request.container_toolkit else (),
        "flavor": ("devel",) if request.flavor == "devel" else (),
        "torch": (torch,) if "+" in torch and not is_cpu else (),
    }
    said = f"`torch {torch}`" if is_cpu else f"`--{CPU}`"
    for flag, values in contrary.items():
        for value in values:
            raise UsageError(
                f"{said} and `--{flag} {value}` contradict each other",
                because=(f"a stack without CUDA runs on no GPU, and `--{flag} {value}` asks for one",),
                hints=("leave one of the two out",),
            )
    return request


def to_flags(request: Request) -> tuple[str, ...]:
    """Return the command-line words that ask for this request, in one fixed order.

    What the user's files bring has no flag of its own and is left out, and so is a framework that is asked for in any
    version because they name it.
    """
    words: list[str] = []
    for flag, (field, _) in _READERS.items():
        value = getattr(request, field)
        if value is True:
            words.append(f"--{flag}")
        elif field in FRAMEWORKS and value == ANY and request.requirements:
            continue
        elif field not in FILED and value:
            for item in value if isinstance(value, tuple) else (value,):
                words += [f"--{flag}", item]
    return tuple(words)


def plain_request(request: Request) -> dict[str, Any]:
    """Return the parts that were asked for as plain data, sorted by name, as a lock holds them."""
    plain: dict[str, Any] = {}
    for name in sorted(fields_of(Request)):
        value = getattr(request, name)
        if value:
            plain[name] = list(value) if isinstance(value, tuple) else value
    return plain


def request_of(plain: dict[str, Any]) -> Request:
    """Return the request that a lock holds, its values checked again.

    Raises:
        UsageError: A part is nothing a request can ask for, or its value is malformed.
    """
    names = {field: flag for flag, (field, _) in _READERS.items()}
    return parse_request({names.get(name, name): value for name, value in plain.items()})


def _shown(value: object) -> str:
    """Return a value fit for one line of a message: short, printable, escaped."""
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= 60 else text[:57] + "..."


def _text(flag: str, value: object, limit: int = 300) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{flag} takes text, not {_shown(value)}", hints=("quote versions: `2.10` is not a number",))
    text = value.strip()
    if not text:
        raise UsageError(f"{flag} was given without a value", hints=(f"leave {flag} out to let it be chosen",))
    if not text.isascii() or not text.isprintable():
        raise UsageError(
            f"{flag} `{_shown(value)}` holds characters that no name or version has",
            hints=("type it again with plain ASCII letters, digits and dots",),
        )
    if len(text) > limit:
        raise UsageError(f"{flag} is {len(text)} characters long", hints=("a version or name is meant",))
    return text


def _version_wish(flag: str, value: object) -> str:
    text = _text(flag, value).replace(" ", "").lower().removeprefix("v")
    if text[:1] in "<>=!~":
        clauses = text.split(",")
        if all(re.fullmatch(_SPECIFIER, clause) for clause in clauses):
            try:
                spec = Spec(text)
            except ValueError as error:
                raise UsageError(
                    f"{flag} `{_shown(value)}` is not a version specifier", because=(str(error),)
                ) from error
            if is_empty([str(spec)]):
                raise UsageError(f"{flag} `{_shown(value)}` admits no version at all")
            return str(spec)
    elif re.fullmatch(_VERSION, text):
        return text
    raise UsageError(
        f"{flag} `{_shown(value)}` is not a version",
        hints=(f"write a prefix such as `{flag} 2.1` or a range such as `{flag} '>=2.3,<2.5'`",),
    )


def _cuda_wish(flag: str, value: object) -> str:
    text = _text(flag, value).lower()
    short = re.fullmatch(r"cu([0-9]{2})([0-9])|cu([0-9])([0-9])", text)
    if short:
        digits = text.removeprefix("cu")
        text = f"{digits[:-1]}.{digits[-1]}"
    return _version_wish(flag, text.removeprefix("cuda"))


def _python_wish(flag: str, value: object) -> str:
    text = _text(flag, value).lower()
    text = re.sub(r"^(python|cp|py)", "", text)
    short = re.fullmatch(r"3([0-9]{1,2})(t?)", text)
    if short:
        text = f"3.{short[1]}{short[2]}"
    if re.fullmatch(r"3\.[0-9]{1,2}t", text):
        return text
    return _version_wish(flag, text)


def _driver(flag: str, value: object) -> str:
    text = _text(flag, value).lower().removeprefix("r")
    if not re.fullmatch(r"[0-9]{3}(\.[0-9]{1,3}){0,2}", text):
        raise UsageError(
            f"{flag} `{_shown(value)}` is not a Linux driver version",
            hints=("write what nvidia-smi prints, such as `535.104.05`, or `host` to read it from this machine",),
        )
    return text


def _exact(flag: str, value: object) -> str:
    text = _text(flag, value).lower().removeprefix("v")
    if not re.fullmatch(_VERSION, text):
        raise UsageError(f"{flag} `{_shown(value)}` is not a version", hints=(f"write it as in `{flag} 1.2.3`",))
    return text


def _platform(flag: str, value: object) -> str:
    text = _text(flag, value).lower()
    text = _MACHINES.get(text, text)
    if text not in PLATFORMS:
        raise UsageError(f"{flag} `{_shown(value)}` is not known", hints=("choose " + " or ".join(PLATFORMS),))
    return text


def _flavor(flag: str, value: object) -> str:
    text = _text(flag, value).lower()
    if text not in FLAVORS:
        raise UsageError(f"{flag} `{_shown(value)}` is not known", hints=("choose " + ", ".join(FLAVORS),))
    return text


def is_askable_os(name: str) -> bool:
    """Tell whether a request can name an operating system as the facts do."""
    try:
        return _os("--os", name) == name
    except UsageError:
        return False


def _os(flag: str, value: object) -> str:
    text = _text(flag, value).lower().replace("-", "").replace(":", "").replace(" ", "")
    if not re.fullmatch(r"[a-z][a-z0-9.]{1,40}", text):
        raise UsageError(f"{flag} `{_shown(value)}` is not an operating system", hints=("write it as in `debian12`",))
    if text.endswith(_MOVING):
        raise UsageError(
            f"{flag} `{_shown(value)}` is not a release",
            because=("what is in it changes from day to day, so no fact about it would hold",),
            hints=("name a release, as in `debian12`",),
        )
    return text


def _base(flag: str, value: object) -> str:
    text = _text(flag, value)
    if not re.fullmatch(_REFERENCE, text):
        raise UsageError(
            f"{flag} `{_shown(value)}` is not an image reference",
            hints=("write `name:tag`, `registry/name:tag` or `name:tag@sha256:…`",),
        )
    return text


def _items(flag: str, value: object) -> list[object]:
    if isinstance(value, str):
        return [part for part in value.split(",") if part.strip()] or [value]
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _items(flag, item)]
    return [value]


def _gpus(flag: str, value: object) -> tuple[str, ...]:
    names = []
    for item in _items(flag, value):
        text = " ".join(_text(flag, item).split())
        if not re.fullmatch(_NAME, text):
            raise UsageError(
                f"{flag} `{_shown(item)}` is not a GPU name",
                hints=("write it as in `h100`, `'RTX 4090'`, `a100-80gb` or `sm_90`",),
            )
        if text not in names:
            names.append(text)
    return tuple(names)


def _extras(flag: str, value: object) -> tuple[str, ...]:
    for item in _items(flag, value):
        if re.search(r"[<>=!~]=|[<>]", _text(flag, item)):
            raise UsageError(
                f"{flag} `{_shown(item)}` names a version",
                because=("an extra is taken in the release that goes with the rest",),
                hints=("leave the version out, or write it into a requirements file and name that with `-r FILE`",),
            )
    return _named(flag, value, r"[a-z0-9][a-z0-9-]{0,40}", "name", f"{flag} jupyter")


def _named(flag: str, value: object, pattern: str, what: str, example: str) -> tuple[str, ...]:
    names = set()
    for item in _items(flag, value):
        text = normalise_name(_text(flag, item))
        if not re.fullmatch(pattern, text):
            raise UsageError(f"{flag} `{_shown(item)}` is not a {what}", hints=(f"write it as in `{example}`",))
        names.add(text)
    return tuple(sorted(names))


def _apt(flag: str, value: object) -> tuple[str, ...]:
    packages: dict[str, str] = {}
    for item in _items(flag, value):
        text = _text(flag, item)
        if not re.fullmatch(_APT, text):
            raise UsageError(
                f"{flag} `{_shown(item)}` is not a package of a system",
                hints=(f"write it as in `{flag} ffmpeg` or `{flag} 'libgl1=1.6.0-1'`",),
            )
        if packages.setdefault(text.partition("=")[0], text) != text:
            raise UsageError(
                f"{flag} names {text.partition('=')[0]} twice, as `{packages[text.partition('=')[0]]}` and `{text}`",
                hints=("keep one of the two",),
            )
    return tuple(sorted(packages.values()))


def _day(flag: str, value: object) -> str:
    text = _text(flag, value).lower()
    if text == AUTO:
        return text
    import datetime

    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UsageError(
            f"{flag} `{_shown(value)}` is not a day",
            hints=(f"write it as in `{flag} 2026-05-01`, or `{flag} {AUTO}` for the day of the facts",),
        ) from error


def _lines(flag: str, value: object, what: str = "lines of text") -> Iterator[str]:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, (list, tuple)):
        raise UsageError(f"{flag} takes {what}, not {_shown(value)}")
    return (_text(flag, line, limit=_LINE_MAX) for line in lines)


def _requirements(flag: str, value: object) -> tuple[str, ...]:
    return tuple(sorted(set(_lines(flag, value))))


def _indexes(flag: str, value: object) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in _lines(flag, value, "addresses"):
        if not re.fullmatch(_INDEX, text.removeprefix(FIND_LINKS)):
            raise UsageError(
                f"{flag} `{_shown(without_secrets(text))}` is not an address of a package index",
                hints=("write it as `https://mirror.example/simple`, without user, password and variables",),
            )
        found[text] = None
    return tuple(found)


def _names(flag: str, value: object) -> tuple[str, ...]:
    return _named(flag, value, r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", "package name", "pillow")


def _sources(flag: str, value: object) -> tuple[str, ...]:
    found = set()
    for text in _lines(flag, value):
        if not re.fullmatch(SOURCE, text):
            raise UsageError(
                f"{flag} `{_shown(without_secrets(text))}` is not a package with the index that it comes from",
                hints=("write it as `name @ https://mirror.example/simple`, without user, password and variables",),
            )
        found.add(text)
    return tuple(sorted(found))


def _boolean(flag: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{flag} takes true or false, not {_shown(value)}")
    return value


_READERS: dict[str, tuple[str, Any]] = {
    "torch": ("torch", _version_wish),
    "tensorflow": ("tensorflow", _version_wish),
    "jax": ("jax", _version_wish),
    "cuda": ("cuda", _cuda_wish),
    "python": ("python", _python_wish),
    "os": ("os", _os),
    "platform": ("platform", _platform),
    "gpu": ("gpus", _gpus),
    "driver": ("driver", _driver),
    "container-toolkit": ("container_toolkit", _exact),
    "flavor": ("flavor", _flavor),
    "base": ("base", _base),
    "with": ("extras", _extras),
    "requirements": ("requirements", _requirements),
    "apt": ("apt", _apt),
    "apt-snapshot": ("apt_snapshot", _day),
    "constraints": ("constraints", _requirements),
    "overrides": ("overrides", _requirements),
    "excludes": ("excludes", _names),
    "indexes": ("indexes", _indexes),
    "sources": ("sources", _sources),
    "require-secure": ("require_secure", _boolean),
    "cpu": ("is_cpu", _boolean),
}
