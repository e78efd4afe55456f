"""Findings as documents: plain data, SARIF, annotations of GitHub."""
