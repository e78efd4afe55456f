"""`provision image`: what it writes, what it refuses to write over, and what it asks of an engine."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from provision.build.engine import BuildRequest, BuildResult, Completed, ImageInfo
from provision.build.export import choose_export
from provision.cli.commands import image as image_command
from provision.errors import ActionFailedError, MissingDependencyError
from provision.matrix.load import Matrix
from provision.resolve.stack import Stack

STACK = ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11")
NAME = "torch2.1.2-cu121-py311"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_context_is_written_into_a_folder_named_after_the_stack(provision, folder):
    answer = provision("image", *STACK)
    assert answer.code == 0
    assert answer.out == ""
    tree = _tree(folder / NAME)
    assert {"Dockerfile", "requirements.lock.txt", "provision.lock", "verify.py", ".dockerignore"} <= set(tree)
    stack = Stack.from_lock(tree["provision.lock"].decode())
    assert stack.lock_digest.encode() in tree["Dockerfile"]
    for text in ("torch 2.1.2", "525.60.13", "facts of ", "wrote ", "next: provision image "):
        assert text in answer.err


def test_next_command_is_this_one_with_build(provision):
    words = ("--label", "a=b c", "--non-root-uid", "2000", "--with", "jupyter", "-o", "my folder")
    answer = provision("image", *STACK, *words)
    assert answer.code == 0, answer.err
    line = next(line for line in answer.err.splitlines() if line.startswith("next: "))
    command = shlex.split(line.removeprefix("next: "))
    assert command[:2] == ["provision", "image"]
    assert command[-1] == "--build"
    assert "a=b c" in command
    assert "my folder" in command
    assert provision(*command[1:-1], "--check").code == 0


def test_document_names_stack_folder_and_files(provision, folder):
    answer = provision("image", *STACK, "--json")
    result = answer.document["result"]
    assert result["folder"] == NAME
    assert sorted(result["files"]) == sorted(_tree(folder / NAME))
    assert result["written"] == result["files"]
    assert result["unverified"] == 0
    assert result["stack"]["lock_digest"] == json.loads((folder / NAME / "provision.lock").read_text())["lock_digest"]
    assert provision("image", *STACK, "--json").document["result"]["written"] == []


def test_print_writes_nothing(provision, folder):
    answer = provision("image", *STACK, "--print")
    assert answer.code == 0
    assert not list(folder.iterdir())
    provision("image", *STACK)
    assert answer.out == (folder / NAME / "Dockerfile").read_text()
    assert provision("image", *STACK, "--print", "--json").document["result"]["dockerfile"] == answer.out


def test_dry_run_writes_nothing(provision, folder):
    answer = provision("image", *STACK, "--dry-run", "--build")
    assert answer.code == 0
    assert "would write" in answer.err
    assert not list(folder.iterdir())


def test_check_finds_drift(provision, folder):
    assert provision("image", *STACK, "--check").code == 8
    provision("image", *STACK)
    before = _tree(folder)
    assert provision("image", *STACK, "--check").code == 0
    assert provision("image", *STACK, "--locked", "--label", "a=b").code == 8
    (folder / NAME / "constraints.txt").write_text("")
    answer = provision("image", *STACK, "--check", "--json")
    assert answer.code == 8
    assert answer.document["error"]["because"] == ["constraints.txt differs"]
    assert _tree(folder) == {**before, f"{NAME}/constraints.txt": b""}


def test_dockerfile_of_somebody_else_is_kept_unless_forced(provision, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "Dockerfile").write_text("FROM scratch\n")
    before = _tree(folder)
    answer = provision("image", *STACK, "-o", "mine")
    assert answer.code == 2
    assert "--force" in answer.err
    assert _tree(folder) == before
    assert provision("image", *STACK, "-o", "mine", "--force").code == 0


def test_files_of_somebody_else_are_kept_unless_forced(provision, folder):
    for name in ("verify.py", "constraints.txt", ".dockerignore"):
        (folder / name).write_text("mine\n")
    before = _tree(folder)
    answer = provision("image", *STACK, "-o", ".")
    assert answer.code == 2
    assert all(name in answer.err for name in before)
    assert _tree(folder) == before
    assert provision("image", *STACK, "-o", ".", "--force").code == 0
    assert b"mine\n" not in _tree(folder).values()


def test_only_leftovers_of_an_earlier_write_are_removed_and_named(provision, folder):
    (folder / "mine.txt").write_text("einops>=0.7\n")
    assert provision("image", *STACK, "-r", "mine.txt", "-o", "out").code == 0
    (folder / "out" / "train.py").write_text("mine\n")
    with (folder / "out" / ".dockerignore").open("a") as file:
        file.write("!train.py\n")
    planned = provision("image", *STACK, "-o", "out", "--dry-run", "--json")
    assert "would remove what an earlier write left: requirements.user.txt" in planned.err
    assert planned.document["result"]["removed"] == ["requirements.user.txt"]
    assert (folder / "out" / "requirements.user.txt").exists()
    answer = provision("image", *STACK, "-o", "out", "--json")
    assert answer.document["result"]["removed"] == ["requirements.user.txt"]
    assert not (folder / "out" / "requirements.user.txt").exists()
    assert (folder / "out" / "train.py").read_text() == "mine\n"


def test_system_no_image_stands_on_is_unknown_and_the_way_out_works(provision, folder):
    words = ("--torch", "2.1", "--cuda", "12.1", "--os", "ubuntu22.04", "--label", "a=b")
    answer = provision("image", *words, "--json")
    assert answer.code == 4, answer.out
    error = answer.document["error"]
    assert error["because"][0].startswith("no official Python ")
    assert error["because"][0].endswith("stands on ubuntu22.04")
    assert any("--base IMAGE" in hint for hint in error["hints"])
    command = shlex.split(error["alternatives"][0]["command"])
    assert "--os" not in command
    assert "a=b" in command
    assert provision(*command[1:], "--print").code == 0
    assert provision("image", *words, "--base", "registry.example/ubuntu-python:3.11", "--print").code == 0
    assert not list(folder.iterdir())


def test_refusal_names_this_command_and_writes_nothing(provision, folder):
    answer = provision("image", "--torch", "2.1", "--cuda", "12.4", "--json", "--label", "a=b")
    assert answer.code == 3
    for alternative in answer.document["error"]["alternatives"]:
        words = shlex.split(alternative["command"])
        assert words[:2] == ["provision", "image"]
        assert words[words.index("--label") + 1] == "a=b"
        assert provision(*words[1:], "--print").code == 0
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["--label", "novalue"],
        ["--label", "a=b\nRUN id"],
        ["--label", "a=$(id)"],
        ["--label", "a={{b}}"],
        ["--label", "a=b", "--label", "a=c"],
        ["--base", "python:3.11\nRUN id"],
        ["--syntax", "docker/dockerfile:1\nRUN id"],
        ["--index-url", "https://mirror.example/;id"],
        ["--registry-mirror", "mirror.example/$(id)"],
        ["--non-root-uid", "0"],
        ["--non-root-uid", "root"],
        ["--non-root-uid", "９"],
        ["--frontend", "classics"],
        ["--ca-cert", "missing.pem"],
        ["--tag", "x"],
        ["--builder", "sdk"],
        ["--push"],
        ["--build", "--tag", "Bad Name"],
        ["--build", "--tag", "a;b"],
        ["--print", "--check"],
        ["--print", "-o", "out"],
        ["--label", ""],
        ["--index-url", ""],
        ["--syntax", ""],
        ["--registry-mirror", ""],
        ["--build", "--tag", ""],
        ["-r", ""],
        ["-o", "-"],
        ["-o", ""],
        ["-o", "a\nb"],
    ],
    ids=repr,
)
def test_malformed_flags_are_2_and_write_nothing(provision, folder, words):
    answer = provision("image", *STACK, *words)
    assert answer.code == 2, answer.err
    assert not list(folder.iterdir())


def test_place_nobody_can_write(provision):
    answer = provision("image", *STACK, "-o", "/proc/provision")
    assert answer.code == 5
    assert "-o DIR" in answer.err


def test_output_that_is_a_file_is_2(provision, folder):
    (folder / "out").write_text("")
    assert provision("image", *STACK, "-o", "out").code == 2


def test_requirements_of_the_user_are_taken_over(provision, folder):
    (folder / "requirements.txt").write_text("einops>=0.7\n")
    assert provision("image", *STACK, "-r", "requirements.txt").code == 0
    assert "einops>=0.7" in (folder / NAME / "requirements.user.txt").read_text()


def test_lines_that_only_the_build_resolves_are_said(provision, folder):
    assert "of yours" not in provision("image", *STACK).err
    (folder / "requirements.txt").write_text("einops>=0.7\ntimm\n")
    answer = provision("image", *STACK, "-r", "requirements.txt", "--json")
    assert "plus 2 lines of yours, resolved when the image is built" in answer.err
    assert answer.document["result"]["unlocked"] == 2
    assert 'LABEL dev.provision.unlocked="2"' in (folder / NAME / "Dockerfile").read_text()


def test_every_frontend_is_written(provision, folder):
    for frontend in ("modern", "builtin", "classic"):
        assert provision("image", *STACK, "--frontend", frontend, "-o", frontend).code == 0
    assert "--mount" not in (folder / "classic" / "Dockerfile").read_text()
    assert "COPY --link" in (folder / "modern" / "Dockerfile").read_text()


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_installer_and_init_are_those_of_the_lock(provision, folder, platform):
    answer = provision("image", "--torch", "2.9", "--platform", platform, "-o", "out", "--json")
    assert answer.code == 0, answer.out
    tools = answer.document["result"]["stack"]["image"]["tools"]
    assert [tool["name"] for tool in tools] == ["uv", "dumb-init"]
    lines = (folder / "out" / "tools.txt").read_text().splitlines()
    assert lines[1:] == [f"{tool['name']}=={tool['version']} --hash=sha256:{tool['sha256']}" for tool in tools]


def test_installers_differ_by_platform(provision, folder):
    texts = set()
    for platform in ("linux/amd64", "linux/arm64"):
        provision("image", "--torch", "2.9", "--platform", platform, "-o", platform)
        texts.add((folder / platform / "tools.txt").read_text())
    assert len(texts) == 2


def test_same_request_gives_the_same_bytes_anywhere(program, tmp_path):
    trees = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        answer = program("image", *STACK, "-o", out, PYTHONHASHSEED=seed, TZ="Asia/Tokyo" if seed == "1" else "UTC")
        assert answer.code == 0, answer.err
        trees.append(_tree(out))
    assert trees[0] == trees[1]
    assert trees[0]


# --build


@dataclass
class _Engine:
    """An engine that does as it is told and remembers what it was told."""

    frontend: str = "modern"
    name: str = "docker buildx"
    version: str = "0"
    image_store: str = "overlay2"
    fault: Exception | None = None
    asked: list[tuple[Path, BuildRequest]] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)

    def build(self, context, request, observer):
        self.asked.append((context, request))
        if self.fault is not None:
            raise self.fault
        return BuildResult(
            image=self.inspect(request.tags[0]),
            archive=None,
            export=choose_export(self.image_store, request.purpose),
            steps=(),
            seconds=1.0,
        )

    def inspect(self, image):
        return ImageInfo(id="sha256:" + "1" * 64, size_bytes=5_000_000_000, repo_digests=tuple(self.pushed))

    def run(self, image, command, *, entrypoint=None):
        findings = [{"check": "torch", "status": "pass", "detail": "2.1.2"}]
        return Completed(returncode=0, stdout=json.dumps({"findings": findings}), stderr="")

    def push(self, tag, observer):
        self.pushed.append(f"{tag}@sha256:" + "2" * 64)
        return "sha256:" + "2" * 64


@pytest.fixture
def engine(monkeypatch):
    made = _Engine()
    monkeypatch.setattr(image_command, "_find_engine", lambda builder: made)
    return made


def test_build_verifies_and_leaves_a_record(provision, folder, engine):
    answer = provision("image", *STACK, "--build", "--json")
    assert answer.code == 0, answer.out
    (context, request), *rest = engine.asked
    assert not rest
    assert context.resolve() == folder / NAME
    assert (request.tags, request.purpose, request.platform) == ((NAME,), "local", "linux/amd64")
    assert request.source_date_epoch
    record = json.loads((folder / f"{NAME}.build.json").read_text())
    assert record["lock_digest"] == answer.document["result"]["stack"]["lock_digest"]
    assert record["image"]["size_bytes"] == 5_000_000_000
    assert record["verification"][0]["status"] == "pass"
    assert answer.document["result"]["build"]["image"] == record["image"]


def test_push_pushes_every_tag_and_records_the_digests(provision, folder, engine):
    tags = ("mirror.example:5000/team/a", "mirror.example:5000/team/a:1.0")
    answer = provision("image", *STACK, "--push", "--tag", tags[0], "--tag", tags[1])
    assert answer.code == 0, answer.err
    assert engine.asked[0][1].purpose == "push"
    record = json.loads((folder / f"{NAME}.build.json").read_text())
    assert list(record["pushed"]) == list(tags)
    assert len(record["image"]["repo_digests"]) == 2
    assert f"pushed {tags[1]}@sha256:" in answer.err


def test_older_engine_gets_a_dockerfile_it_knows_and_a_person_is_told(provision, folder, engine):
    engine.frontend = "builtin"
    answer = provision("image", *STACK, "--build")
    assert answer.code == 0
    assert "written for the `builtin` frontend" in answer.err
    assert "COPY --link" not in (folder / NAME / "Dockerfile").read_text()
    answer = provision("image", *STACK, "--build", "--frontend", "classic")
    assert "written for" not in answer.err
    assert "--mount" not in (folder / NAME / "Dockerfile").read_text()


def test_certificates_reach_the_context(provision, folder, engine):
    (folder / "ca.pem").write_text(CERTIFICATE)
    assert provision("image", *STACK, "--build", "--ca-cert", "ca.pem").code == 0
    assert (engine.asked[-1][0] / "provision-ca.crt").read_text() == CERTIFICATE
    answer = provision("image", *STACK)
    assert "removed what an earlier write left: provision-ca.crt" in answer.err
    assert not (folder / NAME / "provision-ca.crt").exists()


def test_failed_build_keeps_the_context_and_writes_no_record(provision, folder, engine):
    engine.fault = ActionFailedError("the build failed at step 3")
    answer = provision("image", *STACK, "--build")
    assert answer.code == 5
    assert "step 3" in answer.err
    assert (folder / NAME / "Dockerfile").is_file()
    assert not (folder / f"{NAME}.build.json").exists()


def test_context_is_written_where_there_is_no_engine(provision, folder, monkeypatch):
    def absent(_: str) -> None:
        raise MissingDependencyError("no way to build an image was found")

    monkeypatch.setattr(image_command, "_find_engine", absent)
    assert provision("image", *STACK, "--build").code == 7
    assert (folder / NAME / "Dockerfile").is_file()


def test_no_engine_on_this_machine_is_7(program, tmp_path):
    variables = {"PATH": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    for builder in ("auto", "sdk", "buildx"):
        answer = program("image", *STACK, "--build", "--builder", builder, **variables)
        assert answer.code == 7, answer.err
        assert answer.err.rpartition("error: ")[2].count("hint: ") > 0


# --fetch-hashes


def test_hashes_are_completed_before_anything_is_written(provision, folder, monkeypatch):
    from provision.build import hashes

    asked = []

    def complete(stack, *, index_url, address, ca_cert, accounts):
        assert not accounts.is_told
        asked.append((stack.name, index_url, address.url, address.proxy, ca_cert))
        return stack, ("torch 1: nothing is known",)

    monkeypatch.setattr(hashes, "complete_hashes", complete)
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.example:3128")
    answer = provision("image", *STACK, "--fetch-hashes", "--index-url", "https://mirror.example/simple")
    assert answer.code == 0
    assert asked == [
        (NAME, "https://mirror.example/simple", "https://pip.example/simple", "http://proxy.example:3128", None)
    ]
    assert "warning: torch 1: nothing is known" in answer.err


def test_index_that_lacks_everything_is_7_and_nothing_is_written(provision, folder, facts):
    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>Welcome!</html>")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/simple"
        answer = provision("image", *CU118, "--fetch-hashes", "--index-url", address, "--data-dir", facts)
        server.shutdown()
        thread.join()
    assert answer.code == 7, answer.out
    assert "lists no file at all" in answer.document["error"]["because"][0]
    assert not (folder / "out").exists()


def test_fetching_hashes_is_no_advice_to_who_just_did(provision, facts, monkeypatch):
    from provision.build import hashes

    monkeypatch.setattr(hashes, "complete_hashes", lambda stack, **_: (stack, ()))
    answer = provision("image", *CU118, "--fetch-hashes", "--data-dir", facts)
    assert "packages have no known hash and are installed unverified" in answer.err
    assert "`--fetch-hashes`" not in answer.err


class _Page(BaseHTTPRequestHandler):
    """A page of an index that has one wheel of whatever is asked for, its hash the same each time."""

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        version = self.server.versions[name]
        file = f"{name}-{version}-cp311-cp311-linux_x86_64.whl".replace("+", "%2B")
        page = f'<a href="{file}#sha256={"f" * 64}">{file}</a>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        pass


CU118 = ("--torch", "2.1", "--cuda", "11.8", "--python", "3.11", "--json", "-o", "out")


@pytest.fixture
def facts(tmp_path):
    """A copy of the facts that knows no hash of torchvision's wheels."""
    copy = tmp_path / "compat"
    shutil.copytree(Matrix().data_dir, copy)
    file = copy / "wheels" / "torchvision.json"
    document = json.loads(file.read_text())
    for release in document["releases"]:
        for wheel in release["wheels"]:
            wheel.pop("sha256", None)
    file.write_text(json.dumps(document))
    return copy


