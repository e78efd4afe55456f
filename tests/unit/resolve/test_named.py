"""The frameworks that the lines of a requirements file name."""

from __future__ import annotations

import pytest

from provision.errors import IncompatibleError, ProvisionError, UnknownError, UsageError
from provision.matrix.load import Matrix
from provision.resolve.named import FrameworkLine, is_honoured, join_frameworks, named_lines
from provision.resolve.request import parse_request
from provision.resolve.requirements import parse_requirements
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack


def join(text: str, **values: str) -> dict[str, str]:
    lines = parse_requirements(text, "r.txt")
    return join_frameworks(
        values, [FrameworkLine(where=f"r.txt, line {item.line}", requirement=item) for item in lines]
    )


@pytest.mark.parametrize(
    ("text", "values", "joined"),
    [
        ("torch==2.4.1", {}, {"torch": "2.4.1"}),
        ("Torch[opt-einsum] == 2.4.1", {}, {"torch": "2.4.1"}),
        ("torch==2.4.1+cu121", {}, {"torch": "2.4.1+cu121"}),
        ("torch>=2.1,<2.4", {}, {"torch": "<2.4,>=2.1"}),
        ("torch", {}, {"torch": ">=0"}),
        ("torch", {"torch": "2.3"}, {"torch": "2.3"}),
        ("torch==2.4.1", {"torch": "2.4"}, {"torch": "2.4.1"}),
        ("torch==2.4.1+cu121", {"torch": "2.4.1+cu121"}, {"torch": "2.4.1+cu121"}),
        ("torch>=2.2", {"torch": "<2.4"}, {"torch": "<2.4,>=2.2"}),
        ("torch>=2.2", {"torch": "2.4"}, {"torch": "==2.4.*,>=2.2"}),
        ("torch>=2.2\ntorch<2.4", {}, {"torch": ">=2.2,<2.4"}),
        ("tensorflow==2.17", {"torch": "2.4"}, {"torch": "2.4", "tensorflow": "2.17"}),
        ("tensorflow[and-cuda]~=2.17.0", {}, {"tensorflow": "~=2.17.0"}),
        ("jax[cuda12]==0.4.30", {}, {"jax": "0.4.30", "cuda": "12"}),
        ("jax[cuda12_pip]", {"cuda": "12.4"}, {"jax": ">=0", "cuda": "12.4"}),
        ("jax[cuda]", {}, {"jax": ">=0"}),
        ("jax[cuda11_cudnn86]==0.4.13", {}, {"jax": "0.4.13", "cuda": "11"}),
        ("jax[cuda11-pip]==0.4.13", {}, {"jax": "0.4.13", "cuda": "11"}),
        ("einops>=0.7\ntorchvision==0.19", {}, {}),
        ("torch @ https://example.org/torch.whl", {}, {}),
        ("tensorflow==2.17; sys_platform == 'darwin'", {}, {}),
        ("jax[cuda12]; sys_platform == 'darwin'", {}, {}),
        ("torch==2.4.1; platform_machine == 'aarch64'", {}, {}),
        (
            "torch==2.4.1; platform_machine == 'aarch64'",
            {"platform": "linux/arm64"},
            {"torch": "2.4.1", "platform": "linux/arm64"},
        ),
        ("torch==2.4.1; python_version < '3.12'", {}, {"torch": ">=0"}),
        ("torch==2.4.1; python_version < '3.12'", {"python": "3"}, {"python": "3", "torch": ">=0"}),
        ("torch==2.4.1; python_version == '3.11'", {"python": "3.11.4"}, {"python": "3.11.4", "torch": "2.4.1"}),
        ("torch==2.4.1; python_version < '3.12'\ntorch==2.5.1; python_version >= '3.12'", {}, {"torch": ">=0"}),
        (
            "torch==2.4.1; python_version < '3.12'\ntorch==2.5.1; python_version >= '3.12'",
            {"python": "3.12"},
            {"python": "3.12", "torch": "2.5.1"},
        ),
        ("torch==2.4.1; python_version < '3.12'", {"torch": "2.4"}, {"torch": "2.4"}),
        (
            "torch==2.4.1; python_version < '3.12'\njax==0.4.30",
            {"python": "3.12"},
            {"python": "3.12", "jax": "0.4.30"},
        ),
        ("torch==2.4.1; platform_machine == 'aarch64'", {"gpu": ["gh200"]}, {"gpu": ["gh200"], "torch": ">=0"}),
    ],
)
def test_lines_and_flags_are_joined(text: str, values: dict[str, str], joined: dict[str, str]) -> None:
    assert join(text, **values) == joined


