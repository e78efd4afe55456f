"""What is the user's own in an image, and its first process, whether an engine built it or nothing was run for it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provision.build.code import parse_copy, write_code
from provision.build.engine import BuildRequest, Engine
from provision.build.oci.codec import find_codec
from provision.build.oci.image import OciJob, write_image
from provision.build.oci.store import Store
from provision.build.oci.target import Formats
from provision.generate.image import ImageOptions, make_recipe, render_image
from provision.generate.write import write_artifacts
from provision.records import replace
from provision.resolve.stack import Stack

EPOCH = 1_700_000_000
ORPHANS = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.1)
        os._exit(0)
    os.wait()
time.sleep(0.5)
found = [open(f"/proc/{item}/stat").read() for item in os.listdir("/proc") if item.isdigit()]
states = [text.rsplit(")", 1)[1].split()[0] for text in found]
print("zombies", states.count("Z"))
"""
WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
time.sleep(60)
"""


def run(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done


def write_context(stack: Stack, options: ImageOptions, folder: Path, source: Path) -> None:
    folder.mkdir()
    write_artifacts(folder, render_image(stack, options))
    write_code(folder, (parse_copy(str(source)),), mtime=EPOCH)


@pytest.fixture(scope="module", params=["docker", "oci"])
def image(
    request: pytest.FixtureRequest,
    buildx_engine: Engine,
    sample_stack: Stack,
    sample_index: tuple[str, dict[str, Path]],
    python_base: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """An image with code and a command of the user's, made in both ways."""
    folder = tmp_path_factory.mktemp("own")
    source = folder / "src"
    source.mkdir()
    (source / "app.py").write_text("import sample\nprint('the app runs', sample.value)\n")
    (source / ".env").write_text("TOKEN=1\n")
    options = ImageOptions(
        index_url=sample_index[0], command=("python", "src/app.py"), copies={"src/": "/workspace/src/"}
    )
    tag = f"provision-test/own:{request.param}"
    write_context(sample_stack, options, folder / "context", source)
    if request.param == "docker":
        buildx_engine.build(folder / "context", BuildRequest(tags=(tag,), network="host"), lambda *_: None)
    else:
        saved = folder / "base.tar"
        run("docker", "save", f"--output={saved}", python_base)
        written = write_image(
            OciJob(
                stack=sample_stack,
                recipe=make_recipe(sample_stack, options),
                base=saved,
                target=folder / "image.tar",
                is_folder=False,
                tags=(tag,),
                codec=find_codec("gzip"),
                store=Store(folder / "cache"),
                formats=Formats(layout="1.0.0", hub="docker.io"),
                index_url=sample_index[0],
                code=folder / "context" / "code",
            )
        )
        run("docker", "load", f"--input={written.target}")
    yield tag
    run("docker", "image", "rm", "--force", tag, check=False)


def test_the_command_runs_the_code_that_is_the_users(image: str) -> None:
    assert run("docker", "run", "--rm", image).stdout == "the app runs 1\n"
    listed = run("docker", "run", "--rm", image, "find", "/workspace", "-mindepth", "1", "-printf", "%P %u %m\n").stdout
    assert sorted(listed.splitlines()) == ["src provision 755", "src/app.py provision 644"]


def test_a_stop_ends_it_at_once_and_the_command_decides_how(image: str) -> None:
    name = run("docker", "run", "--detach", image, "python", "-c", WAITS).stdout.strip()
    try:
        wait_for(lambda: "ready" in run("docker", "logs", name).stdout)
        started = time.monotonic()
        run("docker", "stop", "--time=20", name)
        assert time.monotonic() - started < 10
        assert run("docker", "inspect", "--format={{.State.ExitCode}}", name).stdout == "5\n"
    finally:
        run("docker", "rm", "--force", name)


def test_a_command_without_a_handler_ends_by_the_signal(image: str) -> None:
    name = run("docker", "run", "--detach", image, "sleep", "60").stdout.strip()
    try:
        wait_for(lambda: "sleep" in run("docker", "exec", name, "sh", "-c", "cat /proc/1/cmdline").stdout)
        run("docker", "stop", "--time=20", name)
        assert run("docker", "inspect", "--format={{.State.ExitCode}}", name).stdout == "143\n"
    finally:
        run("docker", "rm", "--force", name)


def test_orphans_are_reaped(image: str) -> None:
    assert run("docker", "run", "--rm", image, "python", "-c", ORPHANS).stdout == "zombies 0\n"
    # Without the init they stay, so the test above can fail.
    bare = run("docker", "run", "--rm", "--entrypoint", "python", image, "-c", ORPHANS)
    assert bare.stdout == "zombies 5\n"


@pytest.mark.parametrize(("words", "code"), [(("sh", "-c", "exit 3"), 3), (("absent-program",), 127)])
def test_exit_codes_are_those_of_the_command(image: str, words: tuple[str, ...], code: int) -> None:
    assert run("docker", "run", "--rm", image, *words, check=False).returncode == code


def test_code_that_changed_leaves_every_other_layer_as_it_was(
    buildx_engine: Engine, sample_stack: Stack, sample_index: tuple[str, dict[str, Path]], tmp_path: Path, tag: str
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    options = ImageOptions(index_url=sample_index[0], copies={"src/": "/workspace/src/"})
    layers = []
    for text in ("print(1)\n", "print(2)\n"):
        (source / "app.py").write_text(text)
        # A builder takes a folder of the same name for the one it has, and looks at sizes and dates alone.
        folder = tmp_path / str(len(layers)) / "context"
        folder.parent.mkdir()
        write_context(sample_stack, options, folder, source)
        built = buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host"), lambda *_: None)
        assert built.image is not None
        layers.append(built.image.layers)
    assert layers[0][:-1] == layers[1][:-1]
    assert layers[0][-1] != layers[1][-1]


def test_in_a_dev_image_the_lock_guards_what_is_installed_later(
    buildx_engine: Engine, sample_stack: Stack, sample_index: tuple[str, dict[str, Path]], tmp_path: Path, tag: str
) -> None:
    assert sample_stack.image is not None
    dev = replace(sample_stack, image=replace(sample_stack.image, flavor="dev"))
    folder = tmp_path / "context"
    folder.mkdir()
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "before-packages.sh").write_text(
        "test ! -e /opt/venv/lib/python3.11/site-packages/sample.py\n: > /before\n"
    )
    (hooks / "after-packages.sh").write_text("python -c 'import sample'\n: > /after\n")
    options = ImageOptions(index_url=sample_index[0], hooks=("before-packages", "after-packages"))
    write_artifacts(folder, render_image(dev, options))
    buildx_engine.build(folder, BuildRequest(tags=(tag,), network="host"), lambda *_: None)
    index = f"--default-index={sample_index[0]}"
    install = ("docker", "run", "--rm", "--network=host", tag, "uv", "pip", "install", index)

    refused = run(*install, "sample>=99", check=False)
    assert refused.returncode == 1
    assert "you require sample>=99 and sample==1.0" in " ".join(refused.stderr.split())
    assert "+ dumb-init" in run(*install, "dumb-init").stderr
    assert "~ sample==1.0" in run(*install, "--reinstall", "sample").stderr
    assert run("docker", "run", "--rm", tag, "ls", "/before", "/after").stdout == "/after\n/before\n"


def wait_for(is_ready: Callable[[], bool]) -> None:
    for _ in range(100):
        if is_ready():
            return
        time.sleep(0.05)
    pytest.fail("the container did not come up")
