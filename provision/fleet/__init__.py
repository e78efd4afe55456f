"""Whole fleets: what their Prometheus knows of them."""
