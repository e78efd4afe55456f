"""What the bake file says of many stacks, read as HCL by the small grammar that it keeps to."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from golden_cases import CASES

from provision.errors import UsageError
from provision.generate.bake import BAKE_FILE, BakeOptions, BakeStack, render_bake, target_name
from provision.generate.image import render_image

NAMES = ("torch-cu121", "torch-jit", "torch-user-requirements", "tensorflow-cuda-base", "jax-cuda13", "cuda-only")
OPTIONS = BakeOptions(registry="registry.example/ml", cache="registry.example/ml/cache", compression="zstd")


def _stacks(*names: str, **values: object) -> tuple[BakeStack, ...]:
    made = []
    for name in names:
        case = CASES[name]
        artifacts = render_image(case.stack, case.options)
        made.append(BakeStack(name=name, stack=case.stack, artifacts=artifacts, **values))
    return tuple(made)


def _files(stacks: tuple[BakeStack, ...], options: BakeOptions | None = None) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in render_bake(stacks, options)}


def _blocks(text: str, kind: str) -> dict[str, dict[str, str]]:
    """Name → key → value as written, of every block of a kind."""
    found = {}
    for name, body in re.findall(rf'^{kind} "([^"]+)" \{{\n(.*?)^\}}$', text, re.MULTILINE | re.DOTALL):
        found[name] = dict(line.strip().split(" = ", 1) for line in body.splitlines())
    return found


def test_every_stack_is_a_target_with_its_own_context() -> None:
    files = _files(_stacks(*NAMES), OPTIONS)
    targets = _blocks(files[BAKE_FILE], "target")
    for name in NAMES:
        assert json.loads(targets[name]["context"]) == name
        assert f"{name}/Dockerfile" in files
        assert files[f"{name}/provision.lock"] == CASES[name].stack.to_lock()


def test_equal_stages_are_one_target_and_the_dockerfile_still_builds_alone() -> None:
    files = _files(_stacks("torch-cu121", "torch-user-requirements", "torch-jit"))
    targets = _blocks(files[BAKE_FILE], "target")
    contexts = {name: targets[name]["contexts"] for name in ("torch-user-requirements", "torch-jit")}
    # These two stand on one base, the third on one without a digest.
    assert contexts["torch-user-requirements"] == contexts["torch-jit"]
    assert targets["torch-cu121"]["contexts"] != contexts["torch-jit"]
    assert len([name for name in targets if name.startswith("tools-")]) == 2
    assert " AS tools\n" in files["torch-jit/Dockerfile"]


def test_shared_stages_say_what_the_dockerfiles_say() -> None:
    files = _files(_stacks(*NAMES))
    targets = _blocks(files[BAKE_FILE], "target")
    for name in NAMES:
        for stage, target in re.findall(r'"(\w+)" = "target:([\w-]+)"', targets[name]["contexts"]):
            shared = files[f"{json.loads(targets[target]['context'])}/Dockerfile"]
            own = files[f"{name}/Dockerfile"]
            assert json.loads(targets[target]["target"]) == stage
            assert targets[target]["platforms"] == targets[name]["platforms"]
            start = own.index(f" AS {stage}\n")
            instructions = own[start : own.find("\n\n", start)]
            assert instructions in shared


def test_what_a_shared_stage_reads_lies_beside_it() -> None:
    files = _files(_stacks("air-gapped"))
    targets = _blocks(files[BAKE_FILE], "target")
    folder = next(json.loads(row["context"]) for name, row in targets.items() if name.startswith("tools-"))
    assert files[f"{folder}/tools.txt"] == files["air-gapped/tools.txt"]
    assert files[f"{folder}/provision-ca.crt"] == files["air-gapped/provision-ca.crt"]
    assert set(files[f"{folder}/.dockerignore"].split()) == {"*", "!Dockerfile", "!provision-ca.crt", "!tools.txt"}


def test_stages_of_another_platform_are_not_shared() -> None:
    import dataclasses

    from provision.records import replace

    amd = _stacks("torch-cu121")[0]
    case = dataclasses.replace(CASES["torch-cu121"], stack=replace(CASES["torch-cu121"].stack, platform="linux/arm64"))
    arm = BakeStack(name="arm", stack=case.stack, artifacts=render_image(case.stack))
    targets = _blocks(_files((amd, arm))[BAKE_FILE], "target")
    assert not set(re.findall(r"target:[\w-]+", targets["arm"]["contexts"])) & set(
        re.findall(r"target:[\w-]+", targets["torch-cu121"]["contexts"])
    )


def test_groups_are_all_frameworks_platforms_and_the_users_own() -> None:
    text = _files(_stacks(*NAMES, groups=("nightly",)))[BAKE_FILE]
    groups = {name: json.loads(row["targets"]) for name, row in _blocks(text, "group").items()}
    assert groups["default"] == groups["nightly"] == sorted(NAMES)
    assert groups["jax"] == groups["linux-arm64"] == ["jax-cuda13"]
    assert groups["cuda"] == ["cuda-only"]
    assert "tensorflow-cuda-base" not in groups["torch"]


def test_the_order_of_the_stacks_changes_nothing() -> None:
    stacks = _stacks(*NAMES)
    assert render_bake(stacks, OPTIONS) == render_bake(tuple(reversed(stacks)), OPTIONS)


def test_tags_name_the_lock_unless_given() -> None:
    stack = CASES["torch-cu121"].stack
    text = _files(_stacks("torch-cu121"))[BAKE_FILE]
    assert f'named("torch-cu121:lock-{stack.lock_digest[7:19]}")' in text
    text = _files(_stacks("torch-cu121", tags=("registry.example/x:1",)))[BAKE_FILE]
    assert _blocks(text, "target")["torch-cu121"]["tags"] == '["registry.example/x:1"]'


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        (("a.b", "a_b"), {}, "one target"),
        (("a",), {"groups": ("a",)}, "a group and a target"),
        (("shared",), {}, "a part that stacks share"),
        (("docker-bake.hcl",), {}, "the name of the file that builds"),
        (("a", "b"), {"tags": ("registry.example/x:1",)}, "`a` and `b` would both be tagged `registry.example/x:1`"),
    ],
)
def test_names_that_would_collide_are_refused(names, values, message) -> None:
    case = CASES["torch-cu121"]
    artifacts = render_image(case.stack)
    stacks = tuple(BakeStack(name=name, stack=case.stack, artifacts=artifacts, **values) for name in names)
    with pytest.raises(UsageError, match=message):
        render_bake(stacks)


@pytest.mark.parametrize(
    ("tag", "registry"),
    [
        ("x:latest", None),
        ("x", None),
        ("registry.example:5000/ml/x", "registry.example:5000/ml"),
        ("registry.example:5000/ml/x:latest", "registry.example:5000/ml"),
    ],
)
def test_a_tag_that_another_stack_has_by_its_name_is_refused(tag, registry) -> None:
    case = CASES["torch-cu121"]
    artifacts = render_image(case.stack)
    stacks = (
        BakeStack(name="x", stack=case.stack, artifacts=artifacts),
        BakeStack(name="y", stack=case.stack, artifacts=artifacts, tags=(tag,)),
    )
    with pytest.raises(UsageError, match="would both be tagged") as caught:
        render_bake(stacks, BakeOptions(registry=registry))
    assert "`x` and `y`" in caught.value.message


def test_one_stack_may_have_a_tag_twice_and_two_may_differ_in_it() -> None:
    case = CASES["torch-cu121"]
    artifacts = render_image(case.stack)
    rows = (("x", ("r.example/i:1", "r.example/i:1")), ("y", ("r.example/i:2", "r.example/i")))
    assert render_bake(tuple(BakeStack(name=n, stack=case.stack, artifacts=artifacts, tags=t) for n, t in rows))


@pytest.mark.parametrize(
    "values",
    [
        {"registry": "https://registry.example"},
        {"registry": 'x"\n}'},
        {"cache": "registry.example/${HOME}"},
        {"compression": "lz4"},
    ],
)
def test_options_outside_their_grammar_are_refused(values) -> None:
    with pytest.raises(UsageError):
        BakeOptions(**values)


def test_target_names_keep_to_the_letters_of_bake() -> None:
    assert target_name("torch2.1.2-cu118-py311") == "torch2_1_2-cu118-py311"


def test_buildx_reads_the_file(tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("there is no docker command")
    if subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the docker command has no buildx")
    (tmp_path / BAKE_FILE).write_text(_files(_stacks(*NAMES), OPTIONS)[BAKE_FILE])
    done = subprocess.run(
        ["docker", "buildx", "bake", "--print"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["group"]["default"]["targets"] == sorted(NAMES)
    row = plan["target"]["torch-cu121"]
    assert row["tags"][0] == "registry.example/ml/torch-cu121:latest"
    assert row["cache-from"][0] == "type=registry,ref=registry.example/ml/cache:torch-cu121"
    assert "mode=max" in row["cache-to"][0]
    assert row["output"] == ["type=image,compression=zstd,compression-level=3,oci-mediatypes=true"]
    assert set(row["contexts"]) == {"base", "tools"}
    assert all(value.startswith("target:") for value in row["contexts"].values())
    assert set(plan["target"]) > set(NAMES)


def test_without_a_registry_and_a_cache_buildx_names_images_alone(tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("there is no docker command")
    (tmp_path / BAKE_FILE).write_text(_files(_stacks("torch-cu121"))[BAKE_FILE])
    done = subprocess.run(
        ["docker", "buildx", "bake", "--print"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 and "buildx" in done.stderr:
        pytest.skip("the docker command has no buildx")
    row = json.loads(done.stdout)["target"]["torch-cu121"]
    assert row["tags"][0] == "torch-cu121:latest"
    assert not row.get("cache-from")
    assert not row.get("cache-to")
