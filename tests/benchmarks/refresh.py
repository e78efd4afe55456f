"""Measure a refresh of torch's metadata against a floor: plainly fetching the same bytes in the same run.

    python tests/benchmarks/refresh.py [--runs N] [--json FILE]

A refresh of ``torch`` with an empty cache is recorded once: every address and range that it asks for. Then both are
timed in turn, A B, A B: the refresh from nothing, and bare requests for the recorded addresses, one after the other
over one connection per host. The refresh may be faster than the floor, since it asks several at once; ``reading``
is what it does beside waiting: its processor time. Skipped, with the reason, where the index does not answer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import requests

from provision.assets import asset_dir
from provision.errors import DataError, MissingDependencyError
from provision.index.address import IndexAddress, find_index
from provision.refresh.client import Client
from provision.refresh.engine import Plan, Refresh

Asked = list[tuple[str, dict[str, str]]]


class Recording(Client):
    """A client that remembers what it asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.asked: Asked = []

    def _ask_once(self, url: str, headers: Any, *words: Any, **settings: Any) -> Any:
        self.asked.append((url, dict(headers)))
        return super()._ask_once(url, headers, *words, **settings)


def refresh(index: IndexAddress) -> tuple[float, float, Recording]:
    """Refresh torch from nothing; return seconds, seconds of the processor, and what was asked."""
    with tempfile.TemporaryDirectory() as cache:
        client = Recording(cache=Path(cache), ca_bundle=index.ca_bundle)
        plan = Plan(axes=("torch",), index=index, dated=datetime.datetime.now(datetime.UTC).date(), cache=Path(cache))
        began, busy = time.perf_counter(), time.process_time()
        try:
            Refresh(asset_dir("compat"), plan, client).run()
        except DataError as error:
            print(f"note: {error.message}", file=sys.stderr)
        finally:
            client.close()
        return time.perf_counter() - began, time.process_time() - busy, client


def fetch(asked: Asked, index: IndexAddress) -> tuple[float, int]:
    """Fetch the recorded addresses and ranges; return seconds and bytes."""
    received = 0
    with requests.Session() as session:
        if index.ca_bundle:
            session.verify = index.ca_bundle
        began = time.perf_counter()
        for url, headers in asked:
            received += len(session.get(url, headers=headers, timeout=60).content)
        return time.perf_counter() - began, received


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the refresh of torch's metadata.")
    parser.add_argument("--runs", type=int, default=3, help="timed pairs")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args(arguments)
    try:
        index = find_index()
        _, _, first = refresh(index)
    except MissingDependencyError as error:
        print(f"skipped: {error.message}: {'; '.join(error.because[:1])}")
        return 0
    rows = []
    for _ in range(options.runs):
        seconds, busy, client = refresh(index)
        floor, received = fetch(first.asked, index)
        rows.append({"refresh": seconds, "busy": busy, "floor": floor, "bytes": received, "asked": len(client.asked)})
    whole, busy, floor = (median(row[key] for row in rows) for key in ("refresh", "busy", "floor"))
    print(f"{rows[0]['asked']} requests, {rows[0]['bytes'] / 1e6:.1f} MB")
    print(f"refresh of torch   {whole:6.2f} s, of which reading {busy:.2f} s of the processor")
    print(f"plain fetching     {floor:6.2f} s")
    print(f"ratio              {whole / floor:6.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
