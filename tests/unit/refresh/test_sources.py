"""Archives, manifests and the PyTorch index, on pages of our own making."""

from __future__ import annotations

import datetime
import json
import random
import shutil
import subprocess

import pytest
from upstream import JSON, Reply, archive, stanza

from provision.errors import DataError
from provision.index.address import IndexAddress
from provision.matrix.check import check
from provision.refresh import apt, nvidia
from provision.refresh.client import UnreachableError
from provision.refresh.engine import Plan, Refresh
from provision.refresh.land import check_result

DAY = datetime.date(2026, 11, 23)

# archives


def test_paragraphs_are_read_with_their_continued_lines():
    text = "Package: a\nDescription: one\n two\n .\nVersion: 1\n\n# a comment\n\nPackage: b\nno colon\n"
    assert list(apt.parse_stanzas(text.splitlines())) == [
        {"Package": "a", "Description": "one\ntwo\n.", "Version": "1"},
        {"Package": "b"},
    ]


def test_mirrors_come_from_both_forms_of_apts_files(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb https://no.example/ubuntu x main\n"
        "deb [arch=amd64 signed-by=/x] https://mirror.example/ubuntu/ noble main restricted\n"
        "deb https://vendor.example/cuda x main\n"
    )
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "Types: deb\nURIs: https://mirror.example/debian-security\nSuites: bookworm-security\nComponents: main\n\n"
        "Types: deb deb-src\nURIs: https://mirror.example/debian\nSuites: bookworm\nComponents: main non-free\n"
    )
    found = apt.host_mirrors(tmp_path)
    assert found == {"ubuntu": "https://mirror.example/ubuntu", "debian": "https://mirror.example/debian"}


@pytest.mark.parametrize(
    ("package", "version", "fields", "expected"),
    [
        (
            "nvidia-driver-595",
            "595.99.02-0ubuntu1",
            {"Depends": "x, nvidia-dkms-595"},
            (595, "desktop", "595.99.02", None),
        ),
        ("nvidia-driver-595-server", "595.99.02-1", {}, (595, "server", "595.99.02", None)),
        ("nvidia-driver-590", "590.48.01-0", {"Depends": "nvidia-driver-595"}, (590, "desktop", None, 595)),
        (
            "nvidia-driver-615",
            "615.71.09-1",
            {"Depends": "nvidia-driver-615-open"},
            (615, "desktop", "615.71.09", None),
        ),
        ("nvidia-driver-595-open", "595.99.02-1", {}, None),
        ("nvidia-utils-595", "595.99.02-1", {}, None),
    ],
)
def test_packages_of_ubuntu(package, version, fields, expected):
    found = [
        (driver.branch, driver.flavour, driver.version, driver.transition_to)
        for driver in apt.drivers_of(stanza(package, version, **fields).splitlines(), "restricted", "ubuntu")
    ]
    assert found == ([expected] if expected else [])


def test_packages_of_debian():
    text = (
        stanza("nvidia-driver", "550.163.01-2")
        + stanza("nvidia-tesla-535-driver", "535.274.02-1~deb13u1")
        + stanza("nvidia-legacy-390xx-driver", "390.157-1")
        + stanza("nvidia-driver-bin", "550.163.01-2")
        + stanza("zlib1g", "1")
    )
    found = [(driver.branch, driver.flavour) for driver in apt.drivers_of(text.splitlines(), "non-free", "debian")]
    assert found == [(550, "desktop"), (535, "tesla")]


def test_a_list_of_another_shape_is_refused():
    text = stanza("nvidia-driver-595", "595.99.02").replace("Version", "Release")
    with pytest.raises(UnreachableError, match="another shape") as caught:
        list(apt.drivers_of(text.splitlines(), "restricted", "ubuntu"))
    assert "no Version" in caught.value.because[0]


def test_the_newest_package_of_several_suites_counts(upstream, client):
    archive(upstream, "debian", "one", {"non-free": stanza("nvidia-driver", "535.9.01-1")})
    archive(upstream, "debian", "one-updates", {"non-free": stanza("nvidia-driver", "535.10.01-1~deb12u1")})
    found = apt.read_drivers(
        client, f"{upstream.url}/debian", ["one", "one-updates", "one-none"], ["non-free"], "debian"
    )
    assert found[535, "desktop"].version == "535.10.01"
    with pytest.raises(UnreachableError):
        apt.read_drivers(client, f"{upstream.url}/debian", ["none"], ["non-free"], "debian")


def test_a_release_file_without_hashes_is_refused(upstream, client):
    upstream.replies["/debian/dists/one/InRelease"] = Reply(b"Origin: nobody\n")
    with pytest.raises(UnreachableError, match="names no list"):
        apt.read_drivers(client, f"{upstream.url}/debian", ["one"], ["non-free"], "debian")


# manifests

NEW_CUDA = "13.99.0"
MANIFEST = {
    "release_date": "2026-11-20",
    "release_label": NEW_CUDA,
    "release_product": "cuda",
    "cuda_cudart": {"name": "CUDA Runtime", "version": "13.9.1", "linux-x86_64": {"relative_path": "x"}},
    "nvidia_driver": {"name": "NVIDIA Linux Driver", "version": "615.80.01", "linux-x86_64": {}},
}


