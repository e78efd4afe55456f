"""The other forms of a stack, each read by the rules of its reader."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import PurePosixPath

import pytest
from golden_cases import CASES
from packaging.pylock import Pylock
from packaging.requirements import Requirement

from provision.errors import UnknownError, UsageError
from provision.generate.formats import FORMATS, render_format
from provision.generate.image import ImageOptions
from provision.generate.pylock import render_pylock
from provision.generate.sbom import render_sbom
from provision.records import replace

HEADERS = {"bootstrap", "from", "stage", "includecmd", "mirrorurl", "osversion", "library", "registry", "namespace"}
SECTIONS = {
    *("setup", "files", "environment", "post", "runscript", "startscript", "test", "labels", "help", "arguments"),
    *("pre", "appinstall"),
}
# The properties that a generated devcontainer.json may have, as the specification of development containers lists
# them; unknown ones are faults here.
DEVCONTAINER = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "build": {
            "type": "object",
            "properties": {
                "dockerfile": {"type": "string"},
                "context": {"type": "string"},
                "options": {"type": "array", "items": {"type": "string"}},
                "args": {"type": "object", "additionalProperties": {"type": "string"}},
                "target": {"type": "string"},
                "cacheFrom": {"type": ["string", "array"]},
            },
            "required": ["dockerfile"],
            "additionalProperties": False,
        },
        "hostRequirements": {
            "type": "object",
            "properties": {
                "cpus": {"type": "integer", "minimum": 1},
                "memory": {"type": "string", "pattern": "^[0-9]+([tgmk]b)?$"},
                "storage": {"type": "string", "pattern": "^[0-9]+([tgmk]b)?$"},
                "gpu": {"oneOf": [{"type": "boolean"}, {"const": "optional"}, {"type": "object"}]},
            },
            "additionalProperties": False,
        },
        "init": {"type": "boolean"},
        "remoteUser": {"type": "string"},
        "forwardPorts": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 65535}},
        "customizations": {"type": "object"},
    },
    "required": ["build"],
    "additionalProperties": False,
}


def _files(name: str, form: str, **options: object) -> dict[str, str]:
    stack = CASES[name].stack
    return {item.path: item.text for item in render_format(form, stack, ImageOptions(**options))}


def parse_definition(text: str) -> list[dict[str, object]]:
    """Read an Apptainer definition: stages of header lines and sections, strictly.

    A stage begins with ``Bootstrap:``. Its header is ``key: value`` lines; a section begins with ``%name`` at the
    start of a line and lasts to the next one. Lines of ``%files`` hold a source and perhaps a destination, its
    title may say ``from STAGE``; lines of ``%labels`` hold a name and a value.
    """
    stages: list[dict[str, object]] = []
    stage: dict[str, object] = {}
    section: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"(?i)bootstrap:", line):
            stage = {"header": {}, "sections": {}}
            stages.append(stage)
            section = None
        assert stage, f"line {number} stands before the first header"
        if line.startswith("%"):
            match = re.fullmatch(r"%([a-z]+)( from [a-z]+)?", line)
            assert match, f"line {number}: {line}"
            assert match[1] in SECTIONS, f"line {number}: no section is called {match[1]}"
            key = match[1] + (match[2] or "")
            assert key not in stage["sections"], f"line {number}: a second {key}"
            section = stage["sections"].setdefault(key, [])
        elif section is not None:
            section.append(line)
        elif line.strip() and not line.startswith("#"):
            key, colon, value = line.partition(":")
            assert colon, f"line {number}: {line!r} is not a header line"
            assert key.lower() in HEADERS, f"line {number}: no header is called {key}"
            assert value.strip(), f"line {number}: {key} has no value"
            assert key.lower() not in stage["header"]
            stage["header"][key.lower()] = value.strip()
    named = [item["header"].get("stage") for item in stages]
    for item in stages:
        assert {"bootstrap", "from"} <= set(item["header"])
        assert not ("@" in item["header"]["from"] and ":" in PurePosixPath(item["header"]["from"].split("@")[0]).name)
        for key, lines in item["sections"].items():
            words = [line.split() for line in lines if line.strip() and not line.strip().startswith("#")]
            if key.startswith("files"):
                assert all(1 <= len(row) <= 2 for row in words)
                assert key == "files" or key.removeprefix("files from ") in named
            if key == "labels":
                assert all(len(row) >= 2 for row in words)
    return stages


@pytest.mark.parametrize("name", sorted(name for name in CASES if not name.startswith("torch-devel-sources")))
def test_apptainer_definition_keeps_to_its_grammar(name: str) -> None:
    files = _files(name, "apptainer")
    stages = parse_definition(files["provision.def"])
    final = stages[-1]
    assert final["header"]["stage"] == "final"
    copied = {line.split()[0] for line in final["sections"]["files"] if line.strip()}
    assert copied == set(files) - {"provision.def", "requirements.lock.txt"}
    post = "\n".join(final["sections"]["post"])
    read = set(re.findall(r"/build/([\w.-]+)", post)) - {"layer.tar", "wheels"}
    assert read <= copied
    assert "--nv" in "\n".join(final["sections"]["help"])
    has_python = CASES[name].stack.python is not None
    assert ("verify.py --static" in "\n".join(final["sections"]["test"])) == has_python


@pytest.mark.parametrize("damaged", ["From: x\n", "Bootstrap: docker\nFrom\n", "Bootstrap: docker\nFrom: x\n%pots\n"])
def test_the_grammar_refuses_what_is_no_definition(damaged: str) -> None:
    with pytest.raises(AssertionError):
        parse_definition(damaged)


def test_apptainer_scripts_pass_shellcheck(tmp_path) -> None:
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    program = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed: install the extra `test`")
    for name in ("torch-user-requirements", "tensorflow-cuda-base", "tensorflow-and-cuda", "torch-jit", "air-gapped"):
        for number, stage in enumerate(parse_definition(_files(name, "apptainer")["provision.def"])):
            for key in ("post", "runscript", "test", "environment"):
                if key in stage["sections"]:
                    script = "\n".join(["#!/bin/sh", *stage["sections"][key]]) + "\n"
                    (tmp_path / f"{name}-{number}-{key}.sh").write_text(script)
    done = subprocess.run(
        [program, "--exclude=SC2034", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_apptainer_takes_a_digest_without_its_tag() -> None:
    header = parse_definition(_files("torch-jit", "apptainer")["provision.def"])[-1]["header"]
    assert header["from"] == f"python@sha256:{'1' * 64}"
    mirrored = _files("torch-jit", "apptainer", registry_mirror="mirror.example:5000/hub")["provision.def"]
    assert parse_definition(mirrored)[-1]["header"]["from"].startswith("mirror.example:5000/hub/library/python@sha256:")


def test_apptainer_has_no_stage_that_compiles() -> None:
    with pytest.raises(UsageError, match="flash-attn would be compiled"):
        _files("torch-devel-sources", "apptainer")


@pytest.mark.parametrize("name", sorted(set(CASES) - {"classic", "builtin", "air-gapped"}))
def test_devcontainer_keeps_to_its_schema(name: str) -> None:
    files = _files(name, "devcontainer")
    document = json.loads(files["devcontainer.json"])
    from jsonschema import Draft202012Validator

    Draft202012Validator(DEVCONTAINER).validate(document)
    assert document["hostRequirements"] == {"gpu": "optional"}
    assert document["build"]["dockerfile"] in files
    assert "devcontainer.json" not in files[".dockerignore"]
    assert f"USER {ImageOptions().non_root_uid}:" in files["Dockerfile"]
    assert f"{document['remoteUser']}:x:" in files["Dockerfile"]


def test_devcontainer_forwards_the_ports_of_extras() -> None:
    assert json.loads(_files("torch-user-requirements", "devcontainer")["devcontainer.json"])["forwardPorts"] == [8888]


def test_requirements_are_those_of_the_image() -> None:
    image = _files("torch-user-requirements", "dockerfile")
    alone = _files("torch-user-requirements", "requirements")
    assert set(alone) == {"requirements.lock.txt", "requirements.user.txt", "constraints.txt", "provision.lock"}
    assert alone["requirements.lock.txt"].endswith(image["requirements.lock.txt"])
    for line in alone["requirements.lock.txt"].splitlines():
        if not line.startswith("#"):
            requirement, _, digest = line.partition(" --hash=sha256:")
            Requirement(requirement)
            assert len(digest) == 64


def test_requirements_name_what_has_no_hash() -> None:
    files = _files("torch-cu118", "requirements")
    assert "requirements.unverified.txt" in files
    assert "requirements.unverified.txt" in files["requirements.lock.txt"]


@pytest.mark.parametrize("form", ["requirements", "pylock"])
def test_a_stack_without_python_has_nothing_to_lock(form: str) -> None:
    with pytest.raises(UsageError, match="has no Python"):
        _files("cuda-only", form)


def _pylock_stack():
    stack = CASES["torch-cu121"].stack
    packages = tuple(
        replace(item, file=f"{item.name.replace('-', '_')}-{item.version}-py3-none-any.whl", size=7)
        for item in stack.image.packages
    )
    return replace(stack, image=replace(stack.image, packages=packages))


def test_pylock_is_what_the_standard_says() -> None:
    stack = _pylock_stack()
    url = "https://mirror.example/files/torch-2.1.2-py3-none-any.whl"
    files = {item.path: item.text for item in render_pylock(stack, urls={"torch": url})}
    lock = Pylock.from_dict(tomllib.loads(files["pylock.toml"]))
    assert [(item.name, str(item.version)) for item in lock.packages] == sorted(stack.packages.items())
    assert str(lock.requires_python) == "==3.11.*"
    assert [str(item) for item in lock.environments] == ['sys_platform == "linux" and platform_machine == "x86_64"']
    for package, locked in zip(lock.packages, sorted(stack.image.packages, key=lambda item: item.name), strict=True):
        wheel = package.wheels[0]
        assert wheel.hashes == {"sha256": locked.sha256}
        assert wheel.size == 7
        assert (wheel.url == url) if package.name == "torch" else wheel.path == f"wheels/{locked.file}"


def test_pylock_names_a_source_as_one() -> None:
    stack = _pylock_stack()
    packages = tuple(
        replace(item, is_source=True, file="numpy-1.26.4.tar.gz") if item.name == "numpy" else item
        for item in stack.image.packages
    )
    files = {
        item.path: item.text for item in render_pylock(replace(stack, image=replace(stack.image, packages=packages)))
    }
    lock = Pylock.from_dict(tomllib.loads(files["pylock.toml"]))
    numpy = next(item for item in lock.packages if item.name == "numpy")
    assert numpy.sdist is not None
    assert not numpy.wheels


def test_pylock_needs_every_hash() -> None:
    with pytest.raises(UnknownError, match="torchaudio") as caught:
        _files("torch-cu118", "pylock")
    assert any("--fetch-hashes" in hint for hint in caught.value.hints)


def test_pylock_holds_nothing_that_is_not_locked() -> None:
    stack = _pylock_stack()
    with pytest.raises(UsageError, match="einops"):
        render_pylock(replace(stack, image=replace(stack.image, user_requirements=("einops>=0.7",))))


@pytest.mark.parametrize("name", sorted(CASES))
def test_sbom_is_valid_cyclonedx(name: str) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    case = CASES[name]
    text = render_sbom(case.stack, case.options)[0].text
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    references = [item["bom-ref"] for item in document["components"]]
    assert len(set(references)) == len(references)
    assert "serialNumber" not in document
    assert "timestamp" not in document["metadata"]
    libraries = {item["name"]: item for item in document["components"] if item.get("purl", "").startswith("pkg:pypi/")}
    assert set(libraries) == {*case.stack.packages, *(["dumb-init"] if case.stack.python else [])}
    for package in case.stack.image.packages:
        item = libraries[package.name]
        assert item["version"] == package.version
        assert "licenses" not in item
        hashes = [{"alg": "SHA-256", "content": package.sha256}] if package.sha256 else None
        assert item.get("hashes") == hashes


def test_sbom_names_packages_as_their_index_does() -> None:
    components = json.loads(render_sbom(CASES["torch-cu118"].stack)[0].text)["components"]
    purls = {item["name"]: item["purl"] for item in components if "purl" in item}
    assert purls["numpy"] == "pkg:pypi/numpy@1.26.4"
    assert purls["torch"] == "pkg:pypi/torch@2.1.2%2Bcu118"
    audio = purls["torchaudio"]
    assert audio.startswith("pkg:pypi/torchaudio@2.1.2%2Bcu118?repository_url=https://")
    torch = next(item for item in components if item["name"] == "torch")
    assert torch["externalReferences"][0]["url"].endswith("-linux_x86_64.whl")


def test_sbom_says_that_it_is_not_all() -> None:
    document = json.loads(render_sbom(CASES["torch-user-requirements"].stack)[0].text)
    assert document["compositions"][0]["aggregate"] == "incomplete"
    unlocked = [row["value"] for row in document["metadata"]["properties"] if row["name"] == "provision:unlocked"]
    assert "einops>=0.7" in unlocked


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_equal_stacks_give_equal_bytes_and_the_first_file(form: str) -> None:
    stack = _pylock_stack()
    files = [render_format(form, stack, ImageOptions(), has_sbom=True) for _ in range(2)]
    assert files[0] == files[1]
    assert FORMATS[form] in {item.path for item in files[0]}
    assert "sbom.cdx.json" in {item.path for item in files[0]}
    assert [item.path for item in files[0]] == sorted(item.path for item in files[0])
