"""Existing files of GPU environments: parsed, held against the facts, reported as findings."""
