"""A requirement taken apart is what ``packaging`` makes of it, whether or not its form is one that is read without."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PackagingRequirement
from packaging.specifiers import SpecifierSet

from provision.resolve.requirements import requirement_of

_SPACE = st.sampled_from(["", "", " ", "  "])
_VERSIONS = st.sampled_from(["1", "2.0", "1.26.4", "2024.1.1", "1.*", "2.4.1+cu121", "1.0rc1", "1!2", "v3", "", "x"])
_CLAUSES = st.builds(
    "{}{}{}".format, st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~=", "===", "="]), _SPACE, _VERSIONS
)
_LINES = st.builds(
    lambda name, gap, extras, clauses, comma, rest: f"{name}{gap}{extras}{gap}{comma.join(clauses)}{rest}",
    st.sampled_from(["torch", "Jinja2", "a.b_c-d", "x", "-x", "x-", "1"]),
    _SPACE,
    st.sampled_from(["", "", "[a]", "[ b , a.b]", "[cuda12, cuda12]", "[]", "[a,]", "[a"]),
    st.lists(_CLAUSES, max_size=3),
    st.sampled_from([",", ", ", " , ", " "]),
    st.sampled_from(["", "", " ", ";", '; python_version < "3.12"', " @ https://mirror.example/a.whl", " # note"]),
)


@settings(max_examples=500)
@given(_LINES)
def test_a_line_reads_as_packaging_reads_it(line: str) -> None:
    try:
        expected = PackagingRequirement(line)
    except InvalidRequirement:
        with pytest.raises(InvalidRequirement):
            requirement_of(line)
        return
    found = requirement_of(line)
    assert (found.name, found.url, found.marker) == (expected.name, expected.url, expected.marker)
    assert found.extras == tuple(sorted(expected.extras))
    assert SpecifierSet(found.specifier) == expected.specifier


@pytest.mark.parametrize("line", ["torch", "jax[cuda12]==0.4.30", "a-b >= 1.2, < 2", "x~=1.4", "torch==2.4.1+cu121"])
def test_clauses_and_extras_stand_in_the_order_of_packaging(line: str) -> None:
    expected = PackagingRequirement(line)
    found = requirement_of(line)
    assert (found.specifier, found.extras) == (str(expected.specifier), tuple(sorted(expected.extras)))
