"""`--project DIR` and `-r FILE`: what people really have is read whole, or refused by file, line and way out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import ProvisionError
from provision.project.pythons import python_bound
from provision.project.read import read_inputs


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


SETUP_OF_TORCH = 'from setuptools import setup\nsetup(name="x", install_requires=["torch"])\n'


def _write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def _texts(inputs):
    return [line.requirement.text for line in inputs.lines]


def _listed(folder, text, **others):
    for name, content in others.items():
        _write(folder, f"{name}.txt", content)
    return read_inputs([_write(folder, "requirements.txt", text).relative_to(folder)])


def _project(folder, *extras, groups=(), **files):
    for name, content in files.items():
        _write(folder, name.replace("_dot_", "."), content)
    (folder / "app").mkdir(exist_ok=True)
    return read_inputs([], folder, extras, groups)


def _refused(function, *words, **options):
    with pytest.raises(ProvisionError) as caught:
        function(*words, **options)
    assert caught.value.hints
    return caught.value


def test_a_file_as_it_is_in_the_wild(folder):
    inputs = _listed(
        folder,
        "\ufeff# head\r\ntorch==2.4.1+cu121 \\\r\n    --hash=sha256:aa \\\r\n    --hash=sha256:bb\r\n"
        "einops>=0.7 ; python_version >= '3.9'  # why\r\nuvicorn[standard]\r\n"
        "pkg @ https://mirror.example/pkg-1.0-py3-none-any.whl\r\nhttps://mirror.example/other-2.0-py3-none-any.whl\r\n"
        "git+https://x.example/y/Name.git\r\ngit+https://x.example/y/z.git@v1#egg=named&subdirectory=a\r\n"
        "-e git+https://x.example/y/edited.git@abc#egg=edited\r\n",
    )
    assert _texts(inputs) == [
        "torch==2.4.1+cu121",
        "einops>=0.7 ; python_version >= '3.9'",
        "uvicorn[standard]",
        "pkg @ https://mirror.example/pkg-1.0-py3-none-any.whl",
        "other @ https://mirror.example/other-2.0-py3-none-any.whl",
        "git+https://x.example/y/Name.git",
        "named @ git+https://x.example/y/z.git@v1#subdirectory=a",
        "edited @ git+https://x.example/y/edited.git@abc",
    ]
    assert inputs.lines[1].where == "requirements.txt, line 5"
    assert any("edited is installed, and not for editing" in text for text in inputs.warnings)


def test_files_name_others_beside_themselves(folder):
    _write(folder, "parts/base.txt", "-r more.txt\nnumpy<2\n")
    _write(folder, "parts/more.txt", "einops\n")
    inputs = _listed(folder, "-r parts/base.txt\n-c bounds.txt\ntorch\n", bounds="scipy<1.13\ntorch<2.5\n")
    assert _texts(inputs) == ["einops", "numpy<2", "torch"]
    assert [(line.requirement.text, line.where) for line in inputs.constraints] == [
        ("scipy<1.13", "bounds.txt, line 1"),
        ("torch<2.5", "bounds.txt, line 2"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-r requirements.txt", "the files lead in a circle"),
        ("-r absent.txt", "the file that it names is not there"),
        ("-r https://x.example/r.txt", "no file is fetched from an address"),
        ("-e .", "no such wheel, archive or project is here"),
        (".", "no such wheel, archive or project is here"),
        ("./wheels/pkg-1.0-py3-none-any.whl", "no such file or project is here"),
        ("-e .[train]", "no such wheel, archive or project is here"),
        ("numpy @ file:///home/conda/build/numpy", "may lie on the machine that wrote the line"),
        ("x @ git+ssh://git:word@x.example/y.git", "is named without a password"),
        ("x @ git+git@x.example:y.git", "is named without a password and with slashes alone"),
        ("--no-index", "`--no-index` cannot be kept to"),
        ("--extra-index-url https://${TOKEN_OF_NOBODY}@x.example/simple", "`TOKEN_OF_NOBODY` is not set"),
        ("--extra-index-url https://$TOKEN@x.example/simple", "holds a variable that is not set"),
        ("-r ${NAME_OF_NOTHING}.txt", "`NAME_OF_NOTHING` is not set"),
        ("--extra-index-url http://x.example/simple", "only https addresses are used"),
        ("-f ./wheels", "is not a folder here"),
        ("numpy=1.26.4=py311h64a7726_0", "a package of conda, as `conda list --export` prints it"),
        ("numpy --global-option=x", "only `--hash` is taken"),
        ("--strange x", "`--strange` is not an option that is taken"),
        ("numpy==${VERSION_OF_NOTHING}", "`VERSION_OF_NOTHING` is not set"),
        ("numpy==$VERSION", "is not a requirement"),
        ("=1", "is not a requirement"),
    ],
)
def test_a_refusal_names_file_line_and_a_way_out(folder, line, said):
    error = _refused(_listed, folder, f"einops\n{line}\n")
    assert said in error.message
    assert "requirements.txt, line 2" in error.message
    assert "word" not in f"{error.message}{error.because}".replace("password", "")


def test_variables_are_expanded_as_pip_does(folder, monkeypatch):
    monkeypatch.setenv("VERSION_OF_NUMPY", "1.26.4")
    monkeypatch.setenv("WHICH", "bounds")
    monkeypatch.setenv("HOST", "own.example")
    inputs = _listed(
        folder,
        "numpy==${VERSION_OF_NUMPY}\n-c ${WHICH}.txt\n--extra-index-url https://${HOST}/simple\n",
        bounds="scipy<1.13\n",
    )
    assert (_texts(inputs), inputs.indexes) == (["numpy==1.26.4"], ("https://own.example/simple",))
    assert [line.requirement.text for line in inputs.constraints] == ["scipy<1.13"]
    environment = "dependencies:\n  - pip:\n    - numpy==${VERSION_OF_NUMPY}\n"
    assert _texts(read_inputs([_write(folder, "environment.yml", environment)])) == ["numpy==1.26.4"]


def test_the_files_of_a_circle_are_named_in_turn(folder):
    error = _refused(_listed, folder, "-r a.txt\n", a="-c b.txt\n", b="-r a.txt\n")
    assert error.because == ("requirements.txt → a.txt → b.txt → a.txt",)


def test_files_do_not_lead_on_without_end(folder):
    others = {f"a{number}": f"-r a{number + 1}.txt\n" for number in range(60)}
    assert "too many files lead from one to the next" in _refused(_listed, folder, "-r a0.txt\n", **others).message


def test_ten_thousand_lines_are_read(folder):
    inputs = _listed(folder, "".join(f"package-{number}=={number}.0\n" for number in range(10_000)))
    assert len(inputs.lines) == 10_000


_WORDS = [
    "-r",
    "-e",
    "--hash=",
    "-f",
    "=",
    "==",
    "@",
    "git+",
    "https://",
    "file:",
    "#",
    "\\",
    "[x]",
    ";",
    "torch",
    "$",
    "\n",
    " ",
]


@pytest.mark.parametrize(
    "name", ["requirements.txt", "setup.py", "setup.cfg", "pyproject.toml", "environment.yml", "Pipfile"]
)
@given(st.lists(st.one_of(st.sampled_from(_WORDS), st.text(max_size=5)), max_size=20).map("".join))
def test_rubbish_is_refused_and_never_a_traceback(name, text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        for files, project in (([path], None), ([], path.parent)):
            try:
                read_inputs(files, project)
            except ProvisionError:
                continue


@pytest.mark.parametrize("name", ["conda-lock.yml", "pyproject.toml", "Pipfile", "uv.lock", "setup.py"])
def test_another_kind_of_file_is_told_by_name(folder, name):
    error = _refused(read_inputs, [_write(folder, name, "dependencies:\n")])
    assert "not a list of requirements" in error.message
    assert "--project" in error.hints[0]


def test_options_that_choose_files_are_told_and_left_out(folder):
    inputs = _listed(folder, "--pre\n--prefer-binary\n--only-binary :all:\n--trusted-host x.example\ntorch\n")
    assert _texts(inputs) == ["torch"]
    assert len(inputs.warnings) == 4


def test_other_indexes_are_kept_in_order_the_main_one_last(folder):
    inputs = _listed(
        folder,
        "-i https://main.example/simple/\n--extra-index-url https://a.example/simple\n"
        "-f https://b.example/links.html\n--extra-index-url=https://c.example/simple\ntorch\n",
    )
    assert inputs.indexes == (
        "https://a.example/simple",
        "find-links:https://b.example/links.html",
        "https://c.example/simple",
        "https://main.example/simple",
    )


@pytest.mark.parametrize(
    ("option", "cuda"),
    [
        ("--extra-index-url https://download.pytorch.org/whl/cu118", "11.8"),
        ("--index-url=https://download.pytorch.org/whl/cu121/", "12.1"),
        ("-f https://download.pytorch.org/whl/cu113/torch_stable.html", "11.3"),
        ("--find-links https://download.pytorch.org/whl/torch_stable.html", None),
    ],
)
def test_the_index_of_pytorch_is_a_wish_for_its_cuda(folder, option, cuda):
    inputs = _listed(folder, f"{option}\ntorch\n")
    assert (inputs.cuda, inputs.indexes) == (cuda, ())


@pytest.mark.parametrize("part", ["nightly/cu128", "rocm6.0"])
def test_an_index_of_pytorch_without_known_builds_is_refused(folder, part):
    error = _refused(_listed, folder, f"torch\n--extra-index-url https://download.pytorch.org/whl/{part}\n")
    assert "requirements.txt, line 2" in error.message
    assert error.exit_code == 4


@pytest.mark.parametrize("other", ["-f https://download.pytorch.org/whl/cu121", "torch==2.1.0+cu121"])
def test_two_wishes_for_cuda_are_refused_with_both_places(folder, other):
    error = _refused(_listed, folder, f"--extra-index-url https://download.pytorch.org/whl/cu118\n{other}\n")
    assert error.exit_code == 3
    assert "line 1" in error.message
    assert "line 2" in error.message


def test_the_index_without_cuda_is_a_wish_for_such_builds(provision, folder):
    _write(folder, "requirements.txt", "--extra-index-url https://download.pytorch.org/whl/cpu\ntorch==2.6.0\n")
    found = provision("resolve", "-r", "requirements.txt")
    assert found.code == 0
    assert "torch 2.6.0+cpu" in found.out
    against = provision("resolve", "-r", "requirements.txt", "--cuda", "12.4")
    assert against.code == 2
    assert "whl/cpu` in requirements.txt, line 1 and `--cuda 12.4` contradict each other" in against.err


def test_an_index_without_cuda_and_one_with_it_are_refused_with_both_places(folder):
    text = "--index-url https://download.pytorch.org/whl/cu124\n-f https://download.pytorch.org/whl/cpu\ntorch\n"
    error = _refused(_listed, folder, text)
    assert "line 1" in error.message
    assert "whl/cpu` in" in error.message


def test_a_wheel_of_pytorchs_index_is_its_release(folder):
    inputs = _listed(
        folder, "torch @ https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl\n"
    )
    assert _texts(inputs) == ["torch==2.0.1+cu118"]


def test_the_wish_of_an_index_chooses_the_build(provision, folder):
    _write(folder, "requirements.txt", "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.4.1\n")
    answer = provision("resolve", "-r", "requirements.txt", "--json")
    assert answer.document["result"]["stack"]["variants"] == {"torch": "cu118"}
    refused = provision("resolve", "-r", "requirements.txt", "--cuda", "12.4")
    assert refused.code == 3
    assert (
        "`--cuda 12.4` and `--extra-index-url https://download.pytorch.org/whl/cu118` in requirements.txt"
        in refused.err
    )


def test_a_constraint_binds_the_framework_that_a_line_asks_for(provision, folder):
    _write(folder, "requirements.txt", "-c bounds.txt\ntorch\n")
    _write(folder, "bounds.txt", "torch<2.4\n")
    answer = provision("resolve", "-r", "requirements.txt", "--json")
    assert answer.document["result"]["stack"]["frameworks"] == {"torch": "2.3.1"}
    assert answer.document["result"]["stack"]["request"]["constraints"] == ["torch<2.4"]


def test_a_file_without_framework_gets_the_one_that_its_packages_need(provision, folder):
    _write(folder, "requirements.txt", "vllm==0.11.0\ntransformers\n")
    answer = provision("resolve", "-r", "requirements.txt", "--json")
    assert set(answer.document["result"]["stack"]["frameworks"]) == {"torch"}
    _write(folder, "requirements.txt", "pandas\n")
    refused = provision("resolve", "-r", "requirements.txt")
    assert refused.code == 2
    assert "--torch" in refused.err


PYPROJECT = """
[project]
name = "demo"
requires-python = ">=3.10.2"
dependencies = ["torch>=2.4", "tool", "member", "cuda-thing"]
[project.optional-dependencies]
train = ["peft"]
all = ["demo[train]", "wandb"]
[dependency-groups]
base = ["ruff"]
dev = ["pytest", {include-group = "base"}]
[tool.uv.sources]
torch = [{ index = "pt", marker = "sys_platform == 'linux'" }, { index = "cpu", marker = "sys_platform != 'linux'" }]
tool = { git = "https://x.example/y/tool", rev = "abc", subdirectory = "python" }
member = { workspace = true }
[tool.uv.workspace]
members = ["packages/*"]
[[tool.uv.index]]
name = "pt"
url = "https://download.pytorch.org/whl/cu124"
explicit = true
[[tool.uv.index]]
name = "cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
name = "own"
url = "https://own.example/simple"
"""


def test_a_pyproject_with_extras_groups_and_sources(folder):
    _write(folder, "packages/member/pyproject.toml", '[project]\nname = "member"\ndependencies = ["attrs"]\n')
    _write(folder, "uv.lock", "version = 1\n")
    inputs = _project(folder, "all", groups=("dev",), pyproject_dot_toml=PYPROJECT)
    assert _texts(inputs) == [
        "torch>=2.4",
        "tool @ git+https://x.example/y/tool@abc#subdirectory=python",
        "attrs",
        "cuda-thing",
        "peft",
        "wandb",
        "pytest",
        "ruff",
    ]
    assert (inputs.cuda, inputs.python, inputs.indexes) == ("12.4", ">=3.10", ("https://own.example/simple",))
    assert inputs.code == folder
    assert "read 8 requirements" in inputs.read[0]
    assert any("uv.lock holds 0 versions" in text for text in inputs.read)


@pytest.mark.parametrize(
    ("words", "said"), [(("--extra", "nope"), "known are: all, train"), (("--group", "nope"), "known are: base, dev")]
)
def test_an_unknown_part_of_a_project_is_told_with_those_there_are(provision, folder, words, said):
    _write(folder, "pyproject.toml", PYPROJECT)
    answer = provision("resolve", "--project", ".", *words)
    assert answer.code == 2
    assert said in answer.err


def test_a_part_without_a_project_is_refused(provision):
    answer = provision("resolve", "--torch", "2.4", "--extra", "train")
    assert answer.code == 2
    assert "--project DIR" in answer.err


def test_a_pyproject_of_poetry(folder):
    text = """
