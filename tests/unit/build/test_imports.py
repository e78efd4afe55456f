"""Which imports of the user's code always run, and which wheels are proved not to bring what they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from provision.build.brought import Brought, Wheel
from provision.build.code import find_files
from provision.build.imports import Code, is_certain, read_code
from provision.build.reader import Reader
from provision.errors import UnreachableError
from tests.unit.build import package_index


def code_of(folder: Path, files: Mapping[str, str]) -> Code:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_code(find_files(folder)[0])


def found(code: Code) -> list[tuple[str, str | None, str]]:
    """Return what always runs."""
    return [(item.module, item.name, item.place) for item in code.imports if is_certain(item, code)]


def test_imports_at_the_start_of_lines_are_found_with_their_places(tmp_path: Path) -> None:
    text = "import os, alpha.one as a\nfrom beta import (  # (all) of it\n    b,\n    c as d,\n)\n"
    text += "from gamma import x, \\\n  y\n"
    code = code_of(tmp_path, {"app/main.py": text})
    assert found(code) == [
        ("alpha.one", None, "app/main.py:1"),
        *(("beta", name, "app/main.py:2") for name in "bc"),
        *(("gamma", name, "app/main.py:6") for name in "xy"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import alpha\nexcept ImportError:\n    alpha = None\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import alpha\n",
        "def run():\n    import alpha\n",
        "class A:\n    import alpha\n",
        '"""Use it so:\n\nimport alpha\nfrom alpha import beta\n"""\n',
        "import sys\nsys.path.append('third_party')\nimport alpha\n",
        "print 'of the last century'\nimport alpha\n",
        "from .alpha import beta\n",
    ],
)
def test_what_may_not_run_is_no_import(tmp_path: Path, text: str) -> None:
    assert found(code_of(tmp_path, {"main.py": text})) == []


@pytest.mark.parametrize(
    "name", ["tests/a.py", "docs/conf.py", "examples/x/a.py", "setup.py", "app/test_a.py", ".github/a.py", "a.pyx"]
)
def test_what_runs_elsewhere_is_not_read(tmp_path: Path, name: str) -> None:
    assert code_of(tmp_path, {name: "import alpha\n"}).imports == ()


def test_what_the_code_has_itself_and_what_python_has_is_not_looked_for(tmp_path: Path) -> None:
    files = {"src/alpha/__init__.py": "", "tools/beta.py": "", "gamma.cpp": ""}
    text = "import alpha.x\nimport beta, gamma, tools\nimport distutils.core\nimport tomllib\nimport delta\n"
    assert [item.module for item in code_of(tmp_path, {**files, "main.py": text}).imports] == ["delta"]


def test_what_is_copied_beside_the_code_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import alpha, beta\n")
    assert [item.module for item in read_code(find_files(tmp_path)[0], {"alpha"}).imports] == ["beta"]


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    code = code_of(tmp_path, {"a.py": "from x import (\n", "b.py": "import alpha\n", "c.py": "#" * 2**20 + "#"})
    assert (code.skipped, [item.module for item in code.imports]) == (2, ["alpha"])


@pytest.fixture
def index() -> Iterator[package_index.Index]:
    with package_index.serve() as served:
        yield served


def lacks(index: package_index.Index, code: Mapping[str, str], module: str, name: str | None = None) -> bool:
    """Tell whether a wheel of some sources is proved not to have a module, or a name in it."""
    index.add("pkg", "1.0", code=code)
    file = "pkg-1.0-py3-none-any.whl"
    wheel = Wheel(name="pkg", version="1.0", find_url=f"{index.url}/pkg/{file}".strip, sha256=None)
    return Brought(Reader()).lacks(wheel, [(module, name)]) == {(module, name)}


TABLE = """
NAMES = {"old": ".there"}
def __getattr__(name):
    if name in NAMES:
        import importlib
        return getattr(importlib.import_module(NAMES[name], __name__), name)
    raise AttributeError(name)
"""
LAZY = """
import sys
from .utils import _LazyModule, define_import_structure
structure = {"one": ["One"]}
structure.update(define_import_structure(Path(__file__).parent / "models", prefix="models"))
sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], structure)
"""
CLASS = """
class _LazyModule:
    def __getattr__(self, name):
        if name.endswith("Fast"):
            return self._slow(name)
