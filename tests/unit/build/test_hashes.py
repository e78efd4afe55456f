"""Hashes from an index: a real server on loopback, in every mood an index can have."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from provision.build.hashes import complete_hashes, find_urls
from provision.errors import MissingDependencyError, UsageError
from provision.index.address import IndexAddress
from provision.records import replace
from provision.resolve.request import Request
from provision.resolve.stack import BaseImage, DriverNeed, ImagePart, LockedPackage, Stack

GOOD, OTHER = "a" * 64, "b" * 64
WHEEL = "torchvision-0.16.2+cu118-cp311-cp311-linux_x86_64.whl"
LINK = WHEEL.replace("+", "%2B")


class _Index(ThreadingHTTPServer):
    """Answers with what ``pages`` holds: path → (status, media type, content)."""

    daemon_threads = True

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, str, bytes]] = {}
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/whl/cu118"

    def serve(
        self, content: str | bytes, kind: str = "text/html", status: int = 200, name: str = "torchvision"
    ) -> None:
        whole = content.encode() if isinstance(content, str) else content
        self.pages[f"/whl/cu118/{name}/"] = (status, kind, whole)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        status, kind, content = self.server.pages.get(self.path, (404, "text/html", b""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index():
    with _Index() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def stack(index):
    packages = (
        LockedPackage(name="numpy", version="1.26.4", index="pypi", sha256=OTHER, why="test"),
        LockedPackage(
            name="torchvision",
            version="0.16.2+cu118",
            index="pytorch",
            index_url=index.url,
            layer="framework",
            why="test",
        ),
    )
    return Stack(
        request=Request(),
        facts_date="2026-11-21",
        python="3.11",
        platform="linux/amd64",
        os="debian12",
        cuda="11.8",
        variant="cu118",
        driver=DriverNeed(minimum="450.80.02"),
        image=ImagePart(flavor="runtime", base=BaseImage(ref="python:3.11-slim-bookworm"), packages=packages),
    )


def _package(stack, name="torchvision"):
    return next(package for package in stack.image.packages if package.name == name)


def _change(stack, **changes):
    packages = tuple(
        replace(package, **changes) if package.name == "torchvision" else package for package in stack.image.packages
    )
    return replace(stack, image=replace(stack.image, packages=packages))


def test_hash_of_the_fitting_wheel_is_taken_from_html(index, stack):
    others = [
        WHEEL.replace("cp311", "cp310"),
        WHEEL.replace("x86_64", "aarch64"),
        WHEEL.replace("0.16.2", "0.16.1"),
        WHEEL.replace("+cu118", "+cu121"),
        WHEEL.replace("torchvision", "torchvisionx"),
        WHEEL.replace(".whl", ".tar.gz"),
        "torchvision-0.16.2+cu118-cp3x-abi3-linux_x86_64.whl",
    ]
    rows = [f'<a href="{name}#sha256={OTHER}">x</a>' for name in others]
    index.serve("\n".join([*rows, f'<a href="/whl/cu118/{LINK}#sha256={GOOD}">x</a>', "<a>no link</a>"]))
    found, left = complete_hashes(stack)
    package = _package(found)
    assert left == ()
    assert (package.sha256, package.file) == (GOOD, WHEEL)
    assert package.url == index.url.removesuffix("/whl/cu118") + f"/whl/cu118/{LINK}"
    assert _package(found, "numpy") == _package(stack, "numpy")
    assert index.asked == ["/whl/cu118/torchvision/"]
    assert found.lock_digest != stack.lock_digest


def test_hash_and_size_are_taken_from_json(index, stack):
    files = [{"filename": WHEEL, "url": LINK, "hashes": {"sha256": GOOD}, "size": 77}]
    index.serve(
        json.dumps({"meta": {"api-version": "1.1"}, "name": "torchvision", "files": files}),
        kind="application/vnd.pypi.simple.v1+json",
    )
    package = _package(complete_hashes(stack)[0])
    assert (package.sha256, package.size) == (GOOD, 77)
    assert package.url == f"{index.url}/torchvision/{LINK}"


def test_known_file_name_is_the_only_one_taken(index, stack):
    index.serve(f'<a href="{LINK}#sha256={OTHER}">x</a><a href="exact.whl#sha256={GOOD}">x</a>')
    assert _package(complete_hashes(_change(stack, file="exact.whl"))[0]).sha256 == GOOD


@pytest.fixture
def two(index, stack):
    """A stack with a second package, whose hash the index has."""
    other = replace(_package(stack), name="torchaudio", version="2.1.2+cu118")
    wheel = LINK.replace("torchvision-0.16.2", "torchaudio-2.1.2")
    index.serve(f'<a href="{wheel}#sha256={OTHER}">x</a>', name="torchaudio")
    return replace(stack, image=replace(stack.image, packages=(*stack.image.packages, other)))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (f'<a href="{LINK}">x</a>', "gives no hash"),
        (f'<a href="{LINK}#md5={"c" * 32}">x</a>', "gives no hash"),
        (f'<a href="{LINK}#sha256=zz">x</a>', "gives no hash"),
        ('<a href="other-1.tar.gz">x</a>', "lists no wheel"),
        ("<html>Welcome!</html>", "lists no file at all"),
        (None, "lists no file at all"),
    ],
)
def test_missing_hash_leaves_the_package_unverified_and_says_so(index, stack, two, page, why):
    if page is not None:
        index.serve(page)
    found, left = complete_hashes(two)
    assert _package(found) == _package(two)
    assert _package(found, "torchaudio").sha256 == OTHER
    assert len(left) == 1
    assert left[0].startswith("torchvision 0.16.2+cu118: ")
    assert why in left[0]
    with pytest.raises(MissingDependencyError, match="gave no hashes") as caught:
        complete_hashes(stack)
    assert caught.value.because == left


def test_given_index_is_asked_for_every_package_and_its_address_stays_out_of_the_lock(index, stack):
    index.serve(f'<a href="{LINK}#sha256={GOOD}">x</a>')
    elsewhere = _change(stack, index_url="http://127.0.0.1:1/whl/cu118")
    package = _package(complete_hashes(elsewhere, index_url=index.url)[0])
    assert (package.sha256, package.file, package.url) == (GOOD, WHEEL, None)
    assert index.asked == ["/whl/cu118/torchvision/"]


def test_package_with_unknown_needs_is_not_asked_for(index, stack):
    index.serve(f'<a href="{LINK}#sha256={GOOD}">x</a>')
    found, left = complete_hashes(_change(stack, has_unknown_dependencies=True))
    assert _package(found).sha256 is None
    assert "do not know" in left[0]
    assert index.asked == []


@pytest.mark.parametrize(
    ("content", "kind", "status", "said"),
    [
        ("", "text/html", 500, "answered 500"),
        ("", "text/html", 403, "answered 403"),
        ("x", "application/octet-stream", 200, "application/octet-stream"),
        ("{", "application/vnd.pypi.simple.v1+json", 200, "not a list of files"),
        ('{"files": 3}', "application/json", 200, "not a list of files"),
        ('{"files": [{"url": 3}]}', "application/json", 200, "not a list of files"),
        ('{"files": [[]]}', "application/json", 200, "not a list of files"),
    ],
)
def test_index_that_answers_with_no_page(index, stack, content, kind, status, said):
    index.serve(content, kind, status)
    with pytest.raises(MissingDependencyError) as caught:
        complete_hashes(stack)
    assert said in caught.value.because[0]
    assert index.url in caught.value.because[0]


def test_index_that_does_not_answer(stack):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(MissingDependencyError, match="gave no hashes") as caught:
            complete_hashes(_change(stack, index_url=url), timeout_seconds=0.2)
    assert "timed out" in caught.value.because[0]


def test_index_nobody_listens_at(stack):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(MissingDependencyError):
        complete_hashes(_change(stack, index_url=url))


def test_index_of_a_pypi_package_comes_from_flag_then_from_pip_and_is_never_assumed(index, stack):
    index.serve(f'<a href="{LINK}#sha256={GOOD}">x</a>')
    bare = _change(stack, index="pypi", index_url=None)
    for found, _ in (
        complete_hashes(bare, index_url=index.url),
        complete_hashes(bare, address=IndexAddress(url=index.url, told_by="test")),
    ):
        assert _package(found).sha256 == GOOD
        assert _package(found).url is None
    with pytest.raises(UsageError, match="no index is known"):
        complete_hashes(bare)
    with pytest.raises(UsageError, match="not an http address"):
        complete_hashes(bare, index_url="file:///etc")


def test_a_further_index_of_pip_is_asked_for_what_the_first_lacks(index, stack):
    index.serve("<html><body>nothing</body></html>")
    second = index.url.replace("cu118", "extra")
    index.pages["/whl/extra/torchvision/"] = (
        200,
        "text/html",
        f'<a href="{LINK}#sha256={GOOD}">x</a>'.encode(),
    )
    bare = _change(stack, index="pypi", index_url=None)
    address = IndexAddress(url=index.url, told_by="test", extra=(second,))
    assert _package(complete_hashes(bare, address=address)[0]).sha256 == GOOD
    assert index.asked == ["/whl/cu118/torchvision/", "/whl/extra/torchvision/"]
    index.serve(f'<a href="{LINK}#sha256={OTHER}">x</a>')
    # What the first has is not looked for in the second.
    assert _package(complete_hashes(bare, address=address)[0]).sha256 == OTHER
    locked = _change(bare, sha256=GOOD, file=WHEEL)
    urls = find_urls(replace(locked, image=replace(locked.image, packages=locked.image.packages[1:])), address=address)
    assert urls["torchvision"].startswith(second)


def test_certificates_that_are_none(index, stack):
    with pytest.raises(UsageError, match="--ca-cert"):
        complete_hashes(stack, ca_cert="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")


def test_stack_without_packages_is_left_alone(stack):
    bare = replace(stack, image=None)
    assert complete_hashes(bare) == (bare, ())


def test_addresses_are_taken_by_hash(stack, index):
    wheels = {"numpy": OTHER, "torchvision": GOOD}
    for name, digest in wheels.items():
        index.serve(
            f'<a href="../../files/{name}-wrong.whl#sha256={"c" * 64}">{name}-wrong.whl</a>'
            f'<a href="../../files/{name}.whl#sha256={digest}">{name}.whl</a>',
            name=name,
        )
    image = stack.image
    locked = tuple(replace(item, sha256=wheels[item.name]) for item in image.packages)
    found = find_urls(replace(stack, image=replace(image, packages=locked)), index_url=index.url)
    assert {name: url.rsplit("/", 1)[-1] for name, url in found.items()} == {
        "numpy": "numpy.whl",
        "torchvision": "torchvision.whl",
    }
    # What has no hash is looked up by nobody.
    assert set(find_urls(stack, index_url=index.url)) == {"numpy"}


def test_an_index_without_the_file_of_the_lock_is_named(stack, index):
    index.serve(f'<a href="numpy.whl#sha256={"c" * 64}">numpy.whl</a>', name="numpy")
    with pytest.raises(MissingDependencyError) as caught:
        find_urls(stack, index_url=index.url)
    assert any("numpy 1.26.4" in reason for reason in caught.value.because)


def test_no_index_is_assumed_for_addresses(stack):
    with pytest.raises(UsageError, match="no index is known for numpy"):
        find_urls(stack)
