"""What the page of the matrix knows, read out of its text as its own script reads it."""

from __future__ import annotations

import json
from typing import Any


def read_tables(page: str) -> Any:
    data = page.split('<script type="application/json" id="tables">')[1].split("</script>")[0]
    packed = json.loads(data)
    found: list[Any] = []

    def unpack(value: Any) -> Any:
        if isinstance(value, list):
            return [unpack(item) for item in value]
        if isinstance(value, dict):
            ((shape, row),) = value.items()
            return dict(zip(packed["shapes"][int(shape)], map(unpack, row), strict=True))
        return found[~value] if type(value) is int and value < 0 else value

    for value in packed["values"]:
        found += [unpack(value)]
    return found[-1]
