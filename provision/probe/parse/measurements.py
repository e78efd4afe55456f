"""What measuring tools print: nccl-tests, nvbandwidth, DCGM diagnostics, an exporter's metrics."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable
from provision.records import NOTHING, record


@record
class NcclRow:
    """One message size; bandwidths in GB/s (10⁹), ``wrong`` counts wrong values (``None`` where not checked)."""

    size_bytes: int
    time_us: float
    algorithm_gb_s: float
    bus_gb_s: float
    wrong: int | None = None


@record
class NcclRun:
    """One run of an nccl-tests program; ``rows`` by size, of the out-of-place columns, ``in_place`` where printed.

    ``hosts`` are those it ran on, where it names them.
    """

    test: str | None = None
    nccl_version: str | None = None
    ranks: int | None = None
    devices: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    rows: tuple[NcclRow, ...] = ()
    in_place: tuple[NcclRow, ...] = ()
    average_gb_s: float | None = None
    out_of_bounds: int | None = None

    @property
    def largest(self) -> NcclRow:
        """The row of the largest size: the one to judge by, since the average mixes all sizes."""
        return max(self.rows, key=lambda row: row.size_bytes)


@record
class BandwidthMatrix:
    """One nvbandwidth test: ``name``, cells (row, column) → GB/s (``None`` for N/A), and its sum where printed.

    ``status`` is ``Passed``, ``Waived``, ``Error`` or another word of the tool's; ``description`` its line over the
    matrix, which tells what rows and columns are, and the unit.
    """

    name: str
    cells: Mapping[tuple[int, int], float | None] = NOTHING
    total_gb_s: float | None = None
    status: str | None = None
    description: str | None = None


@record
class DiagResult:
    """One result of one DCGM test; ``entity`` is a GPU index, ``None`` for the whole host.

    ``group`` is the kind of thing it was asked of, where that is no GPU (``CPU``); ``entity`` then is ``None``.
    """

    status: str
    entity: int | None = None
    group: str | None = None
    warnings: tuple[str, ...] = ()
    error_ids: tuple[int, ...] = ()
    severities: tuple[int, ...] = ()


@record
class DiagTest:
    """One DCGM test; ``status`` of a result is ``Pass``, ``Fail``, ``Warn``, ``Skip`` or ``Not Run``.

    ``summary`` is the tool's own verdict over the results, which DCGM 4 adds and DCGM 3 does not have.
    """

    name: str
    category: str | None = None
    results: tuple[DiagResult, ...] = ()
    summary: DiagResult | None = None


@record
class Metric:
    """One sample of the Prometheus text format."""

    name: str
    labels: Mapping[str, str] = NOTHING
    value: float


_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_DOCUMENTS_TRIED = 64


def _number(text: str) -> float | None:
    """Read a finite number; Python's own spellings (``1_000``) and words are none."""
    if len(text) > 64 or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _json_number(value: Any) -> float | None:
    if isinstance(value, str):
        return _number(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _json_count(value: Any) -> int | None:
    number = _json_number(value)
    return int(number) if number is not None and number == int(number) else None


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that stand in a text, whatever a launcher or a library printed around them."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    for _ in range(_DOCUMENTS_TRIED):
        if start < 0:
            return
        try:
            document, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield document
        start = text.find("{", end)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_NCCL_COLUMNS: Final = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
_NCCL_HOST = re.compile(r"\bon\s+(\S{1,253})\s+device\s")
_NCCL_DEVICE = re.compile(r"#\s+Rank\s+[0-9]+\s(?:[^\[]{0,200})\[[0-9a-fA-Fx:.]+\]\s+(\S.*)")
_NCCL_VERSION = re.compile(r"NCCL version ([0-9]+(?:\.[0-9]+){1,3})")
_NCCL_LIBRARY = re.compile(r"nccl-library=([0-9]{4,6})\b")
_NCCL_TEST = re.compile(r"# Collective test (?:starting|concluded): (\S+)")
_NCCL_FAILURE = re.compile(r"Test (?:NCCL|CUDA) failure|Test failure")
_BEFORE_2_9: Final = 10_000
"""NCCL's version number took two digits for the minor from here on."""


def parse_nccl_tests(text: str) -> NcclRun:
    """Read the text of any release (one or two halves of columns) or the JSON of ``-J``.

    Raises:
        Unreadable: No row of results stands in it, a row is broken off, or the program says that it failed.
    """
    text = clean(text)
    for document in _documents(text) if "{" in text else ():
        if "results" in document and "nccl_version" in document:
            return _nccl_document(document)
    return _nccl_text(text)


def _nccl_text(text: str) -> NcclRun:
    columns: tuple[str, ...] = _NCCL_COLUMNS
    rows: list[NcclRow] = []
    in_place: list[NcclRow] = []
    devices: list[str] = []
    hosts: dict[str, None] = {}
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if _NCCL_FAILURE.search(line):
            raise Unreadable(f"nccl-tests failed: {clean_line(line, 200)}")
        words = line.split()
        if line.lstrip().startswith("#"):
            if "busbw" in words and "size" in words:
                columns = tuple(word for word in words if word != "#")
            elif device := _NCCL_DEVICE.match(line.lstrip()):
                devices.append(clean_line(device[1], 100))
                if host := _NCCL_HOST.search(line):
                    hosts[clean_line(host[1])] = None
            else:
                found.update(_nccl_remark(line))
        elif len(words) > 1 and words[0].isdecimal() and words[1].isdecimal():
            out, inside = _nccl_row(words, columns)
            rows.append(out)
            in_place.extend(inside)
        elif version := _NCCL_VERSION.search(line):
            found["nccl_version"] = version[1]
    if not rows:
        raise Unreadable("nccl-tests printed no row of results")
    return NcclRun(
        ranks=len(devices) or None,
        devices=tuple(devices),
        hosts=tuple(hosts),
        rows=tuple(rows),
        in_place=tuple(in_place),
        **found,
    )


def _nccl_remark(line: str) -> dict[str, Any]:
    if test := _NCCL_TEST.match(line):
        return {"test": clean_line(test[1], 60)}
    if library := _NCCL_LIBRARY.search(line):
        return {"nccl_version": _nccl_version(int(library[1]))}
    name, _, value = line.lstrip("# ").partition(":")
    words = value.split()
    number = _number(words[0]) if words else None
    if name.strip() == "Avg bus bandwidth":
        return {"average_gb_s": number}
    if name.strip() == "Out of bounds values" and number is not None:
        return {"out_of_bounds": int(number)}
    return {}


def _nccl_row(words: list[str], columns: tuple[str, ...]) -> tuple[NcclRow, list[NcclRow]]:
    if len(words[0]) > 20:
        raise Unreadable("nccl-tests printed a size that is none")
    size = int(words[0])
    starts = [index - 2 for index, column in enumerate(columns) if column == "busbw"]
    halves = [_nccl_half(size, words[start : start + 4], columns[start + 3 : start + 4]) for start in starts]
    whole = [half for half in halves if half is not None]
    if not whole or (len(whole) < len(halves) and len(words) != starts[0] + 4):
        raise Unreadable(f"the row of {size} bytes that nccl-tests printed is not whole")
    return whole[0], whole[1:]


def _nccl_half(size: int, words: list[str], last_column: tuple[str, ...]) -> NcclRow | None:
    numbers = [_number(word) for word in words]
    if len(words) < 4 or any(number is None for number in numbers[:3]):
        return None
    time_us, algorithm, bus, wrong = numbers
    # Releases before 2.12 print the largest deviation in this place, and call the column "error".
    is_count = last_column == ("#wrong",) and wrong is not None
    return NcclRow(
        size_bytes=size,
        time_us=time_us or 0.0,
        algorithm_gb_s=algorithm or 0.0,
        bus_gb_s=bus or 0.0,
        wrong=int(wrong or 0) if is_count else None,
    )


def _nccl_version(number: int) -> str:
    if number < _BEFORE_2_9:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _nccl_document(document: dict[str, Any]) -> NcclRun:
    rows: list[NcclRow] = []
    in_place: list[NcclRow] = []
    for result in _list(document["results"]):
        size = _json_count(_dict(result).get("size"))
        if size is None:
            raise Unreadable("a result of nccl-tests has no size")
        halves = [_nccl_json_half(size, result.get(key)) for key in ("out_of_place", "in_place")]
        whole = [half for half in halves if half is not None]
        if not whole:
            raise Unreadable(f"the result of {size} bytes in nccl-tests' document has no bandwidth")
        rows.append(whole[0])
        in_place.extend(whole[1:])
    errors = [clean_line(error, 200) for error in _list(document.get("errors")) if isinstance(error, str) and error]
    if errors and not rows:
        raise Unreadable(f"nccl-tests failed: {errors[0]}")
    if not rows:
        raise Unreadable("nccl-tests' document holds no result")
    version = _json_count(document["nccl_version"])
    arguments = [argument for argument in _list(document.get("args")) if isinstance(argument, str)]
    devices = tuple(
        clean_line(str(device.get("device_info", "")), 100)
        for device in _list(_dict(document.get("config")).get("devices"))
        if isinstance(device, dict)
    )
    return NcclRun(
        test=clean_line(arguments[0].rsplit("/", 1)[-1], 60) if arguments else None,
        nccl_version=_nccl_version(version) if version is not None and version >= 0 else None,
        ranks=len(devices) or None,
        devices=devices,
        rows=tuple(rows),
        in_place=tuple(in_place),
        average_gb_s=_json_number(_dict(document.get("average_bus_bandwidth")).get("bandwidth")),
        out_of_bounds=_json_count(_dict(document.get("out_of_bounds")).get("count")),
    )


def _nccl_json_half(size: int, half: Any) -> NcclRow | None:
    values = _dict(half)
    time_us = _json_number(values.get("time", values.get("cpu_time")))
    algorithm, bus = _json_number(values.get("alg_bw")), _json_number(values.get("bus_bw"))
    if time_us is None or algorithm is None or bus is None:
        return None
    return NcclRow(
        size_bytes=size,
        time_us=time_us,
        algorithm_gb_s=algorithm,
        bus_gb_s=bus,
        wrong=_json_count(values.get("nwrong")),
    )


_RUNNING = re.compile(r"Running ([A-Za-z0-9_]{1,80})\.?\s*")
_SUM = re.compile(r"(?:SUM|&&&& PERF) ([A-Za-z0-9_]{1,80}) (\S{1,40})")


def parse_nvbandwidth(text: str) -> tuple[BandwidthMatrix, ...]:
    """Read nvbandwidth's text or its ``-j`` document, tests in its order.

    Raises:
        Unreadable: No test stands in it, or a matrix has holes.
    """
    text = clean(text)
    for document in _documents(text) if "{" in text else ():
        if "nvbandwidth" in document:
            return _nvbandwidth_document(_dict(document["nvbandwidth"]))
    return _nvbandwidth_text(text)


def _nvbandwidth_text(text: str) -> tuple[BandwidthMatrix, ...]:
    matrices: list[BandwidthMatrix] = []
    name, description, columns = "", None, None
    cells: dict[tuple[int, int], float | None] = {}
    total: float | None = None

    def close() -> None:
        if name:
            status = "Passed" if cells else None
            matrices.append(
                BandwidthMatrix(name=name, cells=cells, total_gb_s=total, status=status, description=description)
            )

    for line in text.splitlines():
        words = line.split()
        if running := _RUNNING.fullmatch(line.strip()):
            close()
            name, description, columns, cells, total = running[1], None, None, {}, None
        elif summed := _SUM.match(line.strip()):
            total = _number(summed[2])
        elif not name or not words:
            columns = None
        elif columns is not None and words[0].isdecimal():
            cells.update(_nvbandwidth_row(words, columns))
        elif words == [str(index) for index in range(len(words))]:
            columns = len(words)
        elif not cells and description is None:
            description = clean_line(line, 200)
    close()
    if not any(matrix.cells for matrix in matrices):
        raise Unreadable("nvbandwidth printed no matrix")
    return tuple(matrices)


def _nvbandwidth_row(words: list[str], columns: int) -> dict[tuple[int, int], float | None]:
    if len(words) != columns + 1 or len(words[0]) > 6:
        raise Unreadable("a row of nvbandwidth's matrix is not whole")
    return {(int(words[0]), column): _cell(word) for column, word in enumerate(words[1:])}


def _cell(word: Any) -> float | None:
    if word == "N/A":
        return None
    value = _json_number(word)
    if value is None:
        raise Unreadable("a cell of nvbandwidth's matrix is not a number")
    return value


def _nvbandwidth_document(document: dict[str, Any]) -> tuple[BandwidthMatrix, ...]:
    matrices: list[BandwidthMatrix] = []
    for test in _list(document.get("testcases")):
        fields = _dict(test)
        if not isinstance(fields.get("name"), str):
            raise Unreadable("a test of nvbandwidth has no name")
        rows = [_list(row) for row in _list(fields.get("bandwidth_matrix"))]
        description = fields.get("bandwidth_description")
        matrices.append(
            BandwidthMatrix(
                name=clean_line(fields["name"], 80),
                cells={
                    (row, column): _cell(word) for row, words in enumerate(rows) for column, word in enumerate(words)
                },
                total_gb_s=_json_number(fields.get("sum")),
                status=clean_line(str(fields["status"]), 40) if "status" in fields else None,
                description=clean_line(description, 200) if isinstance(description, str) else None,
            )
        )
    if not matrices:
        said = document.get("error")
        raise Unreadable(f"nvbandwidth ran no test{f': {clean_line(said, 200)}' if isinstance(said, str) else ''}")
    return tuple(matrices)


_DIAG_ROOTS: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


def parse_dcgmi_diag(text: str) -> tuple[DiagTest, ...]:
    """Read ``dcgmi diag -j`` of DCGM 3 and 4; text around the document is ignored.

    Raises:
        Unreadable: No known root key, or no test in it: an unknown document is never a pass.
    """
    is_document = False
    for document in _documents(clean(text)):
        is_document = True
        for root in _DIAG_ROOTS:
            if root in document:
                return _diag_tests(_dict(document[root]))
    what = "document has no part that is known" if is_document else "output holds no whole document"
    raise Unreadable(f"dcgmi diag's {what}")


_HEALTH_STATUSES: Final = {"Healthy": "Pass", "Warning": "Warn", "Failure": "Fail"}


def parse_dcgmi_health(text: str) -> tuple[DiagTest, ...]:
    """Read ``dcgmi health -c -j``: a test for each system that is not healthy, none where all are.

    Raises:
        Unreadable: It is no such document, or says of a system what is not known.
    """
    for document in _documents(clean(text)):
        body = _dict(document.get("body"))
        if "Overall Health" in body:
            break
    else:
        raise Unreadable("dcgmi health printed no report")
    overall = _dict(body["Overall Health"]).get("value")
    tests = [
        _health_test(group, entity, system, _dict(said))
        for group, listed in body.items()
        for entity, found in _dict(_dict(listed).get("children")).items()
        for system, said in _dict(_dict(_dict(_dict(found).get("children")).get("Errors")).get("children")).items()
    ]
    if overall != "Healthy" and not tests:
        raise Unreadable(f"dcgmi health names no system, and says of all: `{clean_line(str(overall), 40)}`")
    return tuple(tests)


def _health_test(group: str, entity: str, system: str, said: dict[str, Any]) -> DiagTest:
    status = _HEALTH_STATUSES.get(str(said.get("value")))
    if status is None:
        raise Unreadable(f"dcgmi health says of a system what is not known: `{clean_line(str(said.get('value')), 40)}`")
    words = [word for word in _list(said.get("overflow")) if isinstance(word, str)]
    is_gpu = group.upper() == "GPU"
    result = DiagResult(
        status=status,
        entity=int(entity) if is_gpu and entity.isdecimal() and len(entity) < 6 else None,
        group=None if is_gpu else clean_line(group, 40),
        warnings=(clean_line(" ".join(words)),) if words else (),
    )
    return DiagTest(name=clean_line(system, 80), category="Health", results=(result,))


def _diag_tests(body: dict[str, Any]) -> tuple[DiagTest, ...]:
    said = body.get("runtime_error")
    if isinstance(said, str) and said:
        raise Unreadable(f"dcgmi diag could not run: {clean_line(said, 300)}")
    tests: list[DiagTest] = []
    for category in _list(body.get("test_categories")):
        for test in _list(_dict(category).get("tests")):
            fields = _dict(test)
            if not isinstance(fields.get("name"), str):
                raise Unreadable("a test of dcgmi diag has no name")
            summary = fields.get("test_summary")
            name = category.get("category")
            tests.append(
                DiagTest(
                    name=clean_line(fields["name"], 80),
                    category=clean_line(name, 80) if isinstance(name, str) else None,
                    results=tuple(
                        found for result in _list(fields.get("results")) for found in _diag_results(_dict(result))
                    ),
                    summary=_diag_result(_dict(summary), None, None) if isinstance(summary, dict) else None,
                )
            )
    if not tests:
        raise Unreadable("dcgmi diag's document holds no test")
    return tuple(tests)


def _diag_results(result: dict[str, Any]) -> Iterator[DiagResult]:
    if "entity_id" in result:
        group = result.get("entity_group")
        if isinstance(group, str) and group.upper() != "GPU":
            yield _diag_result(result, None, clean_line(group, 40))
        else:
            yield _diag_result(result, _json_count(result["entity_id"]), None)
        return
    listed = result.get("gpu_ids", result.get("gpu_id"))
    words = str(listed).split(",") if isinstance(listed, (str, int)) else []
    gpus = [int(word) for word in words if word.strip().isdecimal() and len(word) < 6]
    for gpu in gpus or (None,):
        yield _diag_result(result, gpu, None)


def _diag_result(result: dict[str, Any], entity: int | None, group: str | None) -> DiagResult:
    status = result.get("status")
    if not isinstance(status, str):
        raise Unreadable("a result of dcgmi diag has no status")
    warnings: list[str] = []
    details = [result]
    listed = result.get("warnings")
    for warning in listed if isinstance(listed, list) else [listed]:
        if isinstance(warning, dict):
            details.append(warning)
            warning = warning.get("warning")  # noqa: PLW2901 - from here on both releases' forms are one
        if isinstance(warning, str) and warning.strip():
            warnings.append(clean_line(warning))
    return DiagResult(
        status=clean_line(status, 40),
        entity=entity,
        group=group,
        warnings=tuple(warnings),
        error_ids=_diag_numbers(details, "error_id"),
        severities=_diag_numbers(details, "error_severity"),
    )


def _diag_numbers(details: list[dict[str, Any]], key: str) -> tuple[int, ...]:
    return tuple(number for detail in details if (number := _json_count(detail.get(key))) is not None)


_SAMPLE_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*')
_ESCAPE = re.compile(r"\\(.)")
_WORDS: Final = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}


