"""Show why a stack was chosen, why a request was refused, or the source of a fact.

Takes a provision.lock (or the folder that contains one), the id of a fact such as torch/2.1.2+cu118, or the flags of a
request. Lists every decision with its reason, its facts and the publications they come from. The exit code is 0 when
there is an answer, even if the answer is why no stack exists.

Examples:
  provision explain --torch 2.1 --cuda 12.4
  provision explain train/provision.lock
  provision explain torch/2.1.2+cu118
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from provision.cli.facts import KINDS, describe_sources, fact_document, find_fact
from provision.cli.output import Output
from provision.cli.request import (
    add_request_flags,
    given_inputs,
    has_inputs,
    keep_pins,
    other_words,
    place_refusal,
    read_matrix,
    read_request,
    read_values,
)
from provision.errors import UsageError, shown
from provision.files import read_text
from provision.matrix.load import Matrix
from provision.resolve.stack import FactRef, Reason, Refusal, Stack

_LOCK_BYTES_MAX = 16 * 1024 * 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "what", nargs="?", metavar="LOCK|FACT", help="a provision.lock, its folder, or the id of a fact"
    )
    add_request_flags(parser, can_be_cpu=True)


def run(options: argparse.Namespace, output: Output) -> int:
    """Explain one thing."""
    values, matrix = read_values(options), read_matrix(options)
    if options.what is not None:
        if values or has_inputs(options):
            raise UsageError("a lock or fact and a request are two questions", hints=("ask for one of the two",))
        if options.what.partition("/")[0] in KINDS and not Path(options.what).exists():
            _give_fact(matrix, options.what, output)
        else:
            _give_stack(matrix, _read_lock(options.what), output)
        return 0
    from provision.resolve.solve import solve

    inputs = given_inputs(options, output, matrix)
    request = read_request(values, inputs, can_be_cpu=True)
    found = solve(request, matrix)
    if isinstance(found, Stack):
        _give_stack(matrix, keep_pins(found, request, matrix, inputs), output)
    else:
        _give_refusal(matrix, place_refusal(found, request, values, inputs), other_words(options), output)
    return 0


def _read_lock(text: str) -> Stack:
    path = Path(text)
    if not text.isprintable() or not path.exists():
        raise UsageError(
            f"`{shown(text)}` is neither a file nor the id of a fact",
            hints=("name a provision.lock, or a fact such as `gpu/…`, as `provision resolve -v` prints them",),
        )
    return Stack.from_lock(
        read_text(path / "provision.lock" if path.is_dir() else path, "LOCK", bytes_max=_LOCK_BYTES_MAX)
    )


def _give_fact(matrix: Matrix, fact: str, output: Output) -> None:
    document = fact_document(matrix, fact, find_fact(matrix, fact))
    lines = [output.paint(fact, "label")]
    evidence: dict[str, Any] = document.get("evidence", {})
    for key, value in document.items():
        if key not in ("id", "sources", "evidence"):
            origin = f"   ({_shown_value(evidence[key])})" if key in evidence else ""
            lines.append(f"  {key}: {_shown_value(value)}{origin}")
    lines += [f"  source: {_cite(source)}" for source in document.get("sources", ())]
    output.note(f"facts of {matrix.dated}")
    output.give({"fact": document}, "\n".join(lines))


def _shown_value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown_value(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{key} {_shown_value(item)}" for key, item in value.items())
    return str(value)


def _give_stack(matrix: Matrix, stack: Stack, output: Output) -> None:
    document = {
        "stack": stack.name,
        "lock_digest": stack.lock_digest,
        "facts_date": stack.facts_date,
        "decisions": [_decision(matrix, reason) for reason in stack.reasons],
        "warnings": list(stack.warnings),
    }
    lines = [output.paint(stack.name, "label"), *_show_decisions(document["decisions"], output)]
    lines += [f"{output.paint('warning:', 'warning')} {text}" for text in stack.warnings]
    output.note(f"facts of {stack.facts_date}")
    output.give(document, "\n".join(lines))


def _give_refusal(matrix: Matrix, refusal: Refusal, others: tuple[str, ...], output: Output) -> None:
    document: dict[str, Any] = {
        "verdict": "incompatible" if refusal.is_proved else "unknown",
        "message": refusal.message,
        "conflict": list(refusal.conflict),
        "decisions": [_decision(matrix, reason) for reason in refusal.because],
        "alternatives": [
            {"command": shlex.join(("provision", "explain", *item.flags, *others)), "change": item.change}
            for item in refusal.alternatives
        ],
    }
    proof = "proved by the facts" if refusal.is_proved else "not proved: the facts are silent"
    lines = [f"{output.paint(refusal.message, 'label')} ({proof})", *_show_decisions(document["decisions"], output)]
    lines += [
        f"{output.paint('works:', 'hint')} {item['command']}   {item['change']}" for item in document["alternatives"]
    ]
    output.note(f"facts of {matrix.dated}")
    output.give(document, "\n".join(lines))


def _decision(matrix: Matrix, reason: Reason) -> dict[str, Any]:
    return {
        "subject": reason.subject,
        "because": reason.because,
        "facts": [_fact(matrix, fact) for fact in reason.facts],
    }


def _fact(matrix: Matrix, fact: FactRef) -> dict[str, Any]:
    return {
        "id": fact.id,
        "status": fact.status,
        "where": fact.where,
        "sources": describe_sources(matrix, fact.source),
    }


def _show_decisions(decisions: Any, output: Output) -> Iterable[str]:
    for decision in decisions:
        yield f"{output.paint(decision['subject'], 'label')}: {decision['because']}"
        cited: dict[str, list[str]] = {}
        for fact in decision["facts"]:
            names = ", ".join(source["id"] for source in fact["sources"])
            cited.setdefault(f"{fact['status']} in {names}: {fact['where']}", []).append(fact["id"])
        for where, ids in cited.items():
            yield f"    {', '.join(ids)}   {where}"
        sources = {source["id"]: source for fact in decision["facts"] for source in fact["sources"]}
        for source in sources.values():
            yield f"      {_cite(source)}"


def _cite(source: dict[str, Any]) -> str:
    parts = [source.get("title"), source.get("publisher"), source.get("url")]
    text = ", ".join(part for part in parts if part)
    day = f" (read {source['retrieved']})" if "retrieved" in source else ""
    return f"{source['id']}: {text}{day}" if text else source["id"]
