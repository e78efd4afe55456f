"""provision.generate.image: what a flag or a lock may say, and what it becomes."""

from __future__ import annotations

import re

import pytest
from golden_cases import CASES, CERTIFICATE, TOOLS
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import DataError, IncompatibleError, ProvisionError, UsageError
from provision.generate.image import ImageOptions, count_unlocked, render_image
from provision.records import replace
from provision.resolve.stack import BaseImage

STACK = CASES["torch-cu121"].stack
HOSTILE = ["x\nRUN y", "x;y", "$(x)", "`x`", "{{ x }}", "x y\t", "", "x\u2028y", "\u0440ython:3", "x'y", 'x"y', "x\\y"]


def files(stack=STACK, **options):
    return {item.path: item.text for item in render_image(stack, ImageOptions(**options))}


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("option", ["syntax", "index_url", "registry_mirror", "frontend", "ca_cert"])
def test_hostile_options_are_refused(option: str, value: str) -> None:
    with pytest.raises(UsageError):
        ImageOptions(**{option: value})


@pytest.mark.parametrize("value", [item for item in HOSTILE if item not in ("", "x'y")])
def test_hostile_labels_are_refused(value: str) -> None:
    with pytest.raises(UsageError):
        ImageOptions(labels={value: "x"})
    if value.isprintable() and value.isalpha():
        return
    if not value.startswith("\u0440"):
        with pytest.raises(UsageError):
            ImageOptions(labels={"key": value})


@pytest.mark.parametrize(
    "options",
    [
        {"index_url": "ftp://mirror.example/"},
        {"registry_mirror": "https://mirror.example"},
        {"non_root_uid": 0},
        {"non_root_uid": -1},
        {"non_root_uid": 2**31},
        {"labels": {"dev.provision.lock": "mine"}},
        {"labels": {"Upper": "x"}},
        {"ca_cert": CERTIFICATE + "-----BEGIN PRIVATE KEY-----\n"},
        {"frontend": "classic", "syntax": "docker/dockerfile:1"},
    ],
)
def test_options_outside_their_grammar(options: dict) -> None:
    with pytest.raises(UsageError):
        ImageOptions(**options)


@given(st.text(max_size=40))
def test_no_text_puts_a_line_into_the_dockerfile(text: str) -> None:
    lines = files()["Dockerfile"].count("\n")
    for option in ("syntax", "index_url", "registry_mirror", "labels"):
        try:
            value = {"key": text} if option == "labels" else text
            options = ImageOptions(**{option: value})
        except UsageError:
            continue
        found = {item.path: item.text for item in render_image(STACK, options)}["Dockerfile"]
        assert found.count("\n") == lines + (option in ("syntax", "labels"))


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_locks_are_refused(value: str) -> None:
    image = STACK.image
    package = image.packages[0]
    for broken in (
        replace(image, base=BaseImage(ref=value)),
        replace(image, base=replace(image.base, digest=value or "x")),
        replace(image, apt=(value,)),
        replace(image, library_path=(value,)),
        replace(image, packages=(replace(package, name=value),)),
        replace(image, packages=(replace(package, version=value),)),
        replace(image, packages=(replace(package, sha256=value),)),
        replace(image, packages=(replace(package, url=value or "x"),)),
        replace(image, packages=(replace(package, sha256=None, index_url=value or "x"),)),
    ):
        with pytest.raises(UsageError):
            render_image(replace(STACK, image=broken))
    for stack in (
        replace(STACK, driver=replace(STACK.driver, minimum=value)),
        replace(STACK, cuda=value),
        replace(STACK, python=value or "x"),
        replace(STACK, facts_date=value),
    ):
        with pytest.raises(UsageError):
            render_image(stack)


def test_credentials_in_an_address_are_named_as_such() -> None:
    with pytest.raises(UsageError, match="user name or password"):
        ImageOptions(index_url="https://user:secret@mirror.example/simple")


def test_options_do_not_change_the_lock() -> None:
    plain = files()
    other = files(ca_cert=CERTIFICATE, index_url="https://mirror.example/simple", frontend="builtin")
    for path in ("provision.lock", "requirements.lock.txt", "constraints.txt", "expect.json"):
        assert plain[path] == other[path]


