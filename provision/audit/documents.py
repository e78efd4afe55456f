"""Which kind of file a name or a text is, and the environments it holds."""

from __future__ import annotations

import re
from collections.abc import Callable

from provision.audit.model import Environment, Install, Options, Source
from provision.audit.requirements_file import Left, Reader, read_listing
from provision.audit.shell import content_of
from provision.errors import UsageError

KINDS = (
    "dockerfile",
    "requirements",
    "constraints",
    "conda",
    "pyproject",
    "lock",
    "compose",
    "devcontainer",
    "pipfile",
    "pixi",
    "setup",
    "script",
)

# Tried in order and compiled when they are tried; capitals do not matter.
_NAMES = (
    (r"(?:.*[._-])?(?:dockerfile|containerfile)(?:[._-].*)?", "dockerfile"),
    (r"(?:.*[._-])?(?:requirements?|reqs?)(?:[._-].*)?\.(?:txt|in|pip)", "requirements"),
    (r"(?:.*[._-])?constraints?(?:[._-].*)?\.(?:txt|in)", "constraints"),
    (r"pyproject(?:\..*)?\.toml", "pyproject"),
    (r"(?:uv|poetry)\.lock", "lock"),
    (r"(?:docker-)?compose(?:[._-].*)?\.ya?ml", "compose"),
    (r"(?:.*[._-])?(?:environment|conda)(?:[._-].*)?\.ya?ml", "conda"),
    (r"\.?devcontainer\.json", "devcontainer"),
    (r"pipfile", "pipfile"),
    (r"pixi\.toml", "pixi"),
    (r"setup\.(?:cfg|py)", "setup"),
    (r"(?:.*[._-])?(?:install|setup|requirements?|env(?:ironment)?)(?:[._-].*)?\.(?:sh|bash)", "script"),
)
_LISTS = r"(?:.*[._-])?(?:requirements?|reqs?)/(?:[^/]+/)*[^/]+\.(?:txt|in)"
"""Paths of requirements that lie in a folder of such files, from the name of a folder on."""
_IMAGES = r"(?:.*/)?(?:[^/]*[._-])?(?:dockerfiles?|docker|containers?)(?:[._-][^/]*)?/(?:.*/)?[^./]+|.*\.docker"
"""Paths of what may be a Dockerfile by another name."""
_CONDA = r"(?:.*/)?(?:env[^/]*|conda[^/]*)/[^/]+\.ya?ml|(?:.*/)?[^/]*environment[^/]*\.ya?ml"
"""Paths of what may be an environment of conda by another name."""
_OTHER_KINDS = (".toml", ".json", ".py", ".lock", ".cfg", ".ini", ".md")
_DOCKERIGNORE = (".dockerignore", ".containerignore")
_NO_DOCKERFILE = (
    *(".yml", ".yaml", ".json", ".toml", ".md", ".rst", ".html", ".sh", ".py", ".lock", ".log", ".patch", ".diff"),
    *(".j2", ".jinja", ".jinja2", ".tmpl", ".tpl", ".template", ".erb", ".in"),
)
"""How no Dockerfile ends, whatever it is called: other formats, and templates of which one is made."""


class Document:
    """One file, read.

    Attributes:
        source: Its text.
        kind: One of :data:`KINDS`.
        environments: What it holds.
        reads: Names of other files that were looked into.
        others: Files besides this one that its environments point into.
        left: What a list of requirements says and its requirements do not.
        comments: For a Dockerfile where its comments begin, else ``None``: a comment may stand on any line.
        ends: For a Dockerfile where its instructions begin and end.
    """

    def __init__(self, source: Source, kind: str, environments: list[Environment]) -> None:
        self.source = source
        self.kind = kind
        self.environments = environments
        self.reads: tuple[str, ...] = ()
        self.others: list[Source] = []
        self.left: tuple[Left, ...] = ()
        self.comments: tuple[int, ...] | None = None
        self.ends: tuple[tuple[int, int], ...] = ()


def is_known_name(path: str) -> bool:
    """Tell whether a file of this path is looked for in a folder."""
    name = path.rpartition("/")[2]
    if _kind_of(name) is not None:
        return True
    return name.endswith((".txt", ".in")) and re.search(rf"(?:^|/){_LISTS}$", path, re.IGNORECASE) is not None


def _kind_of(name: str) -> str | None:
    """Return the kind of file that a name, without its folder, stands for."""
    if name.endswith(_DOCKERIGNORE):
        return None
    for pattern, kind in _NAMES:
        if re.fullmatch(pattern, name, re.IGNORECASE) and (kind != "dockerfile" or not name.endswith(_NO_DOCKERFILE)):
            return kind
    return None


def begins_known(path: str, head: Callable[[], str]) -> bool:
    """Tell whether a file that lies where Dockerfiles or environments of conda do begins like one.

    Args:
        path: Its path.
        head: Reads its beginning.
    """
    if re.fullmatch(_CONDA, path, re.IGNORECASE):
        return re.search(r"^dependencies:", head(), re.MULTILINE) is not None
    return re.fullmatch(_IMAGES, path, re.IGNORECASE) is not None and begins_dockerfile(head())


