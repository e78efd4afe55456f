"""One collector per target, transports that carry it there, and pure parsers of what it brings back."""