@pytest.mark.parametrize(
    ("text", "values", "said"),
    [
        ("x\ntorch==2.4.1", {"torch": "2.3"}, ("`--torch 2.3`", "`torch==2.4.1` in r.txt, line 2")),
        ("torch<2.1", {"torch": ">=2.3"}, ("`--torch >=2.3`", "`torch<2.1` in r.txt, line 1")),
        ("torch>=2.5", {"torch": "2.4"}, ("`--torch 2.4`", "`torch>=2.5` in r.txt, line 1")),
        ("torch==2.4.1\ntorch==2.4.0", {}, ("`torch==2.4.0` in r.txt, line 2", "`torch==2.4.1` in r.txt, line 1")),
        ("torch==2.4.1+cu121", {"torch": "2.4.1+cu118"}, ("`--torch 2.4.1+cu118`", "line 1")),
        ("jax[cuda12]", {"cuda": "13"}, ("`--cuda 13`", "`jax[cuda12]` in r.txt, line 1")),
    ],
)
def test_what_contradicts_is_refused_with_both(text: str, values: dict[str, str], said: tuple[str, ...]) -> None:
    with pytest.raises(IncompatibleError) as caught:
        join(text, **values)
    assert all(words in caught.value.message for words in said)


def answer(facts: Matrix, text: str, **values: str) -> Stack | Refusal:
    return solve(parse_request({**join(text, **values), "requirements": text.split("\n")}), facts)


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return Matrix()


_SPLIT = "torch==2.4.1; python_version < '3.11'\ntorch==2.5.1; python_version >= '3.11'"


@pytest.mark.parametrize(
    ("text", "python", "torch"),
    [
        ("torch==2.4.1; python_version>='3.9'\neinops", "3", "2.4.1"),
        ("torch==2.4.1; python_version=='3.11'", "3.11.4", "2.4.1"),
        ("torch==2.4.1; python_version=='3.9'", None, "2.4.1"),
        ("torch==2.4.1; python_version<'3.9'", None, "2.4.1"),
        (_SPLIT, None, "2.5.1"),
        (_SPLIT, "<3.11", "2.4.1"),
        (_SPLIT, "3.10", "2.4.1"),
        ("torch==2.4.1+cu118; python_version<'3.11'\ntorch==2.5.1; python_version >= '3.20'", None, "2.4.1"),
    ],
)
def test_each_python_is_answered_with_the_lines_that_hold_there(
    facts: Matrix, text: str, python: str | None, torch: str
) -> None:
    found = answer(facts, text, **({"python": python} if python else {}))
    assert isinstance(found, Stack), found
    assert found.frameworks == {"torch": torch}
    assert found.python is not None
    holding = [line for line in named_lines(tuple(text.split("\n"))) if line.holds(found.python, found.platform)]
    assert [line.specifier for line in holding] == [f"=={torch}"]
    assert all(line.variant in (None, found.variants["torch"]) for line in holding)


def test_a_python_on_which_no_line_names_the_framework_is_no_answer(facts: Matrix) -> None:
    found = answer(facts, "torch==2.4.1; python_version>='3.13'")
    assert isinstance(found, Refusal)
    assert any("does not hold there" in reason.because for reason in found.because)
    assert ">=0" not in f"{found}"
    with pytest.raises(UsageError, match=r"r.txt, line 1 does not hold on Python 3\.12, and nothing else names"):
        join("torch==2.4.1; python_version < '3.12'", python="3.12")


