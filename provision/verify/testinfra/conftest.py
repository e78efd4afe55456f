"""Found by pytest when this package is named with ``--pyargs``."""

pytest_plugins = ["provision.verify.testinfra.plugin"]