def test_a_certificate_is_used_and_never_copied() -> None:
    text = files(ca_cert=CERTIFICATE)
    assert text["provision-ca.crt"] == CERTIFICATE
    assert text["Dockerfile"].count("--mount=type=bind,source=provision-ca.crt,target=/build/provision-ca.crt") == 4
    assert not re.search(r"^COPY .*provision-ca", text["Dockerfile"], re.MULTILINE)
    classic = files(ca_cert=CERTIFICATE, frontend="classic")
    assert classic["provision-ca.crt"] == CERTIFICATE
    assert "provision-ca" not in classic["Dockerfile"][classic["Dockerfile"].index("AS runtime") :]


@pytest.mark.parametrize(
    ("ref", "wanted"),
    [
        ("python:3.11-slim", "mirror.example/library/python:3.11-slim"),
        ("nvidia/cuda:12.1.1-base", "mirror.example/nvidia/cuda:12.1.1-base"),
        ("registry.example/team/python:3.11", "registry.example/team/python:3.11"),
        ("localhost/python:3.11", "localhost/python:3.11"),
        ("localhost:5000/python:3.11", "localhost:5000/python:3.11"),
    ],
)
def test_a_mirror_serves_only_docker_hubs_images(ref: str, wanted: str) -> None:
    stack = replace(STACK, image=replace(STACK.image, base=BaseImage(ref=ref, digest=f"sha256:{'3' * 64}")))
    text = files(stack, registry_mirror="mirror.example")["Dockerfile"]
    assert f"\nFROM {wanted}@sha256:{'3' * 64} AS base\n" in text