def manifests(upstream, *documents: dict[str, object]) -> str:
    names = [f"redistrib_{document['release_label']}.json" for document in documents]
    links = "".join(f'<a href="{name}">{name}</a>' for name in names)
    upstream.replies["/redist/"] = Reply(f"<html>{links}</html>".encode(), kind="text/html")
    for name, document in zip(names, documents, strict=True):
        upstream.replies[f"/redist/{name}"] = Reply(json.dumps(document).encode(), kind="application/json")
    return f"{upstream.url}/redist/"


@pytest.fixture
def toolkits(facts, client):
    def call(url: str, **more):
        return Refresh(facts, Plan(axes=("cuda",), redistrib_url=url, dated=DAY, **more), client).run()

    return call


def test_a_new_toolkit_becomes_a_row(toolkits, upstream, facts, write):
    outcome = toolkits(manifests(upstream, MANIFEST))
    assert {(change.file, change.row) for change in outcome.changes} == {
        ("cuda.toml", NEW_CUDA),
        ("sources.toml", "nvidia-redistrib"),
    }
    check_result(facts, outcome.texts)
    write(facts, outcome.texts)
    assert check(facts) == ()
    assert toolkits(manifests(upstream, MANIFEST)).changes == ()


def test_a_toolkit_that_reads_otherwise_stops_it(toolkits, upstream, facts, write):
    write(facts, toolkits(manifests(upstream, MANIFEST)).texts)
    other = {**MANIFEST, "nvidia_driver": {**MANIFEST["nvidia_driver"], "version": "615.90.01"}}
    with pytest.raises(DataError) as caught:
        toolkits(manifests(upstream, other))
    assert [item["id"] for item in caught.value.details["alarms"]] == [f"meaning:cuda/{NEW_CUDA}.driver"]


def test_a_manifest_with_a_new_column_stops_it(toolkits, upstream):
    with pytest.raises(DataError) as caught:
        toolkits(manifests(upstream, {**MANIFEST, "release_state": "draft"}))
    assert caught.value.details["alarms"][0]["id"] == "unseen:redistrib.release_state"


def test_a_major_without_a_floor_is_said(toolkits, upstream):
    outcome = toolkits(manifests(upstream, {**MANIFEST, "release_label": "99.0.0"}))
    assert outcome.changes == ()
    assert "CUDA 99.0.0 is new" in outcome.notes[0]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(MANIFEST)[:-50],
        "[]",
        json.dumps({**MANIFEST, "release_date": "soon"}),
        json.dumps({key: value for key, value in MANIFEST.items() if isinstance(value, str)}),
        json.dumps({**MANIFEST, "cuda_cudart": {}}),
    ],
    ids=["truncated", "list", "no day", "no component", "no version"],
)
def test_what_is_no_manifest_is_refused(content):
    with pytest.raises(UnreachableError, match="is not a manifest"):
        nvidia.parse_manifest(content.encode(), "redistrib")


# the PyTorch index


def listing(upstream, facts, more: tuple[str, ...] = (), without: str = "") -> str:
    """Serve pages with every build that the facts name, and more."""
    import tomllib

    document = tomllib.loads((facts / "frameworks/torch.toml").read_text())
    rows = {"torch": [], "torchvision": [], "torchaudio": []}
    for build in document["build"]:
        if build["index"] == "pytorch" and f"{build['torch']}+{build['variant']}" != without:
            for python in build["pythons"]:
                tag = f"cp{python.rstrip('t').replace('.', '')}"
                abi = tag + ("t" if python.endswith("t") else "m" if python in ("3.6", "3.7") else "")
                rows["torch"].append(f"torch-{build['torch']}+{build['variant']}-{tag}-{abi}-manylinux_2_28_x86_64.whl")
    rows["torch"] += more
    for name, files in rows.items():
        known = json.loads((facts / f"wheels/{name}.json").read_text())["releases"]
        hashes = {wheel["file"]: wheel.get("sha256") for row in known for wheel in row["wheels"]}
        page = {
            "meta": {"api-version": "1.0"},
            "name": name,
            "files": [
                {
                    "filename": file,
                    "url": f"https://mirror.example/whl/{file}".replace("+", "%2B"),
                    "hashes": {"sha256": hashes.get(file) or "e" * 64},
                }
                for file in files
            ],
        }
        upstream.replies[f"/whl/{name}/"] = Reply(json.dumps(page).encode(), kind=JSON)
    return f"{upstream.url}/whl"


NEW_BUILD = (
    "torch-2.15.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl",
    "torch-2.15.0+cu130-cp312-cp312-manylinux_2_28_aarch64.whl",
)


@pytest.fixture
def builds(facts, client):
    def call(url: str, **more):
        return Refresh(facts, Plan(axes=("builds",), pytorch_url=url, dated=DAY, **more), client).run()

    return call


