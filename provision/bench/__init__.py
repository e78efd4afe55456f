"""Measures: small workloads made on the spot, timed with their noise, and held against a baseline."""
