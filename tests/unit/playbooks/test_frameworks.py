"""Environments: which lists are refused, which builds are due, and what becomes of a build that breaks."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

HASH = "--hash=sha256:" + "0" * 64
OTHER = "--hash=sha256:" + "1" * 64
EMPTY: dict[str, Any] = {"environments": [], "links": {}}


filters = playbook_files.load_filters("gpu_frameworks")
builder = playbook_files.load_script(playbook_files.ROLES / "gpu_frameworks" / "files" / "environments.py")


def lock(text: str = f"torch==1.0 {HASH}\n", **more: Any) -> list[dict[str, Any]]:
    return [{"name": "torch", "requirements": text, "imports": ["torch"], "versions": {"torch": "1.0"}, **more}]


def plan(*, environments: Any = None, extra: Any = (), python: str = "3.11", host: Any = None) -> list[dict[str, Any]]:
    given = lock() if environments is None else environments
    found: list[dict[str, Any]] = filters.plan_environments(given, extra, python, host or EMPTY)
    return found


# Lists of requirements


@pytest.mark.parametrize(
    "entry",
    [
        f"numpy==1.26.4 {HASH} {OTHER}",
        f"numpy==1.26.4 ; python_version < '3.13' {HASH}",
        f"torch @ https://mirror.example/torch-1.0%2Bcu0-py3-none-any.whl {HASH}",
        f"jax[cuda12,k8s]==0.4 {HASH}",
        f"numpy==1.26.4 \\\n    {HASH} \\\n    {OTHER}\n    # via torch\n",
    ],
)
def test_entry_with_a_pin_and_a_hash_is_taken(entry: str) -> None:
    entries, problems = filters.read_requirements(entry)
    assert problems == []
    assert len(entries) == 1


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("numpy==1.26.4", "no hash"),
        (f"numpy>=1.26 {HASH}", "not pinned"),
        (f"numpy {HASH}", "not pinned"),
        ("numpy==1.26.4 --hash=sha256:123", "not pinned"),
        ("numpy==1.26.4 --hash=md5:" + "0" * 32, "not pinned"),
        ("-r other.txt", "option of pip"),
        ("--index-url https://mirror.example/simple", "option of pip"),
        ("--trusted-host mirror.example", "option of pip"),
        ("-e .", "option of pip"),
        (f"torch @ http://mirror.example/torch.whl {HASH}", "not pinned"),
        (f"; rm -rf / {HASH}", "not a requirement"),
        (f"numpy==1.26.4 {HASH} --config-settings=x", "not pinned"),
        (f"a==1 {HASH}\na==2 {HASH}", "listed twice"),
    ],
)
def test_other_entries_are_refused_with_the_reason(entry: str, reason: str) -> None:
    assert reason in "\n".join(filters.read_requirements(entry)[1])


def test_password_of_an_address_is_not_shown() -> None:
    problems = filters.read_requirements("torch @ https://me:secret@mirror.example/torch.whl")[1]
    assert problems
    assert "secret" not in str(problems)


def test_every_problem_of_every_list_is_in_one_message() -> None:
    extra = [{"environment": "torch", "requirements": "pandas"}, {"environment": "No Name", "requirements": "x"}]
    with pytest.raises(AnsibleFilterError) as caught:
        plan(extra=extra, python="3.11; reboot", environments=lock(imports=["os; evil"]))
    message = str(caught.value)
    for part in ("`pandas`", "No Name", "3.11; reboot", "os; evil"):
        assert part in message


def test_extra_may_not_change_what_the_lock_has() -> None:
    with pytest.raises(AnsibleFilterError, match="differs from what the lock has"):
        plan(extra=[{"environment": "torch", "requirements": f"Torch==2.0 {HASH}"}])


def test_extra_joins_an_environment_or_makes_one() -> None:
    rows = plan(
        extra=[
            {"environment": "torch", "requirements": f"pandas==2.0 {HASH}", "imports": ["pandas"]},
            {"environment": "notebook", "requirements": f"jupyterlab==4.0 {HASH}"},
        ]
    )
    assert [(row["name"], row["projects"]) for row in rows] == [
        ("torch", ["pandas", "torch"]),
        ("notebook", ["jupyterlab"]),
    ]
    assert rows[0]["imports"] == ["torch", "pandas"]


def test_name_that_looks_like_a_folder_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="not a name of an environment"):
        plan(environments=lock(name="torch-0123456789ab"))


def test_empty_list_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="empty"):
        plan(environments=lock("# nothing\n"))


# What is due


def test_folder_follows_from_the_list_and_the_python_alone() -> None:
    text = f"a==1 {HASH}\nb==2 {OTHER}\n"
    swapped = f"# as before\nb==2   {OTHER}\na==1 {HASH}\n"
    first = plan(environments=lock(text))[0]["folder"]
    assert plan(environments=lock(swapped))[0]["folder"] == first
    assert plan(environments=lock(text), python="3.12")[0]["folder"] != first
    assert plan(environments=lock(text.replace("a==1", "a==3")))[0]["folder"] != first


def on_node(*, is_complete: bool, target: str | None = None) -> dict[str, Any]:
    folder = plan()[0]["folder"]
    return {
        "environments": [{"name": folder, "is_complete": is_complete, "is_current": False}],
        "links": {"/opt/provision/envs/torch": target or folder},
    }


def test_finished_and_current_environment_is_left_alone() -> None:
    row = plan(host=on_node(is_complete=True))[0]
    assert row["is_complete"]
    assert row["is_current"]


def test_interrupted_build_is_due_again() -> None:
    assert not plan(host=on_node(is_complete=False))[0]["is_complete"]


def test_name_that_stands_for_another_folder_is_moved() -> None:
    row = plan(host=on_node(is_complete=True, target="torch-000000000000"))[0]
    assert row["is_complete"]
    assert not row["is_current"]


def test_leftovers_are_old_ones_beyond_the_number_and_broken_ones() -> None:
    rows = plan()
    old = [{"name": f"torch-00000000000{number}", "is_complete": True} for number in range(2)]
    broken = [{"name": "torch-bbbbbbbbbbbb", "is_complete": False}]
    others = [{"name": "mine", "is_complete": False}, {"name": "jax-bbbbbbbbbbbb", "is_complete": False}]
    host = {"environments": old + broken + others}
    assert filters.list_leftovers(rows, host, 2) == ["torch-bbbbbbbbbbbb"]
    assert filters.list_leftovers(rows, host, 1) == ["torch", "torch-bbbbbbbbbbbb"]


# The builder, on a folder of its own


class Base:
    """A base folder with environments that need no index: building one writes a file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "envs"
        self.lists = folder / "lists"
        self.lists.mkdir()
        self.calls: list[list[str]] = []
        self.fails_at = ""
        monkeypatch.setattr(builder, "call", self.call)
        monkeypatch.setattr(builder, "look", lambda row, environment: {"versions": {}, "accelerator": {}})

    def call(self, argv: list[str], environment: dict[str, str], step: str) -> str:
        self.calls.append(argv)
        if "venv" in argv:
            Path(argv[-1]).mkdir()
        if self.fails_at and self.fails_at in argv:
            raise builder.BuildError(f"{step}: no such wheel")
        return ""

    def row(self, digest: str, name: str = "torch") -> dict[str, Any]:
        folder = f"{name}-{digest * 12}"
        return {
            "name": name,
            "digest": digest * 12,
            "folder": folder,
            "path": str(self.folder / folder),
            "list": str(self.lists / f"{folder}.txt"),
            "imports": [],
            "versions": {},
            "python": sys.executable,
        }

    def run(self, *digests: str, **options: Any) -> dict[str, Any]:
        rows = [self.row(digest) for digest in digests]
        given = {"base": str(self.folder), "environments": rows, "keep": 2, "installer": "pip", "allow_source": False}
        found: dict[str, Any] = builder.run({**given, **options})
        return found

    def current(self) -> str:
        return (self.folder / "torch").readlink().name

    def folders(self) -> list[str]:
        return sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir() and not entry.is_symlink())


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Base:
    return Base(tmp_path, monkeypatch)


