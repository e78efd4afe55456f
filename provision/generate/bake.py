"""Many Stacks to one folder: a build context each, and a ``docker-bake.hcl`` that builds them in parallel.

What the contexts have in common is taken out: the stages that depend on no stack (the base, the installer, the
libraries of an nvidia/cuda image) become targets of their own, which every stack that says the same names in its
``contexts``. BuildKit then puts the target in the place of the Dockerfile's own stage, so each context still builds
alone, and a stage that many stacks share is built once, whichever builder has them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from provision.errors import ProvisionError, UsageError
from provision.generate.image import COMPRESSIONS, check_value
from provision.generate.write import Artifact
from provision.records import record
from provision.resolve.stack import Stack

BAKE_FILE = "docker-bake.hcl"

_SHARED = "shared"
_TAG = "latest"
# Stage → what it stands on, and the files its steps read.
_STAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cuda": ((), ()),
    "base": ((), ()),
    "tools": (("base",), ("tools.txt", "provision-ca.crt")),
}
_ZSTD_LEVEL = 3
_STAGE = re.compile(r"^FROM (?P<from>\S+) AS (?P<name>[a-z-]+)$", re.MULTILINE)


@record
class BakeOptions:
    """How the builders are told to keep what they make.

    Attributes:
        registry: Where images are pushed, with an optional path; names stand alone without.
        cache: Repository for the registry cache; none is read or written without.
        compression: Of the layers made here; the builder's own choice without.

    Raises:
        UsageError: A value does not fit its grammar.
    """

    registry: str | None = None
    cache: str | None = None
    compression: str | None = None

    def __post_init__(self) -> None:
        """Check every value, so that no key can put a line into a file."""
        for key, value in (("registry", self.registry), ("cache", self.cache)):
            if value is not None:
                check_value("registry", value, key)
        if self.compression is not None and self.compression not in COMPRESSIONS:
            raise UsageError(f"compression: {self.compression!r} is none of {', '.join(COMPRESSIONS)}")


@record
class BakeStack:
    """One image of many.

    Attributes:
        name: Of its folder and of the image.
        stack: The stack.
        artifacts: Its build context.
        tags: Whole names of the image, in place of the one made from ``name``.
        groups: Groups it belongs to beside those of its frameworks and platform.
    """

    name: str
    stack: Stack
    artifacts: tuple[Artifact, ...]
    tags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@record
class _Shared:
    """A stage that became a target: its folder, its Dockerfile and the files that it reads."""

    stage: str
    name: str
    platform: str
    contexts: tuple[tuple[str, str], ...]
    artifacts: tuple[Artifact, ...]


def target_name(text: str) -> str:
    """Return a name as bake allows it: letters, digits, underscores and dashes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def render_bake(stacks: tuple[BakeStack, ...], options: BakeOptions | None = None) -> tuple[Artifact, ...]:
    """Write many stacks down as one folder.

    Args:
        stacks: What to build; their names differ.
        options: Registry, cache and compression.

    Returns:
        The files, sorted by path: the bake file, the shared stages and every context.

    Raises:
        UsageError: Two names are one target, a group has the name of a target, or two stacks have one tag.
    """
    options = options or BakeOptions()
    shared: dict[str, _Shared] = {}
    used = {item.name: _share(item, shared) for item in stacks}
    groups = _groups(stacks)
    _check_names(stacks, shared, groups)
    _check_tags(stacks, options)
    body = [*_variables(options), *_group_blocks(groups)]
    for part in sorted(shared.values(), key=lambda part: part.name):
        body += _shared_block(part)
    for item in sorted(stacks, key=lambda item: item.name):
        body += _stack_block(item, used[item.name], options)
    text = "\n".join(body).rstrip("\n")
    dates = sorted({item.stack.facts_date for item in stacks})
    count = "1 stack" if len(stacks) == 1 else f"{len(stacks)} stacks"
    head = (
        f"# provision.matrix sha256:{hashlib.sha256(text.encode()).hexdigest()}",
        f"# {count}: facts of {' and '.join(dates)}. Written by `provision image`; edits here count as drift.",
        "# Build, in this folder, with any buildx builder: docker buildx bake [--builder NAME] [--push] [GROUP|TARGET]",
        "",
    )
    artifacts = [Artifact(path=BAKE_FILE, text="\n".join(head) + text + "\n")]
    for part in shared.values():
        artifacts += [_below(f"{_SHARED}/{part.name}", artifact) for artifact in part.artifacts]
    for item in stacks:
        artifacts += [_below(item.name, artifact) for artifact in item.artifacts]
    return tuple(sorted(artifacts, key=lambda artifact: artifact.path))


