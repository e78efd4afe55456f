"""`provision resolve`: answers, refusals, batches and bad input."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess

import pytest

from provision.cli import host
from provision.matrix.load import Matrix
from provision.versions import Spec

STACK = ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11")
REFUSED = ("--torch", "2.1", "--cuda", "12.4")


def test_stack_as_json(provision):
    document = provision("resolve", *STACK, "--json").document
    stack = document["result"]["stack"]
    assert (document["schema_version"], document["ok"]) == (1, True)
    assert (stack["python"], stack["cuda"], stack["variant"]) == ("3.11", "12.1", "cu121")
    assert stack["frameworks"] == {"torch": "2.1.2"}
    assert stack["lock_digest"].startswith("sha256:")
    wanted = {"platform", "os", "cudnn", "nccl", "packages", "driver", "sm", "reasons"}
    assert wanted <= set(stack)
    assert {"subject", "because", "facts"} == set(stack["reasons"][0])


def test_stack_for_people(provision):
    answer = provision("resolve", *STACK)
    assert answer.out.startswith("torch2.1.2-cu121-py311 ")
    for text in ("torch 2.1.2", "525.60.13", "python:3.11-slim-bookworm", "sm_50 … sm_90", "to download"):
        assert text in answer.out
    assert "[torch/2.1.2+cu121]" not in answer.out
    assert "[torch/2.1.2+cu121]" in provision("resolve", *STACK, "-v").out


def test_incompatible_is_3_with_commands_that_work(provision):
    answer = provision("resolve", *REFUSED)
    assert answer.code == 3
    assert answer.out == ""
    assert "cannot be met together" in answer.err
    assert "[torch/2.1.2+cu121" in answer.err

    error = provision("resolve", *REFUSED, "--json").document["error"]
    assert error["code"] == "incompatible"
    assert error["conflict"] == ["--torch 2.1", "--cuda 12.4"]
    assert error["reasons"][0]["facts"]
    assert error["alternatives"]
    for alternative in error["alternatives"]:
        assert alternative["command"] in answer.err
        words = shlex.split(alternative["command"])
        assert words[:2] == ["provision", "resolve"]
        assert provision(*words[1:]).code == 0


def test_unknown_is_4(provision):
    assert provision("resolve", "--torch", "99").code == 4
    assert provision("resolve", "--torch", "99", "--json").document["error"]["code"] == "unknown"
    assert provision("resolve", "--torch", "2.1", "--gpu", "rtx9999").code == 4


def test_alternatives_repeat_the_rest_of_the_command(provision, tmp_path):
    words = ("resolve", *REFUSED, "--data-dir", Matrix().data_dir, "-o", tmp_path / "a b", "-v", "--json")
    for alternative in provision(*words).document["error"]["alternatives"]:
        command = shlex.split(alternative["command"])
        assert command[command.index("--data-dir") + 1] == str(Matrix().data_dir)
        assert command[command.index("-o") + 1] == str(tmp_path / "a b")
        assert not {"-v", "--verbose", "--json"} & set(command)


def test_several_gpus_must_all_be_served(provision):
    together = provision("resolve", "--torch", "2.1", "--gpu", "v100", "--gpu", "h100,a100", "--json").document
    assert len(together["result"]["stack"]["gpus"]) == 3


@pytest.mark.parametrize(
    "value", ["", " ", "2.1\n3", "2.1;id", "$(id)", "`id`", "{{7*7}}", "２.1", "2.1\0", "-5", ">=", "2..1"]
)
@pytest.mark.parametrize("flag", ["--torch", "--cuda", "--python", "--driver", "--gpu", "--base", "--os", "--with"])
def test_malformed_values_are_2(provision, flag, value):
    if (flag, value) in (("--gpu", "-5"), ("--gpu", "2..1"), ("--with", "2..1")):
        # These can be names; whether they are is for the facts to say.
        assert provision("resolve", f"{flag}={value}").code in (2, 4)
        return
    answer = provision("resolve", f"{flag}={value}", "--json")
    assert answer.code == 2
    error = answer.document["error"]
    assert error["code"] == "usage"
    assert error["message"].isprintable()


def test_nothing_asked_for_is_2(provision):
    assert provision("resolve").code == 2


@pytest.mark.parametrize("folder", ["missing", ""])
def test_data_dir_must_be_a_folder(provision, tmp_path, folder):
    assert provision("resolve", *STACK, "--data-dir", tmp_path / folder if folder else "").code == 2


def test_empty_data_dir_is_9(provision, tmp_path):
    answer = provision("resolve", *STACK, "--data-dir", tmp_path)
    assert answer.code == 9
    assert "is missing" in answer.err


def test_result_goes_into_a_file(provision, tmp_path):
    file = tmp_path / "new" / "stack.json"
    answer = provision("resolve", *STACK, "--json", "-o", file)
    assert (answer.code, answer.out) == (0, "")
    assert json.loads(file.read_text())["ok"] is True
    assert [path.name for path in file.parent.iterdir()] == ["stack.json"]


def test_dry_run_writes_nothing(provision, tmp_path):
    answer = provision("resolve", *STACK, "-o", tmp_path / "stack", "--dry-run")
    assert answer.code == 0
    assert f"would write {tmp_path / 'stack'}" in answer.err
    assert not list(tmp_path.iterdir())


def test_pipe_is_written_to_and_not_replaced(provision, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert provision("resolve", *STACK, "-o", pipe).code == 0
    assert b"torch 2.1.2" in os.read(reader, 65536)
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_folder_is_no_file(provision, tmp_path):
    assert provision("resolve", *STACK, "-o", tmp_path).code == 2


def test_place_nobody_can_write_is_5(provision):
    answer = provision("resolve", *STACK, "-o", "/proc/provision/stack")
    assert answer.code == 5
    assert "cannot write" in answer.err
    assert answer.err.splitlines()[-1] == "hint: name another file with `-o FILE`"


def test_error_is_a_document_in_the_file_too(provision, tmp_path):
    file = tmp_path / "stack.json"
    answer = provision("resolve", *REFUSED, "--json", "-o", file)
    assert answer.code == 3
    assert json.loads(file.read_text()) == answer.document
    file.write_text("before")
    assert provision("resolve", *REFUSED, "--json", "-o", file, "--dry-run").code == 3
    assert provision("resolve", *REFUSED, "-o", file).code == 3
    assert file.read_text() == "before"
    assert provision("resolve", *STACK, "--json", "-o", tmp_path).document["error"]["code"] == "usage"


@pytest.mark.parametrize("words", [["--batch", "-"], ["--torch", "2.1", "-r", "-"]])
def test_standard_input_that_is_closed(command, environment, words):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command, "resolve", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"error: {words[-2]}: the standard input is closed" in done.stderr


def test_long_requirement_is_named_by_its_line(provision, tmp_path):
    file = tmp_path / "requirements.txt"
    address = "https://mirror.example/" + "a" * 1900
    file.write_text(f"\neinops @ {address}/einops-0.8.0-py3-none-any.whl\n")
    assert provision("resolve", *STACK, "-r", file).code == 0
    file.write_text(f"\neinops @ {address * 2}\n")
    answer = provision("resolve", *STACK, "-r", file)
    assert answer.code == 2
    assert f"{file}, line 2: the requirement is " in answer.err


# --batch


@pytest.fixture
def batch(provision, tmp_path):
    def call(content: str | bytes):
        file = tmp_path / "requests"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        answer = provision("resolve", "--batch", file)
        assert answer.code == 0, answer.err
        return [json.loads(line) for line in answer.out.splitlines()]

    return call


def test_batch_answers_each_line_in_order(batch):
    documents = batch(
        '{"torch": "2.1", "cuda": "12.1", "python": "3.11"}\n{"torch": "2.1", "cuda": "12.4"}\n'
        '{"torch": "99"}\n{"gpu": ["h100", "a100"], "torch": "2.1", "require_secure": true}'
    )
    assert [item["ok"] for item in documents] == [True, False, False, True]
    assert [item["error"]["code"] for item in documents if not item["ok"]] == ["incompatible", "unknown"]
    assert all((item["schema_version"], item["command"]) == (1, "resolve") for item in documents)


def test_batch_says_the_same_as_one_call(batch, provision):
    one = provision("resolve", *STACK, "--json").document
    assert batch('{"torch": "2.1", "cuda": "12.1", "python": "3.11"}\n') == [one]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'"torch"',
        b'{"torch": 2.1}',
        b'{"torhc": "2.1"}',
        b'{"torch": "2.1", "torch": "2.2"}',
        b'{"torch": {"a": []}}',
        b'{"torch": "2.1\\n"} x',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"torch": "' + b"1" * 2_000_000 + b'"}',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_bad_line_is_answered_and_the_rest_goes_on(batch, line):
    documents = batch(line + b'\n{"torch": "2.1"}\n')
    assert len(documents) == 2
    assert documents[0]["error"]["code"] == "usage"
    assert documents[1]["ok"] is True


def test_batch_names_file_and_line_of_what_it_refuses(batch, tmp_path):
    documents = batch(
        '{"torch": "2.1", "cuda": "12.4"}\n{"torch": 2.1}\n{"requirements": ["einops", "torch<2.4"], "gpu": "b200"}\n'
    )
    messages = [item["error"]["message"] for item in documents]
    place = tmp_path / "requests"
    assert [message.partition(": ")[0] for message in messages] == [f"{place}, line {number}" for number in (1, 2, 3)]
    assert "`torch<2.4` in requirements, line 2 and `--gpu b200` cannot be met" in messages[2]


def test_a_reason_names_the_line_that_asked(provision, tmp_path):
    file = tmp_path / "r.txt"
    file.write_text("torch>=2.1,<2.4\ntorch<2.2; python_version < '3'\n")
    answer = provision("resolve", "-r", file, "--json")
    reason = next(item for item in answer.document["result"]["stack"]["reasons"] if item["subject"] == "torch")
    assert "that `torch>=2.1,<2.4` of your requirements and the rest of the request admit" in reason["because"]


def test_batch_repeats_where_the_facts_are(provision, tmp_path):
    (tmp_path / "requests").write_text('{"torch": "2.1", "cuda": "12.4"}')
    answer = provision("resolve", "--batch", tmp_path / "requests", "--data-dir", Matrix().data_dir)
    command = shlex.split(answer.document["error"]["alternatives"][0]["command"])
    assert command[-2:] == ["--data-dir", str(Matrix().data_dir)]


def test_batch_streams(command, environment):
    with subprocess.Popen(
        [*command, "resolve", "--batch", "-", "-q"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for torch in ("2.1", "2.0"):
            process.stdin.write(json.dumps({"torch": torch}) + "\n")
            process.stdin.flush()
            # An answer that waited for the end of the input would never come.
            assert json.loads(process.stdout.readline())["result"]["stack"]["frameworks"]["torch"].startswith(torch)
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0


def test_batch_takes_no_request_beside_its_file(provision, tmp_path):
    assert provision("resolve", "--batch", tmp_path / "x", "--torch", "2.1").code == 2
    assert provision("resolve", "--batch", tmp_path / "x").code == 2
    assert provision("resolve", "--batch", tmp_path).code == 2


# --driver host


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with what a test puts there: its own PATH and its own kernel file."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host, "_KERNEL_FILE", tmp_path / "version")

    def install(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    install.kernel_file = tmp_path / "version"
    return install


KERNEL = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12.3.0\n"
)


def test_driver_of_this_machine(provision, machine):
    machine("echo 535.104.05; echo 535.104.05")
    stack = provision("resolve", *STACK, "--driver", "host", "--json").document["result"]["stack"]
    assert stack["request"]["driver"] == "535.104.05"


def test_driver_of_the_kernel_where_the_tool_is_absent_or_fails(machine):
    machine.kernel_file.write_text(KERNEL)
    assert host.read_host_driver() == "550.54.15"
    machine("echo 'NVIDIA-SMI has failed'; exit 9")
    assert host.read_host_driver() == "550.54.15"


def test_no_driver_here_is_7(provision, machine):
    answer = provision("resolve", *STACK, "--driver", "host")
    assert answer.code == 7
    assert "there is no nvidia-smi" in answer.err
    machine("echo 'no devices were found' >&2; exit 6")
    assert "no devices were found" in provision("resolve", *STACK, "--driver", "host").err


# -r


def test_requirements_constrain_the_stack(provision, tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("numpy<1.26  # old\n\neinops\n")
    stack = provision("resolve", *STACK, "-r", file, "--json").document["result"]["stack"]
    assert stack["packages"]["numpy"] in Spec("<1.26")
    assert stack["image"]["user_requirements"] == ["einops", "numpy<1.26"]
    file.write_text("torch==2.2.0\n")
    assert provision("resolve", *STACK, "-r", file).code == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"numpy\xff", "is not UTF-8 text"),
        (b"#" * 2_000_000, "is larger than"),
        (b"numpy\n-e .\n", "line 2"),
        (b"numpy; $(id)\n", "line 1"),
        (b"--index-url http://mirror.example\n", "line 1"),
        (b"numpy\0\n", "line 1"),
    ],
)
def test_bad_requirements_are_2(provision, tmp_path, content, said):
    file = tmp_path / "requirements.txt"
    file.write_bytes(content)
    answer = provision("resolve", *STACK, "-r", file)
    assert answer.code == 2
    assert said in answer.err


def test_requirements_that_cannot_be_read_are_2(provision, tmp_path):
    for path in (tmp_path, tmp_path / "missing", "/dev/zero"):
        assert provision("resolve", *STACK, "-r", path).code == 2


def test_a_stack_without_cuda(provision):
    answer = provision("resolve", "--torch", "2.6", "--cpu")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("torch2.6.0-cpu-py311 ")
    assert "no driver is needed" in answer.out
    assert "CUDA 1" not in answer.out


def test_a_line_that_names_the_build_without_cuda(provision, tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("torch==2.4.1+cpu\n")
    stack = provision("resolve", "-r", file, "--json").document["result"]["stack"]
    assert stack["request"]["is_cpu"] is True
    assert stack["packages"]["torch"] == "2.4.1+cpu"
    answer = provision("resolve", "-r", file, "--cuda", "12.1")
    assert answer.code == 2
    assert "`torch 2.4.1+cpu` and `--cuda 12.1` contradict each other" in answer.err


@pytest.mark.parametrize("command", [("node", "lock"), ("cluster", "-o", "out")])
def test_a_command_about_gpus_has_no_use_for_a_build_without_cuda(provision, command):
    answer = provision(*command, "--torch", "2.4.1+cpu")
    assert answer.code == 2
    assert "this command is about GPUs" in answer.err


MAJORS = {"11": "2.6", "12": "2.8", "13": "2.14"}
"""CUDA major → a PyTorch that has builds for it."""


@pytest.mark.parametrize("extra", [row.id for row in Matrix().extras])
def test_every_extra_ends_well_with_every_cuda(provision, extra: str) -> None:
    for cuda, torch in MAJORS.items():
        answer = provision("resolve", "--torch", torch, "--cuda", cuda, "--with", extra, "--json")
        assert answer.code in (0, 3, 4), (cuda, answer)
        document = answer.document
        assert document["ok"] == (answer.code == 0)
        if answer.code:
            assert document["error"]["because"], cuda
        assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("extras", "code"),
    [
        ("unsloth,xformers,bitsandbytes", 0),
        ("deepspeed,transformers,peft,trl", 0),
        ("vllm,flash-attn", 0),
        ("torch-geometric,torch-scatter,torch-sparse,torch-cluster,torch-spline-conv", 0),
        ("sglang,torchtext", 4),
    ],
)
def test_several_extras_are_met_together_or_refused_with_the_reason(provision, extras: str, code: int) -> None:
    answer = provision("resolve", "--with", extras, "--json")
    assert answer.code == code, answer
    if code == 0:
        lines = [line for part in answer.document["result"]["stack"]["image"]["extras"] for line in part["requires"]]
        assert all(any(line.startswith(name) for line in lines) for name in extras.split(","))


def test_lines_that_the_facts_refuse_are_told_with_the_lines_that_work(provision, tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("torch==2.1.0+cu118\ntorchvision==0.15.2+cu118\n")
    refused = provision("resolve", "-r", file)
    assert refused.code == 3
    found = re.search("it works with `(.+)` in place of `(.+)`", refused.err)
    assert found is not None
    file.write_text(file.read_text().replace(found[2], found[1]))
    assert provision("resolve", "-r", file).code == 0
