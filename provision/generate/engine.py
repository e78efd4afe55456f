"""Templates to text: one set of rules for every file this program writes from ``images/``.

The templates are jinja2's, and jinja2 compiles them to Python. Importing jinja2 to do so would cost a command more
than all its other work, so what it compiles is kept in ``provision.generate.compiled`` (written by
``tools/compile_templates.py``) and runs on the few names below. A template that was edited since is compiled by
jinja2 at once; a test holds both ways to the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from provision.assets import asset_dir
from provision.errors import ProvisionError, UsageError

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "FILTERS",
    "TemplateRuntimeError",
    "environment",
    "finalize",
    "internalcode",
    "make_environment",
    "missing",
    "module_name",
    "quote_dockerfile",
    "quote_shell",
    "render",
    "source_digest",
]


def quote_shell(value: object) -> str:
    """Quote a value as one word of a POSIX shell."""
    return shlex.quote(finalize(value))


def quote_dockerfile(value: object) -> str:
    """Quote a value as one double-quoted word of a Dockerfile's ENV or LABEL, variables not expanded."""
    text = finalize(value).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{text}"'


FILTERS: dict[str, Callable[[object], str]] = {"sh": quote_shell, "dq": quote_dockerfile}


def finalize(value: object) -> str:
    """Turn what a template prints into text.

    Raises:
        UsageError: The text has a control character, such as a newline that would start a new instruction.
        ProvisionError: The value is nothing a template should print: ``None``, a bool, a collection.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ProvisionError(f"a template printed {value!r}, which is no text")
    text = str(value)
    if not text.isprintable():
        raise UsageError(f"{text!r} has a control character", because=("it would start another line of the file",))
    return text


def render(template: str, values: Mapping[str, Any]) -> str:
    """Render a template.

    Args:
        template: File name below ``images/``.
        values: Every name the template uses.

    Raises:
        ProvisionError: The template uses a name that has no value.
    """
    source = (asset_dir("images") / template).read_text(encoding="utf-8")
    try:
        compiled = importlib.import_module(f"provision.generate.compiled.{module_name(template)}")
    except ModuleNotFoundError:
        compiled = None
    if compiled is not None and source_digest(source) == compiled.SOURCE_DIGEST:
        return "".join(compiled.root(_Context(values)))
    return _render_with_jinja2(template, values)


def module_name(template: str) -> str:
    """Return the name of a template's module in ``provision.generate.compiled``."""
    return re.sub(r"\W", "_", template.removesuffix(".j2").lower())


def source_digest(source: str) -> str:
    """Return what tells one version of a template from another."""
    return hashlib.sha256(source.encode()).hexdigest()


def make_environment() -> Environment:
    """Return the jinja2 environment the templates are written for."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Dockerfiles and YAML are no HTML: finalize and the filters guard them instead of escaping.
    made = Environment(
        loader=FileSystemLoader(asset_dir("images")),
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    made.filters.update(FILTERS)
    return made


def _render_with_jinja2(template: str, values: Mapping[str, Any]) -> str:
    from jinja2 import TemplateError

    try:
        return make_environment().get_template(template).render(values)
    except TemplateError as error:
        raise ProvisionError(f"the template {template} cannot be rendered", because=(str(error),)) from error


# What a compiled template needs of jinja2's runtime.


class TemplateRuntimeError(ProvisionError):
    """A template uses a filter that is not in ``FILTERS``."""


class _Missing:
    """Stands for a name without a value."""


missing = _Missing()


def internalcode(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function as jinja2's own; here it needs no mark."""
    return function


class _Context:
    """The values of one rendering."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def resolve_or_missing(self, name: str) -> Any:
        """Return a value or ``missing``."""
        return self._values.get(name, missing)


class _Environment:
    """The part of an environment that compiled templates call."""

    filters = FILTERS
    finalize = staticmethod(finalize)
    concat = staticmethod("".join)

    @staticmethod
    def undefined(*, name: str) -> Iterator[Any]:
        """Refuse a name without a value, as StrictUndefined does when it is used."""
        raise ProvisionError(f"a template uses `{name}`, which has no value")

    @staticmethod
    def getattr(value: Any, name: str) -> Any:
        """Return an attribute; templates are given objects, not mappings."""
        return getattr(value, name)


environment = _Environment()
