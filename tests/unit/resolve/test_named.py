"""The frameworks that the lines of a requirements file name."""

from __future__ import annotations

import pytest

from provision.errors import IncompatibleError
from provision.resolve.named import FrameworkLine, join_frameworks
from provision.resolve.requirements import parse_requirements


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
        ("torch==2.4.1; python_version < '3.12'", {}, {"torch": "2.4.1"}),
        ("torch==2.4.1; python_version < '3.12'", {"python": "3.12"}, {"python": "3.12"}),
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
