"""`provision image --matrix`: many stacks out of one file, and what is wrong with a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.build import bake as bake_module
from provision.resolve.stack import Stack

FILE = """
[defaults]
python = "3.11"

[bake]
registry = "registry.example/ml"
cache = "registry.example/ml/cache"

[[stack]]
torch = ["2.1", "2.3"]
cuda = ["11.8", "12.1"]
exclude = [{ torch = "2.3", cuda = "11.8" }]
group = "train"

[[stack]]
name = "notebook"
torch = "2.4"
with = ["jupyter"]
label = { team = "vision" }
requirements = "mine.txt"
"""
MANY = [f"3.{number}" for number in range(30)]
HUGE = [f"3.{number}" for number in range(60)]
NAMES = ["notebook", "torch2.1.2-cu118-py311", "torch2.1.2-cu121-py311", "torch2.3.1-cu121-py311"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a matrix and the requirements it names."""
    place = tmp_path / "here"
    place.mkdir()
    (place / "stacks.toml").write_text(FILE)
    (place / "mine.txt").write_text("einops>=0.7\n")
    monkeypatch.chdir(place)
    return place


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_combination_has_its_folder_and_target(provision, folder):
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert answer.code == 0, answer.err
    assert sorted(path.parent.name for path in (folder / "out").glob("*/provision.lock")) == NAMES
    text = (folder / "out" / "docker-bake.hcl").read_text()
    assert 'default = "registry.example/ml/cache"' in text
    for name in NAMES:
        assert f'context = "{name}"' in text
        stack = Stack.from_lock((folder / "out" / name / "provision.lock").read_text())
        assert f"{name}:lock-{stack.lock_digest[7:19]}" in text
    train = re.search(r'group "train" \{\n  targets = \[(.*)\]', text)[1]
    assert "notebook" not in train
    assert train.count("torch2") == 3


def test_a_stack_of_a_matrix_is_the_one_that_flags_give(provision, folder):
    provision("image", "--matrix", "stacks.toml", "-o", "out")
    words = ("--torch", "2.4", "--python", "3.11", "--with", "jupyter", "--label", "team=vision", "-r", "mine.txt")
    assert provision("image", *words, "-o", "alone").code == 0
    assert _tree(folder / "out" / "notebook") == _tree(folder / "alone")


def test_paths_are_relative_to_the_file(provision, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    answer = provision("image", "--matrix", "here/stacks.toml", "-o", "out")
    assert answer.code == 0, answer.err
    assert "einops" in (tmp_path / "out" / "notebook" / "requirements.user.txt").read_text()


def test_check_and_locked_find_drift_and_a_second_write_writes_nothing(provision, folder):
    words = ("image", "--matrix", "stacks.toml", "-o", "out")
    assert provision(*words, "--check").code == 8
    provision(*words)
    before = _tree(folder)
    assert provision(*words, "--check").code == 0
    assert provision(*words, "--locked").code == 0
    assert provision(*words, "--json").document["result"]["written"] == []
    (folder / "out" / "notebook" / "Dockerfile").write_text("FROM scratch\n")
    answer = provision(*words, "--locked")
    assert answer.code == 8
    assert "notebook/Dockerfile differs" in answer.err
    (folder / "out" / "notebook" / "Dockerfile").write_bytes(before["out/notebook/Dockerfile"])
    assert _tree(folder) == before


def test_the_day_of_the_flag_is_kept_for_check_and_locked(provision, folder):
    words = ("image", "--matrix", "stacks.toml", "-o", "out")
    assert provision(*words, "--exclude-newer", "2026-01-15").code == 0
    for flag in ("--check", "--locked"):
        answer = provision(*words, flag)
        assert answer.code == 0, answer.err
    assert provision(*words, "--exclude-newer", "2026-01-14", "--check").code == 8


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("./dist/demo-1.0-py3-none-any.whl", "dist/demo-1.0-py3-none-any.whl goes into the context of one image"),
        ("--find-links dist", "dist goes into the context of one image"),
        ("demo @ https://own.example/demo-1.0-py3-none-any.whl", "`--matrix` has no build secret for"),
    ],
)
def test_what_no_context_of_a_matrix_is_given_is_refused(provision, folder, monkeypatch, line, said):
    (folder / "dist").mkdir()
    (folder / "dist" / "demo-1.0-py3-none-any.whl").write_bytes(b"")
    (folder / "netrc").write_text("machine own.example login me password word\n")
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    (folder / "mine.txt").write_text(f"{line}\n")
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out", "--offline")
    assert answer.code == 2
    assert said in answer.err
    assert "write that image alone" in answer.err
    assert not (folder / "out").exists()


