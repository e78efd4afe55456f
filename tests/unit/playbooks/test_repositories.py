"""Repositories: the host's own sources are edited as little as possible and put back; keys are the promised ones."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import playbook_files
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

gpu_repos = playbook_files.load_filters("gpu_repos")

Document = dict[str, Any]
WANTED = ["contrib", "non-free"]


def file(text: str, **more: Any) -> Document:
    row = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "mode": "0644", "owner": "root", "group": "root"}
    return {**row, "text": text, **more}


def make_host(files: dict[str, str] | None = None) -> Document:
    found = {path: file(text) for path, text in (files or {"/etc/apt/sources.list": LINES}).items()}
    return {"os": {"codename": "bookworm"}, "files": found, "folders": {}, "foreign": {"repos": []}}


LINES = """# my sources
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64] http://mirror.example/d bookworm main # own
deb-src http://mirror.example/debian bookworm main
deb\thttp://mirror.example/debian-security bookworm-security main contrib

deb https://other.example/apt bookworm main
#deb http://mirror.example/debian bookworm-backports main
"""
STANZAS = """# my sources
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
# main only
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://other.example/apt
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm-backports
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components:
 main
 contrib
"""


def plan(host: Document, profile: Document, keys: dict[str, str] | None = None, **settings: Any) -> Document:
    return gpu_repos.plan_repositories(host, profile, settings, keys or {})


def contents(result: Document) -> dict[str, Any]:
    return {item["path"]: item.get("content", item.get("state")) for item in result["files"]}


# The host's own sources


def add_components(text: str, components: list[str], codename: str, is_deb822: bool = False) -> str:
    """Return the text of a source file with components added to the distribution's own entries."""
    edit = gpu_repos._edit_stanzas if is_deb822 else gpu_repos._edit_lines
    return edit(text, list(components), codename, {}, [])[0]


def test_components_go_to_the_archives_lines_alone() -> None:
    changed = add_components(LINES, WANTED, "bookworm").splitlines()
    before = LINES.splitlines()
    assert changed[1] == before[1].replace("main # own", "main contrib non-free # own")
    assert changed[3] == before[3] + " non-free"
    assert [line for number, line in enumerate(changed) if number not in (1, 3)] == [
        line for number, line in enumerate(before) if number not in (1, 3)
    ]


def test_components_go_to_the_archives_stanzas_alone() -> None:
    changed = add_components(STANZAS, WANTED, "bookworm", True)
    expected = STANZAS.replace("# main only\nComponents: main", "# main only\nComponents: main contrib non-free")
    expected = expected.replace(" main\n contrib\n", " main\n contrib non-free\n")
    assert changed == expected


@pytest.mark.parametrize(
    "line",
    [
        "deb http://mirror.example/debian bookworm local",
        "deb http://mirror.example/debian sid main",
        "deb http://mirror.example/debian ./ main",
        "deb https://other.example/debianish bookworm main",
        "deb https://ppa.example/somebody/tools/ubuntu bookworm main",
        "deb [arch=amd64 signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/ubuntu/24.04 bookworm main",
    ],
)
def test_what_only_looks_like_the_archive_is_left_alone(line: str) -> None:
    assert add_components(line, WANTED, "bookworm") == line


@pytest.mark.parametrize("word", ["no", "No", "false", "off", "0", "without", "disable"])
def test_stanza_that_apt_does_not_read_is_left_alone(word: str) -> None:
    text = f"Enabled: {word}\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n"
    assert add_components(text, WANTED, "bookworm", True) == text


@pytest.mark.parametrize("word", ["/usr/share/keyrings/vendor.gpg", "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n a"])
def test_stanza_with_a_vendors_key_is_left_alone(word: str) -> None:
    text = f"Types: deb\nURIs: https://vendor.example/debian\nSuites: bookworm\nComponents: main\nSigned-By: {word}\n"
    assert add_components(text, WANTED, "bookworm", True) == text


@pytest.mark.parametrize(("text", "is_deb822"), [(LINES, False), (STANZAS, True)])
def test_adding_twice_is_adding_once_and_can_be_undone(text: str, is_deb822: bool) -> None:
    once = add_components(text, WANTED, "bookworm", is_deb822)
    assert add_components(once, WANTED, "bookworm", is_deb822) == once
    assert gpu_repos.restore_original(once, text) == text