def _below(folder: str, artifact: Artifact) -> Artifact:
    return Artifact(path=f"{folder}/{artifact.path}", text=artifact.text, mode=artifact.mode)


def _share(item: BakeStack, shared: dict[str, _Shared]) -> tuple[tuple[str, str], ...]:
    """Add what a context shares with others, and return its named contexts: stage, target."""
    files = {artifact.path: artifact for artifact in item.artifacts}
    stages = _split(files["Dockerfile"].text)
    contexts: dict[str, str] = {}
    for stage, (below, needed) in _STAGES.items():
        if stage not in stages:
            continue
        texts = [stages[name] for name in (*below, stage)]
        read = [files[path] for path in needed if path in files]
        made = _shared_target(stage, item.stack.platform, texts, read, tuple((name, contexts[name]) for name in below))
        contexts[stage] = shared.setdefault(made.name, made).name
    return tuple(contexts.items())


def _split(dockerfile: str) -> dict[str, str]:
    """Return stage → its instructions, without the comments and blank lines around them."""
    found = list(_STAGE.finditer(dockerfile))
    if not found:
        raise ProvisionError("a Dockerfile without a named stage")
    ends = [*(match.start() for match in found[1:]), len(dockerfile)]
    stages = {}
    for match, end in zip(found, ends, strict=True):
        lines = dockerfile[match.start() : end].rstrip().splitlines()
        while lines and (not lines[-1] or lines[-1].startswith("#")):
            lines.pop()
        stages[match["name"]] = "\n".join(lines) + "\n"
    return stages


def _shared_target(
    stage: str, platform: str, texts: list[str], files: list[Artifact], contexts: tuple[tuple[str, str], ...]
) -> _Shared:
    text = "\n".join(texts)
    basis = json.dumps([platform, text, *([file.path, file.text] for file in files)])
    digest = hashlib.sha256(basis.encode()).hexdigest()
    head = f"# provision.shared sha256:{digest}\n# Written by `provision image`; edits here count as drift.\n"
    dockerfile = Artifact(path="Dockerfile", text=f"{head}\n{text}")
    names = sorted(["Dockerfile", *(file.path for file in files)])
    ignore = Artifact(path=".dockerignore", text="\n".join(["*", *(f"!{name}" for name in names)]) + "\n")
    return _Shared(
        stage=stage,
        name=f"{stage}-{digest[:8]}",
        platform=platform,
        contexts=contexts,
        artifacts=(ignore, dockerfile, *files),
    )


