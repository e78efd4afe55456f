"""What the verification inside an image says decides whether the image is what its lock says."""

from __future__ import annotations

import json
import types

import pytest

from provision.build.verify import verify_image
from provision.errors import VerificationFailedError


def engine(*items: dict, code: int = 0):
    """Return an engine whose containers say these findings."""
    done = types.SimpleNamespace(stdout=json.dumps({"findings": items}), stderr="", returncode=code)
    return types.SimpleNamespace(run=lambda *_, **__: done)


GOOD = {"check": "torch", "status": "pass", "detail": "2.8.0"}


def test_what_only_a_gpu_can_tell_is_let_through():
    open_item = {"check": "import x", "status": "unknown", "detail": "needs a GPU", "needs_gpu": True}
    found = verify_image(engine(GOOD, open_item), "image")
    assert [item.needs_gpu for item in found] == [False, True]


@pytest.mark.parametrize(
    "item",
    [
        {"check": "import x", "status": "unknown", "detail": "unread"},
        {"check": "import x", "status": "unknown", "detail": "unread", "needs_gpu": "yes"},
        {"check": "import x", "status": "fail", "detail": "broken", "needs_gpu": True},
    ],
)
def test_all_else_that_did_not_pass_is_refused(item):
    with pytest.raises(VerificationFailedError):
        verify_image(engine(GOOD, item), "image")
