"""The specifier matcher agrees with packaging's, which is the reference."""

from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision.versions import Spec, is_empty

numbers = st.integers(min_value=0, max_value=12)
releases = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
suffixes = st.sampled_from(["", "", "", "rc1", "a2", ".post1", ".dev3"])
versions = st.builds("{}{}{}".format, releases, suffixes, st.sampled_from(["", "", "+cu118"]))
plain = st.builds(
    "{}{}".format, st.sampled_from([">=", "<=", ">", "<", "==", "!="]), st.builds("{}{}".format, releases, suffixes)
)
wild = st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), releases)
compatible = st.builds("~={}.{}".format, numbers, releases)
clauses = st.lists(st.one_of(plain, wild, compatible), min_size=1, max_size=3).map(",".join)


@given(text=clauses, version=versions)
def test_matcher_agrees_with_packaging(text, version):
    """Installers take a pre-release only where a clause names one; that much is policy, the rest is packaging's."""
    names_prerelease = any(Version(clause.version.removesuffix(".*")).is_prerelease for clause in SpecifierSet(text))
    is_welcome = names_prerelease or not Version(version).is_prerelease
    assert (version in Spec(text)) is (SpecifierSet(text).contains(version, prereleases=True) and is_welcome)


@given(texts=st.lists(clauses, min_size=1, max_size=3), more=st.lists(versions, max_size=8))
def test_what_is_called_empty_admits_nothing(texts, more):
    """Versions beside every end that is written are tried, with packaging as the judge."""
    both = SpecifierSet(",".join(texts))
    ends = {clause.version.removesuffix(".*") for clause in both}
    near = {f"{part}{tail}" for end in ends for part in _around(end) for tail in ("", ".0.1", ".1")}
    final = [version for version in {*near, *more} if not Version(version).is_prerelease]
    if is_empty(texts):
        assert not [version for version in final if both.contains(version)]


def _around(end):
    """Return a release and those that follow at each of its parts."""
    release = Version(end).release
    bumped = [(*release[:place], release[place] + 1) for place in range(len(release))]
    return [".".join(map(str, parts)) for parts in (release, *bumped)]


@given(text=clauses)
def test_clause_order_does_not_matter(text):
    assert Spec(text) == Spec(",".join(reversed(text.split(","))))
