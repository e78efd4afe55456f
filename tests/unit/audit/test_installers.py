from __future__ import annotations

import pytest

from provision.audit.installers import find_install
from provision.audit.model import Install, Source, Span
from provision.audit.shell import Text, parse_shell

FILES = {
    "r.txt": "torch==2.1.2\n--extra-index-url https://in-file\n",
    "c.txt": "numpy<2\n",
    "pyproject.toml": '[project]\nname = "x"\ndependencies = ["torch==2.2"]\n',
}


def read(script: str) -> list[Install]:
    place = Span(file="f", start=0, end=0)
    found = parse_shell(Text.of(script, 0, len(script)), "f", {}, instruction="RUN", instruction_span=place)

    def find(path: str) -> Source | None:
        return Source(path, FILES[path]) if path in FILES else None

    return [install for item in found for install in find_install(item, "f", find)]


def one(script: str) -> Install:
    (install,) = read(script)
    return install


@pytest.mark.parametrize(
    "script",
    [
        "pip install torch",
        "pip3 install torch",
        "pip3.10 install torch",
        "python -m pip install torch",
        "python3.11 -u -m pip install torch",
        "pip --no-cache-dir install -U --upgrade-strategy eager torch",
        "uv pip install --system torch",
        "uv --quiet pip install torch",
        "python -m uv pip install torch",
        "sudo -u app -E pip install torch",
        "env A=b pip install torch",
        "timeout -k 5 60 pip install torch",
        "conda run -n base pip install torch",
        "exec nice -n 5 pip install torch",
        "pip install -qU torch",
        "pip install --timeout=60 -t /x --no-deps -- torch",
    ],
)
def test_an_installer_is_found_under_every_name(script: str) -> None:
    install = one(script)
    assert [item.text for item in install.requirements] == ["torch"]
    assert install.is_complete
    assert install.is_certain


@pytest.mark.parametrize(
    "script",
    ["pip list", "pip --version", "uv venv", "uv pip list", "conda activate x", "pipx install torch", "python x.py"],
)
def test_other_verbs_install_nothing(script: str) -> None:
    assert read(script) == []


@pytest.mark.parametrize(
    "script",
    [
        "pip install $X",
        "pip install .",
        "pip install -e .[gpu]",
        "pip install -r missing.txt",
        "pip install --frobnicate torch",
        "xargs pip install < list",
        "pip install $(cat list)",
        "uv add torch",
        "uv sync --group gpu",
        "conda env create",
    ],
)
def test_what_is_not_wholly_understood_is_incomplete(script: str) -> None:
    assert not one(script).is_complete


def test_flags_files_and_their_indexes_are_gathered() -> None:
    install = one("pip install -r r.txt -c c.txt --index-url https://a --extra-index-url=https://b -fhttps://c 'x>=1'")
    assert [item.text for item in install.requirements] == ["torch==2.1.2", "x>=1"]
    assert [item.text for item in install.constraints] == ["numpy<2"]
    assert [(item.kind, item.url, item.origin) for item in install.indexes] == [
        ("index", "https://a", "flag"),
        ("extra", "https://b", "flag"),
        ("find-links", "https://c", "flag"),
        ("extra", "https://in-file", "file"),
    ]
    assert not install.has_default_index


def test_versions_of_a_package_that_uv_is_to_upgrade_are_a_constraint() -> None:
    install = one("uv pip install -P 'torch<2.9' -Ptimm --upgrade-package=numpy==1.26.4 torch timm numpy")
    assert [item.text for item in install.constraints] == ["torch<2.9", "numpy==1.26.4"]
    assert [item.name for item in install.requirements] == ["torch", "timm", "numpy"]
    assert install.is_complete
    assert not one('uv pip install -P "$WISH" torch').is_complete


@pytest.mark.parametrize(
    ("script", "python"),
    [
        ("python3.9 -m pip install x", "3.9"),
        ("pip3.12 install x", "3.12"),
        ("uv pip install --python 3.11 x", "3.11"),
        ("uv pip install -p python3.10 x", "3.10"),
        ("pip3 install x", None),
        ("conda create -n e python=3.8 x", "3.8"),
    ],
)
def test_the_python_is_read_from_the_words(script: str, python: str | None) -> None:
    assert one(script).python == python


@pytest.mark.parametrize(
    ("script", "target"),
    [
        ("pip install x", ""),
        ("/opt/v/bin/pip install x", "/opt/v"),
        ("pip install -t /y x", "/y"),
        ("conda install -n e x", "e"),
    ],
)
def test_the_target_tells_environments_apart(script: str, target: str) -> None:
    assert one(script).target == target


def test_a_flag_can_be_inserted_behind_the_verb() -> None:
    script = "python -m pip install --no-deps torch"
    install = one(script)
    assert install.flags_at is not None
    at = install.flags_at.start
    assert script[:at] + install.flag_text("-i u") + script[at:] == "python -m pip install -i u --no-deps torch"


def test_conda_keeps_channels_builds_and_ranges() -> None:
    install = one(
        "conda install -y -c pytorch -c nvidia 'pytorch=2.1=py3.10_cuda11.8*' nvidia::cuda-nvcc 'numpy>=1,<2'"
    )
    assert install.is_complete
    assert [(item.name, item.specifier, item.build, item.channel) for item in install.requirements] == [
        ("pytorch", "==2.1", "py3.10_cuda11.8*", ""),
        ("cuda-nvcc", "", "", "nvidia"),
        ("numpy", ">=1,<2", "", ""),
    ]
    assert [item.url for item in install.indexes] == ["pytorch", "nvidia"]


def test_a_project_is_read_where_it_is_installed() -> None:
    assert [item.text for item in one("uv sync --frozen").requirements] == ["torch==2.2"]


def test_flags_of_isolation_deps_and_backends_are_kept() -> None:
    install = one(
        "uv pip install --no-build-isolation --no-deps --torch-backend=cu128 --index-strategy unsafe-best-match x"
    )
    assert not install.is_build_isolated
    assert install.has_no_deps
    assert [(item.kind, item.url) for item in install.indexes] == [("backend", "cu128")]
    assert install.index_strategy == "unsafe-best-match"


def test_downloading_installs_nothing() -> None:
    assert one("pip download torch").is_dry
    assert one("pip install --dry-run torch").is_dry