def test_file_that_somebody_changed_since_is_left_to_them() -> None:
    once = add_components(LINES, WANTED, "bookworm")
    assert gpu_repos.restore_original(once + "deb http://new.example x main\n", LINES) is None
    assert gpu_repos.restore_original(None, LINES) is None


@given(st.text(alphabet="deb [a=]:/.#main\n \tTypesURIComponents", max_size=200), st.booleans())
def test_any_text_is_edited_once_and_undone(text: str, is_deb822: bool) -> None:
    once = add_components(text, WANTED, "bookworm", is_deb822)
    assert add_components(once, WANTED, "bookworm", is_deb822) == once
    assert gpu_repos.restore_original(once, text) == text


def test_edited_file_keeps_its_mode_and_its_original_is_kept() -> None:
    host = make_host()
    host["files"]["/etc/apt/sources.list"]["mode"] = "0600"
    result = plan(host, {"repos": {"components": WANTED}})
    (edit,) = [item for item in result["files"] if item["path"] == "/etc/apt/sources.list"]
    assert edit["mode"] == "0600"
    (original,) = result["originals"]
    assert original["content"] == LINES
    assert original["path"] == "/var/lib/provision/baseline/files/etc/apt/sources.list"
    host["files"][original["path"]] = file(LINES)
    assert plan(host, {"repos": {"components": WANTED}})["originals"] == []


def test_archive_that_is_not_recognised_is_a_problem_until_it_is_named() -> None:
    host = make_host({"/etc/apt/sources.list": "deb http://apt.example/x bookworm main\n"})
    (problem,) = plan(host, {"repos": {"components": WANTED}})["problems"]
    assert "gpu_repos_archives" in problem
    result = plan(host, {"repos": {"components": WANTED}}, archives=["http://apt.example/x"])
    assert result["problems"] == []
    assert "main contrib non-free" in contents(result)["/etc/apt/sources.list"]


def test_password_in_the_only_source_is_a_problem_that_names_it() -> None:
    host = make_host()
    row = host["files"]["/etc/apt/sources.list"]
    del row["text"]
    row["has_secret"] = True
    (problem,) = plan(host, {"repos": {"components": WANTED}})["problems"]
    assert "/etc/apt/sources.list" in problem
    assert "auth.conf.d" in problem


def test_competing_repository_is_put_out_of_use_and_back() -> None:
    host = make_host({"/etc/apt/sources.list.d/cuda.list": "deb https://gpu.example/cuda /\n"})
    host["foreign"]["repos"] = [{"file": "/etc/apt/sources.list.d/cuda.list", "uri": "https://gpu.example/cuda"}]
    assert "/etc/apt/sources.list.d/cuda.list" not in contents(plan(host, {}))
    text = contents(plan(host, {}, foreign="replace"))["/etc/apt/sources.list.d/cuda.list"]
    assert text.startswith("# ")
    assert gpu_repos.restore_original(text, "deb https://gpu.example/cuda /\n") == "deb https://gpu.example/cuda /\n"


def test_competing_stanza_that_says_it_is_enabled_is_put_out_of_use_and_back() -> None:
    path = "/etc/apt/sources.list.d/cuda.sources"
    before = "Types: deb\nEnabled: yes\nURIs: https://gpu.example/cuda/\nSuites: /\n"
    host = make_host({path: before})
    host["foreign"]["repos"] = [{"file": path, "uri": "https://gpu.example/cuda/"}]
    text = contents(plan(host, {}, foreign="replace"))[path]
    # apt takes the last of several.
    words = [line for line in text.splitlines() if line.startswith("Enabled:")]
    assert words == ["Enabled: no"]
    assert gpu_repos.restore_original(text, before) == before
    host["files"][path] = file(text)
    assert path not in contents(plan(host, {}, foreign="replace"))


# Repositories of others

SOURCE = {
    "id": "cuda",
    "uri": "https://gpu.example/repos/debian12/",
    "suite": "/",
    "components": [],
    "key": {"url": "https://gpu.example/repos/debian12/key.pub", "sha256": None, "fingerprint": None},
    "for": ["cuda"],
}
PROFILE: Document = {"repos": {"sources": [SOURCE]}, "cuda": {"versions": ["12.1"]}}


