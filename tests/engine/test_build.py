"""Real builds: what is built, what is said when one fails, and what is left behind."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile

import pytest

from provision.build.engine import BuildRequest
from provision.build.export import CONTAINERD
from provision.build.progress import Step
from provision.build.verify import verify_image
from provision.errors import ActionFailedError, UsageError, VerificationFailedError

EPOCH = 1_600_000_000


def ignore(_event: str, _step: Step, _text: str) -> None:
    """Observe nothing."""


def request(tag: str, **values: object) -> BuildRequest:
    return BuildRequest(tags=(tag,), network="none", **values)  # type: ignore[arg-type]


def platform() -> str:
    machine = os.uname().machine
    return {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[machine]


def engine_images() -> set[str]:
    """Every image but the nodes of the scenarios, which may be made meanwhile."""
    words = ["docker", "images", "--all", "--format", "{{.Repository}} {{.ID}}"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[1] for line in lines if not line.startswith("provision-test/node ")}


def test_a_context_becomes_an_image(any_engine, python_base, make_context, tag):
    context = make_context(
        f"FROM {python_base} AS build", "RUN mkdir /made && echo done > /made/file",
        f"FROM {python_base}", "COPY --from=build /made /made", "LABEL made.by=test",
    )  # fmt: skip
    events: list[tuple[str, str]] = []

    result = any_engine.build(
        context,
        request(tag, source_date_epoch=EPOCH, platform=platform()),
        lambda event, step, _text: events.append((event, step.name)),
    )

    assert result.image is not None
    assert result.image == any_engine.inspect(tag)
    assert result.image.id.startswith("sha256:")
    assert result.image.size_bytes >= any_engine.inspect(python_base).size_bytes
    assert any_engine.run(tag, ("/made/file",), entrypoint="cat").stdout == "done\n"
    assert any("RUN mkdir /made" in step.name for step in result.steps)
    assert all(step.status in ("done", "cached") for step in result.steps)
    assert {name for event, name in events if event == "started"} == {step.name for step in result.steps}
    assert result.export.why


def test_a_second_tag_names_the_same_image(any_engine, python_base, make_context, tag):
    context = make_context(f"FROM {python_base}", "LABEL a=b")
    other = f"{tag}-other"
    result = any_engine.build(context, BuildRequest(tags=(tag, other)), ignore)
    assert result.image is not None
    assert any_engine.inspect(other).id == result.image.id
    subprocess.run(["docker", "image", "rm", other], capture_output=True, check=True)


def test_a_failed_step_is_named_with_its_last_lines(any_engine, python_base, make_context, tag, tmp_path):
    context = make_context(
        f"FROM {python_base}", "RUN true", "RUN echo before && \\", "    python -c 'import nothing_here'"
    )
    before = {path.name: path.read_bytes() for path in context.iterdir()}
    log = tmp_path / "build.log"

    with pytest.raises(ActionFailedError) as caught:
        any_engine.build(context, request(tag, log_path=log), ignore)

    error = caught.value
    assert "3/3" in error.message
    assert "import nothing_here" in error.message
    assert "it ended with exit code 1" in error.because
    assert any("No module named 'nothing_here'" in line for line in error.because)
    assert any(str(context) in hint for hint in error.hints)
    assert {path.name: path.read_bytes() for path in context.iterdir()} == before
    assert "nothing_here" in log.read_text()


def test_the_line_of_the_dockerfile_is_named(buildx_engine, python_base, make_context, tag):
    context = make_context(f"FROM {python_base}", "", "RUN false")
    with pytest.raises(ActionFailedError, match="Dockerfile line 3"):
        buildx_engine.build(context, request(tag), ignore)


def test_an_instruction_that_no_engine_knows_is_explained(any_engine, python_base, make_context, tag):
    with pytest.raises(ActionFailedError) as caught:
        any_engine.build(make_context(f"FROM {python_base}", "RUNN true"), request(tag), ignore)
    assert "RUNN" in caught.value.because[0]
    assert any("--frontend" in hint for hint in caught.value.hints)


def test_a_base_that_is_nowhere_is_named(any_engine, make_context, tag):
    with pytest.raises(ActionFailedError) as caught:
        any_engine.build(make_context("FROM 127.0.0.1:9/absent:1"), request(tag), ignore)
    assert "127.0.0.1:9/absent:1" in caught.value.because[0]


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_wheel_with_another_hash_is_named(buildx_engine, python_base, make_context, write_wheel, tag, installer):
    wrong = "0" * 64
    context = make_context(
        f"FROM {python_base}",
        "COPY . /context",
        "RUN python -m pip install --no-index --find-links /context --require-hashes -r /context/requirements.txt"
        if installer == "pip"
        else "RUN /context/uv pip install --system --no-index --find-links /context --require-hashes "
        "-r /context/requirements.txt",
        requirements__txt=f"sample==1.0 --hash=sha256:{wrong}\n",
    )
    wheel = context / write_wheel(context)
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if installer == "uv":
        shutil.copy(pytest.importorskip("uv").find_uv_bin(), context / "uv")

    with pytest.raises(ActionFailedError) as caught:
        buildx_engine.build(context, request(tag), ignore)

    reason = caught.value.because[0]
    assert "sample==1.0" in reason
    assert wrong in reason
    assert right in reason
    assert "--index-url" in caught.value.hints[0]


def test_a_secret_is_read_by_a_step_and_kept_out_of_the_image(buildx_engine, python_base, make_context, tag, tmp_path):
    secret = tmp_path / 'certificate, the "new" one.pem'
    secret.write_text("a certificate")
    context = make_context(
        f"FROM {python_base}",
        "RUN --mount=type=secret,id=provision-ca,required=true sha256sum /run/secrets/provision-ca > /digest",
    )
    buildx_engine.build(context, request(tag, secrets={"provision-ca": secret}), ignore)
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    assert digest in buildx_engine.run(tag, ("/digest",), entrypoint="cat").stdout
    assert buildx_engine.run(tag, ("/run/secrets/provision-ca",), entrypoint="cat").returncode != 0


def test_the_classic_builder_refuses_a_secret(sdk_engine, python_base, make_context, tag, tmp_path):
    secret = tmp_path / "certificate.pem"
    secret.write_text("a certificate")
    with pytest.raises(UsageError, match="provision-ca"):
        sdk_engine.build(make_context(f"FROM {python_base}"), request(tag, secrets={"provision-ca": secret}), ignore)


def test_an_archive_is_written_whole_or_not_at_all(any_engine, python_base, make_context, tag, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    archive = folder / "image.tar"
    context = make_context(f"FROM {python_base}", "RUN echo 1 > /one")
    result = any_engine.build(context, request(tag, purpose="file", archive=archive), ignore)
    assert result.archive == archive
    with tarfile.open(archive) as tar:
        assert {"index.json", "manifest.json"} & set(tar.getnames())

    archive.unlink()
    (context / "Dockerfile").write_text(f"FROM {python_base}\nRUN false\n")
    with pytest.raises(ActionFailedError):
        any_engine.build(context, request(tag, purpose="file", archive=archive), ignore)
    assert list(folder.iterdir()) == []


def test_asking_what_an_engine_builds_leaves_nothing_in_it(engine, python_base):
    from provision.build.engine import find_engine

    before = engine_images()
    assert find_engine().frontend == engine.frontend
    assert engine_images() == before


def test_an_interrupt_ends_the_builder(buildx_engine, python_base, make_context, tag):
    def interrupt(event: str, step: Step, _text: str) -> None:
        if event == "output" and "sleep" in step.name:
            raise KeyboardInterrupt

    context = make_context(f"FROM {python_base}", "RUN echo asleep && sleep 60")
    with pytest.raises(KeyboardInterrupt):
        buildx_engine.build(context, request(tag), interrupt)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(context) not in running


STATUS = """
import json, sys
print(json.dumps({"mode": "static", "ok": False, "findings": [
    {"check": "torch", "status": "pass", "detail": "1.0"},
    {"check": "cudnn", "status": "STATUS", "detail": "found 8800, the lock says 8902"}]}))
