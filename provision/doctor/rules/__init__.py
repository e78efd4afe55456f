"""One diagnosis a module, named as in ``compat/diagnoses.toml`` with dashes and dots as underscores."""
