"""Tables of measurements: what their rows asked for and what came out."""

from __future__ import annotations

from provision.predict.tables.kinds import KINDS, Kind, Measured, detect
from provision.predict.tables.sheet import Sheet, read_sheet

__all__ = ["KINDS", "Kind", "Measured", "Sheet", "detect", "read_sheet"]