[tool.poetry]
name = "demo"
[tool.poetry.dependencies]
python = "^3.9"
torch = { version = "~2.1.0", source = "pt" }
numpy = "^1.24"
einops = "*"
tool = { git = "https://x.example/y/tool.git", tag = "v1" }
speed = { version = "^1.0", optional = true }
old = { version = "1.0", python = "<3.10" }
[tool.poetry.extras]
fast = ["speed"]
[[tool.poetry.source]]
name = "pt"
url = "https://download.pytorch.org/whl/cu118"
priority = "explicit"
"""
    inputs = _project(folder, pyproject_dot_toml=text)
    assert _texts(inputs) == [
        "torch>=2.1.0,<2.2",
        "numpy>=1.24,<2",
        "einops",
        "tool @ git+https://x.example/y/tool.git@v1",
        "old==1.0 ; python_version < '3.10'",
    ]
    assert (inputs.cuda, inputs.python) == ("11.8", ">=3.9,<4")
    assert "speed>=1.0,<2" in _texts(_project(folder, "fast"))


HATCH = """
[project]
name = "x"
requires-python = ">=3.11"
dynamic = ["optional-dependencies"]
dependencies = []
[tool.hatch.metadata.hooks.requirements_txt.optional-dependencies]
cuda12 = ["lists/cuda12.txt"]
"""


def test_extras_that_hatch_reads_from_lists(folder):
    _write(folder, "lists/cuda12.txt", "jax[cuda12]==0.6.2\n")
    assert _texts(_project(folder, "cuda12", pyproject_dot_toml=HATCH)) == ["jax[cuda12]==0.6.2"]


def test_a_project_that_asks_for_nothing_makes_no_empty_image(folder, provision):
    _write(folder, "pyproject.toml", HATCH)
    answer = provision("resolve", "--project", ".")
    assert answer.code == 2
    assert "pyproject.toml asks for no package; it has the extras cuda12, and no flag names one" in answer.err
    assert provision("resolve", "--project", ".", "--torch", "2.6").out.startswith("torch2.6")


WHEEL = "https://download.pytorch.org/whl/cu124/{0}%2Bcu124-{1}-{1}-{2}.whl"


def test_a_wheel_by_address_holds_the_python_and_the_platform_to_its_own(folder):
    line = f"torch @ {WHEEL.format('torch-2.6.0', 'cp310', 'linux_x86_64')}"
    inputs = _project(folder, requirements_dot_txt=f"{line}\n")
    assert _texts(inputs) == ["torch==2.6.0+cu124"]
    assert inputs.python == "3.10"
    other = WHEEL.format("torchvision-0.21.0", "cp311", "linux_x86_64")
    both = _refused(_project, folder, requirements_dot_txt=f"{line}\n{other}\n")
    assert "no Python is both" in " ".join(both.because)
    windows = WHEEL.format("torch-2.6.0", "cp310", "win_amd64")
    assert "wheel for win_amd64" in _refused(_project, folder, requirements_dot_txt=f"torch @ {windows}\n").message


def test_an_extra_that_a_project_of_poetry_has_not_is_refused(folder):
    text = '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\ntorch = "2.4.1"\n[tool.poetry.extras]\nasr = []\n'
    refused = _refused(_project, folder, "nope", pyproject_dot_toml=text)
    assert "--extra nope" in refused.message
    assert "asr" in " ".join((*refused.because, *refused.hints))


def test_the_source_that_poetry_calls_pypi_needs_no_address(folder):
    text = '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\ntorch = {version = "2.4.1", source = "pypi"}\n'
    inputs = _project(folder, pyproject_dot_toml=f'{text}[[tool.poetry.source]]\nname = "PyPI"\npriority = "primary"\n')
    assert (_texts(inputs), inputs.indexes, inputs.sources) == (["torch==2.4.1"], (), ())


def test_a_list_that_stands_in_a_dictionary_of_the_script_is_read(folder):
    text = (
        'needs = {"run": ["tensorflow-gpu==2.7.0"], "test": ["pytest"]}\nextras = {}\n'
        'extras["gpu"] = ["numba"]\nextras["all"] = extras["all"] + ["x"]\n'
        'setup(install_requires=needs["run"], extras_require=extras)\n'
    )
    inputs = _project(folder, "gpu", setup_dot_py=text)
    assert _texts(inputs) == ["tensorflow==2.7.0", "numba"]
    assert any("setup.py, line 1: tensorflow-gpu is taken as tensorflow" in text for text in inputs.warnings)
    inputs = _project(folder, "all", setup_dot_py=text)
    assert any("setup.py, line 4: what is added here shows only when it runs" in text for text in inputs.warnings)


def test_a_marker_behind_an_address_may_touch_it(folder):
    wheel = "https://x.example/demo-1.0-py3-none-any.whl"
    inputs = _listed(folder, f'{wheel}; sys_platform == "linux"\n')
    assert _texts(inputs) == [f'demo @ {wheel} ; sys_platform == "linux"']


def test_a_script_whose_list_shows_only_when_it_runs_is_refused_with_its_line(folder):
    error = _refused(_project, folder, setup_dot_py="from x import y\nsetup(\n    install_requires=y(),\n)\n")
    assert any("setup.py, line 3: what it asks for shows only when it runs" in reason for reason in error.because)


def test_dynamic_dependencies_come_from_their_file(folder):
    text = (
        '[project]\nname = "demo"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["deps.txt"]}\n'
    )
    _write(folder, "deps.txt", "torch==2.4.1\n-e .\n")
    inputs = _project(folder, pyproject_dot_toml=text)
    assert _texts(inputs) == ["torch==2.4.1"]
    assert any("is the project itself" in text for text in inputs.warnings)


def test_an_environment_of_conda(folder):
    text = """
