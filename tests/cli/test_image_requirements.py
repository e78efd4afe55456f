"""`provision image -r FILE` and `--with NAME`: what a file says of frameworks counts, and nothing is dropped."""

from __future__ import annotations

import pytest

from provision.records import replace
from provision.resolve.stack import Stack


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def image(provision, folder):
    """Run `provision image` with a requirements file, into the folder `out`."""

    def run(text: str | None, *words: str):
        if text is not None:
            (folder / "requirements.txt").write_text(text)
            words = ("-r", "requirements.txt", *words)
        answer = provision("image", *words, "-o", "out")
        lock = folder / "out" / "provision.lock"
        return answer, Stack.from_lock(lock.read_text()) if lock.exists() else None

    return run


def _user_lines(folder) -> list[str]:
    file = folder / "out" / "requirements.user.txt"
    return [line for line in file.read_text().splitlines() if not line.startswith("#")] if file.exists() else []


@pytest.mark.parametrize(
    ("line", "frameworks", "variant"),
    [
        ("torch==2.4.1", {"torch": "2.4.1"}, "cu121"),
        ("torch==2.4.1+cu121", {"torch": "2.4.1"}, "cu121"),
        ("torch==2.4.1+cu118", {"torch": "2.4.1"}, "cu118"),
        ("torch>=2.1,<2.4", {"torch": "2.3.1"}, "cu121"),
        ("jax[cuda12]==0.4.30", {"jax": "0.4.30"}, "cuda12"),
        ("jax[cuda11_cudnn86]==0.4.13", {"jax": "0.4.13"}, "cuda11"),
    ],
)
def test_the_framework_is_taken_from_the_file(image, folder, line, frameworks, variant):
    answer, stack = image(f"{line}\neinops>=0.7\n")
    assert answer.code == 0, answer.err
    assert (stack.frameworks, stack.variant) == (frameworks, variant)
    assert _user_lines(folder) == ["einops>=0.7"]
    assert "plus 1 line of yours, resolved when the image is built: see requirements.user.txt" in answer.err


def test_what_pytorch_releases_with_a_build_may_bear_its_local_part(image, folder):
    answer, stack = image("torch==2.4.1+cu121\ntorchvision==0.19.1+cu121\ntorchaudio==2.4.1+cu121\n")
    assert answer.code == 0, answer.err
    assert (stack.packages["torchvision"], stack.packages["torchaudio"]) == ("0.19.1", "2.4.1")
    # The index has none of that local part.
    assert _user_lines(folder) == ["torchaudio==2.4.1", "torchvision==0.19.1"]
    assert image("torch==2.4.1+cu121\ntorchvision==0.19.1+cu118\n")[0].code == 4


def test_an_extra_of_the_framework_is_still_installed(image, folder):
    answer, _ = image("torch[opt-einsum]==2.4.1\n")
    assert answer.code == 0, answer.err
    assert _user_lines(folder) == ["torch[opt-einsum]==2.4.1"]


def test_an_extra_beside_a_local_part_is_installed_on_the_build_of_the_lock(image, folder):
    answer, stack = image("torch[opt-einsum]==2.4.1+cu121\n")
    assert answer.code == 0, answer.err
    assert stack.packages["torch"] == "2.4.1"
    assert _user_lines(folder) == ["torch[opt-einsum]==2.4.1"]


def test_a_file_beside_a_flag_means_both_frameworks(image):
    answer, stack = image("tensorflow==2.20.0\n", "--torch", "2.7.1")
    assert answer.code == 0, answer.err
    assert stack.frameworks == {"torch": "2.7.1", "tensorflow": "2.20.0"}


def test_a_flag_against_the_file_is_refused_with_both_lines(image):
    answer, stack = image("einops\ntorch==2.4.1\n", "--torch", "2.3")
    assert (answer.code, stack) == (3, None)
    assert "`--torch 2.3` and `torch==2.4.1` in requirements.txt, line 2 cannot be met together" in answer.err


def test_lines_that_exclude_each_other_are_refused_without_the_framework_beside_them(image):
    answer, _ = image("torch==2.6\nnumpy<1\nnumpy>2\n")
    assert answer.code == 3
    first, second = answer.err.splitlines()[:2]
    assert "`numpy<1` in requirements.txt, line 2 and `numpy>2` in requirements.txt, line 3 cannot be met" in first
    assert second == "  because your requirements file needs numpy<1 and your requirements file needs numpy>2"
    assert "torch" not in first


def test_a_library_of_cuda_that_moves_the_stack_to_another_build_is_named(image):
    answer, stack = image("torch==2.6\nnvidia-cudnn-cu12==9.5.1.17\n")
    assert answer.code == 0, answer.err
    assert stack.variant == "cu126"
    (reason,) = (item.because for item in stack.reasons if item.subject == "torch")
    assert reason.endswith("; cu126 is its newest build that goes with `nvidia-cudnn-cu12==9.5.1.17`")


def test_a_file_without_a_framework_is_a_sentence(image):
    answer, stack = image("einops\n")
    assert (answer.code, stack) == (2, None)
    assert "your requirements file names no framework" in answer.err


def test_a_project_that_names_its_frameworks_under_extras_is_told_which(provision, folder):
    extras = 'torch = ["torch>=2"]\nflax = ["jax[cuda12]"]\nxreg = ["jax"]\n'
    text = '[project]\nname = "x"\nversion = "1"\ndependencies = ["numpy"]\n[project.optional-dependencies]\n' + extras
    (folder / "pyproject.toml").write_text(text)
    answer = provision("resolve", "--project", ".")
    assert answer.code == 2
    assert "hint: `--extra torch` adds the torch that the project names\n" in answer.err
    assert "hint: `--extra flax` or `--extra xreg` adds the jax that the project names\n" in answer.err