def test_a_listed_build_becomes_a_row_and_closes_the_list(builds, upstream, facts):
    import tomllib

    outcome = builds(listing(upstream, facts, NEW_BUILD))
    document = tomllib.loads(outcome.texts["frameworks/torch.toml"])
    release = document["release"][0]
    assert release["variants"] == ["cu130", "cu132"]
    assert release["is_variants_complete"] is True
    assert release["evidence"]["is_variants_complete"]["source"] == ["pytorch-wheel-index"]
    build = next(row for row in document["build"] if (row["torch"], row["variant"]) == ("2.15.0", "cu130"))
    assert (build["cuda"], build["index"], build["pythons"]) == ("13.0", "pytorch", ["3.12"])
    assert build["is_arm64_published"] is True
    wheels = json.loads(outcome.texts["wheels/torch.json"])["releases"]
    assert {wheel["sha256"] for row in wheels if row["version"] == "2.15.0+cu130" for wheel in row["wheels"]} == {
        "e" * 64
    }
    check_result(facts, outcome.texts)


def test_a_build_that_is_no_longer_listed_stops_it(builds, upstream, facts):
    with pytest.raises(DataError) as caught:
        builds(listing(upstream, facts, NEW_BUILD, without="2.13.0+cu126"))
    assert [item["id"] for item in caught.value.details["alarms"]] == ["fewer:torch/2.13.0+cu126"]


def test_an_index_that_lists_no_build_closes_nothing(builds, upstream, facts):
    url = listing(upstream, facts)
    upstream.replies["/whl/torch/"] = Reply(b"<html><body>maintenance</body></html>", kind="text/html")
    refresh = Refresh(
        facts,
        Plan(axes=("builds", "torch"), pytorch_url=url, index=IndexAddress(url=upstream.index, told_by="t"), dated=DAY),
        builds.__closure__[0].cell_contents,
    )
    with pytest.raises(Exception, match="nothing could be read") as caught:
        refresh.run()
    assert any("lists no CUDA build" in why for why in caught.value.because)


def test_a_mirror_with_a_password_leaves_no_trace_in_the_facts(builds, upstream, facts):
    url = listing(upstream, facts, NEW_BUILD).replace("://", "://user:s3cret@")
    for name in ("torch", "torchvision", "torchaudio"):
        path = f"/whl/{name}/"
        upstream.replies[path] = Reply(
            upstream.replies[path].body.replace(b"https://mirror.example/whl/", b""), kind=JSON
        )
    outcome = builds(url)
    whole = str(outcome)
    assert "s3cret" not in whole
    assert "127.0.0.1" not in str(outcome.texts)
    wheels = json.loads(outcome.texts["wheels/torch.json"])["releases"]
    (row,) = [row for row in wheels if row["version"] == "2.15.0+cu130"]
    (known,) = [row for row in wheels if row["version"] == "2.13.0+cu130"]
    folder = known["wheels"][0]["url"].rpartition("/")[0]
    assert {wheel["url"] for wheel in row["wheels"]} == {f"{folder}/{file.replace('+', '%2B')}" for file in NEW_BUILD}


# versions of packages


def test_a_tilde_comes_before_the_end():
    assert apt._order("535.183-1~bpo12+1") < apt._order("535.183-1") < apt._order("535.183-1+deb12u1")


def test_packages_are_ordered_as_dpkg_does():
    dpkg = shutil.which("dpkg")
    if dpkg is None:
        pytest.skip("there is no dpkg here")
    dice = random.Random(5)  # noqa: S311 - the same pairs each time
    pieces = ("~", "+", ".", "-", "a", "B", "bpo", "deb", "ubuntu", "0", "00", "1", "2", "10", "09", "535")
    pairs = [("1", "1-0"), ("1.0", "1."), ("0:1", "1"), ("1:1", "2"), ("1-1~", "1-1"), ("1a", "1+"), ("01", "1")]
    for _ in range(300):
        first = "1" + "".join(dice.choices(pieces, k=dice.randint(0, 5)))
        cut = dice.randint(1, len(first))
        second = first[:cut] + "".join(dice.choices(pieces, k=dice.randint(0, 3)))
        # A revision is never empty.
        pairs.append((f"{dice.choice(('', '', '1:'))}{first}".rstrip("-"), second.rstrip("-")))
    for one, two in pairs:
        done = subprocess.run([dpkg, "--compare-versions", one, "lt", two], check=False, capture_output=True)
        equal = subprocess.run([dpkg, "--compare-versions", one, "eq", two], check=False, capture_output=True)
        assert (apt._order(one) < apt._order(two)) == (done.returncode == 0), (one, two)
        assert (apt._order(one) == apt._order(two)) == (equal.returncode == 0), (one, two)


def test_a_list_whose_size_is_no_number_is_not_named():
    text = f"SHA256:\n {'a' * 64} \u00b2 one\n {'a' * 64} 12 two\n {'a' * 64} {'9' * 5000} three\n"
    assert apt.release_hashes(text) == {"two": ("a" * 64, 12)}


def test_a_nested_manifest_is_none():
    with pytest.raises(UnreachableError, match="is not a manifest"):
        nvidia.parse_manifest(b"[" * 200_000, "redistrib")
