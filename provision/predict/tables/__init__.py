"""Tables of measurements: what their rows asked for and what came out."""

from __future__ import annotations

from provision.predict.tables.kinds import PROBES, Kind, Measured, detect, precision_of
from provision.predict.tables.sheet import Sheet, read_sheet

__all__ = ["PROBES", "Kind", "Measured", "Sheet", "detect", "precision_of", "read_sheet"]