def test_changing_the_users_lines_keeps_every_earlier_step() -> None:
    def steps(*lines: str) -> list[str]:
        stack = replace(STACK, image=replace(STACK.image, user_requirements=lines))
        return files(stack)["Dockerfile"].split("\nRUN ")[1:]

    before, after = steps("einops==0.7"), steps("einops==0.8")
    changed = [index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    assert changed in ([], [len(before) - 1])  # only what follows the user's own step: labels
    assert "requirements.user.txt" in before[-2]
    assert "verify.py --packages" in before[-1]


def test_users_lines_are_checked_again() -> None:
    stack = replace(
        STACK, image=replace(STACK.image, user_requirements=("einops", "--index-url https://mirror.example"))
    )
    with pytest.raises(UsageError, match="line 2"):
        files(stack)


def test_tools_need_a_hash() -> None:
    with pytest.raises(DataError):
        files(replace(STACK, image=replace(STACK.image, tools=(replace(TOOLS[0], sha256=None),))))


def test_python_without_an_installer_is_a_refusal() -> None:
    with pytest.raises(IncompatibleError):
        files(replace(STACK, image=replace(STACK.image, tools=())))


def test_a_stack_without_an_image_part() -> None:
    with pytest.raises(ProvisionError):
        render_image(replace(STACK, image=None))


def test_unverified_packages_are_counted_and_labelled() -> None:
    stack = CASES["torch-cu118"].stack
    assert stack.image.unverified == 2
    assert '\nLABEL dev.provision.unverified="2"\n' in files(stack)["Dockerfile"]


def test_lines_that_only_the_build_resolves_are_counted_and_labelled() -> None:
    lines = ("einops>=0.7", "numpy<2", "torch[opt-einsum]")
    stack = replace(STACK, image=replace(STACK.image, user_requirements=lines))
    assert count_unlocked(stack.image) == 2  # numpy itself is locked
    assert '\nLABEL dev.provision.unlocked="2"\n' in files(stack)["Dockerfile"]
    assert count_unlocked(CASES["torch-user-requirements"].stack.image) == 3  # one is an extra's
    assert '\nLABEL dev.provision.unlocked="0"\n' in files()["Dockerfile"]


def test_a_given_index_serves_every_package() -> None:
    mirror = "https://mirror.example/simple"
    for name in ("torch-cu118", "air-gapped", "torch-user-requirements"):
        found = files(CASES[name].stack, index_url=mirror)
        texts = {path: text for path, text in found.items() if path not in ("provision.lock", "verify.py")}
        assert not [path for path, text in texts.items() if "download.pytorch.org" in text or " @ " in text]
        installs = [line for line in found["Dockerfile"].splitlines() if " -r /build/requirements." in line]
        assert installs
        assert all(f" --default-index {mirror} " in line and "--index " not in line for line in installs)
    torch = next(item for item in CASES["torch-cu118"].stack.image.packages if item.name == "torch")
    wanted = f"torch==2.1.2+cu118 --hash=sha256:{torch.sha256}"
    found = files(CASES["torch-cu118"].stack, index_url=mirror)
    assert wanted in found["requirements.lock.txt"]
    assert wanted in found["requirements.framework.txt"]


def test_folders_of_a_cuda_image_are_named_after_the_image() -> None:
    stack = CASES["torch-devel"].stack
    base = replace(stack.image.cuda_base, cuda="12.2")
    text = files(replace(stack, image=replace(stack.image, cuda_base=base)))["Dockerfile"]
    assert "/usr/local/cuda-12.2 " in text
    assert "cuda-12.1 " not in text
    unknown = replace(base, cuda=None)
    text = files(replace(stack, image=replace(stack.image, cuda_base=unknown)))["Dockerfile"]
    assert "/usr/local/cuda-12.1 " in text


def test_one_index_one_group() -> None:
    stack = CASES["torch-cu118"].stack
    packages = [
        replace(item, index_url=f"https://{item.name}.example/simple") if item.sha256 is None else item
        for item in stack.image.packages
    ]
    found = files(replace(stack, image=replace(stack.image, packages=tuple(packages))))
    assert found["requirements.unverified.txt"].splitlines()[1:] == ["torchaudio==2.1.2+cu118"]
    assert found["requirements.unverified.1.txt"].splitlines()[1:] == ["torchvision==0.16.2+cu118"]
    assert (
        "--default-index https://torchvision.example/simple -r /build/requirements.unverified.1.txt"
        in found["Dockerfile"]
    )


def test_a_hash_from_another_index_is_looked_up_there_alone() -> None:
    stack = CASES["torch-cu118"].stack
    packages = tuple(replace(item, sha256=item.sha256 or "4" * 64) for item in stack.image.packages)
    found = files(replace(stack, image=replace(stack.image, packages=packages)))
    assert [line.split(" ")[0] for line in found["requirements.framework.1.txt"].splitlines()[1:]] == [
        "torchaudio==2.1.2+cu118",
        "torchvision==0.16.2+cu118",
    ]
    index = stack.image.packages[1].index_url
    assert f"--default-index {index} -r /build/requirements.framework.1.txt" in found["Dockerfile"]
    assert "--default-index" not in found["Dockerfile"].split("requirements.framework.1.txt")[0]


@pytest.mark.parametrize(
    ("is_open", "words"),
    [(False, "--no-index --find-links https://x.example/a.html"), (True, "--find-links https://x.example/a.html")],
)
def test_a_page_of_links_is_no_index(is_open: bool, words: str) -> None:
    package = replace(
        STACK.image.packages[0], sha256=None, index_url="https://x.example/a.html", has_unknown_dependencies=is_open
    )
    text = files(replace(STACK, image=replace(STACK.image, packages=(package,))))["Dockerfile"]
    assert f" {words} -r /build/requirements.unverified.txt" in text
    assert ("--no-index" in text) is not is_open


def test_the_stacks_own_tools_are_used() -> None:
    stack = replace(STACK, image=replace(STACK.image))
    found = {item.path: item.text for item in render_image(stack)}
    assert found["tools.txt"].splitlines()[1:] == [f"{x.name}=={x.version} --hash=sha256:{x.sha256}" for x in TOOLS]


def test_a_lock_without_an_init_gives_the_image_that_it_always_gave() -> None:
    found = files(replace(STACK, image=replace(STACK.image, tools=TOOLS[:1])))
    assert "--from=tools /opt" not in found["Dockerfile"]
    assert "--from=tools /opt/tools/bin/dumb-init" in files()["Dockerfile"]


def test_a_package_of_the_system_that_is_named_with_and_without_a_version_is_installed_once() -> None:
    text = files(replace(STACK, image=replace(STACK.image, apt=("libgl1", "libgl1=1.6.0-1", "libgl1-mesa"))))[
        "Dockerfile"
    ]
    assert [line.strip(" \\") for line in text.splitlines() if "libgl1" in line] == ["libgl1=1.6.0-1", "libgl1-mesa"]


def test_a_platform_nobody_builds() -> None:
    with pytest.raises(UsageError, match="platform"):
        files(replace(STACK, platform="linux/riscv64"))


def test_same_stack_same_bytes_whatever_the_order_of_packages() -> None:
    image = replace(STACK.image, packages=tuple(reversed(STACK.image.packages)))
    there, here = files(replace(STACK, image=image)), files()
    for path in ("requirements.lock.txt", "constraints.txt", "requirements.cuda.txt"):
        assert there[path] == here[path]