@pytest.mark.parametrize(
    ("mirror", "uri"),
    [
        ({}, "https://gpu.example/repos/debian12/"),
        ({"cuda": "https://mirror.example/c"}, "https://mirror.example/c"),
        ("https://mirror.example/all/", "https://mirror.example/all/repos/debian12/"),
    ],
)
def test_mirror_takes_the_place_of_the_address(mirror: Any, uri: str) -> None:
    result = plan(make_host(), PROFILE, mirror=mirror)
    assert f"\nURIs: {uri}\n" in contents(result)["/etc/apt/sources.list.d/provision-cuda.sources"]
    assert uri in result["watched"]


@pytest.mark.parametrize("mirror", ["https://mirror.example/\nTrusted: yes", {"cuda": "a b"}, "ftp.mirror.example"])
def test_mirror_that_is_no_address_is_refused(mirror: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_repos_mirror"):
        plan(make_host(), PROFILE, mirror=mirror)


def test_mirror_with_a_password_is_in_no_diff() -> None:
    result = plan(make_host(), PROFILE, mirror="https://me:secret@mirror.example")
    (item,) = [item for item in result["files"] if item["path"].endswith("provision-cuda.sources")]
    assert item["is_secret"]


def test_key_moves_with_its_repository() -> None:
    (row,) = gpu_repos.list_needed_keys(make_host(), PROFILE, {"mirror": "https://mirror.example"})
    assert row["url"] == "https://mirror.example/repos/debian12/key.pub"


def test_key_that_the_node_has_is_not_looked_for() -> None:
    host = make_host({"/etc/apt/keyrings/provision-cuda.asc": "key"})
    assert gpu_repos.list_needed_keys(host, PROFILE, {}) == []
    other = {**SOURCE, "key": {**SOURCE["key"], "sha256": "0" * 64}}
    assert len(gpu_repos.list_needed_keys(host, {**PROFILE, "repos": {"sources": [other]}}, {})) == 1


@pytest.mark.parametrize("settings", [{"offline": "/srv/packages"}, {"without": ["cuda"]}])
def test_repository_that_is_not_wanted_is_removed(settings: Document) -> None:
    host = make_host({"/etc/apt/sources.list.d/provision-cuda.sources": "x"})
    assert contents(plan(host, PROFILE, **settings))["/etc/apt/sources.list.d/provision-cuda.sources"] == "absent"


def test_repository_for_what_the_profile_lacks_is_not_written() -> None:
    assert "/etc/apt/sources.list.d/provision-cuda.sources" not in contents(
        plan(make_host(), {**PROFILE, "cuda": None})
    )


def test_folder_on_the_node_is_a_repository() -> None:
    result = plan(make_host(), {**PROFILE, "repos": {"components": WANTED}}, offline="file:///srv/packages/")
    assert (
        "URIs: file:/srv/packages/\nSuites: ./\n"
        in contents(result)["/etc/apt/sources.list.d/provision-offline.sources"]
    )
    assert "/etc/apt/sources.list" not in contents(result)


@pytest.mark.parametrize(
    "settings",
    [{"offline": "relative"}, {"offline": "/a/../b"}, {"proxy": "nonsense"}, {"no_proxy": ["a b"]}, {"ca": "no file"}],
)
def test_hostile_setting_is_refused(settings: Document) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_repos_"):
        plan(make_host(), PROFILE, **{"proxy": "http://proxy.example:1", **settings})


def test_sites_certificate_counts_for_the_locks_hosts_alone() -> None:
    result = plan(make_host(), PROFILE, ca="-----BEGIN CERTIFICATE-----\n")
    text = contents(result)["/etc/apt/apt.conf.d/90provision-network"]
    assert text.count("CaInfo") == 1
    assert 'Acquire::https::gpu.example::CaInfo "/etc/provision/repositories-ca.pem";' in text


# Pins

DRIVER: Document = {"version": "535.1.1", "package_version": "535.1.1-2"}
PINNED: Document = {"driver": DRIVER, "repos": {"pins": [{"packages": "src:a b", "version": "535.1.1-2"}]}}


@pytest.mark.parametrize(
    ("override", "version"),
    [
        ("", "535.1.1-2"),
        ("535.1.1", "535.1.1-2"),
        ("535.1.1-2", "535.1.1-2"),
        ("550.2", "550.2-*"),
        ("550.2-1", "550.2-1"),
    ],
)
def test_pin_follows_the_driver_that_is_wanted(override: str, version: str) -> None:
    text = contents(plan(make_host(), PINNED, driver_version=override))["/etc/apt/preferences.d/provision-gpu"]
    assert f"Package: src:a b\nPin: version {version}\nPin-Priority: 1001\n" in text


def test_driver_version_that_would_begin_another_stanza_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_driver_version"):
        plan(make_host(), PINNED, driver_version="535\nPin-Priority: 9\n\nPackage: *\nPin: release a=x")


def test_name_is_guarded_as_the_expression_that_matches_it() -> None:
    profile = {"driver": {"packages": [{"name": "firmware-x1.0+b", "version": "1"}]}}
    text = contents(plan(make_host(), profile))["/etc/apt/apt.conf.d/52provision-gpu"]
    assert '"firmware-x1\\.0\\+b$";' in text


def test_without_pins_their_file_goes() -> None:
    assert contents(plan(make_host(), PINNED, has_pins=False))["/etc/apt/preferences.d/provision-gpu"] == "absent"


# Keys


def armor(*packets: bytes) -> str:
    body = base64.b64encode(b"".join(packets)).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}\n=AAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"


