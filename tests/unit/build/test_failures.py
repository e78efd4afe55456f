from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.build.failures import engine_absent, explain_build, explain_push
from provision.build.progress import BuildKitLog, ClassicLog
from provision.errors import ActionFailedError, MissingDependencyError, ProvisionError, VerificationFailedError

LOGS = Path(__file__).with_name("logs")
CONTEXT = Path("context")


def explain(name: str, *, is_engine_alive: bool = True) -> ProvisionError:
    log = BuildKitLog()
    for line in (LOGS / f"{name}.txt").read_text().splitlines():
        log.feed(line)
    return explain_build(log, CONTEXT, is_engine_alive=is_engine_alive, log_path=None)


def fail_with(*output: str, step: str = "[2/3] RUN something", error: str = "exit code: 1") -> ProvisionError:
    log = BuildKitLog()
    log.feed(f"#1 {step}")
    for line in output:
        log.feed(f"#1 0.1 {line}")
    log.feed(f"#1 ERROR: {error}")
    return explain_build(log, CONTEXT, is_engine_alive=True, log_path=Path("build.log"))


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_hash_mismatch_names_the_wheel_and_both_hashes(installer):
    error = explain(f"buildkit-{installer}-hash")
    assert isinstance(error, ActionFailedError)
    assert "sample==1.0" in error.because[0]
    assert f"the lock says sha256:{'0' * 64}" in error.because[0]
    assert "--index-url" in error.hints[0]


def test_a_step_is_named_with_its_line_and_its_last_words():
    error = explain("buildkit-failed")
    assert error.message.startswith("the build failed at Dockerfile line 4, step [3/3] RUN")
    assert error.because[0] == "it ended with exit code 1"
    assert error.because[-1] == "the step said: ModuleNotFoundError: No module named 'nothing_here'"
    assert "the context is kept in context" in error.hints


def test_mounts_are_left_out_of_the_step():
    error = fail_with(step="[2/3] RUN --mount=type=cache,target=/c --mount=type=secret,id=a uv pip install x")
    assert error.message == "the build failed at step [2/3] RUN uv pip install x"
    assert "the whole log is build.log" in error.hints


def test_a_syntax_error_names_its_line():
    error = explain("buildkit-syntax")
    assert error.message == "the build failed at Dockerfile line 2"
    assert "RUNN" in error.because[0]


def test_the_classic_builder_is_explained_alike():
    log = ClassicLog()
    for text in (LOGS / "classic-failed.jsonl").read_text().splitlines():
        event = json.loads(text)
        for line in event.get("stream", "").splitlines():
            log.feed_line(line.rstrip())
        log.feed(event)
    error = explain_build(log, CONTEXT, is_engine_alive=True, log_path=None)
    assert error.message == "the build failed at step Step 3/3 : RUN echo out && false"
    assert error.because == ("it ended with exit code 1", "the step said: out")


@pytest.mark.parametrize(
    ("output", "reason", "way_out"),
    [
        ("OSError: [Errno 28] No space left on device", "disk", "docker builder prune"),
        ("invalid peer certificate: UnknownIssuer", "certificate", "--ca-cert"),
        ("ssl.SSLCertVerificationError: CERTIFICATE_VERIFY_FAILED", "certificate", "--ca-cert"),
        ("Temporary failure in name resolution", "network", "--index-url"),
        ("error: command 'gcc' failed: No such file or directory", "no `gcc`", "leave `--base` out"),
        ("exec /bin/sh: exec format error", "architecture", "qemu"),
        ("dns error: failed to lookup address information", "network", "proxies"),
    ],
)
def test_a_known_cause_has_a_way_out(output, reason, way_out):
    error = fail_with(output)
    assert reason in error.because[0]
    assert any(way_out in hint for hint in error.hints)


def test_a_step_that_was_killed_ran_out_of_memory():
    assert "memory" in fail_with(error="process did not complete successfully: exit code: 137").because[0]


def test_an_unknown_cause_is_not_guessed():
    error = fail_with("odd", error="something odd")
    assert error.because == ("something odd", "the step said: odd")


@pytest.mark.parametrize("name", ["buildkit-failed", "buildkit-syntax", "buildkit-uv-hash"])
def test_a_dead_engine_explains_everything_else(name):
    assert explain(name, is_engine_alive=False).message == "the engine stopped answering during the build"


def test_an_engine_that_came_back_is_still_named():
    log = BuildKitLog()
    log.feed("#1 [2/3] RUN sleep 60")
    log.feed("ERROR: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF")
    error = explain_build(log, CONTEXT, is_engine_alive=True, log_path=None)
    assert error.message == "the engine stopped answering during the build"
    assert error.because[0] == "it was at the step [2/3] RUN sleep 60"


def test_a_verification_inside_the_build_has_its_own_exit_code():
    step = "[5/9] RUN python /build/verify.py --static"
    found_wrong = fail_with("fail    cudnn: found 8800", step=step, error="process did not complete: exit code: 6")
    assert isinstance(found_wrong, VerificationFailedError)
    assert found_wrong.exit_code == 6
    crashed = fail_with("Traceback", step=step, error="process did not complete: exit code: 1")
    assert isinstance(crashed, ActionFailedError)


@pytest.mark.parametrize(
    ("said", "reason", "way_out"),
    [
        ("received unexpected HTTP status: 500 Internal Server Error", "answered 500", "read its log"),
        ("received unexpected HTTP status: 503 Service Unavailable", "answered 503", "read its log"),
        ("denied: requested access to the resource is denied", "refuses", "docker login mirror.example"),
        ("unauthorized: authentication required", "refuses", "docker login mirror.example"),
        ("dial tcp: lookup mirror.example: no such host", "cannot be reached", "mirror.example"),
        ("server gave HTTP response to HTTPS client", "plain HTTP", "insecure-registries"),
        ("An image does not exist locally with the tag: x", "no image of that name", "--build"),
    ],
)
def test_a_failed_push_is_explained(said, reason, way_out):
    error = explain_push("mirror.example/team/image:1", f"The push refers to repository\n{said}")
    assert reason in error.because[0]
    assert way_out in error.hints[0]
    assert error.because[-1] == f"the engine said: {said}"


@pytest.mark.parametrize(
    ("tag", "command"),
    [
        ("image:1", "docker login"),
        ("team/image:1", "docker login"),
        ("localhost/image", "docker login localhost"),
        ("h:5000/a", "docker login h:5000"),
    ],
)
def test_the_registry_is_read_from_the_tag(tag, command):
    assert f"`{command}`" in explain_push(tag, "denied").hints[0]


def test_an_engine_out_of_reach_says_what_to_do():
    error = engine_absent("Cannot connect to the Docker daemon")
    assert isinstance(error, MissingDependencyError)
    assert error.exit_code == 7
    assert any("start" in hint for hint in error.hints)
    assert "docker" in engine_absent("permission denied while trying to connect").hints[0]