channels: [pytorch, nvidia]
dependencies:
  - python=3.10.12
  - pytorch=2.1.0
  - pytorch-cuda=12.1
  - opencv
  - py-opencv>=4.5
  - ffmpeg
  - pip
  - pip:
    - einops
    - --extra-index-url https://own.example/simple
"""
    inputs = _project(folder, environment_dot_yml=text)
    assert _texts(inputs) == ["torch==2.1.0.*", "opencv-python", "opencv-python>=4.5", "einops"]
    assert (inputs.cuda, inputs.python, inputs.indexes) == ("12.1", "3.10", ("https://own.example/simple",))
    assert inputs.places["cuda"] == "`pytorch-cuda=12.1` in " + str(folder / "environment.yml") + ", line 6"
    assert any(text.endswith("are left out: ffmpeg") for text in inputs.warnings)


@pytest.mark.parametrize(
    ("packages", "cuda", "warned"),
    [
        ("pytorch=2.5.1, cuda-version=12.4", "12.4", ""),
        ("pytorch=2.5.1=cuda118*, cuda-version=11.8", "11.8", ""),
        ("pytorch=2.5.1=*cuda126*", "12.6", ""),
        ('pytorch=2.5.1, "cuda-version>=12,<13"', None, "is left out"),
        ("pytorch=2.5.1, cpuonly", None, "`--cpu` chooses one here"),
        ("pytorch=2.5.1=cpu_generic*", None, "`--cpu` chooses one here"),
        ("pytorch-cpu=2.5.1", None, "`--cpu` chooses one here"),
    ],
)
def test_the_cuda_of_an_environment_is_that_of_its_packages(folder, packages, cuda, warned):
    inputs = _project(folder, environment_dot_yml=f"dependencies: [python=3.11, {packages}]\n")
    # A build string makes the version exact.
    assert _texts(inputs) in (["torch==2.5.1.*"], ["torch==2.5.1"])
    assert inputs.cuda == cuda
    assert any(warned in text for text in inputs.warnings) == bool(warned)
    assert not any("cpuonly" in text and "not known" in text for text in inputs.warnings)


def test_no_way_out_is_named_that_the_project_itself_forbids(provision, folder):
    text = '[project]\nname = "demo"\nrequires-python = ">=3.14"\ndependencies = ["torch==2.5.1"]\n'
    _write(folder, "pyproject.toml", text)
    answer = provision("resolve", "--project", folder)
    assert answer.code == 3
    assert "requires-python = >=3.14" in answer.err
    assert "--python" not in answer.err


def test_an_environment_can_be_named_itself(folder):
    path = _write(folder, "envs/gpu.yml", "dependencies: [python=3.10, pytorch=2.1.0, pytorch-cuda=12.1]\n")
    inputs = read_inputs([path])
    assert (_texts(inputs), inputs.cuda, inputs.python) == (["torch==2.1.0.*"], "12.1", "3.10")
    assert inputs.read == (f"read 1 requirement from {path}",)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ({"environment-cpu.yml": "cpuonly", "environment-gpu.yml": "pytorch-cuda=12.1"}, "environment-gpu.yml"),
        ({"environment.yml": "cpuonly", "environment-gpu.yml": "pytorch-cuda=12.1"}, "environment-gpu.yml"),
        ({"environment.yml": "cudatoolkit=11.8", "environment-gpu.yml": "pytorch-cuda=12.1"}, "environment.yml"),
        ({"environment.yml": "ffmpeg", "environment-dev.yml": "pytorch-cuda=12.1"}, "environment.yml"),
        ({"env/cpu.yml": "cpuonly", "env/gpu.yml": "ffmpeg"}, "env/gpu.yml"),
        ({"environment.yml": "ffmpeg", "conda-lock.yml": "ffmpeg"}, "environment.yml"),
    ],
)
def test_of_several_environments_the_one_for_a_gpu_counts(folder, names, chosen):
    for name, package in names.items():
        _write(folder, name, f"dependencies: [pytorch=2.1.0, {package}]\n")
    inputs = _project(folder)
    assert inputs.read[0].endswith(chosen)
    others = [name for name in names if name not in (chosen, "conda-lock.yml")]
    told = (
        f"of several environments {folder / chosen} is read, and not {', '.join(others)}; `-r FILE` reads another one"
    )
    assert (told in inputs.warnings) == bool(others)


@pytest.mark.parametrize(
    ("files", "read"),
    [
        ({"environment.yml": "numpy=1.21.2=py39_0\n", "setup.py": SETUP_OF_TORCH}, "setup.py"),
        ({"environment.yml": "@EXPLICIT\nhttps://x.example/y\n", "setup.py": SETUP_OF_TORCH}, "setup.py"),
        ({"requirements.txt": "numpy=1.21.2=py39_0\n", "Pipfile": "[packages]\ntorch = '*'\n"}, "Pipfile"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_makes_way(folder, files, read):
    for name, text in files.items():
        _write(folder, name, text)
    inputs = _project(folder)
    assert (_texts(inputs), inputs.read[0]) == ([_texts(inputs)[0]], f"read 1 requirement from {folder / read}")
    assert any(next(iter(files)) in text and "that file is not read" in text for text in inputs.warnings)
    (folder / read).unlink()
    assert "conda env export" in _refused(_project, folder).hints[0]


def test_what_one_machine_had_counts_where_no_file_says_what_is_needed(folder):
    _write(folder, "environment.yml", "dependencies: [pytorch=1.12=py3.9_cuda11.3, numpy=1.21.2=py39_0]\n")
    _write(folder, "setup.py", SETUP_OF_TORCH)
    inputs = _project(folder)
    assert _texts(inputs) == ["torch"]
    told = [text for text in inputs.warnings if "lists what one machine had" in text]
    assert f"`-r {folder / 'environment.yml'}` reads it" in told[0]
    (folder / "setup.py").unlink()
    inputs = _project(folder)
    assert _texts(inputs) == ["torch==1.12", "numpy==1.21.2"]
    assert not any("lists what one machine had" in text for text in inputs.warnings)


def test_an_environment_of_hatch_is_a_group(folder):
    text = """