def test_environment_is_built_once_and_then_left(base: Base) -> None:
    assert base.run("a")["built"] == ["torch-" + "a" * 12]
    again = base.run("a")
    assert (again["built"], again["relinked"], again["removed"]) == ([], [], [])
    assert base.current() == "torch-" + "a" * 12


def test_hashes_are_demanded_and_nothing_is_built_from_source(base: Base) -> None:
    base.run("a")
    (install,) = [argv for argv in base.calls if "install" in argv]
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(install)


def test_older_environment_is_switched_to_without_a_build(base: Base) -> None:
    base.run("a")
    base.run("b")
    back = base.run("a")
    assert back["built"] == []
    assert back["relinked"] == ["torch-" + "a" * 12]
    assert base.current() == "torch-" + "a" * 12


def test_failed_build_leaves_no_folder_and_the_old_link(base: Base) -> None:
    base.run("a")
    base.fails_at = "install"
    with pytest.raises(builder.BuildError):
        base.run("b")
    assert base.folders() == ["torch-" + "a" * 12]
    assert base.current() == "torch-" + "a" * 12


def test_no_name_moves_when_a_later_environment_fails(base: Base) -> None:
    base.run("a")
    base.fails_at = str(base.lists / f"torch-{'c' * 12}.txt")
    with pytest.raises(builder.BuildError):
        base.run("b", "c")
    assert base.current() == "torch-" + "a" * 12