def test_packages_without_a_hash_are_counted(provision, folder, facts):
    answer = provision("image", *CU118, "--data-dir", facts)
    assert answer.code == 0, answer.out
    count = answer.document["result"]["unverified"]
    lines = [
        line
        for path in (folder / "out").glob("requirements.unverified*")
        for line in path.read_text().splitlines()
        if not line.startswith("#")
    ]
    assert len(lines) == count
    assert count >= 1
    assert f"{count} of " in answer.err
    assert "--fetch-hashes" in answer.err


def test_fetched_hashes_reach_the_lock_and_the_requirements(provision, folder, facts):
    stack = provision("image", *CU118, "--data-dir", facts, "--dry-run").document["result"]["stack"]
    bare = [item for item in stack["image"]["packages"] if item["sha256"] is None]
    torch = facts / "frameworks" / "torch.toml"
    address = Matrix().settings("frameworks/torch.toml")["wheel_index"].value
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        server.versions = {item["name"]: item["version"] for item in bare}
        here = f"http://127.0.0.1:{server.server_port}/whl/{{variant}}"
        torch.write_text(torch.read_text().replace(f'"{address}"', f'"{here}"'))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        answer = provision("image", *CU118, "--fetch-hashes", "--data-dir", facts)
        server.shutdown()
        thread.join()
    assert answer.code == 0, answer.out
    assert answer.document["result"]["unverified"] == 0
    assert not list((folder / "out").glob("requirements.unverified*"))
    locked = (folder / "out" / "requirements.lock.txt").read_text()
    assert bare
    for item in bare:
        assert f"{item['name']} @ http://127.0.0.1:" in locked
    assert locked.count("f" * 64) == len(bare)