def test_a_stack_that_is_no_longer_in_the_file_goes(provision, folder):
    words = ("image", "--matrix", "stacks.toml", "-o", "out")
    provision(*words)
    (folder / "stacks.toml").write_text(FILE.partition("[[stack]]\nname")[0])
    (folder / "out" / "mine").mkdir()
    (folder / "out" / "mine" / "Dockerfile").write_text("FROM scratch\n")
    assert provision(*words, "--check").code == 8
    answer = provision(*words)
    assert answer.code == 0
    assert "removed: " in answer.err
    assert not (folder / "out" / "notebook").exists()
    assert (folder / "out" / "mine" / "Dockerfile").exists()
    assert provision(*words, "--check").code == 0


def test_somebody_elses_files_stay(provision, folder):
    (folder / "out" / "notebook").mkdir(parents=True)
    (folder / "out" / "notebook" / "Dockerfile").write_text("FROM scratch\n")
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert answer.code == 2
    assert "notebook/Dockerfile" in answer.err
    assert sorted(_tree(folder / "out")) == ["notebook/Dockerfile"]
    assert provision("image", "--matrix", "stacks.toml", "-o", "out", "--force").code == 0


def test_print_and_dry_run_write_nothing(provision, folder):
    before = _tree(folder)
    answer = provision("image", "--matrix", "stacks.toml", "--print")
    assert answer.code == 0
    assert provision("image", "--matrix", "stacks.toml", "-o", "out", "--dry-run").code == 0
    assert _tree(folder) == before
    provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert answer.out == (folder / "out" / "docker-bake.hcl").read_text()


def test_flags_about_writing_count_for_every_stack(provision, folder):
    flags = (
        "--index-url",
        "https://mirror.example/simple/",
        "--registry-mirror",
        "mirror.example",
        "--compression",
        "zstd",
    )
    assert provision("image", "--matrix", "stacks.toml", "-o", "out", *flags, "--sbom").code == 0
    for name in NAMES:
        text = (folder / "out" / name / "Dockerfile").read_text()
        assert "https://mirror.example/simple/" in text
        assert "FROM mirror.example/library/python" in text
        assert (folder / "out" / name / "sbom.cdx.json").exists()
    assert "compression=zstd" in (folder / "out" / "docker-bake.hcl").read_text().partition("target ")[2]


def test_standard_input_is_a_file_too(program):
    answer = program("image", "--matrix", "-", "--print", stdin='[[stack]]\ntorch = "2.1"\ncuda = "11.8"\n')
    assert answer.code == 0, answer.err
    assert 'target "torch2_1_2-cu118-py311"' in answer.out


def test_a_refused_combination_is_named_with_the_way_out(provision, folder):
    (folder / "stacks.toml").write_text('[[stack]]\ntorch = ["2.1", "2.4"]\ncuda = ["12.1", "12.4"]\n')
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert answer.code == 3
    assert "stacks.toml: [[stack]] 1, torch 2.1, cuda 12.4: " in answer.err
    assert "exclude = [{" in answer.err
    assert not (folder / "out").exists()


def test_a_refusal_names_the_line_of_a_stacks_own_requirements(provision, folder):
    (folder / "old.txt").write_text("einops\ntorch<2.4\n")
    (folder / "stacks.toml").write_text('[[stack]]\nrequirements = "old.txt"\ngpu = "b200"\n')
    answer = provision("image", "--matrix", "stacks.toml")
    assert answer.code == 3
    assert "stacks.toml: [[stack]] 1: `torch<2.4` in old.txt, line 2 and `--gpu b200` cannot be met" in answer.err


def test_the_way_out_of_a_refusal_names_the_project_too(provision, folder):
    (folder / "pyproject.toml").write_text('[project]\nname = "app"\ndependencies = ["torch==2.5.1"]\n')
    (folder / "stacks.toml").write_text('[[stack]]\npython = "3.14"\nproject = "."\n')
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert answer.code == 3
    assert "--project ." in answer.err.partition("hint:")[2]


def test_a_stack_whose_python_cannot_be_built_on_is_named(provision, folder):
    (folder / "stacks.toml").write_text('[[stack]]\ntorch = "2.4"\n[[stack]]\ntorch = "1.10"\npython = "3.7"\n')
    answer = provision("image", "--matrix", "stacks.toml")
    assert answer.code == 3
    assert "stacks.toml: [[stack]] 2: no image can be built for Python 3.7" in answer.err