[project]
name = "app"
version = "1"
dependencies = ["torch"]
[tool.hatch.envs.train]
dependencies = ["peft"]
extra-dependencies = ["einops"]
[tool.hatch.envs.docs]
dependencies = ["x @ {root:uri}/x"]
"""
    assert _texts(_project(folder, groups=["train"], pyproject_dot_toml=text)) == ["torch", "peft", "einops"]


def test_a_manifest_of_pixi(folder):
    text = """
[dependencies]
python = "3.11.*"
pytorch = { version = ">=2.2,<2.3", channel = "pytorch" }
pytorch-cuda = "12.1.*"
[pypi-dependencies]
demo = { path = ".", editable = true }
einops = ">=0.7"
[target.win-64.dependencies]
pywin32 = "*"
"""
    inputs = _project(folder, pixi_dot_toml=text)
    assert _texts(inputs) == ["torch>=2.2,<2.3", "einops>=0.7"]
    assert (inputs.cuda, inputs.python) == ("12.1", "3.11")


SETUP = """
import os
from setuptools import setup
VERSION = "2.1"
def requirements(name="deps.txt"):
    with open(os.path.join(os.path.dirname(__file__), name)) as file:
        return [line.strip() for line in file]
EXTRAS = {"train": ["peft"], "all": ["wandb"] + ["peft"]}
setup(name="demo", python_requires=">=3.8", install_requires=%s, extras_require=EXTRAS)
raise SystemExit("never run")
"""


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ('["torch>=2.0", "einops"]', ["torch>=2.0", "einops"]),
        ("requirements()", ["torch==2.4.1"]),
        ('requirements() + ["einops"]', ["torch==2.4.1", "einops"]),
        ('[f"torch=={VERSION}"]', ["torch==2.1"]),
        ('open("deps.txt").read().splitlines()', ["torch==2.4.1"]),
    ],
)
def test_a_setup_script_is_read_and_not_run(folder, written, found):
    _write(folder, "deps.txt", "torch==2.4.1\n")
    inputs = _project(folder, setup_dot_py=SETUP % written)
    assert sorted(_texts(inputs)) == sorted(found)
    assert inputs.python == ">=3.8"
    assert _texts(_project(folder, "all"))[-2:] == ["wandb", "peft"]


def test_what_only_running_a_script_would_tell_is_told(folder):
    inputs = _project(folder, setup_dot_py=SETUP % '["torch", os.environ["MORE"]]')
    assert _texts(inputs) == ["torch"]
    assert any("shows only when it runs" in text for text in inputs.warnings)


def test_a_setup_cfg(folder):
    text = "[options]\npython_requires = >=3.9\ninstall_requires =\n    torch>=2.0\n    einops  # why\n"
    inputs = _project(folder, setup_dot_cfg=text, setup_dot_py="from setuptools import setup\nsetup()\n")
    assert _texts(inputs) == ["torch>=2.0", "einops"]
    assert inputs.python == ">=3.9"


def test_a_pipfile(folder):
    text = (
        '[[source]]\nurl = "https://main.example/simple"\nname = "main"\n[packages]\ntorch = "==2.4.1"\neinops = "*"\n'
        '[dev-packages]\npytest = "*"\n[requires]\npython_version = "3.11"\n'
    )
    inputs = _project(folder, Pipfile=text)
    assert _texts(inputs) == ["torch==2.4.1", "einops"]
    assert (inputs.python, inputs.indexes) == ("3.11", ("https://main.example/simple",))


def test_a_list_and_a_version_of_python(folder):
    _write(folder, ".python-version", "3.10.4\n")
    _write(folder, "requirements-dev.txt", "pytest\n")
    inputs = _project(folder, requirements_dot_txt="torch\n-e .\n")
    assert _texts(inputs) == ["torch"]
    assert inputs.python == "3.10"
    assert any("not read: requirements-dev.txt" in text for text in inputs.warnings)


def test_a_folder_that_says_nothing_is_refused(folder):
    _write(folder, "requirements/full.txt", "torch\n")
    error = _refused(_project, folder)
    assert "says what the project needs" in error.message
    assert "requirements/full.txt" in error.hints[0]


def test_a_python_of_the_project_against_a_flag_names_the_file(provision, folder):
    _write(folder, "pyproject.toml", '[project]\nname = "demo"\nrequires-python = ">=3.12"\ndependencies = ["torch"]\n')
    answer = provision("resolve", "--project", ".", "--python", "3.10")
    assert answer.code == 3
    assert "`--python 3.10` and `requires-python = >=3.12` in pyproject.toml cannot be met together" in answer.err


def test_image_reads_a_project_and_tells_what_it_read(provision, folder):
    _write(folder, "pyproject.toml", '[project]\nname = "demo"\ndependencies = ["torch==2.4.1", "einops"]\n')
    _write(folder, "requirements.txt", "torch\n")
    answer = provision("image", "--project", ".", "-o", "out")
    assert answer.code == 0, answer.err
    assert "read 2 requirements from pyproject.toml" in answer.err
    assert "not read: requirements.txt" in answer.err
    assert provision("image", "--project", ".", "-o", "out", "--locked").code == 0


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        (">=3.8", ">=3.8"),
        (">=3.8.1,<4.0", ">=3.8,<4.0"),
        ("==3.10.12", "3.10"),
        ("~=3.9", ">=3.9,<4"),
        ("~=3.9.2", "3.9"),
        (">3.7", ">=3.8"),
        (">=3.9,!=3.9.7", ">=3.9"),
        ("<3.12.1", "<=3.12"),
        ("<3.12.0", "<3.12"),
        (">=3", ">=3"),
        ("!=3.0.*,>=3.9", "!=3.0.*,>=3.9"),
        ("", None),
    ],
)
def test_bounds_on_patches_of_python_count_by_their_minor(text, bound):
    assert python_bound(text) == bound


UV_SETTINGS = """
[project]
name = "demo"
dependencies = ["torch>=2.4", "numpy<2", "speed", "old", "graph"]
[tool.uv]
constraint-dependencies = ["scipy<1.13"]
override-dependencies = ["numpy>=2", "protobuf==4.25.3"]
exclude-dependencies = ["Old"]
environments = ["sys_platform == 'linux' and python_version < '3.12'", "sys_platform == 'darwin'"]
prerelease = "allow"
[tool.uv.sources]
speed = { index = "own" }
graph = { index = "pages" }
[[tool.uv.index]]
name = "own"
url = "https://own.example/simple"
explicit = true
[[tool.uv.index]]
name = "pages"
url = "https://pages.example/links.html"
format = "flat"
explicit = true
"""


def test_what_uv_is_told_of_the_whole_resolution_is_taken(folder):
    inputs = _project(folder, pyproject_dot_toml=UV_SETTINGS)
    assert _texts(inputs) == ["torch>=2.4", "numpy>=2", "speed", "graph"]
    assert [(line.requirement.text, line.where.rpartition("/")[2]) for line in inputs.constraints] == [
        ("scipy<1.13", "pyproject.toml, line 6"),
        ("numpy>=2", "pyproject.toml, line 7"),
        ("protobuf==4.25.3", "pyproject.toml, line 7"),
    ]
    assert inputs.overrides == ("numpy>=2", "protobuf==4.25.3")
    assert inputs.excludes == ("old",)
    assert inputs.indexes == ()
    assert inputs.sources == (
        "speed @ own=https://own.example/simple",
        "graph @ find-links:pages=https://pages.example/links.html",
    )
    assert inputs.python == "<3.12"
    assert any("`prerelease` of [tool.uv] is left out" in text for text in inputs.warnings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("environments = [\"sys_platform == 'win32'\"]", "leave linux/amd64 out"),
        ('environments = ["linux"]', "`linux` is not a marker of an environment"),
        ('override-dependencies = "numpy>=2,"\n[tool.uv.sources]\ntorch = { index = "absent" }', "called `absent`"),
        ("constraint-dependencies = [3]", "`constraint-dependencies` of [tool.uv] is not a list of texts"),
        ('exclude-dependencies = ["old>1"]', "`old>1` is not a package name"),
    ],
)
def test_what_uv_is_told_and_cannot_be_met_is_refused(folder, settings, said):
    text = f'[project]\nname = "demo"\ndependencies = ["torch"]\n[tool.uv]\n{settings}\n'
    assert said in _refused(_project, folder, pyproject_dot_toml=text).message


def test_an_index_of_a_package_in_a_pipfile_or_poetry_serves_it_alone(folder):
    _write(
        folder,
        "Pipfile",
        '[[source]]\nname = "pypi"\nurl = "https://mirror.example/simple"\n'
        '[[source]]\nname = "own"\nurl = "https://own.example/simple"\n'
        '[packages]\neinops = "*"\nspeed = { version = "*", index = "own" }\n',
    )
    assert _project(folder).sources == ("speed @ own=https://own.example/simple",)


def test_without_an_index_what_only_the_solve_knows_is_told(provision, folder):
    _write(folder, "pyproject.toml", UV_SETTINGS.replace("'3.12'", "'3.13'"))
    answer = provision("image", "--project", ".", "-o", "out", "--offline")
    assert answer.code == 0, answer.err
    assert "the overrides and the excludes and the sources of your files are left out of the build" in answer.err


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "uv.lock",
            'version = 1\n[[package]]\nname = "torch"\nversion = "2.4.1+cu121"\n'
            'source = { registry = "https://x.example/" }\n'
            '[[package]]\nname = "demo"\nversion = "0.1"\nsource = { editable = "." }\n'
            '[[package]]\nname = "tool"\nversion = "0.1"\nsource = { git = "https://x.example/tool#abc" }\n'
            '[[package]]\nname = "numpy"\nversion = "2.0.2"\nresolution-markers = ["python_full_version < \'3.10\'"]\n'
            '[[package]]\nname = "numpy"\nversion = "2.2.6"\n'
            "resolution-markers = [\"python_full_version >= '3.10'\"]\n",
            {"torch": "2.4.1+cu121", "numpy": "2.2.6"},
        ),
        (
            "poetry.lock",
            '[[package]]\nname = "Typing_Extensions"\nversion = "4.9"\nmarkers = "python_version < \'3.9\'"\n'
            '[[package]]\nname = "numpy"\nversion = "1.26.4"\n[package.source]\ntype = "legacy"\nurl = "https://x.example"\n'
            '[[package]]\nname = "tool"\nversion = "0.1"\n[package.source]\ntype = "git"\nurl = "https://x.example"\n',
            {"numpy": "1.26.4"},
        ),
        (
            "pdm.lock",
            '[[package]]\nname = "numpy"\nversion = "1.26.4"\n'
            '[[package]]\nname = "tool"\nversion = "1"\npath = "./tool"\n',
            {"numpy": "1.26.4"},
        ),
        (
            "Pipfile.lock",
            '{"default": {"numpy": {"version": "==1.26.4"}, "tool": {"git": "https://x.example"}}, '
            '"develop": {"x": {}}}',
            {"numpy": "1.26.4"},
        ),
        (
            "pixi.lock",
            "version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n"
            "      - conda: https://c.example/linux-64/pytorch-2.4.1-cuda120_py311_0.conda\n"
            "      - pypi: https://p.example/einops-0.8.0-py3-none-any.whl\n"
            "      osx-arm64:\n      - conda: https://c.example/osx-arm64/numpy-2.0.0-py311_0.conda\n"
            "packages:\n- conda: https://c.example/linux-64/pytorch-2.4.1-cuda120_py311_0.conda\n"
            "- pypi: https://p.example/einops-0.8.0-py3-none-any.whl\n  name: einops\n  version: 0.8.0\n",
            {"torch": "2.4.1", "einops": "0.8.0"},
        ),
        (
            "conda-lock.yml",
            "version: 1\npackage:\n- {name: numpy, version: 1.26.4, manager: conda, platform: linux-64}\n"
            "- {name: numpy, version: 1.25.0, manager: conda, platform: osx-64}\n"
            "- {name: einops, version: 0.8.0, manager: pip, platform: linux-64}\n",
            {"numpy": "1.26.4", "einops": "0.8.0"},
        ),
        (
            "pylock.toml",
            'lock-version = "1.0"\n[[packages]]\nname = "numpy"\nversion = "1.26.4"\n'
            '[[packages]]\nname = "tool"\nversion = "1"\nvcs = { type = "git", url = "https://x.example" }\n',
            {"numpy": "1.26.4"},
        ),
    ],
)
def test_the_locks_of_other_tools_are_wishes(folder, name, text, found):
    _write(folder, "requirements.txt", "torch\n")
    _write(folder, name, text)
    pins = read_inputs([], folder).pins
    assert {pin.name: pin.version for pin in pins if pin.holds("3.11", "linux/amd64")} == found


@pytest.mark.parametrize(("name", "text"), [("uv.lock", "[["), ("Pipfile.lock", "[]"), ("pixi.lock", "- [")])
def test_a_lock_that_cannot_be_read_is_told_and_does_no_harm(folder, name, text):
    _write(folder, "requirements.txt", "torch\n")
    _write(folder, name, text)
    inputs = read_inputs([], folder)
    assert inputs.pins == ()
    assert any("its versions do not count" in warning for warning in inputs.warnings)


def test_a_pinned_framework_that_cannot_be_had_gives_way(provision, folder):
    _write(folder, "requirements.txt", "torch>=2.3\n")
    _write(folder, "uv.lock", 'version = 1\n[[package]]\nname = "torch"\nversion = "2.4.1+cu121"\n')
    answer = provision("resolve", "--project", ".")
    assert answer.out.startswith("torch2.4.1-cu121")
    assert provision("resolve", "--project", ".", "--torch", "2.6").out.startswith("torch2.6.0")
    assert provision("resolve", "--project", ".", "--cuda", "12.4").out.startswith("torch2.4.1-cu124")
    assert not provision("resolve", "--project", ".", "--gpu", "b200").out.startswith("torch2.4.1")


@pytest.mark.parametrize(
    "line", ["-e ./pkg[fast]", "./pkg[fast]", "pkg[fast] @ {file}", "-e {file}[fast]", "pkg[fast] @ ./pkg"]
)
def test_what_a_folder_of_this_machine_needs_is_taken(folder, line):
    _write(
        folder,
        "pkg/pyproject.toml",
        '[project]\nname = "pkg"\ndependencies = ["einops"]\n[project.optional-dependencies]\nfast = ["numba"]\n',
    )
    inputs = _listed(folder, f"torch\n{line.format(file=(folder / 'pkg').as_uri())}\n")
    assert sorted(_texts(inputs)) == ["einops", "numba", "torch"]
    assert any("puts its code into the image" in text for text in inputs.warnings)


def test_an_environment_beside_a_script_is_no_need_of_what_is_installed_by_its_path(folder):
    _write(folder, "conda-gpu.yml", "dependencies:\n  - tensorflow-gpu=2.1\n")
    _write(folder, "pkg/requirements.txt", "numba\n")
    _write(folder, "pkg/setup.py", 'setup(name="pkg")\n')
    _write(folder, "setup.py", 'setup(name="x")\n')
    assert _texts(_listed(folder, "tensorflow==2.11.1\n-e .\n-e ./pkg\n")) == ["tensorflow==2.11.1"]


def test_folders_that_need_each_other_are_read_once(folder):
    for name, other in (("a", "b"), ("b", "a")):
        _write(
            folder,
            f"{name}/pyproject.toml",
            f'[project]\nname = "{name}"\ndependencies = ["{other}", "x{name}"]\n'
            f'[tool.uv.sources]\n{other} = {{ path = "../{other}" }}\n',
        )
    inputs = read_inputs([], folder / "a")
    assert sorted(_texts(inputs)) == ["xa", "xb"]


@pytest.mark.parametrize(
    "text",
    [
        "[project]\nname = 'a'\ndependencies = ['x @@ https://me:w0rd@x.example/y']\n",
        "[project]\nname = 'a'\ndependencies = ['x']\n[tool.uv.sources]\nx = {index = 'https://me:w0rd@x.example/s'}\n",
    ],
)
def test_a_refusal_of_a_project_shows_no_password(folder, text):
    error = _refused(_project, folder, pyproject_dot_toml=text)
    assert "w0rd" not in f"{error.message}{error.because}{error.hints}"
    assert "x.example" in error.message
