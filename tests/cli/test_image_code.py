"""`provision image --copy`: what the code imports is held against the lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LAZY = "import sys\nfrom .utils import _LazyModule\nsys.modules[__name__] = _LazyModule(__name__, make())\n"
TORCH = "2.4.1"


@pytest.fixture
def app(index, tmp_path, monkeypatch):
    """A project that needs `demo`, of which later releases dropped what it takes out of it."""
    monkeypatch.setenv("PROVISION_CACHE_DIR", str(tmp_path / "kept"))
    for version, code in (("1.0", "old = 1"), ("1.1", "old = 1"), ("2.0", "new = 1"), ("3.0", "new = 1"), ("3.1", "")):
        files = {"demo/__init__.py": f"{code}\n"}
        index.add("demo", version, code=files | ({} if code != "old = 1" else {"demo/sub.py": "x = 1"}))
    Path("app").mkdir()
    Path("app", "requirements.txt").write_text(f"torch=={TORCH}\ndemo\n")
    return Path("app")


def locked():
    return json.loads(Path("out", "provision.lock").read_text())


WORDS = ("--project", "app", "--copy", "app", "-o", "out")


@pytest.mark.parametrize("line", ["from demo import old", "import demo.sub", "from demo.sub import x"])
def test_code_for_an_older_release_gets_the_newest_that_it_is_for(image, app, line):
    (app / "main.py").write_text(f"import os\n{line}\n")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert locked()["packages"]["demo"] == "1.1"
    assert "main.py:2 imports `demo." in answer.err
    assert "which demo 3.1 does not have: 1.1 is taken, as `demo<2.0` in your lines would" in answer.err
    reasons = {row["subject"]: row["because"] for row in locked()["reasons"]}
    assert reasons["demo"].endswith("which 2.0 no longer has")
    assert "constraints" not in locked()["request"]
    assert image(*WORDS, "--check").code == 0
    assert image("--locked", "-o", "out").code == 0
    answer = image("--upgrade", "-o", "out")
    assert answer.code == 0, answer.err
    assert locked()["packages"]["demo"] == "1.1"


@pytest.mark.parametrize(
    "line",
    [
        "from demo import new2 if False else None",  # no Python
        "try:\n    from demo import old\nexcept ImportError:\n    old = None",
        "def f():\n    from demo import old",
        "import demo\ndemo.old",
    ],
)
def test_an_import_that_may_not_run_moves_nothing(image, app, line):
    (app / "main.py").write_text(f"{line}\n")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert locked()["packages"]["demo"] == "3.1"
    assert "imports" not in answer.err


def test_a_module_that_makes_its_names_when_asked_proves_nothing(image, app, index):
    index.add("demo", "4.0", code={"demo/__init__.py": LAZY, "demo/utils.py": "class _LazyModule: ...\nmake = old\n"})
    index.add("demo", "5.0", code={"demo/__init__.py": "def __getattr__(name):\n    return make(name)\n"})
    (app / "main.py").write_text("from demo import old\n")
    assert image(*WORDS).code == 0
    assert locked()["packages"]["demo"] == "5.0"


def test_the_users_own_bound_decides(image, app):
    (app / "main.py").write_text("from demo import old\n")
    (app / "requirements.txt").write_text(f"torch=={TORCH}\ndemo<3\n")
    answer = image(*WORDS)
    assert (answer.code, locked()["packages"]["demo"]) == (0, "2.0")
    (app / "requirements.txt").write_text(f"torch=={TORCH}\ndemo>=2\n")
    answer = image(*WORDS)
    assert (answer.code, locked()["packages"]["demo"]) == (0, "3.1")
    assert "main.py:1 imports `demo.old`, which demo 3.1 does not have; no release" in answer.err


def test_a_release_that_does_not_go_with_the_rest_is_only_told(image, app, index):
    index.add("other", "1.0", "demo>=2", code={"other.py": ""})
    (app / "main.py").write_text("import other\nfrom demo import old\n")
    (app / "requirements.txt").write_text(f"torch=={TORCH}\ndemo\nother\n")
    answer = image(*WORDS)
    assert (answer.code, locked()["packages"]["demo"]) == (0, "3.1")
    assert "demo 1.1 has it, and does not go with the rest" in answer.err


def test_of_two_packages_that_were_moved_each_has_its_reason(image, app, index):
    for version, code in (("1.0", "past = 1"), ("2.0", "")):
        index.add("other", version, code={"other/__init__.py": f"{code}\n"})
    (app / "main.py").write_text("from demo import old\nfrom other import past\n")
    (app / "requirements.txt").write_text(f"torch=={TORCH}\ndemo\nother\n")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert (locked()["packages"]["demo"], locked()["packages"]["other"]) == ("1.1", "1.0")
    reasons = {row["subject"]: row["because"] for row in locked()["reasons"] if "your code imports" in row["because"]}
    assert reasons == {
        "demo": "your code imports demo.old, which 2.0 no longer has",
        "other": "your code imports other.past, which 2.0 no longer has",
    }


def test_what_another_copy_brings_is_in_the_image(image, app):
    (app / "requirements.txt").unlink()
    (app / "pyproject.toml").write_text(
        f'[project]\nname = "app"\ndependencies = ["torch=={TORCH}", "demo"]\n'
        '[project.optional-dependencies]\nweb = ["common", "utils", "placed", "strange"]\n'
    )
    (app / "main.py").write_text("import common\nimport utils\nimport placed\nimport strange\n")
    Path("libs", "common").mkdir(parents=True)
    Path("libs", "common", "__init__.py").write_text("")
    Path("utils.py").write_text("")
    Path("src").mkdir()
    Path("src", "a.py").write_text("")
    copies = ("--copy", "libs/common", "--copy", "utils.py", "--copy", "src:/app/placed")
    answer = image(*WORDS, *copies)
    assert answer.code == 0, answer.err
    said = "your code imports what no package of the lock brings: "
    told = answer.err.partition(said)[2].partition("\n")[0]
    assert "`strange`" in told
    assert not [name for name in ("common", "utils", "placed") if f"`{name}`" in told]


def test_what_a_script_aside_imports_moves_no_release(image, app):
    (app / "scripts").mkdir()
    (app / "scripts" / "old.py").write_text("from demo import old\n")
    assert image(*WORDS).code == 0
    assert locked()["packages"]["demo"] == "3.1"


def test_an_import_that_no_package_brings_is_told_with_the_flag_that_adds_it(image, app, index):
    index.add("helper", "1.0", code={"helper/__init__.py": "", "second.py": ""})
    (app / "requirements.txt").unlink()
    (app / "pyproject.toml").write_text(
        f'[project]\nname = "app"\ndependencies = ["torch=={TORCH}", "demo", "helper"]\n'
        '[project.optional-dependencies]\nweb = ["some-lib"]\n'
    )
    (app / "main.py").write_text("import helper, second\nimport demo\nimport torch\nimport some_lib\nimport strange\n")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    said = "your code imports what no package of the lock brings: `some_lib` (main.py:4; `--extra web` or a line "
    assert f"{said}`some-lib` after `-r` adds it)" in answer.err
    assert "helper" not in answer.err.partition(said)[2].partition("\n")[0]
    index.add("some-lib", "1.0")
    answer = image(*WORDS, "--extra", "web")
    assert answer.code == 0, answer.err
    assert "some_lib" not in answer.err