def test_a_tensorflow_that_excludes_the_torch_of_a_list_may_leave_it_the_gpu(image, folder):
    answer, _ = image("torch==2.2.0\ntensorflow==2.15.0\n")
    assert answer.code == 3
    assert "it works with `tensorflow-cpu==2.15.0`, which leaves the GPU alone" in answer.err
    answer, stack = image("torch==2.2.0\ntensorflow-cpu==2.15.0\n")
    assert answer.code == 0, answer.err
    assert set(stack.frameworks) == {"torch"}


def test_an_extra_without_a_framework_is_a_sentence(image):
    answer, stack = image(None, "--with", "jupyter")
    assert (answer.code, stack) == (2, None)
    assert "`--with jupyter` names no framework" in answer.err


def test_an_extra_is_written_as_the_release_that_goes_with_the_framework(image, folder):
    answer, stack = image(None, "--torch", "2.6.0", "--with", "vllm")
    assert answer.code == 0, answer.err
    (extra,) = stack.image.extras
    assert extra.requires == ("vllm==0.8.5.post1",)
    assert _user_lines(folder) == ["vllm==0.8.5.post1"]


def test_an_extra_without_a_known_release_is_refused_with_a_command_that_works(image, provision):
    answer, stack = image(None, "--torch", "2.4.1", "--with", "vllm")
    assert (answer.code, stack) == (4, None)
    assert "paired with no vllm that the facts know" in answer.err
    assert "`provision image --torch 2.5 --with vllm -o out` works" in answer.err
    assert provision("image", "--torch", "2.5", "--with", "vllm", "-o", "out").code == 0


def test_locked_keeps_to_what_the_file_named(image, provision):
    assert image("torch==2.4.1\neinops\n")[0].code == 0
    assert provision("image", "-r", "requirements.txt", "-o", "out", "--locked").code == 0
    assert provision("image", "-r", "requirements.txt", "-o", "out", "--check").code == 0


def test_an_extra_that_the_lock_holds_is_imported_with_it(image, folder):
    answer, stack = image(None, "--tensorflow", "2.20.0", "--with", "tensorboard")
    assert answer.code == 0, answer.err
    assert "tensorboard" in stack.packages
    assert _user_lines(folder) == []
    assert "--static --lock /build/expect.json --import tensorboard\n" in (folder / "out" / "Dockerfile").read_text()


def test_a_line_of_your_own_is_imported_once_it_is_installed(image, folder):
    answer, _ = image("torch==2.4.1\neinops>=0.7\nold; python_version < '3'\n")
    assert answer.code == 0, answer.err
    text = (folder / "out" / "Dockerfile").read_text()
    assert "--packages --lock /build/expect.json --import einops torch\n" in text
    assert "--static --lock /build/expect.json\n" in text


def test_an_upgrade_tells_a_lock_of_several_frameworks_apart(image, folder, provision):
    _, stack = image(None, "--torch", "2.7.1", "--tensorflow", "2.20.0")
    (folder / "old").mkdir()
    (folder / "old" / "provision.lock").write_text(replace(stack, builds=()).to_lock())
    answer = provision("image", "--upgrade", "-o", "old", "--force")
    assert answer.code == 0, answer.err
    assert "+ tensorflow built for CUDA 12.5, cuDNN 9" in answer.err
    assert Stack.from_lock((folder / "old" / "provision.lock").read_text()) == stack


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (
            "einops\ntorch==2.4.1+cu118\n",
            ("--python", "3.13"),
            "`torch==2.4.1+cu118` in requirements.txt, line 2 and `--python 3.13` cannot be met together",
        ),
        ("torch\n", ("--driver", "300"), "`torch` in requirements.txt, line 1"),
        (
            "torch>=2.2\n",
            ("--torch", "2.4", "--python", "3.13"),
            "`--torch 2.4` and `torch>=2.2` in requirements.txt, line 1 and `--python 3.13`",
        ),
        ("jax[cuda12]==0.4.30\n", ("--driver", "450"), "`jax[cuda12]==0.4.30` in requirements.txt, line 1"),
        ("vllm==0.8.5\n", ("--torch", "2.5"), "`--torch 2.5` and `vllm==0.8.5` in requirements.txt, line 1"),
    ],
)
def test_a_refusal_names_the_line_and_no_flag_that_nobody_typed(image, text, words, said):
    answer, stack = image(text, *words)
    assert stack is None
    assert answer.code in (3, 4)
    assert said in answer.err
    assert ">=0" not in answer.err


def test_explain_names_the_line_too(provision, folder):
    (folder / "requirements.txt").write_text("torch==2.4.1+cu118\n")
    answer = provision("explain", "-r", "requirements.txt", "--python", "3.13", "--json")
    result = answer.document["result"]
    assert result["conflict"] == ["torch==2.4.1+cu118 in requirements.txt, line 1", "--python 3.13"]


def test_a_line_that_does_not_hold_on_the_named_python_is_refused_by_its_line(image):
    answer, stack = image('torch==2.4.1; python_version<"3.9"\neinops\n', "--python", "3.11")
    assert (answer.code, stack) == (2, None)
    assert "in requirements.txt, line 1 does not hold on Python 3.11" in answer.err


def test_a_line_with_a_marker_is_taken_out_of_what_is_installed_on_top(image, folder):
    answer, stack = image('torch==2.4.1; python_version>="3.9"\neinops\n', "--python", "3")
    assert answer.code == 0, answer.err
    assert stack.frameworks == {"torch": "2.4.1"}
    assert _user_lines(folder) == ["einops"]
