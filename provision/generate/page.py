"""The matrix as one page to look at: the tables of the resolver, and a reader that looks answers up in them.

The page asks nothing of the network, and no text of the facts can become markup or script: the tables are data that
only ``textContent`` ever shows, and a policy in the page admits its own two scripts and its own style, by hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.matrix.load import Matrix
from provision.matrix.model import Gpu
from provision.matrix.query import serves
from provision.resolve.options import Option, offer
from provision.resolve.request import ANY, PLATFORMS, Request
from provision.resolve.survey import Report, survey
from provision.versions import minor_of, parse

_FOLDER = Path(__file__).parent
_SCRIPTS = {"answer": "page_answer.js", "face": "page_face.js"}
_SLOT = re.compile(r"\{(answer|dated|face|script_hashes|style|style_hash|tables|version)\}")
_SERVED = {"own": 3, "some": 2, "compiled": 1, "none": 0, "unknown": -1}


def render_page(matrix: Matrix, version: str, report: Report | None = None) -> str:
    """Return the page, the same bytes for the same facts and program.

    Args:
        matrix: The facts.
        version: The program's own.
        report: Told of what is solved, how many of how many.
    """
    return _fill(tabulate(matrix, report), version)


def tabulate(matrix: Matrix, report: Report | None = None) -> dict[str, Any]:
    """Return all that the page knows, as plain data.

    Args:
        matrix: The facts.
        report: Told of what is solved, how many of how many.
    """
    return {"dated": matrix.dated, "map": _map(matrix), **survey(matrix, report)}


def _fill(tables: Mapping[str, Any], version: str) -> str:
    texts = {name: _read(file) for name, file in _SCRIPTS.items()}
    style = _read("page.css")
    slots = {
        **texts,
        "dated": html.escape(str(tables["dated"])),
        "script_hashes": " ".join(_hash(text) for text in texts.values()),
        "style": style,
        "style_hash": _hash(style),
        "tables": _to_script_data(tables),
        "version": html.escape(version),
    }
    # One pass: what fills a slot is never looked through for more.
    return _SLOT.sub(lambda slot: slots[slot[1]], _read("page.html"))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a text as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _to_script_data(tables: Mapping[str, Any]) -> str:
    """Return JSON in which nothing can end the element it stands in, or begin another."""
    text = json.dumps(tables, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _map(matrix: Matrix) -> dict[str, Any]:
    """Return the newest build of every torch minor and CUDA, with how it serves each generation of GPUs.

    Of a cell that is not there the page asks whether it may have a build.
    """
    groups: dict[tuple[str, int], list[Gpu]] = {}
    for gpu in sorted(matrix.gpus, key=lambda row: (parse(row.compute_capability), row.id)):
        if gpu.segment != "embedded":
            groups.setdefault((gpu.architecture, parse(gpu.compute_capability).major), []).append(gpu)
    majors = Counter(architecture for architecture, _ in groups)
    # An architecture whose majors run different code is as many generations.
    generations = {
        architecture if majors[architecture] == 1 else f"{architecture} {major}.x": gpus
        for (architecture, major), gpus in groups.items()
    }
    cells: dict[str, dict[str, Any]] = {}
    options = offer(matrix, "torch", Request(torch=ANY), PLATFORMS[0])
    for option in filter(lambda option: option.is_known, options):
        served = [_served(option, gpus) for gpus in generations.values()]
        cells.setdefault(minor_of(option.version), {}).setdefault(option.cuda, [option.label, served])
    cudas = sorted({option.cuda for option in options if option.cuda}, key=parse, reverse=True)
    return {"generations": list(generations), "cudas": cudas, "cells": cells}


def _served(option: Option, gpus: list[Gpu]) -> int:
    """Return how a build gets onto the GPUs of a generation, of which some may be served and others not."""
    if option.sm is None:
        return _SERVED["unknown"]
    ways = {serves(gpu, option.sm, option.ptx) for gpu in gpus}
    if None in ways:
        return _SERVED["some" if len(ways) > 1 else "none"]
    return _SERVED["own" if all(str(way).startswith("sm_") for way in ways) else "compiled"]
