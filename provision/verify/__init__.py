"""Judge what a probe saw against a lock and the facts."""
