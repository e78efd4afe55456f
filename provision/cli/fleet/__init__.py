"""The parts of `provision fleet`, one a subcommand."""