def _groups(stacks: tuple[BakeStack, ...]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {"default": []}
    for item in stacks:
        own = [*item.stack.frameworks, *(() if item.stack.frameworks else ("cuda",))]
        own.append(target_name(item.stack.platform.replace("/", "-")))
        for group in dict.fromkeys(("default", *own, *item.groups)):
            groups.setdefault(group, []).append(target_name(item.name))
    return {name: sorted(members) for name, members in groups.items()}


def _check_names(stacks: tuple[BakeStack, ...], shared: dict[str, _Shared], groups: dict[str, list[str]]) -> None:
    seen: dict[str, str] = {}
    for item in stacks:
        if item.name == BAKE_FILE:
            raise UsageError(
                f"`{item.name}` is the name of the file that builds the stacks", hints=("choose another `name`",)
            )
        if item.name == _SHARED or target_name(item.name) in shared:
            raise UsageError(f"`{item.name}` is the name of a part that stacks share", hints=("choose another `name`",))
        other = seen.setdefault(target_name(item.name), item.name)
        if other != item.name:
            raise UsageError(
                f"`{other}` and `{item.name}` would be one target",
                because=("bake allows letters, digits, `_` and `-` in the name of a target",),
                hints=("choose another `name` for one of them",),
            )
    for group in groups:
        if group in seen or group in shared:
            raise UsageError(
                f"`{group}` would be a group and a target",
                because=("bake tells the two apart by their names alone",),
                hints=("choose another `group` or `name`",),
            )


def _check_tags(stacks: tuple[BakeStack, ...], options: BakeOptions) -> None:
    """Refuse what would be pushed twice under one name: the last to be built would win."""
    seen: dict[str, str] = {}
    for item in stacks:
        for tag in _tags(item, options):
            # No tag means this one.
            whole = tag if ":" in tag.rpartition("/")[2] or "@" in tag else f"{tag}:{_TAG}"
            other = seen.setdefault(whole, item.name)
            if other != item.name:
                raise UsageError(
                    f"`{other}` and `{item.name}` would both be tagged `{tag}`",
                    because=("one image would take the name from the other",),
                    hints=("give one of them another `tag`, or leave `tag` out",),
                )


def _tags(item: BakeStack, options: BakeOptions) -> tuple[str, ...]:
    """Return the whole names of an image while no variable of the environment changes them."""
    if item.tags:
        return item.tags
    start = f"{options.registry}/{item.name}" if options.registry else item.name
    return f"{start}:{_TAG}", f"{start}:{_lock_tag(item)}"


def _lock_tag(item: BakeStack) -> str:
    return f"lock-{item.stack.lock_digest.removeprefix('sha256:')[:12]}"


def _variables(options: BakeOptions) -> list[str]:
    return [
        "# Each can be set for one build by a variable of the environment.",
        *_block('variable "REGISTRY"', [("default", _quote(options.registry or ""))]),
        *_block('variable "CACHE"', [("default", _quote(options.cache or ""))]),
        *_block('variable "TAG"', [("default", _quote(_TAG))]),
        *_block(
            'function "named"', [("params", "[name]"), ("result", 'REGISTRY == "" ? name : "${REGISTRY}/${name}"')]
        ),
        *_block(
            'function "cache_from"',
            [("params", "[name]"), ("result", 'CACHE == "" ? [] : ["type=registry,ref=${CACHE}:${name}"]')],
        ),
        *_block(
            'function "cache_to"',
            [
                ("params", "[name]"),
                (
                    "result",
                    'CACHE == "" ? [] : ["type=registry,ref=${CACHE}:${name},mode=max,image-manifest=true,'
                    'oci-mediatypes=true,compression=zstd"]',
                ),
            ],
        ),
    ]


def _group_blocks(groups: dict[str, list[str]]) -> list[str]:
    lines: list[str] = []
    for name in ("default", *sorted(set(groups) - {"default"})):
        lines += _block(f"group {_quote(name)}", [("targets", _list(groups[name]))])
    return lines


def _shared_block(part: _Shared) -> list[str]:
    return _block(
        f"target {_quote(part.name)}",
        [
            ("context", _quote(f"{_SHARED}/{part.name}")),
            ("target", _quote(part.stage)),
            *([("contexts", _targets(part.contexts))] if part.contexts else []),
            ("platforms", _list([part.platform])),
            # A base is pulled and not built, so there is nothing of it to keep.
            *(
                [("cache-from", f"cache_from({_quote(part.name)})"), ("cache-to", f"cache_to({_quote(part.name)})")]
                if part.stage != "base"
                else []
            ),
            # Nobody runs a part; what uses it takes it from the builder.
            ("output", _list(["type=cacheonly"])),
        ],
    )


def _stack_block(item: BakeStack, contexts: tuple[tuple[str, str], ...], options: BakeOptions) -> list[str]:
    target = target_name(item.name)
    if item.tags:
        tags = _list([check_value("image reference", tag, "tag") for tag in item.tags])
    else:
        tags = f'[named("{item.name}:${{TAG}}"), named({_quote(f"{item.name}:{_lock_tag(item)}")})]'
    epoch = item.stack.image.source_date_epoch if item.stack.image else 0
    words = ["type=image"]
    if options.compression is not None:
        words.append(f"compression={options.compression}")
        words += [f"compression-level={_ZSTD_LEVEL}"] if options.compression == "zstd" else []
        words.append("oci-mediatypes=true")
    kept = [name for stage, name in contexts if stage != "base"]
    sources = [f"cache_from({_quote(name)})" for name in (target, *kept)]
    return _block(
        f"target {_quote(target)}",
        [
            ("context", _quote(item.name)),
            ("contexts", _targets(contexts)),
            ("args", _map((("SOURCE_DATE_EPOCH", str(epoch)),)) if epoch else "{}"),
            ("platforms", _list([item.stack.platform])),
            ("tags", tags),
            ("cache-from", f"concat({', '.join(sources)})"),
            ("cache-to", f"cache_to({_quote(target)})"),
            # Attestations hold the time of the build, so equal builds would have unequal digests.
            ("attest", _list(["type=provenance,disabled=true"])),
            ("output", _list([",".join(words)])),
        ],
    )


def _block(head: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{head} {{", *(f"  {key} = {value}" for key, value in pairs), "}", ""]


def _quote(text: str) -> str:
    """Quote a text for HCL, so that nothing in it is a template."""
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _list(items: Iterable[str]) -> str:
    return "[" + ", ".join(_quote(item) for item in items) + "]"


def _targets(contexts: Iterable[tuple[str, str]]) -> str:
    return _map((stage, f"target:{target}") for stage, target in contexts)


def _map(pairs: Iterable[tuple[str, str]]) -> str:
    items = ", ".join(f"{_quote(key)} = {_quote(value)}" for key, value in pairs)
    return f"{{ {items} }}" if items else "{}"
