"""One check a module, named as in ``compat/checks.toml`` with dashes and dots as underscores."""