def test_all_refused_stacks_are_named_at_once(provision, folder):
    (folder / "stacks.toml").write_text('[[stack]]\ntorch = "2.1"\ncuda = "12.4"\n[[stack]]\ntorch = "99"\n')
    answer = provision("image", "--matrix", "stacks.toml", "--json")
    assert answer.code == 3
    error = answer.document["error"]
    assert error["message"] == "2 of 2 stacks cannot be resolved"
    assert [row["code"] for row in error["refused"]] == ["incompatible", "unknown"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[stack]\n", "stacks.toml is not TOML"),
        ("", "stacks.toml has no [[stack]]"),
        ("stack = 1\n", "has no [[stack]]"),
        ("stack = [1]\n", "[[stack]] 1 is not a table"),
        ("[defaultz]\n", "`defaultz` is not a key"),
        ("[defaults]\nname = 'x'\n[[stack]]\n", "[defaults]: `name` is not a key"),
        ("[bake]\nregistri = 'x'\n[[stack]]\ntorch='2.1'\n", "did you mean `registry`"),
        ("[bake]\nregistry = 'https://x'\n[[stack]]\ntorch='2.1'\n", "[bake]: registry"),
        ("[bake]\ncompression = 'lz4'\n[[stack]]\ntorch='2.1'\n", "[bake]: compression"),
        ("[[stack]]\ntorch = '2.1'\n[[stack]]\npyton = '3.11'\n", "[[stack]] 2: `pyton` is not a key"),
        ("[[stack]]\nname = 'a b'\ntorch = '2.1'\n", "[[stack]] 1 (`a b`), key `name`"),
        ("[[stack]]\nname = '../x'\ntorch = '2.1'\n", "key `name`"),
        ("[[stack]]\nname = 'x'\ntorch = ['2.1', '2.3']\n", "one name for several stacks"),
        ("[[stack]]\ntag = 'x'\ntorch = ['2.1', '2.3']\n", "one tag for several stacks"),
        ("[[stack]]\ntag = 'X Y'\ntorch = '2.1'\n", "key `tag`"),
        ("[[stack]]\ngroup = 'a.b'\ntorch = '2.1'\n", "key `group`"),
        ("[[stack]]\ntorch = 2.1\n", "[[stack]] 1, key `torch`"),
        ("[[stack]]\ntorch = 2.1\n", "quote versions"),
        ("[[stack]]\ntorch = []\n", "the list is empty"),
        ("[[stack]]\ntorch = ['2.1', '2.1']\n", "stands there twice"),
        ("[[stack]]\ntorch = ['2.1', ['2.3']]\n", "key `torch`"),
        ("[[stack]]\ntorch = '2.1'\ngpu = [1]\n", "key `gpu`"),
        ("[[stack]]\ntorch = '2.1'\nflavor = 'big'\n", "key `flavor`"),
        ("[[stack]]\ntorch = '2.1'\nrequire-secure = 'yes'\n", "key `require-secure`"),
        ("[[stack]]\ntorch = '2.1'\nexclude = 'x'\n", "key `exclude`"),
        ("[[stack]]\ntorch = '2.1'\nexclude = [{ cuda = '12' }]\n", "key `exclude`: `cuda` is not a key"),
        ("[[stack]]\ntorch = ['2.1','2.3']\nexclude = [{ torch = '2.2' }]\n", "it has: 2.1, 2.3"),
        ("[[stack]]\ntorch = '2.1'\nexclude = [{ torch = '2.1' }]\n", "nothing is left"),
        ("[[stack]]\ntorch = '2.1'\nnon-root-uid = 'x'\n", "key `non-root-uid`"),
        ("[[stack]]\ntorch = '2.1'\nnon-root-uid = 0\n", "[[stack]] 1: --non-root-uid"),
        ("[[stack]]\ntorch = '2.1'\nlabel = 'x'\n", "key `label` is not a table"),
        ("[[stack]]\ntorch = '2.1'\nlabel = { x = 1 }\n", "key `label.x`"),
        ("[[stack]]\ntorch = '2.1'\nindex-url = 'ftp://x'\n", "--index-url"),
        ("[[stack]]\ntorch = '2.1'\nrequirements = 'absent.txt'\n", "absent.txt cannot be read"),
        ("[[stack]]\ntorch = '2.1'\nca-cert = 'absent.pem'\n", "absent.pem cannot be read"),
        ("[[stack]]\n", "nothing was asked for"),
        ("[[stack]]\ntorch = '2.1'\n[[stack]]\ntorch = '2.1'\n", "a second stack called"),
        ("[[stack]]\ngroup = 'all'\nname = 'all'\ntorch = '2.1'\n", "a group and a target"),
        (f"[[stack]]\ntorch = {MANY}\npython = {MANY}\n", "more than 500"),
        (f"[[stack]]\ntorch = {HUGE}\ntensorflow = {HUGE}\njax = {HUGE}\ncuda = {HUGE}\n", "12960000 combinations"),
        (f"[[stack]]\ntorch = {HUGE}\njax = {HUGE}\ncuda = {HUGE}\nexclude = [{{ jax = '3.1' }}]\n", "more than 5000"),
        ("[[stack]]\nname = 'docker-bake.hcl'\ntorch = '2.1'\n", "the name of the file that builds"),
        ("[[stack]]\ntorch = '2.1\x00'\n", "is not TOML"),
    ],
)  # fmt: skip
def test_a_fault_is_named_by_file_stack_and_key(provision, folder, text, said):
    (folder / "stacks.toml").write_text(text)
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert answer.code == 2, answer.err
    assert said in answer.err
    assert "stacks.toml" in answer.err or "a group and a target" in answer.err or "docker-bake.hcl" in answer.err
    assert not (folder / "out").exists()