def test_folder_without_a_mark_is_built_anew(base: Base) -> None:
    half = base.folder / ("torch-" + "a" * 12)
    half.mkdir(parents=True)
    (half / "rubbish").touch()
    assert base.run("a")["built"] == ["torch-" + "a" * 12]
    assert not (half / "rubbish").exists()


def test_only_the_newest_are_kept_and_never_one_in_use(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, digest in enumerate("abc"):
        base.run(digest, keep=9)
        mark = base.folder / ("torch-" + digest * 12) / builder.MARK
        os.utime(mark, (1000 + number, 1000 + number))
    monkeypatch.setattr(builder, "is_used", lambda path: path.endswith("b" * 12))
    assert base.run("c", keep=1)["in_use"] == ["torch-" + "b" * 12]
    assert base.folders() == ["torch-" + "b" * 12, "torch-" + "c" * 12]
    monkeypatch.setattr(builder, "is_used", lambda path: False)
    assert base.run("c", keep=1)["removed"] == ["torch-" + "b" * 12]


def test_what_others_put_beside_stays(base: Base) -> None:
    base.run("a")
    (base.folder / "mine").mkdir()
    (base.folder / ("jax-" + "f" * 12)).mkdir()
    base.run("b", keep=1)
    assert {"mine", "jax-" + "f" * 12} <= set(base.folders())


def test_folder_in_the_place_of_a_name_is_not_replaced(base: Base) -> None:
    (base.folder / "torch").mkdir(parents=True)
    with pytest.raises(builder.BuildError, match="did not make"):
        base.run("a")


def test_second_run_at_the_same_time_is_refused(base: Base) -> None:
    base.run("a")
    with (base.folder / ".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_SH)
        with pytest.raises(builder.BuildError, match="another run"):
            base.run("b")


def test_process_that_runs_from_a_folder_is_seen(tmp_path: Path) -> None:
    process = tmp_path / "proc" / "1"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"/opt/x/torch-aa/bin/python\0train.py\0")
    assert builder.is_used("/opt/x/torch-aa", str(tmp_path / "proc"))
    assert not builder.is_used("/opt/x/torch-a", str(tmp_path / "proc"))


def test_signal_ends_a_build_as_a_failure_does(
    base: Base, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(argv: list[str], environment: dict[str, str], step: str) -> str:
        base.call(argv, environment, step)
        if "install" in argv:
            os.kill(os.getpid(), 15)
            time.sleep(5)
        return ""

    monkeypatch.setattr(builder, "call", interrupt)
    rows = [base.row("a")]
    options = {"base": str(base.folder), "environments": rows, "keep": 2, "installer": "pip", "allow_source": False}
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        assert builder.main(options) == 1
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert "signal 15" in json.loads(capsys.readouterr().out)["error"]
    assert base.folders() == []


def test_error_shows_no_password() -> None:
    assert builder.redact("at https://me:secret@mirror.example/simple") == "at https://mirror.example/simple"
    assert "secret" not in builder.tail("x\nhttps://me:secret@mirror.example\n")


def test_package_of_a_wrong_hash_is_still_named() -> None:
    expected = "".join(f"        Expected     or {number:064x}\n" for number in range(60))
    text = f"    numpy==1.26.4 from mirror:\n        Expected sha256 0\n{expected}             Got        1\n"
    assert "numpy==1.26.4" in builder.tail(text)


def test_index_proxy_and_certificates_go_to_pip_and_uv() -> None:
    found = builder.settings({"index_url": "i", "proxy": "p", "ca": "c"}, "/scratch")
    assert found["PIP_INDEX_URL"] == found["UV_DEFAULT_INDEX"] == "i"
    assert found["https_proxy"] == "p"
    assert found["PIP_CERT"] == found["SSL_CERT_FILE"] == "c"
    assert found["TMPDIR"] == "/scratch"


def test_installed_version_is_compared_with_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"errors": [], "accelerator": {}, "versions": {"Torch": "1.0+cu0", "my_lib": "2.0"}})
    monkeypatch.setattr(builder, "call", lambda *_: f"noise of an import\n{answer}\n")
    row = {"name": "torch", "path": "/x", "imports": [], "versions": {"torch": "1.0", "my-lib": "2.0"}}
    builder.look(row, {})
    row["versions"] = {"torch": "1.1", "absent": "1"}
    with pytest.raises(builder.BuildError) as caught:
        builder.look(row, {})
    assert "the lock has 1.1, installed is 1.0+cu0" in str(caught.value)
    assert "the lock has 1, installed is nothing" in str(caught.value)


