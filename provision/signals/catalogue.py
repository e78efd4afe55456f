"""Find the function that judges a fact, and ask it about one target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from inspect import getmembers, isfunction
from typing import Any

from provision.matrix.load import Matrix
from provision.matrix.model import Check
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.needs import NEEDS
from provision.signals.signal import Signal, skipped

FAMILIES = (
    "containers",
    "cuda",
    "dcgm",
    "driver",
    "frameworks",
    "heat",
    "host",
    "kernel_log",
    "memory",
    "modes",
    "monitoring",
    "network",
    "nvlink",
    "pcie",
    "performance",
    "presence",
)
"""Modules whose functions are named after the rows of ``checks.toml``: ``gpu.ecc.mode`` is ``gpu_ecc_mode``."""


@cache
def list_functions() -> Mapping[str, Callable[..., Any]]:
    """Return name → function, of everything public that the families define."""
    modules = [import_module(f"provision.signals.{family}") for family in FAMILIES]
    return {
        name: function
        for module in modules
        for name, function in getmembers(module, isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def find_signal(check: str) -> Callable[..., Any]:
    """Return the function of a check: ``(host, expected, matrix)``, or ``(hosts, expected, matrix)`` for a fleet."""
    return list_functions()[check.replace(".", "_")]


def why_not_asked(check: Check, host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    """Return why a question does not arise on a target, ``None`` where it does.

    Raises:
        Unreadable: What decides it was not read.
    """
    answers = (NEEDS[need](host, expected, matrix) for need in check.needs)
    return next((why for why in answers if why is not None), None)


def read_signal(check: Check, host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge one fact of a target, or say why the question does not arise.

    Raises:
        Unreadable: What it rests on was not read.
    """
    why = why_not_asked(check, host, expected, matrix)
    if why is not None:
        return skipped(why)
    signal: Signal = find_signal(check.id)(host, expected, matrix)
    return signal
