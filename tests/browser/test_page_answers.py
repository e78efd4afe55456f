"""The page answers like the resolver: the same end, the same stack, the same reasons, the same ways out."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from page_tables import read_tables

from provision.cli.request import refuse
from provision.errors import ProvisionError
from provision.resolve.request import ANY, FRAMEWORKS, PLATFORMS, parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal

QUESTIONS = 600
SEED = 20


def _questions(tables):
    """Draw questions that ask a little, a lot, and nonsense; a seed, so that a failure comes back."""
    draw = random.Random(SEED)  # noqa: S311 - a draw of questions, no secret
    drivers = [version for version, _ in tables["drivers"]]
    questions = []
    for number in range(QUESTIONS):
        kind = draw.choices((*FRAMEWORKS, "cuda"), (5, 2, 3, 1))[0]
        values = {}
        if kind != "cuda":
            values[kind] = ANY if draw.random() < 0.15 else draw.choice(tables["wishes"][kind][1:])
        eager = draw.choice((0.25, 0.5, 0.8))
        if kind == "cuda" or draw.random() < eager:
            values["cuda"] = ANY if kind == "cuda" and draw.random() < 0.3 else draw.choice(tables["cudas"])
        if draw.random() < eager:
            values["gpu"] = draw.choice(tables["gpus"])[1]
        if draw.random() < eager:
            odd = f"{draw.randrange(380, 640)}.{draw.randrange(0, 300)}.{draw.randrange(0, 30):02d}"
            values["driver"] = draw.choice((draw.choice(drivers), odd, str(draw.randrange(380, 640))))
        if draw.random() < eager:
            values["python"] = draw.choice(tables["pythons"])[0]
        if draw.random() < eager:
            values["os"] = draw.choice(tables["systems"])[0]
        if number % 7 == 0:
            values["platform"] = draw.choice(PLATFORMS)
        questions.append(values)
    return questions


def _asked(values, tables):
    """Return the question as the page's own code takes it."""
    gpus = next((number for number, row in enumerate(tables["gpus"]) if row[1] == values.get("gpu")), None)
    return {
        **dict.fromkeys((*FRAMEWORKS, "cuda", "python", "os", "platform", "driver")),
        **{name: value for name, value in values.items() if name != "gpu"},
        "gpus": gpus,
    }


def _of_resolver(values, matrix):
    found = solve(parse_request(values), matrix)
    if isinstance(found, Refusal):
        error = refuse(found, "resolve")
        assert isinstance(error, ProvisionError)
        return {
            "exit": error.exit_code,
            "conflict": list(found.conflict),
            "because": [reason.because for reason in found.because],
            "facts": [[fact.id for fact in reason.facts] for reason in found.because],
            "alternatives": [[item["command"], item["change"]] for item in error.details["alternatives"]],
        }
    image = found.image
    return {
        "exit": 0,
        "frameworks": dict(found.frameworks),
        "cuda": found.cuda,
        "cudnn": found.cudnn,
        "nccl": found.nccl,
        "python": found.python,
        "platform": found.platform,
        "os": found.os,
        "packages": dict(found.packages),
        "base": image.base.ref if image else None,
        "cudaBase": image.cuda_base.ref if image and image.cuda_base else None,
        "driver": [
            found.driver.minimum,
            found.driver.recommended_branch,
            found.driver.native,
            found.driver.maximum_branch,
        ],
        "sm": " ".join(found.sm),
        "ptx": " ".join(found.ptx),
        "warnings": sorted(found.warnings),
    }


def _of_page(answer):
    if "stack" not in answer:
        return {
            "exit": answer["exit"],
            "conflict": answer["conflict"],
            "because": [reason["because"] for reason in answer["because"]],
            "facts": [[fact["id"] for fact in reason["facts"]] for reason in answer["because"]],
            "alternatives": [[item["command"], item["change"]] for item in answer["alternatives"]],
        }
    stack = answer["stack"]
    kept = ("cuda", "cudnn", "nccl", "python", "platform", "os", "packages", "base", "cudaBase", "sm", "ptx")
    return {
        "exit": 0,
        "frameworks": {stack["framework"]: stack["version"]} if stack["framework"] else {},
        **{name: stack[name] for name in kept},
        "driver": [stack["driver"][name] for name in ("minimum", "recommended_branch", "native", "maximum_branch")],
        "warnings": sorted(stack["warnings"]),
    }


@pytest.fixture(scope="module")
def tables(page):
    return read_tables(page.read_text(encoding="utf-8"))


def _ask(browser, tables, questions):
    asked = [_asked(values, tables) for values in questions]
    return json.loads(
        browser.execute_script("return JSON.stringify(arguments[0].map((asked) => provision.ask(asked)))", asked)
    )


@pytest.mark.parametrize("cuda", ["12.2", "12.9"])
def test_libraries_older_than_the_gpu_are_open_on_the_page_too(opened, matrix, tables, cuda):
    values = {"jax": "0.4.34", "cuda": cuda, "gpu": "b200"}
    (answer,) = _ask(opened(), tables, [values])
    assert _of_page(answer) == _of_resolver(values, matrix)
    assert answer["exit"] == (4 if cuda == "12.2" else 0)


def test_answers_are_those_of_the_resolver(opened, matrix, tables):
    questions = _questions(tables)
    answers = _ask(opened(), tables, questions)
    kinds = Counter()
    wrong = []
    for values, answer in zip(questions, answers, strict=True):
        said, expected = _of_page(answer), _of_resolver(values, matrix)
        # Where nothing else will do, the command alone tries what of a request stands without the rest.
        ways = expected.get("alternatives", [])
        if said.get("alternatives") == [] and len(ways) == 1 and "without --" in ways[0][1]:
            expected["alternatives"] = []
        kinds[expected["exit"]] += 1
        if said != expected:
            differing = {name: (said.get(name), expected.get(name)) for name in {*said, *expected}}
            wrong.append((values, {name: pair for name, pair in differing.items() if pair[0] != pair[1]}))
    assert not wrong, f"{len(wrong)} of {len(questions)} differ, the first: {wrong[:3]}"
    # The draw must reach every end a question has.
    assert min(kinds[code] for code in (0, 3, 4)) >= 10, kinds


def test_command_of_an_answer_gives_that_answer(opened, matrix, tables):
    questions = _questions(tables)[:120]
    met = [answer for answer in _ask(opened(), tables, questions) if "stack" in answer]
    assert len(met) > 20
    for answer in met:
        exact = answer["request"]
        values = {name: value for name, value in exact.items() if value is not None and name != "gpus"}
        if exact["gpus"] is not None:
            values["gpu"] = tables["gpus"][exact["gpus"]][1]
        found = solve(parse_request(values), matrix)
        assert not isinstance(found, Refusal), values
        assert dict(found.packages) == answer["stack"]["packages"]
