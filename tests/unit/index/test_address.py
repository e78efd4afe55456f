"""The index that installers on this machine use."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.errors import MissingDependencyError
from provision.index import address
from provision.index.address import find_index

ONE, TWO = "https://one.example/simple", "https://two.example/simple"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(address, "_default_of_pip", lambda: None)


def find(tmp_path: Path, **variables: str) -> address.IndexAddress:
    return find_index(variables, home=tmp_path / "home", system=tmp_path / "etc")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_variables_come_first(tmp_path):
    write(tmp_path / "etc/pip.conf", f"[global]\nindex-url = {TWO}\n")
    found = find(tmp_path, PIP_INDEX_URL=f"{ONE}/")
    assert (found.url, found.told_by) == (ONE, "PIP_INDEX_URL")
    assert find(tmp_path, UV_DEFAULT_INDEX=f"mine={ONE}").url == ONE


def test_the_nearest_file_of_pip_wins(tmp_path):
    write(tmp_path / "etc/pip.conf", f"[global]\nindex_url = {ONE}\ncert = /ca.pem\n")
    assert find(tmp_path).url == ONE
    path = write(tmp_path / "home/.config/pip/pip.conf", f"[global]\nindex-url = {TWO}\n")
    found = find(tmp_path)
    assert (found.url, found.told_by, found.ca_bundle) == (TWO, str(path), "/ca.pem")
    named = write(tmp_path / "named.conf", f"[download]\nindex-url = {ONE}\n")
    assert find(tmp_path, PIP_CONFIG_FILE=str(named)).url == ONE


def test_uv_is_asked_where_pip_says_nothing(tmp_path):
    write(
        tmp_path / "home/.config/uv/uv.toml",
        f'[[index]]\nname = "x"\nurl = "{ONE}"\n\n[[index]]\nurl = "{TWO}"\ndefault = true\n',
    )
    assert find(tmp_path).url == TWO


def test_broken_files_say_nothing(tmp_path):
    write(tmp_path / "etc/pip.conf", "index-url without a section")
    write(tmp_path / "home/.config/uv/uv.toml", "= no toml")
    with pytest.raises(MissingDependencyError, match="no package index is known"):
        find(tmp_path)


def test_a_file_that_says_a_thing_twice_says_nothing(tmp_path):
    write(tmp_path / "etc/pip.conf", f"[global]\nindex-url = {ONE}\n")
    write(tmp_path / "home/.config/pip/pip.conf", f"[global]\nindex-url = {TWO}\nproxy = a\nproxy = b\n")
    assert find(tmp_path).url == ONE


def test_a_certificate_of_the_environment_counts(tmp_path):
    assert find(tmp_path, PIP_INDEX_URL=ONE, PIP_CERT="/mine.pem").ca_bundle == "/mine.pem"


def test_pip_knows_a_default(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    found = find_index({}, home=tmp_path, system=tmp_path)
    assert found.told_by == "the default of pip"
    assert found.url.startswith("https://")


def test_further_indexes_and_a_proxy_of_pip_are_known(tmp_path):
    write(
        tmp_path / "etc/pip.conf",
        f"[global]\nindex-url = {ONE}\nextra-index-url =\n  {TWO}/\n  {ONE}\nproxy = proxy.example:3128\n",
    )
    found = find(tmp_path)
    assert found.extra == (TWO,)
    assert found.proxy == "http://proxy.example:3128"
    assert find(tmp_path, PIP_EXTRA_INDEX_URL=f"{TWO}/x {TWO}/y").extra == (f"{TWO}/x", f"{TWO}/y")
    assert find(tmp_path, UV_INDEX=f"mine={TWO}/u", PIP_PROXY="https://p.example").extra == (f"{TWO}/u",)
    assert find(tmp_path, PIP_PROXY="https://p.example").proxy == "https://p.example"


def test_what_is_said_of_downloads_wins_over_what_is_said_of_everything(tmp_path):
    write(tmp_path / "etc/pip.conf", f"[download]\nindex-url = {ONE}\n")
    write(tmp_path / "home/.config/pip/pip.conf", f"[global]\nindex-url = {TWO}\n")
    assert find(tmp_path).url == ONE


def test_what_is_said_of_installs_counts_too(tmp_path):
    path = write(tmp_path / "home/.config/pip/pip.conf", f"[install]\nindex-url = {ONE}\n")
    assert (find(tmp_path).url, find(tmp_path).told_by) == (ONE, str(path))
    write(tmp_path / "home/.config/pip/pip.conf", f"[install]\nindex-url = {ONE}\n[global]\nindex-url = {TWO}\n")
    assert find(tmp_path).url == ONE
    write(tmp_path / "etc/pip.conf", f"[download]\nindex-url = {TWO}\n")
    assert find(tmp_path).url == TWO


@pytest.mark.parametrize("variables", [{}, {"PIP_CERT": "~/ca.pem"}], ids=["file", "variable"])
def test_a_certificate_may_lie_at_home(tmp_path, variables):
    write(tmp_path / "etc/pip.conf", f"[global]\nindex-url = {ONE}\ncert = ~/ca.pem\n")
    assert find(tmp_path, **variables).ca_bundle == str(tmp_path / "home/ca.pem")


def test_a_named_file_takes_the_place_of_the_users(tmp_path):
    write(tmp_path / "home/.config/pip/pip.conf", f"[global]\nindex-url = {TWO}\nproxy = proxy.example\n")
    named = write(tmp_path / "named.conf", f"[global]\nindex-url = {ONE}\n")
    found = find(tmp_path, PIP_CONFIG_FILE=str(named))
    assert (found.url, found.proxy) == (ONE, None)
    assert find(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "none.conf")).url == TWO
