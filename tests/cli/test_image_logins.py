"""Indexes that want a user and a password: used for the lock, given to the build as a secret, shown nowhere."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import subprocess
import threading
from pathlib import Path

import pytest

from provision.cli.image.logins import has_ssh, refuse_ssh
from provision.errors import MissingDependencyError, UsageError
from provision.generate.image import ImageOptions, render_image
from provision.index.account import Accounts
from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import BaseImage, LockedPackage

WORD = "s3cret-w0rd"
MOUNT = "--mount=type=secret,id=netrc,target=/root/.netrc,required=true"


@pytest.fixture
def image(provision, index, monkeypatch):
    """The command on a machine whose pip is told of the index."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setenv("UV_OFFLINE", "0")
    return lambda *words: provision("image", *words)


@pytest.fixture
def private(index, serve_index, monkeypatch, tmp_path):
    """A further index that lets in one user, and no netrc file of the person who runs the tests."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    serve_index.account = f"me:{WORD}"
    serve_index.add("demo", "1.0", "other")
    index.add("other", "1.0")
    # Of one host there can be but one account.
    serve_index.url = serve_index.url.replace("127.0.0.1", "localhost")
    return serve_index


def signed(index, account=f"me:{WORD}"):
    return index.url.replace("://", f"://{account}@")


def everything(folder, *texts):
    return "".join([path.read_text() for path in Path(folder).rglob("*") if path.is_file()] + list(texts))


@pytest.mark.parametrize("place", ["address", "variable", "project", "netrc", "named", "machine"])
def test_an_index_with_a_password_is_asked_and_the_password_is_nowhere(image, private, place, monkeypatch):
    line = {
        "address": f"--extra-index-url {signed(private)}\ndemo\n",
        "variable": f"--extra-index-url {signed(private, 'me:${WORD_OF_MINE}')}\ndemo\n",
        "netrc": f"--extra-index-url {private.url}\ndemo\n",
        "machine": "demo\n",
    }.get(place)
    monkeypatch.setenv("WORD_OF_MINE", WORD)
    words = ("-r", "r.txt", "--torch", "2.4.1")
    if line is not None:
        Path("r.txt").write_text(line)
    else:
        url = private.url if place == "named" else signed(private)
        Path("pyproject.toml").write_text(
            '[project]\nname = "app"\ndependencies = ["torch==2.4.1", "demo"]\n'
            f'[[tool.uv.index]]\nname = "my-own"\nurl = "{url}"\n'
        )
        words = ("--project", ".")
    if place == "netrc":
        Path("netrc").write_text(f"machine localhost login me password {WORD}\n")
    if place == "named":
        monkeypatch.setenv("UV_INDEX_MY_OWN_USERNAME", "me")
        monkeypatch.setenv("UV_INDEX_MY_OWN_PASSWORD", WORD)
    if place == "machine":
        monkeypatch.setenv("UV_INDEX", f"own={private.url}")
        monkeypatch.setenv("UV_INDEX_OWN_USERNAME", "me")
        monkeypatch.setenv("UV_INDEX_OWN_PASSWORD", WORD)
    answer = image(*words, "-o", "out")
    assert answer.code == 0, answer.err
    assert "the build needs credentials for localhost" in answer.err
    lock = json.loads(Path("out", "provision.lock").read_text())
    package = next(item for item in lock["image"]["packages"] if item["name"] == "demo")
    assert package["url"].startswith(f"{private.url}/demo/")
    assert json.loads(Path("out", "provision.options.json").read_text())["logins"] == ["localhost"]
    text = Path("out", "Dockerfile").read_text()
    assert text.count(MOUNT) == 1
    assert '--secret "id=netrc,src=$HOME/.netrc"' in text
    assert WORD not in everything("out", answer.out, answer.err)
    assert image(*words, "-o", "out", "--check").code == 0
    assert image("-o", "out", "--locked").code == 0


def test_a_wrong_password_is_told_with_the_index_and_not_the_password(image, private):
    Path("r.txt").write_text(f"--extra-index-url {signed(private, 'me:wr0ng')}\ndemo\n")
    answer = image("--torch", "2.4.1", "-r", "r.txt", "-o", "out")
    assert answer.code == 7
    assert f"{private.url} requires credentials: 401 Unauthorized" in answer.err
    assert "UV_INDEX_NAME_USERNAME" in answer.err
    assert "wr0ng" not in answer.out + answer.err
    assert not Path("out").exists()


def test_an_index_for_everything_may_want_a_password(provision, index, monkeypatch, tmp_path):
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    index.account = f"me:{WORD}"
    index.add("demo", "1.0")
    Path("r.txt").write_text("demo\n")
    words = ("--torch", "2.4.1", "-r", "r.txt", "--index-url", signed(index), "-o", "out")
    answer = provision("image", *words)
    assert answer.code == 0, answer.err
    assert WORD not in everything("out", answer.out, answer.err)
    # Every step that asks the index: the one that brings uv, and each layer.
    text = Path("out", "Dockerfile").read_text()
    assert text.count(MOUNT) == text.count(f"--default-index {index.url}") + text.count(f"--index-url {index.url}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--frontend", "classic"), "the classic builder has no build secrets"),
        (("--format", "apptainer"), "`--format apptainer` has no build secret for"),
        (("--format", "devcontainer"), "`--format devcontainer` has no build secret for"),
        (("--format", "bake"), "`--format bake` has no build secret for"),
    ],
)
def test_what_has_no_secrets_is_refused_by_name(image, private, words, said):
    Path("r.txt").write_text(f"--extra-index-url {signed(private)}\ndemo\n")
    answer = image("--torch", "2.4.1", "-r", "r.txt", "-o", "out", *words)
    assert answer.code == 2
    assert said in answer.err
    assert "localhost" in answer.err
    assert WORD not in answer.err
    assert not Path("out").exists()


def test_two_passwords_for_one_host_are_refused(provision, private):
    Path("r.txt").write_text(
        f"--extra-index-url {signed(private)}\n--extra-index-url {signed(private, 'a:b')}/x\ndemo\n"
    )
    answer = provision("resolve", "-r", "r.txt", "--torch", "2.4.1")
    assert answer.code == 2
    assert "r.txt, line 2: localhost has two users or passwords" in answer.err
    assert WORD not in answer.err


def test_a_host_that_is_not_asked_gets_no_secret(image, index, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine elsewhere.example login me password x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    index.add("demo", "1.0")
    Path("r.txt").write_text("demo\n")
    assert image("--torch", "2.4.1", "-r", "r.txt", "-o", "out").code == 0
    assert "type=secret" not in Path("out", "Dockerfile").read_text()


def test_a_private_repository_is_read_and_built_with_the_same_secret():
    stack = solve(parse_request({"torch": "2.4.1", "requirements": ["x @ git+https://git.example/x@main"]}), Matrix())
    files = {item.path: item.text for item in render_image(stack, ImageOptions(logins=("git.example",)))}
    assert files["Dockerfile"].count(MOUNT) == 1


@pytest.mark.parametrize("password", ["plain", "with blank", 'quote"d', "back\\slash", "#hash", "", "p@ss:w/rd%"])
def test_a_netrc_file_holds_every_password_as_pip_reads_it(tmp_path, password):
    from urllib.parse import quote

    accounts = Accounts({}, tmp_path)
    stripped = accounts.take(f"demo @ https://me:{quote(password, safe='')}@own.example:8080/x.whl", "here")
    assert stripped == "demo @ https://own.example:8080/x.whl"
    (tmp_path / ".netrc").write_text(accounts.netrc())
    assert Accounts({}, tmp_path).find("own.example") == ("me", password)


@pytest.mark.parametrize("sign", ["/", "#", "?", " "])
@pytest.mark.parametrize(
    "line",
    [
        "demo @ https://me:{}@own.example/demo-1.0-py3-none-any.whl",
        "demo @ git+https://me:{}@own.example/demo.git@main",
        "-e git+https://me:{}@own.example/demo.git@main#egg=demo",
        "--extra-index-url https://me:{}@own.example/simple",
        "-r https://me:{}@own.example/other.txt",
        "demo==1.0 --config-settings=https://me:{}@own.example/x",
    ],
)
def test_a_password_that_is_not_encoded_is_refused_and_shown_nowhere(image, line, sign):
    Path("r.txt").write_text(line.format(f"s3{sign}{WORD}") + "\n")
    result = image("--torch", "2.4.1", "-r", "r.txt", "-o", "out", "--offline", "--json")
    assert result.code == 2
    assert WORD not in result.out + result.err
    assert not Path("out").exists()


def test_an_address_of_an_index_with_such_a_password_is_refused_with_the_way_out(image):
    result = image("--torch", "2.4.1", "--index-url", f"https://me:s3/{WORD}@own.example/simple", "-o", "out")
    assert result.code == 2
    assert "`%2F` for `/`" in result.err
    assert WORD not in result.out + result.err


@pytest.mark.parametrize(
    "text", ["https://own.example:8080/a@main", "see https://own.example: a@b", "git+ssh://git@own.example/a@main"]
)
def test_an_at_sign_behind_the_host_ends_no_password(text, tmp_path):
    assert Accounts({}, tmp_path).take(text, "here") == text


def test_the_secret_of_a_build_holds_its_hosts_alone_and_goes_with_the_build(tmp_path):
    from provision.cli.image.logins import build_secrets

    (tmp_path / ".netrc").write_text("machine a.example login a password 1\nmachine b.example login b password 2\n")
    accounts = Accounts({}, tmp_path)
    with build_secrets(["a.example"], accounts) as secrets:
        path = secrets["netrc"]
        assert path.read_text() == "machine a.example login a password 1\n"
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    with pytest.raises(Exception, match=r"the build needs credentials for c\.example, and none were found"):
        build_secrets(["c.example"], accounts).__enter__()


def test_a_repository_that_wants_a_password_is_read_with_that_of_its_address(tmp_path, monkeypatch):
    from provision.build.uv import Place, Question, Uv, find_uv

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    work, bare = tmp_path / "work", tmp_path / "served" / "demo.git"
    work.mkdir()
    (work / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "1.0"\ndependencies = []\n')
    for words in (
        ("init", "--quiet", "--initial-branch=main", "."),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "--quiet", "-m", "1"),
        ("clone", "--quiet", "--bare", ".", str(bare)),
        ("--git-dir", str(bare), "update-server-info"),
    ):
        subprocess.run(["git", *words], cwd=work, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=work, check=True, capture_output=True, text=True).stdout

    class Guarded(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.headers.get("Authorization") != f"Basic {base64.b64encode(f'me:{WORD}'.encode()).decode()}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            super().do_GET()

        def log_message(self, *_):
            pass

    handler = functools.partial(Guarded, directory=str(bare.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        accounts = Accounts({}, tmp_path)
        place = f"127.0.0.1:{server.server_port}"
        line = accounts.take(f"demo @ git+http://me:{WORD}@{place}/demo.git@main", "here")
        assert line == f"demo @ git+http://{place}/demo.git@main"
        question = Question(lines=(line,), place=Place(python="3.11", machine="x86_64", glibc="2.28"))
        (found,) = Uv(find_uv(), index_url=f"http://{place}/simple", accounts=accounts).ask(question)
        server.shutdown()
    assert found.url == f"git+http://{place}/demo.git@{commit.strip()}"


@pytest.fixture
def behind_ssh():
    """A stack with a commit of a repository that is read with a key."""
    stack = solve(parse_request({"torch": "2.4.1"}), Matrix())
    package = LockedPackage(
        name="demo",
        version="1.0",
        index="pypi",
        url=f"git+ssh://git@git.example/team/demo.git@{'a' * 40}",
        layer="user",
        why="test",
        is_source=True,
    )
    image = replace(stack.image, packages=(*stack.image.packages, package), resolved_before="2026-11-21T00:00:00Z")
    return replace(stack, image=replace(image, build_base=BaseImage(ref="python:3.11-bookworm")))


def test_a_repository_behind_ssh_is_built_with_the_agent_of_who_builds(behind_ssh):
    text = {item.path: item.text for item in render_image(behind_ssh)}["Dockerfile"]
    assert "--ssh default --tag" in text
    stage = text.partition(" AS compile\n")[2].partition("\nFROM")[0]
    assert text.count("--mount=type=ssh,required=true") == stage.count("--mount=type=ssh,required=true") == 1
    assert "GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=accept-new' " in stage
    plain = render_image(solve(parse_request({"torch": "2"}), Matrix()))
    assert "ssh" not in next(item.text for item in plain if item.path == "Dockerfile")


@pytest.mark.parametrize("form", ["apptainer", "devcontainer", "bake"])
def test_a_form_without_the_agent_is_refused(behind_ssh, form):
    with pytest.raises(UsageError, match=f"demo is read with a key of the ssh agent, which `--format {form}`"):
        refuse_ssh(form, behind_ssh)
    refuse_ssh(form, solve(parse_request({"torch": "2.4.1"}), Matrix()))


def test_a_build_without_an_agent_is_told_before_it_starts(behind_ssh, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(MissingDependencyError, match="no agent runs here"):
        has_ssh(behind_ssh)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert has_ssh(behind_ssh)


def test_a_repository_behind_ssh_is_not_left_to_a_build_without_the_agent(provision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.txt").write_text("demo @ git+ssh://git@git.example/team/demo.git\n")
    answer = provision("image", "--torch", "2.4.1", "-r", "r.txt", "--offline", "-o", "out")
    assert answer.code == 2
    assert "is read with a key of the ssh agent" in answer.err
    assert "leave `--offline` out" in answer.err
    assert provision("resolve", "--torch", "2.4.1", "-r", "r.txt").code == 0