def test_a_missing_file_and_one_that_is_no_text_are_named(provision, folder):
    assert "absent.toml cannot be read" in provision("image", "--matrix", "absent.toml").err
    (folder / "stacks.toml").write_bytes(b"\xff")
    assert "is not UTF-8 text" in provision("image", "--matrix", "stacks.toml").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--torch", "2.1"), "`--torch` has no place beside it"),
        (("-r", "mine.txt"), "--matrix and --requirements exclude each other"),
        (("--upgrade",), "--matrix and --upgrade exclude each other"),
        (("--frontend", "classic"), "--matrix and --frontend exclude each other"),
        (("--format", "pylock"), "--matrix writes a bake file"),
        (("--build", "--tag", "x"), "--matrix and --tag exclude each other"),
        (("--build", "--output", "type=oci,dest=x"), "exclude each other"),
    ],
)
def test_flags_that_have_no_place_beside_a_matrix_are_refused(provision, words, said):
    answer = provision("image", "--matrix", "stacks.toml", *words)
    assert answer.code == 2
    assert said in answer.err


def test_build_and_push_bake_in_the_folder(provision, folder, monkeypatch):
    calls = []

    def stand_in(place, *, is_push, observer, log_path):
        calls.append((place, is_push, log_path.name))
        return {"notebook": {"digest": "sha256:1", "tags": ["registry.example/ml/notebook:latest"]}}

    monkeypatch.setattr(bake_module, "bake", stand_in)
    assert provision("image", "--matrix", "stacks.toml", "-o", "out", "--build").code == 0
    answer = provision("image", "--matrix", "stacks.toml", "-o", "out", "--push", "--locked", "--json")
    assert answer.code == 0, answer.err
    assert calls == [(Path("out"), False, "out.bake.log"), (Path("out"), True, "out.bake.log")]
    assert answer.document["result"]["build"]["images"]["notebook"]["digest"] == "sha256:1"
    (folder / "out" / "docker-bake.hcl").write_text("")
    assert provision("image", "--matrix", "stacks.toml", "-o", "out", "--push", "--locked").code == 8
    assert len(calls) == 2


def test_the_file_of_the_documentation_is_a_file(provision, folder):
    text = (Path(__file__).resolve().parents[2] / "docs" / "many-images.md").read_text()
    (folder / "stacks.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    (folder / "notebook.txt").write_text("einops\n")
    answer = provision("image", "--matrix", "stacks.toml", "-o", "images", "--json")
    assert answer.code == 0, answer.out
    assert len(answer.document["result"]["stacks"]) == 6


@pytest.mark.parametrize("words", [("--locked",), ("--upgrade", "numpy"), ("--upgrade",)])
def test_a_context_of_a_matrix_keeps_what_the_file_said(provision, folder, words):
    provision("image", "--matrix", "stacks.toml", "-o", "out")
    before = _tree(folder / "out")
    answer = provision("image", "-o", "out/notebook", *words)
    assert answer.code == 0, answer.err
    assert _tree(folder / "out") == before
    assert "team=" in (folder / "out" / "notebook" / "Dockerfile").read_text()
    assert provision("image", "--matrix", "stacks.toml", "-o", "out", "--check").code == 0


def test_a_label_that_left_the_file_leaves_the_folder(provision, folder):
    provision("image", "--matrix", "stacks.toml", "-o", "out")
    (folder / "stacks.toml").write_text(FILE.replace('label = { team = "vision" }\n', ""))
    assert provision("image", "--matrix", "stacks.toml", "-o", "out").code == 0
    assert not (folder / "out" / "notebook" / "provision.options.json").exists()
    (folder / "stacks.toml").write_text(FILE[: FILE.rindex("[[stack]]")])
    provision("image", "--matrix", "stacks.toml", "-o", "out")
    assert not (folder / "out" / "notebook").exists()


def test_the_bake_file_of_one_stack_is_not_upgraded_without_its_registry(provision, folder):
    (folder / "one.toml").write_text('[bake]\nregistry = "registry.example/ml"\n[[stack]]\ntorch = "2.4"\n')
    provision("image", "--matrix", "one.toml", "-o", "out")
    before = _tree(folder / "out")
    answer = provision("image", "-o", "out", "--upgrade")
    assert answer.code == 8
    assert "docker-bake.hcl differs" in answer.err
    assert _tree(folder / "out") == before
