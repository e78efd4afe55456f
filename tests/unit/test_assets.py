"""Where the shipped folders are, and what is said when one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision import assets
from provision.errors import DataError


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(assets, "_PACKAGE", tmp_path / "a tree" / "provision")
    (tmp_path / "a tree" / "provision").mkdir(parents=True)
    return tmp_path / "a tree" / "provision"


def test_an_installed_folder_is_found_before_that_of_a_checkout(package: Path) -> None:
    (package.parent / "pyproject.toml").touch()
    (package.parent / "compat").mkdir()
    assert assets.asset_dir("compat") == package.parent / "compat"
    (package / "_assets" / "compat").mkdir(parents=True)
    assert assets.asset_dir("compat") == package / "_assets" / "compat"


def test_a_checkout_brings_its_folder_back(package: Path) -> None:
    (package.parent / "pyproject.toml").touch()
    with pytest.raises(DataError, match="`compat` is missing") as caught:
        assets.asset_dir("compat")
    assert caught.value.because == (f"there is no {package.parent / 'compat'}",)
    assert caught.value.hints == (f"`git -C '{package.parent}' checkout -- compat` brings it back",)


def test_an_installed_package_is_installed_again_whatever_installed_it(package: Path) -> None:
    (package.parent / "compat").mkdir()
    with pytest.raises(DataError) as caught:
        assets.asset_dir("compat")
    assert caught.value.because == (f"there is no {package / '_assets' / 'compat'}",)
    assert not {"pip", "pipx", "uv"} & set(caught.value.hints[0].replace("`", " ").split())