def test_frameworks_that_no_python_has_together_are_not_refused_as_proved(facts: Matrix) -> None:
    found = answer(facts, "torch==2.4.1; python_version<'3.10'\njax==0.4.30; python_version>='3.10'")
    assert isinstance(found, Refusal)
    assert not found.is_proved


def test_the_platform_of_a_gpu_decides_a_marker(facts: Matrix) -> None:
    text = "torch==2.9.1; platform_machine == 'aarch64'\ntorch==2.4.1; platform_machine == 'x86_64'"
    found = solve(parse_request({**join(text, gpu="gh200"), "requirements": text.split("\n")}), facts)
    assert isinstance(found, Stack), found
    assert (found.platform, found.frameworks) == ("linux/arm64", {"torch": "2.9.1"})


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("jax[cuda12_local]", UnknownError, "cuda12-local"),
        ("jax[cuda12-local]; python_version < '3.12'", UnknownError, "cuda12-local"),
        ("jax[tpu]==0.4.30", UnknownError, "tpu"),
        ("jax[rocm]", UnknownError, "rocm"),
        ("jax[cuda12,cuda13]", UsageError, "CUDA 12 and CUDA 13 at once"),
    ],
)
def test_extras_of_jax_that_no_stack_honours_are_refused(line: str, kind: type[ProvisionError], said: str) -> None:
    with pytest.raises(kind) as caught:
        join(f"einops\n{line}")
    assert caught.value.message.startswith(f"r.txt, line 2: `{line}`")
    assert said in caught.value.message.replace("_", "-")


def test_each_python_gets_the_cuda_that_its_line_names(facts: Matrix) -> None:
    text = "jax[cuda12]==0.8.0; python_version < '3.12'\njax[cuda13]==0.8.0; python_version >= '3.12'"
    for python, variant in (("<3.12", "cuda12"), (">=3.12", "cuda13")):
        found = answer(facts, text, python=python)
        assert isinstance(found, Stack), found
        assert found.variants["jax"] == variant


@pytest.mark.parametrize(
    ("framework", "extras", "is_all"),
    [
        ("jax", ["cuda12"], True),
        ("jax", ["cuda11_cudnn86"], True),
        ("jax", ["cuda12_local"], False),
        ("jax", ["cuda12", "k8s"], False),
        ("tensorflow", ["and-cuda"], True),
        ("torch", [""], True),
        ("torch", ["cuda12"], False),
    ],
)
def test_extras_that_the_lock_honours(framework: str, extras: list[str], is_all: bool) -> None:
    assert is_honoured(framework, extras) is is_all


def test_a_line_that_names_a_companion_of_pytorch_takes_the_newest_build_that_has_it() -> None:
    facts = Matrix()
    stack = answer(facts, "torchaudio==2.11.0", torch=">=2")
    assert isinstance(stack, Stack)
    assert stack.packages["torchaudio"] == "2.11.0"
    assert stack.variants["torch"] != "cu132"
    same = answer(facts, "einops", torch=stack.frameworks["torch"], cuda=stack.cuda)
    assert isinstance(same, Stack)
    assert stack.python == same.python  # an older Python helps nothing
    # The last minor is for any PyTorch, and a range that admits it asks for no earlier one.
    newest = answer(facts, "einops", torch=">=2")
    assert isinstance(newest, Stack)
    assert answer(facts, "torchaudio>=2", torch=">=2").frameworks == newest.frameworks
    refused = answer(facts, "torchaudio==2.11.0", torch="2.14.1", cuda="13.2")
    assert isinstance(refused, Refusal)
    assert refused.is_proved
    assert any("torch 2.14.1 needs torchaudio==2.11.1" in reason.because for reason in refused.because)
    assert refused.alternatives


def test_a_companion_that_does_not_count_on_a_python_is_not_asked_for() -> None:
    stack = answer(Matrix(), 'torchaudio; python_version < "3.8"', torch="2.5", python="3.13")
    assert isinstance(stack, Stack)
    assert "torchaudio" not in stack.packages
