"""Laws of the solver, over requests nobody thought of."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.errors import ProvisionError, UsageError
from provision.matrix.load import Matrix
from provision.records import replace
from provision.resolve.request import Request, parse_request, to_flags
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal, Stack

MATRIX = Matrix()

torches = st.sampled_from(
    ["1.13", "2.0", "2.1", "2.1.2", "2.4", "2.6", "2.8", "2.11", "2.15", ">=2.3,<2.5", ">=2.11", "99", "2"]
)
tensorflows = st.sampled_from(["2.4", "2.10", "2.13", "2.14", "2.16.1", "2.18", "2.21", ">=2.15", "3"])
jaxes = st.sampled_from(["0.4.13", "0.4.30", "0.5", "0.7.1", "0.12", "1.0"])
cudas = st.sampled_from(["10.2", "11.8", "12", "12.1", "12.4", "12.6", "12.8", "13", "13.2", "14", ">=12.2"])
pythons = st.sampled_from(["3.7", "3.8", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.15", ">=3.12", "3.99"])
gpus = st.lists(
    st.sampled_from(["h100", "V100", "RTX 5090", "k80", "sm_80", "T4", "GTX 1080 Ti", "orin", "B200", "toaster"]),
    max_size=2,
    unique=True,
)
drivers = st.sampled_from(["440", "450.80.02", "525.60.13", "535.104.05", "550.54.15", "580.126.20", "610.57.04"])


def maybe(strategy):
    return st.one_of(st.none(), st.none(), strategy)


requests = st.builds(
    Request,
    torch=maybe(torches),
    tensorflow=st.one_of(st.none(), st.none(), st.none(), st.none(), tensorflows),
    jax=st.one_of(st.none(), st.none(), st.none(), st.none(), jaxes),
    cuda=maybe(cudas),
    python=maybe(pythons),
    os=st.one_of(st.none(), st.none(), st.none(), st.sampled_from(["debian12", "debian11", "ubuntu22.04", "rhel8"])),
    platform=st.sampled_from([None, None, "linux/amd64", "linux/arm64"]),
    gpus=gpus.map(tuple),
    driver=maybe(drivers),
    flavor=st.sampled_from([None, None, None, "runtime", "jit", "devel"]),
    requirements=st.lists(st.sampled_from(["numpy<2", "numpy>=2", "pandas", "setuptools==70.0.0"]), max_size=1).map(
        tuple
    ),
    require_secure=st.booleans(),
)
PARTS = ("cuda", "python", "os", "platform", "gpus", "driver", "flavor", "requirements", "require_secure")
slow = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def attempt(request):
    try:
        return solve(request, MATRIX)
    except UsageError:
        return None


@slow
@given(request=requests)
def test_every_request_is_answered(request):
    found = attempt(request)
    if isinstance(found, Refusal):
        assert found.because
        assert found.conflict or request == Request()
    elif found is not None:
        assert Stack.from_lock(found.to_lock()) == found
        assert found.platform == (request.platform or "linux/amd64")


@slow
@given(request=requests, part=st.sampled_from(PARTS))
def test_widening_a_request_never_loses_a_solution(request, part):
    if not isinstance(attempt(request), Stack):
        return
    wider = replace(request, **{part: getattr(Request(), part)})
    assert isinstance(solve(wider, MATRIX), Stack)


@slow
@given(request=requests)
def test_an_alternative_always_resolves(request):
    found = attempt(request)
    for way in found.alternatives if isinstance(found, Refusal) else ():
        values: dict[str, object] = {"requirements": list(request.requirements)}
        words = list(way.flags)
        while words:
            name = words.pop(0).removeprefix("--")
            if name == "require-secure":
                values[name] = True
            elif name in ("gpu", "with"):
                values.setdefault(name, []).append(words.pop(0))
            else:
                values[name] = words.pop(0)
        again = parse_request(values)
        assert isinstance(solve(again, MATRIX), Stack), way.flags


@slow
@given(request=requests)
def test_same_request_same_bytes(request):
    first, second = attempt(request), attempt(request)
    if isinstance(first, Stack):
        assert first.to_lock() == second.to_lock()


texts = st.one_of(
    st.text(max_size=30),
    st.from_regex(r"[0-9.<>=!~,*a-z]{1,12}", fullmatch=True),
    st.integers(),
    st.none(),
    st.booleans(),
)
flags = st.sampled_from(
    [
        "torch",
        "tensorflow",
        "jax",
        "cuda",
        "python",
        "os",
        "platform",
        "gpu",
        "driver",
        "flavor",
        "base",
        "with",
        "requirements",
        "nonsense",
    ]
)


@slow
@given(values=st.dictionaries(flags, st.one_of(texts, st.lists(texts, max_size=2)), max_size=3))
def test_no_value_ends_in_a_traceback(values):
    try:
        request = parse_request(values)
        solve(request, MATRIX)
    except ProvisionError as error:
        assert error.exit_code in (2, 4)
        assert "\n" not in error.message


@pytest.mark.parametrize("text", ["2.1", ">=2.3,<2.5"])
def test_flags_round_trip(text):
    request = parse_request({"torch": text, "gpu": ["h100"]})
    words = to_flags(request)
    assert parse_request({"torch": words[1], "gpu": [words[3]]}) == request
