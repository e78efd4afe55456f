"""Choose, build and prove GPU software stacks from sourced facts."""

__version__ = "0.1.0"
