"""Conda environments: ``environment.yml`` with its channels, packages and the pip part."""

from __future__ import annotations

from collections.abc import Mapping

from provision.audit.model import Environment, Index, Install, Requirement, Source, Span, Variable
from provision.audit.places import Placed, read_yaml
from provision.audit.requirement import parse_conda, pinned_python
from provision.audit.requirements_file import Left, Listing, Reader, read_listing
from provision.errors import UsageError
from provision.records import NOTHING


class CondaFile:
    """What an environment file asks for.

    Attributes:
        name: Name or prefix of the environment, empty for none.
        channels: In order.
        packages: Of conda.
        pip: What its pip part asks for.
        left: What is neither a package nor the pip part.
    """

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.name = ""
        self.channels: list[Index] = []
        self.packages: list[Requirement] = []
        self.pip = Listing()
        self.pip_span: Span | None = None
        self.left: list[Left] = []

    @property
    def is_export(self) -> bool:
        """Whether it lists what a machine has, to the build of each package, as ``conda env export`` does."""
        return bool(self.packages) and all(item.build for item in self.packages)

    @property
    def is_complete(self) -> bool:
        """Whether everything outside the pip part was understood."""
        return not self.left

    def as_listing(self) -> Listing:
        """Return all of it as one list."""
        listing = Listing()
        listing.requirements = [*self.packages, *self.pip.requirements]
        listing.constraints = list(self.pip.constraints)
        listing.indexes = list(self.pip.indexes)
        listing.has_no_index = self.pip.has_no_index
        listing.left = [*self.left, *self.pip.left]
        listing.sources = [self.placed.source.file, *self.pip.sources]
        return listing


def read_conda_file(source: Source, read: Reader, *, variables: Mapping[str, Variable] = NOTHING) -> CondaFile:
    """Read an environment file.

    Args:
        source: Its text.
        read: Finds files that its pip part names.
        variables: Variables in force, for ``${NAME}`` in its pip part.

    Raises:
        UsageError: It is not YAML, or no environment of conda.
    """
    placed = read_yaml(source)
    data = placed.data
    if not isinstance(data, dict) or not isinstance(data.get("dependencies", []), list):
        raise UsageError(
            f"{source.file} is not an environment of conda", because=("it has no list called `dependencies`",)
        )
    found = CondaFile(placed)
    found.name = str(data.get("name") or data.get("prefix") or "")
    channels = data.get("channels") or []
    for number, channel in enumerate(channels if isinstance(channels, list) else []):
        span = placed.span("channels", number)
        found.channels.append(Index(kind="channel", url=str(channel), origin="file", span=span))
    for number, item in enumerate(data.get("dependencies") or []):
        if isinstance(item, str):
            text = placed.text("dependencies", number)
            requirement = parse_conda(text, source.file)
            if requirement is None:
                found.left.append(Left(kind="malformed", text=item, span=placed.span("dependencies", number)))
            else:
                found.packages.append(requirement)
        elif isinstance(item, dict) and isinstance(item.get("pip"), list):
            _read_pip(found, number, item["pip"], source, read, variables)
        elif item is not None:
            found.left.append(Left(kind="malformed", text=str(item), span=placed.span("dependencies", number)))
    return found


def _read_pip(
    found: CondaFile,
    number: int,
    lines: list[object],
    source: Source,
    read: Reader,
    variables: Mapping[str, Variable],
) -> None:
    found.pip_span = found.placed.span("dependencies", number, "pip")
    for position in range(len(lines)):
        if not isinstance(lines[position], str):
            text = str(lines[position])
            found.left.append(
                Left(kind="malformed", text=text, span=found.placed.span("dependencies", number, "pip", position))
            )
            continue
        content = found.placed.text("dependencies", number, "pip", position)
        try:
            found.pip.take(read_listing(content, source, read, variables=variables), is_constraint=False)
        except UsageError as error:
            place = source.position(found.placed.span("dependencies", number, "pip", position))
            what = error.message.partition(": ")[2]
            raise UsageError(f"{place.file}:{place.line}: {what}", because=error.because, hints=error.hints) from error


def parse_conda_file(source: Source, read: Reader) -> Environment:
    """Return the environment that a file describes.

    Raises:
        UsageError: As :func:`read_conda_file`.
    """
    found = read_conda_file(source, read)
    python = next((pinned_python(item.specifier) for item in found.packages if item.name == "python"), None)
    head = source.span(0, 0)
    installs = [
        Install(
            installer="conda",
            command="conda env",
            requirements=tuple(found.packages),
            indexes=tuple(found.channels),
            is_complete=found.is_complete,
            python=python,
            span=found.packages[0].span if found.packages else head,
            is_file=True,
        )
    ]
    if found.pip_span is not None:
        installs.append(
            Install(
                installer="pip",
                command="pip part of the environment",
                requirements=tuple(found.pip.requirements),
                constraints=tuple(found.pip.constraints),
                indexes=tuple(found.pip.indexes),
                has_default_index=not found.pip.has_no_index
                and not any(index.kind == "index" for index in found.pip.indexes),
                has_no_index=found.pip.has_no_index,
                is_complete=found.pip.is_complete,
                python=python,
                span=found.pip.requirements[0].span if found.pip.requirements else found.pip_span,
                is_file=True,
            )
        )
    return Environment(
        kind="conda",
        file=source.file,
        name=found.name,
        span=head,
        installs=tuple(installs),
        own_installs=tuple(installs),
        python=python,
    )
