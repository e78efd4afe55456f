"""Pure parsers, one tool a module: recorded text in, records out; what cannot be read raises ``Unreadable``."""