"""


LOOP = "SYMBOLS = ['a', 'b']\nnames = locals()\nfor symbol in SYMBOLS:\n    names[symbol] = Proxy(symbol)\n"


@pytest.mark.parametrize(
    ("code", "module", "name"),
    [
        ({"pkg/__init__.py": ""}, "pkg.sub", None),
        ({"pkg/__init__.py": ""}, "pkg.sub", "gone"),
        ({"pkg/__init__.py": "", "pkg/a/__init__.py": ""}, "pkg.a.c", None),
        ({"pkg/__init__.py": "import os\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "", "pkg/a.py": "def other(): ...\n"}, "pkg.a", "gone"),
        ({"pkg/__init__.py": "from .a import *\n", "pkg/a.py": "__all__ = ['b']\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": TABLE, "pkg/there.py": "old = 1\n"}, "pkg", "gone"),
        (
            {"pkg/__init__.py": "__locals = locals()\nfor n in ['a']:\n    __locals[n].b = 1\n"},
            "pkg",
            "gone",
        ),
        ({"pkg/__init__.py": "globals()['a'] = 1\nb = globals().get('a')\nc = 'd' in globals()\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "def __dir__():\n    return sorted(set(globals()))\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("in SYMBOLS", "in ('a', 'b')")}, "pkg", "gone"),
        ({"pkg/__init__.py": "def f(name):\n    g(**locals())\n    return globals()[name]\n"}, "pkg", "gone"),
        (
            {"pkg/__init__.py": TABLE.replace("import importlib", "import importlib; globals()[name] = 1")},
            "pkg",
            "gone",
        ),
        ({"pkg/__init__.py": LAZY, "pkg/utils.py": CLASS, "pkg/models/a.py": "X"}, "pkg", "Gone"),
        ({"pkg/__init__.py": LAZY, "pkg/utils.py": CLASS}, "pkg.gone", None),
        ({"pkg-1.0.data/purelib/pkg/__init__.py": ""}, "pkg", "gone"),
    ],
)
def test_absence_is_proved_by_sources(
    index: package_index.Index, code: Mapping[str, str], module: str, name: str | None
) -> None:
    assert lacks(index, code, module, name)


@pytest.mark.parametrize(
    ("code", "module", "name"),
    [
        ({"pkg/__init__.py": "", "pkg/sub/x.txt": ""}, "pkg.sub", None),
        ({"pkg/__init__.py": "", "pkg/sub.cpython-311-x86_64-linux-gnu.so": ""}, "pkg", "sub"),
        ({"pkg/__init__.py": "from .a import here\n"}, "pkg", "here"),
        ({"pkg/__init__.py": "from .a import *\n", "pkg/a.py": "here = 1\n"}, "pkg", "here"),
        ({"pkg/__init__.py": "from elsewhere import *\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "from .a import *\n", "pkg/a.so": ""}, "pkg", "gone"),
        ({"pkg/__init__.py": TABLE.replace("old", "gone")}, "pkg", "gone"),
        ({"pkg/__init__.py": TABLE.replace("if name in NAMES", "if True")}, "pkg", "gone"),
        ({"pkg/__init__.py": TABLE.replace("    raise", "    return make(name)\n    raise")}, "pkg", "gone"),
        ({"pkg/__init__.py": TABLE.replace('{"old": ".there"}', "elsewhere.NAMES")}, "pkg", "gone"),
        ({"pkg/__init__.py": TABLE + "NAMES.update(elsewhere.NAMES)\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "from .lazy import attach\n__getattr__ = attach(__name__)\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "import a\nglobals().update(vars(a))\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "def f():\n    import sys\n    sys.modules[__name__] = X()\nf()\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "for n in ('ne', 'od'):\n    globals()['go' + n] = 1\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "def f(n):\n    globals()['go' + n] = 1\nf('ne')\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "from .a import E\nglobals().update(E.__members__)\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "locals().update({f'go{n}': n for n in ('ne', 'od')})\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "__locals = locals()\nfor n in ['ne']:\n    __locals['go' + n] = 1\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "from .a import add\nadd(globals())\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("'a'", "'gone'")}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("'a'", "'go' + 'ne'")}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("\nnames", "\nSYMBOLS.append('go' + 'ne')\nnames")}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("\nnames", "\nSYMBOLS = made()\nnames")}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("    names[", "    symbol = made(symbol)\n    names[")}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP.replace("for symbol", "for symbol, _")}, "pkg", "gone"),
        ({"pkg/__init__.py": LOOP + "def f(symbol):\n    names[symbol] = 1\nf('go' + 'ne')\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "import sys\nsetattr(sys.modules[__name__], 'go' + 'ne', 1)\n"}, "pkg", "gone"),
        ({"pkg/__init__.py": "__path__ = extend_path(__path__, __name__)\n"}, "pkg.sub", None),
        ({"pkg/__init__.py": "import sys\nsys.modules['pkg.sub'] = sys\n"}, "pkg.sub", None),
        ({"pkg/__init__.py": "", "pkg/a.py": "import sys\nsys.modules['pkg.sub'] = sys\n"}, "pkg.sub", None),
        ({"pkg/a.py": ""}, "pkg.sub", None),
        ({"pkg/__init__.py": "", "pkg/a/b.py": ""}, "pkg.a.c", None),
        ({"pkg/__init__.py": ""}, "other.sub", None),
        ({"pkg/__init__.py": LAZY, "pkg/utils.py": CLASS, "pkg/models/a.py": "Here"}, "pkg", "Here"),
        ({"pkg/__init__.py": LAZY, "pkg/utils.py": CLASS}, "pkg", "GoneFast"),
        ({"pkg/__init__.py": LAZY}, "pkg", "Gone"),
        ({"pkg/__init__.py": "if:"}, "pkg", "gone"),
    ],
)
def test_what_only_shows_when_it_runs_proves_nothing(
    index: package_index.Index, code: Mapping[str, str], module: str, name: str | None
) -> None:
    assert not lacks(index, code, module, name)


def test_what_a_wheel_said_is_kept_by_its_hash(index: package_index.Index, tmp_path: Path) -> None:
    index.add("pkg", "1.0", code={"pkg/__init__.py": "a = 1\n"})
    wheel = Wheel(
        name="pkg", version="1.0", find_url=f"{index.url}/pkg/pkg-1.0-py3-none-any.whl".strip, sha256="0" * 64
    )
    gone: list[tuple[str, str | None]] = [("pkg", "b")]
    assert Brought(Reader(), tmp_path).lacks(wheel, gone) == set(gone)
    index.files.clear()
    kept = Brought(Reader(), tmp_path)
    assert (kept.lacks(wheel, gone), kept.tops(wheel)) == (set(gone), {"pkg"})
    with pytest.raises(UnreachableError):
        kept.lacks(wheel, [("pkg", "c")])


def test_what_is_known_to_be_there_is_not_looked_for_again(index: package_index.Index, tmp_path: Path) -> None:
    index.add("pkg", "1.0", code={"pkg/__init__.py": "a = 1\n"})
    url = f"{index.url}/pkg/pkg-1.0-py3-none-any.whl"
    wheel = Wheel(name="pkg", version="1.0", find_url=url.strip, sha256="1" * 64)
    assert not Brought(Reader(), tmp_path).lacks_any(wheel, [("pkg", "a")])
    index.files.clear()
    kept = Brought(Reader(), tmp_path)
    assert not kept.lacks_any(wheel, [("pkg", "a")])
    with pytest.raises(UnreachableError):
        kept.lacks_any(wheel, [("pkg", "a"), ("pkg", "b")])


def test_a_server_that_sends_no_parts_proves_nothing(index: package_index.Index) -> None:
    index.has_parts = False
    index.add("pkg", "1.0", code={"pkg/__init__.py": ""})
    wheel = Wheel(name="pkg", version="1.0", find_url=f"{index.url}/pkg/pkg-1.0-py3-none-any.whl".strip, sha256=None)
    with pytest.raises(UnreachableError, match="not served in parts"):
        Brought(Reader()).lacks(wheel, [("pkg", "gone")])