def test_answer_is_found_before_the_last_words_of_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"errors": [], "accelerator": {}, "versions": {}})
    monkeypatch.setattr(builder, "call", lambda *_: f"before\n{answer}\nthe runtime is shut down\n")
    row = {"name": "torch", "path": "/x", "imports": [], "versions": {}}
    assert builder.look(row, {})["errors"] == []
    monkeypatch.setattr(builder, "call", lambda *_: "nothing of use\n")
    with pytest.raises(builder.BuildError, match="check of torch: no answer, only:\nnothing of use"):
        builder.look(row, {})


TENSORFLOW = """
import os, types
def list_physical_devices(kind):
    os.write(2, b"To enable the following instructions: AVX2\\n")
    os.write(2, b"E0000 00:00:1795383601.102397    1825 cuda_platform.cc:52] Failed call to cuInit: NO_DEVICE\\n")
    return []
config = types.SimpleNamespace(list_physical_devices=list_physical_devices)
test = types.SimpleNamespace(is_built_with_cuda=lambda: {is_cuda})
"""
JAX = """
import logging
def devices(kind):
    try:
        {plugin}
    except RuntimeError:
        logging.getLogger("jax._src.xla_bridge").exception("Jax plugin configuration error")
    raise RuntimeError("Unknown backend: 'gpu' requested")
"""


@pytest.mark.parametrize(
    ("is_cuda", "plugin", "packages", "tensorflow", "jax"),
    [
        pytest.param(
            True,
            "raise RuntimeError('operation cuInit(0) failed')",
            {"jax-cuda12-plugin": "0.10.2"},
            "cuda_platform.cc:52] Failed call to cuInit: NO_DEVICE",
            "operation cuInit(0) failed",
            id="said-on-the-way",
        ),
        pytest.param(
            False,
            "raise RuntimeError()",
            {"jax-cuda12-plugin": "0.10.2"},
            "built without CUDA",
            "RuntimeError",
            id="without-words",
        ),
        pytest.param(
            False, "pass", {"jaxlib": "0.10.2"}, "built without CUDA", "no CUDA plugin is installed", id="processor"
        ),
        pytest.param(
            False,
            "pass",
            {"jaxlib": "0.4.1+cuda11.cudnn82"},
            "built without CUDA",
            "Unknown backend: 'gpu' requested",
            id="before-plugins",
        ),
    ],
)
def test_frameworks_say_in_their_own_words_why_they_see_no_gpu(
    tmp_path: Path, is_cuda: bool, plugin: str, packages: dict[str, str], tensorflow: str, jax: str
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    (site / "tensorflow.py").write_text(TENSORFLOW.format(is_cuda=is_cuda), encoding="utf-8")
    (site / "jax.py").write_text(JAX.format(plugin=plugin), encoding="utf-8")
    for name, version in packages.items():
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    row = {"name": "both", "path": str(tmp_path), "imports": ["tensorflow", "jax"], "versions": {}}
    assert builder.look(row, dict(os.environ))["accelerator"] == {
        "tensorflow": {"is_available": False, "reason": tensorflow},
        "jax": {"is_available": False, "reason": jax},
    }


def test_what_each_environment_says_of_the_gpu_is_kept_apart(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        builder, "look", lambda row, environment: {"versions": {}, "accelerator": {"jax": row["name"] + " says"}}
    )
    rows = [base.row("a", "torch"), base.row("b", "jax")]
    found = builder.run(
        {"base": str(base.folder), "environments": rows, "keep": 2, "installer": "pip", "allow_source": False}
    )
    assert found["accelerator"] == {"torch": {"jax": "torch says"}, "jax": {"jax": "jax says"}}


def test_text_that_looks_into_an_environment_runs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    row = {"name": "torch", "path": str(tmp_path), "imports": ["json"], "versions": {}}
    assert builder.look(row, dict(os.environ))["accelerator"] == {}
    with pytest.raises(builder.BuildError, match="import nowhere_at_all: ModuleNotFoundError"):
        builder.look({**row, "imports": ["nowhere_at_all"]}, dict(os.environ))