def test_unwritable_folder_is_left_as_it_was(provision, folder, monkeypatch):
    real = Path.chmod
    calls = []

    def full(path: Path, mode: int) -> None:
        calls.append(path)
        if len(calls) == 5:
            raise OSError(28, "No space left on device")
        real(path, mode)

    monkeypatch.setattr(Path, "chmod", full)
    answer = provision("image", *STACK)
    assert answer.code == 5
    assert "No space left on device" in answer.err
    assert not list(folder.iterdir())


@pytest.mark.parametrize("python", ["3.6", "3.7"])
def test_python_that_the_build_cannot_install_on_is_refused_with_the_reason(provision, folder, python):
    answer = provision("image", "--torch", "1.10", "--python", python)
    assert answer.code == 3
    assert f"no image can be built for Python {python}" in answer.err
    assert f"has no wheel for Python {python}" in answer.err
    assert not _tree(folder)
    assert provision("image", "--torch", "1.10", "--python", "3.8").code == 0


def test_a_python_is_chosen_that_can_be_built_on(provision, folder):
    answer = provision("image", "--torch", "1.7", "--json")
    assert answer.code == 0
    stack = answer.document["result"]["stack"]
    assert stack["python"] == "3.8"
    assert "has no wheel for 3.6 and 3.7" in "".join(reason["because"] for reason in stack["reasons"])
    assert provision("resolve", "--torch", "1.7", "--json").document["result"]["stack"]["python"] == "3.7"


