import pytest

from provision.versions import Spec, branch_of, is_empty, is_prefix_of, parse


@pytest.mark.parametrize(
    ("prefix", "version", "expected"),
    [
        ("2.1", "2.1.2", True),
        ("2.1", "2.10.0", False),
        ("2.1.0", "2.1.2", False),
        ("2.1.0", "2.1", True),
        ("2", "2.15.0", True),
        ("12", "12.4", True),
        ("2.1.2+cu118", "2.1.2+cu118", True),
        ("2.1.2+cu118", "2.1.2+cu121", False),
        ("2.1.2", "2.1.2+cu121", True),
        ("2.0rc1", "2.0", False),
    ],
)
def test_prefix_names_versions_by_whole_parts(prefix, version, expected):
    assert is_prefix_of(prefix, version) is expected


def test_versions_order_by_number_and_not_by_text():
    assert sorted(["2.2.0", "2.10.0", "2.9.1"], key=parse) == ["2.2.0", "2.9.1", "2.10.0"]


def test_driver_branch_is_the_first_part():
    assert branch_of("535.104.05") == 535
    assert branch_of("580") == 580


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        (">=2.3,<2.5", "2.4.1", True),
        (">=2.3,<2.5", "2.5.0", False),
        ("==12.1.105", "12.1.105", True),
        ("==13.0.96.*", "13.0.96.1", True),
        ("==13.0.96.*", "13.0.97", False),
        ("~=3.8.0", "3.8.5", True),
        ("~=3.8.0", "3.9.0", False),
        ("!=70.0.0,<82", "70.0.0", False),
        ("==2.1.2", "2.1.2+cu118", True),
        ("==2.1.2+cu118", "2.1.2", False),
        (">=2.0", "2.1rc1", False),
        ("", "1.0", True),
    ],
)
def test_specifier_admits(text, version, expected):
    assert (version in Spec(text)) is expected


@pytest.mark.parametrize("text", ["2.1", "=>2", ">=", ">=2.*", "~=2", "==a.b"])
def test_malformed_specifier_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        Spec(text)


@pytest.mark.parametrize(
    ("specifiers", "expected"),
    [
        ([">=70", "!=70.*"], False),
        (["!=1.*", ">=1", "<3"], False),
        ([">=1.4", "!=1.4.*", "<2"], False),
        (["~=1.4", "!=1.4.*"], False),
        (["==2.1.2+cu118"], False),
        ([">1.0.post1", "<1.0.post3"], False),
        ([">=2.1rc1", "<2.2"], False),
        (["!=0", "<1"], False),
        ([">=70", "!=70.*", "<71"], True),
        (["<2", ">=2"], True),
        (["~=1.4", ">=2"], True),
        (["==1.4.*", "!=1.4.*"], True),
        (["==2.1.2", "==2.1.3"], True),
    ],
)
def test_specifiers_that_no_version_meets_are_empty(specifiers, expected):
    assert is_empty(specifiers) is expected