def parse_metrics(text: str) -> tuple[Metric, ...]:
    """Read the Prometheus text format, samples in its order.

    Raises:
        Unreadable: A line is neither a comment nor a sample, or there is no sample at all.
    """
    metrics = tuple(
        _sample(line.strip()) for line in clean(text).split("\n") if line.strip() and not line.lstrip().startswith("#")
    )
    if not metrics:
        raise Unreadable("the exporter's page holds no sample")
    return metrics


def _sample(line: str) -> Metric:
    name = _SAMPLE_NAME.match(line)
    if name is None:
        raise Unreadable(f"this is not a sample of a metric: {clean_line(line, 80)}")
    rest = line[name.end() :]
    labels: dict[str, str] = {}
    if rest.lstrip().startswith("{"):
        rest = _labels(rest.lstrip(), labels)
    elif not rest[:1].isspace():
        raise Unreadable(f"this is not a sample of a metric: {clean_line(line, 80)}")
    words = rest.split()
    value = _value(words[0]) if words else None
    if value is None or not _is_tail(words[1:]):
        raise Unreadable(f"this is not a sample of a metric: {clean_line(line, 80)}")
    return Metric(name=name[0], labels=labels, value=value)


def _labels(rest: str, labels: dict[str, str]) -> str:
    position = 1
    while True:
        label = _LABEL.match(rest, position)
        if label is None:
            break
        labels[label[1]] = clean_line(_ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], label[2]))
        position = label.end()
        if not rest.startswith(",", position):
            break
        position += 1
    end = rest[position:].lstrip()
    if not end.startswith("}"):
        raise Unreadable(f"the labels of a metric do not end: {clean_line(rest, 80)}")
    return end[1:].lstrip()