def test_a_python_that_is_named_and_cannot_be_built_on_is_refused_with_the_next_that_can(provision, folder):
    answer = provision("image", "--torch", "1.7", "--python", "3.7")
    assert answer.code == 3
    assert "hint: `provision image --torch 1.7 --python 3.8` works: Python 3.8" in answer.err
    assert not _tree(folder)


def test_foreign_base_is_warned_of(provision, folder):
    answer = provision("image", "--torch", "2.5", "--base", "nvcr.io/nvidia/pytorch:25.01-py3")
    assert answer.code == 0
    assert "brings torch 2.6.0a0+ecf3bae40a, CUDA 12.8.0 and Python 3.12" in answer.err


def test_an_image_without_cuda(provision, tmp_path):
    answer = provision("image", "--torch", "2.6", "--cpu", "-o", tmp_path / "out")
    assert answer.code == 0, answer.err
    text = (tmp_path / "out/Dockerfile").read_text()
    assert "NVIDIA" not in text
    assert "DRIVER" not in text
    assert "dev.provision.cuda" not in text
    expected = json.loads((tmp_path / "out/expect.json").read_text())
    assert (expected["cuda"], expected["driver"]) == (None, {"minimum": None})
    assert "torch==2.6.0+cpu" in (tmp_path / "out/requirements.unverified.txt").read_text()
    assert provision("image", "--torch", "2.6", "--cpu", "-o", tmp_path / "out", "--check").code == 0
    assert provision("image", "--torch", "2.6", "--cpu", "-o", tmp_path / "out", "--locked").code == 0
