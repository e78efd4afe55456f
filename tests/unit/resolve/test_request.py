import pytest

from provision.errors import UsageError
from provision.resolve.request import (
    Request,
    is_askable_os,
    matches,
    parse_request,
    plain_request,
    request_of,
    to_flags,
)


def test_values_are_normalised():
    request = parse_request(
        {
            "torch": "v2.1",
            "cuda": "cu118",
            "python": "py311",
            "gpu": "h100, RTX 4090",
            "platform": "arm64",
            "driver": "R535",
        }
    )
    assert request == Request(
        torch="2.1", cuda="11.8", python="3.11", gpus=("h100", "RTX 4090"), platform="linux/arm64", driver="535"
    )


def test_flags_ask_for_the_same_request_again():
    request = parse_request({"torch": ">=2.3,<2.5", "gpu": ["h100", "a100"], "require_secure": True, "with": "jupyter"})
    words = to_flags(request)
    assert words == ("--torch", "<2.5,>=2.3", "--gpu", "h100", "--gpu", "a100", "--with", "jupyter", "--require-secure")


def test_absent_and_empty_lists_are_no_wish():
    assert parse_request({"torch": None, "gpu": []}) == Request()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("torch", ""),
        ("torch", "   "),
        ("torch", "two"),
        ("torch", "2.1\nRUN rm -rf /"),
        ("torch", "2.1; rm"),
        ("torch", "$(id)"),
        ("torch", "{{ 7 }}"),
        ("torch", "2.1..2"),
        ("torch", "\uff12.1"),
        ("torch", ">=2.1,"),
        ("torch", "=>2"),
        ("torch", 2.1),
        ("torch", "9" * 400),
        ("cuda", "twelve"),
        ("python", "3.x"),
        ("driver", "latest"),
        ("driver", "host"),
        ("driver", "5.1"),
        ("platform", "windows"),
        ("flavor", "tiny"),
        ("os", "debian 12; id"),
        ("gpu", "h100`id`"),
        ("gpu", [""]),
        ("base", "python:3.11\nRUN id"),
        ("base", "UPPER/case"),
        ("with", "a b"),
        ("require-secure", "yes"),
        ("colour", "red"),
    ],
)
def test_value_outside_the_grammar_is_a_usage_error(flag, value):
    with pytest.raises(UsageError) as caught:
        parse_request({flag: value})
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("wish", "version", "expected"),
    [(None, "1.0", True), ("2.1", "2.1.2", True), ("2.1", "2.2", False), (">=2,<3", "2.5", True)],
)
def test_wish_is_a_prefix_or_a_range(wish, version, expected):
    assert matches(wish, version) is expected


@pytest.mark.parametrize(
    "name", ["debian-sid", "Debian testing", "debian:unstable", "opensuse-rolling", "ubuntu latest"]
)
def test_a_system_that_moves_is_no_release(name):
    with pytest.raises(UsageError, match="is not a release") as caught:
        parse_request({"os": name})
    assert "debian12" in caught.value.hints[0]


def test_systems_that_a_request_can_name():
    assert is_askable_os("debian12")
    assert is_askable_os("fedora")
    assert not is_askable_os("debian-sid")
    assert not is_askable_os("wsl-ubuntu")


def test_what_files_bring_survives_the_lock_and_is_absent_where_nothing_is() -> None:
    request = parse_request(
        {
            "constraints": ["numpy<2"],
            "indexes": [
                "https://b.example/simple",
                "find-links:https://a.example/links.html",
                "https://b.example/simple",
            ],
        }
    )
    assert request.indexes == ("https://b.example/simple", "find-links:https://a.example/links.html")
    assert request_of(plain_request(request)) == request
    assert to_flags(request) == ()
    assert not {"constraints", "indexes"} & set(plain_request(parse_request({"torch": "2.4"})))


@pytest.mark.parametrize(
    "address",
    [
        "http://a.example/simple",
        "https://me:word@a.example/simple",
        "https://a.example/${TOKEN}",
        "a.example",
        "find-links:./x",
    ],
)
def test_an_index_that_a_lock_cannot_hold_is_refused(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request({"indexes": [address]})
    assert "word" not in caught.value.message


@pytest.mark.parametrize("name", ["vllm==0.8.5", "vllm>=0.8", "vllm<1"])
def test_an_extra_with_a_version_is_told_where_versions_go(name):
    with pytest.raises(UsageError) as caught:
        parse_request({"torch": "2.6", "with": [name]})
    assert "names a version" in caught.value.message
    assert "-r FILE" in caught.value.hints[0]