def _value(word: str) -> float | None:
    return _WORDS[word.lower()] if word.lower() in _WORDS else _number(word)


def _is_tail(words: list[str]) -> bool:
    """Tell whether these are what may follow a value: nothing, a time stamp, an exemplar behind a hash."""
    return not words or words[0] == "#" or (_number(words[0]) is not None and (len(words) == 1 or words[1] == "#"))


def parse_prometheus_vector(text: str) -> tuple[Metric, ...]:
    """Read the answer of a Prometheus server to an instant query, samples in its order; none is an answer too.

    Raises:
        Unreadable: It is no successful answer, or a sample has no value.
    """
    document = next(_documents(clean(text)), {})
    data = _dict(document.get("data"))
    if document.get("status") != "success" or data.get("resultType") != "vector":
        said = document.get("error")
        why = f": {clean_line(said, 200)}" if isinstance(said, str) else ""
        raise Unreadable(f"the Prometheus server gave no answer to the query{why}")
    return tuple(_vector_sample(_dict(result)) for result in _list(data.get("result")))


def _vector_sample(result: dict[str, Any]) -> Metric:
    labels = {clean_line(str(name)): clean_line(str(value)) for name, value in _dict(result.get("metric")).items()}
    pair = _list(result.get("value"))
    value = _value(pair[1]) if len(pair) == 2 and isinstance(pair[1], str) else None
    if value is None:
        raise Unreadable("a sample of the Prometheus server has no value")
    return Metric(name=labels.pop("__name__", ""), labels=labels, value=value)
