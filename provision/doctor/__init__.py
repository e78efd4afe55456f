"""Name the cause of a failure from what a probe saw, what a log says, or both."""