KEY = bytes([4, 1, 2, 3, 4, 22]) + b"material"
PACKET = bytes([0x98, len(KEY)]) + KEY
PRINT = hashlib.sha1(b"\x99" + len(KEY).to_bytes(2, "big") + KEY).hexdigest().upper()  # noqa: S324


@pytest.mark.parametrize(
    "packet", [PACKET, bytes([0xC6, len(KEY)]) + KEY, bytes([0xC6, 255]) + len(KEY).to_bytes(4, "big") + KEY]
)
def test_fingerprint_is_read_from_every_form_of_packet(packet: bytes) -> None:
    assert gpu_repos.list_fingerprints(armor(packet, bytes([0xB4, 1]) + b"u")) == [PRINT]


@pytest.mark.parametrize("text", ["", "<html>", armor(b"\x01\x02"), armor(b""), "-----BEGIN PGP PUBLIC KEY BLOCK-----"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(AnsibleFilterError):
        gpu_repos.list_fingerprints(text)


def with_key(**key: Any) -> Document:
    return {**PROFILE, "repos": {"sources": [{**SOURCE, "key": {"url": "https://gpu.example/key", **key}}]}}


def test_promised_key_is_written() -> None:
    spaced = " ".join(PRINT[start : start + 4] for start in range(0, 40, 4)).lower()
    result = plan(make_host(), with_key(fingerprint=spaced), {"cuda": armor(PACKET)})
    assert result["problems"] == []
    assert contents(result)["/etc/apt/keyrings/provision-cuda.asc"] == armor(PACKET)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ({"fingerprint": "0" * 40}, armor(PACKET)),
        ({"sha256": "0" * 64}, armor(PACKET)),
        ({"fingerprint": PRINT}, armor(PACKET, PACKET[:-1] + b"x")),
        ({"fingerprint": PRINT}, "<html>sign in</html>"),
    ],
)
def test_other_key_than_promised_is_a_problem(key: Document, text: str) -> None:
    (problem,) = plan(make_host(), with_key(**key), {"cuda": text})["problems"]
    assert "repository cuda" in problem
    for promised in key.values():
        assert promised in problem or "is not a key" in problem


# Going back


def test_files_are_put_back_as_they_were() -> None:
    host = make_host({"/etc/apt/sources.list": "old", "/etc/apt/keyrings/provision-a.asc": "old"})
    del host["files"]["/etc/apt/keyrings/provision-a.asc"]["text"]
    drifted = [
        {"path": path, "content": "new"}
        for path in ("/etc/apt/sources.list", "/etc/apt/keyrings/provision-a.asc", "/etc/apt/keyrings/provision-b.asc")
    ]
    back = {item["path"]: item.get("content", item.get("state")) for item in gpu_repos.plan_restore(drifted, host)}
    assert back == {"/etc/apt/sources.list": "old", "/etc/apt/keyrings/provision-b.asc": "absent"}
