"""Which files of the user's are put into an image, and that their copy is the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.build.code import find_files, is_current, parse_copy, write_code
from provision.errors import UsageError

EPOCH = 1_600_000_000


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make(tmp_path / "src", "app/__main__.py", "app/data.bin", "README.md")


def make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x00\xff" if name.endswith(".bin") else name.encode())
    return folder


def found(source: Path) -> list[str]:
    return list(find_files(source)[0])


def test_what_tools_keep_for_themselves_and_secrets_stay_out(source: Path) -> None:
    make(source, ".git/HEAD", "app/__pycache__/x.pyc", "app/x.pyc", "myenv/pyvenv.cfg", "myenv/bin/python")
    make(source, ".env", "app/.env.local", "keys/server.pem", ".env.example", "node_modules/a/b.js")
    files, secrets = find_files(source)
    assert list(files) == [".env.example", "README.md", "app/__main__.py", "app/data.bin"]
    assert secrets == (".env", "app/.env.local", "keys/server.pem")


def test_caches_and_environments_of_conda_stay_out(source: Path) -> None:
    make(
        source, "weights/CACHEDIR.TAG", "weights/a.bin", "env/conda-meta/history", "env/lib/x.so", ".cache/b", ".pixi/c"
    )
    assert found(source) == ["README.md", "app/__main__.py", "app/data.bin"]


def test_what_this_program_wrote_before_stays_out_and_what_lies_beside_it_does_not(source: Path) -> None:
    before = make(source / "deploy" / "old", "provision.lock", "requirements.rest.txt", "code/src/a.py", "notes.md")
    (before / "Dockerfile").write_text(f"# provision.lock sha256:{'0' * 64}\n")
    (before / ".dockerignore").write_text("*\n!Dockerfile\n!code/src\n!provision.lock\n!requirements.rest.txt\n")
    make(source / "deploy", "old.build.json", "old.build.log", "older.py")
    own = make(source / "own", "provision.lock", "Dockerfile", "verify.py")
    (own / ".dockerignore").write_text("*\n!verify.py\n")
    assert found(source) == [
        *("README.md", "app/__main__.py", "app/data.bin", "deploy/old/notes.md", "deploy/older.py"),
        *("own/.dockerignore", "own/Dockerfile", "own/provision.lock", "own/verify.py"),
    ]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("*.log", ["README.md", "app/__main__.py", "app/data.bin", "build/b.txt"]),
        ("/build/\n*.md", ["a.log", "app/__main__.py", "app/data.bin", "app/a.log"]),
        ("app/*\n!app/data.bin", ["README.md", "a.log", "app/data.bin", "build/b.txt"]),
        ("**/data.*\nbuild", ["README.md", "a.log", "app/__main__.py", "app/a.log"]),
        ("# README.md\n[ab].log", ["README.md", "app/__main__.py", "app/data.bin", "build/b.txt"]),
    ],
)
def test_gitignore_counts(source: Path, lines: str, left: list[str]) -> None:
    make(source, "a.log", "app/a.log", "build/b.txt")
    (source / ".gitignore").write_text(f"{lines}\n")
    assert sorted(set(found(source)) - {".gitignore"}) == sorted(left)


def test_a_gitignore_counts_below_its_folder_alone(source: Path) -> None:
    make(source, "other/data.bin")
    (source / "app" / ".gitignore").write_text("/data.bin\n")
    assert "other/data.bin" in found(source)
    assert "app/data.bin" not in found(source)


def test_dockerignore_stands_in_place_of_gitignore(source: Path) -> None:
    (source / ".gitignore").write_text("*.py\n")
    (source / ".dockerignore").write_text("*\n!app\napp/data.bin\n")
    assert found(source) == ["app/__main__.py"]


def test_docker_takes_in_one_file_of_a_folder_that_is_left_out(source: Path) -> None:
    (source / ".dockerignore").write_text("*\n!app/data.bin\n")
    assert found(source) == ["app/data.bin"]


def test_a_pattern_of_docker_is_about_the_whole_path(source: Path) -> None:
    (source / ".dockerignore").write_text("data.bin\n")
    assert "app/data.bin" in found(source)
    (source / ".dockerignore").write_text("**/data.bin\n")
    assert "app/data.bin" not in found(source)


def test_a_line_takes_in_again_what_is_left_out_by_itself(source: Path) -> None:
    make(source, ".env", "public.pem")
    (source / ".gitignore").write_text("!public.pem\n")
    files, secrets = find_files(source)
    assert "public.pem" in files
    assert secrets == (".env",)


def test_a_link_that_leads_out_is_refused_and_one_inside_kept(source: Path, tmp_path: Path) -> None:
    (source / "inside").symlink_to("app/data.bin")
    write_code(tmp_path, (parse_copy("src"),), mtime=EPOCH)
    assert (tmp_path / "code" / "src" / "inside").readlink() == Path("app/data.bin")
    (source / "outside").symlink_to("../elsewhere")
    with pytest.raises(UsageError, match="outside is a link that leads out"):
        find_files(source)


def test_a_link_by_its_absolute_path_is_refused_wherever_it_leads(source: Path) -> None:
    make(source, "data.bin")
    (source / "inside").symlink_to((source / "data.bin").resolve())
    with pytest.raises(UsageError, match="inside is a link with an absolute path"):
        find_files(source)


@pytest.mark.parametrize(
    ("text", "name", "target"),
    [
        ("src", "src/", "/workspace/src/"),
        ("src:/app", "src/", "/app/"),
        ("src/:lib", "src/", "/workspace/lib/"),
        ("src/README.md", "README.md", "/workspace/README.md"),
        ("src/README.md:/opt/", "README.md", "/opt/README.md"),
        (".:/app", "here/", "/app/"),
    ],
)
def test_a_place_is_read(tmp_path, monkeypatch, text: str, name: str, target: str) -> None:
    here = make(tmp_path / "here", "src/README.md")
    monkeypatch.chdir(here)
    copy = parse_copy(text)
    assert (copy.name, copy.target) == (name, target)


def test_two_of_one_name_lie_apart(source: Path, tmp_path: Path) -> None:
    make(tmp_path / "more" / "src", "b.py")
    first = parse_copy("src")
    assert parse_copy("more/src:/b", [first.name]).name == "2-src/"


@pytest.mark.parametrize("text", ["absent", "absent:/x", "src:"])
def test_what_is_not_there_is_refused(source: Path, text: str) -> None:
    with pytest.raises(UsageError, match="--copy"):
        parse_copy(text)


def test_a_copy_has_one_date_and_one_of_two_modes_and_is_renewed_whole(source: Path, tmp_path: Path) -> None:
    (source / "README.md").chmod(0o600)
    (source / "app" / "__main__.py").chmod(0o700)
    copies = (parse_copy("src"),)
    context = tmp_path / "context"
    context.mkdir()
    assert write_code(context, copies, mtime=EPOCH) == (3, ())
    copied = context / "code" / "src"
    assert (copied / "README.md").stat().st_mode & 0o777 == 0o644
    assert (copied / "app" / "__main__.py").stat().st_mode & 0o777 == 0o755
    assert {int(path.stat().st_mtime) for path in (copied, *copied.rglob("*"))} == {EPOCH}
    assert is_current(context, copies)
    (source / "README.md").unlink()
    assert not is_current(context, copies)
    write_code(context, copies, mtime=EPOCH)
    assert not (copied / "README.md").exists()
    assert is_current(context, copies)
    (source / "app" / "data.bin").write_bytes(b"new")
    assert not is_current(context, copies)
    assert [path.name for path in context.iterdir()] == ["code"]


def test_a_context_inside_the_code_is_no_part_of_it(source: Path) -> None:
    context = make(source / "out", "Dockerfile")
    make(source, "out.build.json", "out.oci.tar")
    copies = (parse_copy("src:/app"),)
    write_code(context, copies, mtime=EPOCH)
    write_code(context, copies, mtime=EPOCH)
    assert sorted(path.name for path in (context / "code" / "src").iterdir()) == ["README.md", "app"]


def test_a_folder_that_cannot_be_read_is_named(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError, match="src cannot be read") as caught:
        find_files(source)
    assert caught.value.because == ("Permission denied",)


def test_nothing_left_to_copy_is_said_and_nothing_is_written(source: Path, tmp_path: Path) -> None:
    (source / ".dockerignore").write_text("*\n")
    with pytest.raises(UsageError, match="nothing of src is left"):
        write_code(tmp_path, (parse_copy("src"),), mtime=EPOCH)
    assert not (tmp_path / "code").exists()


def test_a_file_with_other_text_of_the_same_length_has_another_date_below_the_second(tmp_path: Path) -> None:
    # BuildKit takes a file of the same size and date for the one it has.
    dates = []
    for text in ("value = 1", "value = 2", "value = 1"):
        (tmp_path / "app.py").write_text(text)
        write_code(tmp_path / "context", (parse_copy(str(tmp_path / "app.py")),), mtime=EPOCH)
        dates.append((tmp_path / "context" / "code" / "app.py").stat().st_mtime_ns)
    assert dates[0] != dates[1]
    assert dates[0] == dates[2]
    assert {date // 10**9 for date in dates} == {EPOCH}
