"""Inputs that only a build can prove: secrets of indexes, and files of this machine."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from provision.build.code import parse_copy, write_code
from provision.build.engine import BuildRequest, Engine
from provision.build.local import Local, find_local, write_local
from provision.build.uv import Place, Question, Uv, find_uv
from provision.cli.image.logins import build_secrets
from provision.errors import ProvisionError
from provision.generate.image import ImageOptions, local_hashes, render_image
from provision.generate.write import write_artifacts
from provision.index.account import Accounts
from provision.records import replace
from provision.resolve.requirements import LOCAL, parse_line
from provision.resolve.stack import BaseImage, LockedPackage, ProjectBuild, SourceBuild, Stack

WORD = "s3cret-w0rd-of-nobody"


def run(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done


def places_of(word: str, folder: Path, tag: str) -> list[str]:
    """Return where a word stands: in a context, in the history or the settings of an image, or in one of its layers."""
    found = [str(path) for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]
    for part in ("history", "inspect"):
        words = ("docker", "history", "--no-trunc", tag) if part == "history" else ("docker", "image", "inspect", tag)
        found += [part] if word in run(*words).stdout else []
    saved = folder.with_name("saved.tar")
    run("docker", "save", f"--output={saved}", tag)
    with tarfile.open(saved) as archive:
        for member in archive:
            file = archive.extractfile(member)
            content = file.read() if file is not None else b""
            found += [member.name] if word.encode() in content else []
            assert "root/.netrc" not in _names(content), "the place of the secret is in a layer"
    return found


def _names(content: bytes) -> list[str]:
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as layer:
            return layer.getnames()
    except tarfile.TarError:
        return []


BACKEND = """
import zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "built-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        wheel.writestr("built.py", "value = 2\\n")
        wheel.writestr("built-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        wheel.writestr("built-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("built-1.0.dist-info/RECORD", "")
    return name
"""


def write_source(path: Path, requires: tuple[str, ...] = (), backend: str = BACKEND) -> None:
    """Write the source of a package, which needs nothing to be built unless said."""
    table = f'[build-system]\nrequires = {json.dumps(requires)}\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {
        "pyproject.toml": table,
        "backend.py": backend,
        "PKG-INFO": "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"built-1.0/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("frontend", ["modern", "builtin"])
def test_a_wheel_and_a_source_of_this_machine_are_installed_by_hash(
    buildx_engine: Engine, sample_stack: Stack, sample_index, tmp_path: Path, tag: str, frontend: str
) -> None:
    assert sample_stack.image is not None
    (sample,) = sample_stack.image.packages
    source = tmp_path / "built-1.0.tar.gz"
    write_source(source)
    wheel = sample_index[1]["sample"]
    packages = (
        LockedPackage(
            name="built",
            version="1.0",
            index="pypi",
            file=source.name,
            sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
            url=f"{LOCAL}{source.name}",
            layer="user",
            why="test",
            is_source=True,
        ),
        replace(sample, layer="user", url=f"{LOCAL}{wheel.name}"),
    )
    image = replace(
        sample_stack.image,
        packages=packages,
        user_requirements=("sample", "built"),
        resolved_before="2026-11-21T00:00:00Z",
        build_base=sample_stack.image.base,
    )
    stack = replace(sample_stack, image=image, packages={"built": "1.0", "sample": "1.0"})
    folder = tmp_path / "context"
    folder.mkdir()
    write_artifacts(folder, render_image(stack, ImageOptions(index_url=sample_index[0], frontend=frontend)))
    local = Local(files={source.name: source, wheel.name: wheel})
    write_local(folder, find_local(folder, local_hashes(image), local), {}, mtime=1_700_000_000)
    buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host", is_cached=False), lambda *_: None)
    program = "import sample, built; print(sample.value, built.value)"
    assert run("docker", "run", "--rm", tag, "python", "-c", program).stdout == "1 2\n"
    assert run("docker", "run", "--rm", tag, "ls", "/build", check=False).returncode != 0


def test_a_project_is_installed_as_a_wheel_that_the_build_makes(
    buildx_engine: Engine, sample_stack: Stack, sample_index, tmp_path: Path, tag: str
) -> None:
    assert sample_stack.image is not None
    source = tmp_path / "app"
    source.mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / ".env").write_text(WORD)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    stack = replace(sample_stack, image=replace(sample_stack.image, build_base=sample_stack.image.base))
    layers = []
    for text in (BACKEND, BACKEND.replace("value = 2", "value = 3")):
        (source / "backend.py").write_text(text)
        folder = tmp_path / str(len(layers)) / "context"
        folder.mkdir(parents=True)
        options = ImageOptions(index_url=sample_index[0], projects=("app/",))
        write_artifacts(folder, render_image(stack, options))
        write_code(folder, (parse_copy(str(source)),), mtime=1_700_000_000)
        built = buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host"), lambda *_: None)
        assert built.image is not None
        layers.append(built.image.layers)
        assert places_of(WORD, folder, tag) == []
        found = run("docker", "run", "--rm", tag, "python", "-c", "import sample, built; print(built.value)")
        assert found.stdout == f"{len(layers) + 1}\n"
    assert layers[0][:-1] == layers[1][:-1]
    assert layers[0][-1] != layers[1][-1]
    assert run("docker", "run", "--rm", tag, "sh", "-c", "ls -d /wheels /projects", check=False).stdout == ""


TOOL_BACKEND = BACKEND.replace("import zipfile", "import sample, zipfile")


def test_a_project_is_built_with_locked_tools_and_nothing_else(
    buildx_engine: Engine, sample_stack: Stack, sample_index, tmp_path: Path, tag: str
) -> None:
    """The backend imports a tool that only its locked environment has; what no lock has is not looked for."""
    assert sample_stack.image is not None
    source = tmp_path / "app"
    source.mkdir()
    (source / "backend.py").write_text(TOOL_BACKEND)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["sample"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )

    def build(packages: tuple[LockedPackage, ...]) -> None:
        project_build = ProjectBuild(requires=("sample",), packages=packages)
        image = replace(sample_stack.image, build_base=sample_stack.image.base, project_build=project_build)
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / "context"
        folder.mkdir(parents=True)
        options = ImageOptions(index_url=sample_index[0], projects=("app/",))
        write_artifacts(folder, render_image(replace(sample_stack, image=image), options))
        write_code(folder, (parse_copy(str(source)),), mtime=1_700_000_000)
        buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host", is_cached=False), lambda *_: None)

    tools = sample_stack.image.packages
    build(tools)
    assert run("docker", "run", "--rm", tag, "python", "-c", "import built; print(built.value)").stdout == "2\n"
    assert run("docker", "run", "--rm", tag, "sh", "-c", "ls -d /wheels /projects", check=False).stdout == ""
    # The index has it, and the build may reach the index.
    with pytest.raises(ProvisionError):
        build(())
    with pytest.raises(ProvisionError):
        build(tuple(replace(tool, sha256="0" * 64) for tool in tools))


def test_a_source_is_built_with_locked_tools_and_nothing_else(
    buildx_engine: Engine, sample_stack: Stack, sample_index, tmp_path: Path, tag: str
) -> None:
    """The backend imports a tool that only its locked environment has; what no lock has is not looked for."""
    assert sample_stack.image is not None
    source = tmp_path / "built-1.0.tar.gz"
    write_source(source, requires=("sample",), backend=TOOL_BACKEND)
    built = LockedPackage(
        name="built",
        version="1.0",
        index="pypi",
        file=source.name,
        sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        url=f"{LOCAL}{source.name}",
        layer="user",
        why="test",
        is_source=True,
    )

    def build(tools: tuple[LockedPackage, ...]) -> str:
        image = replace(
            sample_stack.image,
            packages=(built,),
            user_requirements=("built",),
            resolved_before="2026-11-21T00:00:00Z",
            build_base=sample_stack.image.base,
            source_builds=(SourceBuild(names=("built",), requires=("sample",), packages=tools),),
        )
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / "context"
        folder.mkdir(parents=True)
        stack = replace(sample_stack, image=image, packages={"built": "1.0"})
        write_artifacts(folder, render_image(stack, ImageOptions(index_url=sample_index[0])))
        local = Local(files={source.name: source})
        write_local(folder, find_local(folder, local_hashes(image), local), {}, mtime=1_700_000_000)
        buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host", is_cached=False), lambda *_: None)
        return run("docker", "run", "--rm", tag, "python", "-c", "import built; print(built.value)").stdout

    assert build(sample_stack.image.packages) == "2\n"
    missing = run("docker", "run", "--rm", tag, "python", "-c", "import sample", check=False)
    assert "No module named 'sample'" in missing.stderr
    with pytest.raises(ProvisionError):
        build(())
    with pytest.raises(ProvisionError):
        build(tuple(replace(tool, sha256="0" * 64) for tool in sample_stack.image.packages))


def test_a_repository_behind_ssh_is_locked_and_built_with_the_agents_key(
    buildx_engine: Engine,
    sample_stack: Stack,
    sample_index,
    full_base: str,
    ssh_host: str,
    tmp_path: Path,
    tag: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    (work / "backend.py").write_text(BACKEND)
    (work / "pyproject.toml").write_text(
        '[project]\nname = "built"\nversion = "1.0"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    run("git", "-C", work, "init", "--quiet", "--initial-branch=main")
    run("git", "-C", work, "add", ".")
    run("git", "-C", work, "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "--quiet", "-m", "1")
    line = f"built @ git+ssh://{ssh_host}{work}@main"
    assert parse_line(line, "here").name == "built"
    question = Question(lines=(line,), place=Place(python="3.11", machine="x86_64", glibc="2.28"))
    (found,) = Uv(find_uv(), index_url=sample_index[0]).ask(question)
    commit = run("git", "-C", work, "rev-parse", "HEAD").stdout.strip()
    assert found.url == f"git+ssh://{ssh_host}{work}@{commit}"

    assert sample_stack.image is not None
    package = LockedPackage(
        name="built", version="1.0", index="pypi", url=found.url, layer="user", why="test", is_source=True
    )
    image = replace(
        sample_stack.image,
        packages=(package, *sample_stack.image.packages),
        user_requirements=(line,),
        resolved_before="2026-11-21T00:00:00Z",
        build_base=BaseImage(ref=full_base),
    )
    stack = replace(sample_stack, image=image, packages={"built": "1.0", "sample": "1.0"})
    folder = tmp_path / "context"
    folder.mkdir()
    write_artifacts(folder, render_image(stack, ImageOptions(index_url=sample_index[0])))
    assert "--ssh default" in (folder / "Dockerfile").read_text()
    with pytest.raises(ProvisionError):
        buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host"), lambda *_: None)
    buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host", has_ssh=True), lambda *_: None)
    assert run("docker", "run", "--rm", tag, "python", "-c", "import built; print(built.value)").stdout == "2\n"


@pytest.fixture
def private(sample_index, serve_folder, buildx_engine):
    """The index, for one user alone."""
    folder = next(iter(sample_index[1].values())).parents[2]
    with serve_folder(folder, f"me:{WORD}") as url:
        yield f"{url}/simple"


def test_a_build_gets_a_password_as_a_secret_and_leaves_it_nowhere(
    buildx_engine: Engine, sample_stack: Stack, private: str, tmp_path: Path, tag: str
) -> None:
    accounts = Accounts({}, tmp_path)
    url = accounts.take(private.replace("://", f"://me:{WORD}@"), "--index-url")
    folder = tmp_path / "context"
    folder.mkdir()
    options = ImageOptions(index_url=url, logins=accounts.known(["127.0.0.1"]))
    write_artifacts(folder, render_image(sample_stack, options))
    log = tmp_path / "log"
    with build_secrets(options.logins, accounts) as secrets:
        request = BuildRequest(tags=(tag,), network="host", secrets=secrets, log_path=log, is_cached=False)
        buildx_engine.build(folder, request, lambda *_: None)
    assert run("docker", "run", "--rm", tag, "python", "-c", "import sample; print(sample.value)").stdout == "1\n"
    assert places_of(WORD, folder, tag) == []
    assert WORD not in log.read_text()
    # What is looked for can be found.
    assert places_of("sample", folder, tag)


@pytest.mark.parametrize(
    ("account", "said"),
    [(None, "none were found here"), ("me:wr0ng", "or it requires other credentials")],
    ids=["none", "another"],
)
def test_a_build_without_the_right_password_says_so(
    buildx_engine: Engine, sample_stack: Stack, private: str, tmp_path: Path, tag: str, account: str | None, said: str
) -> None:
    accounts = Accounts({}, tmp_path)
    if account is not None:
        accounts.take(private.replace("://", f"://{account}@"), "--index-url")
    folder = tmp_path / "context"
    folder.mkdir()
    options = ImageOptions(index_url=private, logins=("127.0.0.1",))
    write_artifacts(folder, render_image(sample_stack, options))

    def build() -> None:
        with build_secrets(options.logins, accounts) as secrets:
            request = BuildRequest(tags=(tag,), network="host", secrets=secrets, is_cached=False)
            buildx_engine.build(folder, request, lambda *_: None)

    with pytest.raises(ProvisionError) as caught:
        build()
    error = caught.value
    assert said in f"{error.message} {error.because}"
    assert "wr0ng" not in f"{error.message} {error.because} {error.hints}"
    assert error.hints
