"""What every test may ask for: the golden cases, and whether to write their files again."""

from __future__ import annotations

import functools
import gc
import importlib.util
import signal
import socketserver
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# No test depends on how long it takes: a busy machine is not a fault. What a change is judged by is the same in each
# run; new examples are looked for with `--hypothesis-profile=explore`.
hypothesis.settings.register_profile("provision", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("provision")

# A shell starts what runs in its background deaf to Ctrl-C, and every child inherits that; tests interrupt children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers of tests are on loopback. Where more clients come at once than may wait, the kernel lets some try again a
# second later; an answer in two parts waits for the other side; and a server looks twice a second whether it is to end.
socketserver.TCPServer.request_queue_size = 128
socketserver.StreamRequestHandler.disable_nagle_algorithm = True
socketserver.BaseServer.serve_forever.__defaults__ = (0.02,)

TOGETHER = ("tests/engine/", "tests/browser/", "tests/packaging/")
"""What one process runs from the first test to the last, before all else: the tests of the engine build, count and
remove images of one engine and share a base image; those of the browser share the page, which takes most of a minute to
write; those of packaging the wheel and what it is installed into.
"""


def _load(name: str):
    """Import a file of this folder by its path: tests are no package, and are run from any folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


golden_cases = _load("golden_cases")
_load("alert_cases")
_load("fake_kubectl")
_load("fake_metadata")
_load("fake_slurm")
_load("fake_srun")
_load("fake_prometheus")
_load("fleet_exporter")
_load("fleet_prometheus")
_load("machines")
_load("verdicts")
_load("contradictions")
_load("upstream")
_load("asking")
_load("page_tables")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden again instead of comparing")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what only one process may run at a time: the others have the rest for that while."""
    items.sort(key=lambda item: _unit(item.nodeid) not in TOGETHER)


def pytest_collection_finish() -> None:
    _set_aside()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:
        _set_aside()


def _set_aside() -> None:
    """Let the collector of garbage pass by what lives to the end: the tests, and the facts that their modules read.

    Without it each of its runs looks at hundreds of megabytes, and tests that ask for one take ten times as long. What
    is remembered of facts is forgotten first: a command reads its own, and would keep them for good.
    """
    _forget()
    gc.collect()
    gc.freeze()


def _forget() -> None:
    """Forget what is remembered of facts that were read."""
    for kept in _memories(len(sys.modules)):
        kept.cache_clear()


@functools.lru_cache(maxsize=1)
def _memories(_modules: int) -> list[Any]:
    return [
        kept
        for name, module in [*sys.modules.items()]
        if name.startswith("provision.")
        for kept in [*vars(module).values()]
        if isinstance(kept, functools._lru_cache_wrapper) and "matrix" in signature(kept).parameters
    ]


@pytest.fixture
def forgetful() -> Iterator[None]:
    """For a test whose commands read facts of their own: what is remembered of them ends with it."""
    yield
    _forget()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process of `-n` whole files, in the order of collection: what a file makes once is made once."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    config.option.loadscopereorder = False
    return Scheduler(config, log)


def _unit(nodeid: str) -> str:
    """Return the name of what is run by one process from its first test to its last."""
    return next(filter(nodeid.startswith, TOGETHER), nodeid.partition("::")[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_name" in metafunc.fixturenames:
        metafunc.parametrize("golden_name", sorted(golden_cases.CASES))


@pytest.fixture
def golden_case(golden_name: str):
    """One stack and the options to write it down with."""
    return golden_cases.CASES[golden_name]


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether the golden files are to be written again."""
    return request.config.getoption("--update-golden")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Captures of real tools that lie beside the checkout of some machines; the project carries its own fixtures."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "reference" / "verify" / "samples"
    if not folder.is_dir():
        pytest.skip("the captures of other projects are not beside this checkout")
    return folder