sys.exit(CODE)
"""


def verifying(status: str, code: int) -> str:
    return STATUS.replace("STATUS", status).replace("CODE", str(code))


def test_a_proved_image_gives_its_findings(any_engine, python_base, make_context, tag):
    context = make_context(
        f"FROM {python_base}", "COPY verify.py /opt/provision/verify.py", verify__py=verifying("pass", 0)
    )
    any_engine.build(context, request(tag), ignore)
    assert [finding.check for finding in verify_image(any_engine, tag)] == ["torch", "cudnn"]


@pytest.mark.parametrize(("status", "code"), [("fail", 6), ("unknown", 6), ("unknown", 0), ("pass", 6)])
def test_an_image_that_is_not_its_lock_is_refused(buildx_engine, python_base, make_context, tag, status, code):
    context = make_context(
        f"FROM {python_base}", "COPY verify.py /opt/provision/verify.py", verify__py=verifying(status, code)
    )
    buildx_engine.build(context, request(tag), ignore)
    with pytest.raises(VerificationFailedError) as caught:
        verify_image(buildx_engine, tag)
    assert caught.value.exit_code == 6
    assert not any(line.startswith("torch") for line in caught.value.because)


def test_an_image_without_a_verification_is_not_proved(any_engine, python_base):
    with pytest.raises(VerificationFailedError, match="gave no answer"):
        verify_image(any_engine, python_base)


def test_a_verification_that_fails_within_the_build_is_no_broken_build(any_engine, python_base, make_context, tag):
    context = make_context(
        f"FROM {python_base}",
        "COPY verify.py /verify.py",
        "RUN python /verify.py --static",
        verify__py=verifying("fail", 6),
    )
    with pytest.raises(VerificationFailedError) as caught:
        any_engine.build(context, request(tag), ignore)
    assert any("8902" in line for line in caught.value.because)


def test_a_push_gives_the_digest_in_the_registry(any_engine, python_base, make_context, registry, request_id):
    name = f"{registry}/image:{request_id}"
    result = any_engine.build(make_context(f"FROM {python_base}", "LABEL a=b"), request(name, purpose="push"), ignore)
    assert result.image is not None
    digest = any_engine.push(name, ignore)
    assert f"{registry}/image@{digest}" in any_engine.inspect(name).repo_digests
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)


@pytest.fixture
def request_id(request: pytest.FixtureRequest) -> str:
    return "sdk" if "sdk" in request.node.name else "command"


def test_a_registry_that_answers_500_is_blamed(any_engine, make_context, broken_registry):
    name = f"{broken_registry}/image:1"
    any_engine.build(make_context("FROM scratch", "COPY Dockerfile /"), request(name), ignore)
    try:
        with pytest.raises(ActionFailedError) as caught:
            any_engine.push(name, ignore)
    finally:
        subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)
    assert name in caught.value.message
    assert "the registry answered 500 Internal Server Error" in caught.value.because
    assert any(f"docker push {name}" in hint for hint in caught.value.hints)


def test_an_image_that_is_not_there_cannot_be_pushed(any_engine, registry):
    with pytest.raises(ActionFailedError, match="was not pushed"):
        any_engine.push(f"{registry}/absent:1", ignore)


def test_an_engine_that_dies_in_mid_build_is_named(start_engine, make_context, python_base, tag):
    own = start_engine(size_mb=600)

    def kill_at_work(event: str, step: Step, _text: str) -> None:
        if event == "output" and "sleep" in step.name:
            own.kill()

    context = make_context(f"FROM {python_base}", "RUN echo asleep && sleep 60")
    with pytest.raises(ActionFailedError) as caught:
        own.engine.build(context, request(tag), kill_at_work)
    assert caught.value.message == "the engine stopped answering during the build"
    assert "sleep 60" in caught.value.because[0]
    assert any(str(context) in hint for hint in caught.value.hints)


def test_a_full_disk_in_the_engine_is_named(start_engine, make_context, python_base, tag):
    own = start_engine(size_mb=600)
    context = make_context(f"FROM {python_base}", "RUN head -c 600M /dev/zero > /filling")
    with pytest.raises(ActionFailedError) as caught:
        own.engine.build(context, request(tag), ignore)
    assert caught.value.because[0] == "the disk that the engine keeps its images on is full"
    assert any("docker builder prune" in hint for hint in caught.value.hints)


def test_the_containerd_store_gets_zstd_and_equal_archives(start_engine, make_context, python_base, tag, tmp_path):
    own = start_engine(size_mb=2000, has_containerd_store=True)
    assert own.engine.image_store == CONTAINERD
    context = make_context(f"FROM {python_base}", "RUN echo 1 > /one")

    built = own.engine.build(context, request(tag, source_date_epoch=EPOCH), ignore)
    assert built.image is not None
    assert own.engine.run(tag, ("/one",), entrypoint="cat").stdout == "1\n"

    archives = []
    for number in (1, 2):
        archive = tmp_path / f"{number}.tar"
        own.engine.build(
            context,
            request(tag, purpose="file", archive=archive, source_date_epoch=EPOCH, is_cached=False),
            ignore,
        )
        archives.append(archive.read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as tar:
        blobs = [tar.extractfile(member) for member in tar if member.isfile() and member.name.startswith("blobs/")]
        magics = [blob.read(4) for blob in blobs if blob is not None]
    assert b"\x28\xb5\x2f\xfd" in magics