def begins_dockerfile(text: str) -> bool:
    """Tell whether the first line that is not a comment is an instruction that a Dockerfile begins with."""
    lines = text.removeprefix("\ufeff").splitlines()
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return re.match(r"\s*(?:FROM|ARG)\s", first, re.IGNORECASE) is not None


def find_kind(source: Source) -> str:
    """Return the kind of a file, by its name or else by how it begins.

    Raises:
        UsageError: It is none that can be checked.
    """
    name = source.file.rpartition("/")[2]
    kind = _kind_of(name)
    if kind is not None:
        return kind
    if re.fullmatch(_NAMES[0][0], name, re.IGNORECASE) and begins_dockerfile(source.text):
        return "dockerfile"
    if name.endswith((".yml", ".yaml")):
        for word, kind in (("services:", "compose"), ("dependencies:", "conda")):
            if re.search(rf"^{word}", source.text, re.MULTILINE):
                return kind
    elif name.endswith((".txt", ".in")):
        return "requirements"
    elif name.endswith((".sh", ".bash")):
        return "script"
    elif not name.endswith(_OTHER_KINDS) and begins_dockerfile(source.text):
        return "dockerfile"
    raise UsageError(
        f"{source.file} is not a file that can be checked",
        because=("neither its name nor its beginning is that of one",),
        hints=(
            "known: Dockerfiles, requirements, constraints, environment.yml, pyproject.toml, Pipfile, pixi.toml, "
            "setup.cfg, setup.py, uv.lock, poetry.lock, compose files, devcontainer.json and shell scripts",
            "`provision check - --stdin-filename Dockerfile < FILE` says what a file is",
        ),
    )


def parse_document(source: Source, read: Reader, options: Options, *, context: str | None = None) -> Document:
    """Read a file.

    Args:
        source: Its text.
        read: Finds files that it refers to.
        options: What the person told beside the files.
        context: Folder of the build context of a Dockerfile; its own folder when absent.

    Raises:
        MissingDependencyError: It is YAML, and PyYAML is not installed.
        UsageError: It is malformed; the message says where.
    """
    kind = find_kind(source)
    if kind == "dockerfile":
        from provision.audit.dockerfile import parse_dockerfile

        parsed = parse_dockerfile(source, read, build_args=options.build_args, target=options.target, context=context)
        document = Document(source, kind, list(parsed.stages))
        document.reads, document.comments, document.ends = parsed.reads, parsed.comments, parsed.ends
        return document
    if kind in ("requirements", "constraints"):
        return _parse_listing(source, kind, read)
    if kind == "conda":
        from provision.audit.conda import parse_conda_file

        return Document(source, kind, [parse_conda_file(source, read)])
    if kind in ("compose", "devcontainer"):
        if kind == "compose":
            from provision.audit.compose import parse_compose as parse
        else:
            from provision.audit.devcontainer import parse_devcontainer as parse
        environments, others = parse(source, read, options)
        document = Document(source, kind, environments)
        document.others = others
        document.reads = tuple(other.file for other in others)
        return document
    if kind == "script":
        from provision.audit.script import parse_script

        document = Document(source, kind, [])
        document.environments, document.reads = parse_script(source, read)
        return document
    if kind in ("pipfile", "pixi", "setup"):
        return _parse_other(source, kind, read)
    from provision.audit.project import parse_lock, parse_pyproject

    return Document(source, kind, [parse_lock(source)] if kind == "lock" else parse_pyproject(source))


def _parse_other(source: Source, kind: str, read: Reader) -> Document:
    from provision.audit.other_projects import parse_pipfile, parse_pixi, parse_setup

    if kind == "setup":
        return Document(source, kind, parse_setup(source, read))
    return Document(source, kind, parse_pipfile(source) if kind == "pipfile" else parse_pixi(source))


def _parse_listing(source: Source, kind: str, read: Reader) -> Document:
    listing = read_listing(content_of(source), source, read)
    head = source.span(0, 0)
    start = 1 if source.text.startswith("\ufeff") else 0
    install = Install(
        installer="pip",
        command=kind,
        requirements=tuple(listing.requirements),
        constraints=tuple(listing.constraints),
        indexes=tuple(listing.indexes),
        has_default_index=not listing.has_no_index and not any(index.kind == "index" for index in listing.indexes),
        has_no_index=listing.has_no_index,
        # What installs by constraints, and from where, stands elsewhere.
        is_complete=listing.is_complete and kind != "constraints",
        is_index_known=listing.is_index_known and kind != "constraints",
        span=listing.requirements[0].span if listing.requirements else head,
        flags_at=source.span(start, start),
        is_file=True,
    )
    environment = Environment(kind=kind, file=source.file, span=head, installs=(install,), own_installs=(install,))
    document = Document(source, kind, [environment])
    document.reads = tuple(dict.fromkeys(name for name in listing.sources if name != source.file))
    document.left = tuple(item for item in listing.left if item.is_gap)
    return document
